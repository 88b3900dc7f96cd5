//! Why a worker can go no further.

use crate::RowId;
use clearway_fabric::{FabricError, PostError, VerbError};
use std::error::Error;
use std::fmt;

/// Why a worker can go no further. It may hold locks.
#[derive(Debug)]
pub enum RemoteError {
    /// An owner cannot be reached.
    Fabric(FabricError),
    /// The fabric refused a batch.
    Post(PostError),
    /// A verb failed.
    Verb(VerbError),
    /// The metadata of a row is not what its holder left: somebody broke the protocol.
    LockLost(RowId),
    /// A bucket of a store's index names this row for a key that the row does not have.
    IndexBroken(RowId),
    /// An owner has answered with something else than what was asked for, or refused a request as
    /// bad.
    BadMessage,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(why) => write!(f, "could not connect to an owner of rows: {why}"),
            Self::Post(why) => write!(f, "could not post to an owner of rows: {why}"),
            Self::Verb(why) => write!(f, "a verb on a row failed: {why}"),
            Self::LockLost(row) => {
                write!(
                    f,
                    "the lock of row {} of owner {} was changed by another",
                    row.index, row.owner
                )
            }
            Self::BadMessage => f.write_str("an owner of rows broke the protocol of messages"),
            Self::IndexBroken(row) => {
                write!(
                    f,
                    "the index of owner {} and its row {} contradict each other",
                    row.owner, row.index
                )
            }
        }
    }
}

impl Error for RemoteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Fabric(why) => Some(why),
            Self::Post(why) => Some(why),
            Self::Verb(why) => Some(why),
            Self::LockLost(_) | Self::IndexBroken(_) | Self::BadMessage => None,
        }
    }
}

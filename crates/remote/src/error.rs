//! Errors that end a worker.

use crate::RowId;
use clearway_fabric::{FabricError, PostError, VerbError};
use std::error::Error;
use std::fmt;

/// Why a worker cannot continue. It may still hold locks.
#[derive(Debug)]
pub enum RemoteError {
    /// An owner cannot be reached.
    Fabric(FabricError),
    /// The fabric rejected a batch.
    Post(PostError),
    /// A verb failed.
    Verb(VerbError),
    /// The metadata of a row is not what its holder left: another client broke the protocol.
    LockLost(RowId),
    /// A bucket of a store's index names this row for a key that the row does not have.
    IndexBroken(RowId),
    /// An owner sent an unexpected reply, or rejected a request as invalid.
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
                    "the lock of row {} of owner {} was changed by another client",
                    row.index, row.owner
                )
            }
            Self::BadMessage => f.write_str("an owner of rows sent an unexpected reply"),
            Self::IndexBroken(row) => {
                write!(
                    f,
                    "the index of owner {} is inconsistent with its row {}",
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

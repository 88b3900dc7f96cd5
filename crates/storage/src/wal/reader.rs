//! Reads the log. Signatures; the bodies follow.
use std::fmt;
use std::io;
use std::sync::Arc;

use clearway_env::Disk;
use clearway_types::Lsn;

use super::WalConfig;

/// Why the log cannot be read.
#[derive(Debug)]
pub enum WalError {
    /// The disk failed.
    Io(io::Error),
    /// The log is damaged at `lsn`, in the middle.
    Corrupt {
        /// Where the unreadable record starts.
        lsn: Lsn,
        /// What was found there.
        reason: String,
    },
}

impl fmt::Display for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the log: {error}"),
            Self::Corrupt { lsn, reason } => write!(f, "the log is damaged at {lsn}: {reason}"),
        }
    }
}
impl std::error::Error for WalError {}
impl From<io::Error> for WalError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalEntry<'a> {
    /// Where it starts.
    pub start: Lsn,
    /// Where it ends, and the next starts: what `append` returned.
    pub end: Lsn,
    /// What was appended.
    pub payload: &'a [u8],
}

/// Reads the log in order.
pub struct WalReader {}

impl WalReader {
    /// A reader of the records from `from` on, which is a record's start or the log's end (or 0: from the beginning).
    pub fn open(_disk: Arc<dyn Disk>, _config: &WalConfig, _from: Lsn) -> Result<Self, WalError> {
        unimplemented!()
    }
    /// The next record; `None` at the log's end, which a torn record also is.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<WalEntry<'_>>, WalError> {
        unimplemented!()
    }
    /// Where the next record starts; after `next` has returned `None` the end of the log, to give to `Wal::open`.
    pub fn position(&self) -> Lsn {
        unimplemented!()
    }
    /// The record that starts at `start`, whatever `next` has read.
    pub fn read_at(&mut self, _start: Lsn) -> Result<WalEntry<'_>, WalError> {
        unimplemented!()
    }
}

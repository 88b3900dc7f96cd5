//! Errors of backup, verification and restore.

use std::fmt;
use std::io;

use clearway_buffer::PageError;
use clearway_types::{SqlError, SqlState};

use crate::error::{OpenError, OpenErrorKind};
use crate::wal::WalError;

/// Why a backup cannot be taken, verified or restored.
#[derive(Debug)]
pub enum BackupError {
    /// Another backup is running.
    Busy,
    /// The backup was cancelled on request.
    Cancelled,
    /// The target exists and is not an empty directory.
    Occupied(String),
    /// The disk failed.
    Io {
        /// The operation and the file.
        doing: String,
        /// The error from the disk.
        error: io::Error,
    },
    /// The database itself cannot be read correctly, or the checkpoint failed.
    Source(OpenError),
    /// The manifest is missing or damaged: the backup is incomplete, or the directory is not a
    /// backup.
    Incomplete(String),
    /// The backup is of a format version that this release does not read.
    Version(String),
    /// There is no such directory.
    Missing(String),
    /// A file of the backup differs from what was written.
    Damaged {
        /// The file.
        file: String,
        /// The first byte of the damaged part.
        offset: u64,
        /// The expected and the actual content.
        what: String,
    },
}

impl BackupError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Io { doing, error }
    }

    /// Classifies the error.
    pub fn kind(&self) -> OpenErrorKind {
        match self {
            Self::Busy => OpenErrorKind::InUse,
            Self::Cancelled | Self::Occupied(_) | Self::Version(_) | Self::Missing(_) => {
                OpenErrorKind::Refused
            }
            Self::Io { error, .. } => OpenErrorKind::of_io(error),
            Self::Source(error) => error.kind(),
            Self::Incomplete(_) | Self::Damaged { .. } => OpenErrorKind::Damaged,
        }
    }

    /// Returns a hint for the user, as a full sentence.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match (self, self.kind()) {
            (Self::Busy, _) => "Try again when the other backup has ended.",
            (Self::Occupied(_), _) => "Name a directory that does not exist yet.",
            (Self::Version(_), _) => "Nothing is wrong with it: use the release that took it.",
            (Self::Missing(_), _) => "Name the directory of a backup.",
            (Self::Incomplete(_) | Self::Damaged { .. }, _) => {
                "Use another backup: no part of this one can be trusted."
            }
            (Self::Source(_), OpenErrorKind::Damaged) => {
                "Damaged data is not copied. Keep the directory as it is, and restore it from an earlier backup."
            }
            (Self::Io { .. }, OpenErrorKind::Access) => {
                "Check owner and permissions. With a running server, the server's user writes the backup."
            }
            (_, OpenErrorKind::Full | OpenErrorKind::Disk) => {
                "What was written is incomplete and will be refused: remove it."
            }
            (Self::Source(_), kind) => kind.hint(),
            _ => return None,
        })
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another backup is being taken"),
            Self::Cancelled => f.write_str("the backup was cancelled"),
            Self::Occupied(path) => write!(f, "{path} exists and is not an empty directory"),
            Self::Io { doing, error } => write!(f, "{doing}: {error}"),
            Self::Source(error) => write!(f, "{error}"),
            Self::Incomplete(why) | Self::Version(why) => f.write_str(why),
            Self::Missing(path) => write!(f, "there is no directory {path}"),
            Self::Damaged { file, offset, what } => {
                write!(f, "{file} is damaged at byte {offset}: {what}")
            }
        }
    }
}
impl std::error::Error for BackupError {}

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        Self::Source(error)
    }
}
impl From<PageError> for BackupError {
    fn from(error: PageError) -> Self {
        Self::Source(error.into())
    }
}
impl From<WalError> for BackupError {
    fn from(error: WalError) -> Self {
        Self::Source(error.into())
    }
}

impl From<BackupError> for SqlError {
    fn from(error: BackupError) -> Self {
        let state = match (&error, error.kind()) {
            (BackupError::Busy, _) => SqlState::OBJECT_IN_USE,
            (BackupError::Cancelled, _) => SqlState::QUERY_CANCELED,
            (BackupError::Occupied(_), _) => SqlState::DUPLICATE_FILE,
            (_, OpenErrorKind::Full) => SqlState::DISK_FULL,
            (_, OpenErrorKind::Damaged) => SqlState::DATA_CORRUPTED,
            (_, OpenErrorKind::Access | OpenErrorKind::Shared) => SqlState::INSUFFICIENT_PRIVILEGE,
            (_, OpenErrorKind::Refused) => SqlState::INVALID_PARAMETER,
            _ => SqlState::IO,
        };
        let answer = SqlError::new(state, error.to_string());
        match error.hint() {
            Some(hint) => answer.hint(hint),
            None => answer,
        }
    }
}

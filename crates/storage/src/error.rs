//! Errors of the layers below the partitions, grouped by the caller's reaction.

use std::fmt;
use std::io;

use clearway_buffer::{PageError, data_file_name};
use clearway_sync::panics::Panicked;
use clearway_types::{Lsn, PageId, SqlError, SqlState, TreeId};

use crate::wal::WalError;

/// An error that a retry does not fix.
#[derive(Debug)]
pub enum StorageError {
    /// A page cannot be read or written.
    Page(PageError),
    /// A page passes verification but its content is invalid.
    Corrupt {
        /// The page.
        page: PageId,
        /// The problem.
        what: &'static str,
    },
    /// A log record has a valid checksum but invalid content.
    BadRecord {
        /// The record's start.
        lsn: Lsn,
        /// The problem.
        what: &'static str,
    },
    /// The key is longer than a page allows.
    KeyTooLong {
        /// The key's length in bytes.
        len: usize,
    },
    /// The value is longer than one log record, or this buffer pool, allows.
    ValueTooLong {
        /// The value's length in bytes.
        len: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The tree does not exist in this partition.
    NoTree(TreeId),
    /// The tree already exists.
    TreeExists(TreeId),
    /// The log cannot be read.
    Log(WalError),
}

/// Maximum key length in bytes: four cells must fit in a page.
pub const MAX_KEY: usize = 1600;

/// Maximum value length in bytes, whatever the pool: a record that replaces one value by another
/// must fit in the log's buffer.
pub(crate) const MAX_VALUE: usize = 1 << 20;

impl StorageError {
    pub(crate) fn bad_record(lsn: Lsn, what: &'static str) -> Self {
        Self::BadRecord { lsn, what }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(error) => write!(f, "{error}"),
            Self::Corrupt { page, what } => {
                write!(f, "{page} in {} is damaged: {what}", data_file_name(page.partition()))
            }
            Self::BadRecord { lsn, what } => {
                write!(f, "the log record at {lsn} is damaged: {what}")
            }
            Self::KeyTooLong { len } => write!(f, "index row size {len} exceeds maximum {MAX_KEY}"),
            Self::ValueTooLong { len, max } => {
                write!(f, "row is too big: size {len}, maximum size {max}")
            }
            Self::NoTree(tree) => write!(f, "tree {tree} does not exist"),
            Self::TreeExists(tree) => write!(f, "tree {tree} exists already"),
            Self::Log(error) => write!(f, "{error}"),
        }
    }
}
impl std::error::Error for StorageError {}

impl From<PageError> for StorageError {
    fn from(error: PageError) -> Self {
        Self::Page(error)
    }
}
impl From<WalError> for StorageError {
    fn from(error: WalError) -> Self {
        Self::Log(error)
    }
}

const DAMAGED: &str = "Other tables and rows are unaffected. Restore the file from a backup.";
const FULL: &str =
    "Free space on its file system: writes then continue automatically. Reads continue meanwhile.";
const FAILED: &str =
    "Check the system log for disk errors. Operations on other data are unaffected.";
const STOPPED: &str = "The server stops; its next start recovers what was committed.";
const NO_FRAMES: &str = "Enlarge buffer_pool, or run fewer statements at once.";

/// Returns the SQLSTATE and a hint for the user.
fn explain_page(error: &PageError) -> (SqlState, &'static str) {
    match error {
        error if error.is_full() => (SqlState::DISK_FULL, FULL),
        PageError::Damaged { .. } | PageError::NoFile(_) => (SqlState::DATA_CORRUPTED, DAMAGED),
        PageError::Io { action: "open" | "read" | "extend", .. } => (SqlState::IO, FAILED),
        PageError::Io { .. } | PageError::Log(_) | PageError::LogRoom(_) => (SqlState::IO, STOPPED),
        PageError::Panicked { .. } => (SqlState::INTERNAL, STOPPED),
        PageError::NoFrames => (SqlState::OUT_OF_MEMORY, NO_FRAMES),
        PageError::Closed => {
            (SqlState::ADMIN_SHUTDOWN, "Connect again when the server has been started again.")
        }
    }
}

impl From<StorageError> for SqlError {
    fn from(error: StorageError) -> Self {
        let (state, hint) = match &error {
            StorageError::KeyTooLong { .. } | StorageError::ValueTooLong { .. } => {
                (SqlState::LIMIT_EXCEEDED, "")
            }
            StorageError::NoTree(_) | StorageError::TreeExists(_) => (SqlState::INTERNAL, ""),
            StorageError::Page(page) => explain_page(page),
            StorageError::Log(WalError::Io(_)) => (SqlState::IO, FAILED),
            StorageError::Log(WalError::Corrupt { .. }) | StorageError::BadRecord { .. } => {
                (SqlState::DATA_CORRUPTED, "")
            }
            StorageError::Corrupt { .. } => (SqlState::DATA_CORRUPTED, DAMAGED),
        };
        let told = SqlError::new(state, error.to_string());
        if hint.is_empty() { told } else { told.hint(hint) }
    }
}

/// Why a data directory cannot be opened, or a checkpoint failed.
#[derive(Debug)]
pub enum OpenError {
    /// Another server has the directory open.
    InUse(String),
    /// The disk failed.
    Io {
        /// The operation and the file.
        doing: String,
        /// The error from the disk.
        error: io::Error,
    },
    /// The directory is not a Clearway directory, has another version, or needs other settings.
    Refused(String),
    /// Other users may write to this file or directory.
    Shared(String),
    /// Data or log are damaged.
    Storage(StorageError),
    /// The catalog is invalid.
    Catalog(String),
}

/// Kinds of errors at opening, by what the user can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// Another server has the directory open.
    InUse,
    /// The directory is not ours, has another version, or needs other settings.
    Refused,
    /// The operating system denies access: permissions, or a read-only file system.
    Access,
    /// Other users may write to the directory.
    Shared,
    /// The file system is full.
    Full,
    /// The disk fails.
    Disk,
    /// The data is damaged.
    Damaged,
    /// A thread has panicked, which is a bug in Clearway.
    Panicked,
}

impl OpenErrorKind {
    pub(crate) fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Access,
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged,
            io::ErrorKind::Unsupported
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::InvalidInput => Self::Refused,
            _ if clearway_env::is_full(error) => Self::Full,
            _ if error.get_ref().is_some_and(|inner| inner.is::<Panicked>()) => Self::Panicked,
            _ => Self::Disk,
        }
    }

    /// Returns what the user can do, as a full sentence.
    pub fn hint(self) -> &'static str {
        match self {
            Self::InUse => "Stop the other server, or serve another directory.",
            Self::Refused => {
                "Nothing is lost. Serve another directory, or use the release and settings it was made with."
            }
            Self::Access => {
                "The server's user must own the directory, on a file system that is mounted for writing."
            }
            Self::Shared => "Nothing was changed. Remove the permission: chmod -R go-w DIRECTORY.",
            Self::Full => {
                "Nothing committed is lost. Free space on the file system and start again."
            }
            Self::Disk => {
                "Nothing more was changed. Check the system log for disk errors before starting again."
            }
            Self::Panicked => {
                "This is a bug: please report it, with this message. What was committed is still in the directory."
            }
            Self::Damaged => "Keep a copy of the directory as it is, and restore it from a backup.",
        }
    }
}

impl OpenError {
    /// Classifies the error.
    pub fn kind(&self) -> OpenErrorKind {
        match self {
            Self::InUse(_) => OpenErrorKind::InUse,
            Self::Io { error, .. } | Self::Storage(StorageError::Log(WalError::Io(error))) => {
                OpenErrorKind::of_io(error)
            }
            Self::Refused(_) => OpenErrorKind::Refused,
            Self::Shared(_) => OpenErrorKind::Shared,
            Self::Storage(StorageError::Page(
                PageError::Io { source, .. } | PageError::Log(source) | PageError::LogRoom(source),
            )) => OpenErrorKind::of_io(source),
            Self::Storage(StorageError::Page(PageError::Panicked { .. })) => {
                OpenErrorKind::Panicked
            }
            // A thread that reads pages has ended.
            Self::Storage(StorageError::Page(PageError::Closed)) => OpenErrorKind::Disk,
            Self::Storage(_) | Self::Catalog(_) => OpenErrorKind::Damaged,
        }
    }

    /// Creates the error for an invalid catalog.
    pub fn catalog(message: impl Into<String>) -> Self {
        Self::Catalog(message.into())
    }
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Io { doing, error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(what) => write!(f, "{what} is in use by another server"),
            Self::Io { doing, error } => write!(f, "{doing}: {error}"),
            Self::Refused(why) => f.write_str(why),
            Self::Shared(path) => write!(f, "users other than its owner may write to {path}"),
            Self::Storage(error) => write!(f, "{error}"),
            Self::Catalog(why) => write!(f, "the catalog is damaged: {why}"),
        }
    }
}
impl std::error::Error for OpenError {}

impl From<StorageError> for OpenError {
    /// Limits that depend on the settings of this start are no damage.
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::ValueTooLong { .. } => {
                Self::Refused(format!("{error}: start with a larger log_buffer and buffer_pool"))
            }
            StorageError::Page(PageError::NoFrames) => {
                Self::Refused(format!("{error}: start with a larger buffer_pool"))
            }
            _ => Self::Storage(error),
        }
    }
}
impl From<PageError> for OpenError {
    fn from(error: PageError) -> Self {
        StorageError::from(error).into()
    }
}
impl From<WalError> for OpenError {
    fn from(error: WalError) -> Self {
        StorageError::from(error).into()
    }
}

//! What can go wrong below the partitions, grouped by what the caller does next.

use std::fmt;
use std::io;

use clearway_buffer::{PageError, Want};
use clearway_types::{Lsn, PageId, SqlError, SqlState, TreeId};

use crate::wal::WalError;

/// Why an attempt did not go through.
#[derive(Debug)]
pub enum Blocked {
    /// The attempt changed nothing: fetch all of these, keep them, and try again.
    Want(Vec<Want>),
    /// It cannot go through; nothing was changed.
    Failed(StorageError),
}

impl From<Want> for Blocked {
    #[cold]
    fn from(want: Want) -> Self {
        Self::Want(vec![want])
    }
}
impl From<StorageError> for Blocked {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Failed(error)
    }
}

/// What a retry does not mend.
#[derive(Debug)]
pub enum StorageError {
    /// A page cannot be read or written.
    Page(PageError),
    /// A page was read whole but its content makes no sense.
    Corrupt {
        /// The page.
        page: PageId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A log record has a valid checksum but makes no sense.
    BadRecord {
        /// Where it starts.
        lsn: Lsn,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The key is longer than a page allows.
    KeyTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The value is longer than one log record, or this buffer pool, allows.
    ValueTooLong {
        /// Its length in bytes.
        len: usize,
        /// The greatest length in bytes.
        max: usize,
    },
    /// There is no such tree in this partition.
    NoTree(TreeId),
    /// The tree is there already.
    TreeExists(TreeId),
    /// The log cannot be read.
    Log(WalError),
}

/// The longest key, in bytes: four cells must fit in a page.
pub const MAX_KEY: usize = 1600;

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(error) => write!(f, "{error}"),
            Self::Corrupt { page, what } => write!(f, "{page} is damaged: {what}"),
            Self::BadRecord { lsn, what } => write!(f, "the log record at {lsn} is damaged: {what}"),
            Self::KeyTooLong { len } => write!(f, "index row size {len} exceeds maximum {MAX_KEY}"),
            Self::ValueTooLong { len, max } => write!(f, "row is too big: size {len}, maximum size {max}"),
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

impl From<StorageError> for SqlError {
    fn from(error: StorageError) -> Self {
        let state = match &error {
            StorageError::KeyTooLong { .. } | StorageError::ValueTooLong { .. } => SqlState::LIMIT_EXCEEDED,
            StorageError::NoTree(_) | StorageError::TreeExists(_) => SqlState::INTERNAL,
            _ => SqlState::DATA_CORRUPTED,
        };
        SqlError::new(state, error.to_string())
    }
}

/// Why a data directory cannot be opened, or a checkpoint not be taken.
#[derive(Debug)]
pub enum OpenError {
    /// Another server has it.
    InUse(String),
    /// The disk failed.
    Io {
        /// What was being done, and to which file.
        doing: String,
        /// What the disk said.
        error: io::Error,
    },
    /// The directory is not one of ours, or of another version, or made with other settings.
    Refused(String),
    /// Data or log are damaged.
    Storage(StorageError),
    /// The catalog makes no sense.
    Catalog(String),
}

impl OpenError {
    /// The catalog's rows make no sense.
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
            Self::InUse(dir) => write!(f, "the data directory {dir} is in use by another server"),
            Self::Io { doing, error } => write!(f, "{doing}: {error}"),
            Self::Refused(why) => f.write_str(why),
            Self::Storage(error) => write!(f, "{error}"),
            Self::Catalog(why) => write!(f, "the catalog is damaged: {why}"),
        }
    }
}
impl std::error::Error for OpenError {}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}
impl From<PageError> for OpenError {
    fn from(error: PageError) -> Self {
        Self::Storage(error.into())
    }
}
impl From<WalError> for OpenError {
    fn from(error: WalError) -> Self {
        Self::Storage(error.into())
    }
}

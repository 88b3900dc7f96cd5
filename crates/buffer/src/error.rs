//! Errors of page operations.

use clearway_types::PageId;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The check that a page read from disk has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The CRC-32C of the content.
    Checksum,
    /// The format version.
    Version,
    /// The page's own id: the place holds another page.
    Id,
    /// The LSN: the page has changes that the log does not have.
    Lsn,
}

/// Why a page could not be read, written or given a frame. Cheap to clone: all waiters for one read
/// get the same error.
#[derive(Clone, Debug)]
pub enum PageError {
    /// The page's bytes differ from what was written. Reject operations that need this page; all
    /// other pages are unaffected.
    Damaged {
        /// The file.
        file: Arc<str>,
        /// The page.
        page: PageId,
        /// The failed check.
        damage: Damage,
        /// What the check computed or expected.
        expected: u64,
        /// The value found in the page.
        found: u64,
    },
    /// The disk failed. After a failed write or sync the pool writes no more: stop the node.
    Io {
        /// The file.
        file: Arc<str>,
        /// The page, if the error concerns one.
        page: Option<PageId>,
        /// `open`, `stat`, `read`, `extend`, `write` or `sync`.
        action: &'static str,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// The log could not be made durable, so no page may be written: stop the node.
    Log(Arc<io::Error>),
    /// The log has no space for the change. Retry later.
    LogRoom(Arc<io::Error>),
    /// The page belongs to a partition that has no file.
    NoFile(PageId),
    /// No frame could be freed, because too many pages are pinned or latched. Retry with fewer, or
    /// with a larger pool.
    NoFrames,
    /// The pool was shut down.
    Closed,
    /// A thread panicked during this operation. The pool writes and fetches nothing more: stop the
    /// node.
    Panicked {
        /// What the thread was doing.
        doing: &'static str,
        /// The panic's message.
        message: Arc<str>,
    },
}

impl PageError {
    pub(crate) fn io(file: &Arc<str>, action: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.clone(), page: None, action, source: Arc::new(source) }
    }

    pub(crate) fn panicked(doing: &'static str, message: &str) -> Self {
        Self::Panicked { doing, message: message.into() }
    }

    /// Returns the same error for this page.
    pub(crate) fn at(self, id: PageId) -> Self {
        match self {
            Self::Io { file, action, source, .. } => {
                Self::Io { file, page: Some(id), action, source }
            }
            other => other,
        }
    }

    /// Returns true if the disk is full or a quota is used up.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } | Self::Log(source) | Self::LogRoom(source) if clearway_env::is_full(source))
    }
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { file, page, damage, expected, found } => {
                let what = match damage {
                    Damage::Checksum => "checksum",
                    Damage::Version => "format version",
                    Damage::Id => "page id",
                    Damage::Lsn => "an LSN up to the log's end,",
                };
                write!(
                    f,
                    "{page} in {file} is damaged: {what} {expected:#x} expected, {found:#x} found"
                )
            }
            Self::Io { file, page: Some(page), action, source } => {
                write!(f, "cannot {action} {page} in {file}: {source}")
            }
            Self::Io { file, page: None, action, source } => {
                write!(f, "cannot {action} {file}: {source}")
            }
            Self::Log(source) => {
                write!(f, "cannot write pages because the log is not durable: {source}")
            }
            Self::LogRoom(source) => write!(f, "cannot write to the log: {source}"),
            Self::NoFile(page) => write!(f, "{page}: this partition has no file"),
            Self::NoFrames => {
                f.write_str("no free frame: too many pages of the buffer pool are in use at once")
            }
            Self::Closed => f.write_str("the buffer pool is shut down"),
            Self::Panicked { doing, message } => {
                write!(f, "a thread panicked while {doing}: {message}")
            }
        }
    }
}

impl std::error::Error for PageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Log(source) | Self::LogRoom(source) => Some(&**source),
            _ => None,
        }
    }
}

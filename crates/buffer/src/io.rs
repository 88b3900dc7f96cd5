//! What the pool asks of the disk below and of the log above.

use crate::error::PageError;
use crate::page::PAGE_SIZE;
use clearway_env::File;
use clearway_types::{Lsn, PageId};
use std::io;
use std::sync::Arc;

/// The most pages written at once: what the double-write file has room for.
pub const WRITE_BATCH: usize = 256;

/// Where a page lies.
pub struct Place {
    /// The file.
    pub file: Arc<dyn File>,
    /// The page's first byte in it.
    pub offset: u64,
}

/// Pages on disk. Every method may block, unless it says otherwise.
pub trait PageIo: Send + Sync {
    /// The name of the file that holds the page: for messages.
    fn file(&self, id: PageId) -> Arc<str>;

    /// Where a page lies, for who reads it without waiting. Does not block.
    fn place(&self, id: PageId) -> Result<Place, PageError>;

    /// Makes a page of what a read of its place has brought, and verifies it: what lies behind the
    /// file's end is zeros. Does not block.
    fn accept(
        &self,
        id: PageId,
        page: &mut [u8; PAGE_SIZE],
        read: io::Result<usize>,
    ) -> Result<(), PageError>;

    /// Whether the disk has space for the page for sure, so that writing it will not fail for lack
    /// of it. The last pages of what a file has are kept for those who say `last`.
    fn has_space(&self, id: PageId, last: bool) -> bool {
        let _ = (id, last);
        true
    }

    /// Gets space for the page, and for some more if there is. (By default: for pages whose space
    /// is not counted.)
    fn make_space(&self, id: PageId, last: bool) -> Result<(), PageError> {
        let _ = (id, last);
        Ok(())
    }

    /// Writes sealed pages ([`crate::seal`]) so that a crash in the middle leaves each of them old
    /// or new after [`PageIo::restore_torn`]. Sure to survive a crash only after [`PageIo::sync`]
    /// or when a later call has succeeded: each syncs what the one before has written, so that an
    /// error may be about that.
    fn write(&self, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError>;

    /// Returns when all that was written before survives a crash.
    fn sync(&self) -> Result<(), PageError>;

    /// Mends pages that a crash has left half written, and returns how many; makes durable what an
    /// earlier process has written and perhaps not synced. Before the first read after opening.
    fn restore_torn(&self) -> Result<usize, PageError>;
}

/// What the pool must know of the log to keep the write-ahead rule.
pub trait WalBarrier: Send + Sync {
    /// Blocks until the log is durable up to `lsn`. After an error no page that needs it is
    /// written.
    fn ensure_durable(&self, lsn: Lsn) -> io::Result<()>;

    /// How far the log is durable.
    fn durable(&self) -> Lsn;

    /// Calls `done` when so many bytes can be appended to the log without waiting, or with an error
    /// if they cannot be for now; `must`: who asks cannot be told so, and waits on. (By default:
    /// for a log that is never full.)
    fn when_room(&self, bytes: u64, must: bool, done: Box<dyn FnOnce(io::Result<()>) + Send>) {
        let _ = (bytes, must);
        done(Ok(()));
    }

    /// A lower bound of the start of every record that is appended after this call. Whoever reads
    /// an `appended` that covers a record must see what the appender wrote before it appended
    /// (Acquire here, Release in the append).
    fn appended(&self) -> Lsn;
}

//! The interfaces that the pool needs from the disk and from the log.

use crate::error::PageError;
use crate::page::PAGE_SIZE;
use clearway_env::File;
use clearway_types::{Lsn, PageId};
use std::io;
use std::sync::Arc;

/// The maximum number of pages written at once: the capacity of the double-write file.
pub const WRITE_BATCH: usize = 256;

/// The place of a page on disk.
pub struct Place {
    /// The file.
    pub file: Arc<dyn File>,
    /// The offset of the page's first byte.
    pub offset: u64,
}

/// The part of a file's space that an operation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileSpace {
    /// All but the last pages, which are the reserve.
    Usual,
    /// Also the reserve: for operations that must not fail.
    WithReserve,
}

/// Pages on disk. Every method may block, unless its documentation says otherwise.
pub trait PageIo: Send + Sync {
    /// Returns the name of the file that holds the page, for messages.
    fn file(&self, id: PageId) -> Arc<str>;

    /// Returns the place of a page, for asynchronous reads. Does not block.
    fn place(&self, id: PageId) -> Result<Place, PageError>;

    /// Converts the result of a read into a page and verifies it. Bytes beyond the end of the file
    /// are zeros. Does not block.
    fn accept(
        &self,
        id: PageId,
        page: &mut [u8; PAGE_SIZE],
        read: io::Result<usize>,
    ) -> Result<(), PageError>;

    /// Returns true if space for the page is guaranteed, so that writing it cannot fail for lack of
    /// space.
    fn has_space(&self, id: PageId, space: FileSpace) -> bool {
        let _ = (id, space);
        true
    }

    /// Allocates space for the page, and for some more if available. (The default suits
    /// implementations that do not count space.)
    fn make_space(&self, id: PageId, space: FileSpace) -> Result<(), PageError> {
        let _ = (id, space);
        Ok(())
    }

    /// Writes sealed pages ([`crate::seal`]). After a crash during the write and
    /// [`PageIo::restore_torn`], each page is old or new. The pages are durable only after
    /// [`PageIo::sync`] or a later successful call: each call syncs the pages of the previous one,
    /// so its error may concern those.
    fn write(&self, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError>;

    /// Returns when all earlier writes are durable.
    fn sync(&self) -> Result<(), PageError>;

    /// Restores pages that a crash left partly written, and returns their number. Makes durable
    /// what an earlier process wrote and may not have synced. Must be called before the first read
    /// after opening.
    fn restore_torn(&self) -> Result<usize, PageError>;
}

/// The interface of the log that the pool needs to keep the write-ahead rule.
pub trait WalBarrier: Send + Sync {
    /// Blocks until the log is durable up to `lsn`. After an error, no page that needs it is
    /// written.
    fn ensure_durable(&self, lsn: Lsn) -> io::Result<()>;

    /// Returns the LSN up to which the log is durable.
    fn durable(&self) -> Lsn;

    /// Calls `done` when `bytes` bytes can be appended to the log without waiting, or with an error
    /// if that is impossible for now. With `must`, a lack of space is no reason for an error:
    /// `done` waits until there is space, or the log fails or is closed. (The default suits a log
    /// that is never full.)
    fn when_room(&self, bytes: u64, must: bool, done: Box<dyn FnOnce(io::Result<()>) + Send>) {
        let _ = (bytes, must);
        done(Ok(()));
    }

    /// Returns a lower bound for the start of every record that is appended after this call. A
    /// thread that reads an `appended` that covers a record must see everything the appender wrote
    /// before the append (Acquire here, Release in the append).
    fn appended(&self) -> Lsn;
}

/// The log of an engine that has none: it gives up recovery, so a page may be written at any time.
/// Pages keep LSN 0, and `Pool::flush_before(Lsn(1))` writes every changed page.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl WalBarrier for NoLog {
    fn ensure_durable(&self, _: Lsn) -> io::Result<()> {
        Ok(())
    }
    fn durable(&self) -> Lsn {
        Lsn(u64::MAX)
    }
    fn appended(&self) -> Lsn {
        Lsn(0)
    }
}

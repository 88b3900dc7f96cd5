//! What the pool asks of the disk below and of the log above.

use crate::error::PageError;
use crate::page::PAGE_SIZE;
use clearway_types::{Lsn, PageId};
use std::io;

/// Pages on disk. Every method may block.
pub trait PageIo: Send + Sync {
    /// Reads a page and verifies it. A page that was never written reads as zeros.
    fn read(&self, id: PageId, into: &mut [u8; PAGE_SIZE]) -> Result<(), PageError>;

    /// Writes sealed pages ([`crate::seal`]) so that a crash in the middle leaves each of them old or new after
    /// [`PageIo::restore_torn`]. Sure to survive a crash only after [`PageIo::sync`].
    fn write(&self, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError>;

    /// Returns when all that was written before survives a crash.
    fn sync(&self) -> Result<(), PageError>;

    /// Mends pages that a crash has left half written; returns how many. Before the first read after opening.
    fn restore_torn(&self) -> Result<usize, PageError>;
}

/// What the pool must know of the log to keep the write-ahead rule.
pub trait WalBarrier: Send + Sync {
    /// Blocks until the log is durable up to `lsn`. After an error no page that needs it is written.
    fn ensure_durable(&self, lsn: Lsn) -> io::Result<()>;

    /// How far the log is durable.
    fn durable(&self) -> Lsn;

    /// A lower bound of the start of every record that is appended after this call. Whoever reads an `appended` that
    /// covers a record must see what the appender wrote before it appended (Acquire here, Release in the append).
    fn appended(&self) -> Lsn;
}

//! Online and offline backups of a whole database, their verification and their restore.
//!
//! A backup is a directory with three parts. `data/` has the pages of each partition. `log` has the
//! log that makes the pages consistent. `manifest`, written last, has the checksums of both and the
//! content of the control file. The copy is fuzzy, like a checkpoint:
//!
//! 1. Pin the log and take a checkpoint. The pages in the files now contain all changes before its
//!    `redo`.
//! 2. Copy the pages as they are in the files at that moment; verify each.
//! 3. Read the end of the log, and copy the log from the checkpoint's `scan_from` to exactly that
//!    end; verify each record.
//!
//! Starting the restored directory then recovers as after a crash at that end. It contains every
//! transaction whose commit record ends at or before the end, and nothing of any other transaction.
//!
//! Invariants
//! 1. No page of a backup has an LSN above the backup's end. A page is copied from its file before
//!    the end is read, and a page is written to its file only when the log is durable up to its
//!    LSN. Each page is checked.
//! 2. The log from the checkpoint's `scan_from` on is kept until it has been copied (`LogPin`).
//! 3. Damaged data is never copied: the backup fails and names the file and the place. A page in
//!    use that the file does not have is damage, unless the copied log creates it (`lost`).
//! 4. A directory without a valid manifest is not a backup; a directory without a control file is
//!    not a database. Each is written last, when everything else is durable.
//!
//! Locking: one backup at a time, ensured by the pin's compare-and-swap. No latch is held, with one
//! exception: if a page was read while it was being written, the double-write file's latch is held
//! for that one page. A backup runs in a thread that may block, never in a worker.
//!
//! A crash leaves a backup without a manifest, or a restored directory without a control file. Both
//! are refused; the user removes them.
//!
//! Source: the fuzzy dump of Gray and Reuter (1993), 11.5; PostgreSQL's `pg_basebackup` for the
//! manifest.

mod error;
mod lost;
mod manifest;
mod output;
mod restore;
mod take;

pub use error::BackupError;
pub use manifest::{BackupFile, Manifest};
pub use restore::{restore, verify};
pub use take::take_offline;
pub(crate) use take::{LogPin, Source, UNPINNED, new_target};

use clearway_types::Lsn;
use std::ops::ControlFlow;

/// Bytes per checksum; also the unit of reads and writes.
const BLOCK: usize = 1 << 20;

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes copied.
    pub done: u64,
    /// Total bytes, as far as known.
    pub total: u64,
}

/// Called after each block. It may wait to limit the rate; `Break` cancels the copy.
pub type BackupStep<'a> = dyn FnMut(BackupProgress) -> ControlFlow<()> + 'a;

/// The contents of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Total bytes of pages and log.
    pub bytes: u64,
    /// Start of the backup's log.
    pub begin: Lsn,
    /// End of the backup's log. The backup contains exactly what was committed up to this LSN.
    pub end: Lsn,
}

/// Counts the bytes and calls `step`.
struct Meter<'a> {
    progress: BackupProgress,
    step: &'a mut BackupStep<'a>,
}

impl Meter<'_> {
    fn more(&mut self, bytes: u64) -> Result<(), BackupError> {
        self.progress.done += bytes;
        // The log may have grown since the total was computed.
        self.progress.total = self.progress.total.max(self.progress.done);
        match (self.step)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(BackupError::Cancelled),
        }
    }
}

//! Copies of a whole database: taken while it runs or while it does not, checked, and made into a
//! directory again.
//!
//! A backup is a directory of its own kind: `data/` with each partition's pages, `log` with the log
//! that makes them one state, and, written last, `manifest` with the checksums of both and what the
//! control file must say. The copy is fuzzy, as a checkpoint is:
//!
//! 1. The log is pinned and a checkpoint taken: the pages in the files now have all changes before
//!    its `redo`.
//! 2. The pages are copied as the files have them at that moment, each verified.
//! 3. The log's end is read, and the log copied from the checkpoint's `scan_from` to exactly there,
//!    each record verified.
//!
//! A start of the restored directory then recovers as after a crash at that end: every transaction
//! whose commit record ends at or before it is there, and nothing of any other.
//!
//! Invariants
//! 1. No page of a backup has an LSN above the backup's end: a page is copied from its file before
//!    the end is read, and is in its file only when the log is durable up to its LSN. Checked for
//!    each page.
//! 2. The log from the checkpoint's `scan_from` on is there until it has been copied: `LogPin`.
//! 3. What is not what its writer wrote is not copied: the backup fails, and names file and place.
//! 4. A directory without a valid manifest is no backup; one without a control file is no database.
//!    Each is written last, when all else is durable.
//!
//! Locking: one backup at a time, by the pin's compare-and-swap; no latch is held but, where a page
//! was read while it was being written, that of the double-write file for one page. It runs in a
//! thread that may block, never in a worker.
//!
//! A crash leaves a backup without a manifest, or a restored directory without a control file: both
//! are refused, and removed by whoever asked for them.
//!
//! Source: the fuzzy dump of Gray and Reuter (1993), 11.5; PostgreSQL's `pg_basebackup` for the
//! manifest.

mod error;
mod manifest;
mod output;
mod restore;
mod take;

pub use error::BackupError;
pub use manifest::{Entry, Manifest};
pub use restore::{restore, verify};
pub use take::take_offline;
pub(crate) use take::{LogPin, Source, UNPINNED, new_target};

use clearway_types::Lsn;
use std::ops::ControlFlow;

/// Bytes that share a checksum: also how much is read and written at a time.
const BLOCK: usize = 1 << 20;

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in all, as far as is known now.
    pub total: u64,
}

/// What is called after each block: it may wait, to keep to a rate, and `Break` gives the copy up.
pub type Step<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Bytes of pages and log.
    pub bytes: u64,
    /// Where its log begins.
    pub begin: Lsn,
    /// Where its log ends: what was committed up to here is in the backup, and nothing else.
    pub end: Lsn,
}

/// Counts what is done and asks whether to go on.
struct Meter<'a> {
    progress: Progress,
    step: &'a mut Step<'a>,
}

impl Meter<'_> {
    fn more(&mut self, bytes: u64) -> Result<(), BackupError> {
        self.progress.done += bytes;
        // What was written meanwhile was not foreseen.
        self.progress.total = self.progress.total.max(self.progress.done);
        match (self.step)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(BackupError::Cancelled),
        }
    }
}

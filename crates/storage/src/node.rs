//! A node's storage: its directory, log, pool and stores; opening, checkpoints, shutdown.
//!
//! Files: `control` (see `control`), `lock`, `wal/` (the log), `data/` (pages).
//!
//! Invariants
//! 1. After a checkpoint all changes logged before `redo` are in the files. The log is kept from
//!    `scan_from` on. `scan_from` is not after `redo`, and not after the first undoable record of a
//!    transaction that was active. Neither value ever goes back.
//! 2. Log is removed only after both slots of the control file on disk no longer need it. The
//!    control file is written only after the log is durable up to everything that it refers to.
//!    That includes the ends of the transactions whose records are no longer needed.
//! 3. A directory is complete, or nothing in it counts.
//! 4. What start-up has read is made durable before anything depends on it, log first. The previous
//!    process may have been killed, or have failed, between a write and its sync, leaving the write
//!    only in the operating system's cache.
//!
//! Locking: a monitor (not a latch) protects the control file for the whole checkpoint, including
//! its I/O. A crash leaves what `recovery` repairs.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use clearway_buffer::{Files, Pool};
use clearway_env::{Disk, DiskLock, IoPool};
use clearway_latch::Monitor;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_sync::canary::{self, Bug};
use clearway_sync::panics::{Panicked, caught};
use clearway_sync::time::Instant;
use clearway_types::{Lsn, TxnId};

use crate::backup::{self, BackupError, BackupReport, BackupStep, LogPin, UNPINNED};
use crate::config::NodeConfig;
use crate::control::{Control, State};
use crate::error::{OpenError, OpenErrorKind};
use crate::mini::Oldest;
use crate::opening::Locked;
pub use crate::opening::RecoveryReport;
use crate::owned::OwnedDisk;
use crate::record;
use crate::store::Store;
use crate::wal::Wal;

static CONTROL: Class = Class::new("storage.control");

/// A node's storage.
pub struct Node {
    wal: Arc<Wal>,
    pool: Arc<Pool>,
    io: Arc<IoPool>,
    stores: Vec<Store>,
    oldest: Oldest,
    control: Monitor<Control>,
    next_txn: AtomicU64,
    /// A failure outside the log and the pool.
    failed: OnceLock<String>,
    report: RecoveryReport,
    disk: Arc<OwnedDisk>,
    files: Arc<Files>,
    /// The log from here on is kept: see [`LogPin`].
    pinned: AtomicU64,
    /// Held while the directory is open.
    _lock: DiskLock,
}

impl Node {
    /// Opens a data directory, creates it if it does not exist, and recovers what was committed.
    /// Blocks. The recovered changes are in the pool and in the log: until the next checkpoint
    /// another recovery would take as long.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: NodeConfig) -> Result<Self, OpenError> {
        let began = Instant::now();
        let frame_waits = config.frame_waits;
        let undone = Locked::new(disk, dir, config)?.analyze()?.settle()?.redo()?.undo()?;
        let is_new = !undone.state.complete;
        let mut node = Self {
            wal: undone.wal,
            pool: undone.pool,
            io: undone.io,
            stores: undone.stores,
            oldest: undone.oldest,
            control: Monitor::new(&CONTROL, undone.control),
            next_txn: AtomicU64::new(undone.next_txn.0),
            failed: OnceLock::new(),
            report: undone.report,
            disk: undone.disk,
            files: undone.files,
            pinned: AtomicU64::new(UNPINNED),
            _lock: undone.lock,
        };
        if is_new {
            node.checkpoint()?;
        }
        node.pool.set_frame_waits(frame_waits);
        node.wal.set_wait_for_space();
        node.report.took = began.elapsed();
        Ok(node)
    }

    /// Returns the partitions' stores; empty after the first call.
    pub fn take_stores(&mut self) -> Vec<Store> {
        std::mem::take(&mut self.stores)
    }
    /// Returns the log.
    pub fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }
    /// Returns the buffer pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
    /// Returns the threads that may block on the disk, for [`LogRead::run`](crate::LogRead::run).
    pub fn io(&self) -> &IoPool {
        &self.io
    }
    /// Returns the disk, for other files in the directory. It fails once the directory was moved
    /// away.
    pub fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }
    /// Returns what recovery did.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }
    /// Returns the number of partitions.
    pub fn partitions(&self) -> u16 {
        self.oldest.len() as u16
    }
    /// Appends the commit record of a transaction of several partitions. The transaction is
    /// committed once the log is durable up to the result.
    pub fn commit(&self, txn: TxnId) -> Lsn {
        self.wal.append(&[&record::commit(txn)])
    }
    /// Allocates `count` new transaction ids; returns the first.
    pub fn alloc_txn_ids(&self, count: u64) -> TxnId {
        // Relaxed: appending a record that contains the id orders the allocation before a
        // checkpoint's load of the counter.
        TxnId(self.next_txn.fetch_add(count, Ordering::Relaxed))
    }
    /// Allocates a new transaction id.
    pub fn alloc_txn_id(&self) -> TxnId {
        self.alloc_txn_ids(1)
    }

    /// Writes back changed pages, and removes log that is no longer needed. Fuzzy: everything else
    /// continues meanwhile. Blocks; a second caller waits for the first.
    ///
    /// # Errors
    /// The disk's errors. Only a lack of space is retried. After any other failed write or sync the
    /// content of the disk is unknown, so the node has failed (see [`Node::failed`]).
    pub fn checkpoint(&self) -> Result<(), OpenError> {
        self.take_checkpoint().map(drop)
    }

    fn take_checkpoint(&self) -> Result<State, OpenError> {
        let mut control = self.control.lock();
        if let Some(why) = self.failed() {
            return Err(OpenError::Io {
                doing: "cannot take a checkpoint".to_owned(),
                error: io::Error::other(why),
            });
        }
        let panicked =
            |message| Err(OpenError::io("a thread panicked")(io::Error::other(Panicked(message))));
        let done = caught(|| self.checkpoint_locked(&mut control, &|| {})).unwrap_or_else(panicked);
        if let Err(error) = &done
            && error.kind() != OpenErrorKind::Full
        {
            self.failed.get_or_init(|| format!("a checkpoint failed: {error}"));
        }
        done
    }

    /// Takes a checkpoint. Tests pass `between` to run code between the load of the log's end and
    /// that of the active transactions.
    fn checkpoint_locked(
        &self,
        control: &mut Control,
        between: &dyn Fn(),
    ) -> Result<State, OpenError> {
        self.disk.check().map_err(OpenError::io("the data directory is lost"))?;
        let target = self.wal.appended();
        between();
        // Acquire: pairs with the Release in `publish_oldest`. Read after `target`: a transaction
        // that is not seen here has its first record after `target`.
        let oldest =
            self.oldest.iter().map(|lsn| lsn.load(Ordering::Acquire)).min().unwrap_or(u64::MAX);
        // A transaction that ended between these two loads is not seen, although it has records
        // before `target`. Its end is before `ended`, and must be durable together with
        // `scan_from`. Otherwise the next start would not know that the transaction needs no undo.
        let ended = self.wal.appended();
        // Relaxed: see `alloc_txn_ids`. Also loaded after `target`.
        let next_txn = self.next_txn.load(Ordering::Relaxed);
        self.pool.flush_before(target)?;
        // A thread reads the log's end, then publishes it here or as a page's recovery LSN. An
        // earlier checkpoint between the two has not seen it, and may have removed the log there.
        // But then the thread's record is after that checkpoint's `target`, so both values of that
        // checkpoint still hold.
        let before = control.state();
        let redo = self.pool.min_rec_lsn().map_or(target, |lsn| lsn.min(target)).max(before.redo);
        self.wal.wait_durable(ended).map_err(OpenError::io("cannot write the log"))?;
        let scan_from = redo.min(Lsn(oldest)).max(before.scan_from);
        let durable = self.wal.durable();
        let state = State { complete: true, redo, scan_from, next_txn, durable, ..before };
        control.write(state)?;
        // Relaxed: see `LogPin::take`.
        let needed = if canary::on(Bug::TruncatedLog) { redo } else { scan_from };
        let unneeded = needed.min(Lsn(self.pinned.load(Ordering::Relaxed)));
        self.wal.remove_before(unneeded).map_err(OpenError::io("cannot remove old log"))?;
        tracing::debug!(%redo, %scan_from, "checkpoint");
        Ok(state)
    }

    /// Copies the database to `target` while everything else continues. `target` must not exist or
    /// must be an empty directory. Blocks. `program` is the version that the manifest names.
    pub fn backup(
        &self,
        target: &Path,
        program: &str,
        step: &mut BackupStep<'_>,
    ) -> Result<BackupReport, BackupError> {
        let pin = LogPin::take(&self.pinned)?;
        backup::new_target(&*self.disk, target)?;
        let state = self.take_checkpoint()?;
        pin.raise(state.scan_from);
        let end = || {
            let end = self.wal.appended();
            self.wal.wait_durable(end).map_err(BackupError::io("cannot write the log"))?;
            Ok(end)
        };
        let (disk, log) = (self.disk(), self.wal.span());
        let source = backup::Source { disk: &disk, files: &self.files, log, state };
        source.copy(target, program, end, step)
    }

    /// Returns the reason if nothing can be committed or written any more. The process must then
    /// stop and acknowledge nothing more. The next start finds out from the disk what was
    /// committed.
    pub fn failed(&self) -> Option<String> {
        let log = self.wal.failed().map(|why| format!("the log cannot be written: {why}"));
        let pages = || self.pool.failed().map(|why| format!("pages cannot be written: {why}"));
        log.or_else(pages)
            .or_else(|| self.io.failed().map(str::to_owned))
            .or_else(|| self.failed.get().cloned())
    }
    /// Marks the node as failed, for instance because a thread of the engine has panicked. No
    /// checkpoint is taken any more.
    pub fn fail(&self, why: String) {
        self.failed.get_or_init(|| why);
    }

    /// Makes the log durable and ends the threads. The stores must be idle. Nothing else is
    /// written: call [`Node::checkpoint`] first for a short recovery. Idempotent; `drop` does it,
    /// too.
    pub fn shutdown(&self) {
        self.wal.shutdown();
        self.pool.shutdown();
    }
}

impl Drop for Node {
    /// Shuts down before the directory's lock is released, even if others still hold the log or the
    /// pool.
    fn drop(&mut self) {
        self.shutdown();
    }
}

#[cfg(all(test, not(loom)))]
#[path = "node_tests.rs"]
mod tests;

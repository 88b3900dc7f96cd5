//! A node's storage: its directory, log, pool and stores; opening, checkpoints, shutdown.
//!
//! Files: `control` (see `control`), `lock`, `wal/` (the log), `data/` (pages).
//!
//! Invariants
//! 1. After a checkpoint all changes logged before `redo` are in the files. The log is kept from
//!    `scan_from` on. `scan_from` is not after `redo`, and not after the first undoable record of a
//!    transaction that was active.
//! 2. Log is removed only after the control file that no longer needs it is on disk. The control
//!    file is written only after the log is durable up to everything that it refers to. That
//!    includes the ends of the transactions whose records are no longer needed.
//! 3. A directory is complete, or nothing in it counts.
//! 4. What start-up has read is made durable before anything depends on it, log first. The previous
//!    process may have been killed, or have failed, between a write and its sync, leaving the write
//!    only in the operating system's cache.
//!
//! Locking: a monitor (not a latch) protects the control file for the whole checkpoint, including
//! its I/O. A crash leaves what `recovery` repairs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clearway_buffer::{
    Files, MissingPage, PAGE_SIZE, PageIo, Pool, PoolConfig, SecondLevel, WalBarrier,
};
use clearway_env::{Disk, DiskLock, IoPool};
use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Monitor};
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_sync::canary::{self, Bug};
use clearway_sync::panics::{Panicked, caught};
use clearway_sync::time::{Duration, Instant};
use clearway_types::{Lsn, PageId, PartitionId, TxnId};

use crate::access;
use crate::attempt::retry_blocking;
use crate::backup::{self, BackupError, BackupReport, LogPin, Step, UNPINNED};
use crate::config::NodeConfig;
use crate::control::{self, Control, State};
use crate::error::{Blocked, OpenError, OpenErrorKind, StorageError};
use crate::mini::{Core, Mini, Need, Oldest, Urgency};
use crate::page;
use crate::record::{self, PageOp, Role};
use crate::recovery::{self, Analysis, Undoing};
use crate::redo;
use crate::spare::Spare;
use crate::store::Store;
use crate::wal::{LOG_START, Wal, WalConfig, WalReader};

/// Default number of partitions of a new directory.
const DEFAULT_PARTITIONS: u16 = 16;

/// Maximum value length, whatever the pool: a record that replaces one value by another must fit in
/// the log's buffer.
pub(crate) const MAX_VALUE: usize = 1 << 20;

/// What recovery did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Duration of the open.
    pub took: Duration,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// The end of the log before recovery added to it.
    pub log_end: Lsn,
    /// Torn pages that were repaired from their copies.
    pub mended: u64,
    /// Changes redone; the changes of one page by one log record count once.
    pub redone: u64,
    /// Transactions undone; one that ran in two partitions counts twice.
    pub undone: u64,
}

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
    disk: Arc<dyn Disk>,
    files: Arc<Files>,
    /// The log from here on is kept: see [`LogPin`].
    pinned: AtomicU64,
    /// Held while the directory is open.
    _lock: DiskLock,
}

/// Locks a directory, which must exist.
pub(crate) fn lock(disk: &dyn Disk, dir: &Path) -> Result<DiskLock, OpenError> {
    disk.lock(&dir.join("lock")).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            OpenError::InUse(format!("the data directory {}", dir.display()))
        }
        _ => OpenError::io(format!("cannot lock {}", dir.display()))(error),
    })
}

/// A directory that is being opened.
struct Opening {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    config: NodeConfig,
}

impl Opening {
    fn wal_config(&self) -> WalConfig {
        WalConfig {
            dir: self.dir.join("wal"),
            segment_size: self.config.wal_segment_size,
            buffer_size: self.config.wal_buffer_size,
            write_limit: self.config.wal_write_limit,
            sync_every: self.config.wal_sync_every,
            recycle_ahead: self.config.wal_recycle_ahead,
            back_window: self.config.undo_window,
            space: self.config.space,
        }
    }

    /// Returns true if there are any data or log files.
    fn has_files(&self) -> Result<bool, OpenError> {
        for part in ["wal", "data"] {
            let part = self.dir.join(part);
            let io = OpenError::io(format!("cannot look into {}", part.display()));
            let found = self
                .disk
                .exists(&part)
                .and_then(|there| Ok(there && !self.disk.list(&part)?.is_empty()));
            if found.map_err(io)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Opens the control file. If the directory is not complete, records that in the control file
    /// and clears the directory.
    fn control(&self) -> Result<Control, OpenError> {
        let path = self.dir.join("control");
        let shown = self.dir.display();
        let io = || OpenError::io(format!("cannot use {shown}"));
        let fresh = !self.disk.exists(&path).map_err(io())?;
        if fresh && self.has_files()? {
            return Err(OpenError::Refused(format!(
                "{shown} has data but no control file: it is damaged, or not ours"
            )));
        }
        let mut control = Control::open(&*self.disk, &path)?;
        let state = control.state();
        // The control file is written before any other file is created.
        if state == State::default() && self.has_files()? {
            return Err(io()(io::Error::new(
                io::ErrorKind::InvalidData,
                "it has data but its control file is empty",
            )));
        }
        if state.complete {
            return match self.config.partitions {
                Some(n) if n != state.partitions => Err(OpenError::Refused(format!(
                    "{shown} was made with {} partitions, not {n}: their number cannot be changed",
                    state.partitions
                ))),
                _ => Ok(control),
            };
        }
        let partitions = self.config.partitions.unwrap_or(DEFAULT_PARTITIONS);
        if partitions == 0 {
            return Err(OpenError::Refused("a node needs at least one partition".into()));
        }
        control.write(State {
            partitions,
            redo: LOG_START,
            scan_from: LOG_START,
            next_txn: 1,
            durable: LOG_START,
            complete: false,
        })?;
        self.disk.sync_dir(&self.dir).map_err(io())?;
        self.sync_parents().map_err(io())?;
        for part in ["wal", "data"] {
            let part = self.dir.join(part);
            self.disk.create_dir_all(&part).map_err(io())?;
            for name in self.disk.list(&part).map_err(io())? {
                self.disk.remove(&part.join(name)).map_err(io())?;
            }
            self.disk.sync_dir(&part).map_err(io())?;
        }
        Ok(control)
    }

    /// Makes the names of the directory and its ancestors durable, since they may just have been
    /// created. Skips directories that we may not read: we did not create them.
    fn sync_parents(&self) -> io::Result<()> {
        self.dir.ancestors().skip(1).try_for_each(|above| match self.disk.sync_dir(above) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        })
    }

    fn io(&self) -> Result<Arc<IoPool>, OpenError> {
        let (threads, limit) = (self.config.io_threads.max(1), self.config.io_queue);
        if self.config.io_ring {
            let io = IoPool::with_ring(threads, "page-io")
                .map_err(OpenError::io("cannot use io_uring"))?;
            let io = if self.config.io_registered { io.with_registered_buffers() } else { io };
            return Ok(Arc::new(io.with_queue_limit(limit)));
        }
        let io = IoPool::new(threads, "page-io").map_err(OpenError::io("cannot start threads"))?;
        Ok(Arc::new(io.with_queue_limit(limit)))
    }

    fn files(&self, partitions: u16, io: Arc<IoPool>) -> Result<Arc<Files>, OpenError> {
        Ok(Arc::new(Files::open(&*self.disk, &self.dir.join("data"), partitions)?.with_io_pool(io)))
    }

    /// Repairs torn pages; returns their number.
    fn repair_torn(&self, files: &Files) -> Result<u64, OpenError> {
        let torn = files.restore_torn()?;
        if torn > 0 {
            tracing::info!(torn, "mended half-written pages");
        }
        Ok(torn as u64)
    }

    fn pool(
        &self,
        files: Arc<Files>,
        wal: &Arc<Wal>,
        io: Arc<IoPool>,
        second_level: Option<SecondLevel>,
    ) -> Result<Arc<Pool>, OpenError> {
        let NodeConfig { frames, replacement, write_batch, .. } = self.config;
        let config = PoolConfig { frames, replacement, write_batch, waits: recovery::FRAME_WAITS };
        let wal = wal.clone() as Arc<dyn WalBarrier>;
        let pool = Pool::with_second_level(config, files, wal, io, second_level);
        pool.map_err(OpenError::io("cannot start threads"))
    }

    fn second_level(&self) -> Result<Option<SecondLevel>, OpenError> {
        let Some(config) = &self.config.second_level else { return Ok(None) };
        let dir = config.dir.display();
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                OpenError::Refused(format!("there is no directory {dir} for a second-level cache"))
            }
            io::ErrorKind::WouldBlock => {
                OpenError::InUse(format!("the second-level cache in {dir}"))
            }
            _ => OpenError::io(format!("cannot have a second-level cache in {dir}"))(error),
        };
        SecondLevel::open(&*self.disk, config).map(Some).map_err(refused)
    }
}

/// Creates page 0 and the directory tree of a partition in a new directory.
fn init_partition(core: &Core) -> Result<(), Blocked> {
    let mut mini = Mini::new(core, Need::new(Urgency::Refusable));
    mini.create(0)?;
    mini.create(crate::directory::ROOT)?;
    let mut buf = Vec::new();
    mini.start(&mut buf, &Role::Plain);
    record::push_op(&mut buf, 0, &PageOp::Meta { free_head: 0, page_count: 2 });
    record::push_op(&mut buf, crate::directory::ROOT, &PageOp::InitNode { level: 0 });
    mini.finish(&mut buf).map(drop)
}

/// Ensures that all pages of a partition's file have disk blocks. A crash of the operating system
/// may have lost blocks of pages that were not yet written.
fn get_space(core: &Core) -> Result<(), StorageError> {
    let pages = retry_blocking(&core.pool, || Ok(page::page_count(&core.read(0)?)))?;
    let last = PageId::new(core.partition, pages.saturating_sub(1));
    core.pool.fetch_blocking(MissingPage::Space { page: last, last: true })?;
    Ok(())
}

impl Node {
    /// Opens a data directory, creates it if it does not exist, and recovers what was committed.
    /// Blocks. The recovered changes are in the pool and in the log: until the next checkpoint
    /// another recovery would take as long.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: NodeConfig) -> Result<Self, OpenError> {
        let began = Instant::now();
        let opening = Opening { disk, dir: dir.to_owned(), config };
        opening
            .disk
            .create_dir_all(dir)
            .map_err(OpenError::io(format!("cannot make {}", dir.display())))?;
        control::refuse_foreign(&*opening.disk, dir)?;
        access::refuse_shared(&*opening.disk, dir)?;
        let lock = lock(&*opening.disk, dir)?;
        // Before anything is changed, because it may be refused.
        let second_level = opening.second_level()?;
        let mut control = opening.control()?;
        let state = control.state();
        let mut reader =
            WalReader::open(opening.disk.clone(), &opening.wal_config(), state.scan_from)?;
        let analysis = Analysis::run(&mut reader, state.partitions)?;
        let proof =
            format!("the control file says that it was on the disk up to {}", state.durable);
        reader.must_reach(state.durable, &proof)?;
        let io = opening.io()?;
        let files = opening.files(state.partitions, io.clone())?;
        let newest = files.newest_copy()?;
        let proof = format!(
            "data/double-write.data has a page with changes up to {newest}, written after the log"
        );
        reader.must_reach(newest, &proof)?;
        let durable = reader.durable().max(state.durable).max(newest);
        drop(reader);
        // From here on everything that was read is also on disk: see invariant 4.
        let wal = Wal::resume(opening.disk.clone(), opening.wal_config(), analysis.end, durable)
            .map_err(OpenError::io("cannot open the log"))?;
        let mended = opening.repair_torn(&files)?;
        control.renew()?;
        let pool = opening.pool(files.clone(), &wal, io.clone(), second_level)?;
        let log_bytes = analysis.end.0 - state.scan_from.0;
        let mut report =
            RecoveryReport { log_bytes, log_end: analysis.end, mended, ..Default::default() };
        let mut from_redo =
            WalReader::open(opening.disk.clone(), &opening.wal_config(), state.redo)?;
        report.redone = redo::redo(&pool, &mut from_redo, analysis.end, opening.config.redo_batch)?;
        let none = || CachePadded::new(AtomicU64::new(u64::MAX));
        let oldest: Oldest = (0..state.partitions).map(|_| none()).collect();
        let max_value = MAX_VALUE
            .min(wal.max_payload() / 4)
            .min(opening.config.frames.max(16) as usize / 8 * PAGE_SIZE);
        let read_ahead = opening.config.read_ahead.min(opening.config.frames as usize / 32);
        let mut stores = Vec::new();
        for partition in (0..state.partitions).map(PartitionId) {
            let (wal, oldest) = (wal.clone(), oldest.clone());
            let config = &opening.config;
            let core = Core {
                partition,
                pool: pool.clone(),
                files: files.clone(),
                spare: Spare::default(),
                wal,
                oldest,
                max_value,
                undo_memory: config.undo_memory,
                read_ahead,
                // A larger step would reserve log that nobody writes.
                pledge_step: config.pledge_step.clamp(1, config.wal_segment_size.max(1)),
                drop_leaves: config.drop_leaves.max(1),
                node_cells: config.node_cells.max(4),
            };
            if !state.complete {
                retry_blocking(&pool, || init_partition(&core))?;
            }
            get_space(&core)?;
            let mut store = Store::new(core);
            retry_blocking(&pool, || store.load())?;
            stores.push(store);
        }
        let mut undoing = Undoing {
            pool: &pool,
            back: wal.read_back(state.scan_from),
            forward: &|| {
                WalReader::open(opening.disk.clone(), &opening.wal_config(), state.scan_from)
            },
            end: analysis.end,
            next_txn: TxnId(state.next_txn.max(analysis.highest_txn + 1)),
        };
        report.undone = recovery::undo(&mut undoing, &mut stores, analysis.losers)?;
        let next_txn = AtomicU64::new(undoing.next_txn.0);
        // See `recovery`, invariant 2: without a record here the checkpoint would miss the pages
        // that redo has changed.
        let mut note = Vec::new();
        record::start_pages(&mut note, PartitionId(0), &Role::Plain);
        wal.append(&[&note]);
        let control = Monitor::new(&CONTROL, control);
        let (failed, disk, pinned) = (OnceLock::new(), opening.disk, AtomicU64::new(UNPINNED));
        let mut node = Self {
            wal,
            pool,
            io,
            stores,
            oldest,
            control,
            next_txn,
            failed,
            report,
            disk,
            files,
            pinned,
            _lock: lock,
        };
        if !state.complete {
            node.checkpoint()?;
            // Write the other slot, too, so that damage to one of them does not make the directory
            // look incomplete.
            node.checkpoint()?;
        }
        node.pool.set_frame_waits(opening.config.frame_waits);
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
                doing: "no checkpoint".to_owned(),
                error: io::Error::other(why),
            });
        }
        let panicked =
            |message| Err(OpenError::io("a thread panicked")(io::Error::other(Panicked(message))));
        let done = caught(|| self.checkpoint_locked(&mut control, &|| {})).unwrap_or_else(panicked);
        if let Err(error) = &done
            && error.hindrance() != OpenErrorKind::Full
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
        let redo = self.pool.min_rec_lsn().map_or(target, |lsn| lsn.min(target));
        self.wal.wait_durable(ended).map_err(OpenError::io("cannot write the log"))?;
        let scan_from = redo.min(Lsn(oldest));
        let durable = self.wal.durable();
        let state = State { complete: true, redo, scan_from, next_txn, durable, ..control.state() };
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
        step: &mut Step<'_>,
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
        let source =
            backup::Source { disk: &self.disk, files: &self.files, log: self.wal.span(), state };
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
    /// Shuts down before the directory's lock is released, whoever else holds the log or the pool.
    fn drop(&mut self) {
        self.shutdown();
    }
}

#[cfg(all(test, not(loom)))]
#[path = "node_tests.rs"]
mod tests;

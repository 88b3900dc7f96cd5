//! A node's storage: its directory, log, pool and stores; opening, checkpoints, shutting down.
//!
//! Files: `control` (see `control`), `lock`, `wal/` (the log), `data/` (pages).
//!
//! Invariants
//! 1. At a checkpoint all changes logged before `redo` are in the files; the log is kept from `scan_from` on, which is
//!    neither after `redo` nor after the first undoable record of a transaction that was active.
//! 2. The log is let go only after the control file that no longer needs it is on disk, and that is written only after the
//!    log is durable up to what it refers to.
//! 3. A directory is complete or nothing in it counts.
//!
//! Locking: a mutex around the control file for the whole of a checkpoint. A crash leaves what `recovery` mends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clearway_buffer::{Files, PAGE_SIZE, PageIo, PolicyKind, Pool, PoolConfig, WalBarrier};
use clearway_env::{Disk, DiskLock, IoPool};
use clearway_latch::CachePadded;
use clearway_types::{Lsn, PartitionId, TxnId};

use crate::control::{Control, State};
use crate::error::{Blocked, OpenError};
use crate::mini::{Core, Mini, Oldest};
use crate::record::{self, PageOp, Role};
use crate::recovery::{self, Analysis, patiently};
use crate::store::Store;
use crate::wal::{LOG_START, Wal, WalConfig, WalError, WalReader};

/// Partitions of a new directory if nothing else is said.
const DEFAULT_PARTITIONS: u16 = 16;

/// The longest value, whatever the pool: a record that replaces one by another must fit in the log's buffer.
const MAX_VALUE: usize = 1 << 20;

/// The most leaves that a scan asks for beyond one that it misses; fewer in a small pool.
const MAX_READ_AHEAD: usize = 16;

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Partitions of a new directory; an existing one is refused if it was made with another number. `None`: what there
    /// is, or 16 in a new directory.
    pub partitions: Option<u16>,
    /// Frames of the buffer pool, 8 KiB each. Default 16384 (128 MiB).
    pub frames: u32,
    /// The pool's replacement policy.
    pub policy: PolicyKind,
    /// Threads that read pages. Default 8.
    pub io_threads: usize,
    /// Bytes of a log segment. Default 64 MiB.
    pub wal_segment_size: u64,
    /// Bytes of the log's buffer. Default 16 MiB.
    pub wal_buffer_size: usize,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let wal = WalConfig::default();
        Self {
            partitions: None,
            frames: 16384,
            policy: PolicyKind::default(),
            io_threads: 8,
            wal_segment_size: wal.segment_size,
            wal_buffer_size: wal.buffer_size,
        }
    }
}

/// What recovery did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// How long the open took.
    pub took: Duration,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Log records of which something was redone.
    pub redone: u64,
    /// Transactions undone (one that ran in two partitions counts twice).
    pub undone: u64,
}

/// A node's storage.
pub struct Node {
    wal: Arc<Wal>,
    pool: Arc<Pool>,
    stores: Vec<Store>,
    oldest: Oldest,
    control: Mutex<Control>,
    next_txn: AtomicU64,
    report: RecoveryReport,
    /// Held as long as the directory is ours.
    _lock: DiskLock,
}

/// The directory while it is being opened.
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
        }
    }

    fn lock(&self) -> Result<DiskLock, OpenError> {
        let shown = self.dir.display();
        let io = |doing: &str| OpenError::io(format!("{doing} {shown}"));
        self.disk.create_dir_all(&self.dir).map_err(io("cannot make"))?;
        self.disk.lock(&self.dir.join("lock")).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse(shown.to_string()),
            _ => io("cannot lock")(error),
        })
    }

    /// Opens the control file; in a directory that is not complete, says so in it and clears what there is.
    fn control(&self) -> Result<Control, OpenError> {
        let path = self.dir.join("control");
        let shown = self.dir.display();
        let io = || OpenError::io(format!("cannot use {shown}"));
        let fresh = !self.disk.exists(&path).map_err(io())?;
        if fresh && self.disk.exists(&self.dir.join("data")).map_err(io())? {
            return Err(OpenError::Refused(format!(
                "{shown} has data but no control file: it is damaged, or not ours"
            )));
        }
        let mut control = Control::open(&*self.disk, &path)?;
        let state = control.state();
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
        control.write(State { partitions, redo: LOG_START, scan_from: LOG_START, next_txn: 1, complete: false })?;
        self.disk.sync_dir(&self.dir).map_err(io())?;
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

    fn pool(&self, partitions: u16, wal: &Arc<Wal>) -> Result<Arc<Pool>, OpenError> {
        let files = Files::open(&*self.disk, &self.dir.join("data"), partitions)?;
        let torn = files.restore_torn()?;
        if torn > 0 {
            tracing::info!(torn, "mended half-written pages");
        }
        let io_pool =
            IoPool::new(self.config.io_threads.max(1), "page-io").map_err(OpenError::io("cannot start threads"))?;
        let config = PoolConfig { frames: self.config.frames, policy: self.config.policy };
        Pool::new(config, Arc::new(files), wal.clone() as Arc<dyn WalBarrier>, Arc::new(io_pool))
            .map_err(OpenError::io("cannot start threads"))
    }
}

/// Makes page 0 and the directory of a partition in a new directory.
fn init_partition(core: &Core) -> Result<(), Blocked> {
    let mut mini = Mini::new(core);
    mini.create(0)?;
    mini.create(crate::directory::ROOT)?;
    let mut buf = Vec::new();
    mini.start(&mut buf, &Role::Plain);
    record::push_op(&mut buf, 0, &PageOp::Meta { free_head: 0, page_count: 2 });
    record::push_op(&mut buf, crate::directory::ROOT, &PageOp::InitNode { level: 0 });
    mini.finish(&mut buf).map(drop)
}

impl Node {
    /// Opens a data directory, makes it if it is not there, and recovers what was committed. Blocking.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: NodeConfig) -> Result<Self, OpenError> {
        let began = Instant::now();
        let opening = Opening { disk, dir: dir.to_owned(), config };
        let lock = opening.lock()?;
        let control = opening.control()?;
        let state = control.state();
        let reader = || WalReader::open(opening.disk.clone(), &opening.wal_config(), state.scan_from);
        let analysis = Analysis::run(&mut reader()?, state.partitions)?;
        if analysis.end < state.redo {
            let reason =
                format!("it ends before {}, from where the last checkpoint needs it: a file is missing", state.redo);
            return Err(WalError::Corrupt { lsn: analysis.end, reason }.into());
        }
        let wal = Wal::open(opening.disk.clone(), opening.wal_config(), analysis.end)
            .map_err(OpenError::io("cannot open the log"))?;
        let pool = opening.pool(state.partitions, &wal)?;
        let mut report = RecoveryReport { log_bytes: analysis.end.0 - state.scan_from.0, ..Default::default() };
        let mut from_redo = WalReader::open(opening.disk.clone(), &opening.wal_config(), state.redo)?;
        report.redone = recovery::redo(&pool, &mut from_redo, analysis.end)?;
        let none = || CachePadded::new(AtomicU64::new(u64::MAX));
        let oldest: Oldest = (0..state.partitions).map(|_| none()).collect();
        let max_value =
            MAX_VALUE.min(wal.max_payload() / 4).min(opening.config.frames.max(16) as usize / 8 * PAGE_SIZE);
        let read_ahead = MAX_READ_AHEAD.min(opening.config.frames as usize / 32);
        let mut stores = Vec::new();
        for partition in (0..state.partitions).map(PartitionId) {
            let (wal, oldest) = (wal.clone(), oldest.clone());
            let core = Core { partition, pool: pool.clone(), wal, oldest, max_value, read_ahead };
            if !state.complete {
                patiently(&pool, || init_partition(&core))?;
            }
            let mut store = Store::new(core);
            patiently(&pool, || store.load())?;
            stores.push(store);
        }
        report.undone = recovery::undo(&pool, &mut from_redo, &mut stores, analysis.losers)?;
        // See `recovery`, invariant 2: without a record here the checkpoint would not see what redo has changed.
        let mut note = Vec::new();
        record::start_pages(&mut note, PartitionId(0), &Role::Plain);
        wal.append(&[&note]);
        let next_txn = AtomicU64::new(state.next_txn.max(analysis.highest_txn + 1));
        let control = Mutex::new(control);
        let mut node = Self { wal, pool, stores, oldest, control, next_txn, report, _lock: lock };
        node.checkpoint()?;
        node.report.took = began.elapsed();
        Ok(node)
    }

    /// The partitions' stores, once.
    pub fn take_stores(&mut self) -> Vec<Store> {
        std::mem::take(&mut self.stores)
    }
    /// The log.
    pub fn wal(&self) -> &Arc<Wal> {
        &self.wal
    }
    /// The buffer pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
    /// What recovery did.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }
    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        self.oldest.len() as u16
    }
    /// Appends the commit record of a transaction of several partitions: it is committed once the log is durable up to the
    /// result.
    pub fn commit(&self, txn: TxnId) -> Lsn {
        self.wal.append(&[&record::commit(txn)])
    }
    /// The first of `count` transaction ids never given before.
    pub fn alloc_txn_ids(&self, count: u64) -> TxnId {
        // Relaxed: what orders an id before a checkpoint's look at the counter is the append of a record that has it.
        TxnId(self.next_txn.fetch_add(count, Ordering::Relaxed))
    }
    /// A transaction id never given before.
    pub fn alloc_txn_id(&self) -> TxnId {
        self.alloc_txn_ids(1)
    }

    /// Writes what was changed, and lets go of the log that is no longer needed. Fuzzy: everything else goes on meanwhile.
    /// Blocking; a second caller waits for the first.
    pub fn checkpoint(&self) -> Result<(), OpenError> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let target = self.wal.appended();
        // Acquire: pairs with the Release in `publish_oldest`. Read after `target`: a transaction that is not seen here
        // has its first record after `target`.
        let oldest = self.oldest.iter().map(|lsn| lsn.load(Ordering::Acquire)).min().unwrap_or(u64::MAX);
        // Relaxed: see `alloc_txn_ids`. After `target`, too.
        let next_txn = self.next_txn.load(Ordering::Relaxed);
        self.pool.flush_before(target)?;
        let redo = self.pool.min_rec_lsn().map_or(target, |lsn| lsn.min(target));
        self.wal.wait_durable(target).map_err(OpenError::io("cannot write the log"))?;
        let scan_from = redo.min(Lsn(oldest));
        let state = State { complete: true, redo, scan_from, next_txn, ..control.state() };
        control.write(state)?;
        self.wal.remove_before(scan_from).map_err(OpenError::io("cannot remove old log"))?;
        tracing::debug!(%redo, %scan_from, "checkpoint");
        Ok(())
    }

    /// Makes the log durable and ends the threads. The stores must be idle. Nothing else is written: call
    /// [`Node::checkpoint`] before for a short recovery.
    pub fn shutdown(&self) {
        self.wal.shutdown();
        self.pool.shutdown();
    }
}

//! Opens a data directory in stages. Each stage is a type that only the previous stage can create,
//! so the steps cannot be reordered:
//!
//! 1. [`Locked`]: the directory is locked, and its control file is open.
//! 2. [`Analyzed`]: the log was read to its end, and the end was proven not to be damage.
//! 3. [`Settled`]: everything that was read is also on disk (`node`, invariant 4).
//! 4. [`Redone`]: the pages have all changes in the log, and the partitions' stores are loaded.
//! 5. [`Undone`]: the losers' changes are undone.
//!
//! Locking: the directory's lock, held from the first stage on. Every stage keeps it in its last
//! field, so that after an error the log and the pool are dropped before the lock is released. A
//! crash in any stage leaves a directory that the next start recovers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_buffer::{
    FileSpace, Files, MissingPage, PAGE_SIZE, PageIo, Pool, PoolConfig, SecondLevel, WalBarrier,
};
use clearway_env::{Disk, DiskLock, IoPool};
use clearway_latch::CachePadded;
use clearway_sync::atomic::AtomicU64;
use clearway_sync::time::Duration;
use clearway_types::{Lsn, PageId, PartitionId, TxnId};

use crate::access;
use crate::attempt::{Blocked, retry_blocking};
use crate::config::NodeConfig;
use crate::control::{self, Control, State};
use crate::error::{MAX_VALUE, OpenError, StorageError};
use crate::mini::{Core, Mini, Need, Oldest, Urgency};
use crate::owned::OwnedDisk;
use crate::page;
use crate::record::{self, PageOp, Role};
use crate::recovery::{self, Analysis, OPENING_FRAME_WAITS, Undoing};
use crate::redo;
use crate::spare::Spare;
use crate::store::Store;
use crate::wal::{LOG_START, Wal, WalConfig, WalError, WalReader};

/// Default number of partitions of a new directory.
const DEFAULT_PARTITIONS: u16 = 16;
/// Frames that an undo needs besides those of long values: its path in the tree, page 0, the head
/// of the free list. At most half of the smallest pool.
const UNDO_PATH: u64 = 8;

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
    pub repaired: u64,
    /// Changes redone; the changes of one page by one log record count once.
    pub redone: u64,
    /// Transactions undone; one that ran in two partitions counts twice.
    pub undone: u64,
}

/// A directory that is being opened.
struct Opening {
    disk: Arc<OwnedDisk>,
    dir: PathBuf,
    config: NodeConfig,
}

impl Opening {
    fn read_log(&self, from: Lsn) -> Result<WalReader, WalError> {
        WalReader::open(self.disk.clone(), &self.wal_config(), from)
    }

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
        access::sync_parents(&*self.disk, &self.dir).map_err(io())?;
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

    /// Refuses a buffer pool that cannot hold a row that must be restored. It was changed with a
    /// larger pool. Without this check the undo would wait long for a frame.
    fn can_undo(&self, analysis: &Analysis) -> Result<(), OpenError> {
        let needed = analysis.long_pages();
        let frames = self.config.frames.max(16);
        if needed + UNDO_PATH <= u64::from(frames) {
            return Ok(());
        }
        Err(OpenError::Refused(format!(
            "a change of {needed} pages must be undone, and buffer_pool has only {frames}: start with a larger buffer_pool"
        )))
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
            tracing::info!(torn, "repaired torn pages");
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
        let config = PoolConfig { frames, replacement, write_batch, waits: OPENING_FRAME_WAITS };
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
            _ => OpenError::io(format!("cannot open the second-level cache in {dir}"))(error),
        };
        SecondLevel::open(&*self.disk, config).map(Some).map_err(refused)
    }
}

/// Checks, after the log was read to its end, that it is not shorter than the control file and the
/// double-write file prove. `files` opens the latter, and may create files: it is called after the
/// first check. Returns the files, and the LSN up to which the log is known to have been durable.
pub(crate) fn prove_end(
    reader: &mut WalReader,
    state: &State,
    files: impl FnOnce() -> Result<Arc<Files>, OpenError>,
) -> Result<(Arc<Files>, Lsn), OpenError> {
    let proof = format!("the control file says that it was on the disk up to {}", state.durable);
    reader.must_reach(state.durable, &proof)?;
    let files = files()?;
    let newest = files.newest_copy()?;
    let proof = format!(
        "data/double-write.data has a page with changes up to {newest}, written after the log"
    );
    reader.must_reach(newest, &proof)?;
    let durable = reader.durable().max(state.durable).max(newest);
    Ok((files, durable))
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
    core.pool.fetch_blocking(MissingPage::Space { page: last, space: FileSpace::WithReserve })?;
    Ok(())
}

/// Stage 1: the directory is locked, and its control file is open.
pub(crate) struct Locked {
    control: Control,
    second_level: Option<SecondLevel>,
    opening: Opening,
    lock: DiskLock,
}

impl Locked {
    /// Creates the directory if it does not exist, locks it and opens its control file.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: NodeConfig,
    ) -> Result<Self, OpenError> {
        disk.create_dir_all(dir)
            .map_err(OpenError::io(format!("cannot create {}", dir.display())))?;
        control::refuse_foreign(&*disk, dir)?;
        access::refuse_shared(&*disk, dir)?;
        let lock = access::lock(&*disk, dir)?;
        let disk = Arc::new(access::owned(disk, dir)?);
        let opening = Opening { disk, dir: dir.to_owned(), config };
        // Before anything is changed, because it may be refused.
        let second_level = opening.second_level()?;
        let control = opening.control()?;
        Ok(Self { control, second_level, opening, lock })
    }

    /// Reads the log to its end, and checks that nothing durable is missing.
    pub(crate) fn analyze(self) -> Result<Analyzed, OpenError> {
        let (opening, state) = (&self.opening, self.control.state());
        let mut reader = opening.read_log(state.scan_from)?;
        let analysis = Analysis::run(&mut reader, state.partitions)?;
        let io = opening.io()?;
        let files = || opening.files(state.partitions, io.clone());
        let (files, durable) = prove_end(&mut reader, &state, files)?;
        opening.can_undo(&analysis)?;
        Ok(Analyzed { analysis, durable, files, io, locked: self })
    }
}

/// Stage 2: the log was read to its end.
pub(crate) struct Analyzed {
    analysis: Analysis,
    /// The log is known to have been durable up to here.
    durable: Lsn,
    files: Arc<Files>,
    io: Arc<IoPool>,
    locked: Locked,
}

impl Analyzed {
    /// Makes everything that was read durable, log first, and opens the log and the pool.
    pub(crate) fn settle(mut self) -> Result<Settled, OpenError> {
        let opening = &self.locked.opening;
        let (disk, mut config) = (opening.disk.clone(), opening.wal_config());
        // The changes may have been made with a larger ring.
        config.fit_undo(self.analysis.largest_undo());
        let wal = Wal::resume(disk, config, self.analysis.end, self.durable)
            .map_err(OpenError::io("cannot open the log"))?;
        let repaired = opening.repair_torn(&self.files)?;
        self.locked.control.renew()?;
        let second_level = self.locked.second_level.take();
        let pool = opening.pool(self.files.clone(), &wal, self.io.clone(), second_level)?;
        let log_end = self.analysis.end;
        let log_bytes = log_end.0 - self.locked.control.state().scan_from.0;
        let report = RecoveryReport { log_bytes, log_end, repaired, ..Default::default() };
        Ok(Settled { pool, wal, report, analyzed: self })
    }
}

/// Stage 3: everything that was read is also on disk.
pub(crate) struct Settled {
    pool: Arc<Pool>,
    wal: Arc<Wal>,
    report: RecoveryReport,
    analyzed: Analyzed,
}

impl Settled {
    /// Applies the changes that the pages lack, and loads the partitions' stores.
    pub(crate) fn redo(mut self) -> Result<Redone, OpenError> {
        let Locked { opening, control, .. } = &self.analyzed.locked;
        let state = control.state();
        let mut reader = opening.read_log(state.redo)?;
        let (end, batch) = (self.analyzed.analysis.end, opening.config.redo_batch);
        self.report.redone = redo::redo(&self.pool, &mut reader, end, batch)?;
        let none = || CachePadded::new(AtomicU64::new(u64::MAX));
        let oldest: Oldest = (0..state.partitions).map(|_| none()).collect();
        let mut stores = Vec::new();
        for partition in (0..state.partitions).map(PartitionId) {
            let core = self.core(partition, oldest.clone());
            if !state.complete {
                retry_blocking(&self.pool, || init_partition(&core))?;
            }
            get_space(&core)?;
            let mut store = Store::new(core);
            retry_blocking(&self.pool, || store.load())?;
            stores.push(store);
        }
        Ok(Redone { stores, oldest, settled: self })
    }

    fn core(&self, partition: PartitionId, oldest: Oldest) -> Core {
        let config = &self.analyzed.locked.opening.config;
        Core {
            partition,
            pool: self.pool.clone(),
            files: self.analyzed.files.clone(),
            spare: Spare::default(),
            wal: self.wal.clone(),
            oldest,
            max_value: MAX_VALUE
                .min(self.wal.max_payload() / 4)
                .min(config.frames.max(16) as usize / 8 * PAGE_SIZE),
            undo_memory: config.undo_memory,
            read_ahead: config.read_ahead.min(config.frames as usize / 32),
            // A larger step would reserve log that nobody writes.
            undo_reserve_step: config.undo_reserve_step.clamp(1, config.wal_segment_size.max(1)),
            drop_leaves: config.drop_leaves.max(1),
            node_cells: config.node_cells.max(4),
        }
    }
}

/// Stage 4: the pages have all changes in the log.
pub(crate) struct Redone {
    stores: Vec<Store>,
    oldest: Oldest,
    settled: Settled,
}

impl Redone {
    /// Undoes the losers' changes.
    pub(crate) fn undo(mut self) -> Result<Undone, OpenError> {
        let Settled { pool, wal, analyzed, report } = &mut self.settled;
        let Locked { opening, control, .. } = &analyzed.locked;
        let state = control.state();
        let losers = std::mem::take(&mut analyzed.analysis.losers);
        let mut undoing = Undoing {
            pool,
            back: wal.read_back(state.scan_from),
            forward: &|| opening.read_log(state.scan_from),
            end: analyzed.analysis.end,
            next_txn: TxnId(state.next_txn.max(analyzed.analysis.highest_txn + 1)),
        };
        report.undone = recovery::undo(&mut undoing, &mut self.stores, losers)?;
        let next_txn = undoing.next_txn;
        // See `recovery`, invariant 2: without a record here the checkpoint would miss the pages
        // that redo has changed.
        let mut note = Vec::new();
        record::start_pages(&mut note, PartitionId(0), &Role::Plain);
        wal.append(&[&note]);
        let Self { stores, oldest, settled } = self;
        let Settled { pool, wal, report, analyzed } = settled;
        let Analyzed { files, io, locked, .. } = analyzed;
        let Locked { control, opening, lock, .. } = locked;
        let disk = opening.disk;
        Ok(Undone {
            pool,
            wal,
            stores,
            oldest,
            next_txn,
            report,
            state,
            files,
            io,
            disk,
            control,
            lock,
        })
    }
}

/// Stage 5: exactly the committed transactions are left. Holds the parts of a node.
pub(crate) struct Undone {
    pub(crate) pool: Arc<Pool>,
    pub(crate) wal: Arc<Wal>,
    pub(crate) stores: Vec<Store>,
    pub(crate) oldest: Oldest,
    /// A transaction id that is higher than every id in the log.
    pub(crate) next_txn: TxnId,
    pub(crate) report: RecoveryReport,
    /// The control file's state at the start.
    pub(crate) state: State,
    pub(crate) files: Arc<Files>,
    pub(crate) io: Arc<IoPool>,
    pub(crate) disk: Arc<OwnedDisk>,
    pub(crate) control: Control,
    pub(crate) lock: DiskLock,
}

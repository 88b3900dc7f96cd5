//! One node's engine: partitions behind their batons, the storage under them, and the catalog.
//!
//! Invariants
//! 1. A partition's state machine runs in one thread at a time: it is reached only through its
//!    [`Combiner`].
//! 2. The published catalog changes only after the commit record of the transaction that changed it
//!    is in the log, and before that transaction's locks are released. The partition then rejects a
//!    session that acquires the lock with a stale plan.
//! 3. A catalog version is assigned once. Versions grow in the order in which catalogs are
//!    published.
//!
//! Locking: `catalog` is a latch, held to copy a pointer (workers cache what they read and compare
//! versions first). `waits_for` is a latch that only waits, their time-outs and monitoring take.
//! `learned` is a latch taken at each new plan's first run in a block, and by monitoring. No other
//! lock is taken under any of them. A crash leaves the data directory as `storage` describes.

use crate::bootstrap;
use crate::catalog_rows::FIRST_USER_ID;
use crate::checkpointer::{self, Checkpointer};
use crate::deadlock::WaitsFor;
use crate::ended::Workers;
use crate::exports::Exports;
use crate::learned::LearnedLocks;
use crate::mailbox::{Mail, Mailbox, Waker};
use crate::past::Past;
use crate::schemes::Schemes;
use crate::slices::Slices;
use crate::system::System;
use crate::timed::{Published, Timed};
use clearway_buffer::Pool;
use clearway_env::{Job, Registered};
use clearway_ir::Catalog;
use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Combiner, DRAIN_LIMIT, Latch, LatchGuard, Submitted};
use clearway_partition::{
    CascadeCounts, Limits, Message, Outbox, Partition, PartitionTimes, SchemeCounts, SchemeKind,
    Snapshots,
};
use clearway_storage::{
    Node, NodeConfig, OPENING_FRAME_WAITS, OpenError, RecoveryReport, SpillFile,
};
use clearway_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PartitionId, SqlError, SqlResult, TxnId};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The storage's configuration.
    pub node: NodeConfig,
    /// Time between checkpoints. Default: 1 minute.
    pub checkpoint_interval: Duration,
    /// Bytes of log after which a checkpoint is taken even before its time. Default: 1 GiB.
    pub checkpoint_log: u64,
    /// A commit that did not wait (`synchronous_commit = off`) becomes durable after about this
    /// time at most, or after the checkpoint that is being taken. Default: 200 ms, like
    /// PostgreSQL's `wal_writer_delay`.
    pub lazy_flush: Duration,
    /// Maximum number of messages that a worker handles while it holds a partition's baton.
    /// Default: 64.
    pub drain_limit: usize,
    /// Each partition's limits.
    pub partition: Limits,
    /// Rows sent to or returned by partitions at a time; at least 1. Default: 1000.
    pub chunk_rows: usize,
    /// Bytes of a query's rows that its partitions together send before the client has taken the
    /// previous ones. Default: 512 KiB.
    pub stream_bytes: u32,
    /// A statement on several partitions that deadlocks is retried. It fails after this many
    /// deadlocks in a row; each of them has let another transaction continue. Default: 16.
    pub deadlocks: u32,
    /// Maximum number of replays of a block that is undone because another transaction rolled back,
    /// or because of a deadlock. After that it fails. Default: 8.
    pub replays: u32,
    /// UPDATEs that only add share the locks of their rows from the first on, before their
    /// transactions have been seen not to read afterwards. Then two that do read deadlock. For
    /// tests and simulations. Default: false.
    pub adds_at_once: bool,
    /// A stall between the last fragment of a statement that changes several partitions and its
    /// decision. Without it there is almost none, as all partitions are in this process. For tests
    /// and experiments. Default: none.
    pub stall: Stall,
    /// Transaction ids that a worker reserves from the node at a time; at least 1. Default: 1024.
    pub txn_ids: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            node: NodeConfig::default(),
            checkpoint_interval: Duration::from_secs(60),
            checkpoint_log: 1 << 30,
            lazy_flush: Duration::from_millis(200),
            drain_limit: DRAIN_LIMIT,
            partition: Limits::default(),
            chunk_rows: 1000,
            stream_bytes: 512 << 10,
            deadlocks: 16,
            replays: 8,
            adds_at_once: false,
            stall: Stall::None,
            txn_ids: 1024,
        }
    }
}

/// How long a decision is delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stall {
    /// Not at all.
    #[default]
    None,
    /// For this number of turns of the worker's event loop.
    Turns(u32),
    /// For this time. The worker polls the clock once a turn.
    Time(Duration),
}

static BATON: Class = Class::new("partition.baton");
static CATALOG: Class = Class::new("coordinator.catalog");
static WAITS_FOR: Class = Class::new("coordinator.waits_for");
static LEARNED: Class = Class::new("coordinator.learned");

/// One node's engine.
pub struct Engine {
    partitions: Vec<Combiner<Timed, Message>>,
    /// Their counts and times.
    published: Vec<Arc<Published>>,
    node: Arc<Node>,
    mailboxes: Vec<Mailbox>,
    slices: Slices,
    /// Waits in progress at each partition, for locks and for the partition. A hint: changes may
    /// arrive out of order.
    waiting: Vec<AtomicI64>,
    /// Workers that wait for the log to become durable.
    awaiting: Vec<AtomicBool>,
    /// Transactions that have ended, by worker.
    ended: Workers,
    chunk_rows: usize,
    stream_bytes: u32,
    deadlocks: u32,
    replays: u32,
    schemes: Schemes,
    stall: Stall,
    txn_ids: u64,
    catalog: Latch<Arc<Catalog>>,
    past: Past,
    catalog_version: AtomicU64,
    /// End of the commit record of the catalog's last change.
    catalog_commit: AtomicU64,
    next_catalog_version: AtomicU64,
    next_id: AtomicU32,
    waits_for: Latch<WaitsFor>,
    learned: Latch<LearnedLocks>,
    snapshots: Arc<Snapshots>,
    exports: Arc<Exports>,
    /// Where row versions go that do not fit in memory.
    spill: Option<Arc<SpillFile>>,
    /// The log's end at opening: all earlier commits precede it.
    started_at: Lsn,
    /// Plain std: set once, before any session exists.
    system: OnceLock<Box<dyn System>>,
    pub(crate) checkpointer: Checkpointer,
}

impl Engine {
    /// Opens (or creates) the data directory, recovers, and drops trees without a table, left by an
    /// unfinished DDL statement. `wakers` holds one per worker, each able to wake its event loop
    /// from any thread.
    pub fn open(
        disk: Arc<dyn clearway_env::Disk>,
        dir: &Path,
        mut config: EngineConfig,
        wakers: Vec<Waker>,
    ) -> Result<Arc<Self>, OpenError> {
        let (limit, slot) = (config.node.version_spill, config.node.version_slot);
        // The opening ends when the trees without a table have been dropped.
        let frame_waits = std::mem::replace(&mut config.node.frame_waits, OPENING_FRAME_WAITS);
        let mut node = Node::open(disk, dir, config.node)?;
        let spill = SpillFile::new(node.disk(), dir, limit, slot);
        let mut stores = node.take_stores();
        let catalog = bootstrap::load_catalog(&node, &mut stores)?;
        // Before orphans are dropped: one that cannot be freed is hidden, and keeps its id.
        let highest_tree = stores.iter().flat_map(|s| s.trees()).map(|t| t.0).max().unwrap_or(0);
        bootstrap::drop_orphans(&node, &mut stores, &catalog)?;
        node.pool().set_frame_waits(frame_waits);
        let highest_table = catalog.tables.values().map(|t| t.id.0).max().unwrap_or(0);
        let next_id = highest_tree.max(highest_table).max(FIRST_USER_ID) + 1;
        let (snapshots, catalog) = (Arc::<Snapshots>::default(), Arc::new(catalog));
        let timed = |store| {
            let partition = Partition::new(store, config.partition, snapshots.clone());
            Timed::new(partition.with_spill(spill.clone()))
        };
        let timed: Vec<Timed> = stores.into_iter().map(timed).collect();
        let baton = |timed| Combiner::with_limit(&BATON, timed, config.drain_limit);
        let engine = Arc::new(Self {
            waiting: timed.iter().map(|_| AtomicI64::new(0)).collect(),
            schemes: Schemes::new(timed.len(), config.partition.scheme),
            published: timed.iter().map(Timed::published).collect(),
            partitions: timed.into_iter().map(baton).collect(),
            awaiting: wakers.iter().map(|_| AtomicBool::new(false)).collect(),
            ended: wakers.iter().map(|_| CachePadded::default()).collect(),
            mailboxes: wakers.into_iter().map(Mailbox::new).collect(),
            slices: Slices::default(),
            chunk_rows: config.chunk_rows.max(1),
            stream_bytes: config.stream_bytes,
            deadlocks: config.deadlocks,
            // Without retired locks no transaction is behind another.
            replays: if config.partition.retire { config.replays } else { 0 },
            stall: config.stall,
            txn_ids: config.txn_ids.max(1),
            catalog_version: AtomicU64::new(catalog.version),
            catalog_commit: AtomicU64::new(0),
            next_catalog_version: AtomicU64::new(catalog.version + 1),
            past: Past::new(catalog.clone()),
            catalog: Latch::new(&CATALOG, catalog),
            next_id: AtomicU32::new(next_id),
            waits_for: Latch::new(&WAITS_FOR, WaitsFor::default()),
            learned: Latch::new(&LEARNED, LearnedLocks::new(config.adds_at_once)),
            snapshots: snapshots.clone(),
            exports: Arc::default(),
            spill: spill.clone(),
            started_at: node.wal().appended(),
            system: OnceLock::new(),
            checkpointer: Checkpointer::default(),
            node: Arc::new(node),
        });
        engine.start_background(
            config.checkpoint_interval,
            config.checkpoint_log,
            config.lazy_flush,
        );
        Ok(engine)
    }

    fn start_background(self: &Arc<Self>, interval: Duration, log: u64, lazy_flush: Duration) {
        let weak = Arc::downgrade(self);
        self.node.wal().on_durable(Box::new(move |_| {
            if let Some(engine) = weak.upgrade() {
                engine.tell_durable();
            }
        }));
        let weak = Arc::downgrade(self);
        self.node.wal().on_short(Box::new(move || {
            if let Some(engine) = weak.upgrade() {
                // Its result shows in the checkpointer's log and in the space then available.
                engine.checkpointer.request(Box::new(drop));
            }
        }));
        self.checkpointer.start(&self.node, interval, log, lazy_flush);
    }

    fn tell_durable(&self) {
        for (awaiting, mailbox) in self.awaiting.iter().zip(&self.mailboxes) {
            // AcqRel: pairs with the swap in `want_durable`. Either the worker sees the new durable
            // end there, or it is woken here.
            if awaiting.swap(false, Ordering::AcqRel) {
                mailbox.wake();
            }
        }
    }

    pub(crate) fn want_durable(&self, worker: u16, lsn: Lsn) {
        let wal = self.node.wal();
        // AcqRel: pairs with `tell_durable`. Set before the end is read, so that an end that moves
        // after the read wakes us.
        self.awaiting[usize::from(worker)].swap(true, Ordering::AcqRel);
        if wal.durable() >= lsn {
            self.mailboxes[usize::from(worker)].wake();
        } else {
            wal.request_flush(lsn);
        }
    }

    /// Returns the committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.lock().clone()
    }
    /// Returns the version of the committed catalog.
    pub fn catalog_version(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`. A reader that sees the version finds that
        // catalog behind the latch.
        self.catalog_version.load(Ordering::Acquire)
    }
    pub(crate) fn next_catalog_version(&self) -> u64 {
        // Relaxed: assigned under the catalog's table lock, which orders it.
        self.next_catalog_version.fetch_add(1, Ordering::Relaxed)
    }
    /// Returns the LSN that must be durable before anything planned with the catalog is shown,
    /// whatever it reads at partitions.
    pub(crate) fn catalog_commit(&self) -> Lsn {
        // Relaxed: the holder of a catalog has either seen its version, which is stored after this,
        // or taken the latch under which the catalog was stored.
        Lsn(self.catalog_commit.load(Ordering::Relaxed))
    }
    /// Makes a catalog the committed one. Its transaction's commit record ends at `commit`.
    pub(crate) fn publish(&self, catalog: Arc<Catalog>, commit: Lsn) {
        let version = catalog.version;
        self.past.publish(catalog.clone(), commit, &self.snapshots);
        // Relaxed: published by the Release below.
        self.catalog_commit.fetch_max(commit.0, Ordering::Relaxed);
        let mut current = self.catalog.lock();
        let old = std::mem::replace(&mut *current, catalog);
        // Release: pairs with the Acquire in `catalog_version`. Under the latch, so that a
        // thread that gets the catalog sees its version, too: otherwise its plans would look stale.
        self.catalog_version.store(version, Ordering::Release);
        drop(current);
        // Dropped outside the latch, in case this is the last reference.
        drop(old);
    }
    /// Returns the catalogs of open snapshots.
    pub(crate) fn past(&self) -> &Past {
        &self.past
    }
    /// Returns a new id for a table or a tree.
    pub(crate) fn next_id(&self) -> u32 {
        // Relaxed: only uniqueness matters.
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
    /// Returns the LSN up to which the log is durable.
    pub fn durable(&self) -> Lsn {
        if canary::on(Bug::ReplyNotHeld) {
            self.node.wal().appended()
        } else {
            self.node.wal().durable()
        }
    }
    /// Returns how many times the log was synced for committing transactions.
    pub fn log_syncs(&self) -> u64 {
        self.node.wal().syncs()
    }
    /// Returns why the log or data can no longer be written, or which thread has panicked. If it
    /// returns `Some`, the process must stop and acknowledge nothing more.
    pub fn failed(&self) -> Option<String> {
        self.node.failed()
    }
    /// Returns how much of the pages' memory is registered with io_uring.
    pub fn registered(&self) -> Registered {
        self.node.io().registered()
    }
    /// Runs a job that may block, in an I/O thread. Never blocks itself.
    pub fn run_blocking(&self, job: Job) {
        self.node.io().submit_unbounded(job);
    }
    /// Returns what recovery did.
    pub fn report(&self) -> &RecoveryReport {
        self.node.recovery()
    }
    /// Sets the source of system views' rows. Later calls have no effect.
    pub fn set_system(&self, system: Box<dyn System>) {
        self.system.get_or_init(|| system);
    }
    pub(crate) fn system(&self) -> SqlResult<&dyn System> {
        let none = || SqlError::unsupported("a system view of an engine without a server");
        self.system.get().map(Box::as_ref).ok_or_else(none)
    }
    /// Returns the number of partitions.
    pub fn partitions(&self) -> u16 {
        self.partitions.len() as u16
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.partitions()).map(PartitionId)
    }
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.node.pool()
    }
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }
    /// Counts the start or the end of a wait at the partition.
    pub(crate) fn count_wait(&self, partition: PartitionId, begins: bool) {
        let count = &self.waiting[usize::from(partition.0)];
        // Relaxed, here and below: only the order of messages depends on the number.
        count.fetch_add(if begins { 1 } else { -1 }, Ordering::Relaxed);
    }
    /// Returns about how many waits are in progress at the partition. Negative if an end was
    /// counted before its start.
    pub(crate) fn waiting(&self, partition: PartitionId) -> i64 {
        self.waiting[usize::from(partition.0)].load(Ordering::Relaxed)
    }
    pub(crate) fn mailbox(&self, worker: u16) -> &Mailbox {
        &self.mailboxes[usize::from(worker)]
    }
    pub(crate) fn slices(&self) -> &Slices {
        &self.slices
    }
    pub(crate) fn ended(&self) -> &Workers {
        &self.ended
    }
    /// See [`EngineConfig::stream_bytes`].
    pub(crate) fn stream_bytes(&self) -> u32 {
        self.stream_bytes
    }

    /// See [`EngineConfig::chunk_rows`].
    pub(crate) fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }
    /// See [`EngineConfig::deadlocks`].
    pub(crate) fn deadlocks(&self) -> u32 {
        self.deadlocks
    }
    /// See [`EngineConfig::replays`].
    pub(crate) fn replays(&self) -> u32 {
        self.replays
    }
    /// Returns each partition's scheme, counts and times, in their order. Asks no partition: the
    /// counts may lack those of a few messages.
    pub fn partition_counts(
        &self,
    ) -> Vec<(SchemeKind, SchemeCounts, CascadeCounts, PartitionTimes)> {
        let each = self.all().zip(&self.published);
        each.map(|(partition, published)| {
            let (counts, cascades, times) = published.get();
            (self.schemes.of(partition), counts, cascades, times)
        })
        .collect()
    }
    /// Returns the partitions' schemes.
    pub(crate) fn schemes(&self) -> &Schemes {
        &self.schemes
    }
    /// See [`EngineConfig::stall`].
    pub(crate) fn stall(&self) -> Stall {
        self.stall
    }
    /// Returns the worker that handles mail for the partition when no session has sent it.
    pub(crate) fn home(&self, partition: PartitionId) -> u16 {
        partition.0 % self.mailboxes.len() as u16
    }
    #[track_caller]
    pub(crate) fn waits_for(&self) -> LatchGuard<'_, WaitsFor> {
        self.waits_for.lock()
    }
    #[track_caller]
    pub(crate) fn learned(&self) -> LatchGuard<'_, LearnedLocks> {
        self.learned.lock()
    }
    pub(crate) fn txn_id_block(&self) -> (u64, u64) {
        let first = self.node.alloc_txn_ids(self.txn_ids).0;
        (first, first + self.txn_ids)
    }
    /// Appends the commit record of a transaction on several partitions, which commits it.
    pub(crate) fn commit(&self, txn: TxnId) -> Lsn {
        self.node.commit(txn)
    }

    /// Returns the log's end.
    pub(crate) fn appended(&self) -> Lsn {
        self.node.wal().appended()
    }

    /// Returns the log's end at the time the engine was opened.
    pub(crate) fn started_at(&self) -> Lsn {
        self.started_at
    }

    /// Returns how far the log has grown since a snapshot.
    pub fn log_bytes_since(&self, snapshot: Lsn) -> u64 {
        self.appended().0.saturating_sub(snapshot.0)
    }

    /// Returns roughly how many bytes of memory the versions kept for open snapshots use.
    pub fn version_bytes(&self) -> u64 {
        self.snapshots.bytes()
    }

    /// Returns how many bytes of the temporary file the versions kept for open snapshots use.
    pub fn version_file_bytes(&self) -> u64 {
        self.spill.as_ref().map_or(0, |file| file.bytes())
    }

    /// Returns how many blocks of the temporary file were written, and read.
    pub fn version_blocks(&self) -> (u64, u64) {
        self.spill.as_ref().map_or((0, 0), |file| file.counts())
    }

    /// Returns the open snapshots.
    pub(crate) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }

    /// Returns the exported snapshots.
    pub(crate) fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// Runs the message, or leaves it to the partition's holder. Returns true if messages are left
    /// for which no thread is responsible.
    #[inline]
    #[track_caller]
    pub(crate) fn submit(
        &self,
        partition: PartitionId,
        message: Message,
        outbox: &mut Outbox,
    ) -> bool {
        let combiner = &self.partitions[usize::from(partition.0)];
        matches!(
            combiner.submit(message, &mut |state: &mut Timed, m| state.on_message(m, outbox)),
            Submitted::Ran { more: true }
        )
    }
    /// Runs `f` while this thread holds the partition's baton. Messages to the partition wait
    /// meanwhile, and its home worker handles them afterwards. Only for this crate's tests: no
    /// other way to keep a partition busy is deterministic.
    #[doc(hidden)]
    pub fn while_busy<R>(&self, partition: PartitionId, f: impl FnOnce() -> R) -> R {
        let (result, more) = self.partitions[usize::from(partition.0)].with_exclusive(|_| f());
        if more {
            self.mailbox(self.home(partition)).post(Mail::Leftover(partition));
        }
        result
    }
    /// Returns how the partition's one-shots have run. Waits for the baton: only for tests.
    #[doc(hidden)]
    pub fn scheme_counts(&self, partition: PartitionId) -> SchemeCounts {
        self.partitions[usize::from(partition.0)].with_exclusive(|state| state.partition.counts()).0
    }
    pub(crate) fn poll_partition(&self, partition: PartitionId, outbox: &mut Outbox) -> bool {
        let combiner = &self.partitions[usize::from(partition.0)];
        combiner.poll(&mut |state: &mut Timed, m| state.on_message(m, outbox))
    }

    /// Runs a thread's work. A panic stops here and fails the engine: see [`Engine::failed`].
    pub fn watch(&self, thread: &str, work: impl FnOnce()) {
        checkpointer::watch(&self.node, thread, work);
    }
    pub(crate) fn fail_by_panic(&self, thread: &str, message: &str) {
        checkpointer::fail_by_panic(&self.node, thread, message);
    }

    /// Stops the background work, and writes a last checkpoint and the log's end. Workers must have
    /// stopped.
    ///
    /// # Errors
    /// Why the checkpoint failed; the next start then recovers from the log.
    pub fn shutdown(&self) -> Result<(), String> {
        self.checkpointer.stop();
        let checkpoint = self.node.checkpoint();
        self.node.shutdown();
        if let Some(file) = &self.spill {
            file.remove();
        }
        match (checkpoint, self.node.failed()) {
            (Ok(()), None) => Ok(()),
            (Err(error), None) => Err(format!("the last checkpoint failed: {error}")),
            (_, Some(why)) => Err(why),
        }
    }
}

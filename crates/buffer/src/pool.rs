//! The pool: finds, latches and creates pages.
//!
//! # Invariants
//! 1. A page is in at most one frame (see `table`), and a frame's bytes are accessed only as its
//!    state allows (see `frame`).
//! 2. A page leaves its frame only when it is clean, unpinned, and the disk has its content.
//! 3. Write-ahead: a page is written only when the log is durable up to its LSN (see `write_back`).
//! 4. Methods here block only if their documentation says so. `read`, `write` and `create` never
//!    wait for I/O or for a frame. They wait in turn for a latch, whose holders do neither
//!    (`frame::waits`).
//! 5. A panic of a thread in the pool, or of one that holds a page latched exclusively, fails the
//!    pool with that reason. Nothing is written after it, and pages that the thread may have partly
//!    changed are never read again. Every waiter is answered.
//!
//! # Locking
//! The order:
//! 1. a page's exclusive latch (by the partition's thread, several at a time);
//! 2. the write-back turn;
//! 3. the policy latch (of the crate `clearway-replacement`);
//! 4. a page-table shard;
//! 5. the free list, the list of unsynced pages, or the directory of the second level.
//!
//! The write-back holds a page's shared latch only to copy the page, and acquires nothing in that
//! time. Callbacks run with none of them held.
//!
//! # State after a crash
//! For each page, the disk has some version that the pool has written. Redo from the last
//! checkpoint's point makes it current. Shutting down writes nothing: that is the checkpoint's
//! responsibility.
//!
//! # Source
//! Frame states and the cooler follow common practice (PostgreSQL's buffer descriptors, LeanStore's
//! cooling). The interface between pool and policy is BP-Wrapper's (Ding, Jiang, Zhang, ICDE 2009).

use crate::batch::Batch;
use crate::cooler::Cooler;
use crate::core::Core;
use crate::counters::{Counters, load};
use crate::error::PageError;
use crate::fifo_mutex::FifoMutex;
use crate::frame::{Arena, Frame, FrameUses, Mode};
use crate::free::{FrameWaits, FreeList};
use crate::guard::{PageMut, PageRef};
use crate::health::Health;
use crate::io::{FileSpace, PageIo, WRITE_BATCH, WalBarrier};
use crate::loader::{FetchDone, MissingPage, Pin, PoolCore, Reservation};
use crate::optimistic::OptimisticPage;
use crate::scan_ring::ScanRing;
use crate::second_level::SecondLevel;
use crate::stats::Stats;
use crate::table::PageTable;
use crate::unsynced::Unsynced;
use crate::write_back::WRITE_BACK;
use clearway_env::IoPool;
use clearway_replacement::{ReplacementKind, Uses};
use clearway_types::{Lsn, PageId};
use std::io;
use std::sync::Arc;

/// The minimum number of frames: a B+tree split latches several pages at once.
pub const MIN_FRAMES: u32 = 16;
/// The size of the pool and its replacement policy.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Frames of [`crate::PAGE_SIZE`] bytes; at least 16.
    pub frames: u32,
    /// The replacement policy.
    pub replacement: ReplacementKind,
    /// Pages written back at once, with two syncs per batch; 1 to [`WRITE_BATCH`]. Default
    /// [`WRITE_BATCH`].
    pub write_batch: usize,
    /// How long to wait for a free frame.
    pub waits: FrameWaits,
}

impl Default for PoolConfig {
    fn default() -> Self {
        let replacement = ReplacementKind::default();
        Self { frames: 16384, replacement, write_batch: WRITE_BATCH, waits: FrameWaits::default() }
    }
}

/// The buffer pool. Dropping it stops its thread and writes nothing.
pub struct Pool {
    pub(crate) core: Arc<PoolCore>,
    cooler: Cooler,
}

impl Pool {
    /// Creates a pool of free frames and its cooler thread. Fails if the operating system refuses
    /// the thread.
    pub fn new(
        config: PoolConfig,
        io: Arc<dyn PageIo>,
        wal: Arc<dyn WalBarrier>,
        io_pool: Arc<IoPool>,
    ) -> io::Result<Arc<Self>> {
        Self::with_second_level(config, io, wal, io_pool, None)
    }

    /// Like [`Pool::new`], with an optional second level: a file of copies of evicted pages, which
    /// misses check first.
    pub fn with_second_level(
        config: PoolConfig,
        io: Arc<dyn PageIo>,
        wal: Arc<dyn WalBarrier>,
        io_pool: Arc<IoPool>,
        second_level: Option<SecondLevel>,
    ) -> io::Result<Arc<Self>> {
        let count = config.frames.clamp(MIN_FRAMES, u32::MAX - 1);
        let write_batch = config.write_batch.clamp(1, WRITE_BATCH);
        let (arena, free) = Arena::new(count);
        io_pool.register(arena.memory());
        let frames: Arc<[Frame]> = (0..count).map(|_| Frame::new()).collect();
        let uses = |most| Arc::new(FrameUses::new(frames.clone(), most)) as Arc<dyn Uses>;
        let replacement = config.replacement.build_over(count, uses);
        let core = Arc::new(Core {
            frames,
            arena,
            table: PageTable::new(count),
            counts_uses: config.replacement.counts_uses().is_some(),
            replacement,
            scans: ScanRing::new(count),
            free: FreeList::new(free, config.waits),
            io,
            health: Health::new(wal),
            io_pool,
            write_back: FifoMutex::new(&WRITE_BACK, Batch::new(write_batch)),
            unsynced: Unsynced::default(),
            second_level: second_level.map(Arc::new),
            write_batch,
            counters: Counters::default(),
        });
        let cooler = Cooler::start(core.clone())?;
        Ok(Arc::new(Self { core, cooler }))
    }

    /// Returns the page under the shared latch, if it is resident. The caller must not hold a latch
    /// of this page, not even a shared one: a waiting writer goes first.
    #[inline]
    #[track_caller]
    pub fn read(&self, id: PageId) -> Result<PageRef<'_>, MissingPage> {
        let frame = self.core.latch(id, Mode::Shared).ok_or(MissingPage::Page(id))?;
        self.core.hit(frame, self.core.frame(frame), id);
        Ok(PageRef::new(&self.core, frame))
    }

    /// Reads a resident page without a latch and without a store to shared memory. Concurrent
    /// readers of a hot page therefore cost each other nothing while the page does not change.
    /// Intended for short reads of pages that seldom change.
    ///
    /// `look` may see the page during a change. It is then called again, the last time under the
    /// shared latch. Its result counts only if nothing changed in the meantime. So it must handle
    /// any bytes (without a panic, an endless loop or a side effect), and return what it has found
    /// as copied values, not references.
    #[inline]
    #[track_caller]
    pub fn read_optimistic<T>(
        &self,
        id: PageId,
        mut look: impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Result<T, MissingPage> {
        // Once: otherwise the fields of `self` would be loaded again after the first read of the
        // version.
        let core = &*self.core;
        let first = core.table.first(id);
        if let Some(state) = core.frames.get(first.0 as usize)
            && let Some(found) =
                core.try_optimistic((first, state), |state| state.is_hot(id), &mut look)
        {
            return Ok(found);
        }
        core.read_cold(first, id, look)
    }

    /// Returns true if the page is in the pool now. A hint, without a latch. The policy is not
    /// notified.
    #[inline]
    pub fn is_resident(&self, id: PageId) -> bool {
        self.core.table.find(&self.core.frames, id).is_some()
    }

    /// Returns the page under the exclusive latch, if it is resident. The caller must not hold a
    /// latch of this page.
    #[inline]
    #[track_caller]
    pub fn write(&self, id: PageId) -> Result<PageMut<'_>, MissingPage> {
        let frame = self.core.latch(id, Mode::Exclusive).ok_or(MissingPage::Page(id))?;
        self.core.hit(frame, self.core.frame(frame), id);
        Ok(PageMut::new(&self.core, frame))
    }

    /// Returns a page of zeros under the exclusive latch, whatever the page was before; nothing is
    /// read. The caller must be the only thread that knows the page, and must not hold its latch. A
    /// resident page is overwritten at once. Use this only for a page whose content is not needed,
    /// even if the caller then releases it without marking it.
    ///
    /// Fails with `MissingPage::Space` if the disk may have no such `space` for it.
    #[track_caller]
    pub fn create(&self, id: PageId, space: FileSpace) -> Result<PageMut<'_>, MissingPage> {
        if !self.core.io.has_space(id, space) {
            return Err(MissingPage::Space { page: id, space });
        }
        self.core.create(id, &mut || self.core.free.take_one()).ok_or(MissingPage::Frames(1))
    }

    /// Sets `n` frames aside.
    pub fn reserve_frames(&self, n: u32) -> Result<Reservation, MissingPage> {
        match self.core.free.take(n as usize) {
            Some(frames) => Ok(Reservation { core: self.core.clone(), frames }),
            None => Err(MissingPage::Frames(n)),
        }
    }

    /// Like [`Pool::create`], in a frame of the reservation; space on the disk is not checked.
    ///
    /// # Panics
    /// If the reservation is used up: the caller has miscounted.
    #[track_caller]
    pub fn create_in(&self, reservation: &mut Reservation, id: PageId) -> PageMut<'_> {
        match self.core.create(id, &mut || reservation.frames.pop()) {
            Some(page) => page,
            None => panic!(
                "no frame left in the reservation for {id}, or the pool has failed: {:?}",
                self.failed()
            ),
        }
    }

    /// Fetches what is missing. Reads a page at most once, however many callers request it. `done`
    /// gets a [`Pin`], on this thread before `fetch` returns, or later on another one. It must be
    /// short and must not block.
    ///
    /// Blocks for `MissingPage::Space` while the I/O pool's queue is full ([`IoPool::submit`]).
    ///
    /// Never waits forever for a frame. If none becomes free, because all are pinned, latched, or
    /// cannot be written, `done` gets [`PageError::NoFrames`] after some seconds
    /// ([`FrameWaits::starved_rounds`] of the cooler).
    ///
    /// These requests are refused at once:
    /// - `MissingPage::Frames` of more than half the pool;
    /// - a page with so many pins and waiters that its pin count is exhausted (over 250,000);
    /// - any request after a panic in the pool.
    ///
    /// A panic of `done` fails the pool.
    pub fn fetch(&self, missing: MissingPage, done: FetchDone) {
        self.core.fetch(missing, done);
    }

    /// Like [`Pool::fetch`], and blocks until it is done. Must not be called in a job of the pool's
    /// own I/O threads.
    pub fn fetch_blocking(&self, missing: MissingPage) -> Result<Pin, PageError> {
        self.core.fetch_blocking(missing)
    }

    /// Writes every page that has a change logged before `lsn` and is not on disk, and syncs.
    /// Blocks. After an error nothing more is written.
    pub fn flush_before(&self, lsn: Lsn) -> Result<(), PageError> {
        self.core.flush_before(lsn)
    }

    /// Returns the start of the first log record whose change of some page may not be durable in
    /// place, or `None`. Blocks while a batch is being written.
    ///
    /// A checkpoint reads `target = wal.appended()`, calls `flush_before(target)`, and may then
    /// start redo at the lesser of `target` and this value. The value may miss a page that is
    /// marked after this method has checked it: that change is logged after `target`.
    ///
    /// The value may be less than the previous checkpoint's start of redo: a thread reads the log's
    /// end, and marks its page with it later. That change is logged after the previous `target`. So
    /// the previous start of redo, if greater, must be used instead: the log before it may have
    /// been removed.
    pub fn min_rec_lsn(&self) -> Option<Lsn> {
        self.core.min_rec_lsn()
    }

    /// Returns why pages can no longer be written, if that is so: a write has failed, or a thread
    /// panicked with a page or in the pool. The process must stop, and the next start recovers from
    /// the log.
    pub fn failed(&self) -> Option<&PageError> {
        self.core.health.failed()
    }

    /// Returns counters and the current state of the pool. Walks over all frames.
    pub fn stats(&self) -> Stats {
        let core = &*self.core;
        let (free, waits) = core.free.counts();
        Stats {
            frames: core.frames().len() as u32,
            free: free as u32,
            dirty: core.frames().iter().filter(|f| f.is_dirty()).count() as u32,
            pinned: core.frames().iter().filter(|f| f.is_pinned()).count() as u32,
            reads: load(&core.counters.reads),
            writes: load(&core.counters.writes),
            evictions: load(&core.counters.evictions),
            waits,
            second_level: core
                .second_level
                .as_ref()
                .map(|second| second.stats())
                .unwrap_or_default(),
        }
    }

    /// Sets how long to wait for a free frame from now on.
    pub fn set_frame_waits(&self, waits: FrameWaits) {
        self.core.free.set_waits(waits);
    }

    /// Stops the cooler, refuses all waiters for a frame with [`PageError::Closed`], and ends the
    /// second level. Idempotent; `drop` calls it too.
    pub fn shutdown(&self) {
        self.core.dispatch(self.core.free.stop(PageError::Closed));
        self.cooler.join();
        if let Some(second_level) = &self.core.second_level {
            second_level.close();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shutdown();
    }
}

//! The pool: finding, latching and creating pages.
//!
//! # Invariants
//! 1. A page is in at most one frame (see `table`), and a frame's bytes are reached only as its
//!    state allows (see `frame`).
//! 2. A page leaves its frame only when it is clean, unpinned, and the disk has its content.
//! 3. Write-ahead: a page is written only when the log is durable up to its LSN (see `write_back`).
//! 4. Nothing here blocks but what says so: `read`, `write` and `create` never wait for I/O or for
//!    a frame. They wait for a latch, whose holders do neither, in turn (`frame::waits`).
//! 5. A panic of any thread in the pool or with a page latched exclusively fails the pool with its
//!    reason: nothing is written any more, and what the thread may have half changed is never seen
//!    again. Whoever waits for something is answered.
//!
//! # Locking
//! In this order: a page's exclusive latch (by the partition's thread, several at a time) ·
//! write-back turn · policy latch (of the crate `clearway-replacement`) · page-table shard · free
//! list, list of unsynced pages, or directory of the second level. A page's shared latch is held by
//! the write-back only to copy the page, taking nothing meanwhile. Callbacks run with none of them
//! held.
//!
//! # What a crash leaves
//! The disk has, of each page, some version that the pool has written, and redo from the last
//! checkpoint's point makes it current. Shutting down writes nothing: that is the checkpoint's
//! matter.
//!
//! # Source
//! Frame states and the cooler follow shared practice (PostgreSQL's buffer descriptors, LeanStore's
//! cooling); the seam between pool and policy is BP-Wrapper's (Ding, Jiang, Zhang, ICDE 2009).

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
use crate::io::{PageIo, WRITE_BATCH, WalBarrier};
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

/// The fewest frames a pool has: a B+tree's split latches a handful of pages at once.
pub const MIN_FRAMES: u32 = 16;
/// How large the pool is and how it chooses victims.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Frames of [`crate::PAGE_SIZE`] bytes; at least 16.
    pub frames: u32,
    /// How victims are chosen.
    pub replacement: ReplacementKind,
    /// Pages written back at once, with two syncs a batch; 1 to [`WRITE_BATCH`]. Default
    /// [`WRITE_BATCH`].
    pub write_batch: usize,
    /// How long a free frame is waited for.
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
    /// A pool of free frames, and its cooler thread. An error if the operating system refuses the
    /// thread.
    pub fn new(
        config: PoolConfig,
        io: Arc<dyn PageIo>,
        wal: Arc<dyn WalBarrier>,
        io_pool: Arc<IoPool>,
    ) -> io::Result<Arc<Self>> {
        Self::with_second_level(config, io, wal, io_pool, None)
    }

    /// As [`Pool::new`], if so wanted with a file of copies of what has left the pool, where a miss
    /// looks first.
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

    /// The page under the shared latch, if it is resident. The caller must not hold a latch of this
    /// page, not even a shared one: a writer that waits goes first.
    #[inline]
    #[track_caller]
    pub fn read(&self, id: PageId) -> Result<PageRef<'_>, MissingPage> {
        let frame = self.core.latch(id, Mode::Shared).ok_or(MissingPage::Page(id))?;
        self.core.hit(frame, self.core.frame(frame), id);
        Ok(PageRef::new(&self.core, frame))
    }

    /// Looks at a resident page without a latch and without a store to memory that threads share:
    /// while nobody changes the page, it costs a hot page's readers nothing that there are many of
    /// them. Meant for short looks into pages that seldom change.
    ///
    /// What `look` sees may be in the middle of a change. Then it is called again, the last time
    /// under the shared latch; what it returns counts only if nothing was changed meanwhile. So it
    /// must take any bytes for possible (without a panic, an endless loop, or anything done
    /// outside), and return what it has found: bytes copied out, not references.
    #[inline]
    #[track_caller]
    pub fn read_optimistic<T>(
        &self,
        id: PageId,
        mut look: impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Result<T, MissingPage> {
        // Once: what `self` leads to would be loaded again behind the first look at the version.
        let core = &*self.core;
        let first = core.table.first(id);
        if let Some(state) = core.frames.get(first.0 as usize)
            && let Some(found) = core.glimpse((first, state), |state| state.is_hot(id), &mut look)
        {
            return Ok(found);
        }
        core.read_cold(first, id, look)
    }

    /// Whether the page is in the pool now: a hint, without a latch. The policy does not hear of
    /// it.
    #[inline]
    pub fn is_resident(&self, id: PageId) -> bool {
        self.core.table.find(&self.core.frames, id).is_some()
    }

    /// The page under the exclusive latch, if it is resident. The caller must not hold a latch of
    /// this page.
    #[inline]
    #[track_caller]
    pub fn write(&self, id: PageId) -> Result<PageMut<'_>, MissingPage> {
        let frame = self.core.latch(id, Mode::Exclusive).ok_or(MissingPage::Page(id))?;
        self.core.hit(frame, self.core.frame(frame), id);
        Ok(PageMut::new(&self.core, frame))
    }

    /// A page of zeros under the exclusive latch, whatever the page was before; nothing is read.
    /// The caller is the only one who knows the page, and must not hold a latch of it. A page that
    /// was resident is overwritten at once: only for a page whose content nobody needs, even if the
    /// caller then lets it go unmarked.
    ///
    /// `MissingPage::Space` if the disk may have no space for it. With `last` it may be in what is
    /// kept for those who cannot be refused.
    #[track_caller]
    pub fn create(&self, id: PageId, last: bool) -> Result<PageMut<'_>, MissingPage> {
        if !self.core.io.has_space(id, last) {
            return Err(MissingPage::Space { page: id, last });
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

    /// As [`Pool::create`], in a frame of the reservation; space on the disk is not looked for.
    ///
    /// # Panics
    /// If the reservation is used up: the caller has counted wrongly.
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

    /// Brings what is wanted, reading a page at most once however many ask for it. `done` gets a
    /// [`Pin`], on this thread before `fetch` returns, or later on another one; it must be short
    /// and must not block.
    ///
    /// Never waits for ever: if no frame becomes free because all are kept, latched, or cannot be
    /// written, `done` gets [`PageError::NoFrames`] after some seconds
    /// ([`FrameWaits::starved_rounds`] of the cooler). `MissingPage::Frames` of more than half the
    /// pool is refused at once. So is whoever wants a page that as many keep, or wait for, as its
    /// pins can count (over 250,000), and everything after a panic in the pool. A panic of `done`
    /// fails the pool.
    pub fn fetch(&self, want: MissingPage, done: FetchDone) {
        self.core.fetch(want, done);
    }

    /// As [`Pool::fetch`], and blocks until it is done. Not in a job of the pool's own I/O threads.
    pub fn fetch_blocking(&self, want: MissingPage) -> Result<Pin, PageError> {
        self.core.fetch_blocking(want)
    }

    /// Writes every page that has a change logged before `lsn` and is not on disk, and syncs.
    /// Blocking. After an error nothing is written any more.
    pub fn flush_before(&self, lsn: Lsn) -> Result<(), PageError> {
        self.core.flush_before(lsn)
    }

    /// Where the first log record starts whose change of some page is not yet sure to survive a
    /// crash, or `None`. Blocks while a batch is being written.
    ///
    /// A checkpoint reads `target = wal.appended()`, calls `flush_before(target)`, and may then
    /// redo from the lesser of `target` and this: a change logged after `target` may be marked only
    /// after this has looked at its page.
    pub fn min_rec_lsn(&self) -> Option<Lsn> {
        self.core.min_rec_lsn()
    }

    /// Why pages can no longer be written, if so (a write has failed, or a thread panicked with a
    /// page or in the pool): the process must stop, and the next start recovers from the log.
    pub fn failed(&self) -> Option<&PageError> {
        self.core.health.failed()
    }

    /// What the pool has done, and how it stands; walks over all frames.
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

    /// Sets how long a free frame is waited for from now on.
    pub fn set_frame_waits(&self, waits: FrameWaits) {
        self.core.free.set_waits(waits);
    }

    /// Stops the cooler, refuses all who wait for a frame with [`PageError::Closed`], and ends the
    /// second level. Idempotent; `drop` does it too.
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

//! The pool: finding, latching and creating pages.
//!
//! # Invariants
//! 1. A page is in at most one frame (see `table`), and a frame's bytes are reached only as its state allows (see `frame`).
//! 2. A page leaves its frame only when it is clean, unpinned, and the disk has its content.
//! 3. Write-ahead: a page is written only when the log is durable up to its LSN (see `write_back`).
//! 4. Nothing here blocks but what says so: `read`, `write` and `create` never wait for I/O or for a frame. They wait for
//!    a latch, whose holders do neither, in turn (`frame::waits`).
//! 5. A panic of any thread in the pool or with a page latched exclusively fails the pool with its reason: nothing is written any more, and what
//!    the thread may have half changed is never seen again. Whoever waits for something is answered.
//!
//! # Locking
//! In this order: a page's exclusive latch (by the partition's thread, several at a time) · write-back turn · policy latch
//! (of the crate `clearway-replacement`) · page-table shard · free list, list of unsynced pages, or directory
//! of the second level. A page's shared latch is held by the
//! write-back only to copy the page, taking nothing meanwhile. Callbacks run with none of them held.
//!
//! # What a crash leaves
//! The disk has, of each page, some version that the pool has written, and redo from the last checkpoint's point makes it
//! current. Shutting down writes nothing: that is the checkpoint's matter.
//!
//! # Source
//! Frame states and the cooler follow shared practice (PostgreSQL's buffer descriptors, LeanStore's cooling); the seam
//! between pool and policy is BP-Wrapper's (Ding, Jiang, Zhang, ICDE 2009).

use crate::cooler::Cooler;
use crate::error::PageError;
use crate::fair::Fair;
use crate::fetch::FetchDone;
use crate::frame::{Arena, Frame, FrameUses, FreeFrame, Latched, Mode};
use crate::free::{FrameWaits, FreeList};
use crate::guard::{Keep, PageMut, PageRef, Reservation};
use crate::io::{PageIo, WalBarrier};
use crate::optimistic::Glimpse;
use crate::scan_ring::ScanRing;
use crate::second_level::{SecondLevel, Victim};
use crate::stats::{Counters, Stats, count};
use crate::table::PageTable;
use crate::unsynced::Unsynced;
use crate::write_back::{Batch, WRITE_BACK, WRITE_BATCH};
use clearway_env::IoPool;
use clearway_replacement::{Replacement, ReplacementKind, Uses};
use clearway_sync::canary::{self, Bug};
use clearway_types::{FrameId, Lsn, PageId};
use std::io;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

/// The fewest frames a pool has: a B+tree's split latches a handful of pages at once.
pub const MIN_FRAMES: u32 = 16;
/// Looks at a page without a latch before one is taken.
const GLIMPSES: u32 = 4;

/// How large the pool is and how it chooses victims.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Frames of [`crate::PAGE_SIZE`] bytes; at least 16.
    pub frames: u32,
    /// How victims are chosen.
    pub replacement: ReplacementKind,
    /// Pages written back at once, with two syncs a batch; 1 to [`WRITE_BATCH`]. Default [`WRITE_BATCH`].
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

/// What an attempt needs before it can be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// This page in the pool.
    Page(PageId),
    /// This page in the pool, for a scan: one of many pages, and most likely not needed again soon. Unless it is missed again soon, it leaves
    /// before those that were wanted otherwise, so that a scan of any length leaves the pool nearly as it was.
    Scan(PageId),
    /// So many free frames.
    Frames(u32),
    /// Space on the disk for a page that is to be created; `last`: in what is kept for those who cannot be refused.
    Space {
        /// The page.
        page: PageId,
        /// Whether the last space is meant.
        last: bool,
    },
    /// Room in the log.
    Log {
        /// How much.
        bytes: u64,
        /// Whoever wants it cannot be refused, and waits on if there is none.
        must: bool,
    },
}

/// The buffer pool. Dropping it stops its thread and writes nothing.
pub struct Pool {
    pub(crate) core: Arc<Core>,
    cooler: Cooler,
}

/// What the pool's threads and guards share.
pub(crate) struct Core {
    frames: Arc<[Frame]>,
    pub arena: Arena,
    pub table: PageTable<FetchDone>,
    pub replacement: Box<dyn Replacement>,
    /// Whether a hit is only counted in the frame; else the replacement is told.
    counts_uses: bool,
    pub scans: ScanRing,
    pub free: FreeList,
    pub io: Arc<dyn PageIo>,
    pub wal: Arc<dyn WalBarrier>,
    pub io_pool: Arc<IoPool>,
    pub write_back: Fair<Batch>,
    /// What was written and may still be lost.
    pub unsynced: Unsynced,
    pub second_level: Option<Arc<SecondLevel>>,
    /// Pages of one batch.
    pub write_batch: usize,
    /// Set by the first failed write or panic; nothing is written after it.
    pub failed: OnceLock<PageError>,
    pub counters: Counters,
}

/// The page in this frame is latched in a way that excludes the wanted one.
struct Busy(FrameId);

impl Core {
    #[inline]
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Pins and latches a resident page; waits while the latch is held in a way that excludes `mode`.
    #[inline]
    #[track_caller]
    fn latch(&self, id: PageId, mode: Mode) -> Option<FrameId> {
        mode.class().request();
        match self.table.find(&self.frames, id) {
            Some((frame, state)) if state.try_latch(id, mode) == Latched::Yes => Some(frame),
            None if canary::on(Bug::UnconfirmedMiss) => None,
            _ => self.latch_slowly(id, mode, Location::caller()),
        }
    }

    /// Tells the replacement of a hit, if that changes anything.
    #[inline(always)]
    fn hit(&self, frame: FrameId, state: &Frame, id: PageId) {
        if !state.is_hot(id) {
            self.hit_cold(frame, state, id);
        }
    }

    /// Out of line, so that the usual hit saves no registers for it.
    #[cold]
    #[inline(never)]
    fn hit_cold(&self, frame: FrameId, state: &Frame, id: PageId) {
        if self.counts_uses {
            state.count_use(id);
        } else {
            self.replacement.hit(frame, id);
        }
    }

    /// A look without a latch at a page that `is_here`, in that frame of the pool, if it is not changed meanwhile.
    #[inline(always)]
    fn glimpse<T>(
        &self,
        (frame, state): (FrameId, &Frame),
        is_here: impl FnOnce(&Frame) -> bool,
        look: &mut impl FnMut(&Glimpse<'_>) -> T,
    ) -> Option<T> {
        if !Glimpse::POSSIBLE {
            return None;
        }
        let version = state.glimpse(is_here)?;
        // SAFETY: it is one of `frames`, and the arena has been made for as many.
        let found = look(&unsafe { Glimpse::new(self, frame) });
        state.unchanged_since(version).then_some(found)
    }

    /// A look at a page that is not hot, if it is in the first frame of its chain. Out of line, so that the look at a hot one is short.
    #[inline(never)]
    #[track_caller]
    fn read_cold<T>(&self, first: FrameId, id: PageId, mut look: impl FnMut(&Glimpse<'_>) -> T) -> Result<T, Want> {
        if let Some(state) = self.frames.get(first.0 as usize)
            && let Some(found) = self.glimpse((first, state), |state| state.holds(id), &mut look)
        {
            self.hit_cold(first, state, id);
            return Ok(found);
        }
        self.read_again(id, look)
    }

    /// The page was not in the first frame of its chain, or changed while it was looked at.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_again<T>(&self, id: PageId, mut look: impl FnMut(&Glimpse<'_>) -> T) -> Result<T, Want> {
        for _ in 1..GLIMPSES {
            if let Some(at @ (frame, state)) = self.table.find(&self.frames, id)
                && let Some(found) = self.glimpse(at, |state| state.holds(id), &mut look)
            {
                self.hit(frame, state, id);
                return Ok(found);
            }
            clearway_sync::hint::spin_loop();
        }
        let frame = self.latch(id, Mode::Shared).ok_or(Want::Page(id))?;
        let _latched = PageRef::new(self, frame);
        self.hit(frame, self.frame(frame), id);
        // SAFETY: it has just been found.
        Ok(look(&unsafe { Glimpse::new(self, frame) }))
    }

    #[cold]
    fn latch_slowly(&self, id: PageId, mode: Mode, caller: &'static Location<'static>) -> Option<FrameId> {
        let mut attempt = self.latch_confirmed(id, mode);
        if attempt.is_err() {
            mode.class().timed(caller, || {
                while let Err(Busy(frame)) = attempt {
                    attempt = match self.frame(frame).latch_in_turn(id, mode) {
                        Latched::Yes => Ok(Some(frame)),
                        Latched::Busy | Latched::Gone => self.latch_confirmed(id, mode),
                    };
                }
            });
        }
        attempt.unwrap_or(None)
    }

    /// One attempt, in which a page that is not found is not resident, or lost in a panic; an error if it is busy.
    fn latch_confirmed(&self, id: PageId, mode: Mode) -> Result<Option<FrameId>, Busy> {
        let shard = self.table.latch(id);
        let Some(frame) = self.table.find_latched(&shard, &self.frames, id) else { return Ok(None) };
        match self.frame(frame).try_latch(id, mode) {
            Latched::Yes => Ok(Some(frame)),
            // Whoever then fetches the page is told why.
            Latched::Busy if self.frame(frame).is_lost() => Ok(None),
            Latched::Busy => Err(Busy(frame)),
            Latched::Gone => unreachable!("{id} cannot leave its frame under the page-table latch"),
        }
    }

    /// A zeroed page under the exclusive latch, in the frame that has it already or in a free one, if `free` has one.
    #[track_caller]
    fn create(self: &Arc<Self>, id: PageId, free: &mut dyn FnMut() -> Option<FreeFrame>) -> Option<PageMut<'_>> {
        loop {
            if let Some(frame) = self.latch(id, Mode::Exclusive) {
                let mut page = PageMut::new(self, frame);
                page.fill(0);
                return Some(page);
            }
            let mut frame = free()?;
            self.arena.free_bytes(&mut frame).fill(0);
            let mut shard = self.table.latch(id);
            if let Some(resident) = self.table.find_latched(&shard, &self.frames, id) {
                // A read that was under way has just brought it; or it was lost in a panic.
                drop(shard);
                self.dispatch(self.free.put([frame]));
                if self.frame(resident).is_lost() {
                    return None;
                }
                continue;
            }
            if let Some(loading) = shard.loading.get_mut(&id) {
                loading.superseded = true;
            }
            let frame = self.publish(frame, id, 0, Some(Mode::Exclusive));
            self.table.link(&shard, &self.frames, id, frame);
            drop(shard);
            self.replacement.miss(frame, id);
            return Some(PageMut::new(self, frame));
        }
    }

    /// See [`Frame::publish`].
    pub fn publish(&self, frame: FreeFrame, id: PageId, pins: u64, mode: Option<Mode>) -> FrameId {
        self.frame(frame.id()).publish(frame, id, pins, mode)
    }

    /// Takes the frame from its page, if that is clean and nobody holds it. The policy is to be told.
    pub fn claim(&self, frame: FrameId) -> Option<Victim> {
        let id = self.frame(frame).page();
        let shard = self.table.latch(id);
        if self.table.find_latched(&shard, &self.frames, id) != Some(frame) {
            return None;
        }
        let free = self.frame(frame).try_claim(frame)?;
        self.table.unlink(&shard, &self.frames, id, frame);
        count(&self.counters.evictions, 1);
        Some(Victim { page: id, frame: free })
    }
}

impl Pool {
    /// A pool of free frames, and its cooler thread. An error if the operating system refuses the thread.
    pub fn new(
        config: PoolConfig,
        io: Arc<dyn PageIo>,
        wal: Arc<dyn WalBarrier>,
        io_pool: Arc<IoPool>,
    ) -> io::Result<Arc<Self>> {
        Self::with_second_level(config, io, wal, io_pool, None)
    }

    /// As [`Pool::new`], if so wanted with a file of copies of what has left the pool, where a miss looks first.
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
            wal,
            io_pool,
            write_back: Fair::new(&WRITE_BACK, Batch::new(write_batch)),
            unsynced: Unsynced::default(),
            second_level: second_level.map(Arc::new),
            write_batch,
            failed: OnceLock::new(),
            counters: Counters::default(),
        });
        let cooler = Cooler::start(core.clone())?;
        Ok(Arc::new(Self { core, cooler }))
    }

    /// The page under the shared latch, if it is resident. The caller must not hold a latch of this page, not even a shared one: a writer that waits
    /// goes first.
    #[inline]
    #[track_caller]
    pub fn read(&self, id: PageId) -> Result<PageRef<'_>, Want> {
        let frame = self.core.latch(id, Mode::Shared).ok_or(Want::Page(id))?;
        self.core.hit(frame, self.core.frame(frame), id);
        Ok(PageRef::new(&self.core, frame))
    }

    /// Looks at a resident page without a latch and without a store to memory that threads share: while nobody changes the page, it costs a
    /// hot page's readers nothing that there are many of them. Meant for short looks into pages that seldom change.
    ///
    /// What `look` sees may be in the middle of a change. Then it is called again, the last time under the shared latch; what it returns counts
    /// only if nothing was changed meanwhile. So it must take any bytes for possible (without a panic, an endless loop, or anything done
    /// outside), and return what it has found: bytes copied out, not references.
    #[inline]
    #[track_caller]
    pub fn read_optimistic<T>(&self, id: PageId, mut look: impl FnMut(&Glimpse<'_>) -> T) -> Result<T, Want> {
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

    /// Whether the page is in the pool now: a hint, without a latch. The policy does not hear of it.
    #[inline]
    pub fn is_resident(&self, id: PageId) -> bool {
        self.core.table.find(&self.core.frames, id).is_some()
    }

    /// The page under the exclusive latch, if it is resident. The caller must not hold a latch of this page.
    #[inline]
    #[track_caller]
    pub fn write(&self, id: PageId) -> Result<PageMut<'_>, Want> {
        let frame = self.core.latch(id, Mode::Exclusive).ok_or(Want::Page(id))?;
        self.core.hit(frame, self.core.frame(frame), id);
        Ok(PageMut::new(&self.core, frame))
    }

    /// A page of zeros under the exclusive latch, whatever the page was before; nothing is read. The caller is the only one
    /// who knows the page, and must not hold a latch of it. A page that was resident is overwritten at once: only for a
    /// page whose content nobody needs, even if the caller then lets it go unmarked.
    ///
    /// `Want::Space` if the disk may have no space for it. With `last` it may be in what is kept for those who cannot be refused.
    #[track_caller]
    pub fn create(&self, id: PageId, last: bool) -> Result<PageMut<'_>, Want> {
        if !self.core.io.has_space(id, last) {
            return Err(Want::Space { page: id, last });
        }
        self.core.create(id, &mut || self.core.free.take_one()).ok_or(Want::Frames(1))
    }

    /// Sets `n` frames aside.
    pub fn reserve_frames(&self, n: u32) -> Result<Reservation, Want> {
        match self.core.free.take(n as usize) {
            Some(frames) => Ok(Reservation { core: self.core.clone(), frames }),
            None => Err(Want::Frames(n)),
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
            None => panic!("no frame left in the reservation for {id}, or the pool has failed: {:?}", self.failed()),
        }
    }

    /// Brings what is wanted, reading a page at most once however many ask for it. `done` gets a [`Keep`], on this thread
    /// before `fetch` returns, or later on another one; it must be short and must not block.
    ///
    /// Never waits for ever: if no frame becomes free because all are kept, latched, or cannot be written, `done` gets
    /// [`PageError::NoFrames`] after some seconds ([`FrameWaits::starved_rounds`] of the cooler). `Want::Frames` of more than half the pool
    /// is refused at once. So is whoever wants a page that as many keep, or wait for, as its pins can count (over 250,000), and everything after a
    /// panic in the pool. A panic of `done` fails the pool.
    pub fn fetch(&self, want: Want, done: FetchDone) {
        self.core.fetch(want, done);
    }

    /// As [`Pool::fetch`], and blocks until it is done. Not in a job of the pool's own I/O threads.
    pub fn fetch_blocking(&self, want: Want) -> Result<Keep, PageError> {
        self.core.fetch_blocking(want)
    }

    /// Writes every page that has a change logged before `lsn` and is not on disk, and syncs. Blocking. After an error
    /// nothing is written any more.
    pub fn flush_before(&self, lsn: Lsn) -> Result<(), PageError> {
        self.core.flush_before(lsn)
    }

    /// Where the first log record starts whose change of some page is not yet sure to survive a crash, or `None`. Blocks
    /// while a batch is being written.
    ///
    /// A checkpoint reads `target = wal.appended()`, calls `flush_before(target)`, and may then redo from the lesser of
    /// `target` and this: a change logged after `target` may be marked only after this has looked at its page.
    pub fn min_rec_lsn(&self) -> Option<Lsn> {
        self.core.min_rec_lsn()
    }

    /// Why pages can no longer be written, if so (a write has failed, or a thread panicked with a page or in the pool): the process must stop, and the next start recovers from the log.
    pub fn failed(&self) -> Option<&PageError> {
        self.core.failed.get()
    }

    /// What the pool has done, and how it stands; walks over all frames.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Sets how long a free frame is waited for from now on.
    pub fn set_frame_waits(&self, waits: FrameWaits) {
        self.core.free.set_waits(waits);
    }

    /// Stops the cooler, refuses all who wait for a frame with [`PageError::Closed`], and ends the second level. Idempotent; `drop` does it too.
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

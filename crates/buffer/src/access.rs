//! Finds, latches, reads and creates pages.
//!
//! # Invariants and locking
//! Those of `pool`.

use crate::frame::{Frame, FreeFrame, Mode, TryLatch};
use crate::guard::{PageMut, PageRef};
use crate::loader::{MissingPage, PoolCore};
use crate::optimistic::OptimisticPage;
use clearway_sync::canary::{self, Bug};
use clearway_types::{FrameId, PageId};
use std::panic::Location;
use std::sync::Arc;

/// Optimistic attempts before the reader takes a latch.
const OPTIMISTIC_TRIES: u32 = 4;

/// The page in this frame is latched in a mode that conflicts with the requested one.
struct Busy(FrameId);

impl PoolCore {
    /// Pins and latches a resident page. Waits while the latch is held in a mode that conflicts
    /// with `mode`.
    #[inline]
    #[track_caller]
    pub fn latch(&self, id: PageId, mode: Mode) -> Option<FrameId> {
        mode.class().request();
        match self.table.find(&self.frames, id) {
            Some((frame, state)) if state.try_latch(id, mode) == TryLatch::Yes => Some(frame),
            None if canary::on(Bug::UnconfirmedMiss) => None,
            _ => self.latch_slowly(id, mode, Location::caller()),
        }
    }

    /// Reports a hit to the replacement policy, if the hit changes its state.
    #[inline(always)]
    pub fn hit(&self, frame: FrameId, state: &Frame, id: PageId) {
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

    /// Reads the page optimistically in the given frame, if `is_here` holds for it. Returns `None`
    /// if the page changes during the read.
    #[inline(always)]
    pub fn try_optimistic<T>(
        &self,
        (frame, state): (FrameId, &Frame),
        is_here: impl FnOnce(&Frame) -> bool,
        look: &mut impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Option<T> {
        if !OptimisticPage::POSSIBLE {
            return None;
        }
        let version = state.optimistic_version(is_here)?;
        // SAFETY: the frame is one of `frames`, and the arena has memory for all of them.
        let found = look(&unsafe { OptimisticPage::new(self, frame) });
        state.unchanged_since(version).then_some(found)
    }

    /// Reads a page that is not hot, if it is in the first frame of its chain. Out of line, so that
    /// the read of a hot page stays short.
    #[inline(never)]
    #[track_caller]
    pub fn read_cold<T>(
        &self,
        first: FrameId,
        id: PageId,
        mut look: impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Result<T, MissingPage> {
        if let Some(state) = self.frames.get(first.0 as usize)
            && let Some(found) =
                self.try_optimistic((first, state), |state| state.holds(id), &mut look)
        {
            self.hit_cold(first, state, id);
            return Ok(found);
        }
        self.read_again(id, look)
    }

    /// Handles a page that is not in the first frame of its chain, or that changed during the read.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_again<T>(
        &self,
        id: PageId,
        mut look: impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Result<T, MissingPage> {
        for _ in 1..OPTIMISTIC_TRIES {
            if let Some(at @ (frame, state)) = self.table.find(&self.frames, id)
                && let Some(found) = self.try_optimistic(at, |state| state.holds(id), &mut look)
            {
                self.hit(frame, state, id);
                return Ok(found);
            }
            clearway_sync::hint::spin_loop();
        }
        let frame = self.latch(id, Mode::Shared).ok_or(MissingPage::Page(id))?;
        let _latched = PageRef::new(self, frame);
        self.hit(frame, self.frame(frame), id);
        // SAFETY: the search has just found this frame.
        Ok(look(&unsafe { OptimisticPage::new(self, frame) }))
    }

    #[cold]
    fn latch_slowly(
        &self,
        id: PageId,
        mode: Mode,
        caller: &'static Location<'static>,
    ) -> Option<FrameId> {
        let mut attempt = self.latch_confirmed(id, mode);
        if attempt.is_err() {
            mode.class().timed(caller, || {
                while let Err(Busy(frame)) = attempt {
                    attempt = match self.frame(frame).latch_in_turn(id, mode) {
                        TryLatch::Yes => Ok(Some(frame)),
                        TryLatch::Busy | TryLatch::Gone => self.latch_confirmed(id, mode),
                    };
                }
            });
        }
        attempt.unwrap_or(None)
    }

    /// Makes one attempt. Returns `None` if the page is not resident or was lost in a panic, and an
    /// error if it is busy.
    fn latch_confirmed(&self, id: PageId, mode: Mode) -> Result<Option<FrameId>, Busy> {
        let shard = self.table.latch(id);
        let Some(frame) = self.table.find_latched(&shard, &self.frames, id) else {
            return Ok(None);
        };
        match self.frame(frame).try_latch(id, mode) {
            TryLatch::Yes => Ok(Some(frame)),
            // The fetch that follows returns the reason.
            TryLatch::Busy if self.frame(frame).is_lost() => Ok(None),
            TryLatch::Busy => Err(Busy(frame)),
            TryLatch::Gone => {
                unreachable!("{id} cannot leave its frame under the page-table latch")
            }
        }
    }

    /// Returns a zeroed page under the exclusive latch: in the frame that already holds it, or in a
    /// free frame if `free` has one.
    #[track_caller]
    pub fn create(
        self: &Arc<Self>,
        id: PageId,
        free: &mut dyn FnMut() -> Option<FreeFrame>,
    ) -> Option<PageMut<'_>> {
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
                // A concurrent read has just loaded the page, or a panic has lost it.
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
}

//! Finding, latching, looking at and creating pages.
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

/// Looks at a page without a latch before one is taken.
const GLIMPSES: u32 = 4;

/// The page in this frame is latched in a way that excludes the wanted one.
struct Busy(FrameId);

impl PoolCore {
    /// Pins and latches a resident page; waits while the latch is held in a way that excludes
    /// `mode`.
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

    /// Tells the replacement of a hit, if that changes anything.
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

    /// A look without a latch at a page that `is_here`, in that frame of the pool, if it is not
    /// changed meanwhile.
    #[inline(always)]
    pub fn glimpse<T>(
        &self,
        (frame, state): (FrameId, &Frame),
        is_here: impl FnOnce(&Frame) -> bool,
        look: &mut impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Option<T> {
        if !OptimisticPage::POSSIBLE {
            return None;
        }
        let version = state.glimpse(is_here)?;
        // SAFETY: it is one of `frames`, and the arena has been made for as many.
        let found = look(&unsafe { OptimisticPage::new(self, frame) });
        state.unchanged_since(version).then_some(found)
    }

    /// A look at a page that is not hot, if it is in the first frame of its chain. Out of line, so
    /// that the look at a hot one is short.
    #[inline(never)]
    #[track_caller]
    pub fn read_cold<T>(
        &self,
        first: FrameId,
        id: PageId,
        mut look: impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Result<T, MissingPage> {
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
    fn read_again<T>(
        &self,
        id: PageId,
        mut look: impl FnMut(&OptimisticPage<'_>) -> T,
    ) -> Result<T, MissingPage> {
        for _ in 1..GLIMPSES {
            if let Some(at @ (frame, state)) = self.table.find(&self.frames, id)
                && let Some(found) = self.glimpse(at, |state| state.holds(id), &mut look)
            {
                self.hit(frame, state, id);
                return Ok(found);
            }
            clearway_sync::hint::spin_loop();
        }
        let frame = self.latch(id, Mode::Shared).ok_or(MissingPage::Page(id))?;
        let _latched = PageRef::new(self, frame);
        self.hit(frame, self.frame(frame), id);
        // SAFETY: it has just been found.
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

    /// One attempt, in which a page that is not found is not resident, or lost in a panic; an error
    /// if it is busy.
    fn latch_confirmed(&self, id: PageId, mode: Mode) -> Result<Option<FrameId>, Busy> {
        let shard = self.table.latch(id);
        let Some(frame) = self.table.find_latched(&shard, &self.frames, id) else {
            return Ok(None);
        };
        match self.frame(frame).try_latch(id, mode) {
            TryLatch::Yes => Ok(Some(frame)),
            // Whoever then fetches the page is told why.
            TryLatch::Busy if self.frame(frame).is_lost() => Ok(None),
            TryLatch::Busy => Err(Busy(frame)),
            TryLatch::Gone => {
                unreachable!("{id} cannot leave its frame under the page-table latch")
            }
        }
    }

    /// A zeroed page under the exclusive latch, in the frame that has it already or in a free one,
    /// if `free` has one.
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
}

//! CLOCK without a lock: one atomic mark a frame, and an atomic hand.
//!
//! The mark is the frame's count of uses, up to one (`policy::uses`). A hit reads the mark and writes it only if it is not set, so that hits on a hot
//! page write no shared memory. All orderings are relaxed: marks and hand are advice, and the pool probes every victim. What a race can do is
//! give a page one round more or less.
//!
//! Source: BP-Wrapper's pgClock, PostgreSQL's clock sweep with a usage count of one.

use super::Replacement;
use crate::policy::{Probe, Uses, count_use, uses};
use clearway_sync::atomic::{AtomicUsize, Ordering::Relaxed};
use clearway_types::{FrameId, PageId};
use std::sync::Arc;

const OLD: u8 = 0;
/// Uses are counted up to this.
pub(super) const USED: u8 = 1;
/// No page, or none that the policy knows: above `USED`, so that hits change nothing.
const EMPTY: u8 = u8::MAX;

/// CLOCK that takes no lock.
pub struct ClockSweep {
    marks: Arc<dyn Uses>,
    frames: usize,
    hand: AtomicUsize,
}

impl ClockSweep {
    /// A policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self::over(frames, Arc::new(uses(frames)))
    }

    /// The same, with the frames' marks there.
    pub(super) fn over(frames: u32, marks: Arc<dyn Uses>) -> Self {
        (0..frames).for_each(|frame| marks.of(FrameId(frame)).store(EMPTY, Relaxed));
        Self { marks, frames: frames as usize, hand: AtomicUsize::new(0) }
    }
}

// Relaxed throughout: see the module's header.
impl Replacement for ClockSweep {
    #[inline]
    fn hit(&self, frame: FrameId, _page: PageId) {
        count_use(self.marks.of(frame), USED);
    }

    fn miss(&self, frame: FrameId, _page: PageId) {
        self.marks.of(frame).store(USED, Relaxed);
    }

    fn evict(&self, _incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
        for _ in 0..self.frames * 2 {
            let frame = FrameId((self.hand.fetch_add(1, Relaxed) % self.frames) as u32);
            let mark = self.marks.of(frame);
            match mark.load(Relaxed) {
                EMPTY => {}
                USED => mark.store(OLD, Relaxed),
                _ => match probe(frame) {
                    Probe::Take => {
                        mark.store(EMPTY, Relaxed);
                        return Some(frame);
                    }
                    Probe::Skip => {}
                    Probe::Stop => return None,
                },
            }
        }
        None
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        if take() {
            self.marks.of(frame).store(EMPTY, Relaxed);
        }
    }
}

//! CLOCK without a lock: one atomic reference bit per frame, and an atomic hand.
//!
//! The reference bit is the frame's count of uses with a bound of 1 (`policy::uses`). A hit reads
//! the bit and writes it only if it is not set, so that hits on a hot page write no shared memory.
//!
//! # Locking
//! None. All orderings are relaxed: bits and hand are hints, and the pool probes every victim. A
//! race gives a page one round more or less.
//!
//! # Source
//! BP-Wrapper's pgClock: PostgreSQL's clock sweep with a usage count of one.

use super::Replacement;
use crate::policy::{Counts, Probe, Uses};
use clearway_sync::atomic::{AtomicUsize, Ordering::Relaxed};
use clearway_types::{FrameId, PageId};
use std::sync::Arc;

/// The bound of the count of uses.
pub(super) const USED: u8 = 1;

/// CLOCK that takes no lock.
pub struct ClockSweep {
    marks: Arc<dyn Uses>,
    frames: usize,
    hand: AtomicUsize,
}

impl ClockSweep {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self::over(frames, Arc::new(Counts::new(frames, USED)))
    }

    /// Creates a policy that keeps the reference bits in `marks`.
    pub(super) fn over(frames: u32, marks: Arc<dyn Uses>) -> Self {
        Self { marks, frames: frames as usize, hand: AtomicUsize::new(0) }
    }
}

// Relaxed throughout: see the module header.
impl Replacement for ClockSweep {
    #[inline]
    fn hit(&self, frame: FrameId, _page: PageId) {
        self.marks.count(frame);
    }

    fn miss(&self, frame: FrameId, _page: PageId) {
        self.marks.set(frame, Some(USED));
    }

    fn evict(
        &self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for _ in 0..self.frames * 2 {
            let frame = FrameId((self.hand.fetch_add(1, Relaxed) % self.frames) as u32);
            // `None`: the frame holds no page, or none that the policy knows.
            if self.marks.take(frame) || self.marks.of(frame).is_none() {
                continue;
            }
            match probe(frame) {
                Probe::Take => {
                    self.marks.set(frame, None);
                    return Some(frame);
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        if take() {
            self.marks.set(frame, None);
        }
    }
}

//! CLOCK without a lock: one atomic mark a frame, and an atomic hand.
//!
//! A hit reads the mark and writes it only if it is not set, so that hits on a hot page write no shared memory. All
//! orderings are relaxed: marks and hand are advice, and the pool probes every victim. What a race can do is give a page
//! one round more or less.
//!
//! Source: BP-Wrapper's pgClock, PostgreSQL's clock sweep with a usage count of one.

use super::Replacement;
use crate::policy::Probe;
use clearway_sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use clearway_types::{FrameId, PageId};

const EMPTY: u8 = 0;
const OLD: u8 = 1;
const USED: u8 = 2;

/// CLOCK that takes no lock.
pub struct ClockSweep {
    marks: Box<[AtomicU8]>,
    hand: AtomicUsize,
}

impl ClockSweep {
    /// A policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self { marks: (0..frames).map(|_| AtomicU8::new(EMPTY)).collect(), hand: AtomicUsize::new(0) }
    }
}

// Relaxed throughout: see the module's header.
impl Replacement for ClockSweep {
    #[inline]
    fn hit(&self, frame: FrameId, _page: PageId) {
        let mark = &self.marks[frame.0 as usize];
        if mark.load(Relaxed) == OLD {
            mark.store(USED, Relaxed);
        }
    }

    fn miss(&self, frame: FrameId, _page: PageId) {
        self.marks[frame.0 as usize].store(USED, Relaxed);
    }

    fn evict(&self, _incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
        for _ in 0..self.marks.len() * 2 {
            let at = self.hand.fetch_add(1, Relaxed) % self.marks.len();
            match self.marks[at].load(Relaxed) {
                EMPTY => {}
                USED => self.marks[at].store(OLD, Relaxed),
                _ => match probe(FrameId(at as u32)) {
                    Probe::Take => {
                        self.marks[at].store(EMPTY, Relaxed);
                        return Some(FrameId(at as u32));
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
            self.marks[frame.0 as usize].store(EMPTY, Relaxed);
        }
    }
}

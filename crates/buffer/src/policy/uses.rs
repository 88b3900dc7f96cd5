//! How often the page in each frame was used, up to a bound: all that a hit is to some policies.
//!
//! Who hits a page needs nothing of such a policy but the frame's count, wherever that is: the pool has it in the frame, in the cache line that the
//! page was found by. A page that is hot has its count at the bound, and is then only read.
//!
//! # Invariants
//! 1. Hits only raise a count, up to the bound, one at a time; no hit on a count below it is lost. Only the policy lowers counts, one evicting thread
//!    at a time.
//!
//! # Locking
//! None. All accesses are relaxed: a count is advice by itself, and orders nothing. Between a reader's last look at the page and its hit the page may
//! have left, and the next one in the frame has one use more.

use clearway_types::FrameId;
// Plain std, also under a model checker: nothing is communicated by it.
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A count for each frame.
pub trait Uses: Send + Sync {
    /// The frame's.
    fn of(&self, frame: FrameId) -> &AtomicU8;
    /// Bytes from a frame's count to the next one's.
    fn stride(&self) -> usize;
}

impl Uses for Box<[AtomicU8]> {
    #[inline]
    fn of(&self, frame: FrameId) -> &AtomicU8 {
        &self[frame.0 as usize]
    }

    fn stride(&self) -> usize {
        1
    }
}

/// Counts for frames `0 .. frames`, all zero.
pub(crate) fn uses(frames: u32) -> Box<[AtomicU8]> {
    (0..frames).map(|_| AtomicU8::new(0)).collect()
}

/// Counts a use, up to `most`.
#[inline(always)]
pub(crate) fn count_use(uses: &AtomicU8, most: u8) {
    if uses.load(Relaxed) < most {
        raise(uses, most);
    }
}

/// An exchange, not a store: else uses by two threads at once would count once.
#[inline(never)]
fn raise(uses: &AtomicU8, most: u8) {
    // What fails is a count at the bound by now.
    let _at_bound = uses.fetch_update(Relaxed, Relaxed, |now| (now < most).then(|| now + 1));
}

#[cfg(test)]
mod tests {
    use super::super::{Policy, Probe, S3Fifo, Sieve};
    use super::*;
    use clearway_types::{PageId, PartitionId};
    use std::sync::Arc;

    /// Every page is used whenever it is looked at.
    struct Hot(Box<[AtomicU8]>, u8);

    impl Uses for Hot {
        fn of(&self, frame: FrameId) -> &AtomicU8 {
            let count = self.0.of(frame);
            count.store(self.1, Relaxed);
            count
        }

        fn stride(&self) -> usize {
            self.0.stride()
        }
    }

    #[test]
    fn an_eviction_comes_to_its_end_however_fast_pages_are_used() {
        const FRAMES: u32 = 100;
        let hot = |most| Arc::new(Hot(uses(FRAMES), most));
        let policies: [Box<dyn Policy>; 2] =
            [Box::new(S3Fifo::over(FRAMES, hot(3))), Box::new(Sieve::over(FRAMES, hot(1)))];
        for mut policy in policies {
            (0..FRAMES).for_each(|frame| policy.miss(FrameId(frame), PageId::new(PartitionId(0), frame)));
            let mut probes = 0;
            assert!(policy.evict(None, &mut |_| Probe::Take).is_some());
            let found = policy.evict(None, &mut |_| {
                probes += 1;
                Probe::Skip
            });
            assert!(found.is_none() && (FRAMES - 1..100 * FRAMES).contains(&probes), "{found:?} after {probes}");
        }
    }

    /// Invariant 1: what many threads count is all there, or the bound.
    #[test]
    fn uses_of_many_threads_are_all_counted() {
        let counts = uses(2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| count_use(counts.of(FrameId(0)), 250)));
                scope.spawn(|| (0..50).for_each(|_| count_use(counts.of(FrameId(1)), 3)));
            }
        });
        assert_eq!([0, 1].map(|frame| counts.of(FrameId(frame)).load(Relaxed)), [200, 3]);
    }
}

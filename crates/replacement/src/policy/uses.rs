//! A bounded count of uses of the page in each frame. Some policies need no more than this on a
//! hit.
//!
//! A thread that hits a page only needs the frame's count, wherever it is stored. The pool stores
//! it in the frame, in the word that identifies the page (`frame::uses` of `clearway-buffer`). A
//! hot page has its count at the bound, so hits only read it.
//!
//! # Invariants
//! 1. Hits only raise a count, by one each, up to the bound; no hit on a count below the bound is
//!    lost. Only the policy sets and lowers counts, by one evicting thread at a time.
//!
//! # Locking
//! None. All accesses are relaxed: a count is a hint and orders nothing.

use clearway_types::FrameId;
// Plain std, also under a model checker: the counts do not synchronise threads.
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A count for each frame, up to a common bound.
pub trait Uses: Send + Sync {
    /// Returns the frame's count, or `None` if its uses are not counted, for example because it
    /// holds no page.
    fn of(&self, frame: FrameId) -> Option<u8>;
    /// Sets the count, which is at most the bound. `None` stops the counting.
    fn set(&self, frame: FrameId, uses: Option<u8>);
    /// Counts a use, if uses of this frame are counted and the count is below the bound.
    fn count(&self, frame: FrameId);
    /// Lowers the count by one. Returns false if it was 0 or is not counted.
    fn take(&self, frame: FrameId) -> bool;
    /// Returns the address of the first frame's count, and the distance to the next one in bytes.
    fn place(&self) -> (usize, usize);
}

/// Counts that a policy owns.
pub(crate) struct Counts {
    counts: Box<[AtomicU8]>,
    max: u8,
}

/// Stands for "not counted".
const UNCOUNTED: u8 = u8::MAX;

impl Counts {
    /// Creates counts for frames `0 .. frames`, up to `max`, which is less than 255. No frame is
    /// counted yet.
    pub fn new(frames: u32, max: u8) -> Self {
        let counts = (0..frames).map(|_| AtomicU8::new(UNCOUNTED)).collect();
        Self { counts, max: max.min(UNCOUNTED - 1) }
    }

    fn at(&self, frame: FrameId) -> &AtomicU8 {
        &self.counts[frame.0 as usize]
    }
}

impl Uses for Counts {
    #[inline]
    fn of(&self, frame: FrameId) -> Option<u8> {
        let count = self.at(frame).load(Relaxed);
        (count != UNCOUNTED).then_some(count)
    }

    fn set(&self, frame: FrameId, uses: Option<u8>) {
        self.at(frame).store(uses.unwrap_or(UNCOUNTED), Relaxed);
    }

    #[inline]
    fn count(&self, frame: FrameId) {
        let count = self.at(frame);
        if count.load(Relaxed) < self.max {
            // A compare-and-swap instead of a store: otherwise concurrent uses by two threads would
            // count once. It fails only if the count has reached the bound meanwhile.
            let _at_bound =
                count.fetch_update(Relaxed, Relaxed, |now| (now < self.max).then(|| now + 1));
        }
    }

    fn take(&self, frame: FrameId) -> bool {
        let fewer = |now: u8| if now == UNCOUNTED { None } else { now.checked_sub(1) };
        self.at(frame).fetch_update(Relaxed, Relaxed, fewer).is_ok()
    }

    fn place(&self) -> (usize, usize) {
        (self.counts.as_ptr().addr(), size_of::<AtomicU8>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Policy, Probe, S3Fifo, Sieve};
    use super::*;
    use crate::conformance::uses_are_all_counted;
    use clearway_types::{PageId, PartitionId};
    use std::sync::Arc;

    /// Simulates pages that are used again whenever they are examined.
    struct Hot(Counts);

    impl Uses for Hot {
        fn of(&self, frame: FrameId) -> Option<u8> {
            self.0.set(frame, Some(self.0.max));
            self.0.of(frame)
        }
        fn set(&self, frame: FrameId, uses: Option<u8>) {
            self.0.set(frame, uses);
        }
        fn count(&self, frame: FrameId) {
            self.0.count(frame);
        }
        fn take(&self, frame: FrameId) -> bool {
            self.0.set(frame, Some(self.0.max));
            self.0.take(frame)
        }
        fn place(&self) -> (usize, usize) {
            self.0.place()
        }
    }

    #[test]
    fn eviction_terminates_while_pages_are_used() {
        const FRAMES: u32 = 100;
        let hot = |max| Arc::new(Hot(Counts::new(FRAMES, max)));
        let policies: [Box<dyn Policy>; 2] =
            [Box::new(S3Fifo::over(FRAMES, hot(3))), Box::new(Sieve::over(FRAMES, hot(1)))];
        for mut policy in policies {
            (0..FRAMES)
                .for_each(|frame| policy.miss(FrameId(frame), PageId::new(PartitionId(0), frame)));
            let mut probes = 0;
            assert!(policy.evict(None, &mut |_| Probe::Take).is_some());
            let found = policy.evict(None, &mut |_| {
                probes += 1;
                Probe::Skip
            });
            assert!(
                found.is_none() && (FRAMES - 1..100 * FRAMES).contains(&probes),
                "{found:?} after {probes}"
            );
        }
    }

    /// Invariant 1.
    #[test]
    fn concurrent_uses_are_all_counted() {
        uses_are_all_counted(&Counts::new(2, 250), 250);
    }
}

//! Pages that scans loaded. They are evicted among themselves, and the policy is not notified of
//! them.
//!
//! A scan larger than the pool would make any recency-based policy forget everything. A page
//! fetched by [`crate::MissingPage::Scan`] that is not in the pool enters a queue of at most a
//! sixteenth of the pool. While the queue is longer, the cooler takes its victims from it first,
//! oldest first. A scan of any length therefore costs other work that sixteenth once.
//!
//! A page that is missed again soon is not part of one long scan, but of a range that is read
//! repeatedly. The page's id is remembered when it leaves the queue (a *ghost*); on its next miss
//! it goes to the policy like any other page. A second pass over a long scan no longer finds its
//! ghosts.
//!
//! # Invariants
//! 1. A page that a scan loaded is in the queue, or is one of the cooler's dirty victims. Such a
//!    victim is evicted after its write, or returns to the queue. All other pages are known to the
//!    policy.
//! 2. When the policy has no victim, the queue offers all its pages: every frame can be reclaimed.
//! 3. Ghosts are a bounded table with one place per hash: a later ghost replaces an earlier one.
//!
//! # Locking
//! A latch over the queue, held for a few instructions by misses of scans and by the cooler. Its
//! holder acquires nothing else.
//!
//! # Source
//! PostgreSQL's ring for bulk reads (src/backend/storage/buffer/README); the ghosts are 2Q's A1out
//! (Johnson and Shasha, VLDB 1994).

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU64, Ordering::Relaxed};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

/// The queue's share of the pool: one frame in this many.
const SHARE: u32 = 16;
const NO_GHOST: u64 = u64::MAX;

static SCAN_RING: Class = Class::new("buffer.scan_ring");

/// A page in the queue, and its frame.
pub(crate) type Entry = (FrameId, PageId);

pub(crate) struct ScanRing {
    queue: Latch<VecDeque<Entry>>,
    most: usize,
    ghosts: Box<[AtomicU64]>,
}

impl ScanRing {
    pub fn new(frames: u32) -> Self {
        Self {
            queue: Latch::new(&SCAN_RING, VecDeque::new()),
            most: (frames / SHARE) as usize,
            ghosts: (0..frames.next_power_of_two()).map(|_| AtomicU64::new(NO_GHOST)).collect(),
        }
    }

    // Relaxed throughout: a ghost that is overlooked or found too late costs one more read of a
    // page.
    fn ghost(&self, page: PageId) -> &AtomicU64 {
        let hash = page.hash_bits() >> 32;
        &self.ghosts[hash as usize & (self.ghosts.len() - 1)]
    }

    /// Takes a page that a scan loaded. Returns false if the page belongs to the policy.
    pub fn admit(&self, frame: FrameId, page: PageId) -> bool {
        let ghost = self.ghost(page);
        if ghost.load(Relaxed) == page.to_u64() {
            ghost.store(NO_GHOST, Relaxed);
            return false;
        }
        self.queue.lock().push_back((frame, page));
        true
    }

    /// Takes up to `need` entries, oldest first: those beyond the queue's share, or any with `all`.
    pub fn victims(&self, need: usize, all: bool) -> Vec<Entry> {
        let mut queue = self.queue.lock();
        let over = if all { queue.len() } else { queue.len().saturating_sub(self.most) };
        queue.drain(..over.min(need)).collect()
    }

    /// Returns to the queue an entry that could not be evicted.
    pub fn put_back(&self, entry: Entry) {
        self.queue.lock().push_back(entry);
    }

    /// Records that the page was evicted.
    pub fn left(&self, page: PageId) {
        self.ghost(page).store(page.to_u64(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::PartitionId;

    fn entry(no: u32) -> Entry {
        (FrameId(no), PageId::new(PartitionId(0), no))
    }

    #[test]
    fn pages_beyond_the_share_are_evicted_oldest_first() {
        let ring = ScanRing::new(64);
        assert!((0..6).map(entry).all(|(frame, page)| ring.admit(frame, page)));
        assert_eq!(ring.victims(9, false), [entry(0), entry(1)]);
        assert_eq!(ring.victims(9, false), []);
        assert_eq!(ring.victims(1, true), [entry(2)]);
        ring.put_back(entry(2));
        assert_eq!(ring.victims(9, true), [entry(3), entry(4), entry(5), entry(2)]);
        ring.left(entry(3).1);
        assert!(!ring.admit(FrameId(9), entry(3).1), "a ghost");
        assert!(ring.admit(FrameId(9), entry(3).1), "once");
        (0..100_000).for_each(|no| ring.left(entry(no).1));
        assert!(ring.admit(FrameId(9), entry(3).1), "later ghosts have taken its place");
    }
}

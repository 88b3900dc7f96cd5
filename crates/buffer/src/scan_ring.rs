//! Pages that a scan has brought: they leave among themselves, and the policy does not hear of
//! them.
//!
//! A scan of more than the pool would make any policy that goes by recency forget everything. What
//! is fetched by [`crate::MissingPage::Scan`] and is not in the pool goes through a queue of at
//! most a sixteenth of the pool: beyond that the cooler takes its victims here first, oldest first.
//! So a scan of any length costs the others that sixteenth once.
//!
//! A page that is missed again soon is not one of a long scan, but of a range that is read again
//! and again: its id is remembered when it leaves the queue (a *ghost*), and then it goes to the
//! policy, as any other page. A second pass over a long scan does not meet its ghosts any more.
//!
//! # Invariants
//! 1. A page is in the queue, known to the policy, or (a stale entry) has left its frame. An entry
//!    whose frame has the same page once more names a page of the policy's: who evicts it tells the
//!    policy anyway.
//! 2. When the policy has no victim, the queue gives all of its own: no frame is out of reach.
//! 3. Ghosts are a bounded table, one place for each hash: a later one takes the place of an
//!    earlier.
//!
//! # Locking
//! A latch over the queue, for a few instructions, taken by misses of scans and by the cooler;
//! nothing is taken under it.
//!
//! # Source
//! PostgreSQL's ring for bulk reads (src/backend/storage/buffer/README); the ghosts are 2Q's A1out
//! (Johnson and Shasha, VLDB 1994).

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU64, Ordering::Relaxed};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

/// The queue's share of the pool: one in so many frames.
const SHARE: u32 = 16;
const NO_GHOST: u64 = u64::MAX;

static SCAN_RING: Class = Class::new("buffer.scan_ring");

pub(crate) struct ScanRing {
    queue: Latch<VecDeque<(FrameId, PageId)>>,
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

    // Relaxed throughout: a ghost that is missed or met too late costs a page one more read.
    fn ghost(&self, page: PageId) -> &AtomicU64 {
        // As in `table`.
        let hash = page.to_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.ghosts[hash as usize & (self.ghosts.len() - 1)]
    }

    /// Takes a page that a scan has brought; false if it is one for the policy.
    pub fn admit(&self, frame: FrameId, page: PageId) -> bool {
        let ghost = self.ghost(page);
        if ghost.load(Relaxed) == page.to_u64() {
            ghost.store(NO_GHOST, Relaxed);
            return false;
        }
        self.queue.lock().push_back((frame, page));
        true
    }

    /// So many entries, oldest first, beyond the queue's share, or of all.
    pub fn victims(&self, need: usize, all: bool) -> Vec<(FrameId, PageId)> {
        let mut queue = self.queue.lock();
        let over = if all { queue.len() } else { queue.len().saturating_sub(self.most) };
        queue.drain(..over.min(need)).collect()
    }

    /// Gives back an entry that could not be evicted.
    pub fn keep(&self, entry: (FrameId, PageId)) {
        self.queue.lock().push_back(entry);
    }

    /// The page has left.
    pub fn left(&self, page: PageId) {
        self.ghost(page).store(page.to_u64(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::PartitionId;

    fn entry(no: u32) -> (FrameId, PageId) {
        (FrameId(no), PageId::new(PartitionId(0), no))
    }

    #[test]
    fn what_is_beyond_the_share_leaves_oldest_first_and_comes_back_to_the_policy() {
        let ring = ScanRing::new(64);
        assert!((0..6).map(entry).all(|(frame, page)| ring.admit(frame, page)));
        assert_eq!(ring.victims(9, false), [entry(0), entry(1)]);
        assert_eq!(ring.victims(9, false), []);
        assert_eq!(ring.victims(1, true), [entry(2)]);
        ring.keep(entry(2));
        assert_eq!(ring.victims(9, true), [entry(3), entry(4), entry(5), entry(2)]);
        ring.left(entry(3).1);
        assert!(!ring.admit(FrameId(9), entry(3).1), "a ghost");
        assert!(ring.admit(FrameId(9), entry(3).1), "once");
        (0..100_000).for_each(|no| ring.left(entry(no).1));
        assert!(ring.admit(FrameId(9), entry(3).1), "later ghosts have taken its place");
    }
}

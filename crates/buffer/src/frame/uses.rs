//! Use counts of pages, stored in the frame word that holds the page id.
//!
//! # Invariants
//! 1. A use counts for the page that was used, or not at all: never for the next page in its frame.
//! 2. Uses are counted from the moment the replacement policy enables it until the page is evicted.
//!
//! # Locking
//! None. All accesses are relaxed: a count is only a hint and orders nothing.

use super::{COLDER, Frame, NO_PAGE, UNCOUNTED};
use clearway_replacement::Uses;
use clearway_sync::atomic::Ordering::Relaxed;
use clearway_types::{FrameId, PageId};
use std::sync::Arc;

impl Frame {
    /// Counts a use of `id`, if counting is enabled, the count is below the bound, and the page is
    /// still in the frame.
    pub fn count_use(&self, id: PageId) {
        let warmer = |page: u64| {
            let counts =
                page & !UNCOUNTED == id.to_u64() && page >= COLDER && page & UNCOUNTED != UNCOUNTED;
            counts.then(|| page - COLDER)
        };
        // An exchange, so that concurrent uses by two threads count twice.
        let _hot_or_gone = self.page.fetch_update(Relaxed, Relaxed, warmer);
    }

    /// Returns the page's use count, at most `most`; `None` if uses are not counted.
    fn uses(&self, most: u8) -> Option<u8> {
        let page = self.page.load(Relaxed);
        (page & UNCOUNTED != UNCOUNTED).then(|| most - (page / COLDER) as u8)
    }

    /// Sets the use count, if the frame holds a page.
    pub fn set_uses(&self, most: u8, uses: Option<u8>) {
        let colder = uses.map_or(UNCOUNTED, |uses| u64::from(most - uses) * COLDER);
        let set = |page: u64| (page != NO_PAGE).then_some(page & !UNCOUNTED | colder);
        let _free = self.page.fetch_update(Relaxed, Relaxed, set);
    }

    /// Decrements the count. Returns false if it is zero.
    pub fn take_use(&self, most: u8) -> bool {
        let colder = |page: u64| (page < u64::from(most) * COLDER).then(|| page + COLDER);
        self.page.fetch_update(Relaxed, Relaxed, colder).is_ok()
    }
}

/// The frames of a pool, where uses are counted up to a bound.
pub(crate) struct FrameUses {
    frames: Arc<[Frame]>,
    most: u8,
}

impl FrameUses {
    /// Counts up to `most`, which is less than 255.
    pub fn new(frames: Arc<[Frame]>, most: u8) -> Self {
        Self { frames, most: most.min(u8::MAX - 1) }
    }

    fn at(&self, frame: FrameId) -> &Frame {
        &self.frames[frame.0 as usize]
    }
}

impl Uses for FrameUses {
    fn of(&self, frame: FrameId) -> Option<u8> {
        self.at(frame).uses(self.most)
    }
    fn set(&self, frame: FrameId, uses: Option<u8>) {
        self.at(frame).set_uses(self.most, uses);
    }
    fn count(&self, frame: FrameId) {
        let frame = self.at(frame);
        frame.count_use(frame.page());
    }
    fn take(&self, frame: FrameId) -> bool {
        self.at(frame).take_use(self.most)
    }
    fn place(&self) -> (usize, usize) {
        (self.frames.as_ptr().addr(), size_of::<Frame>())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Arena;
    use super::*;
    use clearway_replacement::conformance::uses_are_all_counted;
    use clearway_types::PartitionId;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn uses_of_pages_are_counted_in_their_frames() {
        const MOST: u8 = 250;
        let [a, b] = [1, 2].map(|no| PageId::new(PartitionId(u16::MAX), u32::MAX - no));
        let (_arena, free) = Arena::new(2);
        let frames: Arc<[Frame]> = (0..2).map(|_| Frame::new()).collect();
        for (free, id) in free.into_iter().zip([a, b]) {
            frames[free.id().0 as usize].publish(free, id, 0, None);
        }
        uses_are_all_counted(&FrameUses::new(frames, MOST), MOST);
    }

    /// Invariant 1, and a page is hot exactly while its uses are at the bound.
    #[test]
    fn use_of_an_evicted_page_counts_for_no_other() {
        let [a, b] = [1, 2].map(|no| PageId::new(PartitionId(0), no));
        let (_arena, mut free) = Arena::new(1);
        let frames: Arc<[Frame]> = Arc::new([Frame::new()]);
        let (frame, uses) = (&frames[0], FrameUses::new(frames.clone(), 1));
        let id = frame.publish(free.remove(0), a, 0, None);
        assert!(frame.holds(a) && !frame.is_hot(a), "uses are not counted yet");
        uses.set(id, Some(0));
        frame.count_use(b);
        assert!(uses.of(id) == Some(0) && !frame.is_hot(a));
        frame.count_use(a);
        assert!(uses.of(id) == Some(1) && frame.is_hot(a) && !frame.is_hot(b) && frame.page() == a);

        let freed = frame.try_claim(id).unwrap();
        uses.set(id, Some(0));
        frame.count_use(a);
        assert!(!frame.holds(a) && uses.of(id).is_none());
        frame.publish(freed, b, 0, None);
        uses.set(id, Some(0));
        frame.count_use(a);
        assert_eq!((frame.page(), uses.of(id)), (b, Some(0)));
    }

    /// Invariant 1, during an eviction. This is not a loom test, because in loom an exchange may
    /// follow any store that is not ordered before another.
    #[test]
    fn late_use_counts_for_no_other_page() {
        let [a, b] = [1, 2].map(|no| PageId::new(PartitionId(0), no));
        let (_arena, mut free) = Arena::new(1);
        let frame = Frame::new();
        let mut free = free.remove(0);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    frame.count_use(a);
                }
            });
            for round in 0..20_000 {
                let page = if round % 2 == 0 { a } else { b };
                let id = frame.publish(free, page, 0, None);
                frame.set_uses(3, Some(0));
                assert!(
                    frame.holds(page) && (page == a || frame.uses(3) == Some(0)),
                    "round {round}"
                );
                free = frame.try_claim(id).expect("nobody has it pinned");
                assert!(!frame.holds(page) && frame.uses(3).is_none(), "round {round}");
            }
            over.store(true, Relaxed);
        });
    }
}

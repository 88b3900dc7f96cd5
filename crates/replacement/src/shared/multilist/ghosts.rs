//! Evicted pages of one state and one sublist: oldest first, found by page.
//!
//! A page removed from the middle leaves its entry in the queue until it reaches the front. So
//! every operation is O(1) amortised, and the queue has at most twice as many entries as pages,
//! plus 16.

use clearway_types::PageId;
use std::collections::{HashMap, VecDeque};

#[derive(Default)]
pub struct Ghosts {
    /// The number of the page's entry, and whether `p` was already adapted for its return.
    by_page: HashMap<PageId, (u64, bool)>,
    oldest_first: VecDeque<(PageId, u64)>,
    next: u64,
}

impl Ghosts {
    pub fn push(&mut self, page: PageId) {
        self.by_page.insert(page, (self.next, false));
        self.oldest_first.push_back((page, self.next));
        self.next += 1;
        if self.oldest_first.len() > 2 * self.by_page.len() + 16 {
            let by_page = &self.by_page;
            self.oldest_first
                .retain(|(page, number)| by_page.get(page).is_some_and(|(own, _)| own == number));
        }
    }

    /// Removes the page. Returns whether `p` was already adapted for its return.
    pub fn remove(&mut self, page: PageId) -> Option<bool> {
        self.by_page.remove(&page).map(|(_, learned)| learned)
    }

    /// Records that `p` is adapted for the page's return. Returns whether this is the first time.
    pub fn learn(&mut self, page: PageId) -> bool {
        self.by_page.get_mut(&page).is_some_and(|(_, learned)| !std::mem::replace(learned, true))
    }

    /// Removes the oldest page. Returns whether there was one.
    pub fn pop(&mut self) -> bool {
        while let Some((page, number)) = self.oldest_first.pop_front() {
            if self.by_page.get(&page).is_some_and(|(own, _)| *own == number) {
                self.by_page.remove(&page);
                return true;
            }
        }
        false
    }

    pub fn len(&self) -> usize {
        self.by_page.len()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::super::tests::page;
    use super::*;

    #[test]
    fn pop_removes_the_oldest_and_memory_is_bounded() {
        let mut ghosts = Ghosts::default();
        (0..4).for_each(|no| ghosts.push(page(no)));
        assert!(ghosts.learn(page(2)) && !ghosts.learn(page(2)) && !ghosts.learn(page(9)));
        assert_eq!(
            (ghosts.remove(page(0)), ghosts.remove(page(2)), ghosts.remove(page(2))),
            (Some(false), Some(true), None)
        );
        ghosts.push(page(0));
        assert!(ghosts.pop());
        assert_eq!((ghosts.remove(page(1)), ghosts.len()), (None, 2));
        for _ in 0..1_000 {
            ghosts.remove(page(3));
            ghosts.push(page(3));
            assert!(ghosts.oldest_first.len() <= 21);
        }
        assert!(ghosts.pop() && ghosts.pop() && !ghosts.pop());
    }
}

//! Pages that have left, of one state and one sublist: oldest first, found by page.
//!
//! A page taken out of the middle leaves its place in the queue behind until it comes to the end;
//! so that all is O(1) on average, and the queue at most twice as long as it has pages, and a few.

use clearway_types::PageId;
use std::collections::{HashMap, VecDeque};

#[derive(Default)]
pub struct Ghosts {
    /// The number of the entry that is the page's, and whether `p` has learned of its return.
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

    /// Takes the page out; whether `p` has learned of its return.
    pub fn remove(&mut self, page: PageId) -> Option<bool> {
        self.by_page.remove(&page).map(|(_, learned)| learned)
    }

    /// Notes that `p` learns of the page's return; whether it had not.
    pub fn learn(&mut self, page: PageId) -> bool {
        self.by_page.get_mut(&page).is_some_and(|(_, learned)| !std::mem::replace(learned, true))
    }

    /// Forgets the page that left first; whether there was one.
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
    fn the_oldest_goes_first_and_memory_is_bounded() {
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

//! The page of each frame, and a bounded number of pages that are in no frame (ghosts), found by
//! page.
//!
//! Nodes are numbered as in [`super::Lists`]: `0 .. frames` are the frames, and numbers from
//! `frames` on are places for ghosts. Nothing is allocated after construction. Takes 8 bytes per
//! frame and 16 to 20 bytes per ghost. A look-up costs O(1) expected: the hash table has chains and
//! at least as many heads as ghosts.
//!
//! # Invariants
//! 1. The place of a ghost is in the chain of its page's hash; any other place is in the free list.
//! 2. A page has at most one ghost.

use super::ensure;
use clearway_types::PageId;

const NONE: u32 = u32::MAX;

/// The pages of frames and ghosts.
pub struct Directory {
    pages: Vec<PageId>,
    frames: u32,
    heads: Vec<u32>,
    /// The next place in the chain or in the free list.
    chain: Vec<u32>,
    free: u32,
    ghosts: u32,
}

impl Directory {
    /// Creates a directory for frames `0 .. frames` with room for `ghosts` ghosts.
    pub fn new(frames: u32, ghosts: u32) -> Self {
        let pages = vec![PageId::from_u64(0); (frames + ghosts) as usize];
        let chain = (1..=ghosts).map(|next| if next < ghosts { next } else { NONE }).collect();
        let heads = vec![NONE; ghosts.next_power_of_two().max(2) as usize];
        Self { pages, frames, heads, chain, free: if ghosts > 0 { 0 } else { NONE }, ghosts: 0 }
    }

    /// Returns the number of nodes: frames plus places for ghosts.
    pub fn nodes(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Returns the page of a frame or ghost.
    pub fn page(&self, node: u32) -> PageId {
        self.pages[node as usize]
    }

    /// Records that `frame` holds `page`.
    pub fn set(&mut self, frame: u32, page: PageId) {
        debug_assert!(frame < self.frames);
        self.pages[frame as usize] = page;
    }

    /// Returns the number of ghosts.
    pub fn ghosts(&self) -> u32 {
        self.ghosts
    }

    /// Returns true if there is no room for another ghost.
    pub fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Returns the ghost of the page.
    pub fn ghost(&self, page: PageId) -> Option<u32> {
        let mut place = self.heads[self.head(page)];
        while place != NONE && self.pages[(self.frames + place) as usize] != page {
            place = self.chain[place as usize];
        }
        (place != NONE).then(|| self.frames + place)
    }

    /// Returns the pages that are ghosts, in no particular order. O(places).
    pub fn all_ghosts(&self) -> impl Iterator<Item = PageId> {
        let places = (self.frames..self.nodes()).map(|node| (node, self.page(node)));
        places.filter(|(node, page)| self.ghost(*page) == Some(*node)).map(|(_, page)| page)
    }

    /// Creates a ghost of the page that `frame` holds; see [`Directory::add`].
    pub fn retire(&mut self, frame: u32) -> u32 {
        self.add(self.page(frame))
    }

    /// Creates a ghost of a page that has none.
    ///
    /// # Panics
    /// If there is no room.
    pub fn add(&mut self, page: PageId) -> u32 {
        debug_assert!(self.ghost(page).is_none(), "{page:?} is already a ghost");
        let (place, head) = (self.free, self.head(page));
        assert!(place != NONE, "no room for a ghost");
        self.free = self.chain[place as usize];
        self.chain[place as usize] = self.heads[head];
        self.heads[head] = place;
        self.ghosts += 1;
        self.pages[(self.frames + place) as usize] = page;
        self.frames + place
    }

    /// Removes a ghost.
    pub fn forget(&mut self, ghost: u32) {
        let (place, head) = (ghost - self.frames, self.head(self.page(ghost)));
        let next = self.chain[place as usize];
        if self.heads[head] == place {
            self.heads[head] = next;
        } else {
            let mut before = self.heads[head];
            while self.chain[before as usize] != place {
                before = self.chain[before as usize];
            }
            self.chain[before as usize] = next;
        }
        self.chain[place as usize] = self.free;
        self.free = place;
        self.ghosts -= 1;
    }

    /// Checks the invariants. O(n).
    pub fn validate(&self) -> Result<(), String> {
        let some = |at: u32| (at != NONE).then_some(at);
        let walk = |first| std::iter::successors(some(first), |at| some(self.chain[*at as usize]));
        let places = |first| walk(first).take(self.chain.len() + 1);
        let free = places(self.free).count();
        let ghosts: usize = self.heads.iter().map(|head| places(*head).count()).sum();
        ensure(ghosts == self.ghosts as usize, || {
            format!("{ghosts} ghosts are in chains, {} counted", self.ghosts)
        })?;
        ensure(free + ghosts == self.chain.len(), || {
            format!("{free} free places and {ghosts} ghosts do not add up")
        })?;
        let stray = (0..self.heads.len())
            .flat_map(|head| places(self.heads[head]).map(move |at| (head, at)));
        for (head, at) in stray {
            let page = self.pages[(self.frames + at) as usize];
            let found = self.ghost(page) == Some(self.frames + at);
            ensure(self.head(page) == head && found, || {
                format!("the ghost of {page:?} is not found, or there are two")
            })?;
        }
        Ok(())
    }

    /// Returns the head of the page's list: distant ones for consecutive page numbers.
    fn head(&self, page: PageId) -> usize {
        (page.hash_bits() >> (u64::BITS - self.heads.len().trailing_zeros())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn ghosts_are_found_until_removed() {
        let mut directory = Directory::new(3, 5);
        let mut model: HashMap<PageId, u32> = HashMap::new();
        let mut seed = 1_u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = PageId::from_u64(seed >> 60);
            match model.remove(&page) {
                Some(ghost) => directory.forget(ghost),
                None if directory.is_full() => assert_eq!(model.len(), 5),
                None => {
                    directory.set(2, page);
                    let ghost = directory.retire(2);
                    assert!(
                        (3..8).contains(&ghost) && !model.values().any(|g| *g == ghost),
                        "each ghost has its own place"
                    );
                    model.insert(page, ghost);
                }
            }
            assert_eq!(directory.ghosts() as usize, model.len());
            for page in (0..16).map(PageId::from_u64) {
                assert_eq!(directory.ghost(page), model.get(&page).copied());
            }
            assert_eq!(directory.validate(), Ok(()));
            assert!(model.iter().all(|(page, ghost)| directory.page(*ghost) == *page));
        }
    }

    #[test]
    fn directory_without_ghosts_is_full() {
        let directory = Directory::new(3, 0);
        assert_eq!(
            (directory.is_full(), directory.nodes(), directory.ghost(PageId::from_u64(0))),
            (true, 3, None)
        );
    }
}

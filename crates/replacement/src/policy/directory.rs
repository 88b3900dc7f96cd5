//! Which page each frame holds, and a bounded number of pages that are in no frame (ghosts), found
//! by page.
//!
//! Nodes are numbered as in [`super::Lists`]: `0 .. frames` are the frames, the numbers from
//! `frames` on are places for ghosts. Nothing is allocated after construction. 8 bytes a frame, 16
//! to 20 bytes a ghost. A look-up costs O(1) expected: chains in a table of at least as many heads
//! as there are ghosts.
//!
//! # Invariants
//! 1. A ghost's place is in the chain of its page's hash, any other place is in the free list.
//! 2. A page has at most one ghost.

use super::ensure;
use clearway_types::PageId;

const NONE: u32 = u32::MAX;

/// The pages of frames and ghosts.
pub struct Directory {
    pages: Vec<PageId>,
    frames: u32,
    heads: Vec<u32>,
    /// The next place in the chain, or among the free ones.
    chain: Vec<u32>,
    free: u32,
    ghosts: u32,
}

impl Directory {
    /// For frames `0 .. frames`, and room for `ghosts` ghosts.
    pub fn new(frames: u32, ghosts: u32) -> Self {
        let pages = vec![PageId::from_u64(0); (frames + ghosts) as usize];
        let chain = (1..=ghosts).map(|next| if next < ghosts { next } else { NONE }).collect();
        let heads = vec![NONE; ghosts.next_power_of_two().max(2) as usize];
        Self { pages, frames, heads, chain, free: if ghosts > 0 { 0 } else { NONE }, ghosts: 0 }
    }

    /// How many nodes there are, frames and ghosts.
    pub fn nodes(&self) -> u32 {
        self.pages.len() as u32
    }

    /// The page of a frame or a ghost.
    pub fn page(&self, node: u32) -> PageId {
        self.pages[node as usize]
    }

    /// `frame` holds `page`.
    pub fn set(&mut self, frame: u32, page: PageId) {
        debug_assert!(frame < self.frames);
        self.pages[frame as usize] = page;
    }

    /// How many ghosts there are.
    pub fn ghosts(&self) -> u32 {
        self.ghosts
    }

    /// Whether there is no room for one more ghost.
    pub fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// The page's ghost.
    pub fn ghost(&self, page: PageId) -> Option<u32> {
        let mut place = self.heads[self.head(page)];
        while place != NONE && self.pages[(self.frames + place) as usize] != page {
            place = self.chain[place as usize];
        }
        (place != NONE).then(|| self.frames + place)
    }

    /// The pages that are ghosts, in no order. O(places).
    pub fn all_ghosts(&self) -> impl Iterator<Item = PageId> {
        let places = (self.frames..self.nodes()).map(|node| (node, self.page(node)));
        places.filter(|(node, page)| self.ghost(*page) == Some(*node)).map(|(_, page)| page)
    }

    /// Makes a ghost of the page that `frame` holds; see [`Directory::add`].
    pub fn retire(&mut self, frame: u32) -> u32 {
        self.add(self.page(frame))
    }

    /// Makes a ghost of a page that has none.
    ///
    /// # Panics
    /// If there is no room.
    pub fn add(&mut self, page: PageId) -> u32 {
        debug_assert!(self.ghost(page).is_none(), "{page:?} is a ghost already");
        let (place, head) = (self.free, self.head(page));
        assert!(place != NONE, "no room for a ghost");
        self.free = self.chain[place as usize];
        self.chain[place as usize] = self.heads[head];
        self.heads[head] = place;
        self.ghosts += 1;
        self.pages[(self.frames + place) as usize] = page;
        self.frames + place
    }

    /// The page of `ghost`, which is one, is forgotten.
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

    /// Whether the invariants hold. O(n).
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
            format!("{free} places are free beside {ghosts} ghosts")
        })?;
        let stray = (0..self.heads.len())
            .flat_map(|head| places(self.heads[head]).map(move |at| (head, at)));
        for (head, at) in stray {
            let page = self.pages[(self.frames + at) as usize];
            let found = self.ghost(page) == Some(self.frames + at);
            ensure(self.head(page) == head && found, || {
                format!("the ghost of {page:?} is lost, or there are two")
            })?;
        }
        Ok(())
    }

    /// Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): pages with numbers in a
    /// row go to heads far apart.
    fn head(&self, page: PageId) -> usize {
        let hash = page.to_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> (u64::BITS - self.heads.len().trailing_zeros())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn ghosts_are_found_until_they_are_forgotten() {
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
                        "a place of its own"
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
    fn a_directory_may_have_no_room_for_ghosts() {
        let directory = Directory::new(3, 0);
        assert_eq!(
            (directory.is_full(), directory.nodes(), directory.ghost(PageId::from_u64(0))),
            (true, 3, None)
        );
    }
}

//! LRU: the page whose last use is longest ago leaves first.
//!
//! A doubly linked list through two arrays, most recently used first; index `frames` is the list's end in both
//! directions.

use super::{Policy, Probe};
use clearway_types::{FrameId, PageId};

const UNLINKED: u32 = u32::MAX;

/// The least recently used frame is the victim.
pub struct Lru {
    newer: Vec<u32>,
    older: Vec<u32>,
}

impl Lru {
    /// A policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        let mut links = vec![UNLINKED; frames as usize + 1];
        links[frames as usize] = frames;
        Self { newer: links.clone(), older: links }
    }

    fn end(&self) -> u32 {
        (self.newer.len() - 1) as u32
    }

    fn unlink(&mut self, frame: u32) {
        let (newer, older) = (self.newer[frame as usize], self.older[frame as usize]);
        if newer != UNLINKED {
            self.older[newer as usize] = older;
            self.newer[older as usize] = newer;
            self.newer[frame as usize] = UNLINKED;
        }
    }

    fn push(&mut self, frame: u32) {
        let end = self.end();
        let newest = self.older[end as usize];
        self.newer[frame as usize] = end;
        self.older[frame as usize] = newest;
        self.newer[newest as usize] = frame;
        self.older[end as usize] = frame;
    }
}

impl Policy for Lru {
    fn hit(&mut self, frame: FrameId) {
        if self.newer[frame.0 as usize] != UNLINKED {
            self.unlink(frame.0);
            self.push(frame.0);
        }
    }

    fn miss(&mut self, frame: FrameId, _page: PageId) {
        self.unlink(frame.0);
        self.push(frame.0);
    }

    fn evict(&mut self, _incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
        let end = self.end();
        let mut at = self.newer[end as usize];
        while at != end {
            match probe(FrameId(at)) {
                Probe::Take => {
                    self.unlink(at);
                    return Some(FrameId(at));
                }
                Probe::Skip => at = self.newer[at as usize],
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        self.unlink(frame.0);
    }
}

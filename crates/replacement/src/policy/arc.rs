//! ARC: pages used once recently and pages used again share the frames; hits on their ghosts adapt
//! the shares.
//!
//! `T1` holds the pages used once since they were read, `T2` those used again. `B1` and `B2` are
//! their ghosts. Each list has its most recently used page at the front. A miss on a ghost of `B1`
//! raises the target size of `T1` (`p` in the paper), a miss on a ghost of `B2` lowers it. There is
//! no parameter to set.
//!
//! A use costs O(1). Metadata: 17 bytes per frame, and 30 bytes per ghost for at most two ghosts
//! per frame (one when all frames are taken).
//!
//! # Invariants
//! 1. After a miss, `T1` and `B1` together have at most as many pages as there are frames, and all
//!    four lists at most twice as many. The paper drops the ghost before it evicts. Here the miss
//!    drops it, because a pool evicts ahead of need and does not know for which page.
//! 2. The target is between 0 and the number of frames.
//! 3. No page is in two lists.
//!
//! # Source
//! Megiddo and Modha: ARC: a self-tuning, low overhead replacement cache, FAST 2003, figure 4.

use super::arc_lists::{ArcLists, B2, T1, T2};
use super::{Footprint, Policy, Probe, propose};
use clearway_types::{FrameId, PageId};

/// The adaptive replacement cache.
pub struct ArcPolicy {
    lists: ArcLists,
    /// Indexed by ghost: whether the target was already adapted for its miss.
    adapted: Vec<bool>,
}

impl ArcPolicy {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self { lists: ArcLists::new(frames), adapted: vec![false; 2 * frames as usize] }
    }

    fn adapted(&mut self, ghost: u32) -> &mut bool {
        &mut self.adapted[(ghost - self.lists.frames) as usize]
    }

    /// Moves the target for a miss on `ghost`, once for each miss.
    fn adapt(&mut self, ghost: u32) {
        if !std::mem::replace(self.adapted(ghost), true) {
            self.lists.adapt(ghost);
        }
    }

    fn leave(&mut self, frame: u32) {
        if let Some(ghost) = self.lists.leave(frame) {
            *self.adapted(ghost) = false;
        }
    }
}

impl Policy for ArcPolicy {
    fn hit(&mut self, frame: FrameId) {
        if self.lists.queues.list_of(frame.0).is_some() {
            self.lists.queues.move_to_front(T2, frame.0);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.lists.directory.set(frame.0, page);
        if let Some(ghost) = self.lists.directory.ghost(page) {
            self.adapt(ghost);
            self.lists.forget(ghost);
            self.lists.queues.push_front(T2, frame.0);
        } else {
            self.lists.queues.push_front(T1, frame.0);
            self.lists.trim();
        }
    }

    /// Implements REPLACE of the paper. If all frames of the chosen list are skipped, proposes
    /// those of the other list.
    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let ghost = incoming.and_then(|page| self.lists.directory.ghost(page));
        ghost.into_iter().for_each(|ghost| self.adapt(ghost));
        let from_b2 = ghost.is_some_and(|ghost| self.lists.queues.list_of(ghost) == Some(B2));
        let recent = f64::from(self.lists.queues.len(T1));
        let order = if recent > self.lists.target || (from_b2 && recent == self.lists.target) {
            [T1, T2]
        } else {
            [T2, T1]
        };
        let frames = order.into_iter().flat_map(|list| self.lists.queues.iter_back(list));
        let taken = propose(frames, probe).break_value()??;
        self.leave(taken.0);
        Some(taken)
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame.0);
    }

    fn footprint(&self) -> Footprint {
        self.lists.queues.footprint([T2])
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate()
    }
}

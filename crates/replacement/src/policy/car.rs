//! CAR: ARC with two clocks instead of its two lists, so that a hit only sets a bit.
//!
//! The hand of `T1` (pages used once recently) moves used pages to `T2`. The hand of `T2` gives
//! used pages another round. `B1` and `B2` are the ghosts of `T1` and `T2`, in the order of
//! eviction. Misses on these ghosts move the target size of `T1` as in ARC. There is no parameter
//! to set.
//!
//! A use costs O(1), the hands O(1) amortised. Metadata: 18 bytes per frame, and 29 bytes per ghost
//! for at most two ghosts per frame (one when all frames are taken).
//!
//! # Invariants
//! 1. After a miss, `T1` and `B1` together have at most as many pages as there are frames, and all
//!    four lists at most twice as many.
//! 2. The target is between 0 and the number of frames.
//! 3. No page is in two lists.
//!
//! # Source
//! Bansal and Modha: CAR: Clock with Adaptive Replacement, FAST 2004, figure 2.

use super::arc_lists::{ArcLists, T1, T2};
use super::list::ListId;
use super::{Footprint, Policy, Probe};
use clearway_types::{FrameId, PageId};

/// The clock with adaptive replacement.
pub struct Car {
    /// `T1` and `T2` are clocks: the hand is at the front; a page that it passes moves to the back.
    lists: ArcLists,
    used: Vec<bool>,
}

impl Car {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self { lists: ArcLists::new(frames), used: vec![false; frames as usize] }
    }

    /// Returns the clock to evict from: the one that the paper chooses, unless all of its pages
    /// have been skipped for two rounds. One round is not enough, because it may only clear bits.
    fn clock(&self, skipped: [u32; 2]) -> Option<ListId> {
        let (recent, frequent) = (self.lists.queues.len(T1), self.lists.queues.len(T2));
        let choice =
            if f64::from(recent) >= self.lists.target.max(1.0) { [T1, T2] } else { [T2, T1] };
        let left =
            |list: &ListId| skipped[list.0 as usize] < 2 * [recent, frequent][list.0 as usize];
        choice.into_iter().find(left)
    }
}

impl Policy for Car {
    fn hit(&mut self, frame: FrameId) {
        self.used[frame.0 as usize] = true;
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.lists.directory.set(frame.0, page);
        self.used[frame.0 as usize] = false;
        if let Some(ghost) = self.lists.directory.ghost(page) {
            self.lists.adapt(ghost);
            self.lists.forget(ghost);
            self.lists.queues.push_back(T2, frame.0);
        } else {
            self.lists.queues.push_back(T1, frame.0);
            self.lists.trim();
        }
    }

    /// Implements replace() of the paper. A step clears a bit or proposes a page; it proposes at
    /// most twice as often as there are pages.
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let mut skipped = [0; 2];
        while let Some(clock) = self.clock(skipped) {
            let frame = self.lists.queues.front(clock)?;
            let to = if std::mem::take(&mut self.used[frame as usize]) {
                T2
            } else {
                match probe(FrameId(frame)) {
                    Probe::Take => {
                        self.lists.leave(frame);
                        return Some(FrameId(frame));
                    }
                    Probe::Skip => skipped[clock.0 as usize] += 1,
                    Probe::Stop => return None,
                }
                clock
            };
            self.lists.queues.remove(frame);
            self.lists.queues.push_back(to, frame);
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        self.lists.leave(frame.0);
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().array(&self.used)
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate()
    }
}

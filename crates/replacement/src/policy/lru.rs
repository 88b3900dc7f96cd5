//! LRU: evicts the least recently used page. A use costs O(1). Metadata: 8 bytes per frame.

use super::list::{ListId, Lists};
use super::{Footprint, Policy, Probe, propose};
use clearway_types::{FrameId, PageId};

/// Most recently used first.
const ALL: ListId = ListId(0);

/// Evicts the least recently used frame.
pub struct Lru(Lists);

impl Lru {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self(Lists::new(frames, 1))
    }
}

impl Policy for Lru {
    fn hit(&mut self, frame: FrameId) {
        if self.0.remove(frame.0) {
            self.0.push_front(ALL, frame.0);
        }
    }

    fn miss(&mut self, frame: FrameId, _page: PageId) {
        self.0.push_front(ALL, frame.0);
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let taken = propose(self.0.iter_back(ALL), probe).break_value()??;
        self.0.remove(taken.0);
        Some(taken)
    }

    fn remove(&mut self, frame: FrameId) {
        self.0.remove(frame.0);
    }

    fn validate(&self) -> Result<(), String> {
        self.0.validate()
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().lists(&self.0, [ALL])
    }
}

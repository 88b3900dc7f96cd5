//! LRU: a queue, least recently used first.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

#[derive(Default)]
pub struct Model(VecDeque<FrameId>);

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if self.0.contains(&frame) {
            self.remove(frame);
            self.0.push_back(frame);
        }
    }

    fn miss(&mut self, frame: FrameId, _page: PageId) {
        self.0.push_back(frame);
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for at in 0..self.0.len() {
            match probe(self.0[at]) {
                Probe::Take => return self.0.remove(at),
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        self.0.retain(|held| *held != frame);
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

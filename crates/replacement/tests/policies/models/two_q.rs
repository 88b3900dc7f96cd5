//! 2Q, full version: two queues of frames and one of page numbers; the oldest is at the front of
//! each.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

pub struct Model {
    a1in: VecDeque<(FrameId, PageId)>,
    am: VecDeque<(FrameId, PageId)>,
    a1out: VecDeque<PageId>,
    kin: usize,
    kout: usize,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        let (kin, kout) = (frames as usize / 4, usize::max(frames as usize / 2, 1));
        Self { a1in: VecDeque::new(), am: VecDeque::new(), a1out: VecDeque::new(), kin, kout }
    }

    /// Moves a page evicted from `A1in` to `A1out`, and cuts that to `Kout` pages, not counting the
    /// incoming page.
    fn remember(&mut self, page: PageId, incoming: Option<PageId>) {
        let awaited = incoming.filter(|page| self.a1out.contains(page));
        self.a1out.push_back(page);
        let others =
            |a1out: &VecDeque<PageId>| a1out.iter().filter(|page| Some(**page) != awaited).count();
        while others(&self.a1out) > self.kout {
            let oldest = self.a1out.iter().position(|page| Some(*page) != awaited).unwrap();
            self.a1out.remove(oldest);
        }
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(at) = self.am.iter().position(|held| held.0 == frame) {
            let used = self.am.remove(at).unwrap();
            self.am.push_back(used);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        if self.a1out.contains(&page) {
            self.a1out.retain(|gone| *gone != page);
            self.am.push_back((frame, page));
        } else {
            self.a1in.push_back((frame, page));
        }
    }

    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let (first, second) = match self.a1in.len() > self.kin {
            true => (&self.a1in, &self.am),
            false => (&self.am, &self.a1in),
        };
        for (frame, page) in first.clone().into_iter().chain(second.clone()) {
            match probe(frame) {
                Probe::Take => {
                    let probation = self.a1in.contains(&(frame, page));
                    self.a1in.retain(|held| held.0 != frame);
                    self.am.retain(|held| held.0 != frame);
                    if probation {
                        self.remember(page, incoming);
                    }
                    return Some(frame);
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        if let Some(at) = self.a1in.iter().position(|held| held.0 == frame) {
            let (_, page) = self.a1in.remove(at).unwrap();
            self.remember(page, None);
        }
        self.am.retain(|held| held.0 != frame);
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

//! ARC, figure 4 of its paper: four queues, least recently used first.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};

pub struct Model {
    c: usize,
    p: f64,
    t1: Vec<(FrameId, PageId)>,
    t2: Vec<(FrameId, PageId)>,
    /// The page, and whether its miss has already moved `p`.
    b1: Vec<(PageId, bool)>,
    b2: Vec<(PageId, bool)>,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        Self { c: frames as usize, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] }
    }

    /// Cases II and III: moves `p`, once for each miss.
    fn adapt(&mut self, page: PageId) {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if let Some((_, false)) = self.b1.iter().find(|(ghost, _)| *ghost == page) {
            let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + delta).min(self.c as f64);
        }
        if let Some((_, false)) = self.b2.iter().find(|(ghost, _)| *ghost == page) {
            let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - delta).max(0.0);
        }
        for (ghost, adapted) in self.b1.iter_mut().chain(&mut self.b2) {
            *adapted |= *ghost == page;
        }
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        let known = self.t1.iter().chain(&self.t2).find(|(held, _)| *held == frame).copied();
        if let Some(entry) = known {
            self.t1.retain(|held| *held != entry);
            self.t2.retain(|held| *held != entry);
            self.t2.push(entry);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        if self.b1.iter().chain(&self.b2).any(|(ghost, _)| *ghost == page) {
            self.adapt(page);
            self.b1.retain(|(ghost, _)| *ghost != page);
            self.b2.retain(|(ghost, _)| *ghost != page);
            self.t2.push((frame, page));
            return;
        }
        self.t1.push((frame, page));
        if self.t1.len() + self.b1.len() > self.c {
            self.b1.remove(0);
        } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() > 2 * self.c {
            self.b2.remove(0);
        }
    }

    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let mut in_b2 = false;
        if let Some(page) = incoming {
            self.adapt(page);
            in_b2 = self.b2.iter().any(|(ghost, _)| *ghost == page);
        }
        let t1 = self.t1.len() as f64;
        let mut order: Vec<FrameId> = vec![];
        let (once, again) =
            (self.t1.iter().map(|(frame, _)| *frame), self.t2.iter().map(|(frame, _)| *frame));
        if t1 >= 1.0 && (t1 > self.p || (in_b2 && t1 == self.p)) {
            order.extend(once.chain(again));
        } else {
            order.extend(again.chain(once));
        }
        for frame in order {
            match probe(frame) {
                Probe::Take => {
                    self.remove(frame);
                    return Some(frame);
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        if let Some(at) = self.t1.iter().position(|(held, _)| *held == frame) {
            let (_, page) = self.t1.remove(at);
            self.b1.push((page, false));
        }
        if let Some(at) = self.t2.iter().position(|(held, _)| *held == frame) {
            let (_, page) = self.t2.remove(at);
            self.b2.push((page, false));
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

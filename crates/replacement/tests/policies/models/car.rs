//! CAR, figure 2 of its paper: two rotating queues with the hand at the front, and two queues of
//! ghosts.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

#[derive(Clone, Copy)]
struct Entry {
    frame: FrameId,
    page: PageId,
    referenced: bool,
}

pub struct Model {
    c: usize,
    p: f64,
    /// The hand is at the front.
    t1: VecDeque<Entry>,
    t2: VecDeque<Entry>,
    /// Oldest first.
    b1: Vec<PageId>,
    b2: Vec<PageId>,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        Self {
            c: frames as usize,
            p: 0.0,
            t1: VecDeque::new(),
            t2: VecDeque::new(),
            b1: vec![],
            b2: vec![],
        }
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        self.t1
            .iter_mut()
            .chain(&mut self.t2)
            .filter(|e| e.frame == frame)
            .for_each(|e| e.referenced = true);
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        let entry = Entry { frame, page, referenced: false };
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&page) {
            self.p = (self.p + f64::max(1.0, b2 / b1)).min(self.c as f64);
            self.b1.retain(|ghost| *ghost != page);
            self.t2.push_back(entry);
        } else if self.b2.contains(&page) {
            self.p = (self.p - f64::max(1.0, b1 / b2)).max(0.0);
            self.b2.retain(|ghost| *ghost != page);
            self.t2.push_back(entry);
        } else {
            self.t1.push_back(entry);
            if self.t1.len() + self.b1.len() > self.c {
                self.b1.remove(0);
            } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() > 2 * self.c {
                self.b2.remove(0);
            }
        }
    }

    /// Implements replace(), except that a page may be refused; it then gets another round. A clock
    /// is done when all of its pages were refused in two rounds.
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let (mut refused1, mut refused2) = (0, 0);
        loop {
            let (done1, done2) = (refused1 >= 2 * self.t1.len(), refused2 >= 2 * self.t2.len());
            let first = self.t1.len() as f64 >= f64::max(1.0, self.p);
            if done1 && done2 {
                return None;
            } else if (first && !done1) || done2 {
                let mut entry = self.t1.pop_front().unwrap();
                if entry.referenced {
                    entry.referenced = false;
                    self.t2.push_back(entry);
                    continue;
                }
                match probe(entry.frame) {
                    Probe::Take => {
                        self.b1.push(entry.page);
                        return Some(entry.frame);
                    }
                    Probe::Skip => {
                        refused1 += 1;
                        self.t1.push_back(entry);
                    }
                    Probe::Stop => {
                        self.t1.push_front(entry);
                        return None;
                    }
                }
            } else {
                let mut entry = self.t2.pop_front().unwrap();
                if entry.referenced {
                    entry.referenced = false;
                    self.t2.push_back(entry);
                    continue;
                }
                match probe(entry.frame) {
                    Probe::Take => {
                        self.b2.push(entry.page);
                        return Some(entry.frame);
                    }
                    Probe::Skip => {
                        refused2 += 1;
                        self.t2.push_back(entry);
                    }
                    Probe::Stop => {
                        self.t2.push_front(entry);
                        return None;
                    }
                }
            }
        }
    }

    fn remove(&mut self, frame: FrameId) {
        if let Some(at) = self.t1.iter().position(|e| e.frame == frame) {
            self.b1.push(self.t1.remove(at).unwrap().page);
        }
        if let Some(at) = self.t2.iter().position(|e| e.frame == frame) {
            self.b2.push(self.t2.remove(at).unwrap().page);
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

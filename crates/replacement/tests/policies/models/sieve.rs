//! SIEVE, algorithm 1 of its paper: a queue, newest first, and a hand that is an index into it.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};

#[derive(Default)]
pub struct Model {
    /// Newest first: the frame, and whether it was visited.
    queue: Vec<(FrameId, bool)>,
    /// `None`: at the tail.
    hand: Option<usize>,
}

impl Model {
    fn take_out(&mut self, at: usize) {
        self.queue.remove(at);
        self.hand = match self.hand {
            Some(hand) if hand == at => at.checked_sub(1),
            Some(hand) if hand > at => Some(hand - 1),
            hand => hand,
        };
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        self.queue
            .iter_mut()
            .filter(|(held, _)| *held == frame)
            .for_each(|(_, visited)| *visited = true);
    }

    fn miss(&mut self, frame: FrameId, _page: PageId) {
        self.queue.insert(0, (frame, false));
        self.hand = self.hand.map(|hand| hand + 1);
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for _step in 0..2 * self.queue.len() {
            let at = self.hand.unwrap_or(self.queue.len() - 1);
            self.hand = Some(at);
            let (frame, visited) = self.queue[at];
            if visited {
                self.queue[at].1 = false;
            } else {
                match probe(frame) {
                    Probe::Take => {
                        self.take_out(at);
                        return Some(frame);
                    }
                    Probe::Skip => {}
                    Probe::Stop => return None,
                }
            }
            self.hand = at.checked_sub(1);
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        if let Some(at) = self.queue.iter().position(|(held, _)| *held == frame) {
            self.take_out(at);
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

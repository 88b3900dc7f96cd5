//! CLOCK: a hand sweeps the frames; a frame used since the last sweep gets another round.
//!
//! A use costs O(1), an eviction O(1) amortised. Metadata: 1 byte per frame.
//!
//! # Source
//! Corbató: A paging experiment with the Multics system, 1968.

use super::{Footprint, Policy, Probe, ensure};
use clearway_types::{FrameId, PageId};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Empty,
    Old,
    Used,
}

/// Evicts the first frame that was not used since the hand last passed it.
pub struct ClockPolicy {
    frames: Vec<State>,
    hand: usize,
}

impl ClockPolicy {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self { frames: vec![State::Empty; frames as usize], hand: 0 }
    }
}

impl Policy for ClockPolicy {
    fn hit(&mut self, frame: FrameId) {
        let state = &mut self.frames[frame.0 as usize];
        if *state == State::Old {
            *state = State::Used;
        }
    }

    fn miss(&mut self, frame: FrameId, _page: PageId) {
        self.frames[frame.0 as usize] = State::Used;
    }

    /// Makes at most two rounds: the first may only clear bits.
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for _ in 0..self.frames.len() * 2 {
            let at = self.hand;
            self.hand = (at + 1) % self.frames.len();
            match self.frames[at] {
                State::Empty => {}
                State::Used => self.frames[at] = State::Old,
                State::Old => match probe(FrameId(at as u32)) {
                    Probe::Take => {
                        self.frames[at] = State::Empty;
                        return Some(FrameId(at as u32));
                    }
                    Probe::Skip => {}
                    Probe::Stop => return None,
                },
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        self.frames[frame.0 as usize] = State::Empty;
    }

    fn validate(&self) -> Result<(), String> {
        ensure(self.hand < self.frames.len().max(1), || format!("the hand is at {}", self.hand))
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().array(&self.frames)
    }
}

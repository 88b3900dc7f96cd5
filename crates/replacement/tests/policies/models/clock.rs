//! CLOCK: a queue of the frames with their reference bits; the queue rotates instead of the hand.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

pub struct Model {
    /// Starting at the hand: the frame, and its reference bit if it holds a page.
    row: VecDeque<(FrameId, Option<bool>)>,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        Self { row: (0..frames).map(|frame| (FrameId(frame), None)).collect() }
    }

    fn bit(&mut self, frame: FrameId) -> &mut Option<bool> {
        &mut self.row.iter_mut().find(|(at, _)| *at == frame).unwrap().1
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(referenced) = self.bit(frame) {
            *referenced = true;
        }
    }

    fn miss(&mut self, frame: FrameId, _page: PageId) {
        *self.bit(frame) = Some(true);
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for _round in 0..2 {
            for _frame in 0..self.row.len() {
                self.row.rotate_left(1);
                let (frame, bit) = self.row.back_mut().unwrap();
                match bit {
                    None => {}
                    Some(true) => *bit = Some(false),
                    Some(false) => match probe(*frame) {
                        Probe::Take => {
                            *bit = None;
                            return Some(*frame);
                        }
                        Probe::Skip => {}
                        Probe::Stop => return None,
                    },
                }
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        *self.bit(frame) = None;
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

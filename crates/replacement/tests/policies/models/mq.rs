//! MQ: eight queues, and one queue of evicted pages; the oldest is at the front of each.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

#[derive(Clone, Copy)]
struct Block {
    frame: FrameId,
    page: PageId,
    reference: u32,
    expire_time: u64,
}

pub struct Model {
    q: [VecDeque<Block>; 8],
    qout: VecDeque<(PageId, u32)>,
    current_time: u64,
    life_time: u64,
    max_out: usize,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        Self {
            q: Default::default(),
            qout: VecDeque::new(),
            current_time: 0,
            life_time: u64::from(frames) * 2,
            max_out: frames as usize * 4,
        }
    }

    /// Removes the block from its queue.
    fn take(&mut self, frame: FrameId) -> Option<Block> {
        let queue =
            self.q.iter_mut().find(|queue| queue.iter().any(|block| block.frame == frame))?;
        let at = queue.iter().position(|block| block.frame == frame)?;
        queue.remove(at)
    }

    fn access(&mut self, mut block: Block) {
        block.reference += 1;
        block.expire_time = self.current_time + self.life_time;
        let number = match block.reference {
            1 => 0,
            2..4 => 1,
            4..8 => 2,
            8..16 => 3,
            16..32 => 4,
            32..64 => 5,
            64..128 => 6,
            _ => 7,
        };
        self.q[number].push_back(block);
        self.current_time += 1;
        for k in 1..8 {
            if self.q[k].front().is_some_and(|oldest| oldest.expire_time < self.current_time) {
                let mut fallen = self.q[k].pop_front().unwrap();
                fallen.expire_time = self.current_time + self.life_time;
                self.q[k - 1].push_back(fallen);
            }
        }
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(block) = self.take(frame) {
            self.access(block);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        let remembered = self.qout.iter().find(|(gone, _)| *gone == page);
        let reference = remembered.map_or(0, |(_, reference)| *reference);
        self.qout.retain(|(gone, _)| *gone != page);
        self.access(Block { frame, page, reference, expire_time: 0 });
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for block in self.q.iter().flatten().copied().collect::<Vec<_>>() {
            match probe(block.frame) {
                Probe::Take => {
                    self.remove(block.frame);
                    return Some(block.frame);
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        if let Some(block) = self.take(frame) {
            self.qout.push_back((block.page, block.reference));
            if self.qout.len() > self.max_out {
                self.qout.pop_front();
            }
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

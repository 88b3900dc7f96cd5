//! ARC: pages used once recently and pages used again share the frames; ghosts of both decide the
//! shares.
//!
//! `T1` holds the pages used once since they came, `T2` those used again. `B1` and `B2` are their
//! ghosts. Each list has its most recently used page in front. A miss on a ghost of `B1` raises the
//! target size of `T1` (`p` in the paper), one on a ghost of `B2` lowers it. There is no parameter
//! to set.
//!
//! A use costs O(1). Metadata: 17 bytes a frame, and 30 bytes a ghost for at most two ghosts a
//! frame (one when all frames are taken).
//!
//! # Invariants
//! 1. After a miss, `T1` and `B1` together have at most as many pages as there are frames, all four
//!    lists at most twice as many. The paper drops the ghost before it evicts. Here the miss drops
//!    it, because a pool evicts ahead of need and does not know for which page.
//! 2. The target is between 0 and the number of frames.
//! 3. No page is in two lists.
//!
//! # Source
//! Megiddo and Modha: ARC: a self-tuning, low overhead replacement cache, FAST 2003, figure 4.

use super::directory::Directory;
use super::list::ListId;
use super::queues::Queues;
use super::{Footprint, Policy, Probe, ensure, offer};
use clearway_types::{FrameId, PageId};

const T1: ListId = ListId(0);
const T2: ListId = ListId(1);
const B1: ListId = ListId(2);
const B2: ListId = ListId(3);

/// The adaptive replacement cache.
pub struct ArcPolicy {
    frames: u32,
    target: f64,
    queues: Queues,
    directory: Directory,
    /// Of each ghost: whether the target has learned from its miss already.
    learned: Vec<bool>,
}

impl ArcPolicy {
    /// A policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        let directory = Directory::new(frames, 2 * frames);
        let queues = Queues::new(directory.nodes(), 4);
        Self { frames, target: 0.0, queues, directory, learned: vec![false; 2 * frames as usize] }
    }

    fn learn(&mut self, ghost: u32) {
        let learned = &mut self.learned[(ghost - self.frames) as usize];
        if std::mem::replace(learned, true) {
            return;
        }
        let (b1, b2) = (f64::from(self.queues.len(B1)), f64::from(self.queues.len(B2)));
        self.target = if self.queues.list_of(ghost) == Some(B1) {
            (self.target + (b2 / b1).max(1.0)).min(f64::from(self.frames))
        } else {
            (self.target - (b1 / b2).max(1.0)).max(0.0)
        };
    }

    fn leave(&mut self, frame: u32) {
        let Some(list) = self.queues.remove(frame) else { return };
        let ghost = self.directory.retire(frame);
        self.learned[(ghost - self.frames) as usize] = false;
        self.queues.push_front(if list == T1 { B1 } else { B2 }, ghost);
    }

    fn forget(&mut self, ghost: u32) {
        self.queues.remove(ghost);
        self.directory.forget(ghost);
    }

    /// Keeps invariant 1 after a page has come to `T1`.
    fn trim(&mut self) {
        let len = |list| self.queues.len(list);
        let (recent, all) = (len(T1) + len(B1), len(T1) + len(T2) + len(B1) + len(B2));
        if recent > self.frames {
            self.queues.back(B1).into_iter().for_each(|ghost| self.forget(ghost));
        } else if all > 2 * self.frames {
            self.queues.back(B2).into_iter().for_each(|ghost| self.forget(ghost));
        }
    }
}

impl Policy for ArcPolicy {
    fn hit(&mut self, frame: FrameId) {
        if self.queues.list_of(frame.0).is_some() {
            self.queues.move_to_front(T2, frame.0);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.directory.set(frame.0, page);
        if let Some(ghost) = self.directory.ghost(page) {
            self.learn(ghost);
            self.forget(ghost);
            self.queues.push_front(T2, frame.0);
        } else {
            self.queues.push_front(T1, frame.0);
            self.trim();
        }
    }

    /// The paper's REPLACE; where all frames of the list that it takes from are skipped, those of
    /// the other are proposed.
    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let ghost = incoming.and_then(|page| self.directory.ghost(page));
        ghost.into_iter().for_each(|ghost| self.learn(ghost));
        let from_b2 = ghost.is_some_and(|ghost| self.queues.list_of(ghost) == Some(B2));
        let recent = f64::from(self.queues.len(T1));
        let order = if recent > self.target || (from_b2 && recent == self.target) {
            [T1, T2]
        } else {
            [T2, T1]
        };
        let frames = order.into_iter().flat_map(|list| self.queues.iter_back(list));
        let taken = offer(frames, probe).break_value()??;
        self.leave(taken.0);
        Some(taken)
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame.0);
    }

    fn footprint(&self) -> Footprint {
        self.queues.footprint([T2])
    }

    fn validate(&self) -> Result<(), String> {
        self.queues.validate()?;
        self.directory.validate()?;
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.queues.len(list));
        ensure(t1 + b1 <= self.frames, || format!("{t1} recent pages and {b1} ghosts of such"))?;
        ensure(t1 + t2 + b1 + b2 <= 2 * self.frames, || {
            format!("{t2} frequent pages and {b2} ghosts of such")
        })?;
        ensure((0.0..=f64::from(self.frames)).contains(&self.target), || {
            format!("the target is {}", self.target)
        })?;
        ensure(b1 + b2 == self.directory.ghosts(), || {
            format!("{} ghosts", self.directory.ghosts())
        })?;
        let twice = (0..self.frames).find(|frame| {
            self.queues.list_of(*frame).is_some()
                && self.directory.ghost(self.directory.page(*frame)).is_some()
        });
        ensure(twice.is_none(), || format!("the page of frame {twice:?} is a ghost, too"))
    }
}

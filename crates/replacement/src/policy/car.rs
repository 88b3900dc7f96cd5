//! CAR: ARC with two clocks instead of its two lists, so that a hit only sets a bit.
//!
//! The hand of `T1` (pages used once recently) moves pages that were used to `T2`. The hand of `T2`
//! gives them another round. `B1` and `B2` remember what left them, in the order of last use.
//! Misses on these ghosts move the target size of `T1` as in ARC. There is no parameter to set.
//!
//! A use costs O(1), the hands O(1) amortised. Metadata: 18 bytes a frame, and 29 bytes a ghost for
//! at most two ghosts a frame (one when all frames are taken).
//!
//! # Invariants
//! 1. After a miss, `T1` and `B1` together have at most as many pages as there are frames, all four
//!    lists at most twice as many.
//! 2. The target is between 0 and the number of frames.
//! 3. No page is in two lists.
//!
//! # Source
//! Bansal and Modha: CAR: Clock with Adaptive Replacement, FAST 2004, figure 2.

use super::directory::Directory;
use super::list::ListId;
use super::queues::Queues;
use super::{Footprint, Policy, Probe, ensure};
use clearway_types::{FrameId, PageId};

/// A clock: its hand is at the front, what it passes goes to the back.
const T1: ListId = ListId(0);
const T2: ListId = ListId(1);
/// Most recently left in front.
const B1: ListId = ListId(2);
const B2: ListId = ListId(3);

/// The clock with adaptive replacement.
pub struct Car {
    frames: u32,
    target: f64,
    queues: Queues,
    directory: Directory,
    used: Vec<bool>,
}

impl Car {
    /// A policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        let directory = Directory::new(frames, 2 * frames);
        let queues = Queues::new(directory.nodes(), 4);
        Self { frames, target: 0.0, queues, directory, used: vec![false; frames as usize] }
    }

    fn leave(&mut self, frame: u32) {
        let Some(list) = self.queues.remove(frame) else { return };
        let ghost = self.directory.retire(frame);
        self.queues.push_front(if list == T1 { B1 } else { B2 }, ghost);
    }

    fn forget(&mut self, ghost: u32) {
        self.queues.remove(ghost);
        self.directory.forget(ghost);
    }

    fn learn(&mut self, ghost: u32) {
        let (b1, b2) = (f64::from(self.queues.len(B1)), f64::from(self.queues.len(B2)));
        self.target = if self.queues.list_of(ghost) == Some(B1) {
            (self.target + (b2 / b1).max(1.0)).min(f64::from(self.frames))
        } else {
            (self.target - (b1 / b2).max(1.0)).max(0.0)
        };
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

    /// The clock to take from: what the paper says, unless all of its pages have been skipped
    /// already (two rounds, as the first may only clear the marks of some).
    fn clock(&self, skipped: [u32; 2]) -> Option<ListId> {
        let (recent, frequent) = (self.queues.len(T1), self.queues.len(T2));
        let choice = if f64::from(recent) >= self.target.max(1.0) { [T1, T2] } else { [T2, T1] };
        let left =
            |list: &ListId| skipped[list.0 as usize] < 2 * [recent, frequent][list.0 as usize];
        choice.into_iter().find(left)
    }
}

impl Policy for Car {
    fn hit(&mut self, frame: FrameId) {
        self.used[frame.0 as usize] = true;
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.directory.set(frame.0, page);
        self.used[frame.0 as usize] = false;
        if let Some(ghost) = self.directory.ghost(page) {
            self.learn(ghost);
            self.forget(ghost);
            self.queues.push_back(T2, frame.0);
        } else {
            self.queues.push_back(T1, frame.0);
            self.trim();
        }
    }

    /// The paper's replace(). A step clears a mark, or proposes a page; the latter at most twice as
    /// often as there are pages.
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let mut skipped = [0; 2];
        while let Some(clock) = self.clock(skipped) {
            let frame = self.queues.front(clock)?;
            let to = if std::mem::take(&mut self.used[frame as usize]) {
                T2
            } else {
                match probe(FrameId(frame)) {
                    Probe::Take => {
                        self.leave(frame);
                        return Some(FrameId(frame));
                    }
                    Probe::Skip => skipped[clock.0 as usize] += 1,
                    Probe::Stop => return None,
                }
                clock
            };
            self.queues.remove(frame);
            self.queues.push_back(to, frame);
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame.0);
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().array(&self.used)
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

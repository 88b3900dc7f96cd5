//! The four lists of ARC and CAR, and the target size of `T1`.
//!
//! `T1` holds the pages used once recently, `T2` those used again. `B1` and `B2` are their ghosts,
//! the latest at the front. The policies differ in the order of `T1` and `T2`.
//!
//! # Invariants
//! 1. After a miss, `T1` and `B1` together have at most as many pages as there are frames, and all
//!    four lists at most twice as many.
//! 2. The target is between 0 and the number of frames.
//! 3. No page is in two lists.

use super::directory::Directory;
use super::ensure;
use super::list::ListId;
use super::queues::Queues;

pub(super) const T1: ListId = ListId(0);
pub(super) const T2: ListId = ListId(1);
pub(super) const B1: ListId = ListId(2);
pub(super) const B2: ListId = ListId(3);

pub(super) struct ArcLists {
    pub frames: u32,
    /// The target size of `T1` (`p` in the papers).
    pub target: f64,
    pub queues: Queues,
    pub directory: Directory,
}

impl ArcLists {
    /// Creates empty lists for frames `0 .. frames`, with two ghosts per frame.
    pub fn new(frames: u32) -> Self {
        let directory = Directory::new(frames, 2 * frames);
        let queues = Queues::new(directory.nodes(), 4);
        Self { frames, target: 0.0, queues, directory }
    }

    /// Moves the target for a miss on `ghost`.
    pub fn adapt(&mut self, ghost: u32) {
        let (b1, b2) = (f64::from(self.queues.len(B1)), f64::from(self.queues.len(B2)));
        self.target = if self.queues.list_of(ghost) == Some(B1) {
            (self.target + (b2 / b1).max(1.0)).min(f64::from(self.frames))
        } else {
            (self.target - (b1 / b2).max(1.0)).max(0.0)
        };
    }

    /// Removes the page from its frame. Returns its ghost, or `None` if the frame is not known.
    pub fn leave(&mut self, frame: u32) -> Option<u32> {
        let list = self.queues.remove(frame)?;
        let ghost = self.directory.retire(frame);
        self.queues.push_front(if list == T1 { B1 } else { B2 }, ghost);
        Some(ghost)
    }

    /// Removes a ghost.
    pub fn forget(&mut self, ghost: u32) {
        self.queues.remove(ghost);
        self.directory.forget(ghost);
    }

    /// Restores invariant 1 after a page was added to `T1`.
    pub fn trim(&mut self) {
        let len = |list| self.queues.len(list);
        let (recent, all) = (len(T1) + len(B1), len(T1) + len(T2) + len(B1) + len(B2));
        if recent > self.frames {
            self.queues.back(B1).into_iter().for_each(|ghost| self.forget(ghost));
        } else if all > 2 * self.frames {
            self.queues.back(B2).into_iter().for_each(|ghost| self.forget(ghost));
        }
    }

    /// Checks the invariants. O(n).
    pub fn validate(&self) -> Result<(), String> {
        self.queues.validate()?;
        self.directory.validate()?;
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.queues.len(list));
        ensure(t1 + b1 <= self.frames, || format!("{t1} recent pages and {b1} of their ghosts"))?;
        ensure(t1 + t2 + b1 + b2 <= 2 * self.frames, || {
            format!("{t2} frequent pages and {b2} of their ghosts")
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
        ensure(twice.is_none(), || format!("the page of frame {twice:?} is also a ghost"))
    }
}

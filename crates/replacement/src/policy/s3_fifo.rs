//! S3-FIFO: a small queue that most pages pass once, a main queue for pages used again, and ghosts.
//!
//! A new page enters the small queue (a tenth of the frames); a page that is remembered as a ghost
//! enters the main queue. All queues are FIFO. At the end of the small queue, a page used more than
//! once moves to the main queue; any other page is evicted and becomes a ghost. At the end of the
//! main queue, a page that was used gets another round with one use fewer. Uses are counted up to
//! 3. There are as many ghosts as places in the main queue.
//!
//! A use costs O(1), the ends of the queues O(1) amortised. Metadata: 18 bytes per frame, 25 to 29
//! bytes per ghost.
//!
//! # Invariants
//! 1. There are at most as many ghosts as the main queue has places.
//! 2. No page is in two queues.
//!
//! # Locking
//! None, except for the uses, which other threads may count concurrently (`uses`).
//!
//! # Source
//! Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023,
//! algorithm 1.

use super::directory::Directory;
use super::list::ListId;
use super::queues::Queues;
use super::uses::{Counts, Uses};
use super::{Footprint, Policy, Probe, ensure};
use clearway_types::{FrameId, PageId};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Newest at the front, in each of these lists.
const SMALL: ListId = ListId(0);
const MAIN: ListId = ListId(1);
const GHOSTS: ListId = ListId(2);

/// The bound of the count of uses.
pub(crate) const MAX_USES: u8 = 3;

/// Simple, scalable FIFO with three static queues.
pub struct S3Fifo {
    small: u32,
    main: u32,
    queues: Queues,
    directory: Directory,
    uses: Arc<dyn Uses>,
}

impl S3Fifo {
    /// Creates a policy for frames `0 .. frames`, a tenth of them for the small queue.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, 0.1)
    }

    /// Creates a policy that counts the uses of its frames in `uses`.
    pub(crate) fn over(frames: u32, uses: Arc<dyn Uses>) -> Self {
        Self { uses, ..Self::new(frames) }
    }

    /// Creates a policy with this share of the frames for the small queue.
    pub fn with(frames: u32, small: f64) -> Self {
        let small = ((f64::from(frames) * small) as u32).max(1);
        let main = frames.saturating_sub(small);
        let directory = Directory::new(frames, main);
        let queues = Queues::new(directory.nodes(), 3);
        Self { small, main, queues, directory, uses: Arc::new(Counts::new(frames, MAX_USES)) }
    }

    fn leave(&mut self, frame: u32) {
        if self.queues.remove(frame) != Some(SMALL) || self.main == 0 {
            return;
        }
        if self.directory.is_full() {
            self.queues.back(GHOSTS).into_iter().for_each(|ghost| self.forget(ghost));
        }
        let ghost = self.directory.retire(frame);
        self.queues.push_front(GHOSTS, ghost);
    }

    fn forget(&mut self, ghost: u32) {
        self.queues.remove(ghost);
        self.directory.forget(ghost);
    }

    /// Evicts from the small queue. Breaks with the result of [`Policy::evict`]; continues if all
    /// remaining pages were skipped.
    fn evict_small(
        &mut self,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> ControlFlow<Option<FrameId>> {
        let mut next = self.queues.back(SMALL);
        while let Some(frame) = next {
            next = self.queues.prev(frame);
            if self.uses.of(FrameId(frame)).is_some_and(|uses| uses > 1) {
                self.uses.set(FrameId(frame), Some(0));
                self.queues.move_to_front(MAIN, frame);
                if self.queues.len(MAIN) > self.main {
                    self.evict_main(probe)?;
                }
                continue;
            }
            match probe(FrameId(frame)) {
                Probe::Take => {
                    self.leave(frame);
                    return ControlFlow::Break(Some(FrameId(frame)));
                }
                Probe::Skip => {}
                Probe::Stop => return ControlFlow::Break(None),
            }
        }
        ControlFlow::Continue(())
    }

    /// Evicts from the main queue, with the same result. A skipped page gets another round.
    fn evict_main(
        &mut self,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> ControlFlow<Option<FrameId>> {
        let (len, mut skipped) = (self.queues.len(MAIN), 0);
        let rounds = |n: u8| len * u32::from(n);
        for step in 0..rounds(2 * MAX_USES + 1) {
            if skipped >= rounds(MAX_USES + 1) {
                break;
            }
            let Some(frame) = self.queues.back(MAIN) else { break };
            // By then all counts are 0, except for pages that other threads use as fast as this
            // loop examines them. Probing them anyway bounds the loop.
            if step >= rounds(MAX_USES) || !self.uses.take(FrameId(frame)) {
                match probe(FrameId(frame)) {
                    Probe::Take => {
                        self.leave(frame);
                        return ControlFlow::Break(Some(FrameId(frame)));
                    }
                    Probe::Skip => skipped += 1,
                    Probe::Stop => return ControlFlow::Break(None),
                }
            }
            self.queues.move_to_front(MAIN, frame);
        }
        ControlFlow::Continue(())
    }
}

impl Policy for S3Fifo {
    fn hit(&mut self, frame: FrameId) {
        self.uses.count(frame);
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.directory.set(frame.0, page);
        self.uses.set(frame, Some(0));
        if let Some(ghost) = self.directory.ghost(page) {
            self.forget(ghost);
            self.queues.push_front(MAIN, frame.0);
        } else {
            self.queues.push_front(SMALL, frame.0);
        }
    }

    /// Counts free frames as part of the small queue: new pages will enter it.
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let (small, main) = (self.queues.len(SMALL), self.queues.len(MAIN));
        let free = self.small + self.main - (small + main);
        let found = if small + free >= self.small {
            self.evict_small(probe).map_continue(|()| self.evict_main(probe))
        } else {
            self.evict_main(probe).map_continue(|()| self.evict_small(probe))
        };
        match found {
            ControlFlow::Break(found) => found,
            ControlFlow::Continue(found) => found.break_value()?,
        }
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame.0);
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().uses(&*self.uses)
    }

    fn validate(&self) -> Result<(), String> {
        self.queues.validate()?;
        self.directory.validate()?;
        let ghosts = self.queues.len(GHOSTS);
        ensure(ghosts <= self.main && ghosts == self.directory.ghosts(), || {
            format!("{ghosts} ghosts")
        })?;
        let mut frames =
            self.queues.iter(SMALL).chain(self.queues.iter(MAIN)).collect::<Vec<_>>().into_iter();
        let many = frames.clone().find(|frame| self.uses.of(FrameId(*frame)) > Some(MAX_USES));
        ensure(many.is_none(), || format!("frame {many:?} has too many uses"))?;
        let twice =
            frames.find(|frame| self.directory.ghost(self.directory.page(*frame)).is_some());
        ensure(twice.is_none(), || format!("the page of frame {twice:?} is also a ghost"))
    }
}

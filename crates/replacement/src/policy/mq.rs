//! MQ: queues by the number of uses; a page that is not used for a while moves down queue by queue.
//!
//! A page used `count` times is in the LRU queue `Q[log2 count]`, of eight. On each access, the
//! oldest page of each queue moves to the next lower queue if it was neither used nor moved for
//! `lifeTime` accesses. Victims are the oldest pages of the lowest queue that is not empty. `Qout`
//! remembers the number of uses of evicted pages, for four times as many pages as there are frames.
//!
//! The paper derives `lifeTime` from the workload: the peak of the distances between two accesses
//! of a page. A pool cannot know it in advance. The default, twice the number of frames, performs
//! well on the available traces ([docs/policies.md](../../../../docs/policies.md)).
//!
//! A use costs O(1): it checks each of the eight queues. Metadata: 33 bytes per frame, and 41 to 45
//! for each of four ghosts per frame.
//!
//! # Invariants
//! 1. A frame with a page is in the queue of its count or in a lower one; a ghost is in `Qout`.
//! 2. No page expires later than `lifeTime` accesses from now.
//! 3. No page is both in a frame and in `Qout`.
//!
//! # Source
//! Zhou, Philbin and Li: The multi-queue replacement algorithm for second level buffer caches,
//! USENIX 2001.

use super::directory::Directory;
use super::list::ListId;
use super::queues::Queues;
use super::{Footprint, Policy, Probe, ensure, propose};
use clearway_types::{FrameId, PageId};

const QUEUES: u32 = 8;
/// Evicted pages, the latest first.
const QOUT: ListId = ListId(QUEUES);

#[derive(Clone, Copy, Default)]
struct Uses {
    count: u32,
    /// The access count at which the page moves to the next lower queue if it is not used before.
    expires: u64,
}

/// Returns the queue for a page used `count` times, at least once.
fn level(count: u32) -> u32 {
    count.ilog2().min(QUEUES - 1)
}

/// Queues by frequency, with expiry.
pub struct Mq {
    queues: Queues,
    pages: Directory,
    uses: Vec<Uses>,
    now: u64,
    life_time: u64,
}

impl Mq {
    /// Creates a policy for frames `0 .. frames` with a `lifeTime` of twice the frames and a `Qout`
    /// of four times the frames.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, u64::from(frames) * 2, frames.saturating_mul(4))
    }

    /// Creates a policy whose pages move down after `life_time` accesses, and which remembers
    /// `qout` pages, at least one.
    pub fn with(frames: u32, life_time: u64, qout: u32) -> Self {
        assert!(qout > 0, "Qout has at least one place");
        let pages = Directory::new(frames, qout);
        let (queues, uses) =
            (Queues::new(pages.nodes(), QUEUES + 1), vec![Uses::default(); pages.nodes() as usize]);
        Self { queues, pages, uses, now: 0, life_time }
    }

    fn used(&mut self, frame: FrameId) {
        let uses = &mut self.uses[frame.0 as usize];
        uses.count = uses.count.saturating_add(1);
        uses.expires = self.now + self.life_time;
        let queue = ListId(level(uses.count));
        self.queues.move_to_front(queue, frame.0);
        self.adjust();
    }

    /// Advances the time by one access and moves expired pages down.
    fn adjust(&mut self) {
        self.now += 1;
        for queue in 1..QUEUES {
            if let Some(oldest) = self.queues.back(ListId(queue))
                && self.uses[oldest as usize].expires < self.now
            {
                self.uses[oldest as usize].expires = self.now + self.life_time;
                self.queues.move_to_front(ListId(queue - 1), oldest);
            }
        }
    }

    fn leave(&mut self, frame: FrameId) {
        if self.queues.remove(frame.0).is_none() {
            return;
        }
        if self.pages.is_full() {
            self.forget(self.queues.back(QOUT).expect("all ghosts are in Qout"));
        }
        let ghost = self.pages.retire(frame.0);
        self.uses[ghost as usize] = self.uses[frame.0 as usize];
        self.queues.push_front(QOUT, ghost);
    }

    fn forget(&mut self, ghost: u32) {
        self.queues.remove(ghost);
        self.pages.forget(ghost);
    }
}

impl Policy for Mq {
    fn hit(&mut self, frame: FrameId) {
        if self.queues.list_of(frame.0).is_some() {
            self.used(frame);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.pages.set(frame.0, page);
        let ghost = self.pages.ghost(page);
        self.uses[frame.0 as usize] =
            ghost.map_or(Uses::default(), |ghost| self.uses[ghost as usize]);
        if let Some(ghost) = ghost {
            self.forget(ghost);
        }
        self.used(frame);
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let frames = (0..QUEUES).flat_map(|queue| self.queues.iter_back(ListId(queue)));
        let victim = propose(frames, probe).break_value()??;
        self.leave(victim);
        Some(victim)
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame);
    }

    fn footprint(&self) -> Footprint {
        self.queues.footprint((0..QUEUES).map(ListId)).array(&self.uses)
    }

    fn validate(&self) -> Result<(), String> {
        self.queues.validate()?;
        self.pages.validate()?;
        let ghosts = self.queues.len(QOUT);
        ensure(ghosts == self.pages.ghosts(), || {
            format!("{ghosts} pages in Qout, {} ghosts", self.pages.ghosts())
        })?;
        for queue in (0..QUEUES).map(ListId) {
            for frame in self.queues.iter(queue) {
                let Uses { count, expires } = self.uses[frame as usize];
                ensure(queue.0 <= level(count), || {
                    format!("frame {frame}, used {count} times, is in Q[{}]", queue.0)
                })?;
                ensure(expires <= self.now + self.life_time, || {
                    format!("frame {frame} expires at {expires}")
                })?;
                ensure(self.pages.ghost(self.pages.page(frame)).is_none(), || {
                    format!("the page of frame {frame} is a ghost")
                })?;
            }
        }
        Ok(())
    }
}

//! W-TinyLFU: a page evicted from a small LRU window stays only if it was used more often than the
//! victim.
//!
//! New pages enter the window (1 % of the frames). The main part is a segmented LRU: a page on
//! *probation* that is used becomes *protected*, and protected pages beyond 80 % of the main part
//! return to probation. A [`Sketch`] estimates how often a page was used recently, resident or not.
//! A page that leaves the window competes with the victim of the main part; the one that was used
//! less often is evicted.
//!
//! A use costs O(1). Metadata: 17 bytes per frame, and 8 to 16 for the sketch. There are no ghosts.
//!
//! The size of the window can adapt by hill climbing: after every ten uses per frame it changes by
//! a step, in the same direction as before if the hit ratio has risen, otherwise in the opposite
//! one. The steps shrink, and become large again when the hit ratio changes by 0.05.
//!
//! If frames are freed in batches ahead of need, the window may exceed its size by the size of a
//! batch. Otherwise its pages would enter the main part untested, and evict pages that were tested.
//!
//! # Invariants
//! 1. After a miss, the window has at most as many pages as its size and slack. Protected pages do
//!    not exceed their share, unless it was lowered.
//! 2. Every known frame is in one of the three lists.
//!
//! # Source
//! Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy, ACM Transactions
//! on Storage 13(4), 2017. The hill climbing: Einziger, Eytan, Friedman, Manes: Adaptive software
//! cache management, Middleware 2018, with the steps of Ben Manes' Caffeine.

use super::directory::Directory;
use super::list::ListId;
use super::queues::Queues;
use super::sketch::Sketch;
use super::{Footprint, Policy, Probe, ensure, propose};
use clearway_types::{FrameId, PageId};

/// Most recently used at the front, in each of these lists.
const WINDOW: ListId = ListId(0);
const PROBATION: ListId = ListId(1);
const PROTECTED: ListId = ListId(2);

/// The sizes of the parts, and whether the window's size adapts.
#[derive(Clone, Copy, Debug)]
pub struct TinyLfuParameters {
    /// The window's initial share of the frames.
    pub window: f64,
    /// The share of the protected pages in the main part.
    pub protected: f64,
    /// Whether the window's size adapts.
    pub climb: bool,
}

impl Default for TinyLfuParameters {
    fn default() -> Self {
        Self { window: 0.01, protected: 0.8, climb: false }
    }
}

/// Adapts the window's size by hill climbing.
struct Climber {
    step: f64,
    hits: u32,
    uses: u32,
    last_ratio: f64,
}

impl Climber {
    /// The first and the largest step, as a share of the frames.
    const STEP: f64 = 0.0625;
    const DECAY: f64 = 0.98;
    /// A change of the hit ratio by at least this much restarts with large steps.
    const RESTART: f64 = 0.05;

    fn new(frames: u32) -> Self {
        Self { step: Self::STEP * f64::from(frames), hits: 0, uses: 0, last_ratio: 0.0 }
    }

    /// Counts an access. Returns the change of the window in frames when a sample is complete.
    fn count(&mut self, hit: bool, frames: u32) -> Option<f64> {
        self.hits += u32::from(hit);
        self.uses += 1;
        if self.uses < frames.saturating_mul(10) {
            return None;
        }
        let ratio = f64::from(self.hits) / f64::from(self.uses);
        let change = ratio - self.last_ratio;
        let amount = if change >= 0.0 { self.step } else { -self.step };
        let large = (Self::STEP * f64::from(frames)).copysign(amount);
        self.step = if change.abs() >= Self::RESTART { large } else { Self::DECAY * amount };
        (self.hits, self.uses, self.last_ratio) = (0, 0, ratio);
        Some(amount)
    }
}

/// Window TinyLFU.
pub struct WTinyLfu {
    frames: u32,
    window: f64,
    protected_share: f64,
    climber: Option<Climber>,
    queues: Queues,
    directory: Directory,
    sketch: Sketch,
    /// How many pages the window may have beyond its size: the maximum number of free frames
    /// between the last two rounds of evictions, minus the one for the incoming page.
    slack: u32,
    /// The maximum number of free frames since the current round of evictions began.
    most_free: u32,
    /// Whether a page was read since the last eviction; if so, the next eviction begins a round.
    missed: bool,
}

impl WTinyLfu {
    /// Creates a policy for frames `0 .. frames`, with a window of 1 % of them.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, TinyLfuParameters::default())
    }

    /// Creates a policy with the given parameters.
    pub fn with(frames: u32, parameters: TinyLfuParameters) -> Self {
        Self {
            frames,
            window: (f64::from(frames) * parameters.window).max(1.0),
            protected_share: parameters.protected,
            climber: parameters.climb.then(|| Climber::new(frames)),
            queues: Queues::new(frames, 3),
            directory: Directory::new(frames, 0),
            sketch: Sketch::new(frames),
            slack: 0,
            most_free: 0,
            missed: false,
        }
    }

    fn sizes(&self) -> [u32; 3] {
        [WINDOW, PROBATION, PROTECTED].map(|list| self.queues.len(list))
    }

    /// Returns the size limits of the window and of the protected list.
    fn limits(&self) -> [u32; 2] {
        let window = self.window as u32;
        [window, (f64::from(self.frames - window) * self.protected_share) as u32]
    }

    fn used(&mut self, page: PageId, hit: bool) {
        self.sketch.count(page);
        if let Some(change) =
            self.climber.as_mut().and_then(|climber| climber.count(hit, self.frames))
        {
            self.window =
                (self.window + change).clamp(1.0, (f64::from(self.frames) * 0.8).max(1.0));
        }
    }

    fn frequency(&self, frame: u32) -> u32 {
        self.sketch.frequency(self.directory.page(frame))
    }

    fn free(&self) -> u32 {
        self.frames - self.sizes().iter().sum::<u32>()
    }

    /// Returns the oldest page of the window if it must compete: if the window would exceed its
    /// limit with the pages that will be read into free frames.
    fn candidate(&self) -> Option<u32> {
        self.queues
            .back(WINDOW)
            .filter(|_| self.queues.len(WINDOW) + self.free() >= self.limits()[0])
    }

    /// Moves pages beyond the window's limit to probation without a competition.
    fn spill(&mut self) {
        while self.queues.len(WINDOW) > self.limits()[0] + self.slack
            && let Some(oldest) = self.queues.back(WINDOW)
        {
            self.queues.move_to_front(PROBATION, oldest);
        }
    }

    fn leave(&mut self, frame: u32) -> Option<ListId> {
        let left = self.queues.remove(frame);
        self.most_free = self.most_free.max(self.free());
        left
    }
}

impl Policy for WTinyLfu {
    fn hit(&mut self, frame: FrameId) {
        let Some(list) = self.queues.list_of(frame.0) else { return };
        self.used(self.directory.page(frame.0), true);
        self.queues.move_to_front(if list == WINDOW { WINDOW } else { PROTECTED }, frame.0);
        if self.queues.len(PROTECTED) > self.limits()[1] {
            let last = self.queues.back(PROTECTED);
            last.into_iter().for_each(|frame| self.queues.move_to_front(PROBATION, frame));
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.used(page, false);
        self.directory.set(frame.0, page);
        self.queues.push_front(WINDOW, frame.0);
        self.spill();
        self.missed = true;
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        if std::mem::take(&mut self.missed) {
            self.slack = std::mem::take(&mut self.most_free).saturating_sub(1);
            self.spill();
        }
        let (candidate, victim) =
            (self.candidate(), self.queues.back(PROBATION).or(self.queues.back(PROTECTED)));
        let rejects =
            |victim| candidate.is_some_and(|page| self.frequency(page) <= self.frequency(victim));
        let order = if victim.is_none_or(rejects) {
            [WINDOW, PROBATION, PROTECTED]
        } else {
            [PROBATION, PROTECTED, WINDOW]
        };
        let taken = propose(order.into_iter().flat_map(|list| self.queues.iter_back(list)), probe)
            .break_value()??;
        if self.leave(taken.0) != Some(WINDOW)
            && order[0] != WINDOW
            && let Some(proved) = candidate
        {
            self.queues.move_to_front(PROBATION, proved);
        }
        Some(taken)
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame.0);
    }

    fn footprint(&self) -> Footprint {
        self.queues.footprint([WINDOW, PROBATION, PROTECTED])
    }

    fn validate(&self) -> Result<(), String> {
        self.queues.validate()?;
        self.sketch.validate()?;
        let ([window, _, protected], limits) = (self.sizes(), self.limits());
        let fixed = self.climber.is_none();
        ensure(!fixed || window <= limits[0] + self.slack, || {
            format!("{window} pages in a window of {}", limits[0])
        })?;
        ensure(!fixed || protected <= limits[1], || {
            format!("{protected} protected pages, not {}", limits[1])
        })?;
        ensure((1..=self.frames.max(1)).contains(&limits[0]), || {
            format!("a window of {} frames", limits[0])
        })
    }
}

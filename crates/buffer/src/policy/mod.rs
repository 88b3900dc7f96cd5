//! Which page leaves: replacement policies, and the wrappers that let threads share them.
//!
//! A [`Policy`] is plain and single-threaded, as its paper has it. A [`Replacement`] is what the pool calls from every
//! thread: [`Locked`] takes a latch at each access, and [`ClockSweep`] needs none on a hit because it keeps one
//! reference bit a frame. (BP-Wrapper's batching comes as another wrapper over the same policies.)
//!
//! Source: Ding, Jiang, Zhang: BP-Wrapper, ICDE 2009; its pgClock and pg2Q are [`ClockSweep`] and [`Locked`].

mod clock;
mod clock_sweep;
mod lru;

pub use clock::Clock;
pub use clock_sweep::ClockSweep;
pub use lru::Lru;

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{FrameId, PageId};
use std::fmt;
use std::str::FromStr;

/// The pool's answer to a proposed victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The frame was taken: forget it, and return it.
    Take,
    /// This frame cannot be taken now; propose the next.
    Skip,
    /// Propose no more.
    Stop,
}

/// A replacement policy over frames, for one thread. Knows neither pins nor latches nor dirt: it proposes victims.
pub trait Policy: Send {
    /// The page in `frame` was used. A frame that the policy does not know is to be ignored.
    fn hit(&mut self, frame: FrameId);
    /// `page` was brought into `frame`.
    fn miss(&mut self, frame: FrameId, page: PageId);
    /// Proposes victims in order until one is taken, which it forgets and returns; `None` if the answer was
    /// [`Probe::Stop`] or no frame is left to propose.
    fn evict(&mut self, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId>;
    /// `frame` no longer holds a page.
    fn remove(&mut self, frame: FrameId);
}

/// A replacement policy over frames, for all threads. The methods are those of [`Policy`].
pub trait Replacement: Send + Sync {
    /// The page in `frame` was used.
    fn hit(&self, frame: FrameId);
    /// `page` was brought into `frame`.
    fn miss(&self, frame: FrameId, page: PageId);
    /// Proposes victims; see [`Policy::evict`].
    fn evict(&self, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId>;
    /// `frame` no longer holds a page.
    fn remove(&self, frame: FrameId);
}

static POLICY: Class = Class::new("buffer.policy");

/// A policy behind a latch that every access takes. A policy only chooses victims: whatever state a panic leaves, its choices are probed
/// by the pool.
pub struct Locked<P>(Latch<P>);

impl<P: Policy> Locked<P> {
    /// Wraps a policy.
    pub fn new(policy: P) -> Self {
        Self(Latch::new(&POLICY, policy))
    }
}

impl<P: Policy> Replacement for Locked<P> {
    fn hit(&self, frame: FrameId) {
        self.0.lock().hit(frame);
    }
    fn miss(&self, frame: FrameId, page: PageId) {
        self.0.lock().miss(frame, page);
    }
    fn evict(&self, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
        self.0.lock().evict(probe)
    }
    fn remove(&self, frame: FrameId) {
        self.0.lock().remove(frame);
    }
}

/// The configured policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// [`ClockSweep`]: no lock on a hit.
    #[default]
    ClockSweep,
    /// [`Locked`] [`Clock`].
    Clock,
    /// [`Locked`] [`Lru`].
    Lru,
}

impl PolicyKind {
    /// The policy for a pool of `frames` frames.
    pub fn build(self, frames: u32) -> Box<dyn Replacement> {
        match self {
            Self::ClockSweep => Box::new(ClockSweep::new(frames)),
            Self::Clock => Box::new(Locked::new(Clock::new(frames))),
            Self::Lru => Box::new(Locked::new(Lru::new(frames))),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "clock-sweep" => Ok(Self::ClockSweep),
            "clock" => Ok(Self::Clock),
            "lru" => Ok(Self::Lru),
            _ => Err(format!("unknown replacement policy \"{name}\": clock-sweep, clock or lru")),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClockSweep => "clock-sweep",
            Self::Clock => "clock",
            Self::Lru => "lru",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::PartitionId;

    const PAGE: PageId = PageId::new(PartitionId(0), 0);

    fn evict_all(policy: &dyn Replacement) -> Vec<u32> {
        std::iter::from_fn(|| policy.evict(&mut |_| Probe::Take)).map(|f| f.0).collect()
    }

    #[test]
    fn lru_evicts_in_order_of_last_use() {
        let lru = PolicyKind::Lru.build(5);
        (0..5).for_each(|f| lru.miss(FrameId(f), PAGE));
        lru.hit(FrameId(0));
        lru.hit(FrameId(3));
        lru.hit(FrameId(0));
        lru.remove(FrameId(2));
        assert_eq!(evict_all(&*lru), [1, 4, 3, 0]);
        lru.hit(FrameId(1));
        assert_eq!(evict_all(&*lru), [0; 0], "a hit on a forgotten frame is ignored");
    }

    #[test]
    fn every_policy_proposes_each_frame_and_keeps_what_is_not_taken() {
        for kind in [PolicyKind::ClockSweep, PolicyKind::Clock, PolicyKind::Lru] {
            let policy = kind.build(8);
            (0..8).for_each(|f| policy.miss(FrameId(f), PAGE));
            let mut proposed = [false; 8];
            let found = policy.evict(&mut |f| {
                proposed[f.0 as usize] = true;
                Probe::Skip
            });
            assert_eq!((found, proposed), (None, [true; 8]), "{kind}");
            assert_eq!(policy.evict(&mut |_| Probe::Stop), None, "{kind}");
            policy.hit(FrameId(5));
            let mut evicted: Vec<_> = (0..7).filter_map(|_| policy.evict(&mut |_| Probe::Take)).map(|f| f.0).collect();
            assert!(!evicted.contains(&5), "{kind}: the one used since the sweep goes last: {evicted:?}");
            evicted.extend(policy.evict(&mut |_| Probe::Take).map(|f| f.0));
            evicted.sort_unstable();
            assert_eq!(evicted, [0, 1, 2, 3, 4, 5, 6, 7], "{kind}");
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }
}

//! Replacement policies: which page is evicted. Plain and single-threaded, as in their papers.
//!
//! Wrappers (`shared`) let threads share a policy. Any policy works unchanged in any wrapper: the
//! interface is that of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009).

mod arbiter;
mod arc;
mod arc_lists;
mod car;
mod clock;
mod clock_pro;
mod directory;
mod footprint;
mod lirs;
mod list;
mod lru;
mod mq;
mod queues;
mod s3_fifo;
mod seq;
mod shadow;
mod sieve;
mod sketch;
mod two_q;
mod uses;
mod w_tiny_lfu;

pub use arbiter::{Arbiter, ArbiterParameters};
pub use arc::ArcPolicy;
pub use car::Car;
pub use clock::ClockPolicy;
pub use clock_pro::ClockPro;
pub use directory::Directory;
pub use footprint::Footprint;
pub use lirs::Lirs;
pub(crate) use list::Links;
pub use list::{ListId, Lists};
pub use lru::Lru;
pub use mq::Mq;
pub use queues::Queues;
pub(crate) use s3_fifo::MAX_USES as S3_FIFO_MAX_USES;
pub use s3_fifo::S3Fifo;
pub use seq::{Seq, SeqParameters};
pub(crate) use sieve::MAX_USES as SIEVE_MAX_USES;
pub use sieve::Sieve;
pub use sketch::Sketch;
pub use two_q::TwoQ;
pub(crate) use uses::Counts;
pub use uses::Uses;
pub use w_tiny_lfu::{TinyLfuParameters, WTinyLfu};

use clearway_types::{FrameId, PageId};
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

/// The caller's answer to a proposed victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The caller has taken the frame: the policy forgets it and returns it.
    Take,
    /// The frame cannot be taken now: the policy proposes the next one.
    Skip,
    /// The policy proposes no more frames.
    Stop,
}

/// A single-threaded replacement policy over frames. It only proposes victims, and knows nothing of
/// pins, latches or dirty pages.
///
/// A policy that remembers evicted pages (ghosts) identifies them by page.
pub trait Policy: Send {
    /// Reports a use of the page in `frame`. Ignores a frame that the policy does not know.
    fn hit(&mut self, frame: FrameId);
    /// Reports that `page` was read into `frame`. The policy must know neither yet.
    fn miss(&mut self, frame: FrameId, page: PageId);
    /// Proposes victims in order until one is taken, then forgets and returns it. Returns `None` if
    /// the answer was [`Probe::Stop`] or no frame is left to propose.
    ///
    /// `incoming` is the page that the frame is for, if known. A policy whose choice depends on it
    /// (ARC) adapts to it here, and not again at the miss. A pool that frees frames ahead of need
    /// passes `None`.
    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId>;
    /// Reports that the page in `frame` was evicted, although it was not taken when it was
    /// proposed: it had to be written first. The policy remembers it like a victim. Ignores a frame
    /// that it does not know.
    fn remove(&mut self, frame: FrameId);
    /// Returns the memory that a hit touches, for wrappers that prefetch it. Called once, when the
    /// policy is wrapped.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }
    /// Checks the invariants, for tests: lists are well-formed, each known frame is in exactly one
    /// place, ghosts are within their bound, and counters match. O(n).
    fn validate(&self) -> Result<(), String>;
}

/// Returns an error with the given text if the condition does not hold.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Proposes frames in order. Breaks with the frame that was taken, or with `None` if the answer was
/// [`Probe::Stop`]. Continues if all frames were skipped.
fn propose(
    frames: impl IntoIterator<Item = u32>,
    probe: &mut dyn FnMut(FrameId) -> Probe,
) -> ControlFlow<Option<FrameId>> {
    for frame in frames.into_iter().map(FrameId) {
        match probe(frame) {
            Probe::Take => return ControlFlow::Break(Some(frame)),
            Probe::Skip => {}
            Probe::Stop => return ControlFlow::Break(None),
        }
    }
    ControlFlow::Continue(())
}

/// The kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// [`TwoQ`].
    TwoQ,
    /// [`Arbiter`].
    Arbiter,
    /// [`ArcPolicy`].
    Arc,
    /// [`Car`].
    Car,
    /// [`ClockPolicy`].
    Clock,
    /// [`ClockPro`].
    ClockPro,
    /// [`Lirs`].
    Lirs,
    /// [`Lru`].
    Lru,
    /// [`Mq`].
    Mq,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`Seq`].
    Seq,
    /// [`Sieve`].
    Sieve,
    /// [`WTinyLfu`].
    WTinyLfu,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: &[Self] = &[
        Self::TwoQ,
        Self::Arbiter,
        Self::Arc,
        Self::Car,
        Self::Clock,
        Self::ClockPro,
        Self::Lirs,
        Self::Lru,
        Self::Mq,
        Self::S3Fifo,
        Self::Seq,
        Self::Sieve,
        Self::WTinyLfu,
    ];

    /// Builds the policy for a pool of `frames` frames, with its paper's parameters.
    pub fn build(self, frames: u32) -> Box<dyn Policy> {
        match self {
            Self::TwoQ => Box::new(TwoQ::new(frames)),
            Self::Arbiter => Box::new(Arbiter::new(frames)),
            Self::Arc => Box::new(ArcPolicy::new(frames)),
            Self::Car => Box::new(Car::new(frames)),
            Self::Clock => Box::new(ClockPolicy::new(frames)),
            Self::ClockPro => Box::new(ClockPro::new(frames)),
            Self::Lirs => Box::new(Lirs::new(frames)),
            Self::Lru => Box::new(Lru::new(frames)),
            Self::Mq => Box::new(Mq::new(frames)),
            Self::S3Fifo => Box::new(S3Fifo::new(frames)),
            Self::Seq => Box::new(Seq::new(frames)),
            Self::Sieve => Box::new(Sieve::new(frames)),
            Self::WTinyLfu => Box::new(WTinyLfu::new(frames)),
        }
    }

    /// Returns the name used in configurations, tables and plots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TwoQ => "2q",
            Self::Arbiter => "arbiter",
            Self::Arc => "arc",
            Self::Car => "car",
            Self::Clock => "clock",
            Self::ClockPro => "clock-pro",
            Self::Lirs => "lirs",
            Self::Lru => "lru",
            Self::Mq => "mq",
            Self::S3Fifo => "s3-fifo",
            Self::Seq => "seq",
            Self::Sieve => "sieve",
            Self::WTinyLfu => "w-tinylfu",
        }
    }
}

impl FromStr for PolicyKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().find(|kind| kind.name() == name);
        found
            .copied()
            .ok_or_else(|| format!("unknown replacement policy \"{name}\"; available: {}", names()))
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::PartitionId;

    fn page(no: u32) -> PageId {
        PageId::new(PartitionId(0), no)
    }

    fn evict_all(policy: &mut dyn Policy) -> Vec<u32> {
        std::iter::from_fn(|| policy.evict(None, &mut |_| Probe::Take)).map(|f| f.0).collect()
    }

    #[test]
    fn lru_evicts_in_order_of_last_use() {
        let mut lru = Lru::new(5);
        (0..5).for_each(|f| lru.miss(FrameId(f), page(f)));
        lru.hit(FrameId(0));
        lru.hit(FrameId(3));
        lru.hit(FrameId(0));
        lru.remove(FrameId(2));
        assert_eq!(evict_all(&mut lru), [1, 4, 3, 0]);
        lru.hit(FrameId(1));
        assert_eq!(evict_all(&mut lru), [0; 0], "a hit on a removed frame is ignored");
    }

    #[test]
    fn policies_propose_all_frames_and_keep_skipped_ones() {
        for kind in PolicyKind::ALL {
            let mut policy = kind.build(8);
            (0..8).for_each(|f| policy.miss(FrameId(f), page(f)));
            let mut proposed = [false; 8];
            let found = policy.evict(None, &mut |f| {
                proposed[f.0 as usize] = true;
                Probe::Skip
            });
            assert_eq!((found, proposed), (None, [true; 8]), "{kind}");
            assert_eq!(policy.evict(None, &mut |_| Probe::Stop), None, "{kind}");
            policy.remove(FrameId(3));
            policy.remove(FrameId(3));
            policy.hit(FrameId(3));
            let mut evicted = evict_all(&mut *policy);
            evicted.sort_unstable();
            assert_eq!(evicted, [0, 1, 2, 4, 5, 6, 7], "{kind}");
            assert_eq!(kind.to_string().parse(), Ok(*kind));
        }
    }
}

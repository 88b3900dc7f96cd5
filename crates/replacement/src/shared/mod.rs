//! What lets the pool's threads share a replacement policy.
//!
//! A [`Replacement`] is what the pool calls from every thread. [`Locked`] takes a latch at each access, and [`Prefetched`] asks for what it will
//! touch first; [`Batched`] takes it once for many hits; with [`Combining`], the default of those, no hit waits for it; [`ClockSweep`], which is no wrapper, needs none on a hit because it keeps one
//! reference bit a frame, nor does [`UseCounted`], of the policies to which a hit is no more than that. [`Multilist`] is no wrapper either: LRU and ARC over sublists with a latch each.
//!
//! A wrapper knows its callers by the index of their thread ([`clearway_latch::thread_index`]). A simulation that plays many threads on one
//! calls `thread_index::act_as(index, || pages.hit(frame, page))`, and likewise for misses and evictions: what runs is the real thing.
//!
//! # Locking
//! The policy's latch (`buffer.policy`) is taken under no other but the write-back's turn, and what [`Replacement::evict`] and `remove` are given takes
//! the latch of a page-table shard under it.
//!
//! Source: Ding, Jiang, Zhang: BP-Wrapper, ICDE 2009; its five systems are [`ClockSweep`] (pgClock), [`Locked`] (pg2Q),
//! [`Prefetched`] (pgPref), and [`Batched`] without and with prefetching (pgBatching, pgBat-Pre).

mod batched;
mod clock_sweep;
mod combining;
mod locked;
mod multilist;
mod per_thread;
mod prefetched;
mod tagged;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod use_counted;

pub use batched::{Batched, QUEUE, THRESHOLD};
pub use clock_sweep::ClockSweep;
pub use combining::Combining;
pub use locked::Locked;
pub use multilist::{Multilist, MultilistKind};
pub use prefetched::Prefetched;
pub use use_counted::{UseCounted, UseCountedKind};

use crate::policy::{Counts, Policy, PolicyKind, Probe, Uses};
use clearway_latch::lockstat::Class;
use clearway_types::{FrameId, PageId};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

static POLICY: Class = Class::new("buffer.policy");

/// What stands behind the policy's name for [`Multilist`].
const MULTILIST: &str = "multilist";
/// What stands behind the policy's name for [`UseCounted`].
const MARKED: &str = "marked";

/// A replacement policy over frames, for all threads. The methods are those of [`crate::Policy`].
pub trait Replacement: Send + Sync {
    /// `page` was used in `frame`, which it may have left since.
    fn hit(&self, frame: FrameId, page: PageId);
    /// `page` was brought into `frame`.
    fn miss(&self, frame: FrameId, page: PageId);
    /// Proposes victims; see [`crate::Policy::evict`].
    fn evict(&self, incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId>;
    /// Has `take` take away the page in `frame`, which was proposed but could not be taken then; if it says that it has, the policy forgets the
    /// page as a victim. `take` is called once, where a probe is, so that the policy does not hear that the page is back before it has heard that
    /// it has left.
    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool);
}

/// How threads share a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WrapperKind {
    /// [`Combining`].
    #[default]
    Combining,
    /// [`Locked`].
    Locked,
    /// [`Prefetched`].
    Prefetched,
    /// [`Batched`] without prefetching.
    Batched,
    /// [`Batched`] with prefetching.
    BatchedPrefetched,
}

impl WrapperKind {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Combining, Self::Locked, Self::Prefetched, Self::Batched, Self::BatchedPrefetched];

    /// A policy of `frames` frames, wrapped.
    pub fn wrap(self, policy: Box<dyn Policy>, frames: u32) -> Box<dyn Replacement> {
        match self {
            Self::Combining => Box::new(Combining::new(policy, frames)),
            Self::Locked => Box::new(Locked::new(policy)),
            Self::Prefetched => Box::new(Prefetched::new(policy)),
            Self::Batched => Box::new(Batched::new(policy, frames, false)),
            Self::BatchedPrefetched => Box::new(Batched::new(policy, frames, true)),
        }
    }

    /// Its name in configurations, tables and plots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Combining => "combining",
            Self::Locked => "locked",
            Self::Prefetched => "prefetched",
            Self::Batched => "batched",
            Self::BatchedPrefetched => "batched-prefetched",
        }
    }
}

impl FromStr for WrapperKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().find(|kind| kind.name() == name);
        found.copied().ok_or_else(|| format!("unknown wrapper of policies \"{name}\"; there are {}", names()))
    }
}

/// Makes a replacement, for a pool of so many frames.
#[derive(Clone, Copy, Debug)]
pub enum ReplacementFactory {
    /// Of one that is told of hits.
    Notified(fn(u32) -> Box<dyn Replacement>),
    /// Of one to which a hit is nothing but one more in the frame's count, up to this bound, less than 255: the pool counts by itself.
    UseCounted(u8, fn(u32, Arc<dyn Uses>) -> Box<dyn Replacement>),
}

impl PartialEq for ReplacementFactory {
    /// Of one function: functions that do the same may be equal or not.
    fn eq(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Notified(make), Self::Notified(other)) => std::ptr::fn_addr_eq(make, other),
            (Self::UseCounted(most, make), Self::UseCounted(most_of_other, other)) => {
                most == most_of_other && std::ptr::fn_addr_eq(make, other)
            }
            _ => false,
        }
    }
}

impl Eq for ReplacementFactory {}

/// How the pool chooses victims: written `clock-sweep`, `POLICY`, or `POLICY/WRAPPER`, as `lru/locked`; `lru/multilist`, `arc/multilist`, `s3-fifo/marked` and `sieve/marked`. A policy alone is in the
/// wrapper that suits it: [`UseCounted`], if it is one of those, else the default one. By default `s3-fifo/marked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementKind {
    /// [`ClockSweep`]: no lock on a hit.
    ClockSweep,
    /// Any policy in any wrapper.
    Wrapped(PolicyKind, WrapperKind),
    /// [`Multilist`]: no wrapper of any policy, but written as one.
    Multilist(MultilistKind),
    /// [`UseCounted`]: for policies that it suits, but written as any wrapper.
    UseCounted(UseCountedKind),
    /// One that the pool's user makes. It has no name to be chosen by.
    Custom(ReplacementFactory),
}

impl Default for ReplacementKind {
    fn default() -> Self {
        Self::UseCounted(UseCountedKind::S3Fifo)
    }
}

impl ReplacementKind {
    /// For a pool of `frames` frames.
    pub fn build(self, frames: u32) -> Box<dyn Replacement> {
        self.build_over(frames, |most| Arc::new(Counts::new(frames, most)))
    }

    /// The same, where the frames' uses are counted, if they are, in what `uses` makes for a bound.
    pub fn build_over(self, frames: u32, uses: impl FnOnce(u8) -> Arc<dyn Uses>) -> Box<dyn Replacement> {
        match self {
            Self::ClockSweep => Box::new(ClockSweep::over(frames, uses(clock_sweep::USED))),
            Self::UseCounted(kind) => {
                let uses = uses(kind.most_uses());
                kind.wrap(kind.build(frames, uses.clone()), uses)
            }
            Self::Wrapped(policy, wrapper) => wrapper.wrap(policy.build(frames), frames),
            Self::Multilist(kind) => Box::new(Multilist::new(kind, frames)),
            Self::Custom(ReplacementFactory::Notified(make)) => make(frames),
            Self::Custom(ReplacementFactory::UseCounted(most, make)) => make(frames, uses(most)),
        }
    }

    /// The bound, if to what [`ReplacementKind::build_over`] makes a hit is nothing but one more in the frame's count, up to it: who has the counts
    /// then counts by himself.
    pub const fn counts_uses(self) -> Option<u8> {
        match self {
            Self::ClockSweep => Some(clock_sweep::USED),
            Self::UseCounted(kind) => Some(kind.most_uses()),
            Self::Custom(ReplacementFactory::UseCounted(most, _)) => Some(most),
            Self::Custom(ReplacementFactory::Notified(_)) | Self::Wrapped(..) | Self::Multilist(_) => None,
        }
    }

    /// Every policy in every wrapper, and the others.
    pub fn all() -> impl Iterator<Item = Self> {
        let wrapped = |policy| WrapperKind::ALL.iter().map(move |wrapper| Self::Wrapped(policy, *wrapper));
        let multilists = MultilistKind::ALL.iter().copied().map(Self::Multilist);
        let marked = UseCountedKind::ALL.iter().copied().map(Self::UseCounted);
        let wrapped = PolicyKind::ALL.iter().copied().flat_map(wrapped);
        std::iter::once(Self::ClockSweep).chain(wrapped).chain(multilists).chain(marked)
    }
}

impl FromStr for ReplacementKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "clock-sweep" {
            return Ok(Self::ClockSweep);
        }
        let (policy, wrapper) = name.split_once('/').map_or((name, None), |(policy, how)| (policy, Some(how)));
        let policy: PolicyKind = policy.parse().map_err(|error| format!("{error}, clock-sweep"))?;
        let marked = UseCountedKind::ALL.iter().find(|kind| kind.policy() == policy).copied().map(Self::UseCounted);
        let Some(wrapper) = wrapper else {
            return Ok(marked.unwrap_or(Self::Wrapped(policy, WrapperKind::default())));
        };
        let only = |works: Vec<PolicyKind>, what: &str| {
            let works = works.iter().map(|policy| format!("{policy}/{wrapper}")).collect::<Vec<_>>().join(" and ");
            format!("\"{name}\": only {works} {what}; use {policy}/{}", WrapperKind::default().name())
        };
        match wrapper {
            MULTILIST => {
                let kind = MultilistKind::ALL.iter().find(|kind| kind.policy() == policy);
                let works = || MultilistKind::ALL.iter().map(|kind| kind.policy()).collect();
                kind.copied().map(Self::Multilist).ok_or_else(|| only(works(), "keep their order in sublists"))
            }
            MARKED => {
                let works = || UseCountedKind::ALL.iter().map(|kind| kind.policy()).collect();
                marked.ok_or_else(|| only(works(), "hear of hits by marks alone"))
            }
            wrapper => {
                let wrapper = wrapper.parse().map_err(|error| format!("{error}, {MULTILIST}, {MARKED}"))?;
                Ok(Self::Wrapped(policy, wrapper))
            }
        }
    }
}

impl fmt::Display for ReplacementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockSweep => f.write_str("clock-sweep"),
            Self::Wrapped(policy, wrapper) => write!(f, "{policy}/{}", wrapper.name()),
            Self::Multilist(kind) => write!(f, "{}/{MULTILIST}", kind.policy()),
            Self::UseCounted(kind) => write!(f, "{}/{MARKED}", kind.policy()),
            Self::Custom(_) => f.write_str("custom"),
        }
    }
}

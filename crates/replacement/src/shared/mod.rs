//! How threads share a replacement policy.
//!
//! A [`Replacement`] is called from every thread. Wrappers make one of any policy:
//!
//! - [`Locked`] takes the policy's latch on every access.
//! - [`Prefetched`] does the same, but first prefetches what the access will touch.
//! - [`Batched`] queues hits by thread and takes the latch once for many of them.
//! - [`Combining`], the default wrapper, does so without ever waiting on a hit.
//! - [`UseCounted`] needs no latch on a hit, for policies to which a hit only counts a use.
//!
//! Two are not wrappers: [`ClockSweep`] keeps one reference bit a frame and takes no latch at all,
//! and [`Multilist`] is LRU or ARC over sublists that have a latch each.
//!
//! A wrapper identifies its callers by thread index ([`clearway_latch::thread_index`]). A
//! simulation that plays many threads on one calls `thread_index::act_as(index, || pages.hit(frame,
//! page))`.
//!
//! # Locking
//! A caller of the pool holds no latch except the write-back's turn when it takes the policy's
//! latch (`buffer.policy`). The closures passed to [`Replacement::evict`] and
//! [`Replacement::remove`] run under it, and take the latch of a page-table shard.
//!
//! # Source
//! Ding, Jiang, Zhang: BP-Wrapper, ICDE 2009. Its five systems are [`ClockSweep`] (pgClock),
//! [`Locked`] (pg2Q), [`Prefetched`] (pgPref), and [`Batched`] without and with prefetching
//! (pgBatching, pgBat-Pre).

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

/// Follows the policy's name in the name of a [`Multilist`].
const MULTILIST: &str = "multilist";
/// Follows the policy's name in the name of a [`UseCounted`].
const MARKED: &str = "marked";

/// A replacement policy over frames that all threads call. Its methods are those of
/// [`crate::Policy`].
pub trait Replacement: Send + Sync {
    /// Reports a use of `page` in `frame`. The page may have left the frame since.
    fn hit(&self, frame: FrameId, page: PageId);
    /// Reports that `page` was brought into `frame`.
    fn miss(&self, frame: FrameId, page: PageId);
    /// Proposes victims; see [`crate::Policy::evict`].
    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId>;
    /// Removes the page in `frame`, which could not be taken when it was proposed. Calls `take`
    /// once; if that returns true, the page is gone and the policy forgets it as it forgets a
    /// victim. `take` runs where a probe would, so that the policy hears of the page's return only
    /// after its departure.
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
    pub const ALL: &[Self] =
        &[Self::Combining, Self::Locked, Self::Prefetched, Self::Batched, Self::BatchedPrefetched];

    /// Wraps a policy of `frames` frames.
    pub fn wrap(self, policy: Box<dyn Policy>, frames: u32) -> Box<dyn Replacement> {
        match self {
            Self::Combining => Box::new(Combining::new(policy, frames)),
            Self::Locked => Box::new(Locked::new(policy)),
            Self::Prefetched => Box::new(Prefetched::new(policy)),
            Self::Batched => Box::new(Batched::new(policy, frames, false)),
            Self::BatchedPrefetched => Box::new(Batched::new(policy, frames, true)),
        }
    }

    /// Returns whether somebody would choose it for a pool. The others exist to be measured beside
    /// it.
    pub const fn is_offered(self) -> bool {
        matches!(self, Self::Combining)
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
        found
            .copied()
            .ok_or_else(|| format!("unknown wrapper of policies \"{name}\"; there are {}", names()))
    }
}

/// A function that builds a replacement for a pool of the given number of frames.
#[derive(Clone, Copy, Debug)]
pub enum ReplacementFactory {
    /// Builds one that must be notified of every hit.
    Notified(fn(u32) -> Box<dyn Replacement>),
    /// Builds one to which a hit only raises the frame's count, up to this bound, which is less
    /// than 255. The pool counts by itself and passes its counts in.
    UseCounted(u8, fn(u32, Arc<dyn Uses>) -> Box<dyn Replacement>),
}

impl PartialEq for ReplacementFactory {
    /// Compares the functions' addresses: two functions that do the same may be unequal.
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

/// How a pool chooses victims.
///
/// Its name is `clock-sweep`, `POLICY`, or `POLICY/WRAPPER`: `lru/combining`, `lru/multilist`,
/// `s3-fifo/marked`. A policy alone is put into the wrapper that suits it: [`UseCounted`]
/// (`marked`) if it is one of those, otherwise the default. The default is `s3-fifo/marked`.
///
/// Wrappers that exist only to be measured ([`WrapperKind::is_offered`]) are not read from a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementKind {
    /// [`ClockSweep`]: takes no lock on a hit.
    ClockSweep,
    /// Any policy in any wrapper.
    Wrapped(PolicyKind, WrapperKind),
    /// [`Multilist`]: no wrapper, but named like one.
    Multilist(MultilistKind),
    /// [`UseCounted`]: only for the policies that it suits, but named like a wrapper.
    UseCounted(UseCountedKind),
    /// One that the pool's user builds. It has no name that selects it.
    Custom(ReplacementFactory),
}

impl Default for ReplacementKind {
    fn default() -> Self {
        Self::UseCounted(UseCountedKind::S3Fifo)
    }
}

impl ReplacementKind {
    /// Builds it for a pool of `frames` frames.
    pub fn build(self, frames: u32) -> Box<dyn Replacement> {
        self.build_over(frames, |most| Arc::new(Counts::new(frames, most)))
    }

    /// As [`Self::build`]; if uses of frames are counted, they are counted in what `uses` returns
    /// for the bound.
    pub fn build_over(
        self,
        frames: u32,
        uses: impl FnOnce(u8) -> Arc<dyn Uses>,
    ) -> Box<dyn Replacement> {
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

    /// Returns the bound of the count if a hit only raises the frame's count. Whoever has the
    /// counts then counts by itself, instead of calling [`Replacement::hit`].
    pub const fn counts_uses(self) -> Option<u8> {
        match self {
            Self::ClockSweep => Some(clock_sweep::USED),
            Self::UseCounted(kind) => Some(kind.most_uses()),
            Self::Custom(ReplacementFactory::UseCounted(most, _)) => Some(most),
            Self::Custom(ReplacementFactory::Notified(_))
            | Self::Wrapped(..)
            | Self::Multilist(_) => None,
        }
    }

    /// Returns every policy in every wrapper, and the others except [`ReplacementKind::Custom`].
    pub fn all() -> impl Iterator<Item = Self> {
        let wrapped =
            |policy| WrapperKind::ALL.iter().map(move |wrapper| Self::Wrapped(policy, *wrapper));
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
        let (policy, wrapper) =
            name.split_once('/').map_or((name, None), |(policy, how)| (policy, Some(how)));
        let policy: PolicyKind = policy.parse().map_err(|error| format!("{error}, clock-sweep"))?;
        let marked = UseCountedKind::ALL
            .iter()
            .find(|kind| kind.policy() == policy)
            .copied()
            .map(Self::UseCounted);
        let Some(wrapper) = wrapper else {
            return Ok(marked.unwrap_or(Self::Wrapped(policy, WrapperKind::default())));
        };
        let only = |works: Vec<PolicyKind>, what: &str| {
            let works = works
                .iter()
                .map(|policy| format!("{policy}/{wrapper}"))
                .collect::<Vec<_>>()
                .join(" and ");
            format!(
                "\"{name}\": only {works} {what}; use {policy}/{}",
                WrapperKind::default().name()
            )
        };
        match wrapper {
            MULTILIST => {
                let kind = MultilistKind::ALL.iter().find(|kind| kind.policy() == policy);
                let works = || MultilistKind::ALL.iter().map(|kind| kind.policy()).collect();
                kind.copied()
                    .map(Self::Multilist)
                    .ok_or_else(|| only(works(), "keep their order in sublists"))
            }
            MARKED => {
                let works = || UseCountedKind::ALL.iter().map(|kind| kind.policy()).collect();
                marked.ok_or_else(|| only(works(), "hear of hits by marks alone"))
            }
            wrapper => {
                let offered = WrapperKind::ALL
                    .iter()
                    .find(|kind| kind.is_offered() && kind.name() == wrapper);
                let unknown = || {
                    let offered = WrapperKind::default().name();
                    format!(
                        "unknown wrapper of policies \"{wrapper}\"; there are {offered}, {MULTILIST}, {MARKED}"
                    )
                };
                offered.map(|wrapper| Self::Wrapped(policy, *wrapper)).ok_or_else(unknown)
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

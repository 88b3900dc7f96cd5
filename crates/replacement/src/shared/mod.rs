//! Lets threads share a replacement policy.
//!
//! A [`Replacement`] is called from every thread. A wrapper turns any policy into one:
//!
//! - [`Locked`] takes the policy's latch on every access.
//! - [`Prefetched`] does the same, but first prefetches what the access will touch.
//! - [`Batched`] queues hits by thread and takes the latch once for many of them.
//! - [`Combining`], the default wrapper, also queues hits but never waits on a hit.
//! - [`UseCounted`] needs no latch on a hit; it suits policies for which a hit only counts a use.
//!
//! Two implementations are not wrappers: [`ClockSweep`] keeps one reference bit per frame and takes
//! no latch at all, and [`Multilist`] is LRU or ARC over sublists with a latch each.
//!
//! A wrapper identifies its callers by thread index ([`clearway_latch::thread_index`]). A
//! simulation of many threads on one thread calls
//! `clearway_latch::conformance::as_thread(index, || pages.hit(frame, page))`.
//!
//! # Locking
//! A caller in the pool holds no latch except the write-back's turn when it takes the policy's
//! latch (`buffer.policy`). The closures passed to [`Replacement::evict`] and
//! [`Replacement::remove`] run under the policy's latch, and take the latch of a page-table shard.
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

pub use batched::{Batched, Prefetching, QUEUE, THRESHOLD};
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

/// A thread-safe replacement policy over frames. Its methods correspond to those of
/// [`crate::Policy`].
pub trait Replacement: Send + Sync {
    /// Reports a use of `page` in `frame`. The page may have left the frame meanwhile.
    fn hit(&self, frame: FrameId, page: PageId);
    /// Reports that `page` was read into `frame`.
    fn miss(&self, frame: FrameId, page: PageId);
    /// Proposes victims; see [`crate::Policy::evict`].
    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId>;
    /// Removes the page in `frame`, which could not be taken when it was proposed. Calls `take`
    /// once. If `take` returns true, the page was evicted, and the policy remembers it like a
    /// victim. `take` runs where a probe would, so that the policy is notified of the page's next
    /// miss only after its removal.
    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool);
}

/// The kinds of wrappers.
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
    /// All wrappers.
    pub const ALL: &[Self] =
        &[Self::Combining, Self::Locked, Self::Prefetched, Self::Batched, Self::BatchedPrefetched];

    /// Wraps a policy of `frames` frames.
    pub fn wrap(self, policy: Box<dyn Policy>, frames: u32) -> Box<dyn Replacement> {
        match self {
            Self::Combining => Box::new(Combining::new(policy, frames)),
            Self::Locked => Box::new(Locked::new(policy)),
            Self::Prefetched => Box::new(Prefetched::new(policy)),
            Self::Batched => Box::new(Batched::new(policy, frames, Prefetching::Off)),
            Self::BatchedPrefetched => Box::new(Batched::new(policy, frames, Prefetching::On)),
        }
    }

    /// Returns true if the wrapper is a reasonable choice for a pool. The others exist only for
    /// comparisons.
    pub const fn is_offered(self) -> bool {
        matches!(self, Self::Combining)
    }

    /// Returns the name used in configurations, tables and plots.
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
        found.copied().ok_or_else(|| {
            format!("unknown wrapper of policies \"{name}\"; available: {}", names())
        })
    }
}

/// A function that builds a replacement for a pool of the given number of frames.
#[derive(Clone, Copy, Debug)]
pub enum ReplacementFactory {
    /// Builds a replacement that must be notified of every hit.
    Notified(fn(u32) -> Box<dyn Replacement>),
    /// Builds a replacement for which a hit only raises the frame's count, up to this bound, which
    /// is less than 255. The pool counts the hits itself and passes its counts in.
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
/// Its name is `clock-sweep`, `POLICY`, or `POLICY/WRAPPER`, for example `lru/combining`,
/// `lru/multilist`, `s3-fifo/marked`. A policy without a wrapper gets the one that suits it:
/// [`UseCounted`] (`marked`) if the policy supports it, otherwise the default wrapper. The default
/// is `s3-fifo/marked`.
///
/// Wrappers that exist only for comparisons ([`WrapperKind::is_offered`]) cannot be parsed from a
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementKind {
    /// [`ClockSweep`]: takes no lock on a hit.
    ClockSweep,
    /// Any policy in any wrapper.
    Wrapped(PolicyKind, WrapperKind),
    /// [`Multilist`]: no wrapper, but named like one.
    Multilist(MultilistKind),
    /// [`UseCounted`]: only for the policies that support it, but named like a wrapper.
    UseCounted(UseCountedKind),
    /// A replacement that the pool's user builds. No name selects it.
    Custom(ReplacementFactory),
}

impl Default for ReplacementKind {
    fn default() -> Self {
        Self::UseCounted(UseCountedKind::S3Fifo)
    }
}

impl ReplacementKind {
    /// Builds the replacement for a pool of `frames` frames.
    pub fn build(self, frames: u32) -> Box<dyn Replacement> {
        self.build_over(frames, |most| Arc::new(Counts::new(frames, most)))
    }

    /// Builds the replacement as [`Self::build`] does. If it counts uses, it counts them in what
    /// `uses` returns for the bound.
    pub fn build_over(
        self,
        frames: u32,
        uses: impl FnOnce(u8) -> Arc<dyn Uses>,
    ) -> Box<dyn Replacement> {
        match self {
            Self::ClockSweep => Box::new(ClockSweep::over(frames, uses(clock_sweep::USED))),
            Self::UseCounted(kind) => {
                let uses = uses(kind.max_uses());
                kind.wrap(kind.build(frames, uses.clone()), uses)
            }
            Self::Wrapped(policy, wrapper) => wrapper.wrap(policy.build(frames), frames),
            Self::Multilist(kind) => Box::new(Multilist::new(kind, frames)),
            Self::Custom(ReplacementFactory::Notified(make)) => make(frames),
            Self::Custom(ReplacementFactory::UseCounted(most, make)) => make(frames, uses(most)),
        }
    }

    /// Returns the bound of the count if a hit only raises the frame's count. In that case the
    /// owner of the counts counts hits itself, instead of calling [`Replacement::hit`].
    pub const fn counts_uses(self) -> Option<u8> {
        match self {
            Self::ClockSweep => Some(clock_sweep::USED),
            Self::UseCounted(kind) => Some(kind.max_uses()),
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
        let policy: PolicyKind = policy.parse().map_err(|error| {
            let multilists = MultilistKind::ALL.iter().copied().map(Self::Multilist);
            let others = std::iter::once(Self::ClockSweep).chain(multilists);
            format!("{error}{}", others.map(|kind| format!(", {kind}")).collect::<String>())
        })?;
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
                kind.copied().map(Self::Multilist).ok_or_else(|| only(works(), "have sublists"))
            }
            MARKED => {
                let works = || UseCountedKind::ALL.iter().map(|kind| kind.policy()).collect();
                marked.ok_or_else(|| only(works(), "only count uses on a hit"))
            }
            wrapper => {
                let offered = WrapperKind::ALL
                    .iter()
                    .find(|kind| kind.is_offered() && kind.name() == wrapper);
                let unknown = || {
                    let offered = WrapperKind::default().name();
                    format!(
                        "unknown wrapper of policies \"{wrapper}\"; \
                         available: {offered}, {MULTILIST}, {MARKED}"
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

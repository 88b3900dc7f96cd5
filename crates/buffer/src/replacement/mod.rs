//! What lets the pool's threads share a replacement policy.
//!
//! A [`Replacement`] is what the pool calls from every thread. [`Locked`] takes a latch at each access; [`ClockSweep`], which is no
//! wrapper, needs none on a hit because it keeps one reference bit a frame.
//!
//! # Locking
//! The policy's latch (`buffer.policy`) is taken under no other but the write-back's turn, and the probe of [`Replacement::evict`] takes
//! the latch of a page-table shard under it.
//!
//! Source: Ding, Jiang, Zhang: BP-Wrapper, ICDE 2009; its pgClock and pg2Q are [`ClockSweep`] and [`Locked`].

mod clock_sweep;
mod locked;

pub use clock_sweep::ClockSweep;
pub use locked::Locked;

use crate::policy::{PolicyKind, Probe};
use clearway_latch::lockstat::Class;
use clearway_types::{FrameId, PageId};
use std::fmt;
use std::str::FromStr;

static POLICY: Class = Class::new("buffer.policy");

/// A replacement policy over frames, for all threads. The methods are those of [`crate::Policy`].
pub trait Replacement: Send + Sync {
    /// `page` was used in `frame`, which it may have left since.
    fn hit(&self, frame: FrameId, page: PageId);
    /// `page` was brought into `frame`.
    fn miss(&self, frame: FrameId, page: PageId);
    /// Proposes victims; see [`crate::Policy::evict`].
    fn evict(&self, incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId>;
    /// The page in `frame` has left after it had been proposed.
    fn remove(&self, frame: FrameId);
}

/// How threads share a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WrapperKind {
    /// [`Locked`].
    #[default]
    Locked,
}

impl WrapperKind {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Locked];

    /// Its name in configurations, tables and plots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Locked => "locked",
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

/// How the pool chooses victims: written `clock-sweep`, `POLICY`, or `POLICY/WRAPPER`, as `lru/locked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplacementKind {
    /// [`ClockSweep`]: no lock on a hit.
    #[default]
    ClockSweep,
    /// Any policy in any wrapper.
    Wrapped(PolicyKind, WrapperKind),
}

impl ReplacementKind {
    /// For a pool of `frames` frames.
    pub fn build(self, frames: u32) -> Box<dyn Replacement> {
        match self {
            Self::ClockSweep => Box::new(ClockSweep::new(frames)),
            Self::Wrapped(policy, WrapperKind::Locked) => Box::new(Locked::new(policy.build(frames))),
        }
    }

    /// Every policy in every wrapper, and the others.
    pub fn all() -> impl Iterator<Item = Self> {
        let wrapped = |policy| WrapperKind::ALL.iter().map(move |wrapper| Self::Wrapped(policy, *wrapper));
        std::iter::once(Self::ClockSweep).chain(PolicyKind::ALL.iter().copied().flat_map(wrapped))
    }
}

impl FromStr for ReplacementKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "clock-sweep" {
            return Ok(Self::ClockSweep);
        }
        let (policy, wrapper) = match name.split_once('/') {
            Some((policy, wrapper)) => (policy, wrapper.parse()?),
            None => (name, WrapperKind::default()),
        };
        Ok(Self::Wrapped(policy.parse().map_err(|error| format!("{error}, clock-sweep"))?, wrapper))
    }
}

impl fmt::Display for ReplacementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockSweep => f.write_str("clock-sweep"),
            Self::Wrapped(policy, wrapper) => write!(f, "{policy}/{}", wrapper.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_types::PartitionId;

    fn page(no: u32) -> PageId {
        PageId::new(PartitionId(0), no)
    }

    #[test]
    fn every_replacement_proposes_each_frame_and_keeps_what_is_not_taken() {
        for kind in ReplacementKind::all() {
            let pages = kind.build(8);
            (0..8).for_each(|f| pages.miss(FrameId(f), page(f)));
            let mut proposed = [false; 8];
            let found = pages.evict(None, &mut |f| {
                proposed[f.0 as usize] = true;
                Probe::Skip
            });
            assert_eq!((found, proposed), (None, [true; 8]), "{kind}");
            assert_eq!(pages.evict(None, &mut |_| Probe::Stop), None, "{kind}");
            pages.remove(FrameId(3));
            pages.hit(FrameId(3), page(3));
            let evict = || pages.evict(None, &mut |_| Probe::Take).map(|f| f.0);
            let mut evicted: Vec<_> = std::iter::from_fn(evict).collect();
            evicted.sort_unstable();
            assert_eq!(evicted, [0, 1, 2, 4, 5, 6, 7], "{kind}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for kind in ReplacementKind::all() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("lru".parse(), Ok(ReplacementKind::Wrapped(PolicyKind::Lru, WrapperKind::default())));
        let error = "fifo".parse::<ReplacementKind>().unwrap_err();
        assert!(error.contains("\"fifo\"") && error.contains("lru") && error.contains("clock-sweep"), "{error}");
        let error = "lru/free".parse::<ReplacementKind>().unwrap_err();
        assert!(error.contains("\"free\"") && error.contains("locked"), "{error}");
    }
}

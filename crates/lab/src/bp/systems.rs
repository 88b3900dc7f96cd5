//! The source's five systems and our default: one policy, shared in different ways.

use crate::simulator::{Blocks, Called, System, Wrap};
use clearway_replacement::{
    Batched, ClockSweep, PolicyKind, Prefetching, QUEUE, Replacement, ReplacementFactory,
    ReplacementKind, THRESHOLD, WrapperKind,
};

/// A policy and how threads share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The policy.
    pub policy: PolicyKind,
    /// How threads share it.
    pub how: How,
}

/// How threads share a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Not shared: represented by the clock without a lock.
    Clock,
    /// The lock at each access.
    Locked,
    /// The lock at each access, with prefetching.
    Prefetched,
    /// One queue per thread.
    Batched,
    /// One queue per thread, with prefetching.
    BatchedPrefetched,
    /// The engine's default wrapper.
    Default,
}

impl How {
    /// The source's five systems in its order, and our default.
    pub const ALL: [Self; 6] = [
        Self::Clock,
        Self::Locked,
        Self::Prefetched,
        Self::Batched,
        Self::BatchedPrefetched,
        Self::Default,
    ];

    fn wrapper(self) -> Option<WrapperKind> {
        match self {
            Self::Clock => None,
            Self::Locked => Some(WrapperKind::Locked),
            Self::Prefetched => Some(WrapperKind::Prefetched),
            Self::Batched => Some(WrapperKind::Batched),
            Self::BatchedPrefetched => Some(WrapperKind::BatchedPrefetched),
            Self::Default => Some(WrapperKind::default()),
        }
    }
}

impl Shared {
    /// Returns the source's five systems and our default with this policy. Our default may be one
    /// of the five.
    pub fn all(policy: PolicyKind) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for shared in How::ALL.map(|how| Self { policy, how }) {
            if all.iter().all(|other| other.kind() != shared.kind()) {
                all.push(shared);
            }
        }
        all
    }

    /// Returns the configuration of the pool.
    pub fn kind(self) -> ReplacementKind {
        self.how.wrapper().map_or(ReplacementKind::ClockSweep, |wrapper| {
            ReplacementKind::Wrapped(self.policy, wrapper)
        })
    }

    /// Returns the name in tables.
    pub fn name(self) -> String {
        self.kind().to_string()
    }

    /// Returns the system for the simulator.
    pub fn system(self) -> System {
        let wrap: Wrap = match self.how {
            How::Clock => |_, frames| Box::new(ClockSweep::new(frames)),
            How::Locked => |policy, frames| WrapperKind::Locked.wrap(policy, frames),
            How::Prefetched => |policy, frames| WrapperKind::Prefetched.wrap(policy, frames),
            How::Batched => |policy, frames| WrapperKind::Batched.wrap(policy, frames),
            How::BatchedPrefetched => {
                |policy, frames| WrapperKind::BatchedPrefetched.wrap(policy, frames)
            }
            How::Default => |policy, frames| WrapperKind::default().wrap(policy, frames),
        };
        let (blocks, prefetches) = match self.how.wrapper() {
            Some(WrapperKind::Locked) => (Blocks::Always, false),
            Some(WrapperKind::Prefetched) => (Blocks::Always, true),
            Some(WrapperKind::Batched) => (QUEUES, false),
            Some(WrapperKind::BatchedPrefetched) => (QUEUES, true),
            _ => (Blocks::Never, false),
        };
        System { called: Called::Wrapped(self.policy, wrap), blocks, prefetches }
    }
}

/// When hits wait for the latch with the source's queues.
const QUEUES: Blocks = Blocks::Full { queue: QUEUE, threshold: THRESHOLD };

/// Batching with chosen S and T, for the simulator and for the pool.
#[derive(Clone, Copy)]
pub struct Sized {
    /// Queue capacity: the source's S.
    pub queue: u32,
    /// Hits after which the latch is tried: the source's T.
    pub threshold: u32,
    wrap: Wrap,
    build: fn(u32) -> Box<dyn Replacement>,
}

/// The source's policy in the experiments on sizes.
pub const POLICY: PolicyKind = PolicyKind::TwoQ;

const fn sized<const S: u32, const T: u32>() -> Sized {
    Sized {
        queue: S,
        threshold: T,
        wrap: |policy, frames| {
            Box::new(Batched::with_sizes(policy, frames, Prefetching::Off, S, T))
        },
        build: |frames| {
            Box::new(Batched::with_sizes(POLICY.build(frames), frames, Prefetching::Off, S, T))
        },
    }
}

impl Sized {
    /// Sizes of the source's table II: S = 2 to 64, T = S / 2.
    pub const HALF: [Self; 6] = [
        sized::<2, 1>(),
        sized::<4, 2>(),
        sized::<8, 4>(),
        sized::<16, 8>(),
        sized::<32, 16>(),
        sized::<64, 32>(),
    ];
    /// Sizes of table III: S = 64, T = 1 to 64.
    pub const OF_64: [Self; 7] = [
        sized::<64, 1>(),
        sized::<64, 2>(),
        sized::<64, 4>(),
        sized::<64, 8>(),
        sized::<64, 16>(),
        sized::<64, 32>(),
        sized::<64, 64>(),
    ];
    /// Batches of exactly this size, as in figure 2: the latch is not tried before the queue is
    /// full.
    pub const BATCHES: [Self; 7] = [
        sized::<1, 1>(),
        sized::<2, 2>(),
        sized::<4, 4>(),
        sized::<8, 8>(),
        sized::<16, 16>(),
        sized::<32, 32>(),
        sized::<64, 64>(),
    ];

    /// Returns the configuration of the pool.
    pub fn kind(&self) -> ReplacementKind {
        ReplacementKind::Custom(ReplacementFactory::Notified(self.build))
    }

    /// Returns the system for the simulator.
    pub fn system(&self) -> System {
        let blocks = Blocks::Full { queue: self.queue, threshold: self.threshold };
        System { called: Called::Wrapped(POLICY, self.wrap), blocks, prefetches: false }
    }
}

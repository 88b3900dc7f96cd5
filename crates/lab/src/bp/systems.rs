//! The source's five systems, and ours: one policy, shared by threads in one way or another.

use crate::simulator::{Blocks, Called, System, Wrap};
use clearway_replacement::{
    Batched, ClockSweep, PolicyKind, QUEUE, Replacement, ReplacementFactory, ReplacementKind,
    THRESHOLD, WrapperKind,
};

/// A policy, shared so.
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
    /// Not at all: the clock without a lock stands for it.
    Clock,
    /// The lock at each access.
    Locked,
    /// The same, with prefetching.
    Prefetched,
    /// A queue a thread.
    Batched,
    /// Both.
    BatchedPrefetched,
    /// The engine's default.
    Default,
}

impl How {
    /// The source's five, in its order, and ours.
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
    /// The source's five systems and ours, with this policy. Ours may be one of the five.
    pub fn all(policy: PolicyKind) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for shared in How::ALL.map(|how| Self { policy, how }) {
            if all.iter().all(|other| other.kind() != shared.kind()) {
                all.push(shared);
            }
        }
        all
    }

    /// As the pool is configured.
    pub fn kind(self) -> ReplacementKind {
        self.how.wrapper().map_or(ReplacementKind::ClockSweep, |wrapper| {
            ReplacementKind::Wrapped(self.policy, wrapper)
        })
    }

    /// As tables call it.
    pub fn name(self) -> String {
        self.kind().to_string()
    }

    /// As it is simulated.
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

/// When hits in the source's queues wait.
const QUEUES: Blocks = Blocks::Full { queue: QUEUE, threshold: THRESHOLD };

/// Batching with S and T of the caller's choice, for the simulator and for the pool.
#[derive(Clone, Copy)]
pub struct Sized {
    /// Room of a queue: the source's S.
    pub queue: u32,
    /// From how many hits on the latch is tried: the source's T.
    pub threshold: u32,
    wrap: Wrap,
    build: fn(u32) -> Box<dyn Replacement>,
}

/// The policy of what has sizes: the source's.
pub const POLICY: PolicyKind = PolicyKind::TwoQ;

const fn sized<const S: u32, const T: u32>() -> Sized {
    Sized {
        queue: S,
        threshold: T,
        wrap: |policy, frames| Box::new(Batched::with_sizes(policy, frames, false, S, T)),
        build: |frames| Box::new(Batched::with_sizes(POLICY.build(frames), frames, false, S, T)),
    }
}

impl Sized {
    /// The source's second table: S = 2 to 64, T half of it.
    pub const HALF: [Self; 6] = [
        sized::<2, 1>(),
        sized::<4, 2>(),
        sized::<8, 4>(),
        sized::<16, 8>(),
        sized::<32, 16>(),
        sized::<64, 32>(),
    ];
    /// Its third: S = 64, T = 1 to 64.
    pub const OF_64: [Self; 7] = [
        sized::<64, 1>(),
        sized::<64, 2>(),
        sized::<64, 4>(),
        sized::<64, 8>(),
        sized::<64, 16>(),
        sized::<64, 32>(),
        sized::<64, 64>(),
    ];
    /// Batches of so many hits exactly, as in its second figure: the latch is not tried before the
    /// queue is full.
    pub const BATCHES: [Self; 7] = [
        sized::<1, 1>(),
        sized::<2, 2>(),
        sized::<4, 4>(),
        sized::<8, 8>(),
        sized::<16, 16>(),
        sized::<32, 32>(),
        sized::<64, 64>(),
    ];

    /// As the pool is configured.
    pub fn kind(&self) -> ReplacementKind {
        ReplacementKind::Custom(ReplacementFactory::Notified(self.build))
    }

    /// As it is simulated.
    pub fn system(&self) -> System {
        let blocks = Blocks::Full { queue: self.queue, threshold: self.threshold };
        System { called: Called::Wrapped(POLICY, self.wrap), blocks, prefetches: false }
    }
}

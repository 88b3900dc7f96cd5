//! Measures the hit ratio of a policy shared by many threads. The accesses of a trace are dealt out
//! to the threads round-robin.
//!
//! One real thread plays all of them, so the accesses keep the trace's order and any loss against
//! the exact policy comes from late hits. The latch is always free, so queues are as short as
//! they can be. The source's fixed-size queues are also run at the other extreme: they are
//! committed only when full.

use super::alone::{self, PolicyState};
use super::cases::Case;
use clearway_harness::Res;
use clearway_latch::conformance::as_thread;
use clearway_replacement::{
    Batched, PolicyKind, Prefetching, Probe, QUEUE, Replacement, ReplacementKind, UseCountedKind,
    WrapperKind,
};
use clearway_types::{FrameId, PageId};
use std::fmt;

/// Thread counts.
pub const THREADS: [u32; 2] = [64, 128];

/// How threads share a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Use counters in the frames, for policies that support this.
    UseCounted,
    /// One of the engine's wrappers.
    Kind(WrapperKind),
    /// The source's queues, each committed only when full.
    Full,
}

impl Sharing {
    /// Returns all variants. Wrappers that differ only in prefetching are included once.
    pub fn all() -> Vec<Self> {
        let prompt = [WrapperKind::Locked, WrapperKind::Prefetched, WrapperKind::BatchedPrefetched];
        let kinds = WrapperKind::ALL
            .iter()
            .filter(|kind| !prompt.contains(kind) || **kind == WrapperKind::default());
        std::iter::once(Self::UseCounted)
            .chain(kinds.map(|kind| Self::Kind(*kind)))
            .chain([Self::Full])
            .collect()
    }

    /// Returns what the bars need: the default, the default wrapper and the source's wrapper.
    pub fn judged() -> Vec<Self> {
        vec![Self::UseCounted, Self::Kind(WrapperKind::default()), Self::Kind(WrapperKind::Batched)]
    }

    /// Splits a replacement into its policy and how threads share it.
    pub fn of(kind: ReplacementKind) -> Option<(PolicyKind, Self)> {
        match kind {
            ReplacementKind::UseCounted(kind) => Some((kind.policy(), Self::UseCounted)),
            ReplacementKind::Wrapped(policy, wrapper) => Some((policy, Self::Kind(wrapper))),
            ReplacementKind::ClockSweep
            | ReplacementKind::Multilist(_)
            | ReplacementKind::Custom(_) => None,
        }
    }

    /// Wraps the policy; returns `None` if the policy does not support this.
    fn wrap(self, policy: PolicyKind, frames: u32) -> Option<Box<dyn Replacement>> {
        match self {
            Self::UseCounted => {
                let kind = UseCountedKind::ALL.iter().find(|kind| kind.policy() == policy)?;
                Some(ReplacementKind::UseCounted(*kind).build(frames))
            }
            Self::Kind(kind) => Some(kind.wrap(policy.build(frames), frames)),
            Self::Full => Some(Box::new(Batched::with_sizes(
                policy.build(frames),
                frames,
                Prefetching::Off,
                QUEUE,
                QUEUE,
            ))),
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UseCounted => f.write_str("marked"),
            Self::Kind(kind) => f.write_str(kind.name()),
            Self::Full => write!(f, "batched, queues of {QUEUE} full"),
        }
    }
}

/// Misses of one policy in one wrapper.
#[derive(Clone, Copy, Debug)]
pub struct Wrapped {
    /// The policy.
    pub policy: PolicyKind,
    /// Its wrapper.
    pub sharing: Sharing,
    /// Number of threads that share the accesses.
    pub threads: u32,
    /// Number of misses.
    pub misses: u64,
}

struct RoundRobin {
    replacement: Box<dyn Replacement>,
    threads: u32,
}

impl RoundRobin {
    fn thread(&self, access: usize) -> u32 {
        (access % self.threads as usize) as u32
    }
}

impl PolicyState for RoundRobin {
    fn hit(&mut self, access: usize, frame: FrameId, page: PageId) {
        as_thread(self.thread(access), || self.replacement.hit(frame, page));
    }
    fn miss(&mut self, access: usize, frame: FrameId, page: PageId) {
        as_thread(self.thread(access), || self.replacement.miss(frame, page));
    }
    fn evict(
        &mut self,
        access: usize,
        incoming: PageId,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        as_thread(self.thread(access), || self.replacement.evict(Some(incoming), probe))
    }
}

/// Runs every policy in each of these wrappers.
pub fn measure(case: &Case, sharings: &[Sharing]) -> Res<Vec<Wrapped>> {
    let mut all = Vec::new();
    for policy in PolicyKind::ALL {
        for (sharing, threads) in
            sharings.iter().flat_map(|sharing| THREADS.map(|threads| (*sharing, threads)))
        {
            let Some(replacement) = sharing.wrap(*policy, case.frames) else { continue };
            let misses =
                alone::misses(&mut RoundRobin { replacement, threads }, &case.trace, case.frames);
            let misses = misses.map_err(|why| format!("{policy} in {sharing}: {why}"))?;
            all.push(Wrapped { policy: *policy, sharing, threads, misses });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_traces::generate;
    use std::rc::Rc;

    #[test]
    fn locked_round_robin_equals_the_exact_policy() {
        let trace = generate::zipf(400, 0.9, 4_000, 1);
        for kind in PolicyKind::ALL {
            let exact = alone::misses(&mut kind.build(100), &trace, 100);
            let replacement = WrapperKind::Locked.wrap(kind.build(100), 100);
            assert_eq!(
                alone::misses(&mut RoundRobin { replacement, threads: 8 }, &trace, 100),
                exact,
                "{kind}"
            );
        }
    }

    #[test]
    fn every_policy_runs_in_every_wrapper() {
        let trace = Rc::new(generate::zipf(2_000, 0.9, 8_000, 1));
        let case = Case { trace, frames: 500, known: &[] };
        let sharings = Sharing::all();
        let wrapped = measure(&case, &sharings).unwrap();
        let suited = PolicyKind::ALL.len() * (sharings.len() - 1) + UseCountedKind::ALL.len();
        assert_eq!(wrapped.len(), suited * THREADS.len());
        assert!(wrapped.iter().all(|w| w.misses > 500 && w.misses < 8_000));
    }
}

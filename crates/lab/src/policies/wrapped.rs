//! What a policy hits that many threads share: the accesses of a trace are dealt out to them, one
//! each in turn.
//!
//! One thread acts as all of them, so that their order is the trace's, and what is lost to the
//! exact policy is lost to hits that are told late. The latch is always free then: queues are as
//! empty as they can be. For the source's, of fixed size, the other extreme is run too: queues that
//! are never committed before they are full.

use super::alone::{self, Told};
use super::cases::Case;
use clearway_harness::Res;
use clearway_latch::thread_index::act_as;
use clearway_replacement::{
    Batched, PolicyKind, Probe, QUEUE, Replacement, ReplacementKind, UseCountedKind, WrapperKind,
};
use clearway_types::{FrameId, PageId};
use std::fmt;

/// How many threads.
pub const THREADS: [u32; 2] = [64, 128];

/// How threads share a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Hits are marks in the frames, for policies that this suits.
    UseCounted,
    /// One of the engine's.
    Kind(WrapperKind),
    /// The source's queues, of which each is full before it is committed.
    Full,
}

impl Late {
    /// All that a policy may be in; of those that differ in what they prefetch only one.
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

    /// What the bars need: the default, and beside it the default wrapper and the source's.
    pub fn judged() -> Vec<Self> {
        vec![Self::UseCounted, Self::Kind(WrapperKind::default()), Self::Kind(WrapperKind::Batched)]
    }

    /// The policy of a replacement, and how threads share it.
    pub fn of(kind: ReplacementKind) -> Option<(PolicyKind, Self)> {
        match kind {
            ReplacementKind::UseCounted(kind) => Some((kind.policy(), Self::UseCounted)),
            ReplacementKind::Wrapped(policy, wrapper) => Some((policy, Self::Kind(wrapper))),
            ReplacementKind::ClockSweep
            | ReplacementKind::Multilist(_)
            | ReplacementKind::Custom(_) => None,
        }
    }

    /// None if it does not suit the policy.
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
                false,
                QUEUE,
                QUEUE,
            ))),
        }
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UseCounted => f.write_str("marked"),
            Self::Kind(kind) => f.write_str(kind.name()),
            Self::Full => write!(f, "batched, queues of {QUEUE} full"),
        }
    }
}

/// What was missed.
#[derive(Clone, Copy, Debug)]
pub struct Wrapped {
    /// The policy.
    pub policy: PolicyKind,
    /// Its wrapper.
    pub late: Late,
    /// Threads that the accesses were dealt out to.
    pub threads: u32,
    /// How often.
    pub misses: u64,
}

struct Acting {
    replacement: Box<dyn Replacement>,
    threads: u32,
}

impl Acting {
    fn thread(&self, access: usize) -> u32 {
        (access % self.threads as usize) as u32
    }
}

impl Told for Acting {
    fn hit(&mut self, access: usize, frame: FrameId, page: PageId) {
        act_as(self.thread(access), || self.replacement.hit(frame, page));
    }
    fn miss(&mut self, access: usize, frame: FrameId, page: PageId) {
        act_as(self.thread(access), || self.replacement.miss(frame, page));
    }
    fn evict(
        &mut self,
        access: usize,
        incoming: PageId,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        act_as(self.thread(access), || self.replacement.evict(Some(incoming), probe))
    }
}

/// Runs every policy in these wrappers.
pub fn measure(case: &Case, lates: &[Late]) -> Res<Vec<Wrapped>> {
    let mut all = Vec::new();
    for policy in PolicyKind::ALL {
        for (late, threads) in lates.iter().flat_map(|late| THREADS.map(|threads| (*late, threads)))
        {
            let Some(replacement) = late.wrap(*policy, case.frames) else { continue };
            let misses =
                alone::misses(&mut Acting { replacement, threads }, &case.trace, case.frames);
            let misses = misses.map_err(|why| format!("{policy} in {late}: {why}"))?;
            all.push(Wrapped { policy: *policy, late, threads, misses });
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
    fn one_thread_that_waits_for_nobody_is_the_exact_policy() {
        let trace = generate::zipf(400, 0.9, 4_000, 1);
        for kind in PolicyKind::ALL {
            let exact = alone::misses(&mut kind.build(100), &trace, 100);
            let replacement = WrapperKind::Locked.wrap(kind.build(100), 100);
            assert_eq!(
                alone::misses(&mut Acting { replacement, threads: 8 }, &trace, 100),
                exact,
                "{kind}"
            );
        }
    }

    #[test]
    fn every_policy_runs_late() {
        let trace = Rc::new(generate::zipf(2_000, 0.9, 8_000, 1));
        let case = Case { trace, frames: 500, known: &[] };
        let lates = Late::all();
        let wrapped = measure(&case, &lates).unwrap();
        let suited = PolicyKind::ALL.len() * (lates.len() - 1) + UseCountedKind::ALL.len();
        assert_eq!(wrapped.len(), suited * THREADS.len());
        assert!(wrapped.iter().all(|w| w.misses > 500 && w.misses < 8_000));
    }
}

//! What a policy hits in a wrapper with many threads: the accesses of a trace are dealt out to them, one each in turn.
//!
//! One thread acts as all of them, so that their order is the trace's, and what is lost to the exact policy is lost to hits that are told late. The
//! latch is always free then: queues are as empty as they can be. For the source's, of fixed size, the other extreme is run too: queues that are
//! never committed before they are full.

use super::alone::{self, Told};
use super::cases::Case;
use clearway_buffer::{Batched, Policy, PolicyKind, Probe, QUEUE, Replacement, WrapperKind};
use clearway_harness::Res;
use clearway_latch::thread_index::act_as;
use clearway_types::{FrameId, PageId};
use std::fmt;

/// How many threads.
pub const THREADS: [u32; 2] = [64, 128];

/// A wrapper whose hits are told late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// One of the engine's.
    Kind(WrapperKind),
    /// The source's queues, of which each is full before it is committed.
    Full,
}

impl Late {
    /// All that a policy may be in; of those that differ in what they prefetch only one.
    pub fn all() -> Vec<Self> {
        let prompt = [WrapperKind::Locked, WrapperKind::Prefetched, WrapperKind::BatchedPrefetched];
        let kinds = WrapperKind::ALL.iter().filter(|kind| !prompt.contains(kind) || **kind == WrapperKind::default());
        kinds.map(|kind| Self::Kind(*kind)).chain([Self::Full]).collect()
    }

    /// What the bar on the default is judged by.
    pub fn default() -> Self {
        Self::Kind(WrapperKind::default())
    }

    fn wrap(self, policy: Box<dyn Policy>, frames: u32) -> Box<dyn Replacement> {
        match self {
            Self::Kind(kind) => kind.wrap(policy, frames),
            Self::Full => Box::new(Batched::with_sizes(policy, frames, false, QUEUE, QUEUE)),
        }
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
    fn evict(&mut self, access: usize, incoming: PageId, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
        act_as(self.thread(access), || self.replacement.evict(Some(incoming), probe))
    }
}

/// Runs every policy in these wrappers.
pub fn measure(case: &Case, lates: &[Late]) -> Res<Vec<Wrapped>> {
    let mut all = Vec::new();
    for policy in PolicyKind::ALL {
        for (late, threads) in lates.iter().flat_map(|late| THREADS.map(|threads| (*late, threads))) {
            let replacement = late.wrap(policy.build(case.frames), case.frames);
            let misses = alone::misses(&mut Acting { replacement, threads }, &case.trace, case.frames);
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
            assert_eq!(alone::misses(&mut Acting { replacement, threads: 8 }, &trace, 100), exact, "{kind}");
        }
    }

    #[test]
    fn every_policy_runs_late() {
        let trace = Rc::new(generate::zipf(2_000, 0.9, 8_000, 1));
        let case = Case { trace, frames: 500, known: &[] };
        let lates = Late::all();
        let wrapped = measure(&case, &lates).unwrap();
        assert_eq!(wrapped.len(), PolicyKind::ALL.len() * lates.len() * THREADS.len());
        assert!(wrapped.iter().all(|w| w.misses > 500 && w.misses < 8_000));
    }
}

//! The measurements of each case.

use super::alone;
use super::cases::Case;
use super::contender::{Contender, PEERS};
use super::race::{Race, RunResult};
use super::wrapped::{self, Sharing, Wrapped};
use crate::experiment::{Part, Task};
use crate::progress::Progress;
use clearway_harness::Res;
use clearway_replacement::{PolicyKind, ReplacementKind, UseCountedKind, WrapperKind};
use clearway_traces::opt_misses;

/// Thread counts of the cache runs.
pub const THREADS: [usize; 2] = [1, 2];
/// Minimum accesses of a cache run: short traces are replayed several times without a pause.
const RACE_ACCESSES: usize = 500_000;

/// The measurements of one case.
#[derive(Debug)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// Misses of the optimal policy.
    pub optimum: u64,
    /// Misses of each policy alone.
    pub exact: Vec<(PolicyKind, u64)>,
    /// Misses of policies in wrappers with many threads.
    pub wrapped: Vec<Wrapped>,
    /// Hit ratios of the cache crates in percent, in one pass of one thread.
    pub peers: Vec<(Contender, f64)>,
    /// Cache runs, by contender and threads.
    pub raced: Vec<Raced>,
}

/// The runs of one cache with one number of threads.
#[derive(Debug)]
pub struct Raced {
    /// Which cache.
    pub contender: Contender,
    /// Number of threads.
    pub threads: usize,
    /// One result per repetition.
    pub ran: Vec<RunResult>,
}

impl Measured {
    /// Returns the hit ratio of a policy alone, in percent.
    pub fn exact(&self, kind: PolicyKind) -> Option<f64> {
        let misses = self.exact.iter().find(|(policy, _)| *policy == kind)?.1;
        Some(self.case.trace.hit_percent(misses))
    }

    /// Returns the percentage points of hit ratio that a policy loses in a wrapper.
    pub fn lost(&self, policy: PolicyKind, sharing: Sharing, threads: u32) -> Option<f64> {
        let of = |w: &&Wrapped| (w.policy, w.sharing, w.threads) == (policy, sharing, threads);
        let misses = self.wrapped.iter().find(of)?.misses;
        Some(self.exact(policy)? - self.case.trace.hit_percent(misses))
    }

    /// Returns the hit ratio of a cache crate in one pass of one thread, in percent.
    pub fn peer(&self, peer: Contender) -> Option<f64> {
        Some(self.peers.iter().find(|(contender, _)| *contender == peer)?.1)
    }

    /// Returns one figure of a cache for every repetition.
    pub fn repetitions(
        &self,
        contender: Contender,
        threads: usize,
        of: fn(&RunResult) -> f64,
    ) -> Vec<f64> {
        let raced = self
            .raced
            .iter()
            .find(|raced| raced.contender == contender && raced.threads == threads);
        raced.into_iter().flat_map(|raced| &raced.ran).map(of).collect()
    }
}

/// Returns the caches to run: the pool's default, every policy in the always-locking wrapper and in
/// the default one, the replacements without a wrapper, and the crates.
fn contenders() -> Vec<Contender> {
    let wrappers = [WrapperKind::Locked, WrapperKind::default()];
    let wrapped = |policy| wrappers.map(|wrapper| ReplacementKind::Wrapped(policy, wrapper));
    let mut kinds = vec![ReplacementKind::default()];
    kinds.extend(PolicyKind::ALL.iter().copied().flat_map(wrapped));
    kinds.push(ReplacementKind::ClockSweep);
    kinds.extend(UseCountedKind::ALL.iter().copied().map(ReplacementKind::UseCounted));
    let mut contenders: Vec<Contender> = Vec::new();
    for contender in kinds.into_iter().map(Contender::Ours).chain(PEERS) {
        if !contenders.contains(&contender) {
            contenders.push(contender);
        }
    }
    contenders
}

/// Measures every case.
pub fn measure(what: &'static str, cases: Vec<Case>, task: &Task) -> Res<Vec<Measured>> {
    let mut progress = Progress::new(what, cases.len());
    let one = |case: Case| {
        progress.step(&case.name());
        let exact = PolicyKind::ALL.iter().map(|kind| {
            let misses = alone::misses(&mut kind.build(case.frames), &case.trace, case.frames);
            misses.map(|misses| (*kind, misses)).map_err(|why| format!("{kind}: {why}"))
        });
        let exact = exact.collect::<Res<Vec<_>>>()?;
        let sharings = if task.part == Part::Bars { Sharing::judged() } else { Sharing::all() };
        let wrapped = wrapped::measure(&case, &sharings)?;
        let peers = if task.part == Part::Bars { Vec::new() } else { peers(&case)? };
        let raced = race(&case, task)?;
        Ok(Measured {
            optimum: opt_misses(&case.trace.pages, case.frames),
            exact,
            wrapped,
            peers,
            raced,
            case,
        })
    };
    cases.into_iter().map(one).collect()
}

/// Measures the hit ratios of the cache crates.
fn peers(case: &Case) -> Res<Vec<(Contender, f64)>> {
    let race = Race { trace: &case.trace, threads: 1, passes: 1 };
    let one = |peer: &Contender| Ok((*peer, race.run(*peer, case.frames)?.hit_percent));
    PEERS.iter().map(one).collect()
}

/// Runs all caches in turn, once per repetition, on the traces whose throughput is drawn. No bar
/// needs this. Runs shorter than a second are repeated with more passes: their rates are published.
fn race(case: &Case, task: &Task) -> Res<Vec<Raced>> {
    if task.part == Part::Bars || !(task.options.quick || case.is_raced()) {
        return Ok(Vec::new());
    }
    let trace = &*case.trace;
    let passes =
        if task.options.quick { 1 } else { RACE_ACCESSES.div_ceil(trace.pages.len().max(1)) };
    let each = contenders().into_iter().flat_map(|contender| {
        THREADS.map(|threads| {
            (Race { trace, threads, passes }, Raced { contender, threads, ran: Vec::new() })
        })
    });
    let mut raced: Vec<(Race<'_>, Raced)> = each.collect();
    for _ in 0..task.repetitions() {
        for (race, one) in &mut raced {
            one.ran.push(race.run_at_least(task.min_run(), one.contender, case.frames)?);
        }
    }
    Ok(raced.into_iter().map(|(_, raced)| raced).collect())
}

//! What is measured of each case, and how long that takes.

use super::alone;
use super::cases::Case;
use super::contender::{Contender, PEERS};
use super::race::{Race, Ran};
use super::wrapped::{self, Late, Wrapped};
use crate::experiment::{Part, Task};
use crate::number::median;
use crate::progress::Progress;
use clearway_harness::Res;
use clearway_replacement::{PolicyKind, ReplacementKind, UseCountedKind, WrapperKind};
use clearway_traces::opt_misses;

/// Threads of a race.
pub const THREADS: [usize; 2] = [1, 2];
/// A race is over so many accesses at least: short traces are run over several times, without a
/// stop.
const RACE_ACCESSES: usize = 500_000;

/// What was measured of a case.
#[derive(Debug)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// Misses of the optimum.
    pub optimum: u64,
    /// Misses of policies alone.
    pub exact: Vec<(PolicyKind, u64)>,
    /// Policies in wrappers, with many threads.
    pub wrapped: Vec<Wrapped>,
    /// Caches, by their threads.
    pub raced: Vec<Raced>,
}

/// What a cache did with so many threads, by repetition.
#[derive(Debug)]
pub struct Raced {
    /// Which cache.
    pub contender: Contender,
    /// Its threads.
    pub threads: usize,
    /// By repetition.
    pub ran: Vec<Ran>,
}

impl Measured {
    /// The hit ratio in percent of a policy alone.
    pub fn exact(&self, kind: PolicyKind) -> Option<f64> {
        let misses = self.exact.iter().find(|(policy, _)| *policy == kind)?.1;
        Some(self.case.trace.hit_percent(misses))
    }

    /// Points of hit ratio that a policy loses in a wrapper.
    pub fn lost(&self, policy: PolicyKind, late: Late, threads: u32) -> Option<f64> {
        let of = |w: &&Wrapped| (w.policy, w.late, w.threads) == (policy, late, threads);
        let misses = self.wrapped.iter().find(of)?.misses;
        Some(self.exact(policy)? - self.case.trace.hit_percent(misses))
    }

    /// The median of what a cache did.
    pub fn raced(&self, contender: Contender, threads: usize, of: fn(&Ran) -> f64) -> Option<f64> {
        median(&self.repetitions(contender, threads, of))
    }

    /// Every repetition of what a cache did.
    pub fn repetitions(
        &self,
        contender: Contender,
        threads: usize,
        of: fn(&Ran) -> f64,
    ) -> Vec<f64> {
        let raced = self
            .raced
            .iter()
            .find(|raced| raced.contender == contender && raced.threads == threads);
        raced.into_iter().flat_map(|raced| &raced.ran).map(of).collect()
    }
}

/// The caches that are raced: the pool's default, every policy in the wrapper that always locks and
/// in the default one, what needs no wrapper, and the crates.
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
        let lates = if task.part == Part::Bars { Late::judged() } else { Late::all() };
        let wrapped = wrapped::measure(&case, &lates)?;
        let raced = race(&case, task)?;
        Ok(Measured {
            optimum: opt_misses(&case.trace.pages, case.frames),
            exact,
            wrapped,
            raced,
            case,
        })
    };
    cases.into_iter().map(one).collect()
}

/// All caches in turn, as often as there are repetitions. No bar depends on them.
fn race(case: &Case, task: &Task) -> Res<Vec<Raced>> {
    let trace = &*case.trace;
    let contenders = if task.part == Part::Bars { Vec::new() } else { contenders() };
    let passes =
        if task.options.quick { 1 } else { RACE_ACCESSES.div_ceil(trace.pages.len().max(1)) };
    let each = contenders
        .into_iter()
        .flat_map(|contender| THREADS.map(|threads| Raced { contender, threads, ran: Vec::new() }));
    let mut raced: Vec<Raced> = each.collect();
    for _ in 0..task.repetitions() {
        for one in &mut raced {
            let race = Race { trace, threads: one.threads, passes };
            one.ran.push(race.run(one.contender, case.frames)?);
        }
    }
    Ok(raced)
}

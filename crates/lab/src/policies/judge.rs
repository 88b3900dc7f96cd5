//! The bars of policies and of the caches made of them.

use super::cases::{OLTP, ZIPF};
use super::contender::{Contender, PEERS};
use super::measure::Measured;
use super::race::Ran;
use super::wrapped::{Late, THREADS};
use crate::bars::{Bar, Bound, Reading};
use clearway_buffer::{PolicyKind, ReplacementKind, WrapperKind};

/// All of them.
pub const BARS: [&str; 7] = [LOST[0], LOST[1], BEHIND, RATES[0], HITS[0], RATES[1], HITS[1]];

const TRACES: [&str; 2] = [OLTP, ZIPF];
/// Throughput on either trace, of a cache that is in no path of the server: nothing is claimed of the pool by it.
const RATES: [&str; 2] = [
    "regression check of a cache that the pool does not use, OLTP, 2 threads: throughput of set-cache against the fastest of quick_cache, moka and foyer",
    "regression check of a cache that the pool does not use, zipf, 2 threads: throughput of set-cache against the fastest of quick_cache, moka and foyer",
];
/// What it hits in the same run.
const HITS: [&str; 2] = [
    "regression check of a cache that the pool does not use, OLTP, 2 threads: hit ratio of set-cache less that of the best of quick_cache, moka and foyer",
    "regression check of a cache that the pool does not use, zipf, 2 threads: hit ratio of set-cache less that of the best of quick_cache, moka and foyer",
];
const JUDGED_THREADS: usize = 2;
/// The trace on which the source's queues are said to lose much.
const MULTI1: &str = "lirs_multi1";
/// What hits that are told late cost.
const LOST: [&str; 2] = [
    "64 threads: hit ratio that the default loses to the exact policy on any trace",
    "128 threads: hit ratio that the default loses to the exact policy on any trace",
];
/// Points that may be lost.
const MAY_BE_LOST: f64 = 0.1;
const BEHIND: &str = "hit ratio of the arbiter below that of the best single policy, on any trace";
/// Points that the arbiter may be behind.
const MAY_BE_BEHIND: f64 = 1.0;

/// All bars; those whose trace was not to be had say so.
pub fn bars(measured: &[Measured]) -> Vec<Bar> {
    let mut bars: Vec<Bar> =
        LOST.into_iter().zip(THREADS).filter_map(|(name, threads)| lost(measured, name, threads)).collect();
    bars.extend(behind(measured));
    for (at, trace) in TRACES.into_iter().enumerate() {
        let case = measured.iter().find(|m| m.case.trace.name == trace);
        let not_here = |name| Bar::not_here(name, format!("the trace {trace} is not on this machine"));
        bars.push(case.and_then(|m| rate(m, RATES[at])).unwrap_or_else(|| not_here(RATES[at])));
        bars.push(case.and_then(|m| hits(m, HITS[at])).unwrap_or_else(|| not_here(HITS[at])));
    }
    bars
}

/// Who loses how many points, and where.
struct Lost<'a> {
    of: &'a Measured,
    policy: PolicyKind,
    late: Late,
    points: f64,
}

impl Lost<'_> {
    fn place(&self) -> String {
        format!("{} in {} on {}", self.policy, self.late, self.of.case.name())
    }
}

/// The worst of those that are wanted.
fn worst<'a>(
    measured: &'a [Measured],
    threads: u32,
    late: Late,
    wanted: impl Fn(&Measured, PolicyKind) -> bool,
) -> Option<Lost<'a>> {
    let all = measured.iter().flat_map(|of| PolicyKind::ALL.iter().map(move |policy| (of, *policy)));
    let lost = all
        .filter(|(of, policy)| wanted(of, *policy))
        .filter_map(|(of, policy)| Some(Lost { of, policy, late, points: of.lost(policy, late, threads)? }));
    lost.max_by(|a, b| a.points.total_cmp(&b.points))
}

/// The default's worst trace; beside it what any policy loses in the default wrapper and in the source's, the latter also on the trace where it is
/// said to be much.
fn lost(measured: &[Measured], name: &str, threads: u32) -> Option<Bar> {
    let (policy, late) = Late::of(ReplacementKind::default())?;
    let default = worst(measured, threads, late, |_, of| of == policy)?;
    let exact = default.of.exact(policy)?;
    let ours = Reading::new(&default.place(), exact - default.points, "%", 2);
    let (source, combining) = (Late::Kind(WrapperKind::Batched), Late::Kind(WrapperKind::default()));
    let beside = [
        worst(measured, threads, combining, |_, _| true),
        worst(measured, threads, source, |of, _| of.case.trace.name == MULTI1),
        worst(measured, threads, source, |_, _| true),
    ];
    let beside = beside.into_iter().flatten();
    let beside = beside.map(|lost| Reading::new(&format!("at most lost: {}", lost.place()), lost.points, "points", 2));
    let beside = std::iter::once(Reading::new(&format!("{policy} alone"), exact, "%", 2)).chain(beside).collect();
    Some(bar(name, default.points, "points", Bound::AtMost(MAY_BE_LOST), ours, beside))
}

/// The trace on which the arbiter is furthest behind, and who is ahead there.
fn behind(measured: &[Measured]) -> Option<Bar> {
    let one = |of: &Measured| {
        let singles = PolicyKind::ALL.iter().filter(|kind| **kind != PolicyKind::Arbiter);
        let exact = singles.filter_map(|kind| Some((*kind, of.exact(*kind)?)));
        let (best, percent) = exact.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let arbiter = of.exact(PolicyKind::Arbiter)?;
        let ours = Reading::new(&format!("arbiter on {}", of.case.name()), arbiter, "%", 2);
        Some((percent - arbiter, ours, Reading::new(best.name(), percent, "%", 2)))
    };
    let (value, ours, best) = measured.iter().filter_map(one).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(bar(BEHIND, value, "points", Bound::AtMost(MAY_BE_BEHIND), ours, vec![best]))
}

/// `set-cache`, the crates, and what is most like the pool: its default policy behind a page table like its own.
fn readings(of: &Measured, unit: &str, figure: fn(&Ran) -> f64) -> Option<(Reading, Vec<Reading>)> {
    let reading = |contender: Contender| {
        Some(Reading::new(&contender.to_string(), of.raced(contender, JUDGED_THREADS, figure)?, unit, 2))
    };
    let peers = PEERS.into_iter().map(reading).collect::<Option<Vec<_>>>()?;
    let like_the_pool = reading(Contender::Ours(ReplacementKind::default()));
    Some((reading(Contender::Sets)?, peers.into_iter().chain(like_the_pool).collect()))
}

/// Of the crates.
fn best(peers: &[Reading]) -> Option<f64> {
    peers.iter().take(PEERS.len()).map(|peer| peer.value).max_by(f64::total_cmp)
}

fn bar(name: &str, value: f64, unit: &str, bound: Bound, ours: Reading, beside: Vec<Reading>) -> Bar {
    Bar::measured(name, value, unit, bound, std::iter::once(ours).chain(beside).collect())
}

fn rate(of: &Measured, name: &str) -> Option<Bar> {
    let (ours, peers) = readings(of, "/us", |ran| ran.rate)?;
    Some(bar(name, ours.value / best(&peers)?, "x", Bound::AtLeast(2.0), ours, peers))
}

fn hits(of: &Measured, name: &str) -> Option<Bar> {
    let (ours, peers) = readings(of, "%", |ran| ran.hit_percent)?;
    Some(bar(name, ours.value - best(&peers)?, "points", Bound::AtLeast(-0.5), ours, peers))
}

#[cfg(test)]
mod tests {
    use super::super::cases::Case;
    use super::super::measure::Raced;
    use super::super::wrapped::Wrapped;
    use super::*;
    use crate::bars::Outcome;
    use clearway_traces::Trace;
    use std::rc::Rc;

    fn measured(rates: [f64; 5], hits: [f64; 5]) -> Measured {
        let default = Contender::Ours(ReplacementKind::default());
        let contenders = [Contender::Sets].into_iter().chain(PEERS).chain([default]);
        let raced = contenders.zip(rates).zip(hits).map(|((contender, rate), hit_percent)| Raced {
            contender,
            threads: 2,
            ran: vec![Ran { rate, hit_percent }],
        });
        let case = Case { trace: Rc::new(Trace::new(OLTP, [1, 1, 1, 1])), frames: 1, known: &[] };
        let (policy, late) = Late::of(ReplacementKind::default()).unwrap();
        let shared = |(policy, late, misses)| THREADS.map(|threads| Wrapped { policy, late, threads, misses });
        let lru = |wrapper| (PolicyKind::Lru, Late::Kind(wrapper), 4);
        let all = [(policy, late, 3), lru(WrapperKind::default()), lru(WrapperKind::Batched)];
        let wrapped = all.into_iter().flat_map(shared).collect();
        let exact = vec![(PolicyKind::Lru, 2), (policy, 2), (PolicyKind::Arbiter, 3)];
        Measured { case, optimum: 1, exact, wrapped, raced: raced.collect() }
    }

    #[test]
    fn bars_are_held_against_the_fastest_and_the_best() {
        let bars = bars(&[measured([30.0, 10.0, 2.0, 12.0, 99.0], [40.0, 40.25, 39.0, 30.0, 99.0])]);
        let values: Vec<f64> = bars
            .iter()
            .filter_map(|bar| match &bar.outcome {
                Outcome::Measured { value, .. } => Some(*value),
                Outcome::NotHere { .. } => None,
            })
            .collect();
        assert_eq!(values, [25.0, 25.0, 25.0, 2.5, -0.25]);
        let like_the_pool = format!("{} 99.00 /us", ReplacementKind::default());
        assert!(bars[3].explained().contains(&like_the_pool), "shown, and no peer: {}", bars[3].explained());
        let names: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(names, BARS, "what was not measured says so");
        let Outcome::Measured { readings, .. } = &bars[0].outcome else { panic!("measured") };
        let readings: Vec<f64> = readings.iter().map(|reading| reading.value).collect();
        assert_eq!(readings, [25.0, 50.0, 50.0, 50.0], "the default, alone, and what others lose");
    }
}

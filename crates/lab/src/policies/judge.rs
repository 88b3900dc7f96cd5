//! The bars of policies and of the caches made of them.

use super::cases::{OLTP, ZIPF};
use super::contender::{Contender, PEERS};
use super::measure::Measured;
use super::race::Ran;
use super::wrapped::{Late, THREADS};
use crate::bars::{Bar, Bound, Outcome, Reading};
use clearway_buffer::{PolicyKind, ReplacementKind};

/// All of them.
pub const BARS: [&str; 6] = [LOST[0], LOST[1], RATES[0], HITS[0], RATES[1], HITS[1]];

const TRACES: [&str; 2] = [OLTP, ZIPF];
/// Throughput on either trace.
const RATES: [&str; 2] = [
    "OLTP, 2 threads: throughput of the default against the fastest of quick_cache, moka and foyer",
    "zipf, 2 threads: throughput of the default against the fastest of quick_cache, moka and foyer",
];
/// What the default hits in the same run.
const HITS: [&str; 2] = [
    "OLTP, 2 threads: hit ratio of the default less that of the best of quick_cache, moka and foyer",
    "zipf, 2 threads: hit ratio of the default less that of the best of quick_cache, moka and foyer",
];
const JUDGED_THREADS: usize = 2;
/// What hits that are told late cost.
const LOST: [&str; 2] = [
    "64 threads: hit ratio that any policy loses in the default wrapper on any trace",
    "128 threads: hit ratio that any policy loses in the default wrapper on any trace",
];
/// Points that may be lost.
const MAY_BE_LOST: f64 = 0.1;

/// All bars; those whose trace was not to be had say so.
pub fn bars(measured: &[Measured]) -> Vec<Bar> {
    let mut bars: Vec<Bar> =
        LOST.into_iter().zip(THREADS).filter_map(|(name, threads)| lost(measured, name, threads)).collect();
    for (at, trace) in TRACES.into_iter().enumerate() {
        let case = measured.iter().find(|m| m.case.trace.name == trace);
        let not_here = |name| Bar::not_here(name, format!("the trace {trace} is not on this machine"));
        bars.push(case.and_then(|m| rate(m, RATES[at])).unwrap_or_else(|| not_here(RATES[at])));
        bars.push(case.and_then(|m| hits(m, HITS[at])).unwrap_or_else(|| not_here(HITS[at])));
    }
    bars
}

/// The worst over policies and traces, and who it is.
fn lost(measured: &[Measured], name: &str, threads: u32) -> Option<Bar> {
    let all = measured.iter().flat_map(|of| PolicyKind::ALL.iter().map(move |policy| (of, *policy)));
    let lost = all.filter_map(|(of, policy)| Some((of, policy, of.lost(policy, Late::default(), threads)?)));
    let (of, policy, value) = lost.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let exact = of.exact(policy)?;
    let case = of.case.name();
    let ours = Reading::new(&format!("{} of {threads} threads on {case}", Late::default()), exact - value, "%", 2);
    let alone = Reading::new(&format!("{policy} alone"), exact, "%", 2);
    Some(bar(name, value, "points", Bound::AtMost(MAY_BE_LOST), ours, vec![alone]))
}

fn readings(of: &Measured, unit: &str, figure: fn(&Ran) -> f64) -> Option<(Reading, Vec<Reading>)> {
    let reading = |contender: Contender| {
        Some(Reading::new(&contender.to_string(), of.raced(contender, JUDGED_THREADS, figure)?, unit, 2))
    };
    let peers = PEERS.into_iter().map(reading).collect::<Option<Vec<_>>>()?;
    Some((reading(Contender::Ours(ReplacementKind::default()))?, peers))
}

fn best(peers: &[Reading]) -> Option<f64> {
    peers.iter().map(|peer| peer.value).max_by(f64::total_cmp)
}

fn bar(name: &str, value: f64, unit: &str, bound: Bound, ours: Reading, peers: Vec<Reading>) -> Bar {
    let readings = std::iter::once(ours).chain(peers).collect();
    Bar { name: name.into(), outcome: Outcome::Measured { value, unit: unit.into(), bound, readings } }
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
    use clearway_traces::Trace;
    use std::rc::Rc;

    fn measured(rates: [f64; 4], hits: [f64; 4]) -> Measured {
        let contenders = [Contender::Ours(ReplacementKind::default())].into_iter().chain(PEERS);
        let raced = contenders.zip(rates).zip(hits).map(|((contender, rate), hit_percent)| Raced {
            contender,
            threads: 2,
            ran: vec![Ran { rate, hit_percent }],
        });
        let case = Case { trace: Rc::new(Trace::new(OLTP, [1, 1, 1, 1])), frames: 1, known: &[] };
        let late = |threads| Wrapped { policy: PolicyKind::Lru, late: Late::default(), threads, misses: 3 };
        let wrapped = THREADS.map(late).to_vec();
        Measured { case, optimum: 1, exact: vec![(PolicyKind::Lru, 2)], wrapped, raced: raced.collect() }
    }

    #[test]
    fn bars_are_held_against_the_fastest_and_the_best() {
        let bars = bars(&[measured([30.0, 10.0, 2.0, 12.0], [40.0, 40.25, 39.0, 30.0])]);
        let values: Vec<f64> = bars
            .iter()
            .filter_map(|bar| match &bar.outcome {
                Outcome::Measured { value, .. } => Some(*value),
                Outcome::NotHere { .. } => None,
            })
            .collect();
        assert_eq!(values, [25.0, 25.0, 2.5, -0.25]);
        let names: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(names, BARS, "what was not measured says so");
    }
}

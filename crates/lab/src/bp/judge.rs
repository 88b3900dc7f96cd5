//! The bars of batching: the source's claims about its throughput and contention, and what our
//! default must keep.

use super::point::{self, Point};
use super::real::RunResult;
use super::scaling::{JUDGED_THREADS, MEASURED, Scaled};
use super::systems::{How, POLICY, Shared};
use super::workload::Kind;
use crate::bars::{Bar, Bound, Reading};
use crate::experiment::{Part, Task};
use crate::result::Findings;
use crate::table::FEW;
use clearway_replacement::PolicyKind;

/// The bars of the source's figure 6, on all workloads.
pub const FIG6: [&str; 10] = [
    FALLS[0],
    FALLS[1],
    FALLS[2],
    RATES[0],
    RATES[1],
    RATES[2],
    OURS[0],
    OURS[1],
    OURS[2],
    point::PREDICTIONS,
];
/// The bars of its figure 7.
pub const FIG7: [&str; 5] =
    [OTHERS[0], OTHER_RATES[0], OTHERS[1], OTHER_RATES[1], point::PREDICTIONS];
const FALLS: [&str; 3] = [
    "DBT-1-like, 8 and 16 threads: waits that sleep in 2q/locked over those in 2q/batched, worst case",
    "DBT-2-like, 8 and 16 threads: waits that sleep in 2q/locked over those in 2q/batched, worst case",
    "TableScan, 8 and 16 threads: waits that sleep in 2q/locked over those in 2q/batched, worst case",
];
/// According to the source, batching reaches the clock's throughput.
const RATES: [&str; 3] = [
    "DBT-1-like, 8 and 16 threads: throughput of 2q/batched over that of clock-sweep, worst case",
    "DBT-2-like, 8 and 16 threads: throughput of 2q/batched over that of clock-sweep, worst case",
    "TableScan, 8 and 16 threads: throughput of 2q/batched over that of clock-sweep, worst case",
];
/// Two curves of the source's figures within 5 % coincide.
const SAME: f64 = 0.95;
const OURS: [&str; 3] = [
    "regression check, DBT-1-like, 8 and 16 threads: waits in the default wrapper, where hits only try the latch",
    "regression check, DBT-2-like, 8 and 16 threads: waits in the default wrapper, where hits only try the latch",
    "regression check, TableScan, 8 and 16 threads: waits in the default wrapper, where hits only try the latch",
];
/// According to the source, LIRS and MQ behave like 2Q.
const OTHERS: [&str; 2] = [
    "DBT-1-like, 8 and 16 threads: waits that sleep in lirs/locked over those in lirs/batched, worst case",
    "DBT-1-like, 8 and 16 threads: waits that sleep in mq/locked over those in mq/batched, worst case",
];
const OTHER_RATES: [&str; 2] = [
    "DBT-1-like, 8 and 16 threads: throughput of lirs/batched over that of clock-sweep, worst case",
    "DBT-1-like, 8 and 16 threads: throughput of mq/batched over that of clock-sweep, worst case",
];
const OTHER_POLICIES: [PolicyKind; 2] = [PolicyKind::Lirs, PolicyKind::Mq];

fn shared(how: How) -> Shared {
    Shared { policy: POLICY, how }
}

/// Waits and accesses of all repetitions.
#[derive(Clone, Copy)]
struct Waits {
    waits: f64,
    accesses: f64,
}

impl Waits {
    fn of(
        of: &Scaled,
        shared: Shared,
        threads: usize,
        waits: fn(&RunResult) -> f64,
    ) -> Option<Self> {
        let sum = |figure| {
            let all = of.measured.repetitions(&shared.name(), threads as f64, figure);
            (!all.is_empty()).then(|| all.iter().sum::<f64>())
        };
        Some(Self { waits: sum(waits)?, accesses: sum(|ran| ran.accesses)? })
    }

    fn per_million(self) -> f64 {
        self.waits * 1e6 / self.accesses.max(1.0)
    }

    /// Counts no wait as one: the true rate may be just below that.
    fn at_least_one(self) -> Self {
        Self { waits: self.waits.max(1.0), ..self }
    }

    /// Shows a count if there are too few waits for a rate.
    fn reading(self, shared: Shared, threads: usize) -> Reading {
        let name = format!("{} with {threads}", shared.name());
        match self.waits < FEW {
            true => Reading::new(&name, self.waits, "waits", 0),
            false => Reading::new(&name, self.per_million(), "per million", 1),
        }
    }
}

fn contention(of: &Scaled, how: How, threads: usize) -> Option<f64> {
    of.measured.at(&shared(how).name(), threads as f64, RunResult::contention)
}

/// Adds the bars with these names, in a whole run or a run for the bars.
pub fn with_bars(
    findings: Findings,
    names: &[&str],
    points: Vec<Point>,
    all: &[Scaled],
    task: &Task,
) -> Findings {
    if matches!(task.part, Part::Only(_)) {
        return findings;
    }
    let mut bars = Vec::new();
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        if let Some(of) = all.iter().find(|scaled| scaled.kind == kind) {
            bars.extend([
                falls(of, POLICY, FALLS[at]),
                rates(of, POLICY, RATES[at]),
                ours(of, OURS[at]),
            ]);
        }
    }
    if let Some(of) = all.iter().find(|scaled| scaled.kind == Kind::Dbt1) {
        for (at, policy) in OTHER_POLICIES.into_iter().enumerate() {
            bars.extend([falls(of, policy, OTHERS[at]), rates(of, policy, OTHER_RATES[at])]);
        }
    }
    bars.push(point::bar(points, all));
    let bars =
        bars.into_iter().flatten().filter(|bar| names.contains(&bar.name.as_str())).collect();
    Findings { bars, ..findings }
}

/// Returns the thread counts that were run.
fn threads(of: &Scaled) -> Vec<usize> {
    let there = |threads: &usize| contention(of, How::Locked, *threads).is_some();
    JUDGED_THREADS.into_iter().filter(there).collect()
}

fn falls(of: &Scaled, policy: PolicyKind, name: &str) -> Option<Bar> {
    let sleeps: fn(&RunResult) -> f64 = |ran| ran.sleeps;
    let [locked, batched] = [How::Locked, How::Batched].map(|how| Shared { policy, how });
    let waits = |shared, threads| Waits::of(of, shared, threads, sleeps);
    let ratio = |threads| {
        Some(
            waits(locked, threads)?.per_million()
                / waits(batched, threads)?.at_least_one().per_million(),
        )
    };
    let value = threads(of).into_iter().filter_map(ratio).min_by(f64::total_cmp)?;
    if threads(of)
        .into_iter()
        .filter_map(|threads| waits(locked, threads))
        .any(|waits| waits.waits < FEW)
    {
        return Some(Bar::not_here(
            name,
            format!("fewer than {FEW} waits for a lock at each hit slept"),
        ));
    }
    let readings = waits_of(of, &[batched, locked], sleeps);
    Some(Bar::measured(name, value, "x", Bound::AtLeast(100.0), readings))
}

fn rates(of: &Scaled, policy: PolicyKind, name: &str) -> Option<Bar> {
    let reading = |how, threads: usize| {
        let name = Shared { policy, how }.name();
        let rate = of.measured.at(&name, threads as f64, |ran| ran.rate)?;
        Some(Reading::new(&format!("{name} with {threads}"), rate, "/us", 2))
    };
    let both = |threads| Some([reading(How::Batched, threads)?, reading(How::Clock, threads)?]);
    let all: Vec<[Reading; 2]> = threads(of).into_iter().filter_map(both).collect();
    let value =
        all.iter().map(|[batched, clock]| batched.value / clock.value).min_by(f64::total_cmp)?;
    Some(Bar::measured(name, value, "x", Bound::AtLeast(SAME), all.into_iter().flatten().collect()))
}

fn ours(of: &Scaled, name: &str) -> Option<Bar> {
    let all: fn(&RunResult) -> f64 = |ran| ran.waits;
    let [default, locked] = [How::Default, How::Locked].map(shared);
    let waits = |threads| Some(Waits::of(of, default, threads, all)?.waits);
    let value = threads(of).into_iter().filter_map(waits).max_by(f64::total_cmp)?;
    Some(Bar::measured(
        name,
        value,
        "waits",
        Bound::AtMost(0.0),
        waits_of(of, &[default, locked], all),
    ))
}

fn waits_of(of: &Scaled, all: &[Shared], waits: fn(&RunResult) -> f64) -> Vec<Reading> {
    let reading =
        |shared, threads| Some(Waits::of(of, shared, threads, waits)?.reading(shared, threads));
    all.iter()
        .flat_map(|shared| threads(of).into_iter().filter_map(move |t| reading(*shared, t)))
        .collect()
}

/// Summarises the measurements on this machine.
pub fn found(all: &[Scaled]) -> Vec<String> {
    let one = |of: &Scaled| {
        let threads = *threads(of).first()?;
        let part = |shared: Shared| {
            let name = shared.name();
            let rate = of.measured.at(&name, threads as f64, |ran| ran.rate)?;
            let [waits, sleeps] = [&MEASURED[2], &MEASURED[3]]
                .map(|measure| of.measured.cell(&name, threads as f64, measure));
            Some(format!("{name} {rate:.2} accesses/us, {waits} and {sleeps}"))
        };
        let policies = [POLICY].into_iter().chain(OTHER_POLICIES);
        let mut systems: Vec<Shared> = policies.flat_map(Shared::all).collect();
        // The clock does not depend on the policy.
        systems.retain(|shared| shared.how != How::Clock || shared.policy == POLICY);
        let parts: Vec<String> = systems.into_iter().filter_map(part).collect();
        Some(format!(
            "{} with {threads} threads, measured here (throughput; waits per million accesses, in total and those that slept): {}.",
            of.kind.name(),
            parts.join("; ")
        ))
    };
    all.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::grid::Grid;
    use super::*;
    use crate::bars::{Outcome, Verdict};
    use crate::experiment::Options;

    #[test]
    fn bars_judge_the_worse_thread_count() {
        // Locked with 8, with 16, batched with 8; batched with 16 never waited. Two repetitions
        // each.
        let bars = judged([450.0, 1_500.0, 2.0, 0.0]);
        let Outcome::Measured { value, readings, .. } = &bars[0].outcome else {
            panic!("{bars:?}")
        };
        assert_eq!(*value, 225.0);
        let shown: Vec<String> = readings.iter().map(|reading| reading.to_string()).collect();
        let expected = [
            "2q/batched with 8 4 waits",
            "2q/batched with 16 0 waits",
            "2q/locked with 8 450.0 per million",
            "2q/locked with 16 1,500.0 per million",
        ];
        assert_eq!(shown, expected);
        assert!(bars.iter().all(|bar| FIG6.contains(&bar.name.as_str())));
    }

    #[test]
    fn batching_is_compared_with_the_clock() {
        let bars = judged([450.0, 1_500.0, 2.0, 0.0]);
        let bar = bars.iter().find(|bar| bar.name == RATES[0]).unwrap();
        assert_eq!(bar.verdict(false), Verdict::Short);
        assert!(
            bar.explained().starts_with("0.90 x, bar at least 0.95 x (2q/batched with 8 9.00 /us"),
            "{bar:?}"
        );
    }

    #[test]
    fn every_workload_has_its_own_bars() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            for name in [FALLS[at], RATES[at], OURS[at]] {
                assert!(name.contains(kind.name()) && FIG6.contains(&name), "{name}");
            }
        }
    }

    #[test]
    fn too_few_waits_judge_nothing_here() {
        assert!(matches!(judged([49.0, 1_500.0, 0.0, 0.0])[0].outcome, Outcome::NotHere { .. }));
    }

    /// Returns the bars of runs with these counts of waits that slept, in a million
    /// accesses.
    fn judged([locked_8, locked_16, batched_8, batched_16]: [f64; 4]) -> Vec<Bar> {
        let mut measured = Grid { title: String::new(), x: "threads", cells: Vec::new() };
        for (how, x, sleeps) in [
            (How::Locked, 8.0, locked_8),
            (How::Locked, 16.0, locked_16),
            (How::Batched, 8.0, batched_8),
            (How::Batched, 16.0, batched_16),
        ] {
            let ran = RunResult {
                rate: 9.0,
                transactions: 1.0,
                response_us: 1.0,
                accesses: 1e6,
                waits: 0.0,
                sleeps,
            };
            measured.record(&shared(how).name(), x, ran);
            measured.record(&shared(how).name(), x, ran);
            measured.record(
                &shared(How::Clock).name(),
                x,
                RunResult { rate: 10.0, sleeps: 0.0, ..ran },
            );
        }
        let simulated = || Grid { title: String::new(), x: "processors", cells: Vec::new() };
        let options =
            Options { quick: false, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        let scaled = Scaled {
            kind: Kind::Dbt1,
            measured,
            simulated: simulated(),
            other: simulated(),
            more: simulated(),
        };
        let task = Task { options, part: Part::Whole };
        with_bars(Findings::default(), &FIG6, Vec::new(), &[scaled], &task).bars
    }
}

//! The bars of batching: the source's claims about its throughput and contention, and what our
//! default must keep.

use super::grid::Grid;
use super::point::{self, Point};
use super::real::RunResult;
use super::scaling::{JUDGED_THREADS, MEASURED, Scaled};
use super::systems::{How, POLICY, Shared};
use super::workload::Kind;
use crate::bars::{Bar, Bound, Outcome, Reading};
use crate::experiment::{Part, Task};
use crate::place::Missing;
use crate::result::Findings;
use crate::table::FEW;
use clearway_replacement::PolicyKind;

/// The bars of the source's figure 6, on all workloads.
pub const FIG6: [&str; 11] = [
    FALLS[0],
    FALLS[1],
    FALLS[2],
    RATES[0],
    RATES[1],
    RATES[2],
    OURS[0],
    OURS[1],
    OURS[2],
    PREFETCHING,
    point::PREDICTIONS,
];
/// The bars of its figure 7.
pub const FIG7: [&str; 8] = [
    BY_POLICY[0],
    RATES_BY_POLICY[0],
    BY_POLICY[1],
    RATES_BY_POLICY[1],
    BY_POLICY[2],
    RATES_BY_POLICY[2],
    PREFETCHING,
    point::PREDICTIONS,
];
const FALLS: [&str; 3] = [
    "DBT-1-like, 8 and 16 threads: waits that sleep in 2q/locked over those in 2q/batched, at least 127 in the source, worst case",
    "DBT-2-like, 8 and 16 threads: waits that sleep in 2q/locked over those in 2q/batched, at least 127 in the source, worst case",
    "TableScan, 8 and 16 threads: waits that sleep in 2q/locked over those in 2q/batched, at least 127 in the source, worst case",
];
/// According to the source, contention falls by a factor of 127 to more than 9,000. A thread also
/// sleeps without a wait now and then, which only makes our factor smaller.
const FALL_AT_LEAST: f64 = 127.0;
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
/// According to the source, LIRS and MQ behave like 2Q, for which it gives the factor.
const BY_POLICY: [&str; 3] = [
    "all workloads, 8 and 16 threads: waits that sleep in 2q/locked over those in 2q/batched, at least 127 in the source, worst case",
    "all workloads, 8 and 16 threads: waits that sleep in lirs/locked over those in lirs/batched, at least 127 in the source for 2Q, worst case",
    "all workloads, 8 and 16 threads: waits that sleep in mq/locked over those in mq/batched, at least 127 in the source for 2Q, worst case",
];
const RATES_BY_POLICY: [&str; 3] = [
    "all workloads, 8 and 16 threads: throughput of 2q/batched over that of clock-sweep, worst case",
    "all workloads, 8 and 16 threads: throughput of lirs/batched over that of clock-sweep, worst case",
    "all workloads, 8 and 16 threads: throughput of mq/batched over that of clock-sweep, worst case",
];
const POLICIES: [PolicyKind; 3] = [POLICY, PolicyKind::Lirs, PolicyKind::Mq];
/// According to the source, prefetching alone reduces contention by 20.8 to 87.5 %.
const PREFETCHING: &str =
    "all workloads, 8 and 16 threads: waits in 2q/prefetched over those in 2q/locked, worst case";

fn shared(how: How) -> Shared {
    Shared { policy: POLICY, how }
}

/// Reads a number from the repetitions of a system: from all, or from those with near cores.
type Runs = fn(&Grid<RunResult>, &str, f64, fn(&RunResult) -> f64) -> Vec<f64>;

/// Waits and accesses of repetitions together.
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
        runs: Runs,
    ) -> Option<Self> {
        let sum = |figure| {
            let all = runs(&of.measured, &shared.name(), threads as f64, figure);
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
    for (at, policy) in POLICIES.into_iter().enumerate() {
        bars.extend([
            worst(all, |of| falls(of, policy, BY_POLICY[at])),
            worst(all, |of| rates(of, policy, RATES_BY_POLICY[at])),
        ]);
    }
    bars.extend([worst(all, prefetching), point::bar(points, all)]);
    let bars =
        bars.into_iter().flatten().filter(|bar| names.contains(&bar.name.as_str())).collect();
    Findings { bars, ..findings }
}

/// Returns the workloads' bar that is furthest from its bound, with the number of workloads that
/// judge nothing; one of these if there are no others.
fn worst(all: &[Scaled], one: impl Fn(&Scaled) -> Option<Bar>) -> Option<Bar> {
    let (mut judged, mut not_judged): (Vec<(f64, Bar)>, Vec<Bar>) = Default::default();
    for of in all {
        let Some(mut bar) = one(of) else { continue };
        if let Outcome::Measured { value, bound, readings, .. } = &mut bar.outcome {
            for reading in readings {
                reading.name = format!("{}, {}", of.kind.name(), reading.name);
            }
            let rank = match bound {
                Bound::AtLeast(_) => *value,
                Bound::AtMost(_) => -*value,
            };
            judged.push((rank, bar));
        } else {
            not_judged.push(bar);
        }
    }
    match judged.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, bar)) => Some(bar.without(not_judged.len())),
        None => not_judged.pop(),
    }
}

/// Returns the thread counts that were run.
fn threads(of: &Scaled) -> Vec<usize> {
    let there = |threads: &usize| contention(of, How::Locked, *threads).is_some();
    JUDGED_THREADS.into_iter().filter(there).collect()
}

fn falls(of: &Scaled, policy: PolicyKind, name: &str) -> Option<Bar> {
    let sleeps: fn(&RunResult) -> f64 = |ran| ran.sleeps;
    let [locked, batched] = [How::Locked, How::Batched].map(|how| Shared { policy, how });
    let waits = |shared, threads| Waits::of(of, shared, threads, sleeps, Grid::repetitions);
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
    let readings = waits_of(of, &[batched, locked], sleeps, Grid::repetitions);
    Some(Bar::measured(name, value, "x", Bound::AtLeast(FALL_AT_LEAST), readings))
}

fn rates(of: &Scaled, policy: PolicyKind, name: &str) -> Option<Bar> {
    let names = [How::Batched, How::Clock].map(|how| Shared { policy, how }.name());
    let (mut all, mut not_judged): (Vec<[Reading; 2]>, _) = (Vec::new(), 0);
    for threads in threads(of) {
        let systems = names.each_ref().map(String::as_str);
        match of.measured.together(systems, threads as f64, |ran| ran.rate) {
            Ok([batched, clock]) => {
                let reading = |name: &str, rate| {
                    Reading::new(&format!("{name} with {threads}"), rate, "/us", 2)
                };
                all.push([reading(&names[0], batched), reading(&names[1], clock)]);
            }
            Err(Missing::NoCommonState) => not_judged += 1,
            Err(Missing::Unmeasured) => {}
        }
    }
    let ratios = all.iter().map(|[batched, clock]| batched.value / clock.value);
    let Some(value) = ratios.min_by(f64::total_cmp) else {
        return (not_judged > 0).then(|| Bar::without_all(name, not_judged));
    };
    let readings = all.into_iter().flatten().collect();
    Some(Bar::measured(name, value, "x", Bound::AtLeast(SAME), readings).without(not_judged))
}

fn prefetching(of: &Scaled) -> Option<Bar> {
    let all: fn(&RunResult) -> f64 = |ran| ran.waits;
    let [prefetched, locked] = [How::Prefetched, How::Locked].map(shared);
    let waits = |shared, threads| Waits::of(of, shared, threads, all, Grid::repetitions);
    let ratio = |threads| {
        let locked = waits(locked, threads)?.at_least_one().per_million();
        Some(waits(prefetched, threads)?.per_million() / locked)
    };
    let value = threads(of).into_iter().filter_map(ratio).max_by(f64::total_cmp)?;
    let readings = waits_of(of, &[prefetched, locked], all, Grid::repetitions);
    Some(Bar::measured(PREFETCHING, value, "x", Bound::AtMost(1.0), readings))
}

fn ours(of: &Scaled, name: &str) -> Option<Bar> {
    let all: fn(&RunResult) -> f64 = |ran| ran.waits;
    let [default, locked] = [How::Default, How::Locked].map(shared);
    // A wait counts wherever the cores were.
    let runs: Runs = Grid::all_repetitions;
    let waits = |threads| Some(Waits::of(of, default, threads, all, runs)?.waits);
    let value = threads(of).into_iter().filter_map(waits).max_by(f64::total_cmp)?;
    Some(Bar::measured(
        name,
        value,
        "waits",
        Bound::AtMost(0.0),
        waits_of(of, &[default, locked], all, runs),
    ))
}

fn waits_of(of: &Scaled, all: &[Shared], waits: fn(&RunResult) -> f64, runs: Runs) -> Vec<Reading> {
    let reading = |shared, threads| {
        Some(Waits::of(of, shared, threads, waits, runs)?.reading(shared, threads))
    };
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
        let mut systems: Vec<Shared> = POLICIES.into_iter().flat_map(Shared::all).collect();
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
    use super::*;
    use crate::bars::Verdict;
    use crate::experiment::Options;
    use crate::place::tests::{APART, NEAR};
    use crate::place::{Cores, Place, Placed};

    #[test]
    fn bars_judge_the_worse_thread_count() {
        // Locked with 8, with 16, batched with 8, with 16. Two repetitions each.
        let bars = judged([3_000.0, 1_500.0, 20.0, 15.0]);
        let Outcome::Measured { value, readings, .. } = &bars[0].outcome else {
            panic!("{bars:?}")
        };
        assert_eq!(*value, 100.0);
        let shown: Vec<String> = readings.iter().map(|reading| reading.to_string()).collect();
        let expected = [
            "2q/batched with 8 40 waits",
            "2q/batched with 16 30 waits",
            "2q/locked with 8 3,000.0 per million",
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
    fn a_policy_is_judged_by_its_worst_workload() {
        let of = |kind| Scaled { kind, ..placed([&[NEAR], &[NEAR]], [&[NEAR], &[NEAR]]) };
        let one = |of: &Scaled| match of.kind {
            Kind::TableScan => Some(Bar::not_here("a", "no waits")),
            kind => {
                let value = if kind == Kind::Dbt1 { 2.0 } else { 5.0 };
                let reading = vec![Reading::new("ours", value, "x", 1)];
                Some(Bar::measured("a", value, "x", Bound::AtMost(1.0), reading))
            }
        };
        let bar = worst(&Kind::ALL.map(of), one).unwrap();
        let explained = bar.explained();
        assert!(explained.starts_with("5.00 x"), "{explained}");
        assert!(explained.contains("DBT-2-like, ours 5.0 x"), "{explained}");
        assert!(explained.contains("cells not judged: 1"), "{explained}");
        let none = worst(&[of(Kind::TableScan)], one).unwrap();
        assert_eq!(none.verdict(false), Verdict::NotHere);
        assert_eq!(worst(&[], one), None);
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
        assert!(matches!(judged([49.0, 1_500.0, 20.0, 20.0])[0].outcome, Outcome::NotHere { .. }));
    }

    #[test]
    fn the_source_wants_127_times_fewer_sleeps() {
        for (locked, verdict) in [(2_500.0, Verdict::Short), (2_600.0, Verdict::Ok)] {
            assert_eq!(judged([locked, 3_000.0, 20.0, 20.0])[0].verdict(false), verdict);
        }
        assert_eq!(judged([300.0, 300.0, 0.0, 0.0])[0].verdict(false), Verdict::Ok, "no sleep");
    }

    /// Returns a measured workload: batched and the clock with 8 and 16 threads, each with a run
    /// for each of its places. With cores apart the rate is half.
    fn placed(batched: [&[Place]; 2], clock: [&[Place]; 2]) -> Scaled {
        let grid = || Grid { title: String::new(), x: "threads", cells: Vec::new() };
        let mut measured = Grid { title: String::new(), x: "threads", cells: Vec::new() };
        let near: [&[Place]; 2] = [&[NEAR], &[NEAR]];
        let systems = [
            (How::Batched, 9.0, batched),
            (How::Clock, 10.0, clock),
            (How::Locked, 1.0, near),
            (How::Default, 9.0, batched),
        ];
        for (how, rate, places) in systems {
            for (threads, places) in JUDGED_THREADS.into_iter().zip(places) {
                for place in places {
                    let is_apart = !place.is_in(Cores::Near);
                    let ran = RunResult {
                        rate: if is_apart { rate / 2.0 } else { rate },
                        transactions: 1.0,
                        response_us: 1.0,
                        accesses: 1e6,
                        waits: f64::from(u8::from(is_apart)),
                        sleeps: 0.0,
                        place: *place,
                    };
                    measured.record(&shared(how).name(), threads as f64, ran);
                }
            }
        }
        Scaled { kind: Kind::Dbt1, measured, simulated: grid(), other: grid(), more: grid() }
    }

    #[test]
    fn throughput_is_compared_with_the_cores_in_one_state() {
        let bar = |batched: [&[Place]; 2], clock: [&[Place]; 2]| {
            rates(&placed(batched, clock), POLICY, RATES[0]).unwrap()
        };
        let both = bar([&[NEAR, APART], &[APART]], [&[APART, NEAR], &[APART, NEAR]]);
        let explained = both.explained();
        assert!(explained.starts_with("0.90 x"), "{explained}");
        assert!(explained.contains("clock-sweep with 16 5.00 /us"), "{explained}");
        let one = bar([&[NEAR], &[APART]], [&[NEAR], &[NEAR]]).explained();
        assert!(one.starts_with("0.90 x") && one.contains("cells not judged: 1"), "{one}");
        assert!(!one.contains("with 16"), "{one}");
        let none = bar([&[NEAR], &[APART]], [&[APART], &[NEAR]]);
        assert_eq!(none.verdict(false), Verdict::NotHere);
    }

    #[test]
    fn a_wait_in_the_default_wrapper_counts_wherever_the_cores_were() {
        let bar = ours(&placed([&[NEAR, APART], &[NEAR]], [&[NEAR], &[NEAR]]), OURS[0]).unwrap();
        assert_eq!(bar.verdict(false), Verdict::Short);
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
                place: NEAR,
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

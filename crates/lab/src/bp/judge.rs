//! The bars of batching: how much less often threads wait.

use super::grid::FEW;
use super::real::Ran;
use super::scaling::{JUDGED_THREADS, MEASURED, Scaled};
use super::systems::{How, POLICY, Shared};
use super::workload::Kind;
use crate::bars::{Bar, Bound, Reading};
use crate::experiment::{Part, Task};
use crate::result::Findings;

/// The workloads that bars are judged by.
pub const KINDS: [Kind; 2] = [Kind::Dbt1, Kind::TableScan];

/// The bars of the source's figure 6.
pub const BARS: [&str; 4] = [FALLS[0], FALLS[1], OURS[0], OURS[1]];
const FALLS: [&str; 2] = [
    "DBT-1-like, 8 and 16 threads: waits that give up the core in 2q/locked over those in 2q/batched, the lesser",
    "TableScan, 8 and 16 threads: waits that give up the core in 2q/locked over those in 2q/batched, the lesser",
];
const OURS: [&str; 2] = [
    "regression check, DBT-1-like, 8 and 16 threads: waits in the default wrapper, where hits only try the latch",
    "regression check, TableScan, 8 and 16 threads: waits in the default wrapper, where hits only try the latch",
];
fn shared(how: How) -> Shared {
    Shared { policy: POLICY, how }
}

/// Waits of all repetitions, and the accesses in which they came.
#[derive(Clone, Copy)]
struct Waits {
    waits: f64,
    accesses: f64,
}

impl Waits {
    fn of(of: &Scaled, how: How, threads: usize, waits: fn(&Ran) -> f64) -> Option<Self> {
        let sum = |figure| {
            let all = of.measured.repetitions(&shared(how).name(), threads as f64, figure);
            (!all.is_empty()).then(|| all.iter().sum::<f64>())
        };
        Some(Self { waits: sum(waits)?, accesses: sum(|ran| ran.accesses)? })
    }

    fn per_million(self) -> f64 {
        self.waits * 1e6 / self.accesses.max(1.0)
    }

    /// No wait at all counts as one: the true rate may be just below that.
    fn at_least_one(self) -> Self {
        Self { waits: self.waits.max(1.0), ..self }
    }

    /// As a count where there are too few for a rate.
    fn reading(self, how: How, threads: usize) -> Reading {
        let name = format!("{} with {threads}", shared(how).name());
        match self.waits < FEW {
            true => Reading::new(&name, self.waits, "waits", 0),
            false => Reading::new(&name, self.per_million(), "per million", 1),
        }
    }
}

fn contention(of: &Scaled, how: How, threads: usize) -> Option<f64> {
    of.measured.at(&shared(how).name(), threads as f64, Ran::contention)
}

/// Adds the bars, where a whole run or one for bars wants them.
pub fn with_bars(findings: Findings, all: &[Scaled], task: &Task) -> Findings {
    let wanted = !matches!(task.part, Part::Only(_));
    let judged = KINDS.into_iter().enumerate().flat_map(|(at, kind)| {
        let of = all.iter().find(|scaled| scaled.kind == kind);
        of.into_iter().flat_map(move |of| [falls(of, FALLS[at]), ours(of, OURS[at])]).flatten()
    });
    Findings { bars: if wanted { judged.collect() } else { Vec::new() }, ..findings }
}

/// The threads that were run.
fn threads(of: &Scaled) -> Vec<usize> {
    let there = |threads: &usize| contention(of, How::Locked, *threads).is_some();
    JUDGED_THREADS.into_iter().filter(there).collect()
}

fn falls(of: &Scaled, name: &str) -> Option<Bar> {
    let sleeps: fn(&Ran) -> f64 = |ran| ran.sleeps;
    let locked = |threads| Waits::of(of, How::Locked, threads, sleeps);
    let ratio = |threads| {
        let batched = Waits::of(of, How::Batched, threads, sleeps)?;
        Some(locked(threads)?.per_million() / batched.at_least_one().per_million())
    };
    let value = threads(of).into_iter().filter_map(ratio).min_by(f64::total_cmp)?;
    let few = threads(of).into_iter().filter_map(locked).any(|waits| waits.waits < FEW);
    if few {
        return Some(Bar::not_here(name, format!("fewer than {FEW} waits for a lock at each hit gave up the core")));
    }
    Some(bar(of, name, value, "x", Bound::AtLeast(100.0), &[How::Batched, How::Locked], sleeps))
}

fn ours(of: &Scaled, name: &str) -> Option<Bar> {
    let all: fn(&Ran) -> f64 = |ran| ran.waits;
    let waits = |threads| Waits::of(of, How::Default, threads, all);
    let value = threads(of).into_iter().filter_map(waits).map(|waits| waits.waits).max_by(f64::total_cmp)?;
    Some(bar(of, name, value, "waits", Bound::AtMost(0.0), &[How::Default, How::Locked], all))
}

fn bar(of: &Scaled, name: &str, value: f64, unit: &str, bound: Bound, hows: &[How], waits: fn(&Ran) -> f64) -> Bar {
    let reading = |how: How, threads| Some(Waits::of(of, how, threads, waits)?.reading(how, threads));
    let readings = hows.iter().flat_map(|how| threads(of).into_iter().filter_map(move |t| reading(*how, t)));
    Bar::measured(name, value, unit, bound, readings.collect())
}

/// What was measured here, in words.
pub fn found(all: &[Scaled]) -> Vec<String> {
    let one = |of: &Scaled| {
        let threads = *threads(of).first()?;
        let part = |how: How| {
            let name = shared(how).name();
            let rate = of.measured.at(&name, threads as f64, |ran| ran.rate)?;
            let [waits, sleeps] =
                [&MEASURED[2], &MEASURED[3]].map(|measure| of.measured.cell(&name, threads as f64, measure));
            Some(format!("{name} {rate:.2} accesses/us, {waits} and {sleeps}"))
        };
        let parts: Vec<String> = How::ALL.into_iter().filter_map(part).collect();
        Some(format!(
            "{} with {threads} threads, measured here (throughput; waits per million accesses, all and those that gave up the core): {}.",
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
    use crate::bars::Outcome;
    use crate::experiment::Options;

    #[test]
    fn the_worse_number_of_threads_is_judged() {
        // Locked with 8, with 16, batched with 8; batched with 16 never waited. Two repetitions of each.
        let bars = judged([450.0, 1_500.0, 2.0, 0.0]);
        let Outcome::Measured { value, readings, .. } = &bars[0].outcome else { panic!("{bars:?}") };
        assert_eq!(*value, 225.0);
        let shown: Vec<String> = readings.iter().map(|reading| reading.to_string()).collect();
        let expected = [
            "2q/batched with 8 4 waits",
            "2q/batched with 16 0 waits",
            "2q/locked with 8 450.0 per million",
            "2q/locked with 16 1,500.0 per million",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn too_few_waits_judge_nothing() {
        assert!(matches!(judged([49.0, 1_500.0, 0.0, 0.0])[0].outcome, Outcome::NotHere { .. }));
    }

    /// Bars of runs that gave up the core so often in a million accesses.
    fn judged([locked_8, locked_16, batched_8, batched_16]: [f64; 4]) -> Vec<Bar> {
        let mut measured = Grid { title: String::new(), x: "threads", cells: Vec::new() };
        for (how, x, sleeps) in [
            (How::Locked, 8.0, locked_8),
            (How::Locked, 16.0, locked_16),
            (How::Batched, 8.0, batched_8),
            (How::Batched, 16.0, batched_16),
        ] {
            let ran = Ran { rate: 1.0, transactions: 1.0, response_us: 1.0, accesses: 1e6, waits: 0.0, sleeps };
            measured.record(&shared(how).name(), x, ran);
            measured.record(&shared(how).name(), x, ran);
        }
        let simulated = || Grid { title: String::new(), x: "processors", cells: Vec::new() };
        let options = Options { quick: false, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        let scaled =
            Scaled { kind: Kind::Dbt1, measured, simulated: simulated(), other: simulated(), more: simulated() };
        let task = Task { options, part: Part::Whole };
        with_bars(Findings::default(), &[scaled], &task).bars
    }
}

//! The bars of batching: how much less often threads wait.

use super::scaling::{JUDGED_THREADS, Scaled};
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
    "DBT-1-like, 8 and 16 threads: contention of 2q/locked over that of 2q/batched, the lesser",
    "TableScan, 8 and 16 threads: contention of 2q/locked over that of 2q/batched, the lesser",
];
const OURS: [&str; 2] = [
    "regression check, DBT-1-like, 8 and 16 threads: waits in the default wrapper, where hits only try the latch",
    "regression check, TableScan, 8 and 16 threads: waits in the default wrapper, where hits only try the latch",
];
/// A run in which nobody waited is taken for one in which one access in so many did.
const LEAST: f64 = 0.1;

fn shared(how: How) -> Shared {
    Shared { policy: POLICY, how }
}

fn contention(of: &Scaled, how: How, threads: usize) -> Option<f64> {
    of.measured.at(&shared(how).name(), threads as f64, |ran| ran.contention)
}

fn reading(of: &Scaled, how: How, threads: usize) -> Option<Reading> {
    let name = format!("{} with {threads}", shared(how).name());
    Some(Reading::new(&name, contention(of, how, threads)?, "per million", 1))
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
    let ratio =
        |threads| Some(contention(of, How::Locked, threads)? / contention(of, How::Batched, threads)?.max(LEAST));
    let value = threads(of).into_iter().filter_map(ratio).min_by(f64::total_cmp)?;
    Some(bar(of, name, value, "x", Bound::AtLeast(100.0), &[How::Batched, How::Locked]))
}

fn ours(of: &Scaled, name: &str) -> Option<Bar> {
    let contention = |threads| contention(of, How::Default, threads);
    let value = threads(of).into_iter().filter_map(contention).max_by(f64::total_cmp)?;
    Some(bar(of, name, value, "per million", Bound::AtMost(0.0), &[How::Default, How::Locked]))
}

fn bar(of: &Scaled, name: &str, value: f64, unit: &str, bound: Bound, hows: &[How]) -> Bar {
    let readings = hows.iter().flat_map(|how| threads(of).into_iter().filter_map(|t| reading(of, *how, t)));
    Bar::measured(name, value, unit, bound, readings.collect())
}

/// What was measured here, in words.
pub fn found(all: &[Scaled]) -> Vec<String> {
    let one = |of: &Scaled| {
        let threads = *threads(of).first()?;
        let part = |how: How| {
            let name = shared(how).name();
            let rate = of.measured.at(&name, threads as f64, |ran| ran.rate)?;
            Some(format!("{name} {rate:.2} accesses/us, {:.1}", contention(of, how, threads)?))
        };
        let parts: Vec<String> = How::ALL.into_iter().filter_map(part).collect();
        Some(format!(
            "{} with {threads} threads, measured here (throughput, waits per million accesses): {}.",
            of.kind.name(),
            parts.join("; ")
        ))
    };
    all.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::grid::{Cell, Grid};
    use super::super::real::Ran;
    use super::*;
    use crate::bars::Outcome;
    use crate::experiment::Options;

    #[test]
    fn the_worse_number_of_threads_is_judged() {
        let ran = |contention| Ran { rate: 1.0, transactions: 1.0, response_us: 1.0, contention };
        let cell = |how: How, x, contention| Cell { system: shared(how).name(), x, figures: vec![ran(contention)] };
        let contentions = [(How::Locked, 8.0, 900.0), (How::Locked, 16.0, 3_000.0), (How::Batched, 8.0, 3.0)];
        let mut cells: Vec<_> = contentions.map(|(how, x, c)| cell(how, x, c)).into();
        cells.push(cell(How::Batched, 16.0, 0.0));
        let measured = Grid { title: String::new(), x: "threads", cells };
        let simulated = || Grid { title: String::new(), x: "processors", cells: Vec::new() };
        let options = Options { quick: false, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        let scaled =
            Scaled { kind: Kind::Dbt1, measured, simulated: simulated(), other: simulated(), more: simulated() };
        let task = Task { options, part: Part::Whole };
        let bars = with_bars(Findings::default(), &[scaled], &task).bars;
        assert!(matches!(bars[0].outcome, Outcome::Measured { value: 300.0, .. }), "{bars:?}");
    }
}

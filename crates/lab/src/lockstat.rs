//! The cost of counting latch and lock requests: the same load on a server with lockstat on and
//! off.

use crate::bars::{Bar, Bound, Outcome, Reading};
use crate::compare::{Comparison, Contender, compare, seeds};
use crate::experiment::{Experiment, Options, Part, Task};
use crate::pgbench::{clearway, configuration, samples};
use crate::result::Findings;
use crate::rival::Sizes;
use clearway_harness::pgbench::{Length, QueryMode, Run, Script};
use clearway_harness::{Res, tools};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lockstat",
    about: "counting requests and waits for latches and locks, against not counting them",
    question: "What does it cost to count every request for a latch or lock and to time every wait?",
    source: "Our own question (docs/decisions/lockstat.md). The Linux kernel's lockstat (Documentation/locking/lockstat.rst) counts similar events, but needs a separate build, since it is too expensive to be always on.",
    source_found: "The kernel's documentation gives no number.",
    limits: &[
        "The bar allows a cost of 2 %. Repetitions may differ by more, so it shows only that no larger cost than their spread was seen. Rate or CPU time is judged, whichever has the smaller spread.",
    ],
    bars: &[BAR],
    run,
};

const BAR: &str = "select-only, prepared, 100 clients, lockstat on against off";
/// Minimum of the rate with counting over that without, or of the CPU time without counting over
/// that with it.
const MIN_RATIO: f64 = 0.98;
/// Factor on the number of repetitions: a difference of 1 % needs more than one of 10 %.
const REPEAT_FACTOR: u32 = 3;
const CLIENTS: [u32; 3] = [1, 16, 100];

fn case(clients: u32) -> Run {
    Run {
        script: Script::SelectOnly,
        mode: QueryMode::Prepared,
        clients,
        threads: Run::THREADS,
        length: Length::Seconds(0),
    }
}

/// Returns the bar's case.
fn judged() -> Run {
    case(CLIENTS[CLIENTS.len() - 1])
}

fn cases(part: &Part) -> Vec<Run> {
    let wanted = |case: &Run| part.wants(&case.name(), case.name() == judged().name());
    CLIENTS.map(case).into_iter().filter(wanted).collect()
}

/// Returns `None` if the bar's case was not run.
fn judge(comparison: &Comparison) -> Option<Bar> {
    let case = judged().name();
    let rates = comparison.rates(&case)?.try_into().ok()?;
    let cpu_us = comparison.cpu_us(&case).and_then(|times| times.try_into().ok());
    Some(bar(rates, cpu_us, comparison.spreads(&case)))
}

/// Judges rates and CPU times with and without counting, given the spread of their repetitions.
/// With this many clients the cores are saturated, so the rate depends on the CPU time per
/// transaction. The measure with the smaller spread is judged.
fn bar([on, off]: [f64; 2], cpu_us: Option<[f64; 2]>, spreads: Option<(f64, f64)>) -> Bar {
    let lower_spread = cpu_us.filter(|_| spreads.is_some_and(|(rate, cpu)| cpu < rate));
    let value = lower_spread.map_or(on / off, |[on, off]| off / on);
    let mut readings = vec![Reading::new("on", on, "TPS", 0), Reading::new("off", off, "TPS", 0)];
    if let Some([on, off]) = cpu_us {
        let unit = "us of CPU per transaction";
        readings.extend([Reading::new("on", on, unit, 3), Reading::new("off", off, unit, 3)]);
    }
    let by = if lower_spread.is_some() { "x by CPU time" } else { "x by throughput" };
    let outcome =
        Outcome::Measured { value, unit: by.into(), bound: Bound::AtLeast(MIN_RATIO), readings };
    Bar { name: BAR.into(), outcome }
}

fn run(task: &Task) -> Res<Findings> {
    let options = Options {
        repeat: task.options.repeat.saturating_mul(REPEAT_FACTOR),
        ..task.options.clone()
    };
    let task = &Task { options, part: task.part.clone() };
    let sizes = Sizes::of(task);
    let configuration = configuration(task, &sizes);
    if tools::find("pgbench").is_none() {
        let why = "`pgbench` is not installed";
        if tools::in_ci() {
            return Err(format!("{why}, and CI must not skip it"));
        }
        return Ok(Findings {
            configuration,
            bars: vec![Bar::not_here(BAR, why)],
            ..Findings::default()
        });
    }
    let mut contenders = Vec::new();
    for lockstat in ["on", "off"] {
        let kind = clearway(task, &sizes, &["--lockstat", lockstat])?;
        contenders.push(Contender::start(lockstat, &kind, sizes.scale)?);
    }
    let comparison = compare(EXPERIMENT.name, &mut contenders, &cases(&task.part), task)?;
    Ok(Findings {
        configuration,
        seeds: seeds(task),
        samples: samples(&comparison),
        tables: vec![
            comparison.table("Medians, and the rate with lockstat over that without", &Vec::new()),
        ],
        found: comparison.summary().into_iter().collect(),
        bars: judge(&comparison).into_iter().collect(),
        ..Findings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measure_with_lower_spread_is_judged() {
        let value = |bar: Bar| {
            let Outcome::Measured { value, unit, readings, .. } = bar.outcome else {
                panic!("measured")
            };
            (value, unit, readings.len())
        };
        let (rates, cpu) = ([90.0, 100.0], Some([4.0, 3.0]));
        assert_eq!(value(bar(rates, cpu, Some((1.2, 1.1)))), (0.75, "x by CPU time".into(), 4));
        assert_eq!(value(bar(rates, cpu, Some((1.1, 1.2)))), (0.9, "x by throughput".into(), 4));
        assert_eq!(value(bar(rates, None, None)), (0.9, "x by throughput".into(), 2));
    }

    #[test]
    fn bar_runs_have_exactly_the_bars_case() {
        let names = |part: &Part| cases(part).iter().map(Run::name).collect::<Vec<_>>();
        assert_eq!(names(&Part::Whole).len(), CLIENTS.len());
        assert_eq!(names(&Part::Bars), [judged().name()]);
        assert_eq!(names(&Part::Only("-c 16".into())), ["select-only -M prepared -c 16"]);
    }
}

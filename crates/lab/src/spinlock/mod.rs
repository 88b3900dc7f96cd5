//! Latches under contention: the source's acquisitions, the engine's latch, and its peers.
//!
//! Part (a) is the latch benchmark: threads acquire one latch for critical sections of fixed length
//! ([`cases`]), every latch in turn ([`contender`]). Part (b), a whole server with one hot latch,
//! is a separate experiment: [`server`].

mod cases;
mod contender;
mod histogram;
mod judge;
mod repeat;
mod round;
pub mod server;
mod waits;

use crate::experiment::{Experiment, Part, Task};
use crate::number::median;
use crate::place::{self, Cores};
use crate::result::{Axis, Configuration, Findings, Point, Samples, Series};
use crate::table::{self, Column, Table};
use cases::{Case, Cell, Figures, Rounds, SECTIONS, Section};
use clearway_harness::Res;
use clearway_latch::RawLatch;
use clearway_latch::calibrate::{Calibration, calibrate};
use clearway_specimens::{SLockCas, SLockTas};
use contender::{ENGINE, PARKING_LOT, SPINNING, STD, UNCOUNTED};
use judge::Measured;
pub use round::{Work, calibrate as calibrate_work, voluntary_switches};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "spinlock",
    about: "latches under contention: acquisition instructions, spinning against sleeping, the engine's latch against std and parking_lot",
    question: "How much does the instruction that acquires a spinning latch matter? What remains of spinning with more threads than cores? Does the engine's latch (a bounded spin, then sleep) match std::sync::Mutex and parking_lot in throughput, longest waits and CPU time?",
    source: "A report on Greenplum 6.9.1 on Kunpeng (aarch64) under pgbench -S -c 100, and Greenplum pull request 12848; parking_lot issue 418 (120 cores).",
    source_found: "805 transactions per second with test-and-set (ldxr, stxr, dmb) under s_lock; 3,652 to 3,800 with compare-and-swap by acquire exclusives, which does not store while the latch is held. parking_lot took 403 ms where std took 113 ms, because its backoff was tuned for another chip's pause instruction.",
    limits: &[
        "The source's transaction rates are of an aarch64 server with a hundred processes, and parking_lot's times of another machine with 120 cores. On x86-64 an acquisition is one locked instruction whatever the style.",
        "With more threads than cores, a wait includes the time without a core.",
    ],
    bars: &[judge::ALONE, judge::TWO, judge::MANY, judge::MANY_PEERS, judge::WAITS],
    run,
};

/// A measure: its name and unit, how it is drawn, and how it is read from a round.
struct Measure {
    name: &'static str,
    unit: &'static str,
    digits: u8,
    axis: fn(&str, &str) -> Axis,
    drawn: bool,
    of: fn(&Figures) -> f64,
}

/// A rate of sleeps, shown as a count if there are few.
const SLEEPS: &str = "sleeps per 1,000 acquisitions";

const MEASURES: [Measure; 9] = [
    Measure {
        name: "throughput",
        unit: "/us",
        digits: 2,
        axis: Axis::linear,
        drawn: true,
        of: |f| f.rate,
    },
    Measure {
        name: "p99.9 wait",
        unit: "us",
        digits: 1,
        axis: Axis::log,
        drawn: true,
        of: |f| f.wait_us,
    },
    Measure {
        name: "fairness (Jain)",
        unit: "",
        digits: 2,
        axis: Axis::linear,
        drawn: false,
        of: |f| f.jain,
    },
    Measure {
        name: "fewest over most acquisitions",
        unit: "",
        digits: 2,
        axis: Axis::linear,
        drawn: false,
        of: |f| f.least,
    },
    Measure {
        name: "CPU per acquisition",
        unit: "ns",
        digits: 0,
        axis: Axis::log,
        drawn: true,
        of: |f| f.cpu_ns,
    },
    Measure {
        name: SLEEPS,
        unit: "",
        digits: 2,
        axis: Axis::linear,
        drawn: false,
        of: |f| f.switches,
    },
    Measure {
        name: "runnable without a core",
        unit: "",
        digits: 2,
        axis: Axis::linear,
        drawn: false,
        of: |f| f.queued,
    },
    Measure {
        name: place::LINE,
        unit: "ns",
        digits: 0,
        axis: Axis::log,
        drawn: false,
        of: |f| f.place.line_ns,
    },
    Measure {
        name: "time of work against the start",
        unit: "",
        digits: 2,
        axis: Axis::linear,
        drawn: false,
        of: |f| f.place.slowness,
    },
];
/// Indices of the [`MEASURES`] that have tables.
const TABLED: [usize; 5] = [0, 1, 2, 4, 5];

fn run(task: &Task) -> Res<Findings> {
    let calibration = calibrate();
    calibration.apply();
    let per_ns = round::calibrate();
    let Rounds { cells, repeated } = cases::measure(EXPERIMENT.name, task, per_ns)?;
    let measured = Measured(&cells);
    let mut tables = vec![published(&measured)];
    for section in SECTIONS {
        tables.extend(TABLED.iter().filter_map(|at| by_threads(&cells, &section, &MEASURES[*at])));
    }
    Ok(Findings {
        configuration: configuration(task, &calibration, per_ns),
        samples: SECTIONS.iter().flat_map(|section| samples(&cells, section)).collect(),
        tables,
        found: found(&measured).into_iter().chain(places(&cells, repeated)).collect(),
        agreement: agreement(&measured),
        bars: if matches!(task.part, Part::Only(_)) { Vec::new() } else { measured.bars() },
        ..Findings::default()
    })
}

fn configuration(task: &Task, calibration: &Calibration, per_ns: f64) -> Configuration {
    let length = match task.options.quick {
        true => "2 ms".into(),
        false => format!("{} s a repetition, shared by the latches", task.options.seconds),
    };
    let settings = [
        ("sections", "critical section/rest, made of dependent multiplications".into()),
        ("multiplications per nanosecond", format!("{per_ns:.2}")),
        ("waits", format!("one in {} timed", round::SAMPLED)),
        ("acquisition", calibration.choice.name().into()),
        ("spins before a thread yields or sleeps", calibration.spin_limit.to_string()),
        (
            "rounds",
            "latches in turn; if every thread has a core, 8 turns a repetition, without disturbed rounds; without rounds whose cores are apart".into(),
        ),
        (
            "repeated rounds",
            format!("those whose cores are apart, at the end, until they are near, for at most 1 / {} of the time of all other rounds", repeat::SHARE),
        ),
        ("run length", length),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the latches in the order in which they were measured.
fn names(cells: &[Cell]) -> Vec<&'static str> {
    let mut names = Vec::new();
    cells.iter().filter(|cell| cell.case == cells[0].case).for_each(|cell| names.push(cell.latch));
    names
}

/// Renders a measure of one section: latches in rows, threads in columns. Returns `None` if the
/// section was not measured.
fn by_threads(cells: &[Cell], section: &Section, measure: &Measure) -> Option<Table> {
    let of_section: Vec<&Cell> =
        cells.iter().filter(|cell| cell.case.section == *section).collect();
    let mut threads: Vec<usize> = of_section.iter().map(|cell| cell.case.threads).collect();
    threads.dedup();
    let shown = |latch: &str| {
        let mut row = vec![table::Cell::text(latch)];
        row.extend(threads.iter().map(|t| {
            let cell =
                of_section.iter().find(|cell| cell.latch == latch && cell.case.threads == *t);
            let values = cell.map(|cell| cell.values(measure.of)).unwrap_or_default();
            if measure.name != SLEEPS {
                return table::Cell::measured(&values, measure.digits);
            }
            let sleeps = cell.map(|cell| cell.values(|figures| figures.sleeps)).unwrap_or_default();
            table::Cell::rate(&values, measure.digits, "sleeps", sleeps.iter().sum())
        }));
        row
    };
    let mut columns = vec![Column::ours("latch", "")];
    columns.extend(threads.iter().map(|t| Column::ours(&format!("{t} threads"), measure.unit)));
    let title = format!("{}: {}, medians", section.name(), measure.name);
    (!threads.is_empty()).then(|| Table {
        title,
        columns,
        rows: names(cells).into_iter().map(shown).collect(),
    })
}

/// Returns one chart per measure of a section, with every round.
fn samples(cells: &[Cell], section: &Section) -> Vec<Samples> {
    let points = |latch: &str, measure: &Measure| {
        let cells =
            cells.iter().filter(|cell| cell.latch == latch && cell.case.section == *section);
        cells
            .map(|c| Point {
                x: c.case.threads as f64,
                y: c.rounds.iter().map(measure.of).collect(),
            })
            .collect()
    };
    let chart = |measure: &Measure| Samples {
        title: format!("{}: {}", section.name(), measure.name),
        x: Axis::log("threads", ""),
        y: (measure.axis)(measure.name, measure.unit),
        series: names(cells)
            .into_iter()
            .map(|latch| Series { name: latch.into(), points: points(latch, measure) })
            .collect(),
        drawn: measure.drawn,
        marked: None,
    };
    if cells.iter().any(|cell| cell.case.section == *section) {
        MEASURES.iter().map(chart).collect()
    } else {
        Vec::new()
    }
}

/// Returns the throughput of one latch over another's, with only a counter in the section and the
/// most threads.
fn times(measured: &Measured, latch: &str, other: &str) -> Option<f64> {
    let case = Case { section: SECTIONS[0], threads: measured.more_threads().last()? };
    measured.ratio(latch, other, &case, |f| f.rate).ok()
}

/// Published ratios: compare-and-swap over test-and-set, and std over parking_lot.
const PUBLISHED: [(&str, &str, &str, f64); 2] = [
    (
        "s_lock by compare-and-swap over s_lock by test-and-set",
        SLockCas::NAME,
        SLockTas::NAME,
        3800.0 / 805.0,
    ),
    ("std over parking_lot", STD, PARKING_LOT, 403.0 / 113.0),
];

fn published(measured: &Measured) -> Table {
    let row = |(what, latch, other, theirs): &(&str, &str, &str, f64)| {
        let ours = times(measured, latch, other);
        vec![
            table::Cell::text(*what),
            table::Cell::number(ours, 2),
            table::Cell::number(*theirs, 2),
        ]
    };
    Table {
        title: "Throughput ratios of many threads at one latch (published: whole servers, and a benchmark on 120 cores)".into(),
        columns: vec![Column::ours("ratio", ""), Column::ours("", "x"), Column::published("", "x")],
        rows: PUBLISHED.iter().map(row).collect(),
    }
}

fn found(measured: &Measured) -> Vec<String> {
    let kept = |latch: &str| {
        let kept: Vec<String> = measured
            .more_threads()
            .filter_map(|threads| {
                Some(format!(
                    "{:.2} with {threads}",
                    measured.against_its_two(latch, threads)?.mean()?
                ))
            })
            .collect();
        (!kept.is_empty()).then(|| format!("{latch} {}", kept.join(", ")))
    };
    let kept: Vec<String> = [ENGINE, UNCOUNTED, SPINNING, "ticket", "mcs", STD, PARKING_LOT]
        .into_iter()
        .filter_map(kept)
        .collect();
    if kept.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "Throughput with more threads relative to two threads, mean over the sections: {}.",
        kept.join("; ")
    )]
}

/// Says in how many rounds the cores were apart, and what that changes.
fn places(cells: &[Cell], repeated: usize) -> Option<String> {
    let found = place::found("rounds", cases::rounds(cells).map(|f| &f.place))?;
    let ratios: Vec<f64> = cells.iter().filter_map(Cell::apart_over_near).collect();
    let effect = median(&ratios).map_or_else(String::new, |ratio| {
        format!(" In the {} cells with rounds of both kinds, throughput was then {ratio:.2} times as high (median).", ratios.len())
    });
    let without = cells.iter().filter(|cell| cell.count(Cores::Near) == 0).count();
    Some(format!(
        "{found}{effect} {repeated} rounds were repetitions of rounds with cores apart; {without} of {} cells have no round with near cores.",
        cells.len()
    ))
}

fn agreement(measured: &Measured) -> Vec<String> {
    let Some(ours) = times(measured, PUBLISHED[0].1, PUBLISHED[0].2) else { return Vec::new() };
    let why = if cfg!(target_arch = "x86_64") {
        "On x86-64 both acquisitions are one locked instruction without a separate barrier, and PostgreSQL's checks the lock before it swaps: the source's problem does not exist here."
    } else {
        "The source's processor paid for a barrier and for stores while the latch was held; the calibration decides whether this one does."
    };
    vec![format!(
        "Compare-and-swap gave {ours:.2} times test-and-set's throughput under s_lock, the source's 4.5 to 4.8 times. {why}"
    )]
}

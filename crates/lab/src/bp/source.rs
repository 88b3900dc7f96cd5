//! What the source published of its machines, as far as its text has numbers, and how the simulated machine compares.
//!
//! The source gives no times of its machines. Those here are given: latencies of the processors' handbooks, their system's time slice, and the work
//! between two accesses, the one number that was fitted: so that 2Q behind a lock has, in the mean over the workloads, the published part of the clock's
//! throughput at the largest machine. What else was published is what the simulator is checked by.

use super::scaling::Scaled;
use super::systems::{How, POLICY, Shared};
use super::workload::Kind;
use crate::simulator::Outcome;
use crate::simulator::costs::Costs;
use crate::table::{Cell, Column, Table};

/// A machine of the source's.
pub struct Source {
    /// What it was.
    pub machine: &'static str,
    /// How many of its processors were used.
    pub cores: &'static [usize],
    /// What time things take there.
    pub costs: Costs,
    /// What was published of it.
    points: fn() -> Vec<Point>,
}

/// A published number, and how it is read off a simulation.
struct Point {
    what: String,
    unit: &'static str,
    /// From, to; infinite where it is more than something.
    published: (f64, f64),
    of: Box<ReadOff>,
}

/// How a number is read off simulations.
type ReadOff = dyn Fn(&[Scaled]) -> Option<f64>;

/// The clock's throughput that 2Q behind a lock had on the workloads, with all processors of either machine, in percent.
const ALTIX_OF_CLOCK: [f64; 3] = [61.1, 56.5, 66.5];
const POWER_EDGE_OF_CLOCK: [f64; 3] = [37.9, 52.1, 57.2];
/// And its mean response time, over the clock's.
const ALTIX_RESPONSE: [f64; 3] = [1.6, 1.5, 1.8];

/// The time slice of Linux 2.6's scheduler, before 2.6.23.
const LINUX_SLICE_NS: f64 = 100e6;

/// 16 processors in pairs on NUMAlink.
pub const ALTIX: Source = Source {
    machine: "Altix 350 (16 x Itanium 2, 1.4 GHz)",
    cores: &[1, 2, 4, 8, 16],
    costs: Costs {
        work_ns: 30_000.0,
        note_ns: 20.0,
        policy_ns: 150.0,
        cold_ns: 900.0,
        prefetch_ns: 900.0,
        latch_ns: 60.0,
        transfer_ns: 300.0,
        memory_ns: 0.0,
        crowd_ns: 0.0,
        switch_ns: 6_000.0,
        slice_ns: LINUX_SLICE_NS,
        spin_ns: 0.0,
    },
    points: altix,
};

/// Two processors of four cores each.
pub const POWER_EDGE: Source = Source {
    machine: "PowerEdge 1900 (2 x Xeon X5355, 8 cores, 2.66 GHz)",
    cores: &[1, 2, 4, 8],
    costs: Costs {
        work_ns: 5_000.0,
        note_ns: 5.0,
        policy_ns: 60.0,
        cold_ns: 300.0,
        prefetch_ns: 300.0,
        latch_ns: 40.0,
        transfer_ns: 120.0,
        memory_ns: 0.0,
        crowd_ns: 0.0,
        switch_ns: 3_000.0,
        slice_ns: LINUX_SLICE_NS,
        spin_ns: 0.0,
    },
    points: power_edge,
};

fn figure(all: &[Scaled], kind: Kind, how: How, cores: usize, of: fn(&Outcome) -> f64) -> Option<f64> {
    let scaled = all.iter().find(|scaled| scaled.kind == kind)?;
    scaled.simulated.at(&Shared { policy: POLICY, how }.name(), cores as f64, of)
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values = values.collect::<Option<Vec<f64>>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// 2Q behind a lock, in percent of the clock.
fn of_clock(kind: Kind, cores: usize, percent: f64) -> Point {
    Point {
        what: format!("{}: pg2Q's throughput at {cores} processors, of pgClock's", kind.name()),
        unit: "%",
        published: (percent, percent),
        of: Box::new(move |all| {
            let rate = |how| figure(all, kind, how, cores, Outcome::rate);
            Some(rate(How::Locked)? / rate(How::Clock)? * 100.0)
        }),
    }
}

fn of_clocks(cores: usize, percents: [f64; 3]) -> impl Iterator<Item = Point> {
    Kind::ALL.into_iter().zip(percents).map(move |(kind, percent)| of_clock(kind, cores, percent))
}

/// The mean response time of 2Q behind a lock, over the clock's.
fn response(kind: Kind, cores: usize, times: f64) -> Point {
    Point {
        what: format!("{}: pg2Q's mean response time at {cores} processors, over pgClock's", kind.name()),
        unit: "x",
        published: (times, times),
        of: Box::new(move |all| {
            let response = |how| figure(all, kind, how, cores, |outcome| outcome.response_ns);
            Some(response(How::Locked)? / response(How::Clock)?)
        }),
    }
}

/// How far prefetching alone takes contention down, in percent, in the mean over the workloads.
fn prefetched(cores: usize, percent: f64) -> Point {
    Point {
        what: format!("pgPref's contention at {cores} processors, below pg2Q's, in the mean"),
        unit: "%",
        published: (percent, percent),
        of: Box::new(move |all| {
            mean(Kind::ALL.into_iter().map(|kind| {
                let contention = |how| figure(all, kind, how, cores, Outcome::contention);
                Some((1.0 - contention(How::Prefetched)? / contention(How::Locked)?) * 100.0)
            }))
        }),
    }
}

fn batched(kind: Kind, cores: usize) -> [Point; 2] {
    let contention = move |all: &[Scaled], how| figure(all, kind, how, cores, Outcome::contention);
    [
        Point {
            what: format!(
                "{}: pg2Q's contention at {cores} processors, over pgBatching's (127 to more than 9,000)",
                kind.name()
            ),
            unit: "x",
            published: (127.0, f64::INFINITY),
            // A run in which nobody waited has less than one wait.
            of: Box::new(move |all| Some(contention(all, How::Locked)? / contention(all, How::Batched)?.max(1.0))),
        },
        Point {
            what: format!("{}: pgBatching's contention at {cores} processors", kind.name()),
            unit: "per million",
            published: (0.0, 400.0),
            of: Box::new(move |all| contention(all, How::Batched)),
        },
    ]
}

fn altix() -> Vec<Point> {
    let mut points: Vec<Point> = of_clocks(16, ALTIX_OF_CLOCK).collect();
    points.extend(Kind::ALL.into_iter().zip(ALTIX_RESPONSE).map(|(kind, times)| response(kind, 16, times)));
    points.push(Point {
        what: "TableScan: pg2Q's throughput falls from 8 to 16 processors by".into(),
        unit: "%",
        published: (12.7, 12.7),
        of: Box::new(|all| {
            let rate = |cores| figure(all, Kind::TableScan, How::Locked, cores, Outcome::rate);
            Some((1.0 - rate(16)? / rate(8)?) * 100.0)
        }),
    });
    points.extend([(2, 82.4), (4, 60.2), (8, 46.3), (16, 38.6)].map(|(cores, percent)| prefetched(cores, percent)));
    points.extend(Kind::ALL.into_iter().flat_map(|kind| batched(kind, 16)));
    points
}

fn power_edge() -> Vec<Point> {
    let mut points: Vec<Point> = of_clocks(8, POWER_EDGE_OF_CLOCK).collect();
    points.extend(Kind::ALL.into_iter().flat_map(|kind| batched(kind, 8)));
    points
}

/// The published points beside the simulated ones.
pub fn tables(source: &Source, all: &[Scaled]) -> Vec<Table> {
    let columns = vec![
        Column::ours("point", ""),
        Column::ours("simulated", ""),
        Column::published("from", ""),
        Column::published("to", ""),
        Column::ours("unit", ""),
    ];
    let row = |point: &Point| {
        let (from, to) = point.published;
        let simulated = (point.of)(all);
        let numbers = [simulated, Some(from), Some(to).filter(|to| to.is_finite())].map(|value| Cell::number(value, 1));
        std::iter::once(Cell::text(point.what.clone())).chain(numbers).chain([Cell::text(point.unit)]).collect()
    };
    let rows: Vec<Vec<Cell>> = (source.points)().iter().map(row).collect();
    vec![Table { title: format!("{}: published points beside simulated ones", source.machine), columns, rows }]
}

/// In words.
pub fn agreement(source: &Source, all: &[Scaled]) -> Vec<String> {
    let points = (source.points)();
    let compared: Vec<(&Point, f64)> = points.iter().filter_map(|point| Some((point, (point.of)(all)?))).collect();
    // A point agrees that is in what was published, or no further from it than a tenth of it.
    let agrees = |(point, value): &(&Point, f64)| {
        let (from, to) = point.published;
        (from * 0.9..=to * 1.1).contains(value)
    };
    let off: Vec<String> = compared
        .iter()
        .filter(|compared| !agrees(compared))
        .map(|(point, value)| format!("{}: {value:.1} {}, published {:.1}", point.what, point.unit, point.published.0))
        .collect();
    if compared.is_empty() {
        return Vec::new();
    }
    let mut said = vec![format!(
        "Simulated: {} of {} published points are met to a tenth. The mean of pg2Q's throughput over the workloads was fitted, by the work between two accesses; the times of the machine are given, not measured.",
        compared.len() - off.len(),
        compared.len()
    )];
    if !off.is_empty() {
        said.push(format!("Not met: {}.", off.join("; ")));
    }
    said.push(
        "The translation of the source leaves open whether its percentages of pgClock are of it or below it.".into(),
    );
    said
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Size, Workload};
    use super::*;
    use crate::simulator::{Machine, simulate};

    #[test]
    fn the_work_between_accesses_is_fitted_to_the_published_mean() {
        let workloads = Kind::ALL.map(|kind| Workload::record(kind, Size::of(true)).unwrap());
        for (source, published) in [(&ALTIX, ALTIX_OF_CLOCK), (&POWER_EDGE, POWER_EDGE_OF_CLOCK)] {
            let cores = source.cores[source.cores.len() - 1];
            let machine = Machine { cores, threads: 2 * cores, costs: source.costs, accesses: 60_000, seed: 1 };
            let percent = |workload: &Workload| {
                let rate =
                    |how| simulate(&Shared { policy: POLICY, how }.system(), &machine, &workload.transactions).rate();
                Some(rate(How::Locked) / rate(How::Clock) * 100.0)
            };
            let (simulated, published) = (mean(workloads.iter().map(percent)), mean(published.map(Some).into_iter()));
            assert!(
                (simulated.unwrap() - published.unwrap()).abs() < 2.0,
                "{}: {simulated:?} {published:?}",
                source.machine
            );
        }
    }
}

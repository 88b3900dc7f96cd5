//! The source's machines: their costs, and the numbers published for them.
//!
//! The source gives no times. The costs are our estimates for such processors, with two exceptions.
//! The PowerEdge has Red Hat Enterprise Linux AS 5, so its time slice is that of Linux 2.6.18. The
//! Altix has AS 3, whose kernel is a changed 2.4.21; we take the same time slice for it. The work
//! between two accesses is fitted: 2Q behind a lock
//! then has, averaged over the workloads, the published share of the clock's throughput with all
//! processors ("of", not "below": see [`Point::otherwise`]). `sensitivity` shows the effect of each
//! cost on the predictions.

use super::point::{Basis, Look, On, Point, ReadOff};
use super::systems::How;
use super::workload::Kind;
use crate::simulator::Outcome;
use crate::simulator::costs::Costs;

/// One of the source's machines.
pub struct Source {
    /// Description.
    pub machine: &'static str,
    /// Processor counts used.
    pub cores: &'static [usize],
    /// Costs of its operations.
    pub costs: Costs,
    /// The machine that the source compares it with, and the processor count.
    pub other: Option<(&'static Source, usize)>,
    /// Throughput of 2Q behind a lock by processors and workload, in percent of the clock's.
    pub of_clock: &'static [(usize, [f64; 3])],
    /// Mean reduction of contention by prefetching alone by processors, in percent.
    pub spared: &'static [(usize, f64)],
    /// The numbers published for it.
    pub points: fn() -> Vec<Point>,
}

/// Throughput of 2Q behind a lock with all processors of the machine, by workload, in percent of
/// the clock's.
const ALTIX_OF_CLOCK: [f64; 3] = [61.1, 56.5, 66.5];
const POWER_EDGE_OF_CLOCK: [f64; 3] = [37.9, 52.1, 57.2];
/// The same with 8 of the Altix's 16 processors.
const ALTIX_OF_CLOCK_AT_8: [f64; 3] = [30.1, 51.5, 32.6];
/// Mean reduction of contention by prefetching alone on the Altix, by processors, in percent.
const ALTIX_SPARED: [(usize, f64); 4] = [(2, 82.4), (4, 60.2), (8, 46.3), (16, 38.6)];
/// Mean response time of 2Q behind a lock, over the clock's.
const ALTIX_RESPONSE: [f64; 3] = [1.6, 1.5, 1.8];
/// Contention on the PowerEdge with 8 cores, in percent of the Altix's with 8 processors.
const POWER_EDGE_OF_ALTIX: [f64; 3] = [74.4, 18.5, 270.2];

/// Time slice of the scheduler of Linux 2.6 before 2.6.23, at the default priority.
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
        waiter_ns: 0.0,
        switch_ns: 6_000.0,
        slice_ns: LINUX_SLICE_NS,
        spin_ns: 0.0,
    },
    other: None,
    of_clock: &[(8, ALTIX_OF_CLOCK_AT_8), (16, ALTIX_OF_CLOCK)],
    spared: &ALTIX_SPARED,
    points: altix,
};

/// Two processors with four cores each.
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
        waiter_ns: 0.0,
        switch_ns: 3_000.0,
        slice_ns: LINUX_SLICE_NS,
        spin_ns: 0.0,
    },
    other: Some((&ALTIX, 8)),
    of_clock: &[(8, POWER_EDGE_OF_CLOCK)],
    spared: &[],
    points: power_edge,
};

/// Processor counts with published contention for prefetching.
const PREFETCHED_ON: [usize; 4] = [2, 4, 8, 16];

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values = values.collect::<Option<Vec<f64>>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn exactly(
    what: String,
    unit: &'static str,
    basis: Basis,
    published: f64,
    of: Box<ReadOff>,
) -> Point {
    Point { what, unit, basis, published: (published, published), otherwise: None, of }
}

/// Returns the point for the throughput of 2Q behind a lock, in percent of the clock's.
fn of_clock(kind: Kind, cores: usize, basis: Basis, percent: f64) -> Point {
    let of = move |look: Look<'_>| {
        let rate = |how| look(On::Own, kind, how, cores, Outcome::rate);
        Some(rate(How::Locked)? / rate(How::Clock)? * 100.0)
    };
    let what = format!("{}: pg2Q's throughput at {cores} processors, of pgClock's", kind.name());
    let point = exactly(what, "%", basis, percent, Box::new(of));
    Point { otherwise: Some(100.0 - percent), ..point }
}

fn of_clocks(cores: usize, basis: Basis, percents: [f64; 3]) -> impl Iterator<Item = Point> {
    Kind::ALL
        .into_iter()
        .zip(percents)
        .map(move |(kind, percent)| of_clock(kind, cores, basis, percent))
}

/// Returns the point for the mean response time of 2Q behind a lock, over the clock's.
fn response(kind: Kind, cores: usize, times: f64) -> Point {
    let of = move |look: Look<'_>| {
        let response = |how| look(On::Own, kind, how, cores, |outcome| outcome.response_ns);
        Some(response(How::Locked)? / response(How::Clock)?)
    };
    let what =
        format!("{}: pg2Q's mean response time at {cores} processors, over pgClock's", kind.name());
    exactly(what, "x", Basis::Implied, times, Box::new(of))
}

/// Returns the reduction of contention by prefetching alone on a workload, in percent.
fn spared(look: Look<'_>, kind: Kind, cores: usize) -> Option<f64> {
    let contention = |how| look(On::Own, kind, how, cores, Outcome::contention);
    Some((1.0 - contention(How::Prefetched)? / contention(How::Locked)?) * 100.0)
}

/// Returns the point for the reduction of contention by prefetching alone, in percent: the mean
/// over the workloads.
fn prefetched(cores: usize, percent: f64) -> Point {
    let of =
        move |look: Look<'_>| mean(Kind::ALL.into_iter().map(|kind| spared(look, kind, cores)));
    let what = format!("pgPref's contention at {cores} processors, below pg2Q's, mean");
    exactly(what, "%", Basis::Predicted, percent, Box::new(of))
}

/// Returns all workloads with each of these processor counts.
fn everywhere(cores: &'static [usize]) -> impl Iterator<Item = (Kind, usize)> {
    Kind::ALL.into_iter().flat_map(move |kind| cores.iter().map(move |cores| (kind, *cores)))
}

/// Returns the points for the smallest and the largest reduction of contention by prefetching
/// alone, in percent.
fn prefetched_range(cores: &'static [usize], least: f64, most: f64) -> [Point; 2] {
    let all = move |look: Look<'_>| {
        everywhere(cores)
            .map(|(kind, cores)| spared(look, kind, cores))
            .collect::<Option<Vec<f64>>>()
    };
    let what =
        |which| format!("pgPref's contention below pg2Q's, {which} over workloads and processors");
    let min = move |look: Look<'_>| all(look)?.into_iter().reduce(f64::min);
    let max = move |look: Look<'_>| all(look)?.into_iter().reduce(f64::max);
    [
        exactly(what("minimum"), "%", Basis::Predicted, least, Box::new(min)),
        exactly(what("maximum"), "%", Basis::Predicted, most, Box::new(max)),
    ]
}

/// Returns the points for the largest gain in throughput and the largest reduction of mean response
/// time by prefetching alone, in percent. The source names both machines before these numbers, and
/// does not say which of them has them.
fn prefetching_gains(cores: &'static [usize], rate: f64, response: f64) -> [Point; 2] {
    let most = move |look: Look<'_>, of: fn(&Outcome) -> f64, gain: fn(f64) -> f64| {
        let one = |(kind, cores)| {
            let of = |how| look(On::Own, kind, how, cores, of);
            Some(gain(of(How::Prefetched)? / of(How::Locked)?))
        };
        everywhere(cores).map(one).collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    };
    let faster = move |look: Look<'_>| most(look, Outcome::rate, |ratio| (ratio - 1.0) * 100.0);
    let sooner = move |look: Look<'_>| most(look, |o| o.response_ns, |ratio| (1.0 - ratio) * 100.0);
    let what = |which| {
        format!(
            "pgPref's {which} pg2Q's, maximum over workloads and processors (of this machine or the other)"
        )
    };
    [
        exactly(what("throughput above"), "%", Basis::Predicted, rate, Box::new(faster)),
        exactly(
            what("mean response time below"),
            "%",
            Basis::Predicted,
            response,
            Box::new(sooner),
        ),
    ]
}

fn range(what: String, unit: &'static str, published: (f64, f64), of: Box<ReadOff>) -> Point {
    Point { what, unit, basis: Basis::Range, published, otherwise: None, of }
}

/// Returns the point for the reduction of contention by batching.
fn batching_saves(kind: Kind, cores: usize) -> Point {
    let contention =
        move |look: Look<'_>, how| look(On::Own, kind, how, cores, Outcome::contention);
    // A run without a wait counts as one wait.
    let fall = move |look: Look<'_>| {
        Some(contention(look, How::Locked)? / contention(look, How::Batched)?.max(1.0))
    };
    let what =
        format!("{}: pg2Q's contention over pgBatching's at {cores} processors", kind.name());
    range(what, "x", (127.0, f64::INFINITY), Box::new(fall))
}

/// Returns the point for the contention that batching leaves, which the source gives for 16
/// processors.
fn batching_leaves(kind: Kind) -> Point {
    let rest = move |look: Look<'_>| look(On::Own, kind, How::Batched, 16, Outcome::contention);
    let what = format!("{}: pgBatching's contention at 16 processors", kind.name());
    range(what, "per million", (0.0, 400.0), Box::new(rest))
}

/// Returns the point for pg2Q's contention, in percent of that on the other machine with as many
/// processors.
fn contention_of_other(kind: Kind, cores: usize, percent: f64) -> Point {
    let of = move |look: Look<'_>| {
        let contention = |on| look(on, kind, How::Locked, cores, Outcome::contention);
        Some(contention(On::Own)? / contention(On::Other)? * 100.0)
    };
    let what = format!("{}: pg2Q's contention at {cores} cores, of the Altix's", kind.name());
    let point = exactly(what, "%", Basis::Predicted, percent, Box::new(of));
    Point { otherwise: Some(100.0 + percent), ..point }
}

fn altix() -> Vec<Point> {
    let falls = |look: Look<'_>| {
        let rate = |cores| look(On::Own, Kind::TableScan, How::Locked, cores, Outcome::rate);
        Some((1.0 - rate(16)? / rate(8)?) * 100.0)
    };
    let what = "TableScan: pg2Q's throughput falls from 8 to 16 processors by".to_owned();
    let mut points = vec![exactly(what, "%", Basis::Predicted, 12.7, Box::new(falls))];
    points.extend(of_clocks(8, Basis::Predicted, ALTIX_OF_CLOCK_AT_8));
    points.extend(ALTIX_SPARED.map(|(cores, percent)| prefetched(cores, percent)));
    points.extend(prefetched_range(&PREFETCHED_ON, 33.7, 82.6));
    points.extend(prefetching_gains(&PREFETCHED_ON, 26.1, 25.2));
    points.extend(of_clocks(16, Basis::Fitted, ALTIX_OF_CLOCK));
    points.extend(
        Kind::ALL.into_iter().zip(ALTIX_RESPONSE).map(|(kind, times)| response(kind, 16, times)),
    );
    points.extend(
        Kind::ALL.into_iter().flat_map(|kind| [batching_saves(kind, 16), batching_leaves(kind)]),
    );
    points
}

fn power_edge() -> Vec<Point> {
    let mut points: Vec<Point> = of_clocks(8, Basis::Fitted, POWER_EDGE_OF_CLOCK).collect();
    let of_altix = Kind::ALL.into_iter().zip(POWER_EDGE_OF_ALTIX);
    points.extend(of_altix.map(|(kind, percent)| contention_of_other(kind, 8, percent)));
    points.extend(prefetched_range(&[2, 4, 8], 20.8, 87.5));
    points.extend(Kind::ALL.into_iter().map(|kind| batching_saves(kind, 8)));
    points
}

#[cfg(test)]
mod tests {
    use super::super::systems::{POLICY, Shared};
    use super::super::workload::{Size, Workload};
    use super::*;
    use crate::simulator::{Machine, simulate};

    #[test]
    fn points_have_processors_that_the_source_measured() {
        for (source, ranges, predicted) in [(&ALTIX, 6, 12), (&POWER_EDGE, 3, 5)] {
            let points = (source.points)();
            let of = |basis| points.iter().filter(|point| point.basis == basis).count();
            assert_eq!((of(Basis::Range), of(Basis::Predicted)), (ranges, predicted));
            let at_16 = points.iter().any(|point| point.what.contains("at 16 processors"));
            assert_eq!(at_16, source.cores.contains(&16), "{}", source.machine);
        }
    }

    #[test]
    fn work_is_fitted_to_the_published_mean() {
        let workloads = Kind::ALL.map(|kind| Workload::record(kind, Size::of(true)).unwrap());
        for (source, published) in [(&ALTIX, ALTIX_OF_CLOCK), (&POWER_EDGE, POWER_EDGE_OF_CLOCK)] {
            let cores = source.cores[source.cores.len() - 1];
            let machine = Machine {
                cores,
                threads: 2 * cores,
                costs: source.costs,
                accesses: 60_000,
                seed: 1,
            };
            let percent = |workload: &Workload| {
                let rate = |how| {
                    simulate(
                        &Shared { policy: POLICY, how }.system(),
                        &machine,
                        &workload.transactions,
                    )
                    .rate()
                };
                Some(rate(How::Locked) / rate(How::Clock) * 100.0)
            };
            let (simulated, published) =
                (mean(workloads.iter().map(percent)), mean(published.map(Some).into_iter()));
            assert!(
                (simulated.unwrap() - published.unwrap()).abs() < 2.0,
                "{}: {simulated:?} {published:?}",
                source.machine
            );
        }
    }
}

//! Charts of simulated ratios beside the published ones. The source's numbers are ratios, so they
//! have no place in charts of absolute throughput.

use super::grid::Grid;
use super::point::Basis;
use super::scaling::Scaled;
use super::source::Source;
use super::systems::{How, POLICY, Shared};
use super::workload::Kind;
use crate::result::{Axis, Marked, Point, Samples, Series};
use crate::simulator::Outcome;

/// Returns a chart of throughput relative to the clock for each workload, and one of the contention
/// that prefetching saves.
pub fn charts(source: &Source, all: &[Scaled]) -> Vec<Samples> {
    let throughput = all.iter().map(|scaled| throughput(source, scaled));
    throughput.chain(prefetching(source, all)).collect()
}

fn name(how: How) -> String {
    Shared { policy: POLICY, how }.name()
}

fn chart(title: String, y: &str, series: Vec<Series>) -> Samples {
    let (x, y) = (Axis::log("processors", ""), Axis::linear(y, "%"));
    Samples { title, x, y, series, drawn: true, marked: None }
}

fn throughput(source: &Source, scaled: &Scaled) -> Samples {
    let (clock, locked) = (name(How::Clock), name(How::Locked));
    let mut series: Vec<Series> = Vec::new();
    for cell in scaled.simulated.cells.iter().filter(|cell| cell.system != clock) {
        let base = scaled.simulated.repetitions(&clock, cell.x, Outcome::rate);
        // Both have one figure per seed.
        let of_clock = cell.figures.iter().zip(base).map(|(own, clock)| own.rate() / clock * 100.0);
        let point = Point { x: cell.x, y: of_clock.collect() };
        match series.iter_mut().find(|series| series.name == cell.system) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: cell.system.clone(), points: vec![point] }),
        }
    }
    let workload = Kind::ALL.iter().position(|kind| *kind == scaled.kind).unwrap_or_default();
    let published = |name: String, read: fn(f64) -> f64| {
        let point = |(cores, percents): &(usize, [f64; 3])| Point {
            x: *cores as f64,
            y: vec![read(percents[workload])],
        };
        Series { name, points: source.of_clock.iter().map(point).collect() }
    };
    series.push(published(format!("{locked}, published"), |percent| percent));
    series.push(published(format!("{locked}, if \"below\", published"), |percent| 100.0 - percent));
    let title = format!("{}: throughput relative to clock-sweep", scaled.simulated.title);
    let marked = fitted(source, scaled.kind, &locked);
    Samples { marked, ..chart(title, "throughput relative to clock-sweep", series) }
}

/// Marks the ratio of 2Q behind a lock to which the source's costs are fitted: a mean over the
/// workloads, at the most processors of the machine.
fn fitted(source: &Source, kind: Kind, locked: &str) -> Option<Marked> {
    let points = (source.points)();
    let mut fitted = points.iter().filter(|point| point.basis == Basis::Fitted);
    fitted.find(|point| point.what.starts_with(kind.name()))?;
    let most = source.of_clock.iter().map(|(cores, _)| *cores).max()?;
    let points = vec![(locked.to_owned(), most as f64)];
    Some(Marked { what: "fitted, as a mean over the workloads".into(), points })
}

/// Returns `None` if nothing is published or a workload was not run: the published number is a mean
/// over the workloads.
fn prefetching(source: &Source, all: &[Scaled]) -> Option<Samples> {
    if source.spared.is_empty() || all.len() < Kind::ALL.len() {
        return None;
    }
    let spared = |grid: &Grid<Outcome>, cores: usize| {
        let contention = |how| grid.at(&name(how), cores as f64, Outcome::contention);
        Some((1.0 - contention(How::Prefetched)? / contention(How::Locked)?) * 100.0)
    };
    let mut simulated = Vec::new();
    for (cores, _) in source.spared {
        let each = all.iter().map(|scaled| spared(&scaled.simulated, *cores));
        let each: Vec<f64> = each.collect::<Option<_>>()?;
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        simulated.push(Point { x: *cores as f64, y: vec![mean] });
    }
    let published =
        source.spared.iter().map(|(cores, percent)| Point { x: *cores as f64, y: vec![*percent] });
    let series = vec![
        Series { name: "mean, simulated".into(), points: simulated },
        Series { name: "mean, published".into(), points: published.collect() },
    ];
    let title = format!("{}: contention saved by prefetching alone", source.machine);
    Some(chart(title, "contention saved", series))
}

#[cfg(test)]
mod tests {
    use super::super::source::{ALTIX, POWER_EDGE};
    use super::*;

    fn scaled(kind: Kind) -> Scaled {
        let grid = || Grid { title: kind.name().into(), x: "processors", cells: Vec::new() };
        let mut simulated = grid();
        for (how, elapsed_ns, waits) in
            [(How::Clock, 1e6, 0), (How::Locked, 2e6, 100), (How::Prefetched, 1.5e6, 40)]
        {
            for cores in [2.0, 4.0, 8.0, 16.0] {
                let outcome = Outcome { accesses: 1_000, elapsed_ns, waits, ..Outcome::default() };
                simulated.record(&name(how), cores, outcome);
            }
        }
        let measured = Grid { title: String::new(), x: "threads", cells: Vec::new() };
        Scaled { kind, measured, simulated, other: grid(), more: grid() }
    }

    #[test]
    fn published_ratios_are_in_the_charts() {
        let all = Kind::ALL.map(scaled);
        let charts = charts(&ALTIX, &all);
        assert_eq!(charts.len(), 4);
        let series = |chart: &Samples, name: &str| {
            let series = chart.series.iter().find(|series| series.name == name).unwrap();
            series.points.iter().map(|point| (point.x, point.y[0])).collect::<Vec<_>>()
        };
        assert_eq!(series(&charts[0], "2q/locked")[0], (2.0, 50.0));
        assert_eq!(series(&charts[0], "2q/locked, published"), [(8.0, 30.1), (16.0, 61.1)]);
        let marked = charts[0].marked.as_ref().unwrap();
        assert_eq!(marked.points, [("2q/locked".to_owned(), 16.0)]);
        let below = series(&charts[2], "2q/locked, if \"below\", published");
        assert_eq!(below, [(8.0, 100.0 - 32.6), (16.0, 100.0 - 66.5)]);
        assert_eq!(series(&charts[3], "mean, published")[0], (2.0, 82.4));
        assert!((series(&charts[3], "mean, simulated")[0].1 - 60.0).abs() < 1e-9);
        assert_eq!(super::charts(&POWER_EDGE, &all).len(), 3);
        assert_eq!(super::charts(&ALTIX, &all[..1]).len(), 1, "a mean needs all workloads");
    }
}

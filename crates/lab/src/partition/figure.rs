//! Figures 4 to 7: throughput over the share of transactions at both partitions.

use super::driven::{COSTS, DRIVER, RATE, Rates, Variant, point, schemes};
use super::judge::{self, PublishedPoint};
use super::model::Model;
use super::{configuration, seeds};
use crate::bp::grid::Grid;
use crate::experiment::Task;
use crate::progress::Progress;
use crate::result::{Axis, Findings, Point, Samples, Series};
use crate::table::{Cell, Column, Table};
use clearway_cluster::{ClusterReport, ExclusiveAccess, SchemeKind};
use clearway_harness::Res;

/// Shares of transactions at both partitions, in percent.
const PERCENTS: [u64; 15] = [0, 2, 4, 6, 8, 10, 16, 20, 30, 40, 50, 60, 70, 80, 100];
/// Those of a quick run.
const QUICK_PERCENTS: [u64; 5] = [0, 4, 16, 50, 100];

/// One of the source's figures.
pub struct Figure {
    /// Name of the experiment.
    pub name: &'static str,
    /// What is drawn, before the way.
    pub title: &'static str,
    /// Its loads.
    pub variants: &'static [Variant],
    /// Whether the source's model covers it.
    pub is_modelled: bool,
    /// What the source reports about it.
    pub points: &'static [PublishedPoint],
    /// What its results do not show.
    pub limits: &'static [&'static str],
}

/// Runs a figure's loads under every scheme.
pub fn run(task: &Task, figure: &Figure) -> Res<Findings> {
    let percents: &[u64] = if task.options.quick { &QUICK_PERCENTS } else { &PERCENTS };
    let mut cases = Vec::new();
    for variant in figure.variants {
        for scheme in schemes().filter(|scheme| applies(variant, *scheme)) {
            cases.extend(percents.iter().map(|percent| (variant, scheme, *percent)));
        }
    }
    cases.retain(|(variant, scheme, percent)| {
        task.part.wants(&format!("{} {percent}", variant.of(*scheme)), true)
    });
    let seeds = seeds(task);
    let mut progress = Progress::new(figure.name, cases.len());
    let title = format!("{}, {DRIVER}, {COSTS}", figure.title);
    let mut grid = Grid { title, x: "% at both", cells: Vec::new() };
    for (variant, scheme, percent) in cases {
        progress.step(&format!("{} {percent}", variant.of(scheme)));
        for seed in &seeds {
            let report = point(task, scheme, variant, percent, *seed)?;
            grid.record(&variant.of(scheme), percent as f64, report);
        }
    }
    let mut tables = vec![grid.table(&RATE), judge::table(figure.points, &Rates(&grid))];
    if figure.is_modelled {
        tables.push(beside_model(&grid));
    }
    Ok(Findings {
        configuration: configuration(task),
        seeds,
        samples: vec![drawn(figure, &grid)],
        tables,
        found: Vec::new(),
        agreement: Vec::new(),
        bars: judge::bars(figure.points, &Rates(&grid), &task.part),
    })
}

/// Returns false for a load that is the plain one under a scheme: locking has no coordinator that
/// orders transactions.
pub fn applies(variant: &Variant, scheme: SchemeKind) -> bool {
    let ordered = scheme.exclusive() == ExclusiveAccess::WhenUnlocked;
    ordered || !variant.sessions_coordinate
}

fn drawn(figure: &Figure, grid: &Grid<ClusterReport>) -> Samples {
    let mut samples = grid.samples(&RATE);
    samples.x = Axis::linear("transactions at both partitions", "%");
    if figure.is_modelled {
        samples.series.extend(schemes().filter_map(modelled));
    }
    samples
}

fn modelled(scheme: SchemeKind) -> Option<Series> {
    let points = PERCENTS.into_iter().map(|percent| {
        let x = percent as f64;
        Some(Point { x, y: vec![Model::SOURCE.rate(scheme, x / 100.0)?] })
    });
    Some(Series { name: format!("{scheme}, model"), points: points.collect::<Option<_>>()? })
}

/// Tabulates the plain load beside the model.
fn beside_model(grid: &Grid<ClusterReport>) -> Table {
    let rates = Rates(grid);
    let modelled: Vec<SchemeKind> =
        schemes().filter(|scheme| Model::SOURCE.rate(*scheme, 0.0).is_some()).collect();
    let mut columns = vec![Column::ours("at both", "%")];
    for scheme in &modelled {
        columns.push(Column::ours(&format!("{scheme}, {DRIVER}"), RATE.unit));
        columns.push(Column::ours(&format!("{scheme}, model"), RATE.unit));
        columns.push(Column::ours("difference", "%"));
    }
    let row = |percent: u64| {
        let mut row = vec![Cell::number(percent as f64, 0)];
        for scheme in &modelled {
            let ours = rates.at(*scheme, &Variant::PLAIN, percent);
            let model = Model::SOURCE.rate(*scheme, percent as f64 / 100.0);
            let difference = ours.zip(model).map(|(ours, model)| 100.0 * (ours / model - 1.0));
            let system = Variant::PLAIN.of(*scheme);
            row.extend([grid.cell(&system, percent as f64, &RATE), Cell::number(model, 0)]);
            row.push(Cell::number(difference, 1));
        }
        row
    };
    Table {
        title: format!("{DRIVER} beside the model, in which locks are always taken"),
        columns,
        rows: rates.percents(0, 100).into_iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_beside_the_model_have_a_deviation() {
        let mut grid = Grid { title: String::new(), x: "", cells: Vec::new() };
        for committed in [100, 110] {
            let virtual_ns = 1_000_000_000;
            let report = ClusterReport { committed, virtual_ns, ..ClusterReport::default() };
            grid.record(&Variant::PLAIN.of(SchemeKind::Blocking), 10.0, report);
        }
        let table = beside_model(&grid);
        let at = table.columns.iter().position(|column| column.name.starts_with("blocking"));
        assert_eq!(table.rows[0][at.unwrap()].to_string(), "100 ±10");
    }
}

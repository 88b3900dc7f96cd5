//! Table 1: the best scheme by aborts, conflicts and rounds.

use super::driven::{COSTS, DRIVER, RATE, Rates, Variant, point, schemes};
use super::{configuration, seeds};
use crate::bp::grid::Grid;
use crate::experiment::Task;
use crate::number::shown;
use crate::progress::Progress;
use crate::result::{Axis, Findings};
use crate::table::{Cell, Column, Table};
use clearway_cluster::ClusterReport;
use clearway_cluster::SchemeKind;
use clearway_harness::Res;

const NAME: &str = "partition/table1";
/// Shares of transactions at both partitions, in percent.
const PERCENTS: [u64; 3] = [5, 20, 50];

/// A kind of load of the source's table.
struct Situation {
    load: Variant,
    /// The scheme that the source's text recommends. Empty if it recommends none: we do not have
    /// the cells of its table.
    source: &'static str,
}

const SITUATIONS: [Situation; 8] = [
    situation("one round", (0, 0, false), "speculative"),
    situation("one round, conflicts", (100, 0, false), "speculative"),
    situation("one round, aborts", (0, 10, false), ""),
    situation("one round, aborts, conflicts", (100, 10, false), ""),
    situation("two rounds", (0, 0, true), "locking"),
    situation("two rounds, conflicts", (100, 0, true), ""),
    situation("two rounds, aborts", (0, 10, true), ""),
    situation("two rounds, aborts, conflicts", (100, 10, true), ""),
];

const fn situation(
    name: &'static str,
    (conflicts, aborts, two_rounds): (u64, u64, bool),
    source: &'static str,
) -> Situation {
    let load = Variant { name, conflicts, aborts, two_rounds, ..Variant::PLAIN };
    Situation { load, source }
}

/// Runs every scheme in every situation.
pub fn run(task: &Task) -> Res<Findings> {
    let mut cases = Vec::new();
    for situation in &SITUATIONS {
        for percent in PERCENTS {
            cases.extend(schemes().map(|scheme| (situation, scheme, percent)));
        }
    }
    cases.retain(|(situation, scheme, percent)| {
        task.part.wants(&format!("{} {percent}", situation.load.of(*scheme)), false)
    });
    let seeds = seeds(task);
    let mut progress = Progress::new(NAME, cases.len());
    let title = format!("Situations of table 1, {DRIVER}, {COSTS}");
    let mut grid = Grid { title, x: "% at both", cells: Vec::new() };
    for (situation, scheme, percent) in cases {
        progress.step(&format!("{} {percent}", situation.load.of(scheme)));
        for seed in &seeds {
            let report = point(task, scheme, &situation.load, percent, *seed)?;
            grid.record(&situation.load.of(scheme), percent as f64, report);
        }
    }
    let mut samples = grid.samples(&RATE);
    samples.x = Axis::linear("transactions at both partitions", "%");
    samples.drawn = false;
    Ok(Findings {
        configuration: configuration(task),
        seeds,
        samples: vec![samples],
        tables: vec![winners(&grid), grid.table(&RATE)],
        found: Vec::new(),
        agreement: Vec::new(),
        bars: Vec::new(),
    })
}

/// Tabulates the best scheme of each situation, and how far it is ahead of the second.
fn winners(grid: &Grid<ClusterReport>) -> Table {
    let rates = Rates(grid);
    let mut columns = vec![Column::ours("situation", "")];
    columns.extend(PERCENTS.map(|percent| Column::ours(&format!("{percent} % at both"), "")));
    columns.push(Column::published("by the source's text", ""));
    let row = |situation: &Situation| {
        let mut row = vec![Cell::text(situation.load.name)];
        row.extend(PERCENTS.map(|percent| {
            let rate =
                |scheme: SchemeKind| Some((scheme, rates.at(scheme, &situation.load, percent)?));
            best(schemes().filter_map(rate).collect()).map_or(Cell::Empty, Cell::text)
        }));
        row.push(match situation.source {
            "" => Cell::Empty,
            source => Cell::text(source),
        });
        row
    };
    Table {
        title: format!("The best scheme, and how far it is ahead of the second, {DRIVER}"),
        columns,
        rows: SITUATIONS.iter().map(row).collect(),
    }
}

/// Names the best scheme. Schemes with the best rate share the place.
fn best(mut rates: Vec<(SchemeKind, f64)>) -> Option<String> {
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (_, first) = *rates.first()?;
    let winners: Vec<String> =
        rates.iter().filter(|(_, rate)| *rate == first).map(|(name, _)| name.to_string()).collect();
    let names = winners.join(" and ");
    Some(match rates.get(winners.len()) {
        Some((_, next)) => format!("{names} +{} %", shown(100.0 * (first / next - 1.0), 1)),
        None => names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_scheme_is_named_with_its_lead() {
        let rates = vec![
            (SchemeKind::Blocking, 100.0),
            (SchemeKind::Locking, 110.0),
            (SchemeKind::Speculative, 100.0),
        ];
        assert_eq!(best(rates).as_deref(), Some("locking +10.0 %"));
        let tie = vec![(SchemeKind::Blocking, 1.0), (SchemeKind::Speculative, 1.0)];
        assert_eq!(best(tie).as_deref(), Some("blocking and speculative"));
        assert_eq!(best(Vec::new()), None);
    }
}

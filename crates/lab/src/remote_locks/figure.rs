//! Throughput and abort rate against theta.

use super::measures::{Shown, is_changing};
use super::sensitivity::{self, Compared, Ratio};
use super::systems::{
    Load, M, M_S, NO_WAIT, QUICK_THETAS, System, TCP, THETAS, TWO_SIDED, WAIT_DIE,
};
use super::{configuration, judge, protocol_name, seeds};
use crate::bars::Bar;
use crate::bp::grid::{Cell, Grid, Measure};
use crate::experiment::{Part, Task};
use crate::number::{median, shown};
use crate::progress::Progress;
use crate::result::{Axis, Findings, Marked, Samples};
use crate::table::{self, Column, Table};
use clearway_harness::Res;
use clearway_remote::Protocol;
use clearway_remote::ycsb::{FIRST_NS, WINDOWS, YcsbOutcome};
use judge::OverTcp;

/// A figure of the source.
pub struct Figure {
    name: &'static str,
    protocol: Protocol,
    writes: f64,
    systems: [System; 6],
    bar: Option<&'static OverTcp>,
    published: &'static [Published],
}

impl Figure {
    /// Returns true if no transaction writes.
    fn is_read_only(&self) -> bool {
        self.writes == 0.0
    }
}

/// A statement of the source about a figure, and our value for it.
struct Published {
    what: &'static str,
    ours: fn(&Grid<YcsbOutcome>) -> Option<String>,
    source: &'static str,
}

pub const FIG3: Figure = Figure {
    name: "remote-locks/fig3",
    protocol: Protocol::NoWait,
    writes: 0.5,
    systems: NO_WAIT,
    bar: Some(&judge::NO_WAIT_OVER_TCP),
    published: &[
        ORDER,
        OVERTAKES,
        Published {
            what: "M/S over TCP, theta 0.85",
            ours: |grid| over_tcp(grid, M_S),
            source: "5.3",
        },
        Published {
            what: "aborts of M at theta 0.85, %",
            ours: |grid| aborts(grid, M, 0.85),
            source: "more than 20 above theta 0.8; fitted, by the rows of a node",
        },
    ],
};

pub const FIG4: Figure = Figure {
    name: "remote-locks/fig4",
    protocol: Protocol::NoWait,
    writes: 0.0,
    systems: NO_WAIT,
    bar: None,
    published: &[
        ORDER,
        Published {
            what: "aborts of M/S at theta 0.95, %",
            ours: |grid| aborts(grid, M_S, 0.95),
            source: "0; follows from shared locks",
        },
        Published {
            what: "aborts of M at theta 0.95, %",
            ours: |grid| aborts(grid, M, 0.95),
            source: "more than 40; fitted, by the rows of a node",
        },
        Published {
            what: "M over TCP, theta 0.95",
            ours: |grid| over_tcp_at(grid, M, 0.95),
            source: "less than 1",
        },
    ],
};

pub const FIG5: Figure = Figure {
    name: "remote-locks/fig5",
    protocol: Protocol::WaitDie,
    writes: 0.5,
    systems: WAIT_DIE,
    bar: Some(&judge::WAIT_DIE_OVER_TCP),
    published: &[
        Published { source: "almost all", ..ORDER },
        Published { source: "above 0.9", ..OVERTAKES },
        Published {
            what: "M over TCP, theta 0.85",
            ours: |grid| over_tcp(grid, M),
            source: "10.6",
        },
    ],
};

const ORDER: Published = Published {
    what: "thetas where M/S > two-sided > TCP",
    ours: |grid| {
        let systems = [M_S, TWO_SIDED, TCP];
        let settled = |theta: &f64| judge::settled(grid, systems, *theta, YcsbOutcome::RATE.of);
        let changing = |theta: &f64| systems.map(|system| rate(grid, system, *theta));
        let (settled, all): (Vec<f64>, Vec<f64>) =
            thetas(grid).into_iter().partition(|theta| settled(theta).is_some());
        let holds = |thetas: &[f64]| {
            let in_order = |theta: &&f64| judge::is_falling(&changing(theta));
            format!("{} of {}", thetas.iter().filter(in_order).count(), thetas.len())
        };
        let others = match all.is_empty() {
            true => String::new(),
            false => format!("; {} where a rate is not stationary", holds(&all)),
        };
        Some(holds(&settled) + &others)
    },
    source: "all",
};

const OVERTAKES: Published = Published {
    what: "M/S beats M from theta",
    ours: |grid| {
        let beats = |theta: &f64| rate(grid, M_S, *theta) > rate(grid, M, *theta);
        Some(thetas(grid).into_iter().find(beats).map_or("never".into(), |theta| theta.to_string()))
    },
    source: "above 0.8",
};

fn thetas(grid: &Grid<YcsbOutcome>) -> Vec<f64> {
    grid.cells.iter().filter(|cell| cell.system == TCP.name).map(|cell| cell.x).collect()
}

fn rate(grid: &Grid<YcsbOutcome>, system: System, theta: f64) -> Option<f64> {
    grid.at(system.name, theta, YcsbOutcome::RATE.of)
}

fn over_tcp(grid: &Grid<YcsbOutcome>, system: System) -> Option<String> {
    over_tcp_at(grid, system, judge::THETA)
}

fn over_tcp_at(grid: &Grid<YcsbOutcome>, system: System, theta: f64) -> Option<String> {
    let ratio = shown(rate(grid, system, theta)? / rate(grid, TCP, theta)?, 2);
    let of_ratio = |cell: &&Cell<YcsbOutcome>| {
        cell.x == theta && [system.name, TCP.name].contains(&cell.system.as_str())
    };
    let mut runs = grid.cells.iter().filter(of_ratio).flat_map(|cell| &cell.figures);
    let mark = if runs.any(is_changing) { " (not stationary)" } else { "" };
    Some(ratio + mark)
}

fn aborts(grid: &Grid<YcsbOutcome>, system: System, theta: f64) -> Option<String> {
    Some(shown(grid.at(system.name, theta, YcsbOutcome::ABORTS.of)?, 1))
}

/// Runs a figure's systems at every theta.
pub fn run(task: &Task, figure: &Figure) -> Res<Findings> {
    let thetas: &[f64] = if task.options.quick { &QUICK_THETAS } else { &THETAS };
    let all = figure
        .systems
        .into_iter()
        .flat_map(|system| thetas.iter().map(move |theta| (system, *theta)));
    let judged = |system: System, theta| {
        let of_bar = figure.bar.is_some_and(|bar| [bar.system, TCP].contains(&system));
        let of_order =
            [M_S, TWO_SIDED, TCP].contains(&system) || (system == M && theta == judge::COLLAPSED);
        match figure.is_read_only() {
            true => of_order,
            false => of_bar && theta == judge::THETA,
        }
    };
    let wanted = |(system, theta): &(System, f64)| {
        task.part.wants(&format!("{} {theta}", system.name), judged(*system, *theta))
    };
    let cases: Vec<(System, f64)> = all.filter(wanted).collect();
    let seeds = seeds(task);
    let compared =
        if task.part == Part::Whole && figure.bar.is_some() { sensitivity::STEPS } else { 0 };
    let mut progress = Progress::new(figure.name, cases.len() + compared);
    let title = format!(
        "{}, {:.0} % writes, simulated",
        protocol_name(figure.protocol),
        figure.writes * 100.0
    );
    let mut grid = Grid { title, x: "theta", cells: Vec::new() };
    for (system, theta) in cases {
        progress.step(&format!("{}, theta {theta}", system.name));
        let load = Load::new(theta, figure.writes);
        let one = |seed: &u64| system.run(task, figure.protocol, load, *seed);
        let figures = seeds.iter().map(one).collect::<Res<_>>()?;
        grid.cells.push(Cell { system: system.name.into(), x: theta, figures });
    }
    let mut tables = vec![rates(&grid), grid.table(&YcsbOutcome::ABORTS), published(figure, &grid)];
    let mut fewer = Vec::new();
    if let (Some(bar), Part::Whole) = (figure.bar, &task.part) {
        if !task.options.quick {
            tables.push(windows(&grid, bar));
        }
        if let Some(compared) = compared_with_tcp(figure, &grid, bar) {
            let varied = sensitivity::run(task, compared, &mut progress)?;
            tables.extend([varied.costs, varied.in_flight]);
            fewer = varied.ratios;
        }
    }
    let rate = YcsbOutcome::RATE.of;
    let bars: Vec<Bar> = match figure.is_read_only() && !matches!(task.part, Part::Only(_)) {
        true => judge::read_only(&grid, rate),
        false => figure.bar.into_iter().filter_map(|bar| bar.judge(&grid, rate)).collect(),
    };
    Ok(Findings {
        configuration: configuration(task),
        seeds,
        samples: [YcsbOutcome::RATE, YcsbOutcome::ABORTS, YcsbOutcome::LATENCY]
            .iter()
            .map(|measure| drawn(&grid, measure))
            .collect(),
        tables,
        found: found(figure, &grid),
        agreement: agreement(figure, &grid, &fewer),
        bars,
    })
}

fn compared_with_tcp(figure: &Figure, grid: &Grid<YcsbOutcome>, bar: &OverTcp) -> Option<Compared> {
    // The first repetition has seed 1.
    let first = |system: System| grid.results(system.name, judge::THETA)?.first().copied();
    let estimated = Ratio { ours: first(bar.system)?, tcp: first(TCP)? };
    let (protocol, writes) = (figure.protocol, figure.writes);
    Some(Compared { protocol, writes, system: bar.system, estimated })
}

fn drawn(grid: &Grid<YcsbOutcome>, measure: &Measure<YcsbOutcome>) -> Samples {
    let samples = grid.samples(measure);
    let changing = grid.cells.iter().filter(|cell| cell.figures.iter().any(is_changing));
    let points: Vec<(String, f64)> = changing.map(|cell| (cell.system.clone(), cell.x)).collect();
    let what = "not stationary when the run ended".to_owned();
    let marked = (!points.is_empty()).then_some(Marked { what, points });
    Samples { x: Axis::linear("theta", ""), marked, ..samples }
}

/// Tabulates the rates, and marks those that still changed at the end.
fn rates(grid: &Grid<YcsbOutcome>) -> Table {
    let mut table = grid.table(&YcsbOutcome::RATE);
    let changing = grid.cells.iter().filter(|cell| cell.figures.iter().any(is_changing));
    for cell in changing {
        let heading = format!("{} {}", cell.x, grid.x);
        let column = table.columns.iter().position(|column| column.name == heading);
        let system = table::Cell::text(cell.system.clone());
        let row = table.rows.iter_mut().find(|row| row[0] == system);
        if let (Some(column), Some(row)) = (column, row) {
            row[column] = table::Cell::text(format!("{}*", row[column]));
        }
    }
    table.title += " (*: not stationary when the run ended)";
    table
}

fn published(figure: &Figure, grid: &Grid<YcsbOutcome>) -> Table {
    let text = |text: Option<String>| text.map_or(table::Cell::Empty, table::Cell::text);
    let row = |point: &Published| {
        vec![
            table::Cell::text(point.what),
            text((point.ours)(grid)),
            table::Cell::text(point.source),
        ]
    };
    Table {
        title: "Comparison with the source".into(),
        columns: vec![
            Column::ours("point", ""),
            Column::ours("simulated", ""),
            Column::published("", ""),
        ],
        rows: figure.published.iter().map(row).collect(),
    }
}

/// Tabulates the rates of the bar's systems in each window of a run, and the ratio of their last
/// rates: a run that is stationary has ended, and has no rate in later windows.
fn windows(grid: &Grid<YcsbOutcome>, bar: &OverTcp) -> Table {
    let rates = |system: System| -> Option<Vec<Vec<f64>>> {
        let runs = grid.results(system.name, judge::THETA)?;
        let of_window = |window: usize| {
            let of_run = |run: &YcsbOutcome| {
                let end = run.windows.iter().rposition(|rate| *rate > 0.0);
                end.filter(|end| *end >= window).map(|_| run.windows[window] / 1e3)
            };
            runs.iter().filter_map(of_run).collect()
        };
        Some((0..WINDOWS).map(of_window).collect())
    };
    // The last window of the longest run, at the latest this one.
    let last = |rates: &[Vec<f64>], window: usize| {
        rates[..=window].iter().rev().find_map(|rates| median(rates))
    };
    let row = |name: &str, cells: Vec<table::Cell>| {
        std::iter::once(table::Cell::text(name)).chain(cells).collect::<Vec<_>>()
    };
    let systems = [bar.system, TCP].map(|system| Some((system.name, rates(system)?)));
    let mut rows: Vec<Vec<table::Cell>> = systems
        .iter()
        .flatten()
        .map(|(name, rates)| {
            row(name, rates.iter().map(|of| table::Cell::measured(of, 1)).collect())
        })
        .collect();
    if let [Some((_, ours)), Some((_, tcp))] = &systems {
        let ratio = |window| Some(last(ours, window)? / last(tcp, window)?);
        let any = |window: &usize| [ours, tcp].iter().any(|rates| !rates[*window].is_empty());
        let ratio = |window| table::Cell::number(ratio(window).filter(|_| any(&window)), 2);
        rows.push(row("ratio of the last rates", (0..WINDOWS).map(ratio).collect()));
    }
    let mut columns = vec![Column::ours("window", "ms")];
    columns.extend((0..WINDOWS).map(|window| {
        let start = (FIRST_NS / 1_000_000) << window;
        let end = 2 * start;
        Column::ours(&format!("{start} to {end}"), "thousand/s")
    }));
    let title = format!("Rates by window of virtual time at theta {}", judge::THETA);
    Table { title, columns, rows }
}

fn found(figure: &Figure, grid: &Grid<YcsbOutcome>) -> Vec<String> {
    let [.., past, cached] = figure.systems;
    let over = |theta: &f64| {
        let best = rate(grid, M, *theta)?.max(rate(grid, M_S, *theta)?);
        let of = |system| Some(shown(rate(grid, system, *theta)? / best, 2));
        Some(format!("{} at theta {theta} ({} with cached locations)", of(past)?, of(cached)?))
    };
    let ratios: Vec<String> = thetas(grid).iter().filter_map(over).collect();
    let falling: Vec<String> = grid
        .cells
        .iter()
        .filter(|cell| cell.figures.iter().any(is_changing))
        .map(|cell| format!("{} at theta {}", cell.system, cell.x))
        .collect();
    let falling = match falling.is_empty() {
        true => None,
        false => {
            Some(format!("Not stationary when the last window ended: {}.", falling.join(", ")))
        }
    };
    let past = (!ratios.is_empty()).then(|| {
        format!("{}, relative to the better of M and M/S: {}.", past.name, ratios.join(", "))
    });
    past.into_iter().chain(falling).collect()
}

/// Compares with the source. `fewer` has the bar's ratio with fewer transactions in flight by TCP.
fn agreement(figure: &Figure, grid: &Grid<YcsbOutcome>, fewer: &[(usize, f64)]) -> Vec<String> {
    let point = |point: &Published| {
        Some(format!("{}: {} ({})", point.what, (point.ours)(grid)?, point.source))
    };
    let points: Vec<String> = figure.published.iter().filter_map(point).collect();
    let mut all =
        vec![format!("Simulated values, with the source's in parentheses: {}.", points.join("; "))];
    all.extend(figure.bar.and_then(|bar| undecided(bar, grid, fewer)));
    all
}

/// Says why the bar's ratio counts neither as kept nor as missed.
fn undecided(bar: &OverTcp, grid: &Grid<YcsbOutcome>, fewer: &[(usize, f64)]) -> Option<String> {
    let changing = bar.changing(grid);
    let ratio =
        |(in_flight, ratio): &(usize, f64)| format!("{} with {in_flight}", shown(*ratio, 2));
    let fewer: Vec<String> = fewer.iter().map(ratio).collect();
    let fewer = match fewer.is_empty() {
        true => String::new(),
        false => format!(
            " With fewer transactions in flight per worker by TCP it is {}.",
            fewer.join(", ")
        ),
    };
    (!changing.is_empty()).then(|| {
        format!(
            "The ratio to TCP is not counted as kept: when the run ended, the rate of {} was not \
             stationary, so the ratio is one point of a curve.{fewer}",
            changing.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::judge::tests::cell;
    use super::*;

    #[test]
    fn rates_by_window_have_a_deviation() {
        let cell = |system: System, rates: [f64; 2]| {
            let run = |rate| YcsbOutcome { windows: [rate; WINDOWS], ..YcsbOutcome::default() };
            Cell { system: system.name.into(), x: judge::THETA, figures: rates.map(run).to_vec() }
        };
        let cells = vec![cell(M, [3e3, 4e3]), cell(TCP, [1e3, 1e3])];
        let rows =
            windows(&Grid { title: String::new(), x: "theta", cells }, &judge::WAIT_DIE_OVER_TCP)
                .rows;
        let shown = rows.iter().map(|row| row[1].to_string()).collect::<Vec<_>>();
        assert_eq!(shown, ["3.0 ±1.0", "1.0 ±0.0", "3.00"]);
    }

    #[test]
    fn windows_after_the_end_of_a_run_have_no_rate() {
        let cell = |system: System, simulated: usize| {
            let windows = std::array::from_fn(|at| if at < simulated { 1e3 } else { 0.0 });
            let run = YcsbOutcome { windows, ..YcsbOutcome::default() };
            Cell { system: system.name.into(), x: judge::THETA, figures: vec![run] }
        };
        let cells = vec![cell(M, 2), cell(TCP, 3)];
        let grid = Grid { title: String::new(), x: "theta", cells };
        let rows = windows(&grid, &judge::WAIT_DIE_OVER_TCP).rows;
        let shown =
            |row: usize| rows[row][2..5].iter().map(table::Cell::to_string).collect::<Vec<_>>();
        assert_eq!(shown(0), ["1.0", "-", "-"]);
        assert_eq!(shown(1), ["1.0", "1.0", "-"]);
        assert_eq!(shown(2), ["1.00", "1.00", "-"]);
    }

    #[test]
    fn a_ratio_that_still_changes_is_not_counted() {
        let text = |is_stationary| {
            let tcp = cell(TCP, judge::THETA, 10.0, is_stationary);
            let cells = vec![cell(M_S, judge::THETA, 50.0, true), tcp];
            let grid = Grid { title: String::new(), x: "theta", cells };
            agreement(&FIG3, &grid, &[(16, 4.25)]).join("\n")
        };
        let changing = text(false);
        assert!(changing.contains("theta 0.85: 5.00 (not stationary) (5.3)"), "{changing}");
        assert!(changing.contains("not counted as kept") && changing.contains("4.25 with 16"));
        assert!(!text(true).contains("(not stationary)"));
    }

    #[test]
    fn order_is_counted_apart_where_a_rate_still_changes() {
        let at = |x, two_sided, tcp, is_stationary| {
            [
                cell(M_S, x, 9.0, true),
                cell(TWO_SIDED, x, two_sided, is_stationary),
                cell(TCP, x, tcp, true),
            ]
        };
        let cells = [at(0.0, 7.0, 5.0, true), at(0.8, 7.0, 5.0, false), at(0.9, 1.0, 5.0, false)];
        let cells = cells.into_iter().flatten().collect();
        let grid = Grid { title: String::new(), x: "theta", cells };
        let said = (ORDER.ours)(&grid).unwrap();
        assert_eq!(said, "1 of 1; 1 of 2 where a rate is not stationary");
    }

    #[test]
    fn points_that_are_not_stationary_are_marked() {
        let run = YcsbOutcome { windows: [1.0; WINDOWS], ..YcsbOutcome::default() };
        let cell =
            |x: f64, run: YcsbOutcome| Cell { system: TCP.name.into(), x, figures: vec![run] };
        let cells = vec![cell(0.8, YcsbOutcome { is_stationary: true, ..run }), cell(0.9, run)];
        let grid = Grid { title: String::new(), x: "theta", cells };
        let marked = drawn(&grid, &YcsbOutcome::RATE).marked.unwrap();
        assert_eq!(marked.points, [(TCP.name.to_owned(), 0.9)]);
    }
}

//! M or M/S chosen for each read, compared with both at every theta and share of writes.

use super::measures::Shown;
use super::systems::{ADAPTIVE, Load, M, M_S, QUICK_THETAS, System};
use super::{configuration, judge, protocol_name};
use crate::bars::{Bar, Bound, Reading};
use crate::bp::grid::{Cell, Grid};
use crate::experiment::Task;
use crate::number::{shown, spread};
use crate::progress::Progress;
use crate::result::{Axis, Findings, Samples};
use crate::table::{self, Column, Table};
use clearway_harness::Res;
use clearway_remote::Protocol;
use clearway_remote::ycsb::YcsbOutcome;

const NAME: &str = "remote-locks/kinds";
const PROTOCOLS: [Protocol; 2] = [Protocol::NoWait, Protocol::WaitDie];
const SYSTEMS: [System; 3] = [M, M_S, ADAPTIVE];
const WRITES: [f64; 5] = [0.0, 0.1, 0.3, 0.5, 1.0];
const THETAS: [f64; 6] = [0.0, 0.6, 0.8, 0.85, 0.9, 0.95];

/// Seeds of each repetition. From [`HOT`] on, they differ by more than the bar, so there are more.
const SEEDS: u64 = 4;
const HOT: f64 = 0.9;
const SEEDS_WHERE_HOT: u64 = 8;

/// All systems of a protocol at one share of writes.
struct Share {
    protocol: Protocol,
    writes: f64,
    grid: Grid<YcsbOutcome>,
}

impl Share {
    fn rate(&self, system: System, theta: f64) -> Option<f64> {
        self.grid.at(system.name, theta, YcsbOutcome::RATE.of)
    }

    /// Returns the adaptive rate and the better of the other two at a theta.
    fn compared(&self, theta: f64) -> Option<(f64, f64)> {
        let better = self.rate(M, theta)?.max(self.rate(M_S, theta)?);
        Some((self.rate(ADAPTIVE, theta)?, better))
    }

    /// Returns the ratio of the two, and the lowest and highest ratio of one seed's adaptive rate.
    fn ratio(&self, theta: f64) -> Option<[f64; 3]> {
        let (ours, better) = self.compared(theta)?;
        let of_seeds = self.grid.repetitions(ADAPTIVE.name, theta, YcsbOutcome::RATE.of);
        let (lowest, highest) = spread(&of_seeds)?;
        Some([ours, lowest, highest].map(|rate| rate / better))
    }
}

/// Runs all three systems at every theta and share of writes.
pub fn run(task: &Task) -> Res<Findings> {
    let thetas: &[f64] = if task.options.quick { &QUICK_THETAS } else { &THETAS };
    let writes: &[f64] = if task.options.quick { &WRITES[3..4] } else { &WRITES };
    let repetitions = u64::from(task.repetitions());
    let of_theta = |theta: f64| match () {
        () if task.options.quick => 1..=repetitions,
        () if theta < HOT => 1..=repetitions * SEEDS,
        () => 1..=repetitions * SEEDS_WHERE_HOT,
    };
    let mut progress =
        Progress::new(NAME, PROTOCOLS.len() * writes.len() * thetas.len() * SYSTEMS.len());
    let mut shares = Vec::new();
    for (protocol, writes) in
        PROTOCOLS.into_iter().flat_map(|p| writes.iter().map(move |w| (p, *w)))
    {
        let title =
            format!("{}, {:.0} % writes, simulated", protocol_name(protocol), writes * 100.0);
        let mut grid = Grid { title, x: "theta", cells: Vec::new() };
        for (system, theta) in SYSTEMS.into_iter().flat_map(|s| thetas.iter().map(move |t| (s, *t)))
        {
            let name = format!(
                "{}, {} % writes, {} {theta}",
                protocol_name(protocol),
                writes * 100.0,
                system.name
            );
            progress.step(&name);
            if task.part.wants(&name, true) {
                // Without back-off: the most conflicts, and a fraction of the time to simulate.
                let load = Load::new(theta, writes).without_back_off();
                let one = |seed| system.run(task, protocol, load, seed);
                let figures = of_theta(theta).map(one).collect::<Res<_>>()?;
                grid.cells.push(Cell { system: system.name.into(), x: theta, figures });
            }
        }
        shares.push(Share { protocol, writes, grid });
    }
    let ratios = PROTOCOLS.map(|protocol| ratios(&shares, protocol, thetas));
    Ok(Findings {
        configuration: configuration(task),
        seeds: of_theta(HOT).collect(),
        samples: shares.iter().map(drawn).collect(),
        tables: ratios
            .into_iter()
            .chain(shares.iter().map(|share| share.grid.table(&YcsbOutcome::RATE)))
            .collect(),
        found: Vec::new(),
        agreement: Vec::new(),
        bars: PROTOCOLS
            .into_iter()
            .filter_map(|protocol| worst(&shares, protocol, thetas))
            .collect(),
    })
}

fn drawn(share: &Share) -> Samples {
    Samples { x: Axis::linear("theta", ""), ..share.grid.samples(&YcsbOutcome::RATE) }
}

/// Tabulates the adaptive rate over the better of M's and M/S's, one row per share of writes: the
/// ratio of the medians, and in parentheses the adaptive rates of the lowest and the highest seed.
fn ratios(shares: &[Share], protocol: Protocol, thetas: &[f64]) -> Table {
    let mut columns = vec![Column::ours("writes", "%")];
    columns.extend(thetas.iter().map(|theta| Column::ours(&format!("{theta} theta"), "")));
    let row = |share: &Share| {
        let ratio = |theta: &f64| {
            share.ratio(*theta).map_or(table::Cell::Empty, |ratios| {
                let [median, lowest, highest] = ratios.map(|ratio| shown(ratio, 2));
                table::Cell::text(format!("{median} ({lowest} to {highest})"))
            })
        };
        let mut row = vec![table::Cell::number(share.writes * 100.0, 0)];
        row.extend(thetas.iter().map(ratio));
        row
    };
    let of_protocol = shares.iter().filter(|share| share.protocol == protocol);
    let title = format!("{}: adaptive over the better of M and M/S", protocol_name(protocol));
    Table { title, columns, rows: of_protocol.map(row).collect() }
}

/// Judges the bar in the case where adaptive locks do worst.
fn worst(shares: &[Share], protocol: Protocol, thetas: &[f64]) -> Option<Bar> {
    let of_protocol = shares.iter().filter(|share| share.protocol == protocol);
    let cases = of_protocol.flat_map(|share| thetas.iter().map(move |theta| (share, *theta)));
    let compared = cases.filter_map(|(share, theta)| Some((share, theta, share.compared(theta)?)));
    let (share, theta, (ours, better)) =
        compared.min_by(|(.., a), (.., b)| (a.0 / a.1).total_cmp(&(b.0 / b.1)))?;
    let place = format!("theta {theta}, {:.0} % writes", share.writes * 100.0);
    let ours = Reading::new(&format!("adaptive at {place}"), ours, YcsbOutcome::RATE.unit, 1);
    let better = Reading::new("the better of M and M/S", better, YcsbOutcome::RATE.unit, 1);
    let name = judge::adaptive(protocol);
    Some(Bar::ratio(name, Bound::AtLeast(judge::ADAPTIVE_AT_LEAST), ours, better))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;

    #[test]
    fn adaptive_locks_are_judged_where_they_do_worst() {
        let cell = |system: System, x, rate| Cell {
            system: system.name.into(),
            x,
            figures: vec![YcsbOutcome { rate, ..YcsbOutcome::default() }],
        };
        let share = |writes, adaptive| {
            let cells = vec![
                cell(M, 0.0, 100.0),
                cell(M_S, 0.0, 80.0),
                cell(ADAPTIVE, 0.0, adaptive),
                cell(M, 0.9, 10.0),
                cell(M_S, 0.9, 20.0),
                cell(ADAPTIVE, 0.9, 25.0),
            ];
            let grid = Grid { title: String::new(), x: "theta", cells };
            Share { protocol: Protocol::NoWait, writes, grid }
        };
        let verdict = |adaptive| {
            let shares = [share(0.0, 100.0), share(0.5, adaptive)];
            worst(&shares, Protocol::NoWait, &[0.0, 0.9]).map(|bar| bar.verdict(false))
        };
        assert_eq!((verdict(97.0), verdict(96.9)), (Some(Verdict::Ok), Some(Verdict::Short)));
        assert!(worst(&[share(0.0, 100.0)], Protocol::WaitDie, &[0.0]).is_none());
    }

    #[test]
    fn a_ratio_shows_its_spread_over_seeds() {
        let cell = |system: System, rates: &[f64]| Cell {
            system: system.name.into(),
            x: 0.9,
            figures: rates
                .iter()
                .map(|rate| YcsbOutcome { rate: *rate, ..YcsbOutcome::default() })
                .collect(),
        };
        let cells = vec![
            cell(M, &[8.0, 10.0, 90.0]),
            cell(M_S, &[1.0, 2.0, 3.0]),
            cell(ADAPTIVE, &[9.0, 11.0, 15.0]),
        ];
        let grid = Grid { title: String::new(), x: "theta", cells };
        let shares = [Share { protocol: Protocol::NoWait, writes: 0.5, grid }];
        let table = ratios(&shares, Protocol::NoWait, &[0.9]);
        assert_eq!(table.rows[0][1].to_string(), "1.10 (0.90 to 1.50)");
    }
}

//! The bars of row locks over one-sided memory.

use super::measures::is_changing;
use super::systems::{M, M_S, System, TCP, TWO_SIDED};
use crate::bars::{Bar, Bound, Reading};
use crate::bp::grid::Grid;
use crate::number::shown;
use clearway_remote::Protocol;
use clearway_remote::ycsb::YcsbOutcome;

/// The theta at which the source's ratios to TCP are largest.
pub const THETA: f64 = 0.85;

/// The minimum of a system's rate over TCP's at [`THETA`] with 50 % writes.
pub struct OverTcp {
    pub name: &'static str,
    pub system: System,
    at_least: f64,
}

pub const NO_WAIT_OVER_TCP: OverTcp =
    OverTcp { name: "NO_WAIT, M/S over TCP, theta 0.85, 50 % writes", system: M_S, at_least: 5.3 };
pub const WAIT_DIE_OVER_TCP: OverTcp =
    OverTcp { name: "WAIT_DIE, M over TCP, theta 0.85, 50 % writes", system: M, at_least: 10.6 };

pub const ORDER: &str = "thetas where M/S > two-sided > TCP, % of those that are stationary";
pub const COLLAPSE: &str = "read-only, M over TCP, theta 0.95";
/// The theta at which M has collapsed if transactions only read.
pub const COLLAPSED: f64 = 0.95;

pub const ATOMICITY_RETRIES: &str = "NO_WAIT, M/S: atomicity retries per transaction, worst theta";
pub const ATOMICITY_RETRIES_AT_MOST: f64 = 0.2;
pub const WAIT_RETRIES: &str = "WAIT_DIE, M/S, theta 0.95: wait retries per transaction";
/// The source has about 12; a tenth more is still about that.
pub const WAIT_RETRIES_AT_MOST: f64 = 13.2;

pub const VERBS_A_WAIT: &str = "remote verbs per wait in line for a remote row, theta 0.95";
pub const VERBS_A_WAIT_AT_MOST: f64 = 2.0;
pub const ROUNDS_A_ROW: &str = "rounds per remote row, one round, cached locations";
pub const ROUNDS_A_ROW_AT_MOST: f64 = 2.0;
pub const VERBS: &str = "verbs of 7.5 remote rows, one round, cached locations";
pub const VERBS_AT_MOST: f64 = 27.0;

pub const NO_WAIT_ADAPTIVE: &str = "NO_WAIT, adaptive over the better of M and M/S, worst case";
pub const WAIT_DIE_ADAPTIVE: &str = "WAIT_DIE, adaptive over the better of M and M/S, worst case";
pub const ADAPTIVE_AT_LEAST: f64 = 0.97;

pub const REAL_ONE_SIDED: &str =
    "real, NO_WAIT: the better of M and M/S over two-sided, worst theta";
pub const REAL_TWO_SIDED: &str = "real, NO_WAIT: two-sided over TCP, worst theta";
pub const REAL_OVER_TCP: &str = "real, NO_WAIT: the better of M and M/S over TCP, theta 0.85";
pub const REAL_WAIT_DIE: &str =
    "real, WAIT_DIE: the better of M and M/S over two-sided, worst theta";
pub const REAL_OVER_TCP_AT_LEAST: f64 = 5.0;

/// Returns the name of the bar for adaptive locks.
pub fn adaptive(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::NoWait => NO_WAIT_ADAPTIVE,
        Protocol::WaitDie => WAIT_DIE_ADAPTIVE,
    }
}

impl OverTcp {
    /// Returns the systems whose rates at [`THETA`] still changed when their runs ended.
    pub fn changing(&self, grid: &Grid<YcsbOutcome>) -> Vec<&'static str> {
        let changes = |system: &System| {
            let runs = grid.results(system.name, THETA);
            runs.is_some_and(|runs| runs.iter().any(is_changing))
        };
        [self.system, TCP].into_iter().filter(changes).map(|system| system.name).collect()
    }

    /// Judges the bar if its cases were run. A rate that still changed at the end is one point of a
    /// curve, so its ratio decides nothing.
    pub fn judge(&self, grid: &Grid<YcsbOutcome>, rate: fn(&YcsbOutcome) -> f64) -> Option<Bar> {
        let reading = |system: System| {
            Some(Reading::new(system.name, grid.at(system.name, THETA, rate)?, "thousand/s", 1))
        };
        let (ours, tcp) = (reading(self.system)?, reading(TCP)?);
        let changing = self.changing(grid);
        if changing.is_empty() {
            return Some(Bar::ratio(self.name, Bound::AtLeast(self.at_least), ours, tcp));
        }
        let ratio = shown(ours.value / tcp.value, 2);
        Some(Bar::not_here(
            self.name,
            format!(
                "not stationary when the run ended: {}; the ratio was then {ratio} x, for a bar of at least {} x",
                changing.join(" and "),
                shown(self.at_least, 2)
            ),
        ))
    }
}

/// Returns true if each rate is below the one before it.
pub fn is_falling<T: PartialOrd>(rates: &[T]) -> bool {
    rates.is_sorted_by(|a, b| a > b)
}

/// Returns the rates of systems at a theta, or `None` if one was not run or still changed.
pub fn settled<const N: usize>(
    grid: &Grid<YcsbOutcome>,
    systems: [System; N],
    theta: f64,
    rate: fn(&YcsbOutcome) -> f64,
) -> Option<[f64; N]> {
    let of = |system: System| {
        let runs = grid.results(system.name, theta)?;
        if runs.iter().any(is_changing) { None } else { grid.at(system.name, theta, rate) }
    };
    let rates: Option<Vec<f64>> = systems.into_iter().map(of).collect();
    rates?.try_into().ok()
}

/// Judges the claims about read-only transactions: the order of the others at every theta, and that
/// M collapses.
pub fn read_only(grid: &Grid<YcsbOutcome>, rate: fn(&YcsbOutcome) -> f64) -> Vec<Bar> {
    let thetas = grid.cells.iter().filter(|cell| cell.system == TCP.name).map(|cell| cell.x);
    let orders: Vec<bool> = thetas
        .filter_map(|theta| settled(grid, [M_S, TWO_SIDED, TCP], theta, rate))
        .map(|rates| is_falling(&rates))
        .collect();
    let holds = orders.iter().filter(|holds| **holds).count() as f64;
    let readings = vec![
        Reading::new("in order", holds, "thetas", 0),
        Reading::new("that are stationary", orders.len() as f64, "thetas", 0),
    ];
    let value = 100.0 * holds / orders.len() as f64;
    let order = (!orders.is_empty())
        .then(|| Bar::measured(ORDER, value, "%", Bound::AtLeast(100.0), readings));
    let collapse = settled(grid, [M, TCP], COLLAPSED, rate).map(|[ours, tcp]| {
        let reading = |system: System, rate| Reading::new(system.name, rate, "thousand/s", 1);
        Bar::ratio(COLLAPSE, Bound::AtMost(1.0), reading(M, ours), reading(TCP, tcp))
    });
    let unsettled = |name| Bar::not_here(name, "not all systems were run until stationary");
    let order = order.unwrap_or_else(|| unsettled(ORDER));
    vec![order, collapse.unwrap_or_else(|| unsettled(COLLAPSE))]
}

/// Builds a bar for a count with an upper bound.
pub fn at_most(name: &str, most: f64, value: f64, readings: Vec<Reading>) -> Bar {
    Bar::measured(name, value, "", Bound::AtMost(most), readings)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bars::Verdict;
    use crate::bp::grid::Cell;
    use clearway_remote::ycsb::WINDOWS;

    /// Returns a cell with one run, which has the rate in all windows.
    pub fn cell(system: System, x: f64, rate: f64, is_stationary: bool) -> Cell<YcsbOutcome> {
        let windows = [rate; WINDOWS];
        let run = YcsbOutcome { rate, windows, is_stationary, ..YcsbOutcome::default() };
        Cell { system: system.name.into(), x, figures: vec![run] }
    }

    #[test]
    fn ratios_to_tcp_are_judged_at_their_theta() {
        let cell = |system: System, x, rate| Cell {
            system: system.name.into(),
            x,
            figures: vec![YcsbOutcome { rate, ..YcsbOutcome::default() }],
        };
        let grid = |ours| Grid {
            title: String::new(),
            x: "theta",
            cells: vec![cell(M_S, 0.8, 1.0), cell(M_S, THETA, ours), cell(TCP, THETA, 10.0)],
        };
        let verdict = |ours| {
            NO_WAIT_OVER_TCP.judge(&grid(ours), |run| run.rate).map(|bar| bar.verdict(false))
        };
        assert_eq!((verdict(53.0), verdict(52.9)), (Some(Verdict::Ok), Some(Verdict::Short)));
        assert!(WAIT_DIE_OVER_TCP.judge(&grid(53.0), |run| run.rate).is_none(), "M was not run");
    }

    #[test]
    fn order_and_collapse_are_judged_where_rates_are_stationary() {
        let bars = |tcp: f64, is_stationary| {
            let mut cells = vec![cell(M, COLLAPSED, 4.0, true)];
            for (x, is_stationary) in [(0.0, true), (COLLAPSED, is_stationary)] {
                cells.push(cell(M_S, x, 9.0, true));
                cells.push(cell(TWO_SIDED, x, 7.0, true));
                cells.push(cell(TCP, x, tcp, is_stationary));
            }
            let grid = Grid { title: String::new(), x: "theta", cells };
            read_only(&grid, |run| run.rate)
        };
        let verdicts = |bars: Vec<Bar>| bars.iter().map(|b| b.verdict(false)).collect::<Vec<_>>();
        assert_eq!(verdicts(bars(5.0, true)), [Verdict::Ok, Verdict::Ok]);
        assert_eq!(verdicts(bars(3.0, true)), [Verdict::Ok, Verdict::Short]);
        assert_eq!(verdicts(bars(8.0, true)), [Verdict::Short, Verdict::Ok]);
        assert_eq!(verdicts(bars(5.0, false)), [Verdict::Ok, Verdict::NotHere]);
        assert!(bars(5.0, false)[0].explained().contains("beside that are stationary 1"));
    }

    #[test]
    fn a_rate_that_still_changes_decides_nothing() {
        let bar = |is_stationary| {
            let tcp = cell(TCP, THETA, 10.0, is_stationary);
            let cells = vec![cell(M_S, THETA, 118.0, true), tcp];
            let grid = Grid { title: String::new(), x: "theta", cells };
            NO_WAIT_OVER_TCP.judge(&grid, |run| run.rate).unwrap()
        };
        assert_eq!(bar(true).verdict(false), Verdict::Ok);
        let bar = bar(false);
        assert_eq!(bar.verdict(false), Verdict::NotHere);
        assert!(bar.explained().contains("ended: TCP; the ratio was then 11.80 x"), "{bar:?}");
    }
}

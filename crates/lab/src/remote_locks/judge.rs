//! The bars of row locks over one-sided memory.

use super::measures::is_changing;
use super::systems::{M, M_S, System, TCP};
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

pub const VERBS_A_WAIT: &str = "remote verbs per wait in line for a remote row, theta 0.95";
pub const VERBS_A_WAIT_AT_MOST: f64 = 2.0;
pub const ROUNDS_A_ROW: &str = "rounds per remote row, one round, cached locations";
pub const ROUNDS_A_ROW_AT_MOST: f64 = 2.0;
pub const VERBS: &str = "verbs of 7.5 remote rows, one round, cached locations";
pub const VERBS_AT_MOST: f64 = 27.0;

pub const NO_WAIT_ADAPTIVE: &str = "NO_WAIT, adaptive over the better of M and M/S, worst case";
pub const WAIT_DIE_ADAPTIVE: &str = "WAIT_DIE, adaptive over the better of M and M/S, worst case";
pub const ADAPTIVE_AT_LEAST: f64 = 0.97;

pub const REAL_ONE_SIDED: &str = "real: best one-sided over two-sided, worst theta";
pub const REAL_TWO_SIDED: &str = "real: two-sided over TCP, worst theta";
pub const REAL_OVER_TCP: &str = "real: best one-sided over TCP, theta 0.85";
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
            let mut cells = grid.cells.iter();
            let cell = cells.find(|cell| cell.system == system.name && cell.x == THETA);
            cell.is_some_and(|cell| cell.figures.iter().any(is_changing))
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

/// Builds a bar for a count with an upper bound.
pub fn at_most(name: &str, most: f64, value: f64, readings: Vec<Reading>) -> Bar {
    Bar::measured(name, value, "", Bound::AtMost(most), readings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Verdict;
    use crate::bp::grid::Cell;
    use clearway_remote::ycsb::WINDOWS;

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
    fn a_rate_that_still_changes_decides_nothing() {
        let cell = |system: System, rate: f64, is_stationary| {
            let run = YcsbOutcome {
                rate,
                windows: [rate; WINDOWS],
                is_stationary,
                ..YcsbOutcome::default()
            };
            Cell { system: system.name.into(), x: THETA, figures: vec![run] }
        };
        let bar = |is_stationary| {
            let cells = vec![cell(M_S, 118.0, true), cell(TCP, 10.0, is_stationary)];
            let grid = Grid { title: String::new(), x: "theta", cells };
            NO_WAIT_OVER_TCP.judge(&grid, |run| run.rate).unwrap()
        };
        assert_eq!(bar(true).verdict(false), Verdict::Ok);
        let bar = bar(false);
        assert_eq!(bar.verdict(false), Verdict::NotHere);
        assert!(bar.explained().contains("ended: TCP; the ratio was then 11.80 x"), "{bar:?}");
    }
}

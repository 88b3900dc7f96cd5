//! The rule that decides when a run is stationary.
//!
//! A run starts with an empty cluster. By messages, aborted transactions pile up for a long time.
//! The rate is therefore taken in windows of virtual time, each twice as long as the one before.
//! The time before the first window is ignored. A run ends when two successive windows agree within
//! [`TOLERANCE`], or after the last window. Its rate is that of its last window.
//!
//! Windows of a constant length would not suffice: a rate that falls slowly changes little from one
//! to the next. A window agrees only if two more things hold, because the rate depends on how many
//! transactions are in flight, and on which:
//!
//! - Balance: as many transactions start in it as commit, within [`IMBALANCE`]. Otherwise a backlog
//!   builds up.
//! - Turnover: as many transactions commit in it as are in flight at its end. In a shorter window
//!   most of them stay the same, so they may not have reached their final mixture. By Little's law
//!   a transaction stays for the number in flight divided by the rate.

/// The start of the first window, and its length: 2 back-offs of 10 ms. A longer one would make
/// one-sided runs, of 400 commits per millisecond, too expensive.
pub const FIRST_NS: u64 = 20_000_000;

/// Windows of a run, at most. The last one ends after 1.28 s of virtual time.
pub const WINDOWS: usize = 6;

/// Windows with fewer commits agree with none, even if fewer transactions are in flight.
const MIN_COMMITS: u64 = 500;

/// The largest difference of two rates that agree, as a share of the larger one. Seeds differ by as
/// much at theta 0.95.
pub const TOLERANCE: f64 = 0.1;

/// The largest difference between starts and commits in a window, as a share of the commits. With
/// TCP at theta 0.8, 4 to 7 % more transactions start than commit in the first two windows: their
/// rates agree, but the backlog grows, and the rate falls later.
pub const IMBALANCE: f64 = 0.01;

/// Returns true if two rates agree.
fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.max(b)
}

/// The windows of a run.
#[derive(Debug, Default)]
pub(super) struct Windows {
    rates: Vec<f64>,
    commits: u64,
    /// Transactions in flight at the end of the last window.
    in_flight: u64,
    /// The number of the present window; 0 is the ignored time before the first one.
    window: u32,
    pub is_stationary: bool,
}

impl Windows {
    fn start_ns(window: u32) -> u64 {
        if window == 0 { 0 } else { FIRST_NS << (window - 1) }
    }

    pub fn count_commit(&mut self) {
        self.commits += 1;
    }

    /// Closes the windows that have ended. `in_flight` transactions have started and not committed.
    pub fn advance(&mut self, now_ns: u64, in_flight: u64) {
        while !self.is_over() && now_ns >= Self::start_ns(self.window + 1) {
            let commits = std::mem::take(&mut self.commits);
            let start_ns = Self::start_ns(self.window);
            self.window += 1;
            let grown = in_flight.abs_diff(std::mem::replace(&mut self.in_flight, in_flight));
            if start_ns == 0 {
                continue;
            }
            let length_ns = Self::start_ns(self.window) - start_ns;
            let rate = commits as f64 * 1e9 / length_ns as f64;
            let before = self.rates.last().copied();
            let is_balanced = grown as f64 <= IMBALANCE * commits as f64;
            self.is_stationary = commits >= in_flight.max(MIN_COMMITS)
                && is_balanced
                && before.is_some_and(|before| agree(before, rate));
            self.rates.push(rate);
        }
    }

    pub fn is_over(&self) -> bool {
        self.is_stationary || self.rates.len() == WINDOWS
    }

    /// Returns the rate of each window; 0 for those after the end.
    pub fn rates(&self) -> [f64; WINDOWS] {
        std::array::from_fn(|window| self.rates.get(window).copied().unwrap_or(0.0))
    }

    pub fn rate(&self) -> f64 {
        self.rates.last().copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts commits at a rate that depends on the time, in commits per millisecond.
    fn run(in_flight: impl Fn(u64) -> u64, per_ms: impl Fn(u64) -> u64) -> Windows {
        let mut windows = Windows::default();
        for ms in 0..2_000 {
            windows.advance(ms * 1_000_000, in_flight(ms));
            if windows.is_over() {
                break;
            }
            (0..per_ms(ms)).for_each(|_| windows.count_commit());
        }
        windows
    }

    #[test]
    fn a_constant_rate_is_stationary_after_two_windows() {
        let windows = run(|_| 4_000, |ms| if ms < 20 { 900 } else { 100 });
        assert!(windows.is_stationary);
        assert_eq!(windows.rates(), [1e5, 1e5, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn equal_rates_without_a_turnover_are_not_stationary() {
        let windows = run(|_| 4_001, |_| 100);
        assert!(windows.is_stationary);
        assert_eq!(windows.rates(), [1e5, 1e5, 1e5, 0.0, 0.0, 0.0]);
        let windows = run(|_| 100_000, |_| 100);
        assert!(!windows.is_stationary && windows.is_over(), "{windows:?}");
    }

    #[test]
    fn a_growing_backlog_is_not_stationary() {
        assert!(run(|ms| ms * 9 / 10, |_| 100).is_stationary);
        let windows = run(|ms| ms * 11 / 10, |_| 100);
        assert!(!windows.is_stationary && windows.is_over(), "{windows:?}");
    }

    #[test]
    fn a_slow_fall_is_not_stationary() {
        let windows = run(|_| 1, |ms| 100_000 / (100 + ms));
        assert!(!windows.is_stationary && windows.is_over(), "{windows:?}");
        assert!(windows.rates().is_sorted_by(|a, b| a > b), "{windows:?}");
    }
}

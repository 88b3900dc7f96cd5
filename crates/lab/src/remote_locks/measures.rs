//! Measures that simulated and real runs share.

use crate::bp::grid::Measure;
use crate::place::Placed;
use crate::result::Axis;
use clearway_remote::ycsb::{WINDOWS, YcsbOutcome};

/// A run with committed and aborted transactions.
pub trait Shown: Sized {
    /// Returns commits per second.
    fn rate(&self) -> f64;
    /// Returns aborts as a share of all commits and aborts.
    fn abort_rate(&self) -> f64;
    /// Returns the mean time from a transaction's first start to its commit, in nanoseconds.
    fn latency_ns(&self) -> f64;

    /// Commits per second, in thousands.
    const RATE: Measure<Self> =
        measure("throughput", "thousand/s", Axis::log, |run| run.rate() / 1e3);
    /// Aborts, in percent of all commits and aborts.
    const ABORTS: Measure<Self> =
        measure("aborts", "%", Axis::linear, |run| run.abort_rate() * 100.0);
    /// Mean latency in microseconds.
    const LATENCY: Measure<Self> =
        measure("latency", "us", Axis::log, |run| run.latency_ns() / 1e3);
}

const fn measure<F>(
    name: &'static str,
    unit: &'static str,
    axis: fn(&str, &str) -> Axis,
    of: fn(&F) -> f64,
) -> Measure<F> {
    Measure { name, unit, digits: 1, axis, events: None, of }
}

impl Placed for YcsbOutcome {}

/// Returns true if the rate still changed when the run's last window ended.
pub fn is_changing(run: &YcsbOutcome) -> bool {
    run.windows[WINDOWS - 1] > 0.0 && !run.is_stationary
}

impl Shown for YcsbOutcome {
    fn rate(&self) -> f64 {
        self.rate
    }

    fn abort_rate(&self) -> f64 {
        Self::abort_rate(self)
    }

    fn latency_ns(&self) -> f64 {
        self.latency_ns
    }
}

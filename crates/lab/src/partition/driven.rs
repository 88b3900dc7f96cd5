//! Way (ii): the simulated cluster with the recalled costs of the source.

use crate::bp::grid::{Grid, Measure};
use crate::experiment::Task;
use crate::place::Placed;
use crate::result::Axis;
use clearway_cluster::{ClusterConfig, ClusterReport, SchemeKind, run};
use clearway_harness::Res;

/// Name of this way in tables and charts.
pub const DRIVER: &str = "driver (ii)";
/// Its costs in titles: the source's model is recalled, and our copy has no cost of a coordinator.
pub const COSTS: &str = "the recalled costs of the source, coordinator fitted";
/// Transactions of a run whose numbers are published, and of a quick one.
pub const TRANSACTIONS: [u64; 2] = [20_000, 400];

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name after the scheme's; empty for the plain load.
    pub name: &'static str,
    /// Chance that a transaction uses the shared key of one of its partitions, in percent.
    pub conflicts: u64,
    /// Whether a transaction at both partitions uses the shared keys of both, unlike in the source.
    pub conflicts_at_both: bool,
    /// Transactions that abort by themselves, in percent.
    pub aborts: u64,
    /// Whether transactions at both partitions take two rounds.
    pub two_rounds: bool,
    /// Whether each client coordinates its own transactions and requests one partition after the
    /// other, as in the server, instead of one coordinator that orders all.
    pub sessions_coordinate: bool,
}

impl Variant {
    /// One round without conflicts and aborts.
    pub const PLAIN: Self = Self {
        name: "",
        conflicts: 0,
        conflicts_at_both: false,
        aborts: 0,
        two_rounds: false,
        sessions_coordinate: false,
    };

    /// Sets who coordinates transactions at several partitions: one for all, or each session.
    pub fn coordinate(&self, config: &mut ClusterConfig) {
        if self.sessions_coordinate || !config.central {
            (config.central, config.coordinators) = (false, config.sessions);
        }
    }

    /// Returns the name of a scheme under this load.
    pub fn of(&self, scheme: SchemeKind) -> String {
        self.named(scheme, DRIVER)
    }

    /// Returns the name of a scheme under this load in a way.
    pub fn named(&self, scheme: SchemeKind, way: &str) -> String {
        let name = if self.name.is_empty() { "" } else { &format!(", {}", self.name) };
        format!("{scheme}{name}, {way}")
    }
}

/// The schemes of the source, and its future work: all but ours, which chooses between two of them.
pub fn schemes() -> impl Iterator<Item = SchemeKind> {
    SchemeKind::ALL.into_iter().filter(|scheme| *scheme != SchemeKind::Hybrid)
}

/// Simulates one point: `percent` of the transactions are at both partitions.
pub fn point(
    task: &Task,
    scheme: SchemeKind,
    variant: &Variant,
    percent: u64,
    seed: u64,
) -> Res<ClusterReport> {
    let mut config = ClusterConfig::micro_benchmark(scheme, 10 * percent);
    config.seed = seed;
    config.transactions = TRANSACTIONS[usize::from(task.options.quick)];
    config.load.conflicts = 10 * variant.conflicts;
    config.load.conflicts_once = !variant.conflicts_at_both;
    config.load.aborts = 10 * variant.aborts;
    config.load.two_rounds = if variant.two_rounds { 1000 } else { 0 };
    variant.coordinate(&mut config);
    run(&config).map_err(|why| format!("{}, {percent} %, seed {seed}: {why}", variant.of(scheme)))
}

/// Answers a second of virtual time: commits, and aborts that clients asked for.
pub const RATE: Measure<ClusterReport> = Measure {
    name: "throughput",
    unit: "transactions/s",
    digits: 0,
    axis: Axis::linear,
    events: None,
    of: rate,
};

impl Placed for ClusterReport {}

fn rate(report: &ClusterReport) -> f64 {
    let answered = report.committed + report.aborted - report.repeated;
    answered as f64 * 1e9 / report.virtual_ns.max(1) as f64
}

/// Rates of the points that were simulated.
pub struct Rates<'a>(pub &'a Grid<ClusterReport>);

impl Rates<'_> {
    /// Returns the rate of a scheme under a load.
    pub fn at(&self, scheme: SchemeKind, variant: &Variant, percent: u64) -> Option<f64> {
        self.0.at(&variant.of(scheme), percent as f64, RATE.of)
    }

    /// Returns the ratio of two schemes under a load.
    pub fn over(
        &self,
        [ours, other]: [SchemeKind; 2],
        variant: &Variant,
        percent: u64,
    ) -> Option<f64> {
        Some(self.at(ours, variant, percent)? / self.at(other, variant, percent)?)
    }

    /// Returns the simulated percentages in this range, ascending.
    pub fn percents(&self, from: u64, to: u64) -> Vec<u64> {
        let mut all: Vec<u64> = self.0.cells.iter().map(|cell| cell.x as u64).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|percent| (from..=to).contains(percent));
        all
    }

    /// Returns the ratios of two schemes under a load in a range of percentages.
    pub fn ratios(
        &self,
        pair: [SchemeKind; 2],
        variant: &Variant,
        (from, to): (u64, u64),
    ) -> Vec<f64> {
        let percents = self.percents(from, to);
        percents.into_iter().filter_map(|percent| self.over(pair, variant, percent)).collect()
    }
}

/// Returns the least of some numbers.
pub fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().min_by(f64::total_cmp)
}

/// Returns the most of some numbers.
pub fn most(values: Vec<f64>) -> Option<f64> {
    values.into_iter().max_by(f64::total_cmp)
}

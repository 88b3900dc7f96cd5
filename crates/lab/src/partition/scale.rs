//! Way (iii): throughput of the schemes over the number of partitions, with costs measured here.

use super::driven::{RATE, TRANSACTIONS, Variant, schemes};
use super::figure::applies;
use super::figures::SESSIONS;
use super::measured::{self, Fit, MEASURED};
use super::seeds;
use crate::bp::grid::Grid;
use crate::experiment::Task;
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings};
use clearway_cluster::{ClusterConfig, ClusterReport, SchemeKind, run as simulate};
use clearway_harness::Res;

/// Name of the experiment.
pub const NAME: &str = "partition/scale";
const PARTITIONS: [u16; 6] = [2, 4, 8, 16, 32, 64];
const QUICK_PARTITIONS: [u16; 2] = [2, 4];
/// Shares of transactions at two partitions, in percent.
const PERCENTS: [u64; 4] = [0, 2, 10, 50];
/// Clients of each partition, as in the source.
const SESSIONS_PER_PARTITION: u32 = 20;
/// Rounds of the timed transactions, and transactions of a round; then those of a quick run.
const TIMED: [(usize, usize); 2] = [(15, 300), (1, 5)];
/// Round trips over the network, and those of a quick run.
const ROUND_TRIPS: [usize; 2] = [10_000, 50];

/// A simulated case.
#[derive(Clone, Copy)]
struct Case {
    scheme: SchemeKind,
    variant: &'static Variant,
    percent: u64,
    partitions: u16,
}

impl Case {
    fn system(&self) -> String {
        self.variant.named(self.scheme, MEASURED)
    }

    fn name(&self) -> String {
        format!("{} {} % {}", self.system(), self.percent, self.partitions)
    }

    fn config(&self, fit: &Fit, transactions: u64, seed: u64) -> ClusterConfig {
        let mut config = ClusterConfig::micro_benchmark(self.scheme, 10 * self.percent);
        config.seed = seed;
        config.partitions = self.partitions;
        config.sessions = SESSIONS_PER_PARTITION * u32::from(self.partitions);
        // Each session has its own keys at each partition.
        config.load.keys_per_partition = (config.sessions + 1) * config.load.keys as u32;
        config.transactions = transactions;
        config.costs = fit.costs;
        self.variant.coordinate(&mut config);
        config
    }
}

fn cases(task: &Task) -> Vec<Case> {
    let partitions: &[u16] = if task.options.quick { &QUICK_PARTITIONS } else { &PARTITIONS };
    let mut cases = Vec::new();
    for percent in PERCENTS {
        for variant in [&Variant::PLAIN, &SESSIONS] {
            for scheme in schemes().filter(|scheme| applies(variant, *scheme)) {
                let case =
                    |partitions: &u16| Case { scheme, variant, percent, partitions: *partitions };
                cases.extend(partitions.iter().map(case));
            }
        }
    }
    cases.retain(|case| task.part.wants(&case.name(), false));
    cases
}

/// Measures the costs, and simulates all cases with them.
pub fn run(task: &Task) -> Res<Findings> {
    let quick = usize::from(task.options.quick);
    let (rounds, batch) = TIMED[quick];
    let times = measured::times(rounds, batch)?;
    let fit = Fit::new(&times, measured::network(ROUND_TRIPS[quick])?);
    let (cases, seeds) = (cases(task), seeds(task));
    let mut progress = Progress::new(NAME, cases.len());
    let mut grids = PERCENTS.map(|percent| {
        let title = format!("{percent} % at two partitions, {MEASURED}, the costs measured here");
        (percent, Grid { title, x: "partitions", cells: Vec::new() })
    });
    for case in cases {
        progress.step(&case.name());
        for seed in &seeds {
            let config = case.config(&fit, TRANSACTIONS[quick], *seed);
            let report =
                simulate(&config).map_err(|why| format!("{}, seed {seed}: {why}", case.name()))?;
            if let Some((_, grid)) = grids.iter_mut().find(|(of, _)| *of == case.percent) {
                grid.record(&case.system(), f64::from(case.partitions), report);
            }
        }
    }
    let grids: Vec<Grid<ClusterReport>> =
        grids.into_iter().map(|(_, grid)| grid).filter(|grid| !grid.cells.is_empty()).collect();
    let samples = |grid: &Grid<ClusterReport>| {
        let mut samples = grid.samples(&RATE);
        samples.x = Axis::log("partitions", "");
        samples
    };
    let mut tables = vec![fit.table(), fit.residuals(&times)];
    tables.extend(grids.iter().map(|grid| grid.table(&RATE)));
    Ok(Findings {
        configuration: configuration(task),
        seeds,
        samples: grids.iter().map(samples).chain([times.samples()]).collect(),
        tables,
        found: Vec::new(),
        agreement: Vec::new(),
        bars: Vec::new(),
    })
}

fn configuration(task: &Task) -> Configuration {
    let quick = usize::from(task.options.quick);
    let (rounds, batch) = TIMED[quick];
    let settings = [
        (
            "load",
            format!(
                "{SESSIONS_PER_PARTITION} clients a partition with one transaction at a time, 12 \
                 rows read and changed, 6 and 6 at two partitions"
            ),
        ),
        (
            "costs",
            format!("{rounds} rounds of {batch} transactions, {} round trips", {
                ROUND_TRIPS[quick]
            }),
        ),
        ("transactions of a run", TRANSACTIONS[quick].to_string()),
        ("repetitions", task.repetitions().to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

//! Runs many seeds on all cores. A run has no threads, so each core runs seeds of its own.

use crate::{ClusterConfig, ClusterReport, PlantedBug, run};
use clearway_sync::canary::Bug;
#[cfg(shuttle)]
use clearway_sync::canary::{self, BUGS_OF_CLUSTER};
use clearway_testkit::{Campaign, CampaignSum, kept_seeds};
use std::fmt::{self, Display, Formatter};
use std::time::Instant;

/// A planted bug must be found within this many seeds.
const CANARY_SEEDS: u64 = 2_000;
/// One of this many seeds is run twice.
const TWICE: u64 = 20;
/// Seeds that found a bug once.
const KEPT: &str = include_str!("../seeds.txt");

/// A bug that can be planted: around the engine or, in the build with `--cfg shuttle`, in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterCanary {
    /// In what simulates the nodes.
    Cluster(PlantedBug),
    /// In the engine. It is planted for the whole process.
    Engine(Bug),
}

impl ClusterCanary {
    /// Returns the bugs that this build can plant.
    pub fn all() -> Vec<Self> {
        let of_cluster = PlantedBug::ALL.into_iter().map(Self::Cluster);
        #[cfg(shuttle)]
        let of_cluster = of_cluster.chain(BUGS_OF_CLUSTER.iter().copied().map(Self::Engine));
        of_cluster.collect()
    }

    /// Returns the first of these seeds that finds the bug, with the finding.
    pub fn find(self, seeds: impl IntoIterator<Item = u64>) -> Option<(u64, String)> {
        let bug = match self {
            Self::Cluster(bug) => Some(bug),
            Self::Engine(_) => None,
        };
        #[cfg(shuttle)]
        if let Self::Engine(bug) = self {
            canary::plant(Some(bug));
        }
        let found = seeds.into_iter().find_map(|seed| {
            let config = ClusterConfig { bug, ..ClusterConfig::draw(seed) };
            run(&config).err().map(|finding| (seed, finding))
        });
        #[cfg(shuttle)]
        canary::plant(None);
        found
    }
}

impl Display for ClusterCanary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(bug) => write!(f, "{bug}"),
            Self::Engine(bug) => write!(f, "{bug:?} of the engine"),
        }
    }
}

/// Runs a seed; one of [`TWICE`] is run again, and must have the same result.
fn run_seed(seed: u64) -> Result<ClusterReport, String> {
    let config = ClusterConfig::draw(seed);
    let report = run(&config)?;
    if seed.is_multiple_of(TWICE) {
        let second = run(&config)?;
        if second != report {
            return Err(format!("the two runs differ: {report:?}, then {second:?}"));
        }
    }
    Ok(report)
}

impl CampaignSum for ClusterReport {
    type Report = Self;
    fn add(&mut self, _seed: u64, report: Self) {
        Self::add(self, &report);
    }
}

/// Runs the kept seeds, then `count` seeds from `first` on, and stops after `minutes`.
///
/// # Errors
/// If there are findings. They are printed.
pub fn run_seeds(first: u64, count: u64, minutes: Option<u64>) -> Result<(), String> {
    let kept = kept_seeds("seeds.txt", KEPT)?;
    let seeds = kept.into_iter().chain(first..first.saturating_add(count)).collect();
    let campaign = Campaign { seeds, minutes, options: "--cluster " };
    campaign.run::<ClusterReport>(|_, seed| run_seed(seed))
}

/// Runs one seed, and prints its settings and result.
///
/// # Errors
/// The finding.
pub fn replay(seed: u64) -> Result<(), String> {
    let config = ClusterConfig::draw(seed);
    println!("{config:#?}");
    let report = run(&config).map_err(|finding| format!("seed {seed}: {finding}"))?;
    println!("sim: seed {seed}: nothing found; {report:?}");
    Ok(())
}

/// Plants each bug, and checks that the judge finds it within 2,000 seeds from `first`.
///
/// # Errors
/// The bugs that were not found.
pub fn canaries(first: u64) -> Result<(), String> {
    let mut missed = Vec::new();
    for bug in ClusterCanary::all() {
        let began = Instant::now();
        match bug.find(first..first.saturating_add(CANARY_SEEDS)) {
            Some((seed, finding)) => {
                let finding: String = finding.chars().take(300).collect();
                println!(
                    "sim: {bug}: found by seed {seed} after {:.1?}: {finding}",
                    began.elapsed()
                );
            }
            None => missed.push(bug.to_string()),
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not found within {CANARY_SEEDS} seeds: {}", missed.join(", ")))
    }
}

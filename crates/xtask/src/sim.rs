//! `cargo xtask sim`: builds the simulation with its own flags, in its own directory, and runs
//! seeds.

use crate::options::Options;
use clearway_harness::Res;
use clearway_harness::tools;
use std::process::Command;

/// Flags of the simulation's build: the engine's threads become the scheduler's.
pub const FLAGS: (&str, &str) = ("RUSTFLAGS", "--cfg shuttle");

/// Default number of seeds: of the engine, and of the cluster and the pool, which are much faster.
const SEEDS: u64 = 200;
const CLUSTER_SEEDS: u64 = 1_000;
const POOL_SEEDS: u64 = 2_000;

/// Runs the seeds; a finding is an error.
pub fn run(options: &Options) -> Res<()> {
    let (package, subject, usual) = match (options.cluster, options.pool, options.histories) {
        (true, ..) => ("clearway-cluster", None, CLUSTER_SEEDS),
        (_, true, _) => ("clearway-sim", Some("pool"), POOL_SEEDS),
        (.., true) => ("clearway-sim", Some("histories"), SEEDS),
        _ => ("clearway-sim", Some("engine"), SEEDS),
    };
    let build = ["build", "-p", package, "--target-dir", "target/sim"];
    let status = tools::cargo().args(build).env(FLAGS.0, FLAGS.1).status();
    if !status.map_err(|e| format!("cargo {}: {e}", build.join(" ")))?.success() {
        return Err("the simulation does not build".into());
    }
    let root = tools::repository_root();
    let mut sim = Command::new(root.join("target/sim/debug").join(package));
    sim.current_dir(&root).args(subject);
    match options.seed {
        Some(seed) => sim.args(["replay", &seed.to_string()]),
        None if options.canaries => {
            sim.arg("canaries").args(options.first.map(|first| first.to_string()))
        }
        None => {
            let (first, seeds) = (options.first.unwrap_or(0), options.seeds.unwrap_or(usual));
            sim.args(["run", &first.to_string(), &seeds.to_string()]);
            sim.args(options.minutes.map(|minutes| minutes.to_string()))
        }
    };
    let status = sim.status().map_err(|e| format!("the simulation does not start: {e}"))?;
    if status.success() { Ok(()) } else { Err("sim: findings, see above".into()) }
}

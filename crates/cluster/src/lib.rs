//! Many partitions in one discrete-event simulation.
//!
//! The engine's own state machines run here: [`clearway_partition::Partition`] for each partition,
//! on trees in memory, and [`clearway_coordinator::protocol::Coordination`] for each transaction.
//! Around them are virtual time, CPUs and a network; faults of messages and crashes of
//! coordinators, primaries and backups; two-phase commit with presumed abort; and backups that have
//! the log before answers leave. A seed determines everything.
//!
//! A run ends with the judge: the histories of the clients must be strictly serializable, the final
//! state must be that of the serial order, nothing may be left of any transaction, and a copy that
//! executes a partition's log must end in its state.
//!
//! Must not know: SQL text, pages, threads, the wire protocol.
//!
//! Source: Jones, Abadi, Madden, "Low Overhead Concurrency Control for Partitioned Main Memory
//! Databases", SIGMOD 2010.

#![forbid(unsafe_code)]

mod bugs;
pub mod campaign;
mod config;
mod judge;
mod load;
mod node;
mod order;
mod participant;
mod report;
mod session;
mod table;
mod world;

pub use clearway_partition::{ExclusiveAccess, SchemeKind};

pub use bugs::PlantedBug;
pub use config::{
    ClusterConfig, ClusterCosts, ClusterFaults, ClusterLoad, Durability, MICRO, Nanos,
};
pub use report::ClusterReport;

use clearway_sync::panics;
/// Runs the cluster to its end.
///
/// # Errors
/// What the judge has found, or an assertion of the engine that failed.
pub fn run(config: &ClusterConfig) -> Result<ClusterReport, String> {
    execute(config).unwrap_or_else(|panic| Err(format!("a panic: {panic}")))
}

#[cfg(not(shuttle))]
fn execute(config: &ClusterConfig) -> Result<Result<ClusterReport, String>, String> {
    panics::caught(|| world::World::new(config).run())
}

/// Runs in an execution of the scheduler, because the engine's atomics are the scheduler's.
#[cfg(shuttle)]
fn execute(config: &ClusterConfig) -> Result<Result<ClusterReport, String>, String> {
    use std::sync::{Arc, OnceLock};
    let (config, result) = (config.clone(), Arc::new(OnceLock::new()));
    let caught = result.clone();
    panics::caught(move || {
        clearway_sync::canary::execute(move || {
            drop(caught.set(panics::caught(|| world::World::new(&config).run())));
        });
    })?;
    result.get().cloned().unwrap_or_else(|| Err("the execution has not ended".to_owned()))
}

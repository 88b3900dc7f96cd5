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
mod config;
mod judge;
mod load;
mod node;
mod participant;
mod report;
mod session;
mod table;
mod world;

pub use bugs::PlantedBug;
pub use config::{
    ClusterConfig, ClusterCosts, ClusterFaults, ClusterLoad, Durability, MICRO, Nanos,
};
pub use report::ClusterReport;

use std::panic::{self, AssertUnwindSafe};

/// Runs the cluster to its end.
///
/// # Errors
/// What the judge has found, or an assertion of the engine that failed.
pub fn run(config: &ClusterConfig) -> Result<ClusterReport, String> {
    let run = || world::World::new(config).run();
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("a panic: {}", text.or(panic.downcast_ref().copied()).unwrap_or_default()))
    })
}

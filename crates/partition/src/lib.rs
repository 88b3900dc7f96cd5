//! A partition: a state machine that executes fragments under a concurrency-control scheme.
//!
//! [`Partition::on_message`] takes one message, runs what can run, and leaves in the outbox what
//! its environment must do. It never waits: a fragment that misses a page or a lock is suspended,
//! and others run. This crate must not know about sessions, SQL text, threads, clocks, disks or
//! other partitions. It counts lock requests in `lockstat`, but reads nothing back from it. The
//! code that carries out the outbox measures the waits.

#![forbid(unsafe_code)]

mod exec;
mod limits;
mod lock;
mod message;
mod partition;
mod reads;
mod scheme;
mod snapshots;
mod txn;
mod versioned;
mod versions;

pub use exec::{not_null_violation, satisfies_checks};
pub use limits::Limits;
pub use lock::{HotRow, Wanted, WantedPlace};
pub use message::{
    Batch, Body, COMMITTED, Failure, FragmentOrigin, Message, NOBODY, Out, Outbox, RawOp, Reply,
    Stake, TakeHotRows, TakeReport,
};
pub use partition::{CascadeCounts, Cascades, Partition, PartitionReport, PartitionTimes};
pub use scheme::{ExclusiveAccess, SchemeCounts, SchemeKind};
pub use snapshots::{Committing, Opening, Snapshot, Snapshots};

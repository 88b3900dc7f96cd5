//! Transactions from start to end: routing a plan's fragments to partitions, gathering their
//! results, commit, abort, savepoints, deadlocks, and catalog changes.
//!
//! All workers share an [`Engine`]; each worker has a [`Port`] and each session a [`Client`]. A
//! statement either ends at once or is [`Step::Pending`] until [`Port::poll`] reports that its
//! session may continue: nothing here blocks a thread.
//!
//! Must not know: SQL text, the wire protocol, how a partition executes a program.

#![forbid(unsafe_code)]

mod activity;
mod backup;
mod bootstrap;
mod catalog_rows;
mod characteristics;
mod check;
mod checkpointer;
mod client;
mod copy;
mod core;
mod ddl;
mod deadlock;
mod ended;
mod engine;
mod exports;
mod fetch;
mod finish;
mod gather;
mod global_indexes;
mod hot_rows;
mod insert;
mod learned;
mod learning;
mod lock_waits;
mod mailbox;
mod message;
mod multi;
mod outcome;
mod pace;
mod partitions;
mod past;
mod port;
pub mod protocol;
mod query;
mod replay;
mod schemes;
mod shared_snapshots;
mod slices;
mod snapshot;
mod statement;
mod stream;
mod system;
mod tag;
mod task;
mod timed;
mod txn;
mod views;
mod whole;

pub use activity::Activity;
pub use characteristics::{Characteristics, RunOptions};
pub use check::{CheckReport, check};
pub use client::Client;
pub use deadlock::{LockCounts, LockName, LockWaitView, LoggedWait, WaitId, one_line};
pub use engine::{Engine, EngineConfig, Stall};
pub use hot_rows::HotRowView;
pub use mailbox::Waker;
pub use outcome::{Outcome, Part, Refusal, Step, TxnStatus};
pub use pace::Pace;
pub use port::{Event, Port};
pub use system::{System, TakeRows};
pub use tag::Tag;
pub use task::Suspended;
pub use whole::{Whole, reach};

/// A partition's state, counts and times.
pub use clearway_partition::{
    CascadeCounts, Cascades, PartitionReport, PartitionTimes, SchemeCounts,
};
/// How much a partition does in one slice, and its scheme.
pub use clearway_partition::{Limits, SchemeKind};
/// A check's options and findings.
pub use clearway_storage::check::{
    CheckOptions, CheckProgress, FINDINGS, Finding, FindingSeverity, Report,
};
/// The wait class of replies that wait for the log.
pub use clearway_storage::wal::DURABLE;
/// Configuration and result of opening an engine's storage: all of the storage that a server uses.
pub use clearway_storage::{
    NodeConfig, OpenError, OpenErrorKind, RecoveryReport, SecondLevelConfig, backup as copy_of,
};
/// Runs code that may panic. After a panic the process must end.
pub use clearway_sync::panics::caught;

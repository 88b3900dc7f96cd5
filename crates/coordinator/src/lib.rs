//! A transaction's life: routing a plan's fragments to partitions, gathering what they return,
//! commit, abort, savepoints, deadlocks, and changes of the catalog.
//!
//! An [`Engine`] is shared by all workers; each worker has a [`Port`] and each session a
//! [`Client`]. A statement either ends at once or is [`Step::Pending`] until [`Port::poll`] says
//! that its session may go on: nothing here blocks a thread.
//!
//! Must not know: SQL text, the wire protocol, pages, how a partition executes a program.

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
mod engine;
mod exports;
mod fetch;
mod finish;
mod global_indexes;
mod hot_rows;
mod insert;
mod learned;
mod mailbox;
mod multi;
mod outcome;
mod pace;
mod past;
mod port;
mod query;
mod replay;
mod slices;
mod snapshot;
mod statement;
mod stream;
mod system;
mod tag;
mod task;
mod txn;
mod whole;

pub use activity::Activity;
pub use characteristics::Characteristics;
pub use check::{CheckReport, check};
pub use client::{Client, RunOptions};
pub use deadlock::{LockName, LockWait, LoggedWait, WaitId, one_line};
pub use engine::{Dispatch, Engine, EngineConfig};
pub use hot_rows::HotRow;
pub use mailbox::Waker;
pub use outcome::{Outcome, Part, Refusal, Step, TxnStatus};
pub use pace::Pace;
pub use port::{Event, Port};
pub use system::{System, TakeRows};
pub use tag::Tag;
pub use task::Suspended;
pub use whole::{Whole, reach};

/// How much a partition does in one go.
pub use clearway_partition::Limits;
/// What a check is given and what it tells.
pub use clearway_storage::check::{CheckOptions, FINDINGS, Finding, Progress, Report, Severity};
/// What replies that wait for the log are counted under.
pub use clearway_storage::wal::DURABLE;
/// How the storage under an engine is opened, and what that did: the server configures it without
/// knowing the rest.
pub use clearway_storage::{
    NodeConfig, OpenError, OpenErrorKind, RecoveryReport, SecondLevelConfig, backup as copy_of,
};
/// Runs what may panic, for a process that ends then.
pub use clearway_sync::panics::caught;

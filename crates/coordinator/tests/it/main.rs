//! The engine without a network: transactions over partitions, guards, crashes.

mod backup;
mod bank;
mod check;
mod common;
mod contention;
mod deadlocks;
mod guards;
mod learned;
mod panics;
mod partition_waits;
mod retire;
mod shown;
mod snapshots;
mod spill;
mod streams;
mod turns;
mod users;
mod whole;

//! The engine without a network: transactions over partitions, global indexes, crashes.

mod backup;
mod bank;
mod cancel;
mod check;
mod checks;
mod common;
mod contention;
mod deadlocks;
mod fence;
mod global_indexes;
mod learned;
mod optimistic;
mod panics;
mod partition_waits;
mod partitions;
mod retire;
mod schemes;
mod shown;
mod snapshots;
mod speculation;
mod spill;
mod stranded;
mod streams;
mod turns;
mod users;
mod whole;

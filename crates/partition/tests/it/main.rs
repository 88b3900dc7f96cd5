//! Tests partitions through their interface: messages in, replies and requests out.

mod batches;
mod blocking;
mod cascades;
mod checks;
mod committed;
mod driver;
mod ends;
mod history;
mod increment;
mod many_waiters;
mod newer;
mod nowait;
mod readers;
mod real;
mod retire;
mod schemes;
mod snapshots;
mod speculation;
mod spill;
mod sql;
mod trees;
mod units;

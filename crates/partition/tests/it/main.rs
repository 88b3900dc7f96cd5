//! Tests partitions through their interface: messages in, replies and requests out.

mod batches;
mod blocking;
#[cfg(shuttle)]
mod canaries;
mod cascades;
mod checks;
mod committed;
mod driver;
mod ends;
mod fence;
mod history;
mod increment;
mod many_waiters;
mod newer;
mod nowait;
mod optimistic;
mod readers;
mod real;
mod retire;
mod scheme_histories;
mod schemes;
mod snapshots;
mod speculation;
mod spill;
mod sql;
mod trees;
mod units;

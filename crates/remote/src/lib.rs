//! Row locks over one-sided memory: transactions on rows of other nodes without work by those
//! nodes' CPUs.
//!
//! A [`Table`] has fixed-size rows in the registered memory of several nodes, each with its lock
//! beside its payload. A [`RowWorker`] runs transactions on them by READ, WRITE, CAS and FAA under
//! strict two-phase locking. It runs several transactions concurrently and never blocks. The
//! protocols are NO_WAIT and WAIT_DIE, the locks mutual (M) or shared (M/S): see [`Mode`].
//!
//! Three kinds of lock go beyond the source. With [`LockKind::OneRound`], lock and payload arrive
//! in one round. With [`LockKind::Line`], a waiter queues and polls memory of its own node, and the
//! holder hands the lock over. With [`LockKind::Adaptive`], a worker chooses M or M/S for each row
//! that it reads.
//!
//! A [`StoreWorker`] adds keys, by a hash index in registered memory. A [`MessageWorker`] has the
//! same calls ([`RowClient`]) and modes, but the owners' CPUs execute them: the source's baselines.
//!
//! ```
//! use clearway_fabric::sim::{Network, SimConfig};
//! use clearway_fabric::{Fabric, Region, WorkerAddr};
//! use clearway_remote::{
//!     Buckets, LogLayout, Mode, Owner, RowClient, RowId, RowWorker, Table, WorkerEvent,
//!     WorkerLimits,
//! };
//!
//! let network = Network::new(1, SimConfig::default());
//! let (owner, user) = (network.add_node(), network.add_node());
//! let region = owner.register(Table::region_words(Mode::ONE_ROUND, 2, 100))?;
//! let address = WorkerAddr { node: owner.node(), port: 0 };
//! let owners = vec![Owner { address, region: region.key() }];
//! let (buckets, log) = (Buckets::default(), LogLayout::default());
//! let table = Table { mode: Mode::ONE_ROUND, payload_words: 2, rows: 100, buckets, log, owners };
//! let limits = WorkerLimits { transactions: 1, rows: 4 };
//! let fabric = user.worker(0, limits.scratch_words(2))?;
//! let mut worker = RowWorker::new(fabric, table, 1, limits, None)?;
//!
//! let row = RowId { owner: 0, index: 7 };
//! let txn = worker.begin().expect("none is running");
//! worker.get(txn, row, true)?;
//! let mut events = Vec::new();
//! while !events.contains(&WorkerEvent::Committed(txn)) {
//!     network.advance();
//!     worker.poll(&mut events)?;
//!     if events.first() == Some(&WorkerEvent::Locked(txn, row)) {
//!         events.clear();
//!         worker.set(txn, row, &[3, 4]);
//!         worker.commit(txn)?;
//!     }
//! }
//! // The payload follows the lock word, which is free again.
//! assert_eq!((0..3).map(|word| region.load(7 * 3 + word)).collect::<Vec<_>>(), [0, 3, 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Commit
//! The payload is written, then the lock word is released by an atomic on the same queue pair.
//! Every fabric orders that atomic after the WRITE. All rows of a transaction are locked until its
//! end, and are then written and released together: strict two-phase locking.
//!
//! # Traps
//! Mistakes of public implementations, and why they cannot happen here. The tests plant each of
//! them; the crate's README lists the seeds that catch them.
//!
//! 1. *One WRITE for payload and lock word*: the word can land first. Here a WRITE never includes
//!    the lock word.
//! 2. *Release by WRITE*: it can land before the payload, and can be lost to an atomic. Here words
//!    and array slots change by CAS and FAA alone.
//! 3. *Owner bookkeeping that compares where it should assign*: each release verifies that it finds
//!    what the holder left.
//! 4. *Abort because metadata is busy*: the metadata is read again. An abort in WAIT_DIE names an
//!    older holder.
//! 5. *The owner's CPU beside the fabric's atomics*: local rows are accessed over the fabric, too,
//!    unless it has [`Guarantees::cpu_atomics`](clearway_fabric::Guarantees::cpu_atomics).
//!
//! # Differences from the source
//! - M and M/S exclusive locks are released by CAS, not WRITE (trap 2).
//! - A holder enters and leaves the array of M/S WAIT_DIE by a CAS of its slot. If readers wrote
//!   the array back as a whole, one could overwrite an entry that another made after the array was
//!   read.
//! - A shared lock becomes exclusive if its holder is alone. Otherwise NO_WAIT aborts, and WAIT_DIE
//!   waits for younger readers.
//!
//! Timestamps are logical: a worker's count, advanced past every count that it sees in a conflict,
//! and the worker's number.
//!
//! # After a crash
//! The locks of a dead worker stay, and a row that it was writing may be half written. If the table
//! has a log, survivors can continue: see [`recovery`]; a [`LeaseWatch`] detects the death. Without
//! a log, a failed verb ends the worker with an error.
//!
//! Source: Li, Zhang, Zhao, Lu, Zhang, Du (Renmin University), Journal of Frontiers of Computer
//! Science and Technology 17(5), pages 1201 to 1209. One-round locks and lines are not in it.

#![forbid(unsafe_code)]

mod access;
mod client;
mod error;
mod kinds;
mod lease;
mod mailbox;
mod messages;
mod mode;
pub mod recovery;
mod stats;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod traps;
mod worker;
pub mod ycsb;

pub use client::RowClient;
pub use error::RemoteError;
pub use lease::LeaseWatch;
pub use mailbox::{MAX_PLACES, Mailbox};
pub use messages::{
    FabricLink, Incoming, Link, MessageServer, MessageWorker, TcpLink, message_words,
};
pub use mode::{HOLDERS, LockKind, Mode, Protocol, StartTimestamp};
pub use stats::{AbortCause, Phase, PhaseCount, RemoteStats};
pub use store::{
    PROBES, StoreAnswer, StoreContents, StoreEvent, StoreKey, StoreLayout, StoreStats, StoreWorker,
};
pub use table::{Buckets, LogLayout, Owner, RowId, Table};
pub use worker::{RowWorker, TxnHandle, WorkerEvent, WorkerLimits};

//! TCP: each node has a software adapter, one thread that executes its peers' verbs on its regions.
//!
//! A queue pair is a connection. Its connecting side is worked by the worker that connected, in
//! `post` and `poll`; the other side by the adapter's thread, which executes one-sided verbs at
//! once and puts messages into the mailbox of the worker that they are for. So the owner's workers
//! take no part in one-sided verbs, however busy they are.
//!
//! | module | what |
//! |---|---|
//! | `handshake` | mutual proof of the shared secret |
//! | [`frame`] | verbs and answers as bytes |
//! | `memory` | regions, and verbs on them |
//! | `mailbox` | what the adapter hands to a worker |
//! | `adapter`, `peer` | the adapter's thread; one connection at its side |
//! | `worker`, `queue` | the connecting side, SEND and RECV |
//!
//! # Invariants
//! 1. Nothing from a connection is believed before its peer has proven the secret; at most
//!    [`MAX_STRANGERS`] connections have not.
//! 2. A bad key or bound is answered, a bad frame closes the connection; no other connection
//!    notices either.
//! 3. What the adapter holds for a connection is bounded: it reads no more while [`HIGH_WATER`]
//!    bytes of answers wait to be sent, and closes a connection with more than [`QUEUE_DEPTH`]
//!    messages that nobody has taken.
//! 4. The adapter never waits for one peer, or for a worker: sockets do not block, locks are held
//!    for moments.
//!
//! # Locking
//! A mailbox, then the output of one connection. The map of regions is a lock of its own, with
//! nothing under it.
//!
//! # What a crash leaves
//! The memory of a node is its process's. Peers find their connections closed: requests under way
//! end as [`VerbError::PeerDead`](crate::VerbError::PeerDead), executed or not. A WRITE of a dying
//! peer that arrived in part is not executed at all.

mod adapter;
pub mod frame;
pub(crate) mod handshake;
mod mailbox;
mod memory;
mod node;
mod peer;
mod queue;
#[cfg(test)]
mod tests;
mod worker;

pub use memory::{Regions, Server};
pub use node::{TcpConfig, TcpFabric, TcpRegion};
pub use worker::TcpWorker;

/// Connections that have not proven the secret; one more closes the oldest.
pub const MAX_STRANGERS: usize = 64;
/// Bytes of answers that wait at a connection before the adapter stops reading from it.
pub const HIGH_WATER: usize = 1 << 20;
/// Requests of a queue pair that are not completed.
pub const QUEUE_DEPTH: usize = 256;

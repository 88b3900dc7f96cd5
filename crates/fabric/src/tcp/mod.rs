//! TCP: each node has a software adapter, a thread that executes its peers' verbs on its regions.
//!
//! A queue pair is a connection. The worker that connected operates the connecting side, in `post`
//! and `poll`. The adapter's thread operates the accepting side: it executes one-sided verbs at
//! once and puts messages into the mailbox of their worker. The owner's workers are therefore not
//! involved in one-sided verbs, however busy they are.
//!
//! | module | contents |
//! |---|---|
//! | `handshake` | mutual proof of the shared secret |
//! | [`frame`] | the byte format of verbs and replies |
//! | `memory` | regions, and verbs on them |
//! | `mailbox` | items passed from the adapter to a worker |
//! | `adapter`, `peer` | the adapter's thread; one connection at its side |
//! | `worker`, `queue` | the connecting side, SEND and RECV |
//!
//! # Invariants
//! 1. Nothing from a connection is trusted before its peer has proven the secret. At most
//!    [`MAX_UNPROVEN`] connections are unproven. A worker whose connection is closed in the
//!    handshake connects again, a few times.
//! 2. An invalid key or bound gets a reply; a malformed frame closes the connection. No other
//!    connection is affected by either.
//! 3. The adapter's memory for a connection is bounded. It stops reading while [`HIGH_WATER`] bytes
//!    of replies wait to be sent, and closes a connection with more than [`QUEUE_DEPTH`] messages
//!    that have not been received, or with an answer to a message that was not sent. A closed
//!    connection leaves nothing behind, whether or not its worker exists.
//! 4. The adapter never waits for one peer or for a worker: sockets do not block, and locks are
//!    held briefly.
//!
//! # Locking
//! A mailbox's lock comes before the output lock of a connection. The map of regions has its own
//! lock, under which no other is taken.
//!
//! # After a crash
//! The memory of a node belongs to its process. Peers find their connections closed: requests in
//! flight complete as [`VerbError::PeerDead`](crate::VerbError::PeerDead), executed or not. A WRITE
//! of a dying peer that arrived in part is not executed at all.
//!
//! A host that loses power or its network closes nothing. So both sides let the system probe silent
//! connections, and limit how long it sends data again. A connection breaks when the peer's system
//! has not answered for `handshake::TIME` (5 s). It also breaks when the peer has not read for so
//! long that data could not be sent to it in that time.

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

pub use memory::{RegionServer, Regions};
pub use node::{TcpConfig, TcpFabric, TcpRegion};
pub use worker::TcpWorker;

/// Limit of connections that have not proven the secret; one more closes the oldest.
pub const MAX_UNPROVEN: usize = 64;
/// Bytes of unsent replies at which the adapter stops reading from a connection.
pub const HIGH_WATER: usize = 1 << 20;
/// Limit of incomplete requests of a queue pair.
pub const QUEUE_DEPTH: usize = 256;

//! The baselines: the owner's CPU executes lock, read, write and commit on request by messages.
//!
//! A [`MessageServer`] has the rows of one owner. A [`MessageWorker`] runs transactions on the rows
//! of all owners, with the same protocols, kinds of lock and calls as with one-sided verbs.
//! Messages go over a [`Link`]: SEND and RECV of a fabric ([`FabricLink`], the source's two-sided
//! variant), or plain TCP ([`TcpLink`]). Local rows are accessed by messages, too.
//!
//! | module | contents |
//! |---|---|
//! | `wire` | requests and replies as words |
//! | `locks` | the lock table of an owner, a state machine |
//! | `server` | rows and locks of an owner behind a link |
//! | `worker` | the client side of transactions |
//! | `fabric_link`, `tcp_link` | transports |
//!
//! A reader's lock is shared in every mode except M. One-round locks behave like M/S.

mod fabric_link;
mod link;
mod locks;
mod server;
mod tcp_link;
mod wire;
mod worker;

pub use fabric_link::FabricLink;
pub use link::{Incoming, Link};
pub use server::MessageServer;
pub use tcp_link::TcpLink;
pub use wire::message_words;
pub use worker::MessageWorker;

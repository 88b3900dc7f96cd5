//! The baselines: the owner's processor executes lock, read, write and commit, asked by messages.
//!
//! A [`MessageServer`] has the rows of one owner, a [`MessageWorker`] runs transactions on those of
//! all owners: the same protocols, kinds of lock and calls as with one-sided verbs. Messages go
//! over a [`Link`]: SEND and RECV of a fabric ([`FabricLink`], the source's two-sided variant), or
//! plain TCP ([`TcpLink`]). Local rows are reached by messages, too.
//!
//! | module | what |
//! |---|---|
//! | `wire` | requests and replies as words |
//! | `locks` | the lock table of an owner, a state machine |
//! | `server` | rows and locks of an owner behind a link |
//! | `worker` | the transactions' side |
//! | `fabric_link`, `tcp_link` | how messages travel |
//!
//! A reader's lock is shared in every mode but M. One-round locks make no sense here and are as
//! M/S.

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

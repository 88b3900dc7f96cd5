//! Shared memory: an anonymous file (memfd) that every process of the fabric maps.
//!
//! A one-sided verb is executed by the CPU that posts it, at the time of posting, with CPU atomics.
//! The owner does nothing and need not be alive. SEND and RECV go through a ring for each direction
//! of each queue pair; the two ends move words in `post` and `poll`.
//!
//! # The segment
//! | words | contents |
//! |---|---|
//! | header | magic number, limits; counts of heap words and channels allocated and of channels connected |
//! | nodes | the process of each node, or 0 |
//! | ports | addresses of the existing workers |
//! | regions | key, first word and length of each; the key holds the entry's index |
//! | channels | queue pairs: state, addresses, both rings |
//! | heap | the words of the regions |
//!
//! # Invariants
//! 1. Words of the heap are never reused for another region. A verb that looked up a key just
//!    before its region was dropped therefore cannot hit another region. A segment is exhausted
//!    when its configured number of words, regions or queue pairs has been used.
//! 2. Only the sender advances a ring's head, and only the receiver advances its tail. The words
//!    between them belong to the receiver, the others to the sender.
//! 3. Whatever the segment's words contain, only words of the segment are accessed: every index
//!    read from it is checked. Otherwise the processes of a segment trust each other; they run as
//!    the same user.
//!
//! # After a crash
//! The memory of a dead process stays as it was, including its locks and possibly half a WRITE. Its
//! node can be attached again, and its regions keep their keys. SENDs to it and RECVs from it fail
//! once its death is noticed ([`crate::FabricWorker::wait`] checks). Whole messages in its rings
//! are received first.

mod channel;
mod layout;
mod node;
mod ring;
mod segment;
#[cfg(test)]
mod tests;
mod worker;

pub use node::{ShmFabric, ShmRegion, ShmSegment};
pub use segment::ShmConfig;
pub use worker::ShmWorker;

//! Shared memory: one file without a name (memfd) that every process of the fabric maps.
//!
//! A one-sided verb is executed by the processor that posts it, when it posts it, with the
//! processor's atomics: the owner does nothing, and need not live. SEND and RECV go through a ring
//! for each direction of each queue pair; their ends work on it in `post` and `poll`.
//!
//! # The segment
//! | words | what |
//! |---|---|
//! | header | magic number, limits, the count of heap words taken, of channels taken, and of channels connected |
//! | nodes | the process that each node runs in, or 0 |
//! | ports | addresses of the workers that exist |
//! | regions | key, first word and length of each; the key holds the entry's index |
//! | channels | queue pairs: state, addresses, both rings |
//! | heap | the words of the regions |
//!
//! # Invariants
//! 1. The heap's words belong to one region for ever: a verb that found a key just before its
//!    region was dropped hits nobody else. A segment lasts for as many words as its configuration
//!    says, and as many regions and queue pairs.
//! 2. A ring's head is advanced by its sender only, its tail by its receiver only; the words
//!    between belong to the receiver, the others to the sender.
//! 3. Whatever the segment's words say, only its own words are accessed: every index that is read
//!    from it is checked. All processes of a segment trust one another otherwise: they run as the
//!    same user.
//!
//! # What a crash leaves
//! The memory of a dead process, its locks included, as it is: half a WRITE, if it died inside. Its
//! node can be attached again, its regions stay under their keys. SENDs to it and RECVs from it
//! fail once its end is noticed ([`crate::FabricWorker::wait`] looks). Whole messages in its rings
//! are taken first.

mod channel;
mod layout;
mod node;
mod segment;
#[cfg(test)]
mod tests;
mod worker;

pub use node::{ShmFabric, ShmRegion, ShmSegment};
pub use segment::ShmConfig;
pub use worker::ShmWorker;

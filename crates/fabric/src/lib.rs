//! Registered memory and verbs: one-sided access to the memory of other threads, processes and
//! hosts.
//!
//! A node registers *regions* of 64-bit words and gives their keys to its peers. A *worker* (one a
//! thread) connects queue pairs to nodes, posts batches of verbs (READ, WRITE, CAS, FAA, SEND,
//! RECV) and polls for completions; nothing in between blocks, so a worker runs other work
//! meanwhile. READ results and old values of atomics arrive in the worker's *scratch area*.
//!
//! | provider | what it is | who executes a one-sided verb |
//! |---|---|---|
//! | [`shm`] | a segment of memory that several processes map | the processor of the worker that posts it |
//! | [`tcp`] | connections, and a thread at each node that is its software adapter | that thread |
//! | `verbs`, with the feature of that name | InfiniBand and RoCE, by libibverbs | the device |
//! | [`sim`] | a network in virtual time that gives the weakest order RDMA allows, drawn from a seed | the simulation |
//!
//! A protocol written on [`Fabric`] and [`FabricWorker`] runs on all of them. Providers differ in
//! what they promise, and the protocol asks: see [`Guarantees`]. [`conformance`] holds the tests
//! that every provider passes.
//!
//! # Order
//! What holds on every provider, and nothing more (InfiniBand Architecture Specification, volume 1:
//! the ordering of work requests, section 10.8, and of transactions, section 9.5). "Later" and
//! "earlier" refer to one direction of one queue pair; nothing orders verbs of different queue
//! pairs.
//!
//! 1. Completions of READ, WRITE, CAS, FAA and SEND arrive in the order of posting. Those of RECV
//!    do so, too, by themselves.
//! 2. WRITE, CAS, FAA and SEND are executed in the order of posting. An earlier WRITE has landed
//!    whole before a later CAS, FAA, READ or SEND takes effect. Two WRITEs to the same word land in
//!    order.
//! 3. The words of one WRITE, and those of two WRITEs, become visible to everybody else in *any*
//!    order, unless [`Guarantees::writes_ordered`]. To publish a payload: WRITE the payload, then
//!    post a CAS or FAA on the word that announces it.
//! 4. The words of one READ are read one by one, in any order; each word is read whole.
//! 5. A READ may be executed as late as the moment before it completes: a later WRITE, CAS, FAA or
//!    SEND may overtake it, unless that later request has [`Request::fence`]. A READ is executed
//!    after an earlier CAS or FAA only if [`Guarantees::reads_follow_atomics`], or with a fence.
//! 6. A fenced request starts after all earlier READs, CASs and FAAs have completed. It costs a
//!    round trip.
//! 7. A CAS or FAA excludes every other CAS and FAA of the fabric on that word. It excludes WRITEs
//!    only if [`Guarantees::writes_exclude_atomics`], and the owner's processor only if
//!    [`Guarantees::cpu_atomics`]: else it reads the word at one moment, writes it at a later one,
//!    and what was stored in between is lost.
//! 8. A completed WRITE has reached the peer, but others may still read the old words (3).
//! 9. A WRITE or SEND of at most [`Guarantees::inline_words`] takes its words from the scratch area
//!    when it is posted, a longer one at any time until it completes. The scratch words of a READ,
//!    CAS, FAA or RECV change at any time until it completes.
//! 10. A worker that is dropped is gone, as one whose process dies. SENDs that it has not taken end
//!     as [`VerbError::PeerDead`]. RECVs for its messages end as [`VerbError::Flushed`] if
//!     [`Guarantees::recvs_end_with_peer`]: messages that it sent before may still be taken. Either breaks the queue pair.

#![cfg_attr(not(feature = "verbs"), forbid(unsafe_code))]

pub mod conformance;
mod error;
mod fabric;
pub mod shm;
pub mod sim;
pub mod tcp;
mod verb;
#[cfg(feature = "verbs")]
pub mod verbs;
mod words;

pub use error::{FabricError, PostError, VerbError};
pub use fabric::{Fabric, FabricWorker, Guarantees, Region};
pub use verb::{
    Completion, FabricNode, QueueId, RegionKey, RemoteAddr, Request, ScratchRange, Verb, WorkerAddr,
};

//! Registered memory and verbs: one-sided access to the memory of other threads, processes and
//! hosts.
//!
//! A node registers *regions* of 64-bit words and gives their keys to its peers. A *worker* (one
//! per thread) connects queue pairs to nodes, posts batches of verbs (READ, WRITE, CAS, FAA, SEND,
//! RECV) and polls for completions. No step blocks, so a worker can run other work in the meantime.
//! READ results and the old values of atomics arrive in the worker's *scratch area*.
//!
//! | provider | what it is | who executes a one-sided verb |
//! |---|---|---|
//! | [`shm`] | a memory segment mapped by several processes | the CPU of the worker that posts it |
//! | [`tcp`] | connections, and one thread per node as software adapter | that thread |
//! | `verbs` (feature `verbs`) | InfiniBand and RoCE through libibverbs | the device |
//! | [`sim`] | a seeded network in virtual time, with RDMA's weakest order | the simulation |
//!
//! A protocol written on [`Fabric`] and [`FabricWorker`] runs on all of them. Providers differ in
//! what they guarantee, and the protocol must ask: see [`Guarantees`]. [`conformance`] holds the
//! tests that every provider passes.
//!
//! # Order
//! Every provider guarantees the following rules, and nothing more. They come from the InfiniBand
//! Architecture Specification, volume 1: section 10.8 (ordering of work requests) and section 9.5
//! (ordering of transactions). "Later" and "earlier" refer to one direction of one queue pair;
//! verbs of different queue pairs are not ordered.
//!
//! 1. Completions of READ, WRITE, CAS, FAA and SEND arrive in posting order. Completions of RECV
//!    arrive in posting order among themselves.
//! 2. WRITE, CAS, FAA and SEND are executed in posting order. An earlier WRITE has landed
//!    completely before a later CAS, FAA, READ or SEND takes effect. Two WRITEs to the same word
//!    land in order.
//! 3. The words of one WRITE, and those of two WRITEs, become visible to everybody else in *any*
//!    order, unless [`Guarantees::writes_ordered`]. To publish a payload, WRITE it and then post a
//!    CAS or FAA on the word that announces it.
//! 4. The words of one READ are read one by one, in any order. Each word is read atomically.
//! 5. A READ may be executed at any time until it completes. A later WRITE, CAS, FAA or SEND may
//!    overtake it, unless that later request has [`Request::fence`]. A READ is executed after an
//!    earlier CAS or FAA only with a fence or if [`Guarantees::reads_follow_atomics`].
//! 6. A fenced request starts after all earlier READs, CASs and FAAs have completed. It costs a
//!    round trip.
//! 7. A CAS or FAA excludes every other CAS and FAA of the fabric on that word. It excludes WRITEs
//!    only if [`Guarantees::writes_exclude_atomics`], and the owner's CPU only if
//!    [`Guarantees::cpu_atomics`]. Otherwise it reads the word at one moment and writes it later; a
//!    store in between is lost.
//! 8. A completed WRITE has reached the peer, but others may still read the old words (rule 3).
//! 9. A WRITE or SEND of at most [`Guarantees::inline_words`] copies its words from the scratch
//!    area when it is posted; a longer one does so at any time until it completes. The scratch
//!    words of a READ, CAS, FAA or RECV change at any time until it completes.
//! 10. Dropping a worker has the same effect as the death of its process. SENDs that it has not
//!     received complete as [`VerbError::PeerDead`]. RECVs for its messages complete as
//!     [`VerbError::Flushed`] if [`Guarantees::recvs_end_with_peer`]; messages that it sent earlier
//!     may still be received. Either breaks the queue pair.

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

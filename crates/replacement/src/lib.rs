//! Page replacement: which page leaves, and how threads share the policy that decides.
//!
//! A [`Policy`] is a plain data structure for one thread, as its paper has it: it hears of hits and
//! misses and proposes victims. A [`Replacement`] is the same for all threads: a policy in a
//! wrapper such as [`Combining`], or one of its own kind such as [`ClockSweep`].
//! [`ReplacementKind`] names what there is and builds it.
//!
//! The crate knows frames and pages by their numbers only. It holds no page, does no I/O, and knows
//! neither pins nor latches of pages: the caller says of each victim whether it can be taken
//! ([`Probe`]). `examples/cache.rs` is a cache around it.

#![forbid(unsafe_code)]

pub mod conformance;
mod policy;
mod shared;

pub use policy::{
    Arbiter, ArbiterParameters, ArcPolicy, Car, ClockPolicy, ClockPro, Directory, Footprint, Lirs,
    ListId, Lists, Lru, Mq, Policy, PolicyKind, Probe, Queues, S3Fifo, Seq, SeqParameters, Sieve,
    Sketch, TinyLfuParameters, TwoQ, Uses, WTinyLfu,
};
pub use shared::{
    Batched, ClockSweep, Combining, Locked, Multilist, MultilistKind, Prefetched, QUEUE,
    Replacement, ReplacementFactory, ReplacementKind, THRESHOLD, UseCounted, UseCountedKind,
    WrapperKind,
};

/// The example in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

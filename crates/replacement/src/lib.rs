//! Page replacement: which page is evicted, and how threads share the policy that decides.
//!
//! A [`Policy`] is a plain single-threaded data structure, as in its paper. It is notified of hits
//! and misses and proposes victims. A [`Replacement`] is the thread-safe counterpart: either a
//! policy in a wrapper such as [`Combining`], or a separate implementation such as [`ClockSweep`].
//! [`ReplacementKind`] names all of them and builds them.
//!
//! The crate identifies frames and pages by number only. It holds no page, does no I/O, and knows
//! neither the pins nor the latches of pages. The caller decides for each proposed victim whether
//! it can be taken ([`Probe`]). `examples/cache.rs` builds a cache on it.

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
    Batched, ClockSweep, Combining, Locked, Multilist, MultilistKind, Prefetched, Prefetching,
    QUEUE, Replacement, ReplacementFactory, ReplacementKind, THRESHOLD, UseCounted, UseCountedKind,
    WrapperKind,
};

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

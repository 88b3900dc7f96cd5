//! Latches and the baton: short-term protection of data structures.
//!
//! [`Combiner`] is the baton of a partition. A thread that submits a message while the partition is
//! free runs it. A thread that submits one while it is busy leaves it to the thread inside.
//!
//! [`Latch`] is the engine's latch around a value: [`ParkLatch`] spins for a bounded time and then
//! sleeps. [`Monitor`] is for values whose changes threads wait for. Both are counted, by class and
//! caller, in [`lockstat`]. In a [`WaitQueue`], threads wait for a latch that consists of bits in a
//! word of their own.
//!
//! [`Doorbell`] wakes a thread out of its event loop. [`AtomicOptionBox`] passes a boxed value from
//! thread to thread without waiting, and [`prefetch()`] prefetches a cache line.
//!
//! [`SpinLatch`] only spins, with one of several instructions ([`acquire`]). Other latches
//! implement [`RawLatch`], whose guarantees [`conformance`] checks.

pub mod acquire;
mod choice;
pub mod combiner;
#[cfg(not(shuttle))]
pub mod conformance;
mod doorbell;
mod futex;
mod latch;
pub mod lockstat;
mod monitor;
mod option_box;
mod padded;
mod park;
mod prefetch;
mod raw;
mod spin;
pub mod thread_index;
mod wait_queue;

#[cfg(not(any(loom, shuttle)))]
pub mod calibrate;
#[cfg(all(test, loom))]
mod loom_tests;

pub use choice::{Choice, choose, chosen};
pub use combiner::{Combiner, DRAIN_LIMIT, Submitted};
pub use doorbell::{Doorbell, Wake};
pub use latch::{Latch, LatchGuard};
pub use monitor::{Condition, Monitor, MonitorGuard};
pub use option_box::AtomicOptionBox;
pub use padded::CachePadded;
pub use park::{DEFAULT_SPIN_LIMIT, ParkLatch, STARVATION, set_pause, set_spin_limit, spin_limit};
pub use prefetch::prefetch;
pub use raw::{Guard, Latched, RawLatch};
pub use spin::SpinLatch;
pub use wait_queue::WaitQueue;

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

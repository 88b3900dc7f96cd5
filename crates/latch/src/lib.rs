//! Latches and the baton: what protects a structure for a short time.
//!
//! [`Combiner`] is the baton of a partition: whoever submits a message while the partition is free runs it, and whoever
//! submits one while it is busy leaves it to the thread that is inside.
//!
//! [`Latch`] is the engine's latch around a value: [`ParkLatch`] spins for a bounded time and then sleeps. [`Monitor`] is for values that
//! threads wait for a change of. Both are counted, by class and caller, in [`lockstat`]. [`WaitQueue`] is where threads wait for a latch that is bits of
//! a word of their own.
//!
//! [`Doorbell`] wakes a thread out of its event loop. [`AtomicOptionBox`] hands a boxed value from
//! thread to thread without waiting, and [`prefetch()`] brings a cache line near.
//!
//! The others are what the engine's latch is compared with: spinning by one instruction or another ([`SpinLatch`] over [`acquire`]),
//! PostgreSQL's [`SLock`], queues ([`TicketLatch`], [`McsLatch`]), memory transactions ([`ElidedLatch`]).

pub mod acquire;
mod choice;
pub mod combiner;
mod doorbell;
mod elide;
mod futex;
mod latch;
pub mod lockstat;
mod mcs;
mod monitor;
mod option_box;
mod padded;
mod park;
mod prefetch;
mod raw;
mod s_lock;
mod spin;
pub mod thread_index;
mod ticket;
mod wait_queue;

#[cfg(not(any(loom, shuttle)))]
pub mod calibrate;
#[cfg(all(test, loom))]
mod loom_tests;

pub use choice::{Choice, choose, chosen};
pub use combiner::{Combiner, DRAIN_LIMIT, Submitted};
pub use doorbell::{Doorbell, Wake};
pub use elide::{ElidedLatch, TRIALS, available as elision_available};
pub use latch::{Latch, LatchGuard};
pub use mcs::McsLatch;
pub use monitor::{Condition, Monitor, MonitorGuard};
pub use option_box::AtomicOptionBox;
pub use padded::CachePadded;
pub use park::{DEFAULT_SPIN_LIMIT, ParkLatch, STARVATION, set_pause, set_spin_limit, spin_limit};
pub use prefetch::prefetch;
pub use raw::{Guard, Latched, RawLatch};
pub use s_lock::{InSLock, SLock, SLockCas, SLockTas};
pub use spin::SpinLatch;
pub use ticket::TicketLatch;
pub use wait_queue::WaitQueue;

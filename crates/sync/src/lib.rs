//! Threads and what they share: the standard library's, or those of a model checker.
//!
//! | built with      | what this is                  | for |
//! |-----------------|-------------------------------|-----|
//! | nothing         | the standard library, renamed | the engine: not an instruction more |
//! | `--cfg loom`    | loom                          | every interleaving, weak orderings included, of a few steps of a few threads |
//! | `--cfg shuttle` | shuttle, and a virtual time   | one interleaving a seed, of the whole engine, that can be replayed |
//!
//! Everything that threads of the engine wait for one another with comes from here; what does not
//! is invisible to the checkers, and must neither block nor be waited for by spinning.
//! `std::sync::Arc` and `OnceLock` are used as they are: an `Arc`'s count is no communication, and
//! a `OnceLock` must be initialised by code that takes nothing from here.

#![forbid(unsafe_code)]

pub mod canary;
pub mod cell;
#[cfg(any(loom, shuttle))]
mod condvar;
pub mod panics;
#[cfg(shuttle)]
pub mod virtual_time;

pub use std::sync::{LockResult, PoisonError};

#[cfg(any(loom, shuttle))]
pub use condvar::Condvar;
#[cfg(loom)]
pub use loom::{
    hint,
    sync::{Mutex, MutexGuard, mpsc},
    thread, thread_local,
};
#[cfg(shuttle)]
pub use shuttle::{
    hint,
    sync::{Mutex, MutexGuard, mpsc},
    thread, thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint,
    sync::{Condvar, Mutex, MutexGuard, mpsc},
    thread, thread_local,
};

/// Atomic integers.
pub mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    #[cfg(shuttle)]
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub use std::sync::atomic::Ordering;
    #[cfg(not(any(loom, shuttle)))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
}

/// Moments and how long it is between them.
pub mod time {
    #[cfg(shuttle)]
    pub use crate::virtual_time::Instant;
    pub use std::time::Duration;
    #[cfg(not(shuttle))]
    pub use std::time::Instant;
}

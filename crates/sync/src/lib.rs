//! Threads and shared memory: the standard library's, or a model checker's.
//!
//! | built with      | what this is                  | for |
//! |-----------------|-------------------------------|-----|
//! | nothing         | the standard library, re-exported | the engine, without any overhead |
//! | `--cfg loom`    | loom                          | every interleaving of a few steps of a few threads, including weak memory orderings |
//! | `--cfg shuttle` | shuttle, and virtual time     | the whole engine: one interleaving per seed, which can be replayed |
//!
//! Everything that the engine's threads use to wait for each other comes from here. The checkers do
//! not see anything else, so it must not block, and no thread may spin on it. `std::sync::Arc` and
//! `OnceLock` are used directly: an `Arc`'s count is not communication, and a `OnceLock` must be
//! initialised by code that uses nothing from here.

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

/// Instants and durations.
pub mod time {
    #[cfg(shuttle)]
    pub use crate::virtual_time::Instant;
    pub use std::time::Duration;
    #[cfg(not(shuttle))]
    pub use std::time::Instant;
}

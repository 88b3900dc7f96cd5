//! The pool's counters.
//!
//! # Locking
//! None: the counters are relaxed, so figures that are read together may belong to different
//! moments.

use clearway_sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Counters {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub evictions: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed); // Relaxed: a statistic.
}

/// Returns a counter's value.
pub(crate) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed) // Relaxed: a statistic.
}

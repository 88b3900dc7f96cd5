//! Counters of ended transactions.
//!
//! Each worker has its own, which a reader adds up. No two workers write to the same cache line.

use clearway_latch::CachePadded;
// Plain std: a statistic; no thread's decision depends on it.
use std::sync::atomic::{AtomicU64, Ordering};

/// Transactions that have ended at one worker.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub committed: AtomicU64,
    pub aborted: AtomicU64,
    pub replayed: AtomicU64,
}

impl Ended {
    /// Counts an ended transaction. Called by the worker's thread only.
    pub(crate) fn count(&self, committed: bool) {
        let counter = if committed { &self.committed } else { &self.aborted };
        // Relaxed: no other data depends on the count. Load and store suffice: there is one writer.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a replay of a block. Called by the worker's thread only.
    pub(crate) fn count_replay(&self) {
        // Relaxed, by load and store: see `count`.
        self.replayed.store(self.replayed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// One entry per worker.
pub(crate) type Workers = Vec<CachePadded<Ended>>;

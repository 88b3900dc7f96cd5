//! Engine statistics.

use crate::deadlock::LockCounts;
use crate::ended::Ended;
use crate::engine::Engine;
// Plain std: a statistic; no thread's decision depends on it.
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the engine was opened, and its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Transactions committed: single statements and blocks.
    pub committed: u64,
    /// Transactions aborted: by an error, by ROLLBACK, or because the client disconnected.
    pub aborted: u64,
    /// Replays of blocks that were undone because another transaction rolled back, or because of a
    /// deadlock.
    pub replays: u64,
    /// Frames of the buffer pool.
    pub pool_frames: u64,
    /// Free frames.
    pub pool_free: u64,
    /// Frames whose page differs from the copy on disk.
    pub pool_dirty: u64,
    /// Pages read from their places on disk.
    pub page_reads: u64,
    /// Pages written to disk.
    pub page_writes: u64,
    /// Pages evicted from the pool.
    pub page_evictions: u64,
    /// Page reads that found no free frame and had to wait for one.
    pub frame_waits: u64,
    /// Pages that have a copy in the second level.
    pub second_level_pages: u64,
    /// Page reads that the second level served.
    pub second_level_hits: u64,
    /// Page reads that missed the second level.
    pub second_level_misses: u64,
    /// Pages written to the second level.
    pub second_level_writes: u64,
    /// Copies in the second level that were unreadable or corrupt.
    pub second_level_dropped: u64,
    /// Pages not written to the second level because its disk did not keep up.
    pub second_level_skipped: u64,
    /// End of the log: bytes written to it since the database was created.
    pub log_bytes: u64,
    /// Log syncs for committing transactions.
    pub log_syncs: u64,
    /// Completed checkpoints.
    pub checkpoints: u64,
}

impl Engine {
    /// Returns the engine's statistics. Scans the pool's frames: meant for people and scrapers, not
    /// for every statement.
    pub fn activity(&self) -> Activity {
        // Relaxed: see `Ended::count`.
        let sum = |counter: fn(&Ended) -> &AtomicU64| {
            self.ended().iter().map(|ended| counter(ended).load(Ordering::Relaxed)).sum()
        };
        let pool = self.pool().stats();
        Activity {
            committed: sum(|ended| &ended.committed),
            aborted: sum(|ended| &ended.aborted),
            replays: sum(|ended| &ended.replayed),
            pool_frames: pool.frames.into(),
            pool_free: pool.free.into(),
            pool_dirty: pool.dirty.into(),
            page_reads: pool.reads,
            page_writes: pool.writes,
            page_evictions: pool.evictions,
            frame_waits: pool.waits,
            second_level_pages: pool.second_level.pages,
            second_level_hits: pool.second_level.hits,
            second_level_misses: pool.second_level.misses,
            second_level_writes: pool.second_level.writes,
            second_level_dropped: pool.second_level.dropped,
            second_level_skipped: pool.second_level.skipped,
            log_bytes: self.node().wal().appended().0,
            log_syncs: self.log_syncs(),
            checkpoints: self.checkpointer.made(),
        }
    }

    /// Counts waiting transactions and deadlocks. Holds the latch of the waits-for graph for a few
    /// nanoseconds per waiting transaction.
    pub fn lock_counts(&self) -> LockCounts {
        self.waits_for().counts()
    }
}

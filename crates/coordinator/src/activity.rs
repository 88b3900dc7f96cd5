//! What the engine has done, in numbers.
//!
//! Ended transactions are counted by each worker in words of its own, which are added up when
//! somebody asks: no two workers write to the same memory for it.

use crate::engine::Engine;
use clearway_latch::CachePadded;
// Plain std: a statistic, nothing that decides what a thread does.
use std::sync::atomic::{AtomicU64, Ordering};

/// Transactions that have ended at one worker.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    committed: AtomicU64,
    aborted: AtomicU64,
    replayed: AtomicU64,
}

impl Ended {
    /// By the worker's thread.
    pub(crate) fn count(&self, committed: bool) {
        let counter = if committed { &self.committed } else { &self.aborted };
        // Relaxed: a count that says all by itself. Load and store: there is one writer.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A block is run again. By the worker's thread.
    pub(crate) fn count_replay(&self) {
        // Relaxed, and by load and store: as in `count`.
        self.replayed.store(self.replayed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// One counter a worker.
pub(crate) type Workers = Vec<CachePadded<Ended>>;

/// What an engine has done since it was opened, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Transactions committed: statements on their own, and blocks.
    pub committed: u64,
    /// Transactions aborted: by an error, by ROLLBACK, by a client that has gone.
    pub aborted: u64,
    /// Runs of blocks that were undone because of another's rollback.
    pub replays: u64,
    /// Frames of the buffer pool.
    pub pool_frames: u64,
    /// Frames that are free.
    pub pool_free: u64,
    /// Frames with a page that differs from the disk's.
    pub pool_dirty: u64,
    /// Pages read from their places on disk.
    pub page_reads: u64,
    /// Pages written to disk.
    pub page_writes: u64,
    /// Pages that left the pool.
    pub page_evictions: u64,
    /// Reads of pages that found no free frame and had to wait for one.
    pub frame_waits: u64,
    /// Pages that have a copy in the second level.
    pub second_level_pages: u64,
    /// Reads of pages that the second level has answered.
    pub second_level_hits: u64,
    /// Reads of pages that it has not.
    pub second_level_misses: u64,
    /// Pages written to it.
    pub second_level_writes: u64,
    /// Its copies that were unreadable or not what was written.
    pub second_level_dropped: u64,
    /// Pages that were not put there because its disk did not keep up.
    pub second_level_skipped: u64,
    /// Where the log ends: bytes written to it since the database was made.
    pub log_bytes: u64,
    /// Syncs of the log for those who commit.
    pub log_syncs: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
}

impl Engine {
    /// What the engine has done, and how it stands. Walks over the pool's frames: for people and
    /// scrapers, not for every statement.
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
}

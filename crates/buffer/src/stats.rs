//! What the pool counts, and what it tells of itself.
//!
//! # Locking
//! None: counters are relaxed, and each figure is as of its own moment.

use crate::pool::Core;
use crate::second_level::SecondLevelStats;
use clearway_sync::atomic::{AtomicU64, Ordering};

/// What the pool has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames in all.
    pub frames: u32,
    /// Frames free now.
    pub free: u32,
    /// Frames with a dirty page now.
    pub dirty: u32,
    /// Frames now with a page that somebody keeps or has latched.
    pub pinned: u32,
    /// Pages read from their places on disk.
    pub reads: u64,
    /// Pages written to disk.
    pub writes: u64,
    /// Pages that left their frame.
    pub evictions: u64,
    /// Reads, and who wanted several frames, that found too few free and had to wait for the cooler.
    pub waits: u64,
    /// What the second level has done.
    pub second_level: SecondLevelStats,
}

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

/// A counter's value.
pub(crate) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed) // Relaxed: a statistic.
}

impl Core {
    /// What the pool has done, and how it stands; walks over all frames.
    pub fn stats(&self) -> Stats {
        let (free, waits) = self.free.counts();
        Stats {
            frames: self.frames().len() as u32,
            free: free as u32,
            dirty: self.frames().iter().filter(|f| f.is_dirty()).count() as u32,
            pinned: self.frames().iter().filter(|f| f.is_pinned()).count() as u32,
            reads: load(&self.counters.reads),
            writes: load(&self.counters.writes),
            evictions: load(&self.counters.evictions),
            waits,
            second_level: self.second_level.as_ref().map(|second| second.stats()).unwrap_or_default(),
        }
    }
}

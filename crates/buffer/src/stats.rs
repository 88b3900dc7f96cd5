//! The pool's statistics.

use crate::second_level::SecondLevelStats;

/// The pool's activity since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Total number of frames.
    pub frames: u32,
    /// Frames that are free now.
    pub free: u32,
    /// Frames that hold a dirty page now.
    pub dirty: u32,
    /// Frames whose page is pinned or latched now.
    pub pinned: u32,
    /// Pages read from their places on disk.
    pub reads: u64,
    /// Pages written to disk.
    pub writes: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Reads and requests for several frames that found too few free frames and waited for the
    /// cooler.
    pub waits: u64,
    /// Counters of the second level.
    pub second_level: SecondLevelStats,
}

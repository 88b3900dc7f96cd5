//! What the pool tells of itself.

use crate::second_level::SecondLevelStats;

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
    /// Reads, and who wanted several frames, that found too few free and had to wait for the
    /// cooler.
    pub waits: u64,
    /// What the second level has done.
    pub second_level: SecondLevelStats,
}

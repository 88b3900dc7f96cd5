//! Limits of a partition: the work per turn, and the number of retries.

use crate::scheme::SchemeKind;

/// A partition's limits and its scheme. A limit that would prevent progress at 0 is raised to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows that a fragment visits before others have a turn. A row of more than 128 bytes counts
    /// as several. Default 2048.
    pub slice_rows: usize,
    /// Number of keys that a change collects at a time if it cannot see its own changes, and number
    /// of rows that an index build collects. Default 256.
    pub collect: usize,
    /// Index entries read ahead of their rows. Default 64.
    pub index_ahead: usize,
    /// Number of key locks of a transaction after which further ones are packed: each then needs
    /// little more memory than its key. Also the number of separate ranges of one tree in one mode
    /// after which neighbouring ranges are joined, if the keys between them are free. Default 4096.
    pub many_locks: usize,
    /// Number of page misses after which a one-shot stops restarting and becomes a locking
    /// transaction, which keeps its progress. Default 4.
    pub misses: u32,
    /// Number of times that the end of a transaction is retried if a page it needs cannot be
    /// provided: a failed read may succeed later. Default 8.
    pub retries: u32,
    /// Number of resumed calls, whose wait is over, that run with one message before other messages
    /// have a turn. Default 64.
    pub turns: usize,
    /// Number of reads of a plan after which the partition reports what became of the rows. The
    /// lock of the plan's reads is learned from these reports. 0 disables learning: reads take
    /// shared locks. Default 16.
    pub learn_after: u32,
    /// Bytes of rows that a one-shot that only reads may return; beyond that it fails with
    /// [`crate::Failure::NeedsSnapshot`]. Default 512 KiB.
    pub one_shot_bytes: u32,
    /// Slices of dropped trees that are freed in one turn. Default 8.
    pub drop_slices: u32,
    /// Memory for versions kept for open snapshots, in bytes. Versions beyond it go to the
    /// temporary file. If there is none or it is full, snapshots fail, oldest first. Default 32
    /// MiB.
    pub version_memory: usize,
    /// Number of commits for which versions are still kept after the last snapshot has closed.
    /// Default 4096.
    pub version_linger: u32,
    /// Whether transactions that only add to integers of a row do so concurrently. Default true.
    pub increments: bool,
    /// Whether the lock of a contended row that an UPDATE by key has changed passes to the next
    /// transaction before the first has ended. Default false.
    pub retire: bool,
    /// With `retire`: retires rows without waiters, too. For tests. Default false.
    pub retire_cold: bool,
    /// How one-shot transactions run. Default hybrid.
    pub scheme: SchemeKind,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            slice_rows: 2048,
            collect: 256,
            index_ahead: 64,
            many_locks: 4096,
            misses: 4,
            retries: 8,
            turns: 64,
            learn_after: 16,
            one_shot_bytes: 512 << 10,
            drop_slices: 8,
            version_memory: 32 << 20,
            version_linger: 4096,
            increments: true,
            retire: false,
            retire_cold: false,
            scheme: SchemeKind::default(),
        }
    }
}

impl Limits {
    /// Returns the limits with those values raised that would prevent progress.
    pub(crate) fn sane(self) -> Self {
        Self {
            slice_rows: self.slice_rows.max(1),
            collect: self.collect.max(1),
            index_ahead: self.index_ahead.max(1),
            turns: self.turns.max(1),
            drop_slices: self.drop_slices.max(1),
            ..self
        }
    }
}

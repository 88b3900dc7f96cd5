//! How much a partition does in one go, and how often it tries.

/// A partition's limits. Where 0 would stand still, it is taken for 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows that a fragment visits before others have a turn. One of more than 128 bytes counts as
    /// several. Default 2048.
    pub slice_rows: usize,
    /// Keys collected at a time by a change that cannot meet itself, and rows by the building of an
    /// index. Default 256.
    pub collect: usize,
    /// Index entries read ahead of their rows. Default 64.
    pub index_ahead: usize,
    /// After this number of key locks of a transaction, further ones are packed: each needs little
    /// more memory than its key. After this number of separate ranges of one tree in one mode,
    /// neighbouring ranges are joined where the keys between them are free. Default 4096.
    pub many_locks: usize,
    /// A one-shot that has missed pages more often stops starting over and becomes a locking
    /// transaction, which keeps its place. Default 4.
    pub misses: u32,
    /// How often the end of a transaction is tried again when what it wants cannot be had: a failed
    /// read may succeed a moment later. Default 8.
    pub retries: u32,
    /// Calls that waited, and whose wait is over, that one message brings with it before other
    /// messages have a turn. Default 64.
    pub turns: usize,
    /// Reads of a plan after which the partition passes on what became of their rows, from which
    /// the lock of the plan's reads is learned. 0: reads share, and nothing is learned. Default 16.
    pub learn_after: u32,
    /// A one-shot that reads more bytes of rows than this fails with
    /// [`crate::Failure::NeedsSnapshot`]. Default 512 KiB.
    pub one_shot_bytes: u32,
    /// Slices of dropped trees that are freed in one turn. Default 8.
    pub drop_slices: u32,
    /// Bytes that what is kept for open snapshots may take. Beyond it the snapshots fail. Default
    /// 32 MiB.
    pub version_memory: usize,
    /// Commits for which versions are still kept when the last snapshot has closed. Default 4096.
    pub version_linger: u32,
    /// Transactions that only add to integers of a row do so beside each other. Default true.
    pub increments: bool,
    /// A contended row that an UPDATE by key has changed is given to the next transaction before
    /// the first has ended. Default false.
    pub retire: bool,
    /// With `retire`: rows that nobody waits for, too. For tests. Default false.
    pub retire_cold: bool,
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
        }
    }
}

impl Limits {
    /// The same without what would stand still.
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

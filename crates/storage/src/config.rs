//! Settings for opening a node, each with its unit, default and bounds. A value that would prevent
//! progress is replaced by the smallest one that does not.

use clearway_buffer::{FrameWaits, SecondLevelConfig, WRITE_BATCH};
use clearway_env::QUEUE_LIMIT;
use clearway_replacement::ReplacementKind;

use crate::wal::{SpaceWaits, WalConfig};

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Number of partitions of a new directory. An existing directory is refused if it has another
    /// number. `None`: what the directory has, or 16 in a new one.
    pub partitions: Option<u16>,
    /// Frames of the buffer pool, 8 KiB each. Default 16384 (128 MiB).
    pub frames: u32,
    /// How the pool chooses victims.
    pub replacement: ReplacementKind,
    /// A file for copies of pages that leave the pool. Default none.
    pub second_level: Option<SecondLevelConfig>,
    /// Number of threads that read pages. Default 8.
    pub io_threads: usize,
    /// Read and write pages with the kernel's io_uring instead. Opening fails if the kernel refuses
    /// it. Default false.
    pub io_ring: bool,
    /// Register the pool's memory with io_uring, as far as the kernel allows; useful for files with
    /// direct I/O. All of it is then resident from the start. Default false.
    pub io_registered: bool,
    /// Size of a log segment, in bytes. Default 64 MiB.
    pub wal_segment_size: u64,
    /// Size of the log buffer, in bytes. A start enlarges it if recovery must undo a change whose
    /// undo would not fit. Default 16 MiB.
    pub wal_buffer_size: usize,
    /// Memory for a transaction's undo records in one partition, in bytes. Older ones are read back
    /// from the log when it aborts. Default 1 MiB.
    pub undo_memory: usize,
    /// Bytes that one write of the log gathers, before the record that exceeds them. Default 4 MiB,
    /// which is also the maximum.
    pub wal_write_limit: usize,
    /// Bytes of log after which it is synced without a request. Default 16 MiB, which is also the
    /// maximum.
    pub wal_sync_every: u64,
    /// Pages written back per batch, 1 to 256; a batch takes two syncs. Default 256.
    pub write_batch: usize,
    /// Maximum number of jobs waiting for the page I/O threads; at the limit, submitting blocks.
    /// Default 4096.
    pub io_queue: usize,
    /// Leaves that a scan prefetches beyond one that it misses; at most 1/32 of the pool. Default
    /// 16.
    pub read_ahead: usize,
    /// Bytes of log that recovery redoes as one batch, held in memory. Default 128 MiB.
    pub redo_batch: u64,
    /// Log segments kept ready by recycling old ones. Default 4.
    pub wal_recycle_ahead: u64,
    /// Maximum number of bytes of log that a rollback reads at once; at least 4096. Default 1 MiB.
    pub undo_window: u64,
    /// The log space reserved for rollbacks changes in steps of this many bytes, so that few
    /// changes touch state shared by all partitions. At least 1, at most a segment. Default 16 KiB.
    pub undo_reserve_step: u64,
    /// Leaves of a dropped tree that are freed at a time; at least 1. Default 8.
    pub drop_leaves: usize,
    /// Maximum number of cells in a tree node, at least 4; for tests of deep trees. Default: as
    /// many as fit in a page.
    pub node_cells: usize,
    /// Maximum size of the temporary file for row versions that do not fit in memory, in bytes; 0
    /// disables it. Default 1 GiB.
    pub version_spill: u64,
    /// Slot size of that file, in bytes: it is written and read in blocks of about this size. At
    /// least 64. Default 32 KiB.
    pub version_slot: usize,
    /// How long to wait for log space.
    pub space: SpaceWaits,
    /// How long to wait for a free frame once the node is open.
    pub frame_waits: FrameWaits,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let wal = WalConfig::default();
        Self {
            partitions: None,
            frames: 16384,
            replacement: ReplacementKind::default(),
            second_level: None,
            io_threads: 8,
            io_ring: false,
            io_registered: false,
            wal_segment_size: wal.segment_size,
            wal_buffer_size: wal.buffer_size,
            undo_memory: 1 << 20,
            wal_write_limit: wal.write_limit,
            wal_sync_every: wal.sync_every,
            write_batch: WRITE_BATCH,
            io_queue: QUEUE_LIMIT,
            read_ahead: 16,
            redo_batch: crate::redo::BATCH,
            wal_recycle_ahead: wal.recycle_ahead,
            undo_window: wal.back_window,
            undo_reserve_step: 16 << 10,
            drop_leaves: 8,
            node_cells: usize::MAX,
            version_spill: 1 << 30,
            version_slot: 32 << 10,
            space: wal.space,
            frame_waits: FrameWaits::default(),
        }
    }
}

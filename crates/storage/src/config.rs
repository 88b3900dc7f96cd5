//! What a node is opened with: each knob with its unit, its default and its bounds. A value that
//! would stand still is taken for the least that does not.

use clearway_buffer::{FrameWaits, SecondLevelConfig, WRITE_BATCH};
use clearway_env::QUEUE_LIMIT;
use clearway_replacement::ReplacementKind;

use crate::wal::{SpaceWaits, WalConfig};

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Partitions of a new directory; an existing one is refused if it was made with another
    /// number. `None`: what there is, or 16 in a new directory.
    pub partitions: Option<u16>,
    /// Frames of the buffer pool, 8 KiB each. Default 16384 (128 MiB).
    pub frames: u32,
    /// How the pool chooses victims.
    pub replacement: ReplacementKind,
    /// A file for copies of pages that leave the pool. Default none.
    pub second_level: Option<SecondLevelConfig>,
    /// Threads that read pages. Default 8.
    pub io_threads: usize,
    /// Whether the kernel's io_uring reads and writes pages instead; an error at opening if it
    /// refuses. Default no.
    pub io_ring: bool,
    /// Whether io_uring knows the pool's memory beforehand, as far as the kernel lets us: of use
    /// for files of direct I/O. All of it is then resident from the start. Default no.
    pub io_registered: bool,
    /// Bytes of a log segment. Default 64 MiB.
    pub wal_segment_size: u64,
    /// Bytes of the log's buffer. Default 16 MiB.
    pub wal_buffer_size: usize,
    /// Bytes of memory that a transaction may take in a partition to remember how to undo its
    /// changes; older ones are read back from the log when it aborts. Default 1 MiB.
    pub undo_memory: usize,
    /// Bytes that one write of the log gathers. Default 4 MiB, which is also the most.
    pub wal_write_limit: usize,
    /// Bytes of log after which it is synced though nobody asks. Default 16 MiB, which is also the
    /// most.
    pub wal_sync_every: u64,
    /// Pages written back at once, with two syncs a batch, 1 to 256. Default 256.
    pub write_batch: usize,
    /// Jobs that may wait for the page I/O threads; who has one more waits. Default 4096.
    pub io_queue: usize,
    /// Leaves that a scan asks for beyond one that it misses; never more than a 32nd of the pool.
    /// Default 16.
    pub read_ahead: usize,
    /// Bytes of log that recovery redoes together, in memory meanwhile. Default 128 MiB.
    pub redo_batch: u64,
    /// Segments of the log that are kept ready by recycling those that are not needed any more.
    /// Default 4.
    pub wal_recycle_ahead: u64,
    /// Bytes that a rollback reads of the log at once, at most; at least 4096. Default 1 MiB.
    pub undo_window: u64,
    /// What is kept of the log for rollbacks changes in steps of so many bytes, so that few changes
    /// touch what all partitions share; at least 1, at most a segment. Default 16 KiB.
    pub pledge_step: u64,
    /// Leaves of a dropped tree that are freed at a time; at least 1. Default 8.
    pub drop_leaves: usize,
    /// Cells of a tree's node at most, at least 4: for tests of deep trees. Default as many as a
    /// page holds.
    pub node_cells: usize,
    /// Bytes of the temporary file for row versions that do not fit in memory, at most; 0: there is
    /// none. Default 1 GiB.
    pub version_spill: u64,
    /// Bytes of a slot of that file: it is written and read in blocks of about this size. At least
    /// 64. Default 32 KiB.
    pub version_slot: usize,
    /// How long space for the log is waited for.
    pub space: SpaceWaits,
    /// How long a free frame is waited for.
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
            pledge_step: 16 << 10,
            drop_leaves: 8,
            node_cells: usize::MAX,
            version_spill: 1 << 30,
            version_slot: 32 << 10,
            space: wal.space,
            frame_waits: FrameWaits::default(),
        }
    }
}

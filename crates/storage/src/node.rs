//! A node's storage. Signatures; the bodies follow.
use crate::error::OpenError;
use crate::store::Store;
use crate::wal::Wal;
use clearway_buffer::Pool;
use clearway_env::Disk;
use clearway_types::{Lsn, TxnId};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Partitions of a new directory; an existing one is refused if it was made with another number. `None`: what there
    /// is, or 16 in a new directory.
    pub partitions: Option<u16>,
    /// Frames of the buffer pool, 8 KiB each. Default 16384 (128 MiB).
    pub frames: u32,
    /// Threads that read pages. Default 8.
    pub io_threads: usize,
    /// Bytes of a log segment. Default 64 MiB.
    pub wal_segment_size: u64,
    /// Bytes of the log's buffer. Default 16 MiB.
    pub wal_buffer_size: usize,
}

/// What recovery did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// How long the open took.
    pub took: Duration,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Log records of which something was redone.
    pub redone: u64,
    /// Transactions undone (one that ran in two partitions counts twice).
    pub undone: u64,
}

/// A node's storage.
pub struct Node {}

#[allow(unused_variables)]
impl Node {
    /// Opens a data directory, makes it if it is not there, and recovers what was committed. Blocking.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: NodeConfig) -> Result<Self, OpenError> {
        unimplemented!()
    }
    /// The partitions' stores, once.
    pub fn take_stores(&mut self) -> Vec<Store> {
        unimplemented!()
    }
    /// The log.
    pub fn wal(&self) -> &Arc<Wal> {
        unimplemented!()
    }
    /// The buffer pool.
    pub fn pool(&self) -> &Arc<Pool> {
        unimplemented!()
    }
    /// What recovery did.
    pub fn recovery(&self) -> &RecoveryReport {
        unimplemented!()
    }
    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        unimplemented!()
    }
    /// Appends the commit record of a transaction of several partitions.
    pub fn commit(&self, txn: TxnId) -> Lsn {
        unimplemented!()
    }
    /// The first of `count` transaction ids never given before.
    pub fn alloc_txn_ids(&self, count: u64) -> TxnId {
        unimplemented!()
    }
    /// A transaction id never given before.
    pub fn alloc_txn_id(&self) -> TxnId {
        unimplemented!()
    }
    /// Writes what is dirty and lets go of the log before it. Blocking; one at a time.
    pub fn checkpoint(&self) -> Result<(), OpenError> {
        unimplemented!()
    }
    /// Flushes the log and ends its thread. The stores must be idle.
    pub fn shutdown(&self) {
        unimplemented!()
    }
}

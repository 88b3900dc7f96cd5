//! Nodes and regions of a segment.

use super::segment::{Segment, ShmConfig, pack};
use super::worker::ShmWorker;
use crate::words::region_in_memory;
use crate::{Fabric, FabricError, FabricNode, Guarantees, Region, RegionKey, WorkerAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A segment mapped by this process.
#[derive(Clone)]
pub struct ShmSegment(Arc<Segment>);

impl ShmSegment {
    /// Creates a segment. Memory is allocated when it is first touched.
    ///
    /// # Errors
    /// Returns [`FabricError::Limit`] if a limit is 0 or too large, and [`FabricError::Io`] if the
    /// system call fails.
    pub fn create(config: ShmConfig) -> Result<Self, FabricError> {
        Ok(Self(Arc::new(Segment::create(config)?)))
    }

    /// Maps a segment that another process of the same user created, given its
    /// [`ShmSegment::path`].
    ///
    /// # Errors
    /// Returns [`FabricError::Io`] if there is no such segment.
    pub fn attach(path: &Path) -> Result<Self, FabricError> {
        Ok(Self(Arc::new(Segment::attach(path)?)))
    }

    /// Returns the path at which other processes find the segment while this process lives.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Attaches this process as a node. Its workers delay each completion until `latency` after the
    /// request was posted.
    ///
    /// # Errors
    /// Returns [`FabricError::Limit`] if the number exceeds the segment's limit, or if a live
    /// process is already attached as that node.
    pub fn node(&self, node: FabricNode, latency: Duration) -> Result<ShmFabric, FabricError> {
        let index = node.0 as usize;
        if index >= self.0.layout.0.nodes {
            return Err(FabricError::Limit("nodes"));
        }
        let word = self.0.word(self.0.layout.node(index));
        let pid = u64::from(std::process::id());
        // Relaxed, here and below: process numbers, which publish nothing.
        let found = word.load(Ordering::Relaxed);
        let is_free = found == 0 || !self.0.process(node).is_some_and(super::worker::is_alive);
        if !is_free
            || word.compare_exchange(found, pid, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Err(FabricError::Limit("processes of one node"));
        }
        let segment = Arc::clone(&self.0);
        // Free the ports of a process that died as this node.
        for port in segment.range(segment.layout.ports()) {
            // Relaxed: an address, which publishes nothing.
            let address = port.load(Ordering::Relaxed);
            if address != 0 && super::segment::unpack(address).node == node {
                port.store(0, Ordering::Relaxed); // Relaxed: as above.
            }
        }
        Ok(ShmFabric(Arc::new(Attachment { segment, node, latency })))
    }
}

/// A process's attachment to a segment as one of its nodes.
#[derive(Clone)]
pub struct ShmFabric(Arc<Attachment>);

/// Frees the node's number when the last handle, worker and region is dropped.
pub(super) struct Attachment {
    pub segment: Arc<Segment>,
    pub node: FabricNode,
    pub latency: Duration,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let word = self.segment.word(self.segment.layout.node(self.node.0 as usize));
        word.store(0, Ordering::Relaxed); // Relaxed: see `Segment::process`.
    }
}

/// Returns the guarantees of every segment: verbs are the CPU's own instructions.
pub(super) fn guarantees() -> Guarantees {
    const LONGEST: usize = 1 << 20;
    Guarantees {
        cpu_atomics: true,
        writes_exclude_atomics: true,
        writes_ordered: true,
        reads_follow_atomics: true,
        inline_words: LONGEST,
        queue_depth: 1024,
        max_words: LONGEST,
        recvs_end_with_peer: true,
    }
}

impl Fabric for ShmFabric {
    type Region = ShmRegion;
    type Worker = ShmWorker;

    fn node(&self) -> FabricNode {
        self.0.node
    }

    fn guarantees(&self) -> Guarantees {
        guarantees()
    }

    fn register(&self, words: usize) -> Result<ShmRegion, FabricError> {
        let (index, key) = self.0.segment.register(words)?;
        Ok(ShmRegion { attachment: Arc::clone(&self.0), index, key, words })
    }

    fn worker(&self, port: u32, scratch_words: usize) -> Result<ShmWorker, FabricError> {
        let address = WorkerAddr { node: self.0.node, port };
        let ports = self.0.segment.range(self.0.segment.layout.ports());
        // Relaxed, here and below: an address, which publishes nothing.
        if ports.iter().any(|word| word.load(Ordering::Relaxed) == pack(address)) {
            return Err(FabricError::Limit("workers of one port"));
        }
        let claim = |word: &AtomicU64| {
            word.compare_exchange(0, pack(address), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let slot = ports.iter().position(claim).ok_or(FabricError::Limit("workers"))?;
        Ok(ShmWorker::new(Arc::clone(&self.0), address, slot, scratch_words))
    }
}

/// A registered region of a segment.
pub struct ShmRegion {
    attachment: Arc<Attachment>,
    index: usize,
    key: RegionKey,
    words: usize,
}

impl ShmRegion {
    fn memory(&self) -> &[AtomicU64] {
        self.attachment
            .segment
            .find(self.key, 0, self.words)
            .expect("the region is registered until it is dropped")
    }
}

impl Drop for ShmRegion {
    fn drop(&mut self) {
        self.attachment.segment.unregister(self.index);
    }
}

impl Region for ShmRegion {
    fn key(&self) -> RegionKey {
        self.key
    }

    fn fence(&mut self) -> Result<(), FabricError> {
        self.key = self.attachment.segment.rekey(self.index);
        Ok(())
    }

    region_in_memory!();
}

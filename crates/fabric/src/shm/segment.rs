//! A segment: its limits, processes and regions.

use super::layout::{
    CHANNELS_CONNECTED, CHANNELS_TAKEN, HEAP_TAKEN, LIMITS, Layout, MAGIC, MAGIC_WORD, REGION_KEY,
    REGION_START, REGION_WORDS,
};
use crate::{FabricError, FabricNode, RegionKey, WorkerAddr};
use clearway_env::{Entropy, OsEntropy, SharedWords};
use rustix::process::Pid;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The fixed limits of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Number of nodes; nodes are numbered from 0.
    pub nodes: usize,
    /// Workers that exist at the same time.
    pub workers: usize,
    /// Regions registered over the segment's whole life, at most 65,536.
    pub regions: usize,
    /// Queue pairs connected over the segment's whole life.
    pub queue_pairs: usize,
    /// Words of each ring, two for each queue pair. Longer messages pass in pieces.
    pub ring_words: usize,
    /// Words registered over the segment's whole life.
    pub heap_words: usize,
}

impl Default for ShmConfig {
    fn default() -> Self {
        Self {
            nodes: 16,
            workers: 256,
            regions: 1024,
            queue_pairs: 1024,
            ring_words: 256,
            heap_words: 1 << 27,
        }
    }
}

impl ShmConfig {
    /// Returns the limits as the segment's header stores them.
    fn limits(&self) -> [usize; 6] {
        [self.nodes, self.workers, self.regions, self.queue_pairs, self.ring_words, self.heap_words]
    }

    fn from_limits(limits: [usize; 6]) -> Self {
        let [nodes, workers, regions, queue_pairs, ring_words, heap_words] = limits;
        Self { nodes, workers, regions, queue_pairs, ring_words, heap_words }
    }

    fn is_possible(&self) -> bool {
        const BITS: u32 = 40;
        self.limits().iter().all(|limit| (1..1 << BITS).contains(limit))
            && self.regions <= 1 << INDEX_BITS
            && self.nodes <= 1 << NODE_BITS
            && (self.queue_pairs as u128) * (self.ring_words as u128 + 32) < 1 << BITS
    }
}

/// Low bits of a key that hold the region's index.
const INDEX_BITS: u32 = 16;
/// Bits of a node's number.
const NODE_BITS: u32 = 30;

/// A mapped segment.
pub(super) struct Segment {
    words: SharedWords,
    pub layout: Layout,
}

impl Segment {
    pub fn create(config: ShmConfig) -> Result<Self, FabricError> {
        if !config.is_possible() {
            return Err(FabricError::Limit("words"));
        }
        let layout = Layout(config);
        let words = SharedWords::create("clearway-fabric", layout.heap().end)?;
        for (index, limit) in config.limits().into_iter().enumerate() {
            // Relaxed: published by the magic number.
            words[LIMITS + index].store(limit as u64, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `attach`; publishes the limits.
        words[MAGIC_WORD].store(MAGIC, Ordering::Release);
        Ok(Self { words, layout })
    }

    pub fn attach(path: &Path) -> Result<Self, FabricError> {
        let words = SharedWords::open(path)?;
        let bad = || {
            FabricError::Io(io::Error::new(io::ErrorKind::InvalidData, "not a segment of a fabric"))
        };
        let header = words.get(..LIMITS + 6).ok_or_else(bad)?;
        // Acquire: pairs with the Release in `create`.
        if header[MAGIC_WORD].load(Ordering::Acquire) != MAGIC {
            return Err(bad());
        }
        let limits =
            // As in `create`.
            std::array::from_fn(|index| header[LIMITS + index].load(Ordering::Relaxed) as usize);
        let config = ShmConfig::from_limits(limits);
        if !config.is_possible() || Layout(config).heap().end != words.len() {
            return Err(bad());
        }
        Ok(Self { words, layout: Layout(config) })
    }

    pub fn path(&self) -> PathBuf {
        self.words.path()
    }

    pub fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    pub fn range(&self, range: std::ops::Range<usize>) -> &[AtomicU64] {
        &self.words[range]
    }

    /// Allocates `count` units of a bounded supply from a counter word. Returns `None` if fewer are
    /// left.
    fn allocate(&self, counter: usize, count: usize, supply: usize) -> Option<usize> {
        // Relaxed: the count hands out numbers. Other words publish what the numbers stand for.
        let taken =
            self.words[counter].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken.checked_add(count as u64).filter(|after| *after <= supply as u64)
            });
        taken.ok().map(|taken| taken as usize)
    }

    pub fn take_channel(&self) -> Option<usize> {
        self.allocate(CHANNELS_TAKEN, 1, self.layout.0.queue_pairs)
    }

    pub fn channels_taken(&self) -> usize {
        // Relaxed: channels are published by their state.
        (self.words[CHANNELS_TAKEN].load(Ordering::Relaxed) as usize).min(self.layout.0.queue_pairs)
    }

    pub fn connections(&self) -> &AtomicU64 {
        &self.words[CHANNELS_CONNECTED]
    }

    /// Returns the words of a verb if the key is known and they are within its region.
    pub fn find(&self, key: RegionKey, word: u64, count: usize) -> Option<&[AtomicU64]> {
        let index = (key.key & ((1 << INDEX_BITS) - 1)) as usize;
        if index >= self.layout.0.regions || key.base != 0 || key.key >> INDEX_BITS == 0 {
            return None;
        }
        let entry = self.layout.region(index);
        // Acquire: pairs with the Release in `register`; start and length are those of the key.
        if self.words[entry + REGION_KEY].load(Ordering::Acquire) != key.key {
            return None;
        }
        let [start, words] =
            // As above.
            [REGION_START, REGION_WORDS].map(|at| self.words[entry + at].load(Ordering::Relaxed));
        let end = word.checked_add(count as u64).filter(|end| *end <= words)?;
        let heap = self.range(self.layout.heap());
        heap.get(
            usize::try_from(start.checked_add(word)?).ok()?
                ..usize::try_from(start.checked_add(end)?).ok()?,
        )
    }

    /// Returns the process of a node if the node is attached.
    pub fn process(&self, node: FabricNode) -> Option<Pid> {
        if node.0 as usize >= self.layout.0.nodes {
            return None;
        }
        // Relaxed: a process number, which publishes nothing.
        let pid = self.words[self.layout.node(node.0 as usize)].load(Ordering::Relaxed);
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    /// Allocates words of the heap for a new region. Returns its entry and key.
    pub fn register(&self, words: usize) -> Result<(usize, RegionKey), FabricError> {
        let regions = 0..self.layout.0.regions;
        if words == 0 || words > self.layout.0.heap_words {
            return Err(FabricError::Limit("words"));
        }
        // An entry is free while its length is 0, and is never reused (invariant 1). AcqRel: pairs
        // with itself and with the Release below, which frees the entry.
        let claim = |index: &usize| {
            let length = &self.words[self.layout.region(*index) + REGION_WORDS];
            length.compare_exchange(0, words as u64, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = regions.into_iter().find(claim).ok_or(FabricError::Limit("regions"))?;
        let entry = self.layout.region(index);
        let Some(start) = self.allocate(HEAP_TAKEN, words, self.layout.0.heap_words) else {
            // Release: pairs with the claim's AcqRel.
            self.words[entry + REGION_WORDS].store(0, Ordering::Release);
            return Err(FabricError::Limit("words"));
        };
        let key = draw_key(index);
        // Relaxed: published by the key.
        self.words[entry + REGION_START].store(start as u64, Ordering::Relaxed);
        // Release: pairs with the Acquire in `find`.
        self.words[entry + REGION_KEY].store(key, Ordering::Release);
        Ok((index, RegionKey { key, base: 0 }))
    }
}

/// Draws a non-zero key that holds its entry's index.
fn draw_key(index: usize) -> u64 {
    ((OsEntropy.u64() | 1 << 63) & !((1 << INDEX_BITS) - 1)) | index as u64
}

impl Segment {
    /// Replaces a region's key.
    pub fn rekey(&self, index: usize) -> RegionKey {
        let key = draw_key(index);
        // Release: pairs with the Acquire in `find`, as in `register`.
        self.words[self.layout.region(index) + REGION_KEY].store(key, Ordering::Release);
        RegionKey { key, base: 0 }
    }

    /// Invalidates a region's key. Its words are not reused (invariant 1).
    pub fn unregister(&self, index: usize) {
        // Release: pairs with the Acquire in `find`: orders the owner's accesses before the key's
        // removal.
        self.words[self.layout.region(index) + REGION_KEY].store(0, Ordering::Release);
    }
}

/// Packs a worker's address into a non-zero word.
pub(super) fn pack(address: WorkerAddr) -> u64 {
    1 << 63 | u64::from(address.node.0) << 32 | u64::from(address.port)
}

/// Unpacks the address in a word.
pub(super) fn unpack(word: u64) -> WorkerAddr {
    WorkerAddr { node: FabricNode((word >> 32) as u32 & !(1 << 31)), port: word as u32 }
}

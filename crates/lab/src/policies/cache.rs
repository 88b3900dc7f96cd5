//! A cache of integers around a policy: the minimum needed to compare a policy with cache crates.
//!
//! The hash table chains through the frames, like the pool's. Lookups take no latch; changes take
//! the latch of one shard of the buckets. A frame holds a key and a value of 8 bytes each. The
//! policy is notified of every hit and miss, and chooses a victim if no frame is free. This code is
//! the same for every policy and wrapper.
//!
//! # Invariants
//! 1. A frame is in exactly one place: the free list, the thread that fills it, or the chain of its
//!    key's bucket. A key is in at most one frame.
//! 2. A frame's version is odd while the frame is in no chain, and differs for every key the frame
//!    has held. Data read between two equal, even versions is consistent.
//!
//! # Locking
//! The policy's latch, if it has one, is acquired before a shard's latch. The free list's latch is
//! acquired alone.
//!
//! Source: the page table of `clearway-buffer`; sequence locks (Boehm, MSPC 2012).

use clearway_latch::{CachePadded, Latched, ParkLatch};
use clearway_replacement::{Probe, Replacement, ReplacementKind};
use clearway_types::{FrameId, PageId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Number of bucket shards; each has a latch.
const SHARDS: usize = 64;
/// A lookup gives up after this many steps, since concurrent changes can lead it astray. A miss is
/// confirmed under the latch.
const CHAIN_LIMIT: usize = 32;
const END: u32 = u32::MAX;
/// Marks an empty frame; no key is this large.
const NONE: u64 = u64::MAX;

/// A cache of fixed capacity.
pub struct Cache {
    frames: Box<[Frame]>,
    buckets: Box<[AtomicU32]>,
    shift: u32,
    shards: Box<[CachePadded<Latched<(), ParkLatch>>]>,
    replacement: Box<dyn Replacement>,
    free: Latched<Vec<FrameId>, ParkLatch>,
    /// Length of `free`; saves taking its latch when it is empty.
    free_count: CachePadded<AtomicU32>,
}

#[repr(align(32))]
struct Frame {
    version: AtomicU32,
    next: AtomicU32,
    key: AtomicU64,
    value: AtomicU64,
}

impl Frame {
    /// Returns the value if the frame holds `key` throughout the read.
    #[inline]
    fn value_of(&self, key: u64) -> Option<u64> {
        // Acquire: pairs with the Release in `publish`. Key and value are at least as new as the
        // version.
        let version = self.version.load(Ordering::Acquire);
        if version & 1 == 1 || self.key.load(Ordering::Relaxed) != key {
            return None;
        }
        let value = self.value.load(Ordering::Relaxed);
        // Pairs with the fence in `clear`: if the value belonged to a later key, the version has
        // changed.
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(value)
    }

    /// Empties the frame. Requires the chain's latch.
    fn clear(&self) {
        // Relaxed: only the holder of the chain's latch and the frame's owner change it.
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        // Release: pairs with the fence in `value_of`. A reader that sees a later write to this
        // frame sees the odd version.
        fence(Ordering::Release);
        self.key.store(NONE, Ordering::Relaxed);
    }

    /// Fills the frame. Requires ownership of the frame, before it is linked.
    fn publish(&self, key: u64, value: u64) {
        // Relaxed: published by the Release below.
        self.key.store(key, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        let version = self.version.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `value_of`.
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

impl Cache {
    /// Creates a cache of `capacity` keys with this replacement.
    pub fn new(capacity: u32, kind: ReplacementKind) -> Self {
        let frame = |_| Frame {
            version: AtomicU32::new(1),
            next: AtomicU32::new(END),
            key: AtomicU64::new(NONE),
            value: AtomicU64::new(0),
        };
        let buckets = (capacity as usize * 2).next_power_of_two().max(SHARDS);
        Self {
            frames: (0..capacity).map(frame).collect(),
            buckets: (0..buckets).map(|_| AtomicU32::new(END)).collect(),
            shift: 64 - buckets.trailing_zeros(),
            shards: (0..SHARDS).map(|_| CachePadded::new(Latched::new(()))).collect(),
            replacement: kind.build(capacity),
            free: Latched::new((0..capacity).rev().map(FrameId).collect()),
            free_count: CachePadded::new(AtomicU32::new(capacity)),
        }
    }

    /// Returns the value of a cached key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        // Acquire, here and below: pairs with the Release stores of the link in `insert` and
        // `take`.
        let mut at = self.buckets[self.bucket(key)].load(Ordering::Acquire);
        for _ in 0..CHAIN_LIMIT {
            let frame = self.frames.get(at as usize)?;
            if let Some(value) = frame.value_of(key) {
                self.replacement.hit(FrameId(at), PageId::from_u64(key));
                return Some(value);
            }
            // Acquire: pairs as above.
            at = frame.next.load(Ordering::Acquire);
        }
        None
    }

    /// Inserts a key unless it is already cached.
    pub fn insert(&self, key: u64, value: u64) {
        let frame = self.frame_for(key);
        let (id, frame) = (frame, &self.frames[frame.0 as usize]);
        let bucket = self.bucket(key);
        let latch = self.shards[bucket % SHARDS].lock();
        if self.is_linked(bucket, key) {
            drop(latch);
            self.give_back(id);
            return;
        }
        frame.publish(key, value);
        let bucket = &self.buckets[bucket];
        // Relaxed load: only changed under the latch. Release stores: pair with the Acquire loads
        // in `get`.
        frame.next.store(bucket.load(Ordering::Relaxed), Ordering::Release);
        bucket.store(id.0, Ordering::Release);
        drop(latch);
        self.replacement.miss(id, PageId::from_u64(key));
    }

    #[inline]
    fn bucket(&self, key: u64) -> usize {
        (PageId::from_u64(key).hash_bits() >> self.shift) as usize
    }

    /// Returns true if the key is in its chain. Requires the chain's latch.
    fn is_linked(&self, bucket: usize, key: u64) -> bool {
        // Relaxed, here and in `take`: this chain only changes under the latch that the caller
        // holds.
        let mut at = self.buckets[bucket].load(Ordering::Relaxed);
        while let Some(frame) = self.frames.get(at as usize) {
            if frame.key.load(Ordering::Relaxed) == key {
                return true;
            }
            at = frame.next.load(Ordering::Relaxed);
        }
        false
    }

    /// Unlinks a proposed frame from its chain. Skips a frame that is no longer linked: policies
    /// without a latch can propose it to two threads.
    fn take(&self, id: FrameId) -> Probe {
        let frame = &self.frames[id.0 as usize];
        let key = frame.key.load(Ordering::Relaxed);
        if key == NONE {
            return Probe::Skip;
        }
        let bucket = self.bucket(key);
        let _latch = self.shards[bucket % SHARDS].lock();
        if frame.key.load(Ordering::Relaxed) != key {
            return Probe::Skip;
        }
        let mut link = &self.buckets[bucket];
        loop {
            let at = link.load(Ordering::Relaxed);
            assert!(at != END, "a frame that holds a key is not in its chain");
            let next = &self.frames[at as usize].next;
            if at == id.0 {
                // Release: pairs with the Acquire in `get`.
                link.store(next.load(Ordering::Relaxed), Ordering::Release);
                frame.clear();
                return Probe::Take;
            }
            link = next;
        }
    }

    /// Returns a frame owned by the caller.
    fn frame_for(&self, key: u64) -> FrameId {
        loop {
            // Relaxed: a hint.
            if self.free_count.load(Ordering::Relaxed) > 0
                && let Some(frame) = self.free.lock().pop()
            {
                self.free_count.fetch_sub(1, Ordering::Relaxed);
                return frame;
            }
            let incoming = Some(PageId::from_u64(key));
            if let Some(frame) = self.replacement.evict(incoming, &mut |frame| self.take(frame)) {
                return frame;
            }
            // Every frame is being filled by some thread.
            std::thread::yield_now();
        }
    }

    fn give_back(&self, frame: FrameId) {
        self.free.lock().push(frame);
        self.free_count.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_hold_exactly_their_capacity() {
        for kind in ReplacementKind::all() {
            let cache = Cache::new(64, kind);
            let mut hits = 0;
            for access in 0..20_000_u64 {
                let key = (access * access) % 251;
                match cache.get(key) {
                    Some(value) => {
                        assert_eq!(value, !key, "{kind}");
                        hits += 1;
                    }
                    None => cache.insert(key, !key),
                }
            }
            let there = (0..251).filter(|key| cache.get(*key).is_some()).count();
            assert_eq!(there, 64, "{kind}");
            assert!(hits > 0, "{kind}");
        }
    }

    /// Invariant 2: threads that insert the same few keys never see another key's value and lose no
    /// frame.
    #[test]
    fn threads_read_consistent_frames_and_lose_none() {
        for kind in ReplacementKind::all() {
            let cache = Cache::new(16, kind);
            std::thread::scope(|scope| {
                for thread in 0..4_u64 {
                    let cache = &cache;
                    scope.spawn(move || {
                        let mut x = thread + 1;
                        for _ in 0..5_000 {
                            x = x
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(1_442_695_040_888_963_407);
                            let key = (x >> 33) % 40;
                            match cache.get(key) {
                                Some(value) => assert_eq!(value, !key, "{kind}"),
                                None => cache.insert(key, !key),
                            }
                        }
                    });
                }
            });
            let linked = (0..40).filter(|key| cache.is_linked(cache.bucket(*key), *key)).count();
            assert_eq!(linked + cache.free.lock().len(), 16, "{kind}");
        }
    }
}

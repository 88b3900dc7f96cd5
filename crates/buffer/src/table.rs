//! The page table: finds the frame of a page without a latch.
//!
//! Chains of frames hang from buckets; the links are in the frames. A search without a latch may
//! follow a wrong chain, if a frame moves to another chain during the search. It may then miss a
//! page, but it cannot return a wrong one, because the frame's state word is checked afterwards. A
//! miss is therefore confirmed under the latch.
//!
//! # Invariants
//! 1. Under the latch of a page's shard, the page is in its chain exactly while a frame holds it
//!    (not FREE), and at most once.
//! 2. Exactly one job reads a page in `loading` from disk (or waits for a frame to read it into).
//!    Only a creation makes the page resident in the meantime; it marks the entry as superseded, so
//!    that the result of the read is discarded.
//!
//! # Locking
//! Each shard of the buckets has one latch, for changes and for confirming misses. Its holder
//! acquires no other latch, does no I/O and calls nothing back.

use crate::frame::Frame;
use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Latch, LatchGuard};
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_types::{FrameId, PageId};
use std::collections::HashMap;

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };
/// A search without a latch gives up after this many steps, because it may be in a wrong chain.
const CHAIN_LIMIT: usize = 32;
const END: u32 = u32::MAX;

static PAGE_TABLE: Class = Class::new("buffer.page_table");

pub(crate) struct PageTable<W> {
    buckets: Box<[AtomicU32]>,
    shift: u32,
    shards: Box<[CachePadded<Latch<Shard<W>>>]>,
}

/// The data, in addition to its chains, that a shard's latch protects.
pub(crate) struct Shard<W> {
    pub loading: HashMap<PageId, Loading<W>>,
}

/// A read in progress.
pub(crate) struct Loading<W> {
    pub waiters: Vec<W>,
    pub superseded: bool,
    /// Whether only scans wait for it.
    pub scan: bool,
}

/// Returns the frame that probably holds the page, from behind the first in its chain.
#[inline(never)]
fn find_behind<'a>(first: &Frame, frames: &'a [Frame], id: PageId) -> Option<(FrameId, &'a Frame)> {
    // Acquire, here and below: pairs with the Release stores of `link` and `unlink`.
    let mut at = first.next.load(Ordering::Acquire);
    for _ in 1..CHAIN_LIMIT {
        let frame = frames.get(at as usize)?;
        if frame.holds(id) {
            return Some((FrameId(at), frame));
        }
        // Acquire: pairs as above.
        at = frame.next.load(Ordering::Acquire);
    }
    None
}

impl<W> PageTable<W> {
    pub fn new(frames: u32) -> Self {
        let buckets = (frames as usize * 2).next_power_of_two().max(SHARDS).max(2);
        Self {
            buckets: (0..buckets).map(|_| AtomicU32::new(END)).collect(),
            shift: 64 - buckets.trailing_zeros(),
            shards: (0..SHARDS)
                .map(|_| {
                    CachePadded::new(Latch::new(&PAGE_TABLE, Shard { loading: HashMap::new() }))
                })
                .collect(),
        }
    }

    #[inline]
    fn bucket(&self, id: PageId) -> usize {
        (id.hash_bits() >> self.shift) as usize
    }

    /// Returns the first frame in the page's chain, or a number that is no frame of the pool. That
    /// frame almost always holds a resident page, as there are at least twice as many buckets as
    /// frames.
    #[inline(always)]
    pub fn first(&self, id: PageId) -> FrameId {
        // Acquire, here and in `find_behind`: pairs with the Release in `link`: the frame's page
        // and link.
        FrameId(self.buckets[self.bucket(id)].load(Ordering::Acquire))
    }

    /// Returns the frame that probably holds the page. `None` must be confirmed under the latch.
    #[inline(always)]
    pub fn find<'a>(&self, frames: &'a [Frame], id: PageId) -> Option<(FrameId, &'a Frame)> {
        let at = self.first(id);
        let first = frames.get(at.0 as usize)?;
        // The first comparison is the shorter one, and suffices for pages in use.
        if first.is_hot(id) || first.holds(id) {
            Some((at, first))
        } else {
            find_behind(first, frames, id)
        }
    }

    /// Latches the page's shard. A panic under the latch is an assertion that failed before any
    /// change.
    #[track_caller]
    pub fn latch(&self, id: PageId) -> LatchGuard<'_, Shard<W>> {
        self.shards[self.bucket(id) % self.shards.len()].lock()
    }

    /// Returns the frame that holds the page.
    pub fn find_latched(
        &self,
        _latch: &LatchGuard<'_, Shard<W>>,
        frames: &[Frame],
        id: PageId,
    ) -> Option<FrameId> {
        // Relaxed: all changes of this chain are made under the latch that the caller holds.
        let mut at = self.buckets[self.bucket(id)].load(Ordering::Relaxed);
        while let Some(frame) = frames.get(at as usize) {
            if frame.holds(id) {
                return Some(FrameId(at));
            }
            at = frame.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Links a frame that holds `id` at the head of its chain.
    pub fn link(
        &self,
        _latch: &LatchGuard<'_, Shard<W>>,
        frames: &[Frame],
        id: PageId,
        frame: FrameId,
    ) {
        let bucket = &self.buckets[self.bucket(id)];
        // Relaxed load: changed only under the latch. Release stores: pair with the Acquires in
        // `find`.
        frames[frame.0 as usize].next.store(bucket.load(Ordering::Relaxed), Ordering::Release);
        bucket.store(frame.0, Ordering::Release);
    }

    /// Unlinks a frame, which held `id`, from its chain.
    pub fn unlink(
        &self,
        _latch: &LatchGuard<'_, Shard<W>>,
        frames: &[Frame],
        id: PageId,
        frame: FrameId,
    ) {
        let mut link = &self.buckets[self.bucket(id)];
        loop {
            // Relaxed loads: changed only under the latch.
            let at = link.load(Ordering::Relaxed);
            assert!(at != END, "the frame of {id} is not in its chain");
            let next = &frames[at as usize].next;
            if at == frame.0 {
                // Release: pairs with the Acquire in `find`.
                link.store(next.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            link = next;
        }
    }
}

//! Combining: a hit is a plain store into the thread's own queue, and no thread waits on a hit.
//!
//! At the end of a batch a thread tries the policy's latch and, if it gets it, applies its hits.
//! Otherwise it hands its queue over to the holder, which drains it before releasing the latch; the
//! thread continues with the same queue. If the holder takes so long that the ring of
//! [`ring::CAPACITY`] hits is full, the thread continues in an overflow. Once that has [`OVERFLOW`]
//! entries per frame, hits on the same page are merged into one entry with a count. So no access is
//! dropped, no thread waits, and memory is bounded by the number of pages.
//!
//! The batch size (how many hits a thread keeps back) follows the size of the pool and the number
//! of threads. All threads together keep back at most one hit per [`FRAMES_PER_HIT`] frames, and
//! each thread at most [`MAX_BATCH`]. With too many threads for the pool the batch size is 0, and
//! each hit tries the latch. So the policy chooses as if it received every hit immediately, except
//! for the order of a few hits of different threads.
//!
//! # Invariants
//! 1. Each hit is applied to the policy once, in its thread's order. A hit whose page is no longer
//!    in the frame is skipped (see `tagged`).
//! 2. A hit only tries the latch. Exception: an exiting thread that has already released its queue
//!    waits.
//! 3. The current holder drains every queue that was handed over, before or after it releases the
//!    latch. It checks again at most [`ROUNDS`] times, since it may be executing a hit itself.
//!    Queues handed over later are left to the next holder: at the latest to their owner, at the
//!    end of its next batch.
//! 4. A thread that ends has applied its hits.
//!
//! # Locking
//! The policy's latch. Misses, evictions, removals and thread exits wait for it. The list of
//! handed-over queues is a stack of thread indices: a thread pushes with a compare-and-swap of the
//! head, and the holder takes the whole list at once.
//!
//! # Source
//! BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009) for private queues, TryLock and tags; flat combining
//! (Hendler, Incze, Shavit, Tzafrir, SPAA 2010) for the holder that does the work of threads that
//! find the latch taken.

#[cfg(all(test, loom))]
mod loom_tests;
mod ring;

use super::per_thread::PerThread;
use super::tagged::{Entry, Tagged};
use super::{POLICY, Replacement};
use crate::policy::{Policy, Probe};
use clearway_latch::thread_index::{self, Attached};
use clearway_latch::{CachePadded, Latch, LatchGuard};
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_types::{FrameId, PageId};
use ring::Ring;
use std::sync::{Arc, Weak};

/// The maximum number of hits that a thread keeps back: half its ring, so that it can continue
/// while the holder works.
pub const MAX_BATCH: u32 = ring::CAPACITY / 2;
/// Frames per hit that all threads together may keep back.
pub const FRAMES_PER_HIT: u32 = 128;
/// Entries per frame from which on a thread's overflow is merged.
pub const OVERFLOW: usize = 2;
/// How often a holder checks again for queues that were handed over.
pub const ROUNDS: u32 = 8;

/// The end of the list of handed-over queues.
const NO_THREAD: u32 = u32::MAX;

/// A policy to which hits are applied in batches, by the holder of its latch.
pub struct Combining(Arc<Shared>);

struct Shared {
    rings: PerThread<Ring>,
    frames: u32,
    policy: CachePadded<Latch<PolicyState>>,
    /// The number of threads that have a queue.
    threads: AtomicU32,
    /// The index of the last thread that handed its queue over: the head of the list.
    handed_over: CachePadded<AtomicU32>,
}

/// The data under the latch: the policy, and the position up to which each thread's hits have been
/// applied.
struct PolicyState {
    policy: Tagged,
    heads: Vec<u32>,
}

impl PolicyState {
    fn drain(&mut self, index: u32, ring: &Ring) {
        let index = index as usize;
        if index >= self.heads.len() {
            self.heads.resize(index + 1, 0);
        }
        ring.drain(&mut self.heads[index], &mut self.policy);
    }
}

impl Combining {
    /// Wraps a policy of `frames` frames.
    pub fn new(policy: Box<dyn Policy>, frames: u32) -> Self {
        let bound = OVERFLOW * (frames as usize).max(ring::CAPACITY as usize);
        Self(Arc::new(Shared {
            rings: PerThread::new(move || Ring::new(bound)),
            frames,
            policy: CachePadded::new(Latch::new(
                &POLICY,
                PolicyState { policy: Tagged::new(policy, frames), heads: Vec::new() },
            )),
            threads: AtomicU32::new(0),
            handed_over: CachePadded::new(AtomicU32::new(NO_THREAD)),
        }))
    }

    /// Returns how many hits a thread keeps back now.
    pub fn batch(&self) -> u32 {
        self.0.batch()
    }

    /// Processes a hit at the end of a batch, or of a thread that has no queue yet.
    #[cold]
    #[inline(never)]
    fn hit_slow(&self, index: u32, ring: &Ring, entry: Entry) {
        let shared = &*self.0;
        let first = ring.attach();
        if first {
            // Relaxed: a hint for the batch size.
            shared.threads.fetch_add(1, Ordering::Relaxed);
            thread_index::attach(index, Arc::downgrade(&self.0) as Weak<dyn Attached>);
        }
        let overflow = ring.push_slow(entry);
        if overflow.is_multiple_of(MAX_BATCH as usize) {
            shared.apply_or_hand_over(index, ring);
        }
        // The first batch is 0: if many threads start at once, each would compute its batch from
        // too few threads.
        ring.allow(if first { 0 } else { shared.batch() });
    }
}

impl Shared {
    fn batch(&self) -> u32 {
        let threads = self.threads.load(Ordering::Relaxed).max(1);
        (self.frames / FRAMES_PER_HIT / threads).min(MAX_BATCH)
    }

    /// Applies the calling thread's queue to the policy, or hands it over to the holder of the
    /// latch.
    fn apply_or_hand_over(&self, index: u32, ring: &Ring) {
        if let Some(mut policy) = self.policy.try_lock() {
            policy.drain(index, ring);
            return self.release(policy);
        }
        if ring.hand_over() {
            // Relaxed: only a guess for the exchange.
            let mut first = self.handed_over.load(Ordering::Relaxed);
            loop {
                ring.next().store(first, Ordering::Relaxed);
                // Acquire: pairs with the Release in `release`. A holder that missed this queue
                // released the latch before its check, so the attempt below succeeds or finds
                // another holder. Release: publishes the link above, and pairs with the Acquire in
                // `take_handed_over`.
                match self.handed_over.compare_exchange_weak(
                    first,
                    index,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break,
                    Err(now) => first = now,
                }
            }
        }
        if let Some(policy) = self.policy.try_lock() {
            self.release(policy);
        }
    }

    /// Applies the queues that were handed over.
    fn take_handed_over(&self, policy: &mut PolicyState) {
        // Acquire: pairs with the Release of every compare-and-swap that pushed a queue. Each of
        // them continues the release sequence of the earlier ones.
        let mut at = self.handed_over.swap(NO_THREAD, Ordering::Acquire);
        while at != NO_THREAD {
            let (index, ring) = (at, self.rings.of(at));
            at = ring.next().load(Ordering::Relaxed);
            ring.take_over();
            policy.drain(index, ring);
        }
    }

    /// Releases the latch, and applies all queues that were handed over to the holder (invariant
    /// 3).
    fn release<'a>(&'a self, mut policy: LatchGuard<'a, PolicyState>) {
        // Relaxed: a hint; the loop below finds what it misses.
        if self.handed_over.load(Ordering::Relaxed) != NO_THREAD {
            self.take_handed_over(&mut policy);
        }
        drop(policy);
        for _ in 0..ROUNDS {
            // A read-modify-write that changes nothing. AcqRel: pairs with the compare-and-swap in
            // `apply_or_hand_over`. Either it precedes that one, and the thread sees the latch
            // released; or it follows it, and sees the queue.
            if self.handed_over.fetch_or(0, Ordering::AcqRel) == NO_THREAD {
                return;
            }
            // Another holder checks when it releases the latch.
            let Some(mut policy) = self.policy.try_lock() else { return };
            self.take_handed_over(&mut policy);
        }
    }

    /// Waits for the latch, and applies the calling thread's queue to the policy.
    #[track_caller]
    fn lock(&self) -> LatchGuard<'_, PolicyState> {
        let mut policy = self.policy.lock();
        if let Some(index) = thread_index::current() {
            policy.drain(index, self.rings.of(index));
        }
        policy
    }
}

impl Replacement for Combining {
    #[inline]
    fn hit(&self, frame: FrameId, page: PageId) {
        let entry = Entry::new(frame, page);
        let Some(index) = thread_index::current() else {
            // The thread is exiting and has released its queue.
            let mut policy = self.0.policy.lock();
            policy.policy.hit(entry);
            return self.0.release(policy);
        };
        let ring = self.0.rings.of(index);
        if !ring.push(entry) {
            self.hit_slow(index, ring, entry);
        }
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        let mut policy = self.0.lock();
        policy.policy.miss(frame, page);
        self.0.release(policy);
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let mut policy = self.0.lock();
        let taken = policy.policy.evict(incoming, probe);
        self.0.release(policy);
        taken
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        let mut policy = self.0.lock();
        policy.policy.remove(frame, take);
        self.0.release(policy);
    }
}

impl Attached for Shared {
    fn thread_ends(&self, index: u32) {
        let mut policy = self.policy.lock();
        let ring = self.rings.of(index);
        policy.drain(index, ring);
        if ring.detach() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
        self.release(policy);
    }
}

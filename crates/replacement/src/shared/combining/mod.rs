//! Combining: a hit is a plain store into the thread's own queue, and no thread waits on a hit.
//!
//! At the end of a batch a thread tries the policy's latch and, if it gets it, applies its hits.
//! Otherwise it hands its queue to the holder, who empties it before releasing the latch; the
//! thread continues with the same queue. If the holder takes so long that the ring of
//! [`ring::ROOM`] hits is full, the thread continues in an overflow. Once that has [`OVERFLOW`]
//! entries a frame, hits on the same page become one entry with a count. So no access is dropped,
//! no thread waits, and the pages bound the memory.
//!
//! The batch (how many hits a thread keeps back) follows the pool and the threads. All threads
//! together keep back at most one hit for [`FRAMES_A_HIT`] frames, and each at most
//! [`LARGEST_BATCH`]. With too many threads for the pool the batch is 0, and each hit tries the
//! latch. So the policy chooses as if it heard of every hit at once, except for the order of a few
//! hits of different threads.
//!
//! # Invariants
//! 1. Each hit is applied to the policy once, in its thread's order. A hit whose page has left the
//!    frame is skipped (see `tagged`).
//! 2. A hit only tries the latch. Exception: an exiting thread that has already released its queue
//!    waits.
//! 3. A queue that was handed over is emptied by the current holder, before or after it releases
//!    the latch. A holder does so at most [`ROUNDS`] times, since it may be on a hit of its own.
//!    Later queues are left to the next holder: at the latest to their owner, at the end of its
//!    next batch.
//! 4. A thread that ends has applied its hits.
//!
//! # Locking
//! The policy's latch. Misses, evictions, removals and ends of threads wait for it. The list of
//! queues handed over is a stack of thread indices: a thread pushes by exchanging its head, the
//! holder takes all at once.
//!
//! # Source
//! BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009) for private queues, TryLock and tags; flat combining
//! (Hendler, Incze, Shavit, Tzafrir, SPAA 2010) for the holder that does the work of threads that
//! find it busy.

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

/// The most hits that a thread keeps back: half its ring, so that it can continue while the holder
/// works.
pub const LARGEST_BATCH: u32 = ring::ROOM / 2;
/// Frames for each hit that all threads together may keep back.
pub const FRAMES_A_HIT: u32 = 128;
/// Entries a frame from which on a thread's overflow is shortened.
pub const OVERFLOW: usize = 2;
/// How often a holder checks again for queues that were handed over.
pub const ROUNDS: u32 = 8;

/// The end of the list of queues handed over.
const NOBODY: u32 = u32::MAX;

/// A policy to which hits are applied in batches, by whoever has its latch.
pub struct Combining(Arc<Shared>);

struct Shared {
    rings: PerThread<Ring>,
    frames: u32,
    policy: CachePadded<Latch<PolicyState>>,
    /// Threads that have a queue.
    threads: AtomicU32,
    /// The index of the last thread to hand its queue over.
    handed: CachePadded<AtomicU32>,
}

/// What the latch protects: the policy, and up to where each thread's hits have been applied.
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
        let bound = OVERFLOW * (frames as usize).max(ring::ROOM as usize);
        Self(Arc::new(Shared {
            rings: PerThread::new(move || Ring::new(bound)),
            frames,
            policy: CachePadded::new(Latch::new(
                &POLICY,
                PolicyState { policy: Tagged::new(policy, frames), heads: Vec::new() },
            )),
            threads: AtomicU32::new(0),
            handed: CachePadded::new(AtomicU32::new(NOBODY)),
        }))
    }

    /// Returns how many hits a thread keeps back now.
    pub fn batch(&self) -> u32 {
        self.0.batch()
    }

    /// A hit at the end of a batch, or of a thread that has no queue yet.
    #[cold]
    #[inline(never)]
    fn hit_slowly(&self, index: u32, ring: &Ring, entry: Entry) {
        let shared = &*self.0;
        let first = ring.attach();
        if first {
            // Relaxed, as everywhere: advice for the size of batches.
            shared.threads.fetch_add(1, Ordering::Relaxed);
            thread_index::attach(index, Arc::downgrade(&self.0) as Weak<dyn Attached>);
        }
        let beyond = ring.push_slowly(entry);
        if beyond.is_multiple_of(LARGEST_BATCH as usize) {
            shared.tell_or_hand_over(index, ring);
        }
        // Nothing is kept back yet where many threads begin at once, each of which would find few.
        ring.allow(if first { 0 } else { shared.batch() });
    }
}

impl Shared {
    fn batch(&self) -> u32 {
        let threads = self.threads.load(Ordering::Relaxed).max(1);
        (self.frames / FRAMES_A_HIT / threads).min(LARGEST_BATCH)
    }

    /// Applies the calling thread's queue to the policy, or leaves it to the holder of the latch.
    fn tell_or_hand_over(&self, index: u32, ring: &Ring) {
        if let Some(mut policy) = self.policy.try_lock() {
            policy.drain(index, ring);
            return self.let_go(policy);
        }
        if ring.hand_over() {
            // Relaxed: only a hint of what to exchange.
            let mut first = self.handed.load(Ordering::Relaxed);
            loop {
                ring.next().store(first, Ordering::Relaxed);
                // Release: pairs with the Acquire in `take_handed`: the link above. Acquire: pairs
                // with the Release in `let_go`: a holder that did not see this queue had let go
                // before it looked, and so the attempt below succeeds or there is another holder.
                match self.handed.compare_exchange_weak(
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
            self.let_go(policy);
        }
    }

    /// Applies the queues that were handed over.
    fn take_handed(&self, policy: &mut PolicyState) {
        // Acquire: pairs with the Release of every exchange that put one there: each continues the
        // release sequence of those before it.
        let mut at = self.handed.swap(NOBODY, Ordering::Acquire);
        while at != NOBODY {
            let (index, ring) = (at, self.rings.of(at));
            at = ring.next().load(Ordering::Relaxed);
            ring.take_over();
            policy.drain(index, ring);
        }
    }

    /// Releases the latch, with nothing left that was handed to its holder (invariant 3).
    fn let_go<'a>(&'a self, mut policy: LatchGuard<'a, PolicyState>) {
        // Relaxed: a hint; what it misses is found below.
        if self.handed.load(Ordering::Relaxed) != NOBODY {
            self.take_handed(&mut policy);
        }
        drop(policy);
        for _ in 0..ROUNDS {
            // An exchange that changes nothing: it comes before a thread's exchange, which then
            // sees that the latch was let go; or after, and sees it. AcqRel: see
            // `tell_or_hand_over`.
            if self.handed.fetch_or(0, Ordering::AcqRel) == NOBODY {
                return;
            }
            // If another has the latch, it looks when it lets go.
            let Some(mut policy) = self.policy.try_lock() else { return };
            self.take_handed(&mut policy);
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
            // The thread is at its end: it has no queue any more.
            let mut policy = self.0.policy.lock();
            policy.policy.hit(entry);
            return self.0.let_go(policy);
        };
        let ring = self.0.rings.of(index);
        if !ring.push(entry) {
            self.hit_slowly(index, ring, entry);
        }
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        let mut policy = self.0.lock();
        policy.policy.miss(frame, page);
        self.0.let_go(policy);
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let mut policy = self.0.lock();
        let taken = policy.policy.evict(incoming, probe);
        self.0.let_go(policy);
        taken
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        let mut policy = self.0.lock();
        policy.policy.remove(frame, take);
        self.0.let_go(policy);
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
        self.let_go(policy);
    }
}

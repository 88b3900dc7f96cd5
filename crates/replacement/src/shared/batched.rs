//! Batching: each thread queues its hits, and takes the policy's latch once for many of them.
//!
//! A queue is FIFO with room for S hits. From the T-th hit on, each hit tries the latch; only a
//! full queue waits for it. A miss, an eviction or a removal first commits the calling thread's
//! queue. A commit skips hits whose page is no longer in the frame.
//!
//! With prefetching, a commit first prefetches what it will touch ([`crate::Footprint`]): the
//! latch's cache line; for each hit, the elements of the wrapper and of the policy, and its links;
//! then the links of its neighbours.
//!
//! # Invariants
//! 1. Only its thread touches a queue (in a simulation, the thread that acts as it). Its hits are
//!    committed in order, each once.
//! 2. A thread that ends commits its queue.
//!
//! # Locking
//! The policy's latch. The queues' atomics are relaxed: a queue belongs to one thread at a time,
//! and the latch of `thread_index` orders its thread before the next one with the same index.
//!
//! # Source
//! pgBatching and pgBat-Pre of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009).

use super::per_thread::PerThread;
use super::tagged::{Entry, Prefetcher, Tagged};
use super::{POLICY, Replacement};
use crate::policy::{Policy, Probe};
use clearway_latch::thread_index::{self, Attached};
use clearway_latch::{Latch, LatchGuard};
use clearway_sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use clearway_types::{FrameId, PageId};
use std::sync::{Arc, Weak};

/// The capacity of a queue in hits (S), as in the source.
pub const QUEUE: u32 = 64;
/// The number of queued hits from which on the latch is tried (T), as in the source.
pub const THRESHOLD: u32 = 32;

/// `tail` of a queue that no thread owns.
const NO_THREAD: u32 = u32::MAX;

/// A policy behind a latch, with a queue of hits for each thread.
pub struct Batched(Arc<Shared>);

struct Shared {
    queues: PerThread<Queue>,
    policy: Latch<Tagged>,
    prefetcher: Option<Prefetcher>,
    threshold: u32,
}

struct Queue {
    /// The number of queued hits.
    tail: AtomicU32,
    entries: Box<[AtomicU64]>,
}

impl Queue {
    fn new(capacity: u32) -> Self {
        let entries = (0..capacity).map(|_| AtomicU64::new(0)).collect();
        Self { tail: AtomicU32::new(NO_THREAD), entries }
    }

    /// Returns the queued hits, oldest first.
    fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        let tail = self.tail.load(Relaxed);
        let filled = if tail == NO_THREAD { 0 } else { tail as usize };
        self.entries[..filled].iter().map(|entry| Entry::from_u64(entry.load(Relaxed)))
    }

    fn commit(&self, policy: &mut Tagged) {
        let mut any = false;
        self.entries().for_each(|entry| {
            any = true;
            policy.hit(entry);
        });
        if any {
            self.tail.store(0, Relaxed);
        }
    }
}

/// Whether a commit first prefetches what it will touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetching {
    /// No.
    Off,
    /// Yes.
    On,
}

impl Batched {
    /// Wraps a policy of `frames` frames, with the source's S and T.
    pub fn new(policy: Box<dyn Policy>, frames: u32, prefetching: Prefetching) -> Self {
        Self::with_sizes(policy, frames, prefetching, QUEUE, THRESHOLD)
    }

    /// Wraps a policy of `frames` frames. `queue` is S and `threshold` is T: each at least 1, and T
    /// at most S.
    pub fn with_sizes(
        policy: Box<dyn Policy>,
        frames: u32,
        prefetching: Prefetching,
        queue: u32,
        threshold: u32,
    ) -> Self {
        let queue = queue.max(1);
        let policy = Tagged::new(policy, frames);
        Self(Arc::new(Shared {
            prefetcher: (prefetching == Prefetching::On)
                .then(|| Prefetcher::new(policy.footprint())),
            queues: PerThread::new(move || Queue::new(queue)),
            policy: Latch::new(&POLICY, policy),
            threshold: threshold.clamp(1, queue),
        }))
    }

    /// Acquires the latch and commits the calling thread's queue.
    #[track_caller]
    fn lock(&self) -> LatchGuard<'_, Tagged> {
        let own = thread_index::current().map(|index| self.0.queues.of(index));
        if let (Some(prefetcher), Some(queue)) = (&self.0.prefetcher, own) {
            prefetcher.prefetch(&self.0.policy, queue.entries());
        }
        let mut policy = self.0.policy.lock();
        if let Some(queue) = own {
            queue.commit(&mut policy);
        }
        policy
    }

    #[cold]
    fn attach(&self, index: u32, queue: &Queue) {
        queue.tail.store(0, Relaxed);
        thread_index::attach(index, Arc::downgrade(&self.0) as Weak<dyn Attached>);
    }

    /// Tries to commit a queue that has reached T.
    #[cold]
    #[inline(never)]
    fn try_commit(&self, queue: &Queue, full: bool) {
        if let Some(prefetcher) = &self.0.prefetcher {
            prefetcher.prefetch(&self.0.policy, queue.entries());
        }
        match self.0.policy.try_lock() {
            Some(mut policy) => queue.commit(&mut policy),
            None if !full => {}
            None => queue.commit(&mut self.0.policy.lock()),
        }
    }
}

impl Replacement for Batched {
    #[inline]
    fn hit(&self, frame: FrameId, page: PageId) {
        let entry = Entry::new(frame, page);
        let Some(index) = thread_index::current() else {
            // The thread is exiting and has released its queue.
            return self.0.policy.lock().hit(entry);
        };
        let queue = self.0.queues.of(index);
        if queue.tail.load(Relaxed) == NO_THREAD {
            self.attach(index, queue);
        }
        let tail = queue.tail.load(Relaxed);
        queue.entries[tail as usize].store(entry.to_u64(), Relaxed);
        queue.tail.store(tail + 1, Relaxed);
        if tail + 1 >= self.0.threshold {
            self.try_commit(queue, tail as usize + 1 == queue.entries.len());
        }
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        self.lock().miss(frame, page);
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.lock().evict(incoming, probe)
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        self.lock().remove(frame, take);
    }
}

impl Attached for Shared {
    fn thread_ends(&self, index: u32) {
        let queue = self.queues.of(index);
        queue.commit(&mut self.policy.lock());
        queue.tail.store(NO_THREAD, Relaxed);
    }
}

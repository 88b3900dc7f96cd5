//! A worker's mailbox: how another thread hands it something without waiting for it.
//!
//! Invariants
//! 1. Mail that was posted is seen by the worker's next [`Mailbox::drain`] that starts after the
//!    post.
//! 2. A worker that sleeps in its event loop is woken by the first post after its last drain, and
//!    only by that one: further posts find `notified` set and cost no system call.
//!
//! Locking: none; a lock-free queue and one flag. A crash leaves nothing: mail is about running
//! transactions only.

use clearway_partition::{Failure, Message, Origin, Reply};
use clearway_sync::atomic::{AtomicBool, Ordering};
use clearway_types::{Lsn, PartitionId, TxnId};
use crossbeam_queue::SegQueue;
use std::sync::Arc;

/// Wakes a worker out of its event loop; called from any thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// What one thread hands to a worker.
pub(crate) enum Mail {
    /// A fragment's reply, for a client of this worker.
    Reply { to: Origin, reply: Result<Reply, Failure>, depends_on: Lsn },
    /// A client of this worker has come to a halt at a partition that it had to itself.
    Stalled { to: Origin },
    /// A transaction of a client of this worker has been undone.
    Undone { to: Origin, txn: TxnId },
    /// A message for a partition whose home is this worker (pinned dispatch), or one that no
    /// session sends.
    Message { partition: PartitionId, message: Message },
    /// What a suspended transaction waited for is in the pool and held there by `held` until it has
    /// run.
    Fetched { partition: PartitionId, txn: TxnId, held: crate::fetch::Held },
    /// A partition has messages left over from a full drain.
    Leftover(PartitionId),
    /// The log that a transaction needs has been read, or a partition is to go on with what it has
    /// left; pinned dispatch: a slice is over, too.
    Resume { partition: PartitionId, txn: TxnId },
    /// Poll a client's task again.
    Wake { token: u32 },
}

pub(crate) struct Mailbox {
    queue: SegQueue<Mail>,
    notified: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { queue: SegQueue::new(), notified: AtomicBool::new(false), waker }
    }

    pub(crate) fn post(&self, mail: Mail) {
        self.queue.push(mail);
        self.wake();
    }

    /// Wakes the worker without mail: the log's durable end has moved.
    pub(crate) fn wake(&self) {
        // AcqRel: the Release half publishes the push before the flag to the swap in `drain`; if
        // the flag was set already, the drain that clears it comes later and sees the push.
        if !self.notified.swap(true, Ordering::AcqRel) {
            (self.waker)();
        }
    }

    /// Takes what has been posted, oldest first.
    pub(crate) fn drain(&self, mut each: impl FnMut(Mail)) {
        // Relaxed: only whether the exchange below is worth its cost; a flag set just now wakes the
        // worker again.
        if !self.notified.load(Ordering::Relaxed) {
            return;
        }
        // Acquire: pairs with the Release half of `wake`'s swap. Cleared before popping, so that a
        // post that this drain misses wakes again.
        if !self.notified.swap(false, Ordering::AcqRel) {
            return;
        }
        // Bounded by what is there now: mail that handling causes waits for the next turn.
        for _ in 0..self.queue.len() {
            match self.queue.pop() {
                Some(mail) => each(mail),
                None => return,
            }
        }
        if !self.queue.is_empty() {
            self.wake();
        }
    }
}

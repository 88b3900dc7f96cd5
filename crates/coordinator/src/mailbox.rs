//! A worker's mailbox: lets another thread hand work to it without blocking.
//!
//! Invariants
//! 1. Posted mail is seen by the worker's next [`Mailbox::drain`] that starts after the post.
//! 2. A worker asleep in its event loop is woken by the first post after its last drain, and by no
//!    other: later posts find `notified` set and cost no system call.
//!
//! Locking: none; a lock-free queue and one flag. A crash leaves nothing: mail concerns running
//! transactions only.

use clearway_buffer::Pin;
use clearway_partition::{Failure, FragmentOrigin, Message, Reply};
use clearway_sync::atomic::{AtomicBool, Ordering};
use clearway_types::{Lsn, PartitionId, SqlError, TxnId};
use crossbeam_queue::SegQueue;
use std::sync::Arc;

/// Wakes a worker's event loop. Callable from any thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// The pages that a retry needs, pinned until dropped; or why they are not available.
pub(crate) type Held = Result<Vec<Pin>, SqlError>;

/// What a thread hands to a worker.
pub(crate) enum Mail {
    /// A fragment's reply, for a client of this worker.
    Reply { to: FragmentOrigin, reply: Result<Reply, Failure>, depends_on: Lsn },
    /// A client of this worker cannot continue at a partition to which it had exclusive access.
    Stalled { to: FragmentOrigin },
    /// A transaction of a client of this worker was undone.
    Undone { to: FragmentOrigin, txn: TxnId },
    /// A message that no session sends, for a partition whose home is this worker.
    Message { partition: PartitionId, message: Message },
    /// The pages that a suspended transaction waited for are resident, and pinned by `held` until
    /// it has run.
    Fetched { partition: PartitionId, txn: TxnId, request: u64, held: Held },
    /// A partition has messages left after a full drain.
    Leftover(PartitionId),
    /// The log that a transaction needs has been read, or a partition should continue its remaining
    /// work.
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
        // AcqRel: the Release half pairs with the swap in `drain` and publishes the push before the
        // flag. If the flag was already set, the drain that clears it comes later and sees the
        // push.
        if !self.notified.swap(true, Ordering::AcqRel) {
            (self.waker)();
        }
    }

    /// Takes the posted mail, oldest first.
    pub(crate) fn drain(&self, mut each: impl FnMut(Mail)) {
        // Relaxed: only decides whether the exchange below is worth its cost. A flag that is set
        // after this wakes the worker again.
        if !self.notified.load(Ordering::Relaxed) {
            return;
        }
        // Acquire: pairs with the Release half of the swap in `wake`. Cleared before popping, so
        // that a post missed by this drain wakes again.
        if !self.notified.swap(false, Ordering::AcqRel) {
            return;
        }
        // Bounded by the current length: mail posted while handling waits for the next turn.
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

//! Wakes a worker out of its event loop, and costs nothing while it is awake.
//!
//! Invariant: whoever makes something visible to a worker and then rings is seen: either the worker looks again before it sleeps, or it is
//! woken.
//!
//! Locking: none; one flag. A crash leaves nothing.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// A worker's doorbell.
pub struct Doorbell {
    asleep: AtomicBool,
    waker: mio::Waker,
}

impl Doorbell {
    /// A doorbell that wakes through `waker`.
    pub fn new(waker: mio::Waker) -> Self {
        Self { asleep: AtomicBool::new(false), waker }
    }

    /// Makes sure that the worker sees what was made visible before this call.
    ///
    /// Two threads each write one place and then read the other's: the ringer its news and then `asleep`, the worker `asleep` and then the
    /// news. Only a total order forbids that both miss; hence the `SeqCst` fences here and in [`Doorbell::lie_down`], and nothing
    /// weaker does. Without them a worker could sleep on news until the next event.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence above.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // An error would mean that the event loop is gone, and then nobody needs waking.
            let _ = self.waker.wake();
        }
    }

    /// The worker is about to sleep: it must look for news once more after this, before it does.
    pub fn lie_down(&self) {
        // Relaxed: ordered by the fence below, which pairs with the one in `ring`.
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The worker is awake.
    pub fn get_up(&self) {
        // Relaxed: a ring that still sees it asleep costs one needless wake-up.
        self.asleep.store(false, Ordering::Relaxed);
    }
}

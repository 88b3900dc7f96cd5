//! A ticket latch: first come, first served.
//!
//! | `next` | `serving` | state |
//! |--------|-----------|-------|
//! | n      | n         | free |
//! | n + w  | n         | held by ticket n, with w - 1 waiting |
//!
//! A thread takes a number by one fetch-add, and waits until `serving` reaches it: no thread is
//! overtaken. The disadvantage is that the next waiter may not be running: with more threads than
//! cores, every handover may take a time slice.
//!
//! Both numbers wrap; there are never 2^32 waiting threads. Source: Mellor-Crummey and Scott, TOCS
//! 1991, section 2.2.

use clearway_latch::RawLatch;
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_sync::hint;

/// First come, first served; spins.
#[derive(Debug)]
pub struct TicketLatch {
    next: AtomicU32,
    serving: AtomicU32,
}

// SAFETY: each ticket is drawn once, and called once, by its predecessor's unlock, whose Release
// the waiter's Acquire sees.
unsafe impl RawLatch for TicketLatch {
    const NAME: &'static str = "ticket";

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self { next: AtomicU32::new(0), serving: AtomicU32::new(0) };

    fn new() -> Self {
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        // Relaxed: only the number counts; `serving` provides the order.
        let mine = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire: pairs with the Release in `unlock`.
        while self.serving.load(Ordering::Acquire) != mine {
            hint::spin_loop();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let serving = self.serving.load(Ordering::Acquire);
        // Acquire above: pairs with the Release in `unlock`, so a thread that sees this number
        // called sees the previous holder's changes. The exchange then proves that no other thread
        // has drawn it.
        self.next
            .compare_exchange(
                serving,
                serving.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Relaxed: only the holder writes it.
        let mine = self.serving.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `lock` and `try_lock`.
        self.serving.store(mine.wrapping_add(1), Ordering::Release);
    }
}

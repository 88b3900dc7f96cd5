//! A latch that only spins: an acquisition in a loop.
//!
//! | word | state | who changes it |
//! |------|-------|----------------|
//! | 0    | free  | the acquisition, to 1 |
//! | 1    | held  | the holder, to 0, with release |
//!
//! It is fast while there are fewer threads than cores. It collapses beyond that, when the holder
//! may not be running while others spin. Waiters have no order, and may be overtaken any number of
//! times.

use crate::acquire::{Acquisition, FREE};
use crate::raw::RawLatch;
use clearway_sync::atomic::{AtomicU32, Ordering};
use std::marker::PhantomData;

/// Spins until the acquisition succeeds.
#[derive(Debug)]
pub struct SpinLatch<A> {
    word: AtomicU32,
    by: PhantomData<A>,
}

impl<A: Acquisition> SpinLatch<A> {
    /// Waits a moment for the word to change.
    #[inline]
    pub fn pause(&self) {
        A::pause(&self.word);
    }
}

// SAFETY: only an acquisition changes the word from free to held, with acquire ordering. Only the
// holder changes it back, with release ordering.
unsafe impl<A: Acquisition> RawLatch for SpinLatch<A> {
    const NAME: &'static str = A::NAME;

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self { word: AtomicU32::new(FREE), by: PhantomData };

    fn new() -> Self {
        Self { word: AtomicU32::new(FREE), by: PhantomData }
    }

    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            self.pause();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        A::try_acquire(&self.word)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release: pairs with the Acquire in `try_acquire`.
        self.word.store(FREE, Ordering::Release);
    }
}

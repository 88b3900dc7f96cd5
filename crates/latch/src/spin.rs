//! A latch that only spins: an acquisition in a loop.
//!
//! | word | state | who changes it |
//! |------|-------|----------------|
//! | 0    | free  | the acquisition, to 1 |
//! | 1    | held  | the holder, to 0, with release |
//!
//! Fast while there are fewer threads than cores; collapses beyond, where the holder may not be
//! running while others spin. No order among waiters, no bound on how often one is passed over.

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

// SAFETY: the word goes from free to held by an acquisition only, which acquires, and back by the
// holder only, who releases.
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
        self.word.store(FREE, Ordering::Release);
    }
}

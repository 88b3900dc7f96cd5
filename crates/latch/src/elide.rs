//! Hardware lock elision: a critical section as a memory transaction (Intel RTM), with a spinning latch to fall back on.
//!
//! | word | in a transaction | state |
//! |------|------------------|-------|
//! | 0    | no               | free |
//! | 0    | yes, any number of threads | elided: each runs its section on trial; a conflict, or anyone's taking the word, aborts it |
//! | 1    | no               | held, as a spinning latch |
//!
//! A transaction reads the word, so that whoever takes it aborts all trials. After [`TRIALS`] aborts, or where the processor has no RTM, the
//! word is taken. Many processors that had RTM have it switched off by microcode: [`available`] asks the processor.
//!
//! Sections that make system calls always abort; so do those that touch more lines than the first-level cache holds. An abort returns to
//! `lock` with nothing of the section done.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 16; Rajwar and Goodman, MICRO 2001.

use crate::acquire::{Acquisition, Compare, FREE, Tested};
use crate::raw::RawLatch;
use clearway_sync::atomic::{AtomicU32, Ordering};

/// Aborted transactions before the word is taken.
pub const TRIALS: u32 = 3;

/// Runs sections as transactions where the processor can, else spins.
#[derive(Debug)]
pub struct ElidedLatch {
    word: AtomicU32,
}

/// Whether this processor runs transactions.
pub fn available() -> bool {
    rtm::available()
}

// SAFETY: a transaction that commits had the word free throughout and met no other access to what it used; else the word is taken
// by an acquisition and let go by its holder, with release. In a transaction the word is free, outside one its holder sees it held: that is how
// `unlock` tells.
unsafe impl RawLatch for ElidedLatch {
    const NAME: &'static str = "elided";

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self { word: AtomicU32::new(FREE) };

    fn new() -> Self {
        Self { word: AtomicU32::new(FREE) }
    }

    fn lock(&self) {
        if rtm::available() {
            for _ in 0..TRIALS {
                if rtm::begin() {
                    if self.word.load(Ordering::Relaxed) == FREE {
                        return;
                    }
                    rtm::abort();
                }
                while self.word.load(Ordering::Relaxed) != FREE {
                    clearway_sync::hint::spin_loop();
                }
            }
        }
        while !Tested::<Compare>::try_acquire(&self.word) {
            clearway_sync::hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        Tested::<Compare>::try_acquire(&self.word)
    }

    unsafe fn unlock(&self) {
        if self.word.load(Ordering::Relaxed) == FREE {
            rtm::end();
        } else {
            self.word.store(FREE, Ordering::Release);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
mod rtm {
    use std::arch::{asm, is_x86_feature_detected};

    pub(super) fn available() -> bool {
        is_x86_feature_detected!("rtm")
    }

    /// True in the transaction; false after its abort.
    #[inline]
    pub(super) fn begin() -> bool {
        let mut status = u32::MAX;
        // SAFETY: called only where `available`. On an abort the processor restores the registers, puts its reason into eax and goes on at
        // the label; memory is as it was.
        unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        status == u32::MAX
    }

    #[inline]
    pub(super) fn abort() {
        // SAFETY: called only in a transaction; control goes on in `begin`.
        unsafe { asm!("xabort 1", options(nostack)) };
    }

    #[inline]
    pub(super) fn end() {
        // SAFETY: called only in a transaction: see `unlock`.
        unsafe { asm!("xend", options(nostack)) };
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
mod rtm {
    pub(super) fn available() -> bool {
        false
    }
    pub(super) fn begin() -> bool {
        false
    }
    pub(super) fn abort() {}
    pub(super) fn end() {}
}

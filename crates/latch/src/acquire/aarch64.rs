//! Acquisitions with exactly the instructions that the source compares. `cargo xtask chips` runs
//! them, and reads the disassembly.

use super::{Acquisition, FREE, HELD, Named};
use clearway_sync::atomic::AtomicU32;
use std::arch::{asm, is_aarch64_feature_detected};

/// Test-and-set as gcc's `__sync_lock_test_and_set` compiles it without LSE: it always stores, and
/// ends with a full barrier.
#[derive(Debug)]
pub struct Swap;

// SAFETY: the exclusive pair swaps in one step. `dmb ish` orders everything after it behind the
// load, which is stronger than acquire.
unsafe impl Acquisition for Swap {
    const NAME: &'static str = "tas";

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        let old: u32;
        // SAFETY: the pointer comes from an atomic, so it is valid and aligned. The instructions
        // access only those four bytes, atomically.
        unsafe {
            asm!(
                "2:",
                "ldxr {old:w}, [{word}]",
                "stxr {failed:w}, {held:w}, [{word}]",
                "cbnz {failed:w}, 2b",
                "dmb ish",
                word = in(reg) word.as_ptr(),
                held = in(reg) HELD,
                old = out(reg) old,
                failed = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
        old == FREE
    }
}

impl Named for Swap {
    const TESTED: &'static str = "ttas";
}

/// The source's fix: acquire and release exclusives, no barrier, and no store while the word is
/// held.
#[derive(Debug)]
pub struct Compare;

// SAFETY: the store succeeds only if no other store has happened since the load, which saw `FREE`;
// `ldaxr` acquires.
unsafe impl Acquisition for Compare {
    const NAME: &'static str = "cas";

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        let old: u32;
        // SAFETY: the pointer comes from an atomic, so it is valid and aligned. The instructions
        // access only those four bytes, atomically.
        unsafe {
            asm!(
                "2:",
                "ldaxr {old:w}, [{word}]",
                "cmp {old:w}, #0",
                "b.ne 3f",
                "stlxr {failed:w}, {held:w}, [{word}]",
                "cbnz {failed:w}, 2b",
                "3:",
                word = in(reg) word.as_ptr(),
                held = in(reg) HELD,
                old = out(reg) old,
                failed = out(reg) _,
                options(nostack),
            );
        }
        old == FREE
    }
}

impl Named for Compare {
    const TESTED: &'static str = "test-cas";
}

/// [`Compare`], waiting with `wfe`: the load's reservation makes the holder's store an event that
/// ends the wait.
#[derive(Debug)]
pub struct CompareWfe;

// SAFETY: as `Compare`; waiting changes nothing.
unsafe impl Acquisition for CompareWfe {
    const NAME: &'static str = "cas-wfe";

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        Compare::try_acquire(word)
    }

    #[inline]
    fn pause(word: &AtomicU32) {
        // SAFETY: reads the four bytes of an atomic. `wfe` may return at any time, and at the
        // latest at the next timer interrupt.
        unsafe {
            asm!(
                "ldxr {old:w}, [{word}]",
                "cbz {old:w}, 2f",
                "wfe",
                "2:",
                word = in(reg) word.as_ptr(),
                old = out(reg) _,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

/// LSE's swap: one instruction, executed in the cache that has the line, or far from the core.
#[derive(Debug)]
pub struct LseSwap;

// SAFETY: `swpa` is an atomic swap with acquire ordering.
unsafe impl Acquisition for LseSwap {
    const NAME: &'static str = "lse-swp";

    fn available() -> bool {
        is_aarch64_feature_detected!("lse")
    }

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        let old: u32;
        // SAFETY: the pointer comes from an atomic, so it is valid and aligned; the caller has
        // checked `available`.
        unsafe {
            asm!(
                ".arch_extension lse",
                "swpa {held:w}, {old:w}, [{word}]",
                word = in(reg) word.as_ptr(),
                held = in(reg) HELD,
                old = out(reg) old,
                options(nostack, preserves_flags),
            );
        }
        old == FREE
    }
}

impl Named for LseSwap {
    const TESTED: &'static str = "test-lse-swp";
}

/// LSE's compare-and-swap.
#[derive(Debug)]
pub struct LseCompare;

// SAFETY: `casa` is an atomic exchange of `FREE` for `HELD`, with acquire ordering.
unsafe impl Acquisition for LseCompare {
    const NAME: &'static str = "lse-cas";

    fn available() -> bool {
        is_aarch64_feature_detected!("lse")
    }

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        let mut old = FREE;
        // SAFETY: the pointer comes from an atomic, so it is valid and aligned; the caller has
        // checked `available`.
        unsafe {
            asm!(
                ".arch_extension lse",
                "casa {old:w}, {held:w}, [{word}]",
                word = in(reg) word.as_ptr(),
                held = in(reg) HELD,
                old = inout(reg) old,
                options(nostack, preserves_flags),
            );
        }
        old == FREE
    }
}

impl Named for LseCompare {
    const TESTED: &'static str = "test-lse-cas";
}

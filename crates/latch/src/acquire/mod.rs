//! The instructions by which a latch's word is taken, one type each: what the source compares.
//!
//! | name            | x86-64                  | aarch64                                   | stores while held |
//! |-----------------|-------------------------|-------------------------------------------|-------------------|
//! | `Swap`        | `xchg`                  | `ldxr`, `stxr`, `dmb ish` (the slow one)  | yes |
//! | `Compare`     | `lock cmpxchg`          | `ldaxr`, compare, `stlxr`                 | no (aarch64), the line is taken exclusively (x86-64) |
//! | `LseSwap`     | -                       | `swpa`                                    | yes |
//! | `LseCompare`  | -                       | `casa`                                    | no |
//! | `Tested<A>`   | a load, then `A`        | a load, then `A`                          | no |
//! | `CompareWfe`  | -                       | as `Compare`; waits by `wfe` on the word  | no |
//!
//! Which is best depends on the chip, not on its architecture's name (the source found LSE a loss
//! where others gain), so that it is measured: see [`crate::calibrate`]. Under loom, shuttle and
//! Miri all of them are the portable atomics that they stand for.
//!
//! Source: Greenplum pull request 12848; PostgreSQL's `s_lock.h`; Arm Architecture Reference
//! Manual, B2.9.

#[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
mod aarch64;
#[cfg(not(all(target_arch = "aarch64", not(any(loom, shuttle, miri)))))]
mod portable;

#[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
pub use aarch64::{Compare, CompareWfe, LseCompare, LseSwap, Swap};
#[cfg(not(all(target_arch = "aarch64", not(any(loom, shuttle, miri)))))]
pub use portable::{Compare, Swap};

use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_sync::hint;
use std::marker::PhantomData;

/// The word of a free latch.
pub const FREE: u32 = 0;
/// The word of a held one.
pub const HELD: u32 = 1;

/// A way to take a word from [`FREE`] to [`HELD`].
///
/// # Safety
/// `try_acquire` returns true only if it has changed the word from [`FREE`] to [`HELD`], in one
/// step and with acquire ordering; it does not change the word otherwise, but may write [`HELD`]
/// over [`HELD`].
pub unsafe trait Acquisition: Send + Sync + 'static {
    /// What the lab and the calibration call it.
    const NAME: &'static str;

    /// Whether this machine's processor has the instructions.
    fn available() -> bool {
        true
    }

    /// Tries once.
    fn try_acquire(word: &AtomicU32) -> bool;

    /// Passes a moment of waiting for the word to change.
    #[inline]
    fn pause(_word: &AtomicU32) {
        hint::spin_loop();
    }
}

/// Looks before it tries: no store, and no exclusive claim to the cache line, while the word is
/// held.
#[derive(Debug)]
pub struct Tested<A>(PhantomData<A>);

// SAFETY: it is `A`, left out where it would fail.
unsafe impl<A: Named> Acquisition for Tested<A> {
    const NAME: &'static str = A::TESTED;

    fn available() -> bool {
        A::available()
    }

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        // Relaxed: a guess; what counts is ordered by `A`.
        word.load(Ordering::Relaxed) == FREE && A::try_acquire(word)
    }

    #[inline]
    fn pause(word: &AtomicU32) {
        A::pause(word);
    }
}

/// An acquisition that has a name in its tested form.
pub trait Named: Acquisition {
    /// The name of [`Tested`] of it.
    const TESTED: &'static str;
}

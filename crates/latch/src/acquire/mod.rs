//! The instructions that acquire a latch's word, one type each: the variants that the source
//! compares.
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
//! The best one depends on the chip, not on its architecture's name: the source found LSE slower on
//! one chip and faster on others. It is therefore measured: see [`crate::calibrate`]. Under loom,
//! shuttle and Miri, `Swap` and `Compare` are portable atomics, and there is no LSE and no `wfe`.
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
/// The word of a held latch.
pub const HELD: u32 = 1;

/// A way to change a word from [`FREE`] to [`HELD`].
///
/// # Safety
/// `try_acquire` returns true only if it has changed the word from [`FREE`] to [`HELD`], in one
/// step and with acquire ordering. Otherwise it does not change the word, but may write [`HELD`]
/// over [`HELD`].
pub unsafe trait Acquisition: Send + Sync + 'static {
    /// The name for the lab and the calibration.
    const NAME: &'static str;

    /// Returns true if this machine's processor has the instructions.
    fn available() -> bool {
        true
    }

    /// Tries once.
    fn try_acquire(word: &AtomicU32) -> bool;

    /// Pauses briefly while waiting for the word to change.
    #[inline]
    fn pause(_word: &AtomicU32) {
        hint::spin_loop();
    }
}

/// Reads the word before it tries: no store, and no exclusive claim to the cache line, while the
/// word is held.
#[derive(Debug)]
pub struct Tested<A>(PhantomData<A>);

// SAFETY: it is `A`, skipped where it would fail.
unsafe impl<A: Named> Acquisition for Tested<A> {
    const NAME: &'static str = A::TESTED;

    fn available() -> bool {
        A::available()
    }

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        // Relaxed: a hint; `A` provides the ordering.
        word.load(Ordering::Relaxed) == FREE && A::try_acquire(word)
    }

    #[inline]
    fn pause(word: &AtomicU32) {
        A::pause(word);
    }
}

/// An acquisition whose tested form has a name.
pub trait Named: Acquisition {
    /// The name of [`Tested`] with this acquisition.
    const TESTED: &'static str;
}

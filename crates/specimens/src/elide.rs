//! Hardware lock elision: a critical section as a memory transaction (Intel RTM), with a spinning
//! latch to fall back on.
//!
//! | word | in a transaction | state |
//! |------|------------------|-------|
//! | 0    | no               | free |
//! | 0    | yes, any number of threads | elided: each runs its section on trial; a conflict, or anyone's taking the word, aborts it |
//! | 1    | no               | held, as a spinning latch |
//!
//! Invariants
//! 1. A transaction reads the word, so that whoever takes it aborts all trials.
//! 2. No acquisition succeeds inside a transaction: the word does not show that its own thread has
//!    the latch elided. It aborts the transaction instead, and whoever began it takes the word,
//!    which shows it.
//!
//! After [`TRIALS`] aborts, or where the processor has no RTM, the word is taken. Many processors
//! that had RTM have it switched off by microcode: [`available`] asks the processor.
//!
//! Sections that make system calls always abort; so do those that touch more lines than the
//! first-level cache holds. An abort returns to `lock` with nothing of the section done.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 16;
//! Rajwar and Goodman, MICRO 2001.

use clearway_latch::RawLatch;
use clearway_latch::acquire::{Acquisition, Compare, FREE, Tested};
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_sync::hint;
use std::marker::PhantomData;

/// Aborted transactions before the word is taken.
pub const TRIALS: u32 = 3;

/// What a transaction that found the word taken gives as its reason.
const WORD_TAKEN: u8 = 1;
/// What a transaction gives that asked for a latch: it would ask again.
const NESTED: u8 = 2;

/// Runs sections as transactions where the processor can, else spins.
#[derive(Debug)]
pub struct ElidedLatch<H = Rtm> {
    word: AtomicU32,
    by: PhantomData<H>,
}

/// Whether this processor runs transactions.
pub fn available() -> bool {
    Rtm::available()
}

/// Memory transactions of a thread. Tests have some that need no processor with RTM.
///
/// # Safety
/// What a thread does between a `begin` that returned `Ok` and its `end` takes effect at once for
/// all others, or not at all: then the thread goes on where `begin` returns, now with `Err`. Nobody
/// else writes meanwhile what it has read.
pub unsafe trait Transactions: Send + Sync + 'static {
    /// Whether there are any. The others are called only then.
    fn available() -> bool;

    /// `Ok` in the transaction; after its abort the reason that [`Self::abort`] was given, or 0.
    fn begin() -> Result<(), u8>;

    /// Whether the calling thread is in a transaction, whoever began it.
    fn is_active() -> bool;

    /// Undoes the transaction that the calling thread is in.
    fn abort<const REASON: u8>() -> !;

    /// Ends the transaction that the calling thread is in: all of it takes effect.
    fn end();
}

impl<H: Transactions> ElidedLatch<H> {
    /// Invariant 2.
    #[inline]
    fn leave_transaction() {
        if H::available() && H::is_active() {
            H::abort::<NESTED>();
        }
    }
}

// SAFETY: a transaction that commits had the word free throughout and met no other access to what
// it used; else the word is taken by an acquisition and let go by its holder, with release. No
// acquisition of the same thread returns in between: in a transaction it aborts (invariant 2), so
// that neither `lock` nor `try_lock` makes a second guard beside that of an elided section; outside
// one the word is taken. In a transaction the word is free, outside one its holder sees it held:
// that is how `unlock` tells.
unsafe impl<H: Transactions> RawLatch for ElidedLatch<H> {
    const NAME: &'static str = "elided";

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self { word: AtomicU32::new(FREE), by: PhantomData };

    fn new() -> Self {
        Self { word: AtomicU32::new(FREE), by: PhantomData }
    }

    fn lock(&self) {
        Self::leave_transaction();
        if H::available() {
            for _ in 0..TRIALS {
                match H::begin() {
                    Ok(()) if self.word.load(Ordering::Relaxed) == FREE => return,
                    Ok(()) => H::abort::<WORD_TAKEN>(),
                    Err(NESTED) => break,
                    Err(_) => {
                        while self.word.load(Ordering::Relaxed) != FREE {
                            hint::spin_loop();
                        }
                    }
                }
            }
        }
        while !Tested::<Compare>::try_acquire(&self.word) {
            hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        Self::leave_transaction();
        Tested::<Compare>::try_acquire(&self.word)
    }

    unsafe fn unlock(&self) {
        if self.word.load(Ordering::Relaxed) == FREE {
            H::end();
        } else {
            // Release: pairs with the Acquire in `try_acquire`.
            self.word.store(FREE, Ordering::Release);
        }
    }
}

/// Intel's transactions.
#[derive(Debug)]
pub struct Rtm;

// SAFETY: the processor's promise (volume 1, chapter 16 of its manual).
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
unsafe impl Transactions for Rtm {
    fn available() -> bool {
        std::arch::is_x86_feature_detected!("rtm")
    }

    #[inline]
    fn begin() -> Result<(), u8> {
        let mut status = u32::MAX;
        // SAFETY: called only where `available`. On an abort the processor restores the registers,
        // puts its reason into eax and goes on at the label; memory is as it was.
        unsafe { std::arch::asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        match status {
            u32::MAX => Ok(()),
            // The lowest bit says that the reason, in the highest byte, was given by `abort`.
            _ if status & 1 != 0 => Err((status >> 24) as u8),
            _ => Err(0),
        }
    }

    #[inline]
    fn is_active() -> bool {
        let active: u8;
        // SAFETY: called only where `available`. It changes the flags and nothing else.
        unsafe {
            std::arch::asm!("xtest", "setnz {}", out(reg_byte) active, options(nomem, nostack))
        };
        active != 0
    }

    #[inline]
    fn abort<const REASON: u8>() -> ! {
        // SAFETY: in a transaction control goes on in `begin`; outside one, where `xabort` does
        // nothing, `ud2` ends the process.
        unsafe { std::arch::asm!("xabort {}", "ud2", const REASON, options(noreturn, nostack)) };
    }

    #[inline]
    fn end() {
        // SAFETY: called only in a transaction: see `unlock`.
        unsafe { std::arch::asm!("xend", options(nostack)) };
    }
}

// SAFETY: there are none.
#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
unsafe impl Transactions for Rtm {
    fn available() -> bool {
        false
    }

    fn begin() -> Result<(), u8> {
        Err(0)
    }

    fn is_active() -> bool {
        false
    }

    fn abort<const REASON: u8>() -> ! {
        unreachable!("no transaction to abort, for {REASON}")
    }

    fn end() {}
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use clearway_latch::Latched;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    std::thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
        /// Why the transaction was aborted that [`on_trial`] begins again.
        static ABORTED: Cell<Option<u8>> = const { Cell::new(None) };
        static COMMITTED: Cell<u32> = const { Cell::new(0) };
    }

    /// Transactions of one thread: an abort unwinds to [`on_trial`], which plays the processor and
    /// goes on with `begin`.
    struct Played;

    struct Undone;

    // SAFETY: there is one thread, and up to its aborts a section of these tests writes nothing but
    // the latch's word.
    unsafe impl Transactions for Played {
        fn available() -> bool {
            true
        }

        fn begin() -> Result<(), u8> {
            if let Some(reason) = ABORTED.take() {
                return Err(reason);
            }
            DEPTH.set(DEPTH.get() + 1);
            Ok(())
        }

        fn is_active() -> bool {
            DEPTH.get() > 0
        }

        fn abort<const REASON: u8>() -> ! {
            assert!(Self::is_active(), "ud2");
            DEPTH.set(0);
            ABORTED.set(Some(REASON));
            resume_unwind(Box::new(Undone));
        }

        fn end() {
            // While it unwinds from an abort, guards are dropped that no longer are.
            if ABORTED.get().is_none() {
                DEPTH.set(DEPTH.get() - 1);
                COMMITTED.set(COMMITTED.get() + u32::from(DEPTH.get() == 0));
            }
        }
    }

    /// Runs a section from its `lock` on, again after each abort; how often it ran.
    fn on_trial(section: impl Fn()) -> u32 {
        for runs in 1.. {
            match catch_unwind(AssertUnwindSafe(&section)) {
                Ok(()) => return runs,
                Err(undone) if undone.is::<Undone>() => {}
                Err(panic) => resume_unwind(panic),
            }
        }
        unreachable!("a section that aborts for ever");
    }

    type Elided<T> = Latched<T, ElidedLatch<Played>>;

    #[test]
    fn a_section_without_conflicts_takes_no_word() {
        let latch = Elided::new(0);
        let runs = on_trial(|| {
            let mut held = latch.lock();
            *held += 1;
            assert!(Played::is_active());
        });
        assert_eq!((runs, COMMITTED.get(), latch.into_inner()), (1, 1, 1));
    }

    /// Invariant 2.
    #[test]
    fn the_holder_of_an_elided_latch_gets_no_second_guard() {
        let latch = Elided::new(0);
        let runs = on_trial(|| {
            let held = latch.lock();
            assert!(latch.try_lock().is_none(), "two exclusive references");
            drop(held);
        });
        assert_eq!((runs, COMMITTED.get()), (2, 0), "elided, and then with the word");
        assert!(latch.try_lock().is_some(), "it is free again");

        let twice = catch_unwind(AssertUnwindSafe(|| {
            let _held = latch.lock();
            let _again = latch.lock();
        }));
        assert!(twice.is_err_and(|undone| undone.is::<Undone>()) && ABORTED.take() == Some(NESTED));
    }

    /// Invariant 2: the inner section may be elided once the outer one has the word.
    #[test]
    fn sections_of_two_latches_nest() {
        let (outer, inner) = (Elided::new(0), Elided::new(0));
        let runs = on_trial(|| {
            let _held = outer.lock();
            *inner.lock() += 1;
            assert!(outer.try_lock().is_none(), "it is held by its word");
        });
        assert_eq!((runs, COMMITTED.get(), inner.into_inner()), (2, 1, 1));
        assert!(outer.try_lock().is_some() && !Played::is_active());
    }
}

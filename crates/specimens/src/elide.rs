//! Hardware lock elision: a critical section as a memory transaction (Intel RTM), with a spinning
//! latch to fall back on.
//!
//! | word | in a transaction | state |
//! |------|------------------|-------|
//! | 0    | no               | free |
//! | 0    | yes, any number of threads | elided: each runs its section as a transaction, which a conflict or an acquisition of the word aborts |
//! | 1    | no               | held, as a spinning latch |
//!
//! Invariants
//! 1. A transaction reads the word, so a thread that acquires the word aborts all transactions.
//! 2. No acquisition succeeds inside a transaction, because the word does not show that the thread
//!    has elided the latch. The acquisition aborts the transaction instead, and the outer `lock`
//!    acquires the word.
//!
//! After [`TRIALS`] aborts, or if the processor has no RTM, a thread acquires the word. Microcode
//! updates have disabled RTM on many processors: [`available`] asks the processor.
//!
//! Sections that make system calls always abort, and so do sections that touch more cache lines
//! than the first-level cache has. An abort undoes the whole section and returns to `lock`.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 16;
//! Rajwar and Goodman, MICRO 2001.

use clearway_latch::RawLatch;
use clearway_latch::acquire::{Acquisition, Compare, FREE, Tested};
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_sync::hint;
use std::marker::PhantomData;

/// Number of aborted transactions after which a thread acquires the word.
pub const TRIALS: u32 = 3;

/// The abort reason of a transaction that found the word held.
const WORD_TAKEN: u8 = 1;
/// The abort reason of a transaction that requested another latch. It would request it again.
const NESTED: u8 = 2;

/// Runs sections as transactions if the processor supports them; otherwise spins.
#[derive(Debug)]
pub struct ElidedLatch<H = Rtm> {
    word: AtomicU32,
    by: PhantomData<H>,
}

/// Returns true if this processor supports transactions.
pub fn available() -> bool {
    Rtm::available()
}

/// Memory transactions of a thread. Tests have an implementation that needs no RTM.
///
/// # Safety
/// All that a thread does between a `begin` that returned `Ok` and its `end` becomes visible to the
/// other threads at once, or not at all. In the second case the thread continues where `begin`
/// returns, which now returns `Err`. No other thread writes what it has read in the meantime.
pub unsafe trait Transactions: Send + Sync + 'static {
    /// Returns true if transactions are supported. Otherwise no other function is called.
    fn available() -> bool;

    /// Begins a transaction and returns `Ok`. After an abort it returns the reason passed to
    /// [`Self::abort`], or 0.
    fn begin() -> Result<(), u8>;

    /// Returns true if the calling thread is in a transaction, also one of another latch.
    fn is_active() -> bool;

    /// Aborts the calling thread's transaction.
    fn abort<const REASON: u8>() -> !;

    /// Commits the calling thread's transaction.
    fn end();
}

impl<H: Transactions> ElidedLatch<H> {
    /// Aborts the calling thread's transaction, if it is in one (invariant 2).
    #[inline]
    fn leave_transaction() {
        if H::available() && H::is_active() {
            H::abort::<NESTED>();
        }
    }
}

// SAFETY: while a transaction that commits ran, the word was free, and no other thread accessed
// what it used. Without a transaction, an acquisition sets the word, and its holder clears it with
// Release. A second acquisition by the same thread does not return: in a transaction it aborts
// (invariant 2), so neither `lock` nor `try_lock` creates a second guard beside that of an elided
// section. Outside a transaction the word is held. `unlock` distinguishes the two cases by the
// word: it is free in a transaction, and held outside one.
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

// SAFETY: the processor guarantees it (volume 1, chapter 16 of its manual).
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
unsafe impl Transactions for Rtm {
    fn available() -> bool {
        std::arch::is_x86_feature_detected!("rtm")
    }

    #[inline]
    fn begin() -> Result<(), u8> {
        let mut status = u32::MAX;
        // SAFETY: called only if `available`. On an abort the processor restores memory and
        // registers, puts the reason into eax, and continues at the label.
        unsafe { std::arch::asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        match status {
            u32::MAX => Ok(()),
            // If the lowest bit is set, the highest byte is the reason passed to `abort`.
            _ if status & 1 != 0 => Err((status >> 24) as u8),
            _ => Err(0),
        }
    }

    #[inline]
    fn is_active() -> bool {
        let active: u8;
        // SAFETY: called only if `available`. It changes only the flags.
        unsafe {
            std::arch::asm!("xtest", "setnz {}", out(reg_byte) active, options(nomem, nostack))
        };
        active != 0
    }

    #[inline]
    fn abort<const REASON: u8>() -> ! {
        // SAFETY: in a transaction, execution continues in `begin`. Outside one, `xabort` does
        // nothing, and `ud2` ends the process.
        unsafe { std::arch::asm!("xabort {}", "ud2", const REASON, options(noreturn, nostack)) };
    }

    #[inline]
    fn end() {
        // SAFETY: called only in a transaction: see `unlock`.
        unsafe { std::arch::asm!("xend", options(nostack)) };
    }
}

// SAFETY: there are no transactions.
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
        /// The abort reason of the transaction that [`run_section`] repeats.
        static ABORTED: Cell<Option<u8>> = const { Cell::new(None) };
        static COMMITTED: Cell<u32> = const { Cell::new(0) };
    }

    /// Transactions of one thread: an abort unwinds to [`run_section`], which acts as the processor
    /// and continues with `begin`.
    struct Simulated;

    struct Undone;

    // SAFETY: there is one thread, and before an abort the sections of these tests write only the
    // latch's word.
    unsafe impl Transactions for Simulated {
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
            // Unwinding from an abort drops guards of the aborted section.
            if ABORTED.get().is_none() {
                DEPTH.set(DEPTH.get() - 1);
                COMMITTED.set(COMMITTED.get() + u32::from(DEPTH.get() == 0));
            }
        }
    }

    /// Runs a section, and repeats it after each abort. Returns the number of runs.
    fn run_section(section: impl Fn()) -> u32 {
        for runs in 1.. {
            match catch_unwind(AssertUnwindSafe(&section)) {
                Ok(()) => return runs,
                Err(undone) if undone.is::<Undone>() => {}
                Err(panic) => resume_unwind(panic),
            }
        }
        unreachable!("the section aborts forever");
    }

    type Elided<T> = Latched<T, ElidedLatch<Simulated>>;

    #[test]
    fn section_without_conflicts_leaves_the_word_free() {
        let latch = Elided::new(0);
        let runs = run_section(|| {
            let mut held = latch.lock();
            *held += 1;
            assert!(Simulated::is_active());
        });
        assert_eq!((runs, COMMITTED.get(), latch.into_inner()), (1, 1, 1));
    }

    /// Invariant 2.
    #[test]
    fn holder_of_elided_latch_gets_no_second_guard() {
        let latch = Elided::new(0);
        let runs = run_section(|| {
            let held = latch.lock();
            assert!(latch.try_lock().is_none(), "two exclusive references");
            drop(held);
        });
        assert_eq!((runs, COMMITTED.get()), (2, 0), "elided, then with the word held");
        assert!(latch.try_lock().is_some(), "released");

        let twice = catch_unwind(AssertUnwindSafe(|| {
            let _held = latch.lock();
            let _again = latch.lock();
        }));
        assert!(twice.is_err_and(|undone| undone.is::<Undone>()) && ABORTED.take() == Some(NESTED));
    }

    /// Invariant 2: the inner section may be elided while the outer one holds the word.
    #[test]
    fn sections_of_two_latches_nest() {
        let (outer, inner) = (Elided::new(0), Elided::new(0));
        let runs = run_section(|| {
            let _held = outer.lock();
            *inner.lock() += 1;
            assert!(outer.try_lock().is_none(), "the word is held");
        });
        assert_eq!((runs, COMMITTED.get(), inner.into_inner()), (2, 1, 1));
        assert!(outer.try_lock().is_some() && !Simulated::is_active());
    }
}

//! The engine's latch: spins for a bounded time that adapts, then sleeps; hands over only to who has waited too long.
//!
//! | HELD | PARKED | STARVING | GRANTED | state |
//! |------|--------|----------|---------|-------|
//! | 0    | 0      | 0        | 0       | free |
//! | 1    | 0      | 0        | 0       | held, nobody sleeps, or a woken sleeper is on its way |
//! | 1    | 1      | 0        | 0       | held, somebody may sleep |
//! | 1    | 1      | 1        | 0       | held, and one of the waiters has waited longer than [`STARVATION`] |
//! | 1    | 1      | 1        | 1       | let go, but only for a waiter that has slept |
//!
//! Who lets go in the third state frees the word and wakes one sleeper, which competes with whoever comes along: that a running thread
//! takes a free latch at once is what keeps throughput when there are more threads than cores. Who lets go in the fourth hands over.
//!
//! Invariants
//! 1. If somebody sleeps, PARKED is set, or a thread that was woken and has not slept again since will set it or wake another.
//! 2. While STARVING is set, a waiter that has set it has not acquired: a grant is always taken.
//! 3. A thread that has waited [`STARVATION`] gets the latch after at most one more release for each waiter that began to starve before it.
//!
//! `patience`, the number of spins that were enough lately, is a guess that nothing depends on.
//!
//! Source: Drepper, "Futexes Are Tricky", 2011 (mutex 2); Go's `sync.Mutex` (starvation); glibc's adaptive mutex (the number of spins).

use crate::choice;
use crate::futex::Futex;
use crate::raw::RawLatch;
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_sync::hint;
use clearway_sync::time::{Duration, Instant};

const HELD: u32 = 1;
const PARKED: u32 = 2;
const STARVING: u32 = 4;
const GRANTED: u32 = 8;

/// A thread that has waited longer than this gets the latch before those that come later.
pub const STARVATION: Duration = Duration::from_millis(1);

/// The most spins before a thread sleeps, unless [`set_spin_limit`] says otherwise.
pub const DEFAULT_SPIN_LIMIT: u32 = 200;

// Plain std: a setting, no communication that a model has to see.
static SPIN_LIMIT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(DEFAULT_SPIN_LIMIT);

/// Sets, for the whole process, how often at most a thread looks at a held [`ParkLatch`] before it sleeps.
pub fn set_spin_limit(spins: u32) {
    // Relaxed, as the load: a setting.
    SPIN_LIMIT.store(spins, std::sync::atomic::Ordering::Relaxed);
}

/// How often at most a thread looks at a held [`ParkLatch`] before it sleeps.
pub fn spin_limit() -> u32 {
    SPIN_LIMIT.load(std::sync::atomic::Ordering::Relaxed)
}

/// The engine's latch: 8 bytes.
#[derive(Debug)]
pub struct ParkLatch {
    state: Futex,
    patience: AtomicU32,
}

impl ParkLatch {
    #[cold]
    fn lock_slowly(&self) {
        if !self.spin() {
            self.sleep();
        }
    }

    /// Whether the latch was had by spinning.
    fn spin(&self) -> bool {
        let patience = self.patience.load(Ordering::Relaxed);
        let limit = spin_limit().min(2 * patience + 10);
        let mut spins = 0;
        loop {
            let state = self.state.word.load(Ordering::Relaxed);
            if state & HELD == 0 {
                if self.exchange(state, state | HELD) {
                    // Relaxed: a guess; a lost update does no harm. A moving average over eight acquisitions.
                    let towards = (i64::from(spins) - i64::from(patience)) / 8;
                    self.patience.store((i64::from(patience) + towards) as u32, Ordering::Relaxed);
                    return true;
                }
                continue;
            }
            // Where somebody sleeps already, the wait is a long one.
            if state & PARKED != 0 || spins >= limit {
                if spins >= limit {
                    self.patience.store(patience - patience / 8, Ordering::Relaxed);
                }
                return false;
            }
            hint::spin_loop();
            spins += 1;
        }
    }

    fn sleep(&self) {
        let mut began: Option<Instant> = None;
        let mut starving = 0;
        loop {
            let state = self.state.word.load(Ordering::Relaxed);
            let for_us = state & GRANTED != 0 && began.is_some();
            if state & HELD == 0 || for_us {
                // PARKED: there may be others, and the wake-up that they count on may have been ours (invariant 1).
                if self.exchange(state, HELD | PARKED) {
                    return;
                }
                continue;
            }
            let asleep = state | PARKED | starving;
            // Relaxed: it tells the holder to wake somebody; nothing is handed over by it.
            if state != asleep
                && self.state.word.compare_exchange_weak(state, asleep, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            let since = *began.get_or_insert_with(Instant::now);
            self.state.wait(asleep);
            if starving == 0 && since.elapsed() >= STARVATION {
                starving = STARVING;
            }
        }
    }

    /// Acquires by changing the word.
    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the Release of the unlock that left `from`. Relaxed on failure: nothing was acquired.
        self.state.word.compare_exchange_weak(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn unlock_slowly(&self) {
        let mut state = self.state.word.load(Ordering::Relaxed);
        loop {
            let to = if state & STARVING != 0 { state | GRANTED } else { 0 };
            // Release: the next holder sees what this one did.
            match self.state.word.compare_exchange_weak(state, to, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        self.state.wake_one();
    }
}

// SAFETY: HELD goes from 0 to 1 by an exchange of one thread only; in state GRANTED it stays set and the exchange that clears
// GRANTED succeeds for one thread only. Both acquire what the holder's exchange released.
unsafe impl RawLatch for ParkLatch {
    const NAME: &'static str = "park";

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self { state: Futex::new(0), patience: AtomicU32::new(0) };

    fn new() -> Self {
        Self { state: Futex::new(0), patience: AtomicU32::new(0) }
    }

    #[inline]
    fn lock(&self) {
        if !choice::try_acquire(&self.state.word) {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        choice::try_acquire(&self.state.word)
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.state.word.compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_slowly();
        }
    }
}

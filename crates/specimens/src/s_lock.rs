//! PostgreSQL's `s_lock`: spins an adaptive number of times, then sleeps, longer and longer.
//!
//! The word and its states are those of [`SpinLatch`]; only the waiting differs.
//!
//! The number of spins before a sleep lies between 10 and 1000 and starts at 100. It grows by 100
//! whenever a latch was acquired without sleeping, and shrinks by 1 otherwise. PostgreSQL keeps it
//! per process, this code per thread. Sleeps begin at 1 ms, grow by a random factor between 1 and
//! 2, and start over beyond 1 s. This is for comparison only: a waiter of the engine's latch sleeps
//! until it is woken.
//!
//! Source: PostgreSQL 17, `src/backend/storage/lmgr/s_lock.c`.

use clearway_latch::RawLatch;
use clearway_latch::SpinLatch;
use clearway_latch::acquire::{Acquisition, Compare, Swap, Tested};
use std::cell::Cell;

const MIN_SPINS: u32 = 10;
const MAX_SPINS: u32 = 1000;
const FIRST_SPINS: u32 = 100;
const MIN_DELAY_US: u64 = 1_000;
const MAX_DELAY_US: u64 = 1_000_000;

thread_local! {
    static SPINS_PER_DELAY: Cell<u32> = const { Cell::new(FIRST_SPINS) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// PostgreSQL's spin lock over an acquisition.
#[derive(Debug)]
pub struct SLock<A>(SpinLatch<A>);

/// As on x86-64: `TAS_SPIN` reads before it swaps.
pub type SLockTas = SLock<Tested<Swap>>;
/// As on aarch64 after Greenplum's change.
pub type SLockCas = SLock<Compare>;

/// An acquisition that `s_lock` is measured with.
pub trait InSLock: Acquisition {
    /// The name of the latch.
    const S_LOCK: &'static str;
}
impl InSLock for Tested<Swap> {
    const S_LOCK: &'static str = "s_lock(tas)";
}
impl InSLock for Compare {
    const S_LOCK: &'static str = "s_lock(cas)";
}

impl<A: Acquisition> SLock<A> {
    #[cold]
    fn lock_slowly(&self) {
        let allowed = SPINS_PER_DELAY.get();
        let (mut spins, mut delay) = (0, 0);
        while !self.0.try_lock() {
            self.0.pause();
            spins += 1;
            if spins >= allowed {
                delay = next_delay(delay);
                sleep_us(delay);
                spins = 0;
            }
        }
        SPINS_PER_DELAY.set(if delay == 0 {
            (allowed + 100).min(MAX_SPINS)
        } else {
            allowed.saturating_sub(1).max(MIN_SPINS)
        });
    }
}

/// Returns the next delay in microseconds: 1 ms at first, then up to twice the last one, and 1 ms
/// again beyond the maximum.
fn next_delay(last: u64) -> u64 {
    if last == 0 {
        return MIN_DELAY_US;
    }
    // A linear congruential generator; its seed is the address of the thread's own cell.
    let state = RANDOM.get();
    let state =
        if state == 0 { RANDOM.with(|cell| (&raw const *cell).addr() as u64) } else { state };
    let state =
        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    RANDOM.set(state);
    let delay = last + last * (state >> 40) / (1 << 24);
    if delay > MAX_DELAY_US { MIN_DELAY_US } else { delay }
}

#[cfg(not(any(loom, shuttle)))]
fn sleep_us(us: u64) {
    // No thread unparks it for this; an unrelated unpark only shortens the delay.
    std::thread::park_timeout(std::time::Duration::from_micros(us));
}
#[cfg(any(loom, shuttle))]
fn sleep_us(_: u64) {
    clearway_sync::thread::yield_now();
}

// SAFETY: everything but the waiting is `SpinLatch`'s.
unsafe impl<A: InSLock> RawLatch for SLock<A> {
    const NAME: &'static str = A::S_LOCK;

    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self = Self(SpinLatch::NEW);

    fn new() -> Self {
        Self(SpinLatch::new())
    }

    #[inline]
    fn lock(&self) {
        if !self.0.try_lock() {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the latch, as this function requires.
        unsafe { self.0.unlock() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_by_up_to_twice_and_start_over() {
        let mut delay = next_delay(0);
        assert_eq!(delay, MIN_DELAY_US);
        for _ in 0..1000 {
            let next = next_delay(delay);
            assert!(
                next == MIN_DELAY_US || (delay..=2 * delay).contains(&next),
                "{delay} then {next}"
            );
            assert!(next <= MAX_DELAY_US);
            delay = next;
        }
    }
}

//! Acquisitions with the standard atomics. On x86-64 they compile to `xchg` and `lock cmpxchg`,
//! which `cargo xtask chips` verifies.

use super::{Acquisition, FREE, HELD, Named};
use clearway_sync::atomic::{AtomicU32, Ordering};

/// Test-and-set: swaps [`HELD`] in and checks the previous value.
#[derive(Debug)]
pub struct Swap;

// SAFETY: an atomic swap with acquire ordering; over `HELD` it writes only `HELD`.
unsafe impl Acquisition for Swap {
    const NAME: &'static str = "tas";

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        // Acquire: pairs with the Release store of `FREE` by the holder.
        word.swap(HELD, Ordering::Acquire) == FREE
    }
}

impl Named for Swap {
    const TESTED: &'static str = "ttas";
}

/// Compare-and-swap.
#[derive(Debug)]
pub struct Compare;

// SAFETY: an atomic exchange of `FREE` for `HELD`, with acquire ordering.
unsafe impl Acquisition for Compare {
    const NAME: &'static str = "cas";

    #[inline]
    fn try_acquire(word: &AtomicU32) -> bool {
        // Acquire: pairs with the holder's Release. Relaxed on failure: nothing was acquired.
        word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Named for Compare {
    const TESTED: &'static str = "test-cas";
}

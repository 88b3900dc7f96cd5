//! The instructions with which the engine's latch acquires its word: a setting of the process, see
//! [`crate::calibrate`].

use crate::acquire::{Acquisition, Compare, Tested};
// Plain std, also under a model checker: a setting, not communication between threads.
use std::sync::atomic::{AtomicU8, Ordering};

/// Instructions that can acquire the engine's latch: those that change only a free word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Choice {
    /// Compare-and-swap at once.
    Cas = 0,
    /// A load, then compare-and-swap.
    TestCas = 1,
    /// LSE's compare-and-swap at once.
    #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
    LseCas = 2,
    /// A load, then LSE's compare-and-swap.
    #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
    TestLseCas = 3,
}

impl Choice {
    /// Returns the choices that this processor supports.
    pub fn all() -> Vec<Self> {
        let all = [
            Self::Cas,
            Self::TestCas,
            #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
            Self::LseCas,
            #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
            Self::TestLseCas,
        ];
        all.into_iter().filter(|choice| choice.available()).collect()
    }

    /// Returns the name in configuration and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cas => Compare::NAME,
            Self::TestCas => Tested::<Compare>::NAME,
            #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
            Self::LseCas => crate::acquire::LseCompare::NAME,
            #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
            Self::TestLseCas => Tested::<crate::acquire::LseCompare>::NAME,
        }
    }

    /// Returns the choice with this name, if this processor supports it.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|choice| choice.name() == name)
    }

    fn available(self) -> bool {
        match self {
            Self::Cas | Self::TestCas => true,
            #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
            Self::LseCas | Self::TestLseCas => crate::acquire::LseCompare::available(),
        }
    }
}

static CHOSEN: AtomicU8 = AtomicU8::new(Choice::Cas as u8);

/// Makes every latch of the process use these instructions from now on.
///
/// # Panics
/// If this processor does not support them. Choices from [`Choice::all`] and [`Choice::by_name`]
/// are supported.
pub fn choose(choice: Choice) {
    assert!(choice.available(), "{} is not available", choice.name());
    // Relaxed: all choices acquire the same word in the same way.
    CHOSEN.store(choice as u8, Ordering::Relaxed);
}

/// Returns the instructions that latches use.
pub fn chosen() -> Choice {
    let now = CHOSEN.load(Ordering::Relaxed);
    Choice::all().into_iter().find(|choice| *choice as u8 == now).unwrap_or(Choice::Cas)
}

/// Changes a word from free to held with the chosen instructions.
#[inline]
pub(crate) fn try_acquire(word: &clearway_sync::atomic::AtomicU32) -> bool {
    match CHOSEN.load(Ordering::Relaxed) {
        0 => Compare::try_acquire(word),
        #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
        2 => crate::acquire::LseCompare::try_acquire(word),
        #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
        3 => Tested::<crate::acquire::LseCompare>::try_acquire(word),
        _ => Tested::<Compare>::try_acquire(word),
    }
}

//! By which instructions the engine's latch takes its word: a setting of the process, see
//! [`crate::calibrate`].

use crate::acquire::{Acquisition, Compare, Tested};
// Plain std, also under a model checker: a setting, no communication.
use std::sync::atomic::{AtomicU8, Ordering};

/// Instructions that the engine's latch can be taken by: those that change a free word only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Choice {
    /// Compare-and-swap at once.
    Cas = 0,
    /// A look, then compare-and-swap.
    TestCas = 1,
    /// LSE's compare-and-swap at once.
    #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
    LseCas = 2,
    /// A look, then LSE's compare-and-swap.
    #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
    TestLseCas = 3,
}

impl Choice {
    /// Those that this processor has.
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

    /// The name in configuration and reports.
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

    /// The one of this name, if this processor has it.
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

/// Has every latch of the process taken by these instructions from now on.
///
/// # Panics
/// If this processor does not have them: they come from [`Choice::all`] or [`Choice::by_name`].
pub fn choose(choice: Choice) {
    assert!(choice.available(), "{} is not available", choice.name());
    // Relaxed: all of them take the same word in the same way.
    CHOSEN.store(choice as u8, Ordering::Relaxed);
}

/// By which instructions latches are taken.
pub fn chosen() -> Choice {
    let now = CHOSEN.load(Ordering::Relaxed);
    Choice::all().into_iter().find(|choice| *choice as u8 == now).unwrap_or(Choice::Cas)
}

/// Takes a word from free to held by the chosen instructions.
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

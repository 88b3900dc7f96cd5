//! Each acquisition in its own function, so that its instructions can be read in the disassembly:
//! `cargo xtask chips`.
//!
//! When run, it acquires and releases a word with each acquisition that the processor supports, and
//! prints their names.

use clearway_latch::acquire::{Acquisition, Compare, FREE, HELD, Swap, Tested};
use std::sync::atomic::{AtomicU32, Ordering};

macro_rules! function {
    ($name:ident, $acquisition:ty) => {
        // SAFETY: no other symbol of this program begins with `acquire_`.
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $name(word: &AtomicU32) -> bool {
            <$acquisition>::try_acquire(word)
        }
    };
}

function!(acquire_tas, Swap);
function!(acquire_ttas, Tested<Swap>);
function!(acquire_cas, Compare);
function!(acquire_test_cas, Tested<Compare>);

#[cfg(target_arch = "aarch64")]
mod here {
    use super::{Acquisition, AtomicU32};
    use clearway_latch::acquire::{CompareWfe, LseCompare, LseSwap};

    function!(acquire_lse_swp, LseSwap);
    function!(acquire_lse_cas, LseCompare);

    pub fn all() -> Vec<(&'static str, bool, extern "C" fn(&AtomicU32) -> bool)> {
        vec![
            (LseSwap::NAME, LseSwap::available(), acquire_lse_swp),
            (LseCompare::NAME, LseCompare::available(), acquire_lse_cas),
            (CompareWfe::NAME, true, super::acquire_cas),
        ]
    }
}

#[cfg(not(target_arch = "aarch64"))]
mod here {
    use super::AtomicU32;

    pub fn all() -> Vec<(&'static str, bool, extern "C" fn(&AtomicU32) -> bool)> {
        Vec::new()
    }
}

fn main() {
    let mut all: Vec<(&str, bool, extern "C" fn(&AtomicU32) -> bool)> = vec![
        (Swap::NAME, true, acquire_tas),
        (<Tested<Swap>>::NAME, true, acquire_ttas),
        (Compare::NAME, true, acquire_cas),
        (<Tested<Compare>>::NAME, true, acquire_test_cas),
    ];
    all.extend(here::all());
    for (name, available, acquire) in all {
        if !available {
            println!("{name}: not on this processor");
            continue;
        }
        let word = AtomicU32::new(FREE);
        assert!(acquire(&word), "{name}: a free word is taken");
        assert!(!acquire(&word), "{name}: a held word is not");
        assert_eq!(word.swap(FREE, Ordering::Relaxed), HELD);
        println!("{name}: ok");
    }
}

//! Random choices of one seed.

use clearway_env::split_mix;
use clearway_testkit::Rng as Generator;
use clearway_types::hash::{FNV1A_EMPTY, fnv1a};
use std::ops::RangeInclusive;

/// A sequence of choices; the same for the same seed.
pub struct Rng(Generator);

impl Rng {
    /// Creates the sequence named `purpose` of the seed. It is independent of the seed's other
    /// sequences, so that one more draw in one does not change the others.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let named = fnv1a(FNV1A_EMPTY, purpose.as_bytes());
        Self(Generator::new(seed.wrapping_mul(split_mix::GAMMA) ^ named))
    }

    /// Draws any number.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws a number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Draws a number from the range.
    pub fn within(&mut self, range: RangeInclusive<i32>) -> i32 {
        range.start() + self.below((range.end() - range.start() + 1) as u64) as i32
    }

    /// Returns true in `percent` of 100 draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Draws one of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_the_same_numbers_in_every_release() {
        assert_eq!(Rng::new(1, "pool").u64(), 0xc594_96bd_48af_017b);
    }
}

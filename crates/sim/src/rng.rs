//! Random choices of one seed.

use clearway_testkit::Rng as Generator;
use std::ops::RangeInclusive;

/// A sequence of choices; the same for the same seed.
pub struct Rng(Generator);

impl Rng {
    /// Creates the sequence named `purpose` of the seed. It is independent of the seed's other
    /// sequences, so that one more draw in one does not change the others.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let named = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        Self(Generator::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ named))
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

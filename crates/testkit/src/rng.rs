//! Seeded random numbers: equal seeds give equal numbers, so a failed test can be repeated.

use std::hash::{BuildHasher, RandomState};

use clearway_env::split_mix;

/// A generator of random numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a seed that differs from run to run, from the keys of the standard library's hasher.
    pub fn fresh_seed() -> u64 {
        RandomState::new().hash_one(0_u64)
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(split_mix::GAMMA);
        split_mix::mix(self.0)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        split_mix::scale(self.next_u64(), bound)
    }

    /// Returns a number in `low ..= high`, which must not be the whole range of `u64`.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true with a probability of `chance` in 1000.
    pub const fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// Returns a number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_env::{Entropy, SeededEntropy};

    #[test]
    fn numbers_are_those_of_the_environments_generator() {
        for seed in [0, 7, u64::MAX] {
            let (mut rng, entropy) = (Rng::new(seed), SeededEntropy::new(seed));
            for _ in 0..100 {
                assert_eq!(rng.next_u64(), entropy.u64());
                assert_eq!(rng.below(12), entropy.below(12));
            }
        }
    }

    #[test]
    fn ranges_hold() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            let number = rng.between(3, 9);
            assert!((3..=9).contains(&number));
            seen[number as usize] = true;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert_eq!(seen.iter().filter(|&&seen| seen).count(), 7);
        assert_eq!((rng.below(0), rng.between(5, 5)), (0, 5));
        assert!(!rng.permille(0) && rng.permille(1000));
    }
}

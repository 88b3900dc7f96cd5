//! Random numbers: from the operating system, or from a seed.

use crate::split_mix;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random numbers.
pub trait Entropy: Send + Sync {
    /// Returns the next number, uniformly distributed.
    fn u64(&self) -> u64;
}

/// The operating system's random numbers, which are unpredictable.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        match std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)) {
            Ok(()) => u64::from_le_bytes(bytes),
            // The device is missing in this sandbox, or no file descriptor is left. Use SipHash
            // with a key that the standard library took from the operating system; each call has
            // another key.
            Err(_) => RandomState::new().hash_one(0_u64),
        }
    }
}

/// Random numbers from a seed (SplitMix64: Steele, Lea, Flood, OOPSLA 2014): the same in every run.
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Returns the next number below `bound`; zero if `bound` is zero.
    pub fn below(&self, bound: u64) -> u64 {
        split_mix::scale(self.u64(), bound)
    }
}

impl Entropy for SeededEntropy {
    fn u64(&self) -> u64 {
        // Relaxed: the state orders no other memory. The atomic addition gives each call its own
        // state.
        let state = self.state.fetch_add(split_mix::GAMMA, Ordering::Relaxed);
        split_mix::mix(state.wrapping_add(split_mix::GAMMA))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_sequence() {
        let (a, b) = (SeededEntropy::new(0), SeededEntropy::new(0));
        assert_eq!(a.u64(), 0xe220_a839_7b1d_cdaf); // SplitMix64's published first number of seed 0
        b.u64();
        assert_eq!(a.u64(), b.u64());
        assert_ne!(SeededEntropy::new(1).u64(), SeededEntropy::new(2).u64());
    }

    #[test]
    fn below_respects_its_bound() {
        let numbers = SeededEntropy::new(7);
        assert_eq!(numbers.below(0), 0);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[numbers.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn os_entropy_does_not_repeat() {
        assert_ne!(OsEntropy.u64(), OsEntropy.u64());
    }
}

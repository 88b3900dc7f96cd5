//! A Bloom filter over the keys of a block: most blocks whose range includes a key do not contain
//! it, and need not be read.
//!
//! Its hash is the same in every process, so that the reads depend only on the keys.
//!
//! Source: B. H. Bloom, Communications of the ACM 13(7), 1970; two hashes generate all others
//! (Kirsch and Mitzenmacher, ESA 2006).

use clearway_types::hash::{FNV1A_EMPTY, fnv1a, split_mix};

/// Bits per key; the false-positive rate is about 1 %.
const BITS: usize = 10;

/// Bits that a key sets.
const PROBES: u64 = 6;

/// The filter; see the module.
pub(super) struct Filter(Box<[u64]>);

/// Returns a key's hash in a filter. It is independent of the hash that chooses the key's
/// partition: the keys of a partition agree in some of that hash's bits.
pub(super) fn hash(key: &[u8]) -> u64 {
    split_mix(fnv1a(FNV1A_EMPTY, key))
}

impl Filter {
    /// Creates a filter of the keys with these hashes.
    pub(super) fn new(hashes: &[u64]) -> Self {
        let mut words = vec![0; (hashes.len() * BITS).div_ceil(64).max(1)].into_boxed_slice();
        for hash in hashes {
            for bit in bits(*hash, words.len()) {
                words[bit / 64] |= 1 << (bit % 64);
            }
        }
        Self(words)
    }

    /// Returns false if no key with this hash is in the filter.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        bits(hash, self.0.len()).all(|bit| self.0[bit / 64] & (1 << (bit % 64)) != 0)
    }

    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

fn bits(hash: u64, words: usize) -> impl Iterator<Item = usize> {
    let (step, bits) = ((hash >> 32) | 1, words as u64 * 64);
    (0..PROBES).map(move |n| (hash.wrapping_add(n.wrapping_mul(step)) % bits) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_and_few_others_are_found() {
        let of = |n: u32| hash(&n.to_be_bytes());
        let filter = Filter::new(&(0..1000).map(of).collect::<Vec<_>>());
        assert!((0..1000).all(|n| filter.may_have(of(n))));
        let wrong = (1000..11_000).filter(|n| filter.may_have(of(*n))).count();
        assert!(wrong < 300, "{wrong} of 10,000");
        assert!(!Filter::new(&[]).may_have(of(1)));
    }

    #[test]
    fn the_hash_is_the_same_in_every_release() {
        assert_eq!(hash(b"foobar"), 0x404d_a9e3_b740_78c2);
    }
}

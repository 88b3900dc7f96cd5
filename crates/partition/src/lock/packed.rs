//! A compact sorted set of keys: the key locks of a transaction that has too many for the lock
//! table's own map.
//!
//! A block stores its keys contiguously, in order. An insertion moves the keys after it; a full
//! block is split.
//!
//! Invariant: every block has at least one key. Its keys are at least the block's name and less
//! than the next block's name. The first block's name is the empty key.

use super::spans::Span;
use super::work::look;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// A block is split when its keys need more bytes than this. Small in tests.
const FULL: usize = if cfg!(test) { 8 } else { 4096 };

/// The set; see the module.
#[derive(Debug, Default)]
pub(super) struct PackedKeys {
    blocks: BTreeMap<Vec<u8>, Block>,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// The end of each key.
    ends: Vec<u32>,
}

impl PackedKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.block(key).is_some_and(|block| block.search(key).is_ok())
    }

    /// Returns true if the span contains a key of the set.
    pub(super) fn overlaps(&self, span: &Span) -> bool {
        let from = span.from.as_slice();
        let here = self
            .block(from)
            .and_then(|block| block.key(block.search(from).unwrap_or_else(|at| at)));
        let next = || {
            self.blocks
                .range::<[u8], _>((Excluded(from), Unbounded))
                .next()
                .and_then(|(_, b)| b.key(0))
        };
        here.or_else(next).is_some_and(|key| span.to.as_ref().is_none_or(|to| key < to.as_slice()))
    }

    /// Adds a key.
    pub(super) fn insert(&mut self, key: &[u8]) {
        if self.blocks.is_empty() {
            self.blocks.insert(Vec::new(), Block::default());
        }
        let found = self.blocks.range_mut::<[u8], _>((Unbounded, Included(key))).next_back();
        let Some((_, block)) = found else { return };
        let Err(at) = block.search(key) else { return };
        block.insert(at, key);
        if block.bytes.len() > FULL && block.ends.len() > 1 {
            // Ascending insertions leave full blocks behind.
            let last = block.ends.len() - 1;
            let right = block.split(if at == last { last } else { block.ends.len() / 2 });
            self.blocks.insert(right.key(0).unwrap_or_default().to_vec(), right);
        }
    }

    /// Returns the block that contains the key, or would contain it.
    fn block(&self, key: &[u8]) -> Option<&Block> {
        look();
        self.blocks.range::<[u8], _>((Unbounded, Included(key))).next_back().map(|(_, block)| block)
    }
}

impl Block {
    fn begin(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    fn key(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)? as usize;
        Some(&self.bytes[self.begin(at)..end])
    }

    /// Returns the key's position, or `Err` with the position where it would be inserted.
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).unwrap_or_default().cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    fn insert(&mut self, at: usize, key: &[u8]) {
        let begin = self.begin(at);
        self.bytes.splice(begin..begin, key.iter().copied());
        self.ends.insert(at, begin as u32);
        self.ends[at..].iter_mut().for_each(|end| *end += key.len() as u32);
    }

    /// Splits off the keys from this position on.
    fn split(&mut self, at: usize) -> Self {
        let begin = self.begin(at);
        let mut ends = self.ends.split_off(at);
        ends.iter_mut().for_each(|end| *end -= begin as u32);
        Self { bytes: self.bytes.split_off(begin), ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_env::{Entropy, SeededEntropy};
    use std::collections::BTreeSet;

    /// Compares with the standard library's set. Keys have up to five bytes and include the empty
    /// key and prefixes of others.
    #[test]
    fn it_behaves_like_a_btree_set() {
        for seed in 0..200 {
            let random = SeededEntropy::new(seed);
            let draw = || -> Vec<u8> {
                let length = random.u64() % 6;
                (0..length).map(|_| (random.u64() % 3) as u8).collect()
            };
            let (mut packed, mut set) = (PackedKeys::default(), BTreeSet::new());
            for _ in 0..60 {
                assert_eq!(packed.is_empty(), set.is_empty());
                let key = draw();
                packed.insert(&key);
                set.insert(key);
                let asked = draw();
                assert_eq!(packed.contains(&asked), set.contains(&asked), "{asked:?} in {set:?}");
                let (lo, hi) = (Excluded(asked.as_slice()), draw());
                let hi = if hi.is_empty() { Unbounded } else { Included(hi.as_slice()) };
                let Some(span) = Span::of(lo, hi) else { continue };
                let inside =
                    |key: &Vec<u8>| *key >= span.from && span.to.as_ref().is_none_or(|to| key < to);
                assert_eq!(packed.overlaps(&span), set.iter().any(inside), "{span:?} in {set:?}");
            }
        }
    }

    #[test]
    fn ascending_keys_fill_their_blocks() {
        let mut packed = PackedKeys::default();
        (0..1_000_u32).for_each(|n| packed.insert(&n.to_be_bytes()));
        assert!((0..1_000_u32).all(|n| packed.contains(&n.to_be_bytes())));
        assert!(packed.blocks.len() <= 1_000 / (FULL / 4), "{} blocks", packed.blocks.len());
    }
}

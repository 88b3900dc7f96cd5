//! Approximate frequency of recent uses: a count-min sketch of 4-bit counters with ageing.
//!
//! A page has a counter in each of four rows. Its frequency is the minimum of the four, which
//! limits the effect of pages that share a counter. After ten uses per frame, all counters are
//! halved. Takes 8 to 16 bytes per frame. A use costs O(1), the halving O(1) amortised.
//!
//! # Invariants
//! 1. `uses` is below `sample` after every operation.
//!
//! # Source
//! Cormode and Muthukrishnan, 2005. The ageing: Einziger, Friedman, Manes: TinyLFU, ACM
//! Transactions on Storage 13(4), 2017, section 3.3. The layout is that of Ben Manes' Caffeine,
//! which omits the paper's doorkeeper.

use super::ensure;
use clearway_types::PageId;

const SEEDS: [u64; 4] =
    [0xc3a5_c85c_97cb_3127, 0xb492_b66f_be98_f273, 0x9ae1_6a3b_2f90_404f, 0xcbf2_9ce4_8422_2325];
const ROWS: u32 = SEEDS.len() as u32;
const MAX: u64 = 15;
const LOW_BITS: u64 = 0x1111_1111_1111_1111;

/// A count-min sketch.
pub struct Sketch {
    /// Sixteen counters per word: a page has one counter in each of four words, the rows.
    words: Vec<u64>,
    uses: u64,
    sample: u64,
}

impl Sketch {
    /// Creates a sketch for a pool of `frames` frames.
    pub fn new(frames: u32) -> Self {
        let words = vec![0; frames.next_power_of_two().max(2) as usize];
        Self { words, uses: 0, sample: 10 * u64::from(frames.max(1)) }
    }

    /// Counts a use of the page.
    pub fn count(&mut self, page: PageId) {
        let mut counted = false;
        for row in 0..ROWS {
            let (word, shift) = self.place(page, row);
            if (self.words[word] >> shift) & MAX < MAX {
                self.words[word] += 1 << shift;
                counted = true;
            }
        }
        self.uses += u64::from(counted);
        if self.uses >= self.sample {
            self.age();
        }
    }

    /// Returns how often the page was used recently, 0 to 15. May be too high, never too low.
    pub fn frequency(&self, page: PageId) -> u32 {
        let counter = |row| {
            let (word, shift) = self.place(page, row);
            ((self.words[word] >> shift) & MAX) as u32
        };
        (0..ROWS).map(counter).min().unwrap_or(0)
    }

    /// Halves all counters, and reduces `uses` by what the counters lost; a use is four counter
    /// increments.
    fn age(&mut self) {
        let mut odd = 0;
        for word in &mut self.words {
            odd += u64::from((*word & LOW_BITS).count_ones());
            *word = (*word >> 1) & !(LOW_BITS << 3);
        }
        self.uses = (self.uses - (odd / u64::from(ROWS)).min(self.uses)) / 2;
    }

    /// Checks the invariants.
    pub fn validate(&self) -> Result<(), String> {
        ensure(self.uses < self.sample, || {
            format!("{} uses in a sample of {}", self.uses, self.sample)
        })
    }

    /// Returns the word and the bit of the page's counter in a row. The page determines which group
    /// of four of a word's sixteen counters it uses.
    fn place(&self, page: PageId, row: u32) -> (usize, u32) {
        let mixed = page.hash_bits();
        let hash = (mixed ^ (mixed >> 32)).wrapping_mul(SEEDS[row as usize]);
        let word = hash >> (u64::BITS - self.words.len().trailing_zeros());
        let group = (mixed >> 62) as u32;
        (word as usize, (group * ROWS + row) * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_never_too_low_and_are_halved() {
        let mut sketch = Sketch::new(64);
        let page = PageId::from_u64;
        (0..40).for_each(|no| (0..no % 16).for_each(|_| sketch.count(page(no))));
        assert!((0..40).all(|no| sketch.frequency(page(no)) >= (no % 16) as u32));
        assert!((0..40).filter(|no| sketch.frequency(page(*no)) == (*no % 16) as u32).count() > 30);
        (0..100).for_each(|_| sketch.count(page(7)));
        assert_eq!(sketch.frequency(page(7)), 15);
        sketch.age();
        assert_eq!(sketch.frequency(page(7)), 7);
        (0..10_000).for_each(|no| sketch.count(page(100 + no)));
        assert!(sketch.uses < sketch.sample && sketch.frequency(page(7)) < 7);
    }
}

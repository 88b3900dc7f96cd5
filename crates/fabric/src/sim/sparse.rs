//! Memory whose untouched parts take no space.

/// Words that are allocated together.
const BLOCK: usize = 32;

/// Words that are 0 until they are written. A simulated node has millions, of which a run touches
/// few.
pub(super) struct SparseWords {
    /// By block: its place in `written`, plus 1; 0 if no word of it has been written.
    blocks: Vec<u32>,
    written: Vec<[u64; BLOCK]>,
    words: usize,
}

impl SparseWords {
    /// Creates `words` zeros.
    pub fn new(words: usize) -> Self {
        Self { blocks: vec![0; words.div_ceil(BLOCK)], written: Vec::new(), words }
    }

    pub fn len(&self) -> usize {
        self.words
    }

    /// Returns a word.
    ///
    /// # Panics
    /// Panics if there is no such word. [`SparseWords::get_mut`] does, too.
    pub fn get(&self, word: usize) -> u64 {
        assert!(word < self.words, "no word {word} of {}", self.words);
        match self.blocks[word / BLOCK] {
            0 => 0,
            place => self.written[place as usize - 1][word % BLOCK],
        }
    }

    /// Returns a word to change.
    pub fn get_mut(&mut self, word: usize) -> &mut u64 {
        assert!(word < self.words, "no word {word} of {}", self.words);
        let place = &mut self.blocks[word / BLOCK];
        if *place == 0 {
            self.written.push([0; BLOCK]);
            *place = self.written.len() as u32;
        }
        &mut self.written[*place as usize - 1][word % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_until_written() {
        let mut words = SparseWords::new(3 * BLOCK + 1);
        *words.get_mut(3 * BLOCK) = 7;
        *words.get_mut(BLOCK - 1) = 8;
        let written: Vec<_> = (0..words.len()).filter(|word| words.get(*word) != 0).collect();
        assert_eq!(written, [BLOCK - 1, 3 * BLOCK]);
        assert_eq!((words.get(BLOCK - 1), words.written.len()), (8, 2));
    }

    #[test]
    #[should_panic(expected = "no word 40 of 40")]
    fn words_beyond_the_end_are_refused() {
        SparseWords::new(40).get(40);
    }
}

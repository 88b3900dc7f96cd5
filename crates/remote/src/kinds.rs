//! Which lock a reader takes in the adaptive mode: mutual, or shared.
//!
//! A mutual lock takes a reader 3 rounds, a shared one 5; but two readers of one row that take
//! mutual locks are a conflict that need not be. So a worker shares a row if it has met others
//! there lately, as a reader or as a writer. It learns that from the lock words that it finds,
//! which costs no verb. The source (Li, Zhang, Zhao, Lu, Zhang, Du) leaves the choice open and
//! names the abort rate and the read fraction as what to choose by. Here the row is chosen by its
//! conflicts. The read fraction decides by itself how often the choice matters.
//!
//! Measured and dropped: to share only where a reader has met another reader. With 90 % writes and
//! theta 0.9 that came to 0.96 of the better of M and M/S, instead of 0.99: a reader is rare there,
//! and learns too late that a row is hot.
//!
//! # Invariants
//! 1. What this module says changes how a lock is taken, and never what a word means or how a held
//!    lock is released.
//! 2. Memory is bounded: a table of [`ENTRIES`] rows. A row that is not in it is locked mutually.
//!
//! # Locking, and what a crash leaves
//! None, and nothing: each worker has its own, made of what it has seen.

use crate::RowId;

/// Rows that a worker remembers.
const ENTRIES: usize = 1024;

/// The score of a row where somebody was just met.
const MET: u16 = 1 << 12;
/// The least score of a row that is shared.
const SHARED: u16 = MET / 32;
/// A read without a meeting takes this part of the score.
const DECAY: u16 = 8;

#[derive(Clone, Copy)]
struct Entry {
    row: RowId,
    score: u16,
}

/// What a worker remembers of the rows that it reads.
pub(crate) struct Kinds {
    entries: Vec<Option<Entry>>,
}

impl Kinds {
    pub fn new() -> Self {
        Self { entries: vec![None; ENTRIES] }
    }

    fn place(row: RowId) -> usize {
        // Fibonacci hashing: neighbours in a table are often hot together.
        let mixed =
            (u64::from(row.owner) << 32 | u64::from(row.index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % ENTRIES
    }

    /// Whether a reader shares the row.
    pub fn shares(&self, row: RowId) -> bool {
        self.entries[Self::place(row)]
            .is_some_and(|entry| entry.row == row && entry.score >= SHARED)
    }

    /// Remembers whether somebody was met in the row.
    pub fn note(&mut self, row: RowId, met: bool) {
        let entry = &mut self.entries[Self::place(row)];
        match entry {
            Some(known) if known.row == row => {
                known.score = if met { MET } else { known.score - known.score.div_ceil(DECAY) };
            }
            // A row of the same place: the one that is met more often stays.
            Some(known) if met && known.score >= SHARED => {
                known.score -= known.score.div_ceil(DECAY)
            }
            _ if met => *entry = Some(Entry { row, score: MET }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(index: u32) -> RowId {
        RowId { owner: 1, index }
    }

    /// The row is shared after a meeting, and no longer after reads alone.
    #[test]
    fn rows_are_shared_while_others_are_met() {
        let mut kinds = Kinds::new();
        kinds.note(row(1), false);
        assert!(!kinds.shares(row(1)));
        kinds.note(row(1), true);
        let alone = (0..100).take_while(|_| {
            let shares = kinds.shares(row(1));
            kinds.note(row(1), false);
            shares
        });
        let alone = alone.count();
        assert!((8..40).contains(&alone), "{alone} reads");
        assert!(!kinds.shares(row(1)) && !kinds.shares(row(2)));
    }

    #[test]
    fn a_hot_row_keeps_its_place() {
        let mut kinds = Kinds::new();
        let rival =
            (2..).find(|index| Kinds::place(row(*index)) == Kinds::place(row(1))).map(row).unwrap();
        for _ in 0..100 {
            kinds.note(row(1), true);
            kinds.note(rival, true);
            kinds.note(rival, false);
            assert!(kinds.shares(row(1)) && !kinds.shares(rival));
        }
        // Once it is no longer met, the other gets the place.
        (0..100).for_each(|_| kinds.note(rival, true));
        assert!(kinds.shares(rival) && !kinds.shares(row(1)));
    }
}

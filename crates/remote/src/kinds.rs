//! Chooses the lock that a reader takes in adaptive mode: mutual or shared.
//!
//! A mutual lock costs a reader 3 rounds, and a shared one 5. But two readers that take mutual
//! locks on one row conflict needlessly. A worker therefore shares a row if it has recently met
//! other holders there, as a reader or as a writer. It learns that from the lock words that it
//! finds, which costs no verb. The source (Li, Zhang, Zhao, Lu, Zhang, Du) leaves the choice open
//! and suggests the abort rate and the read fraction as criteria. Here the criterion is the
//! conflicts of each row. The read fraction only determines how often the choice matters.
//!
//! Measured and dropped: share a row only if a reader has met another reader. With 90 % writes and
//! theta 0.9 that reached 0.96 of the better of M and M/S, instead of 0.99. Readers are rare there
//! and learn too late that a row is hot.
//!
//! # Invariants
//! 1. This module decides how a lock is acquired. It never affects what a word means or how a held
//!    lock is released.
//! 2. Memory is bounded by a table of [`ENTRIES`] rows. A row that is not in it is locked mutually.
//!
//! # Locking and crashes
//! There is no lock, and a crash leaves nothing: each worker has its own table of what it has seen.

use crate::RowId;

/// Rows that a worker remembers.
const ENTRIES: usize = 1024;

/// The score of a row in which another holder was just met.
const MET: u16 = 1 << 12;
/// The minimum score of a row that is shared.
const SHARED: u16 = MET / 32;
/// A read without a conflict reduces the score by 1/8.
const DECAY: u16 = 8;

#[derive(Clone, Copy)]
struct Entry {
    row: RowId,
    score: u16,
}

/// A worker's memory of conflicts by row.
pub(crate) struct Kinds {
    entries: Vec<Option<Entry>>,
}

impl Kinds {
    pub fn new() -> Self {
        Self { entries: vec![None; ENTRIES] }
    }

    fn place(row: RowId) -> usize {
        // Fibonacci hashing: neighbouring rows are often hot together.
        let mixed =
            (u64::from(row.owner) << 32 | u64::from(row.index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % ENTRIES
    }

    /// Returns true if a reader should share the row.
    pub fn shares(&self, row: RowId) -> bool {
        self.entries[Self::place(row)]
            .is_some_and(|entry| entry.row == row && entry.score >= SHARED)
    }

    /// Records whether another holder was met in the row.
    pub fn note(&mut self, row: RowId, met: bool) {
        let entry = &mut self.entries[Self::place(row)];
        match entry {
            Some(known) if known.row == row => {
                known.score = if met { MET } else { known.score - known.score.div_ceil(DECAY) };
            }
            // Two rows share a place: the one that is met more often stays.
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

    /// The row is shared after a conflict, and no longer after enough reads without one.
    #[test]
    fn rows_are_shared_after_a_conflict() {
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

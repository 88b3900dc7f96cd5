//! The transactions that were active when images of theirs were spilled, and their outcomes.
//!
//! A block is never written again, so an image of an active transaction has its writer instead of
//! its commit there. The outcome is found here. It stays until no block has an image of the writer.
//! So the end of a transaction costs time for each of its blocks, not for each of its images.

use super::block::By;
use crate::snapshots::Snapshots;
use crate::versions::AsOf;
use clearway_types::{Lsn, TxnId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place of a block: its round and its first key.
pub(super) type Place = (u32, Arc<[u8]>);

/// The outcome of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::versions) enum Outcome {
    Active,
    Committed(Lsn),
    Undone,
}

struct Writer {
    outcome: Outcome,
    /// While it is active: the places of the blocks with images of it.
    open: Vec<Place>,
    /// The number of these blocks.
    blocks: usize,
}

/// The writers; see the module.
#[derive(Default)]
pub(super) struct Writers(BTreeMap<TxnId, Writer>);

impl Writers {
    /// Adds a block with images of an active transaction.
    pub(super) fn add(&mut self, writer: TxnId, place: Place) {
        let new = Writer { outcome: Outcome::Active, open: Vec::new(), blocks: 0 };
        let writer = self.0.entry(writer).or_insert(new);
        writer.open.push(place);
        writer.blocks += 1;
    }

    /// Removes a block with images of a transaction that has ended.
    pub(super) fn remove(&mut self, writer: TxnId) {
        let Some(known) = self.0.get_mut(&writer) else { return };
        known.blocks -= 1;
        if known.blocks == 0 {
            self.0.remove(&writer);
        }
    }

    /// Removes all writers.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records the outcome of a transaction; returns the places of the blocks with images of it.
    pub(super) fn end(&mut self, writer: TxnId, outcome: Outcome) -> Vec<Place> {
        let Some(known) = self.0.get_mut(&writer) else { return Vec::new() };
        known.outcome = outcome;
        std::mem::take(&mut known.open)
    }

    /// Returns the outcome of a transaction; `None` if no block has an image of it.
    pub(super) fn outcome(&self, writer: TxnId) -> Option<Outcome> {
        self.0.get(&writer).map(|known| known.outcome)
    }

    /// Returns what the reader sees of a change that has an image in a block.
    pub(super) fn sight(&self, by: By, reader: Reader<'_>) -> Sight {
        let commit = match by {
            By::Commit(commit) => commit,
            By::Writer(writer) => match self.outcome(writer) {
                Some(Outcome::Committed(commit)) => commit,
                // The value in its image is in the tree, or in a newer image.
                Some(Outcome::Undone) | None => return Sight::Seen,
                Some(Outcome::Active) if writer == reader.as_of.me => return Sight::Own,
                Some(Outcome::Active) if reader.is_undecided(writer) => {
                    return Sight::Undecided(writer);
                }
                Some(Outcome::Active) => return Sight::Unseen { active: true },
            },
        };
        if commit <= reader.as_of.at { Sight::Seen } else { Sight::Unseen { active: false } }
    }
}

/// What a reader sees of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::versions) enum Sight {
    Seen,
    /// It goes back over the image.
    Unseen {
        /// The writer has not ended.
        active: bool,
    },
    /// It has made the change itself, and may have undone it since.
    Own,
    /// The writer is committing; the outcome is not known here yet.
    Undecided(TxnId),
}

/// A reader of spilled images.
#[derive(Clone, Copy)]
pub(in crate::versions) struct Reader<'v> {
    pub as_of: AsOf,
    pub snapshots: &'v Snapshots,
}

impl Reader<'_> {
    fn is_undecided(&self, writer: TxnId) -> bool {
        crate::versions::is_undecided(self.snapshots, writer)
    }
}

//! The transactions that were active when images of theirs were spilled, and their outcomes.
//!
//! A block is never written again, so an image of an active transaction has its writer instead of
//! its commit there. The outcome is found here. It stays until no block has an image of the writer.
//! So the end of a transaction costs time for each of its blocks, not for each of its images.
//!
//! A transaction that is undone may run again with the same id, while blocks still have images of
//! its first run. So a writer is one run of a transaction, and has a number of its own.

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
    id: TxnId,
    outcome: Outcome,
    /// While it is active: the places of the blocks with images of it.
    open: Vec<Place>,
    /// The number of these blocks.
    blocks: usize,
}

/// The number of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::versions) struct WriterId(pub u64);

/// The writers; see the module.
#[derive(Default)]
pub(super) struct Writers {
    all: BTreeMap<WriterId, Writer>,
    /// The active ones.
    active: BTreeMap<TxnId, WriterId>,
    next: u64,
}

impl Writers {
    /// Returns the number of an active transaction, which may be new.
    pub(super) fn number(&mut self, txn: TxnId) -> WriterId {
        let new = WriterId(self.next);
        let number = *self.active.entry(txn).or_insert(new);
        if number == new {
            self.next += 1;
            let writer = Writer { id: txn, outcome: Outcome::Active, open: Vec::new(), blocks: 0 };
            self.all.insert(new, writer);
        }
        number
    }

    /// Adds a block with images of an active transaction.
    pub(super) fn add(&mut self, writer: WriterId, place: Place) {
        let Some(known) = self.all.get_mut(&writer) else { return };
        known.open.push(place);
        known.blocks += 1;
    }

    /// Removes a block with images of a transaction that has ended.
    pub(super) fn remove(&mut self, writer: WriterId) {
        let Some(known) = self.all.get_mut(&writer) else { return };
        known.blocks -= 1;
        if known.blocks == 0 {
            self.all.remove(&writer);
        }
    }

    /// Removes all writers.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.active.clear();
    }

    /// Records the outcome of a transaction; returns the places of the blocks with images of it.
    pub(super) fn end(&mut self, txn: TxnId, outcome: Outcome) -> Vec<Place> {
        let Some(number) = self.active.remove(&txn) else { return Vec::new() };
        let Some(known) = self.all.get_mut(&number) else { return Vec::new() };
        known.outcome = outcome;
        let open = std::mem::take(&mut known.open);
        if known.blocks == 0 {
            self.all.remove(&number);
        }
        open
    }

    /// Returns the transaction of a writer and its outcome; `None` if no block has an image of it.
    pub(super) fn outcome(&self, writer: WriterId) -> Option<(TxnId, Outcome)> {
        self.all.get(&writer).map(|known| (known.id, known.outcome))
    }

    /// Returns true if a block may have images of this active transaction.
    pub(super) fn is_active(&self, txn: TxnId) -> bool {
        self.active.contains_key(&txn)
    }

    /// Returns what the reader sees of a change that has an image in a block.
    pub(super) fn sight(&self, by: By, reader: Reader<'_>) -> Sight {
        let commit = match by {
            By::Commit(commit) => commit,
            By::Writer(writer) => match self.outcome(writer) {
                Some((_, Outcome::Committed(commit))) => commit,
                // The value in its image is in the tree, or in a newer image.
                Some((_, Outcome::Undone)) | None => return Sight::Seen,
                Some((txn, Outcome::Active)) if txn == reader.as_of.me => return Sight::Own,
                Some((txn, Outcome::Active)) if reader.is_undecided(txn) => {
                    return Sight::Undecided(txn);
                }
                Some((_, Outcome::Active)) => return Sight::Unseen { active: true },
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

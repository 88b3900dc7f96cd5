//! Finds pages that are in use but absent from their file: zeros, or beyond its end.
//!
//! A page of zeros passes verification, because a page that was never written is one. Such a page
//! may be in use only if redo creates it: its first change in the log from `redo` on makes the
//! whole page, whatever was there. All others are damage: they would be absent after a restore.
//!
//! No fuzzy copy has them. Page 0 of the copy counts a page only if it has the change that created
//! the page. If that change is before `redo`, the page was written before the checkpoint ended, and
//! a written page is never all zeros again. Otherwise the change is in the log that is copied,
//! because no page of a copy has an LSN above its end (`backup`, invariant 1). Pages that are
//! created later, and space allocated in advance, are beyond the pages that page 0 counts.
//!
//! Invariants
//! 1. Runs do not overlap and are not empty.
//!
//! Memory: 16 bytes per run of adjacent pages. Without damage these are pages that were created
//! since the checkpoint. Locking: none. A crash leaves nothing.

use std::collections::BTreeMap;

use clearway_types::{Lsn, PageId, PartitionId};

use crate::error::StorageError;
use crate::page;
use crate::record::{self, PageOp, Record};
use crate::wal;

/// Pages of every partition's file in a complete directory: page 0 and the root of the directory
/// tree.
pub(super) const FIRST_PAGES: u32 = 2;

/// The absent pages of all partitions for which no record was seen that creates them.
#[derive(Debug, Default)]
pub(super) struct LostPages {
    /// By first page: the page after the last one. Page ids as numbers.
    runs: BTreeMap<u64, u64>,
}

fn lost(page: PageId) -> StorageError {
    StorageError::Corrupt { page, what: "it is in use, but its place in the file is empty" }
}

/// Returns true if the page was never written.
pub(super) fn is_empty(page: &[u8]) -> bool {
    page::kind(page) == 0
}

/// Returns the number of pages in use according to page 0.
pub(super) fn pages_in_use(page_0: &[u8]) -> u32 {
    if page::kind(page_0) == page::KIND_META {
        page::page_count(page_0).max(FIRST_PAGES)
    } else {
        FIRST_PAGES
    }
}

impl LostPages {
    /// Adds the absent pages from `from` up to but excluding `to`. Pages are added in order.
    pub(super) fn add(&mut self, partition: PartitionId, from: u32, to: u32) {
        let id = |no| PageId::new(partition, no).to_u64();
        if from >= to {
            return;
        }
        match self.runs.last_entry() {
            Some(mut last) if *last.get() == id(from) => {
                last.insert(id(to));
            }
            _ => {
                self.runs.insert(id(from), id(to));
            }
        }
    }

    /// Removes the pages that redo creates from these records, which start at `at`. Call it for all
    /// of the log, in order.
    ///
    /// # Errors
    /// A page is changed before it is created, so it was written before the checkpoint.
    pub(super) fn recreated(&mut self, at: Lsn, log: &[u8], redo: Lsn) -> Result<(), StorageError> {
        if self.runs.is_empty() {
            return Ok(());
        }
        for (start, payload) in wal::records(at, log).filter(|(start, _)| *start >= redo) {
            let malformed = |_| StorageError::bad_record(start, "it is malformed");
            let Record::Pages { partition, ops, .. } = record::parse(payload).map_err(malformed)?
            else {
                continue;
            };
            for op in ops {
                let (no, op) = op.map_err(malformed)?;
                self.changed(PageId::new(partition, no), &op)?;
            }
        }
        Ok(())
    }

    fn changed(&mut self, page: PageId, op: &PageOp<'_>) -> Result<(), StorageError> {
        let no = page.to_u64();
        let run = self.runs.range(..=no).next_back().map(|(&from, &to)| (from, to));
        let Some((from, to)) = run.filter(|&(_, to)| no < to) else { return Ok(()) };
        if !matches!(op, PageOp::InitNode { .. } | PageOp::Overflow { .. } | PageOp::Free { .. }) {
            return Err(lost(page));
        }
        self.runs.remove(&from);
        for (from, to) in [(from, no), (no + 1, to)] {
            if from < to {
                self.runs.insert(from, to);
            }
        }
        Ok(())
    }

    /// Fails if a page is left.
    pub(super) fn none_left(&self) -> Result<(), StorageError> {
        match self.runs.first_key_value() {
            Some((&first, _)) => Err(lost(PageId::from_u64(first))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Invariant 1: runs behave as the set of their pages.
        #[test]
        fn runs_are_a_set_of_pages(
            runs in prop::collection::vec((0_u16..2, 0_u32..6, 0_u32..6), 0..8),
            created in prop::collection::vec((0_u16..2, 0_u32..90), 0..40),
        ) {
            let (mut lost, mut model, mut end) = (LostPages::default(), BTreeSet::new(), [0; 2]);
            let mut runs = runs;
            runs.sort_by_key(|(partition, ..)| *partition);
            for (partition, gap, count) in runs {
                let from = end[usize::from(partition)] + gap;
                end[usize::from(partition)] = from + count;
                lost.add(PartitionId(partition), from, from + count);
                model.extend((from..from + count).map(|no| PageId::new(PartitionId(partition), no)));
            }
            for (partition, no) in created {
                let page = PageId::new(PartitionId(partition), no);
                let change = PageOp::Truncate { keep: 0 };
                prop_assert_eq!(lost.changed(page, &change).is_err(), model.remove(&page));
                lost.changed(page, &PageOp::Free { next: 0 }).unwrap();
                prop_assert!(lost.changed(page, &change).is_ok());
                prop_assert_eq!(lost.none_left().is_ok(), model.is_empty());
            }
            for page in model {
                prop_assert!(lost.none_left().unwrap_err().to_string().contains(&page.to_string()));
                lost.changed(page, &PageOp::InitNode { level: 0 }).unwrap();
            }
            prop_assert!(lost.none_left().is_ok());
        }
    }
}

//! Pages that rollbacks may need: kept for them from the moment on when a transaction has freed
//! pages that its undo takes again.
//!
//! A transaction's *debt* are the pages that it has freed and not taken, and those that one change
//! has freed at most: the undo of such a change takes them all before it frees others. Whoever
//! takes a page, but for a rollback, leaves what all debts come to: in the part of the free list
//! that is known, or as space behind the file's pages, which is asked for before anything is
//! changed.
//!
//! Invariants
//! 1. What is known of the free list is never more than it has.
//! 2. While nobody fails, free list and space behind the pages together have what is pledged, or
//!    had no more when it was pledged.
//!
//! A rollback fills its pages as they were filled if it puts keys back in a run, as it does after a
//! scan's deletes (`split`). Not pledged are pages for the splits of other orders, and of leaves in
//! which others have used the room of its rows: for those there is what a file keeps for who cannot
//! be refused (`buffer::files`); if that does not suffice, the rollback stops until there is space.
//!
//! Locking: none, a partition's own thread has it. A crash leaves nothing of it: recovery undoes
//! before anybody else takes pages.
//!
//! Source: as for the log's room, reserving space for rollbacks (Gray and Reuter, "Transaction
//! Processing", 1993, 11.3).

use clearway_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages that a record has taken and freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Of those taken, so many were in the free list.
    pub(crate) listed: u32,
    /// Of those taken, so many are new in the file.
    pub(crate) created: u32,
    pub(crate) freed: u32,
}

/// What a partition knows of its free pages, and what of them it must leave.
#[derive(Default)]
pub(crate) struct Spare {
    /// The free list has so many pages at least.
    listed: AtomicU64,
    pledged: AtomicU64,
    /// What the last record has moved, unless somebody has asked since.
    moved: [AtomicU32; 3],
}

// Relaxed, everywhere: only the thread that has the partition reads and writes them.
impl Spare {
    /// How many pages behind the file's pages must have space if so many are taken from the free
    /// list.
    pub(crate) fn missing(&self, listed: u32) -> u64 {
        let pledged = self.pledged.load(Ordering::Relaxed);
        pledged
            .saturating_sub(self.listed.load(Ordering::Relaxed).saturating_sub(u64::from(listed)))
    }

    /// A record is in the log.
    pub(crate) fn moved(&self, by: Moved) {
        let listed = self.listed.load(Ordering::Relaxed).saturating_sub(u64::from(by.listed));
        self.listed.store(listed + u64::from(by.freed), Ordering::Relaxed);
        self.set_moved(by);
    }

    fn set_moved(&self, Moved { listed, created, freed }: Moved) {
        for (place, pages) in self.moved.iter().zip([listed, created, freed]) {
            place.store(pages, Ordering::Relaxed);
        }
    }

    /// What the last record has moved, once.
    pub(crate) fn take_moved(&self) -> Moved {
        let [listed, created, freed] = [0, 1, 2].map(|at| self.moved[at].load(Ordering::Relaxed));
        let moved = Moved { listed, created, freed };
        if moved != Moved::default() {
            self.set_moved(Moved::default());
        }
        moved
    }

    /// Replaces a pledge by another.
    pub(crate) fn pledge(&self, before: u64, now: u64) {
        let pledged = (self.pledged.load(Ordering::Relaxed) + now).saturating_sub(before);
        self.pledged.store(pledged, Ordering::Relaxed);
    }
}

/// The pages that a transaction's undo may need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt {
    freed: u64,
    /// The most that one change has freed.
    at_once: u32,
    /// What the rollback that is under way has taken back.
    back: u64,
}

impl Debt {
    /// How many pages.
    pub(crate) fn pages(&self) -> u64 {
        self.freed + u64::from(self.at_once)
    }

    /// A change has moved pages.
    pub(crate) fn change(&mut self, moved: Moved) {
        self.freed += u64::from(moved.freed.saturating_sub(moved.listed + moved.created));
        self.at_once = self.at_once.max(moved.freed);
    }

    /// The undo of a change has moved pages.
    pub(crate) fn undo(&mut self, moved: Moved) {
        self.back += u64::from((moved.listed + moved.created).saturating_sub(moved.freed));
    }

    /// A rollback has come to its end. Until then all stays pledged: it may take more than was
    /// freed.
    pub(crate) fn rolled_back(&mut self) {
        self.freed = self.freed.saturating_sub(std::mem::take(&mut self.back));
    }
}

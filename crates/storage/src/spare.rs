//! Pages that rollbacks may need. They are reserved when a transaction frees pages that its undo
//! will allocate again.
//!
//! For each transaction, these are the pages that it has freed and not allocated, plus the most
//! that a single change has freed. The undo of such a change allocates them all before it frees
//! others. Every allocation, except by a rollback, must leave all reserved pages. These are in the
//! known part of the free list, or are space beyond the file's pages. That space is requested
//! before anything is changed.
//!
//! Invariants
//! 1. The known length of the free list is never more than its actual length.
//! 2. Unless a request fails, the free list and the space beyond the pages together have what is
//!    reserved. If they have less, they had no more when it was reserved.
//!
//! A rollback fills its pages as before if it puts keys back as a run, as it does after a scan's
//! deletes (`split`). Pages are not reserved for splits of other orders, or for leaves in which
//! other transactions have used the space of its rows. For those a file keeps a reserve for changes
//! that cannot be refused (`buffer::files`). If that is not enough, the rollback waits until there
//! is space.
//!
//! Locking: none; only the partition's own thread uses it. A crash leaves nothing of this state:
//! recovery undoes before anything else allocates pages.
//!
//! Source: as for the log's space, reserving space for rollbacks (Gray and Reuter, "Transaction
//! Processing", 1993, 11.3).

use clearway_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages that a record has allocated and freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Pages allocated from the free list.
    pub(crate) listed: u32,
    /// Pages allocated by extending the file.
    pub(crate) created: u32,
    pub(crate) freed: u32,
}

/// What a partition knows about its free pages, and how many of them are reserved.
#[derive(Default)]
pub(crate) struct Spare {
    /// Lower bound of the free list's length.
    listed: AtomicU64,
    reserved: AtomicU64,
    /// What the last record has moved, until `take_moved`.
    moved: [AtomicU32; 3],
}

// Relaxed, everywhere: only the thread that owns the partition reads and writes them.
impl Spare {
    /// Returns how many pages beyond the file's end must have space if `listed` pages are taken
    /// from the free list.
    pub(crate) fn missing(&self, listed: u32) -> u64 {
        let reserved = self.reserved.load(Ordering::Relaxed);
        reserved
            .saturating_sub(self.listed.load(Ordering::Relaxed).saturating_sub(u64::from(listed)))
    }

    /// Records the effect of a logged record.
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

    /// Returns what the last record has moved, once.
    pub(crate) fn take_moved(&self) -> Moved {
        let [listed, created, freed] = [0, 1, 2].map(|at| self.moved[at].load(Ordering::Relaxed));
        let moved = Moved { listed, created, freed };
        if moved != Moved::default() {
            self.set_moved(Moved::default());
        }
        moved
    }

    /// Changes a transaction's reservation from `before` to `now` pages.
    pub(crate) fn reserve(&self, before: u64, now: u64) {
        let reserved = (self.reserved.load(Ordering::Relaxed) + now).saturating_sub(before);
        self.reserved.store(reserved, Ordering::Relaxed);
    }
}

/// Bytes of log for a page that an undo frees.
const FREED_PAGE: u64 = 9;

/// The pages that a transaction's undo may need, and those that it may free.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UndoPages {
    freed: u64,
    /// The most that one change has freed.
    at_once: u32,
    /// Pages that the current rollback has allocated again.
    back: u64,
    /// Pages that the transaction has allocated and not yet freed.
    allocated: u64,
}

impl UndoPages {
    /// Returns the bytes of log that freeing the allocated pages needs.
    pub(crate) fn log(&self) -> u64 {
        self.allocated * FREED_PAGE
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> u64 {
        self.freed + u64::from(self.at_once)
    }

    /// Records the pages that a change has moved.
    pub(crate) fn change(&mut self, moved: Moved) {
        self.freed += u64::from(moved.freed.saturating_sub(moved.listed + moved.created));
        self.at_once = self.at_once.max(moved.freed);
        self.allocated += u64::from(moved.listed + moved.created);
    }

    /// Records the pages that the undo of a change has moved.
    pub(crate) fn undo(&mut self, moved: Moved) {
        self.back += u64::from((moved.listed + moved.created).saturating_sub(moved.freed));
        self.allocated = self.allocated.saturating_sub(u64::from(moved.freed));
    }

    /// Ends a rollback. Everything stays reserved until then, because a rollback may allocate more
    /// than was freed.
    pub(crate) fn rolled_back(&mut self) {
        self.freed = self.freed.saturating_sub(std::mem::take(&mut self.back));
    }
}

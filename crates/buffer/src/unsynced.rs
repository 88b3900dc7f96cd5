//! The pages that were written but not synced. A read of one must return what was written.
//!
//! A write that has succeeded may still be lost: the operating system cannot write it to the
//! medium, discards it, and reports that only at the next sync. Until then, and permanently if that
//! sync fails, a read of the page may return the previous content. Changes based on that content
//! must not get into the log.
//!
//! # Invariants
//! 1. Every page that was written but not synced is here, with the LSN of its last copy, before it
//!    can be evicted.
//! 2. There is at most one batch of them: [`crate::PageIo::write`] syncs the previous one. After a
//!    failure the last one stays.
//!
//! # Locking
//! A leaf latch, held for a search or a copy of the list.
//!
//! # Source
//! The effects of a failed sync: Rebello et al., "Can Applications Recover from fsync Failures?",
//! USENIX ATC 2020.

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{Lsn, PageId};

static UNSYNCED: Class = Class::new("buffer.unsynced");

/// See the module's documentation.
pub(crate) struct Unsynced {
    /// Sorted by page id.
    pages: Latch<Vec<(PageId, Lsn)>>,
}

impl Default for Unsynced {
    fn default() -> Self {
        Self { pages: Latch::new(&UNSYNCED, Vec::new()) }
    }
}

impl Unsynced {
    /// Records that these pages, sorted by id, have been written, and that the previous ones are
    /// synced.
    pub fn replace(&self, pages: impl Iterator<Item = (PageId, Lsn)>) {
        let mut list = self.pages.lock();
        list.clear();
        list.extend(pages);
    }

    /// Returns the LSN with which the page was written, unless that write is synced.
    pub fn written(&self, page: PageId) -> Option<Lsn> {
        let list = self.pages.lock();
        list.binary_search_by_key(&page, |(id, _)| *id).ok().map(|at| list[at].1)
    }
}

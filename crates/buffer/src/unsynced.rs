//! The pages that were written and are not synced: a read must find what was written.
//!
//! A write that has succeeded may still be lost: the operating system cannot bring it to the
//! medium, forgets it, and says so at the next sync only. Until then, and for good if that sync
//! fails, a read of the page may bring what was there before. What is done on top of that must not
//! get into the log.
//!
//! # Invariants
//! 1. Every page that was written and is not synced is here, with the LSN of its last copy, before
//!    it can leave the pool.
//! 2. There is at most one batch of them: [`crate::PageIo::write`] syncs the one before. After a
//!    failure the last one stays.
//!
//! # Locking
//! A latch that is a leaf, held for a search or a copy of the list.
//!
//! # Source
//! What a failed sync leaves: Rebello et al., "Can Applications Recover from fsync Failures?",
//! USENIX ATC 2020.

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{Lsn, PageId};

static UNSYNCED: Class = Class::new("buffer.unsynced");

/// See the module's text.
pub(crate) struct Unsynced {
    /// In the order of their ids.
    pages: Latch<Vec<(PageId, Lsn)>>,
}

impl Default for Unsynced {
    fn default() -> Self {
        Self { pages: Latch::new(&UNSYNCED, Vec::new()) }
    }
}

impl Unsynced {
    /// These pages have been written, in the order of their ids, and those before them synced.
    pub fn replace(&self, pages: impl Iterator<Item = (PageId, Lsn)>) {
        let mut list = self.pages.lock();
        list.clear();
        list.extend(pages);
    }

    /// The LSN with which the page was written, unless that is synced.
    pub fn written(&self, page: PageId) -> Option<Lsn> {
        let list = self.pages.lock();
        list.binary_search_by_key(&page, |(id, _)| *id).ok().map(|at| list[at].1)
    }
}

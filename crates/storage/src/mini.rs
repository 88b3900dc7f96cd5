//! Mini-transactions: page changes that happen atomically, with one log record.
//!
//! Invariants
//! 1. All pages and resources that may be missing are requested before anything is changed. A
//!    blocked attempt drops its pages unchanged.
//! 2. The order is: apply the record, mark the pages dirty, append the record, set the pages' LSN.
//!    All of it happens under exclusive latches. So nobody sees a change that is not in the log,
//!    and a checkpoint sees the page as dirty before its record exists.
//! 3. A record that does not fit its pages, because a page's content is invalid, is detected before
//!    it is logged. The pages are restored, and the attempt fails with the page's name.
//! 4. Space for the record, and for new pages, is available before the record is appended. This
//!    also holds for a record that undoes a change. So nothing that is in the log can fail for lack
//!    of either. Space that rollbacks are expected to need is left to them (`spare`, `wal::room`).
//!    The record that undoes the change fits in the log's buffer.
//! 5. Pages are taken from the free list before any are added to it, and none twice in one
//!    mini-transaction.
//!
//! Locking: the exclusive latches of the pages taken; no shared latch is taken while one is held.
//! Only the partition's own thread changes its pages, so the order of latching does not matter.
//!
//! A crash leaves the whole record or nothing of it; redo brings the pages up to date.

use std::sync::Arc;

use clearway_buffer::{FileSpace, Files, MissingPage, PageIo, PageMut, PageRef, Pool};
use clearway_latch::CachePadded;
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_types::{Lsn, PageId, PartitionId};

use crate::apply::apply;
use crate::attempt::Blocked;
use crate::error::StorageError;
use crate::page;
use crate::record::{self, PageOp, Role};
use crate::spare::{Moved, Spare};
use crate::wal::{Wal, record_size};

/// For each partition: the LSN from which the log must be kept for its active transactions;
/// `u64::MAX` if there are none.
pub(crate) type Oldest = Arc<[CachePadded<AtomicU64>]>;

/// What a change may do when space is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Refused if only the reserve is left.
    Refusable,
    /// Part of a decision that was already made: waits until there is space.
    Waits,
    /// Undoes a change, in space that was reserved for it. If that does not suffice, it is refused
    /// like others, and its rollback continues later.
    Reserved,
}

/// What a change needs besides its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) urgency: Urgency,
    /// Bytes of log that its undo may need.
    pub(crate) undo: u64,
}

impl Need {
    /// Returns the need of a change that is never undone.
    pub(crate) fn new(urgency: Urgency) -> Self {
        Self { urgency, undo: 0 }
    }
}

/// What all operations of a partition need.
pub(crate) struct Core {
    pub(crate) partition: PartitionId,
    pub(crate) pool: Arc<Pool>,
    /// The pool's files; they know where space is allocated.
    pub(crate) files: Arc<Files>,
    pub(crate) spare: Spare,
    pub(crate) wal: Arc<Wal>,
    pub(crate) oldest: Oldest,
    /// Maximum value length in bytes.
    pub(crate) max_value: usize,
    /// Undo memory of a transaction in this partition, in bytes.
    pub(crate) undo_memory: usize,
    /// Leaves that a scan prefetches beyond one that it misses.
    pub(crate) read_ahead: usize,
    /// Granularity of the log space reserved for undo, in bytes.
    pub(crate) undo_reserve_step: u64,
    /// Leaves of a dropped tree freed at a time.
    pub(crate) drop_leaves: usize,
    /// Maximum number of cells in a node.
    pub(crate) node_cells: usize,
}

impl Core {
    pub(crate) fn id(&self, no: u32) -> PageId {
        PageId::new(self.partition, no)
    }
    #[inline]
    pub(crate) fn read(&self, no: u32) -> Result<PageRef<'_>, MissingPage> {
        self.pool.read(self.id(no))
    }
    #[inline]
    pub(crate) fn write(&self, no: u32) -> Result<PageMut<'_>, MissingPage> {
        self.pool.write(self.id(no))
    }
    #[cold]
    pub(crate) fn corrupt(&self, no: u32, what: &'static str) -> StorageError {
        StorageError::Corrupt { page: self.id(no), what }
    }
    /// Checks that the log has space for a record with `payload_len` bytes of payload. Call it
    /// before changing anything.
    #[inline]
    pub(crate) fn admit(&self, payload_len: usize, need: Need) -> Result<(), MissingPage> {
        let bytes = record_size(payload_len) + need.undo;
        let must = need.urgency == Urgency::Waits;
        let has_room = match need.urgency {
            Urgency::Reserved => self.wal.has_room_for_undo(bytes),
            Urgency::Waits | Urgency::Refusable => self.wal.has_room(bytes, must),
        };
        if has_room { Ok(()) } else { Err(MissingPage::Log { bytes, must }) }
    }
    pub(crate) fn publish_oldest(&self, lsn: u64) {
        // Release: pairs with the Acquire in `Node::checkpoint_locked`. This thread appends next. A
        // checkpoint reads the reserved end of the log before it reads this value. So it either
        // sees this value, or keeps the log from before that append anyway. Then a later checkpoint
        // may see a value before the log that is kept, and ignores it.
        self.oldest[usize::from(self.partition.0)].store(lsn, Ordering::Release);
    }

    /// Applies a record's changes to their pages, and appends it. Returns the record's start and
    /// end. `ops` are the changes that `payload` encodes; `pages` must contain all their pages. A
    /// single change of a single page is atomic; otherwise the caller restores the pages after an
    /// error.
    ///
    /// # Panics
    /// If a change is of a page that was not taken, which is a planning bug, whatever the pages
    /// contain. In debug builds also if `payload` does not encode the changes: redo would then
    /// produce other pages.
    #[inline]
    pub(crate) fn log<'o>(
        &self,
        payload: &'o [u8],
        ops: impl Iterator<Item = (u32, PageOp<'o>)> + Clone,
        pages: &mut [(u32, PageMut<'_>)],
    ) -> Result<(Lsn, Lsn), StorageError> {
        debug_assert!(record::changes(payload).eq(ops.clone()), "a record of other changes");
        for (no, op) in ops {
            let place = pages.iter_mut().find(|(n, _)| *n == no);
            let Some((_, page)) = place else {
                panic!("a change of a page that was not taken: {no}")
            };
            apply(page, &op).map_err(|_| {
                self.corrupt(no, "its content is invalid: a change does not fit it")
            })?;
        }
        pages.iter().for_each(|(_, page)| page.mark_dirty_begin());
        let end = self.wal.append(&[payload]);
        pages.iter_mut().for_each(|(_, page)| page.set_lsn(end));
        Ok((Lsn(end.0 - record_size(payload.len())), end))
    }
}

/// A mini-transaction of several pages, while it takes what it needs.
pub(crate) struct Mini<'p> {
    pub(crate) core: &'p Core,
    need: Need,
    pages: Vec<(u32, PageMut<'p>)>,
    /// Head of the free list and number of pages in the file, once page 0 was taken.
    meta: Option<(u32, u32)>,
    /// Pages that will be added to the free list.
    to_free: Vec<u32>,
    /// Pages taken from the free list, and new pages.
    moved: Moved,
}

impl<'p> Mini<'p> {
    pub(crate) fn new(core: &'p Core, need: Need) -> Self {
        Self {
            core,
            need,
            pages: Vec::new(),
            meta: None,
            to_free: Vec::new(),
            moved: Moved::default(),
        }
    }

    /// Asks for the missing page and all pages of the attempt, so that a retry finds everything.
    #[cold]
    fn blocked(&self, want: MissingPage) -> Blocked {
        let mut wants: Vec<MissingPage> =
            self.pages.iter().map(|(no, _)| MissingPage::Page(self.core.id(*no))).collect();
        wants.push(want);
        Blocked::MissingPage(wants)
    }

    /// Takes a page for the record; a page may be taken twice.
    pub(crate) fn take(&mut self, no: u32) -> Result<(), Blocked> {
        if !self.is_taken(no) {
            let page = self.core.write(no).map_err(|want| self.blocked(want))?;
            self.pages.push((no, page));
        }
        Ok(())
    }

    /// Returns a page that was taken, as it was before this mini-transaction.
    pub(crate) fn page(&self, no: u32) -> &[u8] {
        let page = self.pages.iter().find(|(n, _)| *n == no);
        page.map_or(&[], |(_, page)| page)
    }

    fn meta(&mut self) -> Result<(u32, u32), Blocked> {
        if self.meta.is_none() {
            self.take(0)?;
            let page = self.page(0);
            if page::kind(page) != page::KIND_META {
                return Err(self.core.corrupt(0, "it is not a file's first page").into());
            }
            self.meta = Some((page::free_head(page), page::page_count(page)));
        }
        Ok(self.meta.unwrap_or_default())
    }

    fn is_taken(&self, no: u32) -> bool {
        self.pages.iter().any(|(n, _)| *n == no)
    }

    /// Takes a page that was never used; it reads as zeros.
    pub(crate) fn create(&mut self, no: u32) -> Result<(), Blocked> {
        if self.is_taken(no) {
            return Err(self
                .core
                .corrupt(no, "it is in use, though the file is said to end before it")
                .into());
        }
        let space = match self.need.urgency {
            Urgency::Refusable | Urgency::Waits => FileSpace::Usual,
            Urgency::Reserved => FileSpace::WithReserve,
        };
        let page =
            self.core.pool.create(self.core.id(no), space).map_err(|want| self.blocked(want))?;
        self.pages.push((no, page));
        Ok(())
    }

    /// Checks that rollbacks keep what they may need if one more page is taken, from the free list
    /// or beyond the file's `pages`.
    fn leave_spare(&self, listed: bool, pages: u32) -> Result<(), Blocked> {
        let missing = self.core.spare.missing(self.moved.listed + u32::from(listed));
        if missing == 0 || self.need.urgency == Urgency::Reserved {
            return Ok(());
        }
        let last = u64::from(pages) + u64::from(!listed) + missing - 1;
        let page = self.core.id(u32::try_from(last).unwrap_or(u32::MAX));
        let space = FileSpace::Usual;
        if self.core.files.has_space(page, space) {
            Ok(())
        } else {
            Err(self.blocked(MissingPage::Space { page, space }))
        }
    }

    /// Takes an unused page. Its content is undefined until it gets an `Init` change.
    pub(crate) fn alloc(&mut self) -> Result<u32, Blocked> {
        debug_assert!(self.to_free.is_empty());
        let (free_head, page_count) = self.meta()?;
        self.leave_spare(free_head != 0, page_count)?;
        if free_head != 0 {
            if self.is_taken(free_head) {
                return Err(self
                    .core
                    .corrupt(free_head, "it is in the free list and in use")
                    .into());
            }
            self.take(free_head)?;
            let page = self.page(free_head);
            if page::kind(page) != page::KIND_FREE {
                return Err(self
                    .core
                    .corrupt(free_head, "it is in the free list but not free")
                    .into());
            }
            self.meta = Some((page::next(page), page_count));
            self.moved.listed += 1;
            return Ok(free_head);
        }
        self.create(page_count)?;
        let grown =
            page_count.checked_add(1).ok_or_else(|| self.core.corrupt(0, "the file is full"))?;
        self.meta = Some((0, grown));
        self.moved.created += 1;
        Ok(page_count)
    }

    /// Takes the pages that freeing needs; [`Mini::push_free`] writes the change itself.
    pub(crate) fn take_to_free(&mut self, no: u32) -> Result<(), Blocked> {
        self.meta()?;
        if no == 0 || self.to_free.contains(&no) {
            return Err(self.core.corrupt(no, "it is in use twice").into());
        }
        self.to_free.push(no);
        self.take(no)
    }

    /// Adds a page to the free list. Everything needed was taken before.
    pub(crate) fn push_free(&mut self, buf: &mut Vec<u8>, no: u32) {
        let (free_head, page_count) = self.meta.unwrap_or_default();
        record::push_op(buf, no, &PageOp::Free { next: free_head });
        self.meta = Some((no, page_count));
    }

    /// Starts the record, after everything was taken.
    pub(crate) fn start(&self, buf: &mut Vec<u8>, role: &Role<'_>) {
        record::start_pages(buf, self.core.partition, role);
    }

    /// Writes the change of page 0, applies the changes and logs them. Returns the record's start
    /// and end.
    pub(crate) fn finish(mut self, buf: &mut Vec<u8>) -> Result<(Lsn, Lsn), Blocked> {
        if let Some((free_head, page_count)) = self.meta {
            let page = self.page(0);
            if (page::free_head(page), page::page_count(page)) != (free_head, page_count) {
                record::push_op(buf, 0, &PageOp::Meta { free_head, page_count });
            }
        }
        let max = self.core.wal.max_payload();
        if buf.len() > max {
            return Err(StorageError::ValueTooLong { len: buf.len(), max }.into());
        }
        let (undo, max) = (self.need.undo, self.core.wal.max_undo());
        if undo > max {
            return Err(StorageError::ValueTooLong { len: undo as usize, max: max as usize }.into());
        }
        self.core.admit(buf.len(), self.need).map_err(|want| self.blocked(want))?;
        let before: Vec<_> = self.pages.iter().map(|(_, page)| page::copy(page)).collect();
        let ops = record::changes(buf);
        let logged = self.core.log(buf, ops, &mut self.pages).inspect_err(|_| {
            self.pages
                .iter_mut()
                .zip(&before)
                .for_each(|((_, page), before)| page.copy_from_slice(before));
        })?;
        let moved = Moved { freed: self.to_free.len() as u32, ..self.moved };
        if moved != Moved::default() {
            self.core.spare.moved(moved);
        }
        Ok(logged)
    }
}

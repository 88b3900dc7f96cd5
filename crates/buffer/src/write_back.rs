//! Writes pages: for the cooler, which needs frames, and for checkpoints.
//!
//! The pages of a batch are copied, each under its shared latch for the duration of the copy. Then
//! the log is made durable up to the greatest LSN in the copies, and the copies are written. The
//! pages can be used and changed during the write; a pin keeps them in their frames.
//!
//! # Invariants
//! 1. Write-ahead: a copy reaches [`crate::PageIo`] only after `ensure_durable` of its LSN.
//! 2. Two copies of one page are never written concurrently, nor an older after a newer one:
//!    batches exclude each other.
//! 3. A page is clean only if its content is on disk or in a copy being written under its pin.
//!    After a failed write it is dirty again with its previous rec-LSN, and nothing more is
//!    written. A panic during the write counts as a failed write.
//! 4. A rec-LSN is discarded only when the write that made its page clean is synced (`unsynced`).
//!
//! # Locking
//! A [`crate::fifo_mutex`], held for a batch's I/O. It is not a latch: only the cooler, checkpoints
//! and `min_rec_lsn` acquire it.

use crate::batch::Batch;
use crate::core::Core;
use crate::counters::count;
use crate::error::PageError;
use crate::frame::{CLEAN, Mode, TryLatch};
use crate::page::{self, PAGE_SIZE};
use clearway_latch::lockstat::Class;
use clearway_sync::canary::{self, Bug};
use clearway_types::{FrameId, Lsn, PageId};
use std::panic::Location;
use std::sync::Arc;

/// The lock class of the write-back's turns.
pub(crate) static WRITE_BACK: Class = Class::new("buffer.write_back");
/// Latches of pages that are to be copied, or whose write has failed.
static COPIED_PAGE: Class = Class::new("buffer.page_write_back");

/// A page in a batch.
struct Copied {
    frame: FrameId,
    page: PageId,
    rec_lsn: u64,
    /// Its index in `copies`.
    at: usize,
}

impl<W> Core<W> {
    /// Writes the dirty ones of `frames` (a batch at most), and returns them. With `wait` it waits
    /// for exclusive latches; otherwise it skips pages that are latched exclusively.
    pub fn write_batch(
        self: &Arc<Self>,
        frames: &[FrameId],
        wait: bool,
    ) -> Result<Vec<FrameId>, PageError> {
        let mut batch = self.write_back.lock();
        self.health.check()?;
        let mut copied: Vec<Copied> = Vec::with_capacity(frames.len());
        // Here, because the steps below must also run after a panic.
        let result = self.guarded("writing pages", || {
            for &frame in frames {
                let at = copied.len();
                if let Some((page, rec_lsn)) = self.copy_out(frame, &mut batch.copies[at], wait) {
                    copied.push(Copied { frame, page, rec_lsn, at });
                }
            }
            // In file order.
            copied.sort_unstable_by_key(|c| c.page);
            self.write_copies(&mut batch, &copied)
        });
        let result = result.map_err(|error| self.fail(error));
        for c in &copied {
            // A page that was lost in the meantime is never written again, dirty or not.
            if result.is_err() && self.latch_to_copy(c.frame, c.page, true) {
                self.frame(c.frame).dirty_again(c.rec_lsn);
                self.frame(c.frame).unlatch(Mode::Shared);
            }
            self.frame(c.frame).unpin();
        }
        result.map(|()| copied.into_iter().map(|c| c.frame).collect())
    }

    fn write_copies(&self, batch: &mut Batch, copied: &[Copied]) -> Result<(), PageError> {
        let mut upto = Lsn(0);
        for c in copied {
            let copy = &mut batch.copies[c.at];
            upto = upto.max(page::lsn(copy));
            page::seal(copy, c.page);
        }
        if copied.is_empty() {
            return Ok(());
        }
        if self.health.wal.durable() < upto && !canary::on(Bug::PageBeforeLog) {
            self.health
                .wal
                .ensure_durable(upto)
                .map_err(|error| PageError::Log(Arc::new(error)))?;
        }
        // Before the newer version can be evicted: our pins hold it.
        if let Some(second) = &self.second_level {
            second.invalidate(copied.iter().map(|c| c.page));
        }
        let pages: Vec<_> = copied.iter().map(|c| (c.page, &batch.copies[c.at])).collect();
        self.health.check()?;
        self.io.write(&pages)?;
        self.unsynced.replace(pages.iter().map(|&(id, copy)| (id, page::lsn(copy))));
        count(&self.counters.writes, copied.len() as u64);
        batch.unsynced = copied.iter().map(|c| c.rec_lsn).fold(batch.unsynced, u64::min);
        Ok(())
    }

    /// Copies a dirty page, marks it clean and leaves a pin on it.
    fn copy_out(
        &self,
        frame: FrameId,
        into: &mut [u8; PAGE_SIZE],
        wait: bool,
    ) -> Option<(PageId, u64)> {
        let state = self.frame(frame);
        let page = state.page();
        if !self.latch_to_copy(frame, page, wait) {
            return None;
        }
        if !state.is_dirty() {
            state.unlatch(Mode::Shared);
            return None;
        }
        // SAFETY: we hold the shared latch, so no thread writes the bytes during the copy.
        into.copy_from_slice(unsafe { self.arena.bytes(frame).as_ref() });
        let rec_lsn = state.clean();
        state.release_latch_keep_pin();
        Some((page, rec_lsn))
    }

    /// Pins the page and latches it shared, if the frame holds it and it is not lost. Waits for an
    /// exclusive latch only with `wait`.
    #[track_caller]
    fn latch_to_copy(&self, frame: FrameId, page: PageId, wait: bool) -> bool {
        COPIED_PAGE.request();
        let state = self.frame(frame);
        let mut latched = state.try_latch(page, Mode::Shared);
        if latched == TryLatch::Busy && wait {
            latched =
                COPIED_PAGE.timed(Location::caller(), || state.latch_in_turn(page, Mode::Shared));
        }
        latched == TryLatch::Yes
    }

    pub fn flush_before(self: &Arc<Self>, lsn: Lsn) -> Result<(), PageError> {
        let mut dirty: Vec<_> = (0..self.frames().len() as u32)
            .map(FrameId)
            .filter(|&f| self.frame(f).rec_lsn() < lsn.0)
            .map(|f| (self.frame(f).page(), f))
            .collect();
        dirty.sort_unstable();
        let frames: Vec<_> = dirty.into_iter().map(|(_, f)| f).collect();
        for chunk in frames.chunks(self.write_batch) {
            self.write_batch(chunk, true)?;
        }
        // Also waits for the cooler's current batch, which may have a page that this walk found
        // clean.
        let mut batch = self.write_back.lock();
        self.health.check()?;
        self.guarded("syncing pages", || self.io.sync()).map_err(|error| self.fail(error))?;
        self.unsynced.replace(std::iter::empty());
        batch.unsynced = CLEAN;
        Ok(())
    }

    pub fn min_rec_lsn(&self) -> Option<Lsn> {
        let batch = self.write_back.lock();
        let least = self.frames().iter().map(|f| f.rec_lsn()).fold(batch.unsynced, u64::min);
        (least != CLEAN).then_some(Lsn(least))
    }
}

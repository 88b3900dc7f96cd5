//! The state that the pool's threads and guards share, and the basic steps on it.
//!
//! The modules above are layers:
//! - `guard` and `optimistic` access page contents;
//! - `loader` loads pages;
//! - `write_back` writes pages;
//! - `cooler` frees frames by means of both;
//! - `access` finds and creates pages;
//! - `pool` is the interface for the engine.
//!
//! This module knows none of them: `W` is the type of a waiter for a page or a frame.
//!
//! # Invariants and locking
//! Those of `pool`.

use crate::batch::Batch;
use crate::counters::{Counters, count};
use crate::error::PageError;
use crate::fifo_mutex::FifoMutex;
use crate::frame::{Arena, Frame, FreeFrame, Mode};
use crate::free::FreeList;
use crate::health::Health;
use crate::io::PageIo;
use crate::scan_ring::ScanRing;
use crate::second_level::{SecondLevel, Victim};
use crate::table::PageTable;
use crate::unsynced::Unsynced;
use clearway_env::IoPool;
use clearway_replacement::Replacement;
use clearway_types::{FrameId, PageId};
use std::sync::Arc;

/// The state that the pool's threads and guards share.
pub(crate) struct Core<W> {
    pub frames: Arc<[Frame]>,
    pub arena: Arena,
    pub table: PageTable<W>,
    pub replacement: Box<dyn Replacement>,
    /// If true, a hit is only counted in the frame; otherwise it is reported to the replacement
    /// policy.
    pub counts_uses: bool,
    pub scans: ScanRing,
    pub free: FreeList<W>,
    pub io: Arc<dyn PageIo>,
    pub health: Health,
    pub io_pool: Arc<IoPool>,
    pub write_back: FifoMutex<Batch>,
    /// Pages that were written but may still be lost.
    pub unsynced: Unsynced,
    pub second_level: Option<Arc<SecondLevel>>,
    /// The number of pages in one batch.
    pub write_batch: usize,
    pub counters: Counters,
}

impl<W> Core<W> {
    #[inline]
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// See [`Frame::publish`].
    pub fn publish(&self, frame: FreeFrame, id: PageId, pins: u64, mode: Option<Mode>) -> FrameId {
        self.frame(frame.id()).publish(frame, id, pins, mode)
    }

    /// Takes the frame from its page, if the page is clean and unpinned. The caller must notify the
    /// policy.
    pub fn claim(&self, frame: FrameId) -> Option<Victim> {
        let id = self.frame(frame).page();
        let shard = self.table.latch(id);
        if self.table.find_latched(&shard, &self.frames, id) != Some(frame) {
            return None;
        }
        let free = self.frame(frame).try_claim(frame)?;
        self.table.unlink(&shard, &self.frames, id, frame);
        count(&self.counters.evictions, 1);
        Some(Victim { page: id, frame: free })
    }

    /// See [`Health::guarded`].
    pub fn guarded<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce() -> Result<T, PageError>,
    ) -> Result<T, PageError> {
        self.health.guarded(doing, work)
    }

    /// See [`Health::fail`].
    pub fn fail(&self, error: PageError) -> PageError {
        self.health.fail(error)
    }
}

//! What the pool's threads and guards share, and the steps that all of them are made of.
//!
//! The modules above are layers: `guard` and `optimistic` look into pages, `loader` brings pages
//! in, `write_back` writes them, `cooler` frees frames by means of both, `access` finds and creates
//! pages, and `pool` is what the engine sees. None of them is known here: who waits for a page or a
//! frame is a `W`.
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

/// What the pool's threads and guards share.
pub(crate) struct Core<W> {
    pub frames: Arc<[Frame]>,
    pub arena: Arena,
    pub table: PageTable<W>,
    pub replacement: Box<dyn Replacement>,
    /// Whether a hit is only counted in the frame; else the replacement is told.
    pub counts_uses: bool,
    pub scans: ScanRing,
    pub free: FreeList<W>,
    pub io: Arc<dyn PageIo>,
    pub health: Health,
    pub io_pool: Arc<IoPool>,
    pub write_back: FifoMutex<Batch>,
    /// What was written and may still be lost.
    pub unsynced: Unsynced,
    pub second_level: Option<Arc<SecondLevel>>,
    /// Pages of one batch.
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

    /// Takes the frame from its page, if that is clean and nobody holds it. The policy is to be
    /// told.
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

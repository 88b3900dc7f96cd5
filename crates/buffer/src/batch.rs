//! A batch of pages to be written to disk.

use crate::frame::CLEAN;
use crate::page::PAGE_SIZE;

/// The state that belongs to the holder of the write-back turn.
#[derive(Default)]
pub(crate) struct Batch {
    pub copies: Vec<[u8; PAGE_SIZE]>,
    /// The minimum rec-LSN of the pages written since the last sync.
    pub unsynced: u64,
}

impl Batch {
    pub fn new(pages: usize) -> Self {
        Self { copies: vec![[0; PAGE_SIZE]; pages], unsynced: CLEAN }
    }
}

//! A batch of pages on its way to the disk.

use crate::frame::CLEAN;
use crate::page::PAGE_SIZE;

/// What belongs to the thread whose turn it is to write.
#[derive(Default)]
pub(crate) struct Batch {
    pub copies: Vec<[u8; PAGE_SIZE]>,
    /// The least rec-LSN of the pages written since the last sync.
    pub unsynced: u64,
}

impl Batch {
    pub fn new(pages: usize) -> Self {
        Self { copies: vec![[0; PAGE_SIZE]; pages], unsynced: CLEAN }
    }
}

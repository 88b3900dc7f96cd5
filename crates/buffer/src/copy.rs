//! Reads the partitions' files for a backup, many pages at a time, while the pool may be writing to
//! them.
//!
//! Invariant: each page returned is one version that was written as a whole. A read that overlaps a
//! write may see parts of both versions. Under the latch of the double-write file no page is being
//! written in place, so a page that fails verification there is damaged.

use crate::error::PageError;
use crate::files::{Files, Named, offset, read_zero_filled};
use crate::page::{PAGE_SIZE, verify};
use clearway_types::{PageId, PartitionId};

impl Files {
    /// Returns the number of pages in a partition's file. The last one may be incomplete.
    pub fn page_count(&self, partition: PartitionId) -> Result<u32, PageError> {
        let Named { name, file, .. } = self.partition(PageId::new(partition, 0))?;
        let len = file.len().map_err(|e| PageError::io(name, "stat", e))?;
        Ok(len.div_ceil(PAGE_SIZE as u64) as u32)
    }

    /// Reads the pages from `first` on into `into`, whose length is a multiple of [`PAGE_SIZE`],
    /// and verifies each. Bytes beyond the end of the file are zeros.
    pub fn read_run(&self, first: PageId, into: &mut [u8]) -> Result<(), PageError> {
        let Named { name, file, .. } = self.partition(first)?;
        read_zero_filled(file, name, into, offset(first))?;
        let (pages, _) = into.as_chunks_mut::<PAGE_SIZE>();
        for (page, no) in pages.iter_mut().zip(first.no()..) {
            let id = PageId::new(first.partition(), no);
            if verify(page, id, name).is_err() {
                let _nothing_is_written = self.state();
                read_zero_filled(file, name, page, offset(id))?;
                verify(page, id, name)?;
            }
        }
        Ok(())
    }
}

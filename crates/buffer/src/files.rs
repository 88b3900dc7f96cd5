//! Pages in files: one file per partition, and one for double writes.
//!
//! A batch is written to the double-write file and synced there before it is written in place. A
//! crash can tear pages in only one of the two. [`Files::restore_torn`] restores torn places from
//! the copies.
//!
//! The double-write file consists of a header page and the batch's pages, back to back. The header
//! is little endian: 0..8 magic, 8..12 CRC-32C of bytes 12..8192, 12..16 number of pages, then for
//! each page 8 bytes id and 4 bytes the page's checksum.
//!
//! # Invariants
//! 1. The double-write file is overwritten with another batch only when all pages of its batch are
//!    synced in place, whichever process wrote them.
//! 2. A page is written in place only when the batch that contains it is synced in the double-write
//!    file.
//! 3. A copy is valid only if the header names it with its checksum. Remains of older batches are
//!    therefore ignored.
//! 4. No write needs new space. The double-write file has its blocks from the start, and a page is
//!    created only when its place has them ([`PageIo::make_space`]). A crash of the operating
//!    system may lose blocks that were never written, and redo may write a page beyond the end of
//!    its file, behind a hole. The next start gives all places up to the last page blocks before it
//!    serves.
//!
//! # Locking
//! - One latch protects the double-write file. It is held for a whole batch, including I/O. Its
//!   waiters, the write-back and a copy, do I/O themselves.
//! - One latch for each partition's file protects its growth.
//! - Reads take no latch: the pool never reads a page that it is writing.
//!
//! # State after a crash
//! By invariant 2 there are two cases. If the header or a copy does not verify, all places are
//! intact. Otherwise all copies verify, and each place is old, new, or torn and restorable.
//!
//! # State after the process is killed
//! Its last batch is in the operating system's cache, and the medium may have any part of it. If a
//! sync has failed, no later sync writes the rest. [`Files::restore_torn`] therefore writes the
//! batch again as it was read: first the double-write file, then the places. It then syncs all
//! files. (A batch whose copies are not all intact was never written in place.)
//!
//! # Source
//! The double-write buffer of InnoDB.

use crate::error::PageError;
use crate::io::{FileSpace, PageIo, Place, WRITE_BATCH};
use crate::page::{PAGE_SIZE, lsn, stored_crc, verify};
use clearway_env::{Aligned, Disk, File, IoPool, Open, Write};
use clearway_latch::lockstat::Class;
use clearway_latch::{Latch, LatchGuard};
use clearway_sync::atomic::{AtomicU32, Ordering};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PageId, PartitionId};
use std::io;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"clwy-dw1";
const ENTRIES: usize = 16;
const ENTRY: usize = 12;
/// The maximum number of pages in one batch; `write` splits longer ones.
const BATCH_LIMIT: usize = WRITE_BATCH;
const _: () = assert!(ENTRIES + BATCH_LIMIT * ENTRY <= PAGE_SIZE);

static DOUBLE_WRITE: Class = Class::new("buffer.double_write");
static FILE_GROWTH: Class = Class::new("buffer.file_growth");

pub(crate) struct Named {
    pub(crate) name: Arc<str>,
    pub(crate) file: Arc<dyn File>,
    /// The number of pages from the start of the file that are known to have blocks; 0 after an
    /// open, until space is made.
    allocated: AtomicU32,
    allocating: Latch<()>,
}

/// The pages of all partitions, in `p0000.data`, `p0001.data` and so on, with `double-write.data`
/// beside them.
pub struct Files {
    partitions: Vec<Named>,
    double_write: Named,
    /// Performs the writes of a batch.
    io_pool: Option<Arc<IoPool>>,
    state: Latch<State>,
}

pub(crate) struct State {
    /// Partitions with in-place writes that are not synced; at first all.
    unsynced: Vec<bool>,
    /// Header and pages of a batch, aligned for direct I/O.
    buffer: Aligned,
}

impl Files {
    /// Opens the files in `dir`, which must exist, and creates missing ones.
    pub fn open(disk: &dyn Disk, dir: &Path, partitions: u16) -> Result<Self, PageError> {
        let open = |name: String| {
            let path = dir.join(name);
            let name: Arc<str> = path.display().to_string().into();
            let file = disk
                .open_pages(&path, Open::OpenOrCreate)
                .map_err(|e| PageError::io(&name, "open", e))?;
            Ok(Named {
                name,
                file,
                allocated: AtomicU32::new(0),
                allocating: Latch::new(&FILE_GROWTH, ()),
            })
        };
        let files = Self {
            partitions: (0..partitions)
                .map(|p| open(data_file_name(PartitionId(p))))
                .collect::<Result<_, _>>()?,
            double_write: open("double-write.data".to_owned())?,
            io_pool: None,
            state: Latch::new(
                &DOUBLE_WRITE,
                State {
                    unsynced: vec![true; usize::from(partitions)],
                    buffer: Aligned::new((1 + BATCH_LIMIT) * PAGE_SIZE),
                },
            ),
        };
        let Named { name, file, .. } = &files.double_write;
        let size = (BATCH_LIMIT + 1) * PAGE_SIZE;
        file.allocate(0, size as u64).map_err(|e| PageError::io(name, "extend", e))?;
        disk.sync_dir(dir)
            .map_err(|e| PageError::io(&dir.display().to_string().into(), "sync", e))?;
        Ok(files)
    }

    /// Uses `io_pool` for the writes of each batch, in parallel where possible. Without it, writes
    /// run one after another.
    pub fn with_io_pool(mut self, io_pool: Arc<IoPool>) -> Self {
        io_pool.register(self.state.lock().buffer.memory());
        self.io_pool = Some(io_pool);
        self
    }

    pub(crate) fn partition(&self, id: PageId) -> Result<&Named, PageError> {
        // An id read from disk may have bits set that no valid page id has.
        let whole = PageId::new(id.partition(), id.no()) == id;
        self.partitions
            .get(usize::from(id.partition().0))
            .filter(|_| whole)
            .ok_or(PageError::NoFile(id))
    }

    /// The latch of the double-write file.
    #[track_caller]
    pub(crate) fn state(&self) -> LatchGuard<'_, State> {
        self.state.lock()
    }

    fn sync_places(&self, state: &mut State) -> Result<(), PageError> {
        for (named, unsynced) in self.partitions.iter().zip(&mut state.unsynced) {
            if *unsynced {
                named.file.sync_data().map_err(|e| PageError::io(&named.name, "sync", e))?;
                *unsynced = false;
            }
        }
        Ok(())
    }

    fn write_batch(
        &self,
        state: &mut State,
        pages: &[(PageId, &[u8; PAGE_SIZE])],
    ) -> Result<(), PageError> {
        for &(id, _) in pages {
            self.partition(id)?;
        }
        if !canary::on(Bug::DoubleWriteOrder) {
            self.sync_places(state)?;
        }
        let len = (1 + pages.len()) * PAGE_SIZE;
        fill_double_write(&mut state.buffer[..len], pages);
        let Named { name, file, .. } = &self.double_write;
        file.write_all_at(&state.buffer[..len], 0).map_err(|e| PageError::io(name, "write", e))?;
        file.sync_data().map_err(|e| PageError::io(name, "sync", e))?;
        let State { unsynced, buffer } = state;
        let mut copies = &buffer[PAGE_SIZE..len];
        let mut runs = Vec::new();
        for run in pages.chunk_by(|(a, _), (b, _)| a.to_u64() + 1 == b.to_u64()) {
            let (bytes, rest) = copies.split_at(run.len() * PAGE_SIZE);
            runs.push((run[0].0, bytes));
            copies = rest;
        }
        self.write_places(unsynced, &runs)
    }

    /// Writes runs of consecutive pages, each from its first page on.
    fn write_places(
        &self,
        unsynced: &mut [bool],
        runs: &[(PageId, &[u8])],
    ) -> Result<(), PageError> {
        let mut writes = Vec::with_capacity(runs.len());
        for &(first, bytes) in runs {
            unsynced[usize::from(first.partition().0)] = true;
            writes.push(Write { file: &self.partition(first)?.file, offset: offset(first), bytes });
        }
        let one_after_another = |(number, write): (usize, &Write<'_>)| {
            write.file.write_all_at(write.bytes, write.offset).map_err(|error| (number, error))
        };
        let written = match &self.io_pool {
            Some(io_pool) => io_pool.write_all(&writes),
            None => writes.iter().enumerate().try_for_each(one_after_another),
        };
        written.map_err(|(number, error)| match self.partition(runs[number].0) {
            Ok(Named { name, .. }) => PageError::io(name, "write", error).at(runs[number].0),
            Err(error) => error,
        })
    }

    /// Returns the highest LSN of the intact copies in the double-write file. The log was durable
    /// up to that LSN when they were written.
    pub fn newest_copy(&self) -> Result<Lsn, PageError> {
        Ok(self.copies()?.iter().map(|(_, copy)| lsn(copy)).max().unwrap_or_default())
    }

    /// Returns the parts of the double-write file that do not verify, and where they are. A crash
    /// or damage may cause them. They are harmless unless a place is torn too.
    pub fn bad_copies(&self) -> Result<Vec<(u64, &'static str)>, PageError> {
        let Named { name, file, .. } = &self.double_write;
        let mut header = [0; PAGE_SIZE];
        read_zero_filled(file, name, &mut header, 0)?;
        let entries = header_entries(&header);
        if entries.is_empty() && header.iter().any(|byte| *byte != 0) {
            return Ok(vec![(0, "its header does not verify")]);
        }
        let mut bad = Vec::new();
        for ((id, crc), at) in entries.into_iter().zip((1..).map(|at| at * PAGE_SIZE as u64)) {
            let mut copy = [0; PAGE_SIZE];
            read_zero_filled(file, name, &mut copy, at)?;
            if stored_crc(&copy) != crc || verify(&copy, id, name).is_err() {
                bad.push((at, "a copy does not verify"));
            }
        }
        Ok(bad)
    }

    /// Returns the intact copies of the double-write file.
    fn copies(&self) -> Result<Vec<(PageId, [u8; PAGE_SIZE])>, PageError> {
        let Named { name, file, .. } = &self.double_write;
        let mut header = [0; PAGE_SIZE];
        read_zero_filled(file, name, &mut header, 0)?;
        let mut copies = Vec::new();
        for (at, (id, crc)) in header_entries(&header).into_iter().enumerate() {
            let mut copy = [0; PAGE_SIZE];
            read_zero_filled(file, name, &mut copy, (at as u64 + 1) * PAGE_SIZE as u64)?;
            if stored_crc(&copy) == crc && verify(&copy, id, name).is_ok() {
                copies.push((id, copy));
            }
        }
        Ok(copies)
    }
}

/// Returns how many pages at the end of a file of `pages` pages are reserved for operations that
/// must not fail.
fn kept(pages: u32) -> u32 {
    (pages / 16).clamp(2, 16)
}

/// Returns how many pages are allocated beyond the one that is needed.
fn ahead(pages: u32) -> u32 {
    (pages / 8).clamp(8, 1024)
}

/// Returns the name of a partition's file.
pub fn data_file_name(partition: PartitionId) -> String {
    format!("p{:04}.data", partition.0)
}

pub(crate) fn offset(id: PageId) -> u64 {
    u64::from(id.no()) * PAGE_SIZE as u64
}

/// Reads pages; bytes beyond the end of the file are zeros.
pub(crate) fn read_zero_filled(
    file: &Arc<dyn File>,
    name: &Arc<str>,
    into: &mut [u8],
    offset: u64,
) -> Result<(), PageError> {
    file.read_zero_filled_at(into, offset).map_err(|e| PageError::io(name, "read", e))
}

/// Fills a buffer with header and pages.
fn fill_double_write(buffer: &mut [u8], pages: &[(PageId, &[u8; PAGE_SIZE])]) {
    let (header, copies) = buffer.split_at_mut(PAGE_SIZE);
    header.fill(0);
    header[..8].copy_from_slice(MAGIC);
    header[12..16].copy_from_slice(&(pages.len() as u32).to_le_bytes());
    for (&(id, page), entry) in pages.iter().zip(header[ENTRIES..].chunks_exact_mut(ENTRY)) {
        entry[..8].copy_from_slice(&id.to_u64().to_le_bytes());
        entry[8..].copy_from_slice(&page[..4]);
    }
    let crc = crc32c::crc32c(&header[12..]);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
    for ((_, page), copy) in pages.iter().zip(copies.chunks_exact_mut(PAGE_SIZE)) {
        copy.copy_from_slice(&page[..]);
    }
}

/// Returns the pages that the header names, with their checksums; none if it does not verify.
fn header_entries(header: &[u8; PAGE_SIZE]) -> Vec<(PageId, u32)> {
    let u32_at = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if header[..8] != MAGIC[..] || u32_at(8) != crc32c::crc32c(&header[12..]) {
        return Vec::new();
    }
    let count = (u32_at(12) as usize).min(BATCH_LIMIT);
    (0..count)
        .map(|i| ENTRIES + i * ENTRY)
        .map(|at| {
            (
                PageId::from_u64(u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32),
                u32_at(at + 8),
            )
        })
        .collect()
}

impl PageIo for Files {
    fn has_space(&self, id: PageId, space: FileSpace) -> bool {
        // Acquire: pairs with the Release in `make_space`.
        let allocated = |named: &Named| named.allocated.load(Ordering::Acquire);
        // The read or the write rejects a page that has no file.
        self.partition(id).is_ok_and(|named| {
            let pages = allocated(named);
            let usable = match space {
                FileSpace::Usual => pages.saturating_sub(kept(pages)),
                FileSpace::WithReserve => pages,
            };
            id.no() < usable
        })
    }

    fn make_space(&self, id: PageId, space: FileSpace) -> Result<(), PageError> {
        let named = self.partition(id)?;
        let _one_at_a_time = named.allocating.lock();
        if self.has_space(id, space) {
            return Ok(());
        }
        // Acquire: pairs with the Release store after an allocation.
        let have = named.allocated.load(Ordering::Acquire);
        // Without `fallocate`, the file grows by zeros from its end on, and its holes are read and
        // rewritten. After an open, redo may have changed pages there and beyond the end, which may
        // be written back meanwhile. Later no page beyond the allocated ones exists.
        let _no_writes = (have == 0).then(|| self.state());
        let need = id.no().saturating_add(1);
        // `kept` of the larger page count is the same as before the addition, or one more.
        let least = match space {
            FileSpace::Usual => need.saturating_add(kept(need) + 1),
            FileSpace::WithReserve => need,
        };
        let grow = |pages: u32| {
            let (from, to) =
                (u64::from(have) * PAGE_SIZE as u64, u64::from(pages) * PAGE_SIZE as u64);
            named.file.allocate(from, to - from).map(|()| pages)
        };
        let grown = grow(least.saturating_add(ahead(need)))
            .or_else(|error| if clearway_env::is_full(&error) { grow(least) } else { Err(error) });
        let pages = grown.map_err(|e| PageError::io(&named.name, "extend", e).at(id))?;
        // Release: pairs with the Acquire in `has_space`.
        named.allocated.store(pages, Ordering::Release);
        Ok(())
    }

    fn file(&self, id: PageId) -> Arc<str> {
        self.partition(id).map_or("no file".into(), |named| named.name.clone())
    }

    fn place(&self, id: PageId) -> Result<Place, PageError> {
        Ok(Place { file: self.partition(id)?.file.clone(), offset: offset(id) })
    }

    fn accept(
        &self,
        id: PageId,
        page: &mut [u8; PAGE_SIZE],
        read: io::Result<usize>,
    ) -> Result<(), PageError> {
        let Named { name, .. } = self.partition(id)?;
        let filled = read.map_err(|e| PageError::io(name, "read", e).at(id))?;
        page[filled..].fill(0);
        verify(page, id, name)
    }

    fn write(&self, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError> {
        let mut state = self.state();
        pages.chunks(BATCH_LIMIT).try_for_each(|batch| self.write_batch(&mut state, batch))
    }

    fn sync(&self) -> Result<(), PageError> {
        self.sync_places(&mut self.state())
    }

    fn restore_torn(&self) -> Result<usize, PageError> {
        let mut state = self.state();
        let State { unsynced, buffer } = &mut *state;
        let Named { name, file, .. } = &self.double_write;
        read_zero_filled(file, name, buffer, 0)?;
        let entries = buffer.first_chunk().map(header_entries).unwrap_or_default();
        if !entries.is_empty() {
            let len = (1 + entries.len()) * PAGE_SIZE;
            file.write_all_at(&buffer[..len], 0).map_err(|e| PageError::io(name, "write", e))?;
            file.sync_data().map_err(|e| PageError::io(name, "sync", e))?;
        }
        let (copies, _) = buffer[PAGE_SIZE..].as_chunks_mut::<PAGE_SIZE>();
        let mut restored = 0;
        let mut places = Vec::new();
        for ((id, crc), copy) in entries.into_iter().zip(copies) {
            if stored_crc(copy) != crc || verify(copy, id, name).is_err() {
                continue;
            }
            let Named { name, file, .. } = self.partition(id)?;
            let mut place = [0; PAGE_SIZE];
            read_zero_filled(file, name, &mut place, offset(id))?;
            // Never written: redo makes the page.
            if place == [0; PAGE_SIZE] {
                continue;
            }
            if verify(&place, id, name).is_ok() {
                copy.copy_from_slice(&place);
            } else {
                restored += 1;
            }
            places.push((id, &copy[..]));
        }
        self.write_places(unsynced, &places)?;
        self.sync_places(&mut state)?;
        Ok(restored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Disks outlive releases: these bytes are version 1 of the double-write file.
    #[test]
    fn the_format_stays() {
        let mut page = [0; PAGE_SIZE];
        page[..4].copy_from_slice(&[1, 2, 3, 4]);
        let mut buffer = vec![9; 2 * PAGE_SIZE];
        fill_double_write(&mut buffer, &[(PageId::new(PartitionId(3), 7), &page)]);
        assert_eq!(buffer.len(), 2 * PAGE_SIZE);
        assert_eq!(buffer[..8], *b"clwy-dw1");
        assert_eq!(buffer[8..12], [74, 12, 35, 67]);
        assert_eq!(buffer[12..16], [1, 0, 0, 0]);
        assert_eq!(buffer[16..28], [7, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 4]);
        assert!(buffer[28..PAGE_SIZE].iter().all(|byte| *byte == 0) && buffer[PAGE_SIZE..] == page);
        assert_eq!(data_file_name(PartitionId(12)), "p0012.data");
    }
}

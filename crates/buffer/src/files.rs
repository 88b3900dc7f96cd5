//! Pages in files: one a partition, and one for double writing.
//!
//! A batch is written to the double-write file and synced there before it is written in place. A crash can tear pages in
//! only one of the two, and [`Files::restore_torn`] mends the places from the copies.
//!
//! The double-write file is a header page and then the batch's pages, back to back. Header, little endian: 0..8 magic,
//! 8..12 CRC-32C of bytes 12..8192, 12..16 number of pages, then for each page 8 bytes id and 4 bytes the page's checksum.
//!
//! # Invariants
//! 1. The double-write file is overwritten only when all pages of its batch are synced in place.
//! 2. A place is written only when the batch that has the page is synced in the double-write file.
//! 3. A copy counts only if the header names it with its checksum: what is left of older batches does not.
//!
//! # Locking
//! One mutex over the double-write file, held through a batch. Reads take none: the pool never reads a page that it is
//! writing.
//!
//! # What a crash leaves
//! By 2 either the header or a copy does not verify, and then the places are whole; or all copies do, and each place is
//! old, new, or torn and mended.
//!
//! # Source
//! The double-write buffer of InnoDB.

use crate::error::PageError;
use crate::io::PageIo;
use crate::page::{PAGE_SIZE, stored_crc, verify};
use clearway_env::{Disk, File, Open};
use clearway_types::{PageId, PartitionId};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAGIC: &[u8; 8] = b"clwy-dw1";
const ENTRIES: usize = 16;
const ENTRY: usize = 12;
/// The most pages of one batch; `write` splits what is longer.
const BATCH_LIMIT: usize = 256;
const _: () = assert!(ENTRIES + BATCH_LIMIT * ENTRY <= PAGE_SIZE);

struct Named {
    name: Arc<str>,
    file: Arc<dyn File>,
}

/// The pages of all partitions, in `p0000.data`, `p0001.data` and so on, and `double-write.data` beside them.
pub struct Files {
    partitions: Vec<Named>,
    double_write: Named,
    state: Mutex<State>,
}

struct State {
    /// Partitions with writes in place that are not synced.
    unsynced: Vec<bool>,
    buffer: Vec<u8>,
}

impl Files {
    /// Opens the files in `dir`, which must exist, and creates those that are missing.
    pub fn open(disk: &dyn Disk, dir: &Path, partitions: u16) -> Result<Self, PageError> {
        let open = |name: String| {
            let path = dir.join(name);
            let name: Arc<str> = path.display().to_string().into();
            let file = disk.open(&path, Open::OpenOrCreate).map_err(|e| PageError::io(&name, "open", e))?;
            Ok(Named { name, file })
        };
        let files = Self {
            partitions: (0..partitions).map(|p| open(file_name(PartitionId(p)))).collect::<Result<_, _>>()?,
            double_write: open("double-write.data".to_owned())?,
            state: Mutex::new(State { unsynced: vec![false; usize::from(partitions)], buffer: Vec::new() }),
        };
        disk.sync_dir(dir).map_err(|e| PageError::io(&dir.display().to_string().into(), "sync", e))?;
        Ok(files)
    }

    fn partition(&self, id: PageId) -> Result<&Named, PageError> {
        self.partitions.get(usize::from(id.partition().0)).ok_or(PageError::NoFile(id))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn write_batch(&self, state: &mut State, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError> {
        for &(id, _) in pages {
            self.partition(id)?;
        }
        self.sync_places(state)?;
        fill_double_write(&mut state.buffer, pages);
        let Named { name, file } = &self.double_write;
        file.write_all_at(&state.buffer, 0).map_err(|e| PageError::io(name, "write", e))?;
        file.sync_data().map_err(|e| PageError::io(name, "sync", e))?;
        let State { unsynced, buffer } = state;
        let mut copies = &buffer[PAGE_SIZE..];
        for run in pages.chunk_by(|(a, _), (b, _)| a.to_u64() + 1 == b.to_u64()) {
            let (bytes, rest) = copies.split_at(run.len() * PAGE_SIZE);
            self.write_places(unsynced, run[0].0, bytes)?;
            copies = rest;
        }
        Ok(())
    }

    /// Writes pages of consecutive numbers, from `first` on.
    fn write_places(&self, unsynced: &mut [bool], first: PageId, bytes: &[u8]) -> Result<(), PageError> {
        let Named { name, file } = self.partition(first)?;
        unsynced[usize::from(first.partition().0)] = true;
        file.write_all_at(bytes, offset(first)).map_err(|e| PageError::io(name, "write", e))
    }

    /// The double-write file's intact copies.
    fn copies(&self) -> Result<Vec<(PageId, [u8; PAGE_SIZE])>, PageError> {
        let Named { name, file } = &self.double_write;
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

/// The name of a partition's file.
fn file_name(partition: PartitionId) -> String {
    format!("p{:04}.data", partition.0)
}

fn offset(id: PageId) -> u64 {
    u64::from(id.no()) * PAGE_SIZE as u64
}

/// Reads a page; what lies behind the file's end is zeros.
fn read_zero_filled(
    file: &Arc<dyn File>,
    name: &Arc<str>,
    into: &mut [u8; PAGE_SIZE],
    offset: u64,
) -> Result<(), PageError> {
    let mut filled = 0;
    while filled < PAGE_SIZE {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(PageError::io(name, "read", e)),
        }
    }
    into[filled..].fill(0);
    Ok(())
}

fn fill_double_write(buffer: &mut Vec<u8>, pages: &[(PageId, &[u8; PAGE_SIZE])]) {
    buffer.clear();
    buffer.resize(PAGE_SIZE, 0);
    buffer[..8].copy_from_slice(MAGIC);
    buffer[12..16].copy_from_slice(&(pages.len() as u32).to_le_bytes());
    for (&(id, page), entry) in pages.iter().zip(buffer[ENTRIES..].chunks_exact_mut(ENTRY)) {
        entry[..8].copy_from_slice(&id.to_u64().to_le_bytes());
        entry[8..].copy_from_slice(&page[..4]);
    }
    let crc = crc32c::crc32c(&buffer[12..]);
    buffer[8..12].copy_from_slice(&crc.to_le_bytes());
    pages.iter().for_each(|(_, page)| buffer.extend_from_slice(&page[..]));
}

/// The pages that the header names, with their checksums; none if it does not verify.
fn header_entries(header: &[u8; PAGE_SIZE]) -> Vec<(PageId, u32)> {
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[..8] != MAGIC[..] || u32_at(8) != crc32c::crc32c(&header[12..]) {
        return Vec::new();
    }
    let count = (u32_at(12) as usize).min(BATCH_LIMIT);
    (0..count)
        .map(|i| ENTRIES + i * ENTRY)
        .map(|at| (PageId::from_u64(u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32), u32_at(at + 8)))
        .collect()
}

impl PageIo for Files {
    fn read(&self, id: PageId, into: &mut [u8; PAGE_SIZE]) -> Result<(), PageError> {
        let Named { name, file } = self.partition(id)?;
        read_zero_filled(file, name, into, offset(id))?;
        verify(into, id, name)
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
        let mut restored = 0;
        for (id, copy) in self.copies()? {
            let Named { name, file } = self.partition(id)?;
            let mut place = [0; PAGE_SIZE];
            read_zero_filled(file, name, &mut place, offset(id))?;
            if verify(&place, id, name).is_err() {
                self.write_places(&mut state.unsynced, id, &copy)?;
                restored += 1;
            }
        }
        self.sync_places(&mut state)?;
        Ok(restored)
    }
}

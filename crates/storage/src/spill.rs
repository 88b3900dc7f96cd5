//! A temporary file of blocks that no log record refers to: row versions that do not fit in memory.
//!
//! The code that packs blocks does no I/O. It reserves space here, passes a [`SpillWrite`] or a
//! [`SpillRead`] to an I/O thread, and collects the result later.
//!
//! Invariants
//! 1. A slot of the file belongs to one [`SpillBlock`], from [`SpillFile::reserve`] until its last
//!    owner drops it. Reads and writes in progress own their block, so no slot is written for a new
//!    block while the old one is read or written.
//! 2. The file is never longer than its limit.
//! 3. Data read has the checksum of the data reserved; damage makes the read fail.
//! 4. Nothing depends on the file after a start. Each start removes it, and nothing in it is
//!    synced.
//!
//! Locking: the latch of the free slots, and those of results, for a few instructions each; no I/O
//! under them. A crash leaves the file, which the next start removes.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clearway_env::{Disk, File, Open};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU64, Ordering};

static SLOTS: Class = Class::new("storage.spill_slots");
static RESULTS: Class = Class::new("storage.spill_results");

/// Minimum size of a slot, in bytes.
const LEAST_SLOT: usize = 64;

/// The file's name in the data directory.
const NAME: &str = "versions.tmp";

/// A temporary file, shared by the partitions of a node.
pub struct SpillFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Opened by the first write.
    file: OnceLock<Arc<dyn File>>,
    slot_bytes: usize,
    /// Maximum number of slots.
    limit: u32,
    slots: Latch<Slots>,
    /// Numbers of blocks written and read so far.
    written: AtomicU64,
    read: AtomicU64,
}

#[derive(Default)]
struct Slots {
    /// Free slots before `end`.
    free: BTreeSet<u32>,
    /// Slots from here on were never used.
    end: u32,
}

impl Slots {
    fn available(&self, limit: u32) -> usize {
        self.free.len() + (limit - self.end) as usize
    }

    fn take(&mut self) -> u32 {
        // The first free slot keeps the file as short as possible.
        self.free.pop_first().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }
}

impl SpillFile {
    /// Prepares a file in `dir` with at most `limit` bytes, in slots of `slot_bytes` (at least 64).
    /// The first write creates it. Removes the file of an earlier process. Returns `None` if not
    /// even one slot fits.
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        limit: u64,
        slot_bytes: usize,
    ) -> Option<Arc<Self>> {
        let path = dir.join(NAME);
        let removed =
            disk.exists(&path).and_then(|there| if there { disk.remove(&path) } else { Ok(()) });
        if let Err(error) = removed {
            tracing::warn!("the temporary file of an earlier start cannot be removed: {error}");
        }
        let slot_bytes = slot_bytes.max(LEAST_SLOT);
        let limit = u32::try_from(limit / slot_bytes as u64).unwrap_or(u32::MAX);
        let (file, slots) = (OnceLock::new(), Latch::new(&SLOTS, Slots::default()));
        let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
        (limit > 0)
            .then(|| Arc::new(Self { disk, path, file, slot_bytes, limit, slots, written, read }))
    }

    /// Returns the size of a slot in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns true if a block of one slot can be reserved now.
    pub fn has_room(&self) -> bool {
        self.slots.lock().available(self.limit) > 0
    }

    /// Returns the bytes of the slots in use.
    pub fn bytes(&self) -> u64 {
        let slots = self.slots.lock();
        (slots.end as usize - slots.free.len()) as u64 * self.slot_bytes as u64
    }

    /// Returns the numbers of blocks written and read so far.
    pub fn counts(&self) -> (u64, u64) {
        // Relaxed, here and below: statistics only.
        (self.written.load(Ordering::Relaxed), self.read.load(Ordering::Relaxed))
    }

    /// Reserves space for these bytes. Returns `None` if the file is full.
    pub fn reserve(self: &Arc<Self>, bytes: &[u8]) -> Option<Arc<SpillBlock>> {
        let count = bytes.len().div_ceil(self.slot_bytes);
        let mut free = self.slots.lock();
        if free.available(self.limit) < count {
            return None;
        }
        let slots = (0..count).map(|_| free.take()).collect();
        drop(free);
        let (len, checksum) = (bytes.len(), crc32c::crc32c(bytes));
        Some(Arc::new(SpillBlock { file: self.clone(), slots, len, checksum }))
    }

    /// Removes the file's name at the end of the process; its content is lost.
    pub fn remove(&self) {
        if self.file.get().is_some()
            && let Err(error) = self.disk.remove(&self.path)
        {
            tracing::debug!("a temporary file stays until the next start: {error}");
        }
    }

    fn file(&self) -> io::Result<Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(file.clone());
        }
        // Two threads may both open the file; one of the handles is kept.
        let file = self.disk.open(&self.path, Open::Private)?;
        Ok(self.file.get_or_init(|| file).clone())
    }
}

/// Space in the file that belongs to one block of bytes.
pub struct SpillBlock {
    file: Arc<SpillFile>,
    slots: Vec<u32>,
    len: usize,
    checksum: u32,
}

impl SpillBlock {
    fn places(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().map(|slot| u64::from(*slot) * self.file.slot_bytes as u64)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.file()?;
        let mut pieces = bytes.chunks(self.file.slot_bytes).zip(self.places());
        pieces.try_for_each(|(piece, at)| file.write_all_at(piece, at))?;
        self.file.written.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self) -> io::Result<Arc<[u8]>> {
        let file = self.file.file()?;
        let mut bytes = vec![0; self.len];
        let mut pieces = bytes.chunks_mut(self.file.slot_bytes).zip(self.places());
        pieces.try_for_each(|(piece, at)| file.read_exact_at(piece, at))?;
        if crc32c::crc32c(&bytes) != self.checksum {
            let text = format!("{} has a block with a wrong checksum", self.file.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.file.read.fetch_add(1, Ordering::Relaxed);
        Ok(bytes.into())
    }
}

impl Drop for SpillBlock {
    fn drop(&mut self) {
        self.file.slots.lock().free.extend(&self.slots);
    }
}

impl std::fmt::Debug for SpillBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillBlock")
            .field("slots", &self.slots)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Results of I/O, keyed by the caller's number of each block.
pub struct SpillResults<T>(Latch<Vec<(u64, T)>>);

impl<T> Default for SpillResults<T> {
    fn default() -> Self {
        Self(Latch::new(&RESULTS, Vec::new()))
    }
}

impl<T> SpillResults<T> {
    /// Takes the results so far.
    pub fn take(&self) -> Vec<(u64, T)> {
        std::mem::take(&mut *self.0.lock())
    }

    fn put(&self, block: u64, result: T) {
        self.0.lock().push((block, result));
    }
}

/// Blocks to write, in this order.
pub struct SpillWrite {
    /// Each block's number, space and bytes.
    pub blocks: Vec<(u64, Arc<SpillBlock>, Arc<[u8]>)>,
    /// Receives whether each block was written.
    pub results: Arc<SpillResults<bool>>,
}

impl SpillWrite {
    /// Writes the blocks. Blocks on the disk, so it runs on an I/O thread. After a failed write it
    /// tries no other.
    pub fn run(self) {
        let mut failed = false;
        for (number, block, bytes) in &self.blocks {
            if !failed && let Err(error) = block.write(bytes) {
                tracing::warn!("row versions cannot be written to the temporary file: {error}");
                failed = true;
            }
            self.results.put(*number, !failed);
        }
    }
}

impl std::fmt::Debug for SpillWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillWrite").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

/// Blocks that a reader needs.
pub struct SpillRead {
    /// Each block with its number.
    pub blocks: Vec<(u64, Arc<SpillBlock>)>,
    /// Receives the bytes of each block; `None` if it cannot be read.
    pub results: Arc<SpillResults<Option<Arc<[u8]>>>>,
}

impl SpillRead {
    /// Reads the blocks. Blocks on the disk, so it runs on an I/O thread.
    pub fn run(self) {
        for (number, block) in &self.blocks {
            let bytes = block.read().inspect_err(|error| {
                tracing::error!("row versions cannot be read from the temporary file: {error}");
            });
            self.results.put(*number, bytes.ok());
        }
    }
}

impl std::fmt::Debug for SpillRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillRead").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use clearway_testkit::MemDisk;

    const SLOT: usize = 512;

    fn file(disk: &MemDisk, slots: u64) -> Arc<SpillFile> {
        let disk = Arc::new(disk.clone());
        SpillFile::new(disk, Path::new("/data"), slots * SLOT as u64, SLOT).expect("a slot fits")
    }

    fn write(block: &Arc<SpillBlock>, bytes: &[u8]) -> bool {
        let results = Arc::<SpillResults<bool>>::default();
        SpillWrite { blocks: vec![(7, block.clone(), bytes.into())], results: results.clone() }
            .run();
        let taken = results.take();
        assert_eq!((taken.len(), taken[0].0), (1, 7));
        taken[0].1
    }

    fn read(block: &Arc<SpillBlock>) -> Option<Arc<[u8]>> {
        let results = Arc::<SpillResults<Option<Arc<[u8]>>>>::default();
        SpillRead { blocks: vec![(9, block.clone())], results: results.clone() }.run();
        results.take().pop().expect("a result").1
    }

    fn bytes(fill: u8, len: usize) -> Vec<u8> {
        vec![fill; len]
    }

    #[test]
    fn blocks_round_trip_and_slots_are_reused() {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/data")).expect("a directory");
        let file = file(&disk, 4);
        let long = bytes(1, 2 * SLOT + 1);
        let first = file.reserve(&long).expect("three slots");
        assert!(write(&first, &long));
        assert_eq!(file.bytes(), 3 * SLOT as u64);
        assert!(file.reserve(&bytes(2, SLOT + 1)).is_none(), "one slot is left");
        let second = file.reserve(&bytes(2, SLOT)).expect("the last slot");
        assert!(write(&second, &bytes(2, SLOT)) && !file.has_room());
        assert_eq!(read(&first).as_deref(), Some(&long[..]));
        drop(first);
        let third = file.reserve(&bytes(3, 10)).expect("a slot again");
        assert!(write(&third, &bytes(3, 10)));
        assert_eq!(
            (read(&second).as_deref(), read(&third).as_deref()),
            (Some(&bytes(2, SLOT)[..]), Some(&[3; 10][..]))
        );
        assert_eq!(third.slots, [0]);
    }

    /// Invariant 1: a read in progress owns the slots.
    #[test]
    fn slot_is_not_reused_during_a_read() {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/data")).expect("a directory");
        let file = file(&disk, 1);
        let block = file.reserve(&bytes(1, 100)).expect("the slot");
        assert!(write(&block, &bytes(1, 100)));
        let results = Arc::<SpillResults<Option<Arc<[u8]>>>>::default();
        let reading = SpillRead { blocks: vec![(1, block)], results: results.clone() };
        assert!(file.reserve(&bytes(2, 100)).is_none());
        reading.run();
        assert_eq!(results.take().pop().expect("a result").1.as_deref(), Some(&bytes(1, 100)[..]));
        assert!(file.reserve(&bytes(2, 100)).is_some());
    }

    /// Invariants 3 and 4.
    #[test]
    fn unwritten_blocks_fail_and_start_removes_the_file() {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/data")).expect("a directory");
        let path = Path::new("/data").join(NAME);
        let old = file(&disk, 4);
        assert!(!disk.exists(&path).expect("a look"), "nothing was written");
        let block = old.reserve(&bytes(1, 100)).expect("a slot");
        assert!(write(&block, &bytes(1, 100)) && disk.exists(&path).expect("a look"));
        let never = old.reserve(&bytes(2, 100)).expect("a slot");
        assert_eq!(read(&never), None);
        let stale = old.reserve(&bytes(3, 100)).expect("a slot");
        assert!(write(&stale, &bytes(4, 100)));
        assert_eq!(read(&stale), None, "its checksum is another's");
        let new = file(&disk, 4);
        assert!(!disk.exists(&path).expect("a look") && new.bytes() == 0);
        assert!(SpillFile::new(Arc::new(disk), Path::new("/data"), 0, SLOT).is_none());
    }
}

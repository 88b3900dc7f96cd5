//! Another engine on this pool: a million counters in a file, with a log of its own.
//!
//! `cargo run -p clearway-buffer --example counters` works in a new directory and removes it. The
//! engine opens the pool on a file, creates pages, changes and reads more of them than the pool has
//! frames, takes checkpoints, and recovers from a power failure.
//!
//! An engine's obligations to the pool are in [`Log`] (the write-ahead rule), [`Counters::add`]
//! (the order of steps of a change) and [`Counters::open`] (the steps before the first read).

use clearway_buffer::{
    FileSpace, Files, HEADER, MissingPage, PAGE_SIZE, PageError, PageIo, PageMut, Pin, Pool,
    PoolConfig, WalBarrier, lsn,
};
use clearway_env::{Disk, File, IoPool, Open, OsDisk};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, PageId, PartitionId};
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of 8-byte counters in a page, after the pool's header.
const PER_PAGE: u32 = ((PAGE_SIZE - HEADER) / 8) as u32;
/// Size of a record in bytes: page, the counter's offset there, its new value, and a checksum of
/// these; little-endian.
const RECORD: usize = 20;

/// A record's end, page, offset there, and new value.
type Record = (Lsn, u32, u32, u64);
type Res<T> = Result<T, Box<dyn Error>>;

fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// Returns a counter's page and its offset there.
fn place(counter: u32) -> (PageId, usize) {
    (page(counter / PER_PAGE), HEADER + (counter % PER_PAGE) as usize * 8)
}

/// A file of records. An LSN is the offset of a record's end.
struct Log {
    file: Arc<dyn File>,
    /// Appended records that are not in the file yet.
    tail: Mutex<Vec<u8>>,
    appended: AtomicU64,
    durable: AtomicU64,
    /// Held during a write and its sync. An append does not need it, since it holds a page's latch
    /// and must not wait for I/O.
    writing: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Opens the log. Also returns its records up to the first one that a crash has left
    /// incomplete.
    fn open(disk: &dyn Disk, path: &Path) -> Res<(Self, Vec<Record>)> {
        let file = disk.open(path, Open::OpenOrCreate)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut records = Vec::new();
        let mut end = 0;
        for record in bytes.chunks_exact(RECORD) {
            let u32_at = |at: usize| {
                u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
            };
            if u32_at(16) != crc32c::crc32c(&record[..16]) {
                break;
            }
            end += RECORD as u64;
            records.push((
                Lsn(end),
                u32_at(0),
                u32_at(4),
                u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            ));
        }
        file.set_len(end)?;
        file.sync_data()?;
        let (appended, durable) = (AtomicU64::new(end), AtomicU64::new(end));
        Ok((
            Self { file, tail: Mutex::default(), appended, durable, writing: Mutex::default() },
            records,
        ))
    }

    fn append(&self, page: PageId, at: usize, value: u64) -> Lsn {
        let mut record = Vec::with_capacity(RECORD);
        record.extend(page.no().to_le_bytes());
        record.extend((at as u32).to_le_bytes());
        record.extend(value.to_le_bytes());
        record.extend(crc32c::crc32c(&record).to_le_bytes());
        let mut tail = lock(&self.tail);
        tail.extend(record);
        // Release: pairs with the Acquire in `appended`, as `WalBarrier` asks.
        Lsn(self.appended.fetch_add(RECORD as u64, Ordering::Release) + RECORD as u64)
    }
}

impl WalBarrier for Log {
    fn ensure_durable(&self, lsn: Lsn) -> io::Result<()> {
        let _one_at_a_time = lock(&self.writing);
        if self.durable() >= lsn {
            return Ok(());
        }
        let bytes = std::mem::take(&mut *lock(&self.tail));
        let from = self.durable().0;
        self.file.write_all_at(&bytes, from)?;
        self.file.sync_data()?;
        // Release: pairs with the Acquire in `durable`.
        self.durable.store(from + bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    fn appended(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Acquire))
    }
}

/// The engine.
struct Counters {
    pool: Arc<Pool>,
    log: Arc<Log>,
    /// The LSN at which recovery begins: 8 bytes, of which a crash leaves the old or the new value.
    checkpoint: Arc<dyn File>,
}

impl Counters {
    fn open(disk: &dyn Disk, dir: &Path, frames: u32) -> Res<Self> {
        disk.create_dir_all(dir)?;
        let io_pool = Arc::new(IoPool::new(2, "counters-io")?);
        let files = Files::open(disk, dir, 1)?.with_io_pool(io_pool.clone());
        // Before the first read: restore torn pages from their copies.
        files.restore_torn()?;
        let (log, records) = Log::open(disk, &dir.join("log"))?;
        let log = Arc::new(log);
        let pool = Pool::new(
            PoolConfig { frames, ..PoolConfig::default() },
            Arc::new(files),
            log.clone(),
            io_pool,
        )?;
        let checkpoint = disk.open(&dir.join("checkpoint"), Open::OpenOrCreate)?;
        disk.sync_dir(dir)?;
        let counters = Self { pool, log, checkpoint };
        counters.redo(&records)?;
        Ok(counters)
    }

    /// Repeats the attempt until all pages that it needs are in the pool. The attempt changes
    /// nothing before it has all of them.
    fn with<T>(&self, attempt: impl Fn(&Pool) -> Result<T, MissingPage>) -> Result<T, PageError> {
        let mut _pin: Pin;
        loop {
            match attempt(&self.pool) {
                Ok(done) => return Ok(done),
                // An engine with an event loop would do other work meanwhile: see `Pool::fetch`.
                Err(missing) => _pin = self.pool.fetch_blocking(missing)?,
            }
        }
    }

    /// Creates the pages for `counters` counters, all zero. A page that was never written reads as
    /// zeros, so this needs no record.
    fn create(&self, counters: u32) -> Result<(), PageError> {
        (0..counters.div_ceil(PER_PAGE))
            .try_for_each(|no| self.with(|pool| pool.create(page(no), FileSpace::Usual).map(drop)))
    }

    fn add(&self, counter: u32, by: u64) -> Result<(), PageError> {
        let (id, at) = place(counter);
        self.with(|pool| {
            let mut page = pool.write(id)?;
            let value = read(&page, at) + by;
            // In this order, all under the latch: mark the page, log, change, set the LSN.
            page.mark_dirty_begin();
            let lsn = self.log.append(id, at, value);
            change(&mut page, at, value, lsn);
            Ok(())
        })
    }

    fn get(&self, counter: u32) -> Result<u64, PageError> {
        let (id, at) = place(counter);
        self.with(|pool| pool.read(id).map(|page| read(&page, at)))
    }

    /// Takes a checkpoint: afterwards recovery needs no older record.
    fn checkpoint(&self) -> Res<Lsn> {
        let target = self.log.appended();
        self.pool.flush_before(target)?;
        // The log is never truncated, so the start may also move back (see `min_rec_lsn`).
        let start = self.pool.min_rec_lsn().map_or(target, |oldest| oldest.min(target));
        self.checkpoint.write_all_at(&start.0.to_le_bytes(), 0)?;
        self.checkpoint.sync_data()?;
        Ok(start)
    }

    /// Redoes the records that the pages lack, according to their LSNs.
    fn redo(&self, records: &[Record]) -> Res<()> {
        let mut start = [0; 8];
        self.checkpoint.read_zero_filled_at(&mut start, 0)?;
        for &(end, no, at, value) in
            records.iter().filter(|record| record.0.0 > u64::from_le_bytes(start))
        {
            self.with(|pool| {
                let mut page = pool.write(page(no))?;
                if lsn(&page) < end {
                    page.mark_dirty_begin();
                    change(&mut page, at as usize, value, end);
                }
                Ok(())
            })?;
        }
        // The changes were marked with the log's end: no checkpoint until all of them are on disk.
        self.pool.flush_before(Lsn(u64::MAX))?;
        Ok(())
    }
}

fn read(page: &[u8], at: usize) -> u64 {
    page[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn change(page: &mut PageMut<'_>, at: usize, value: u64, lsn: Lsn) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    page.set_lsn(lsn);
}

/// Counts with four threads, in more pages than the pool has frames. The last changes are only in
/// the log.
fn work(counters: &Counters, number: u32) -> Res<()> {
    counters.create(number)?;
    for round in 1..=2_u64 {
        std::thread::scope(|scope| {
            let count = |thread| {
                (thread..number).step_by(331).try_for_each(|counter| counters.add(counter, round))
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || count(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
        })?;
        if round == 1 {
            println!("a checkpoint: recovery starts at LSN {}", counters.checkpoint()?);
        }
    }
    // A commit: everything that is durable now survives.
    counters.log.ensure_durable(counters.log.appended())?;
    let stats = counters.pool.stats();
    println!("{} pages read, {} written, {} evicted", stats.reads, stats.writes, stats.evictions);
    assert!(stats.evictions > u64::from(stats.frames), "more pages than frames");
    Ok(())
}

/// Checks that the results of [`work`] are there.
fn verify(counters: &Counters, number: u32) -> Res<()> {
    for counter in 0..number {
        let expected = if counter % 331 < 4 { 3 } else { 0 };
        assert_eq!(counters.get(counter)?, expected, "counter {counter}");
    }
    println!("all {number} counters have their committed values");
    Ok(())
}

fn main() -> Res<()> {
    let dir = std::env::temp_dir().join(format!("counters-{}", std::process::id()));
    let counters = Counters::open(&OsDisk, &dir, 256)?;
    work(&counters, 1_000_000)?;
    // Dropping a pool writes nothing.
    drop(counters);
    verify(&Counters::open(&OsDisk, &dir, 256)?, 1_000_000)?;

    println!("the same on a simulated disk that loses power");
    on_a_disk_that_loses_power(1_000_000, 7)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn on_a_disk_that_loses_power(number: u32, seed: u64) -> Res<()> {
    let (disk, dir) = (MemDisk::new(), Path::new("/counters"));
    let counters = Counters::open(&disk, dir, 64)?;
    work(&counters, number)?;
    // Of the unsynced data, some sectors are written and some are not.
    verify(&Counters::open(&disk.crash(seed), dir, 64)?, number)
}

#[test]
fn committed_counters_survive_a_power_failure() {
    (0..3).for_each(|seed| on_a_disk_that_loses_power(200_000, seed).unwrap());
}

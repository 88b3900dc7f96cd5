//! A pool over a disk in memory and a log that only counts. Every write is checked against the
//! write-ahead rule.

use clearway_buffer::*;
use clearway_env::{Disk, IoPool};
use clearway_replacement::ReplacementKind;
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, PageId, PartitionId};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// A log without content. SeqCst throughout, so that a test's counters have one order.
#[derive(Default)]
pub struct FakeWal {
    appended: AtomicU64,
    durable: AtomicU64,
    pub broken: AtomicBool,
}

impl FakeWal {
    /// Appends a record of 10 bytes and returns its end.
    pub fn append(&self) -> Lsn {
        Lsn(self.appended.fetch_add(10, SeqCst) + 10)
    }
    /// Creates a log with the contents of another one, as after a restart.
    pub fn continue_after(&self, other: &Self) {
        self.appended.store(other.appended.load(SeqCst), SeqCst);
        self.durable.store(other.appended.load(SeqCst), SeqCst);
    }
}

impl WalBarrier for FakeWal {
    fn ensure_durable(&self, lsn: Lsn) -> io::Result<()> {
        if self.broken.load(SeqCst) {
            return Err(io::Error::other("broken log"));
        }
        assert!(lsn.0 <= self.appended.load(SeqCst), "{lsn} was never appended");
        self.durable.fetch_max(lsn.0, SeqCst);
        Ok(())
    }
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(SeqCst))
    }
    fn appended(&self) -> Lsn {
        Lsn(self.appended.load(SeqCst))
    }
}

/// Forwards to the files, with checks and counters.
pub struct CheckedIo {
    pub files: Files,
    wal: Arc<FakeWal>,
    pub violations: AtomicU64,
    pub reads: AtomicU64,
    /// While true, reads wait.
    pub hold_reads: AtomicBool,
    /// Runs once, after a write or sync has failed and before the pool is notified.
    pub after_failure: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The method that panics once.
    pub panics: Mutex<Option<&'static str>>,
    /// Number of calls of `write`.
    pub writes: AtomicU64,
}

impl CheckedIo {
    /// Panics if a panic is planted for this method.
    fn planted(&self, method: &str) {
        let taken = self.panics.lock().unwrap().take_if(|planted| *planted == method);
        assert!(taken.is_none(), "planted in {method}");
    }

    fn note<T>(&self, result: Result<T, PageError>) -> Result<T, PageError> {
        if result.is_err()
            && let Some(run) = self.after_failure.lock().unwrap().take()
        {
            run();
        }
        result
    }
}

impl PageIo for CheckedIo {
    fn file(&self, id: PageId) -> Arc<str> {
        self.files.file(id)
    }
    fn place(&self, id: PageId) -> Result<Place, PageError> {
        self.planted("place");
        self.files.place(id)
    }
    fn accept(
        &self,
        id: PageId,
        page: &mut [u8; PAGE_SIZE],
        read: io::Result<usize>,
    ) -> Result<(), PageError> {
        self.reads.fetch_add(1, SeqCst);
        self.planted("accept");
        let result = self.files.accept(id, page, read);
        while self.hold_reads.load(SeqCst) {
            std::thread::yield_now();
        }
        result
    }
    fn make_space(&self, id: PageId, space: FileSpace) -> Result<(), PageError> {
        self.planted("make_space");
        self.files.make_space(id, space)
    }
    fn write(&self, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError> {
        self.planted("write");
        self.writes.fetch_add(1, SeqCst);
        let durable = self.wal.durable();
        for &(id, page) in pages {
            let whole = verify(page, id, &"copy".into()).is_ok() && check_content(page).is_ok();
            if lsn(page) > durable || !whole {
                self.violations.fetch_add(1, SeqCst);
            }
        }
        self.note(self.files.write(pages))
    }
    fn sync(&self) -> Result<(), PageError> {
        self.planted("sync");
        self.note(self.files.sync())
    }
    fn restore_torn(&self) -> Result<usize, PageError> {
        self.files.restore_torn()
    }
}

pub struct Fixture {
    /// The disk with the pages, unless they are on a real one.
    pub disk: MemDisk,
    pub wal: Arc<FakeWal>,
    pub io: Arc<CheckedIo>,
    pub pool: Arc<Pool>,
}

pub const PARTITIONS: u16 = 4;

pub fn files(disk: &MemDisk) -> Files {
    disk.create_dir_all(Path::new("/data")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    Files::open(disk, Path::new("/data"), PARTITIONS).unwrap()
}

/// A pool's configuration. Its time limits are so long that a wait for a frame does not fail if a
/// thread of the test loses its core for some seconds.
pub fn unhurried(frames: u32) -> PoolConfig {
    let waits = FrameWaits { starved_rounds: u32::MAX, ..FrameWaits::default() };
    PoolConfig { frames, waits, ..PoolConfig::default() }
}

pub fn pool_on(disk: &MemDisk, frames: u32, replacement: ReplacementKind) -> Fixture {
    let io_pool = Arc::new(IoPool::new(2, "test-io").unwrap());
    Fixture { disk: disk.clone(), ..pool_over(files(disk), io_pool, frames, replacement) }
}

/// Like [`pool_on`], with a second level of this many slots in `/ssd` on the same disk.
pub fn pool_with_second_level(disk: &MemDisk, frames: u32, slots: u64) -> Fixture {
    disk.create_dir_all(Path::new("/ssd")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let second = second_level(disk, Path::new("/ssd"), slots).unwrap();
    let io_pool = Arc::new(IoPool::new(2, "test-io").unwrap());
    Fixture { disk: disk.clone(), ..pool_of(files(disk), io_pool, unhurried(frames), Some(second)) }
}

pub fn second_level(disk: &dyn Disk, dir: &Path, slots: u64) -> io::Result<SecondLevel> {
    SecondLevel::open(
        disk,
        &SecondLevelConfig { dir: dir.to_owned(), size: slots * PAGE_SIZE as u64 },
    )
}

pub fn pool_over(
    files: Files,
    io_pool: Arc<IoPool>,
    frames: u32,
    replacement: ReplacementKind,
) -> Fixture {
    pool_of(files, io_pool, PoolConfig { replacement, ..unhurried(frames) }, None)
}

pub fn pool_of(
    files: Files,
    io_pool: Arc<IoPool>,
    config: PoolConfig,
    second: Option<SecondLevel>,
) -> Fixture {
    let wal = Arc::new(FakeWal::default());
    let io = Arc::new(CheckedIo {
        files: files.with_io_pool(io_pool.clone()),
        wal: wal.clone(),
        violations: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        hold_reads: AtomicBool::new(false),
        after_failure: Mutex::default(),
        panics: Mutex::default(),
        writes: AtomicU64::new(0),
    });
    io.restore_torn().unwrap();
    let pool = Pool::with_second_level(config, io.clone(), wal.clone(), io_pool, second).unwrap();
    Fixture { disk: MemDisk::new(), wal, io, pool }
}

pub fn pool(frames: u32) -> Fixture {
    pool_on(&MemDisk::new(), frames, ReplacementKind::default())
}

pub fn page(partition: u16, no: u32) -> PageId {
    PageId::new(PartitionId(partition), no)
}

/// Fills the page's body with `stamp`. Marks the page before, and sets its LSN afterwards, as
/// storage does.
pub fn stamp(page: &mut PageMut<'_>, wal: &FakeWal, stamp: u64) {
    page.mark_dirty_begin();
    let lsn = wal.append();
    for word in page[HEADER..].chunks_exact_mut(8) {
        word.copy_from_slice(&stamp.to_le_bytes());
    }
    page.set_lsn(lsn);
}

/// Returns the stamp that fills the page's body, or a description of what is wrong.
pub fn check_content(page: &[u8]) -> Result<u64, String> {
    let mut words =
        page[HEADER..].chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap()));
    let first = words.next().unwrap();
    if words.all(|w| w == first) { Ok(first) } else { Err(format!("half of stamp {first}")) }
}

pub fn with<T>(pool: &Pool, mut attempt: impl FnMut(&Pool) -> Result<T, MissingPage>) -> T {
    let mut pins = Vec::new();
    loop {
        match attempt(pool) {
            Ok(done) => return done,
            Err(missing) => pins.push(pool.fetch_blocking(missing).unwrap()),
        }
        if pins.len() > 3 {
            pins.remove(0);
        }
    }
}

pub fn put(fixture: &Fixture, id: PageId, value: u64) {
    with(&fixture.pool, |pool| pool.write(id).map(|mut p| stamp(&mut p, &fixture.wal, value)));
}

pub fn get(fixture: &Fixture, id: PageId) -> u64 {
    with(&fixture.pool, |pool| pool.read(id).map(|p| check_content(&p).unwrap()))
}

/// Like [`get`], without a latch.
pub fn read_optimistic(fixture: &Fixture, id: PageId) -> u64 {
    let look = |page: &OptimisticPage<'_>| {
        let mut copy = [0; PAGE_SIZE];
        page.copy(0, &mut copy).map(|()| check_content(&copy))
    };
    with(&fixture.pool, |pool| pool.read_optimistic(id, look)).expect("the page's size").unwrap()
}

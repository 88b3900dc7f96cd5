//! Trees that no table owns: a start opens the database even if it cannot drop them.

use crate::common::{Bank, Worker};
use clearway_coordinator::{Engine, EngineConfig, OpenError, OpenErrorKind, Waker};
use clearway_env::{Disk, File, Open};
use clearway_storage::{
    Blocked, Node, NodeConfig, SpaceWaits, Store, Trees, TxnLog, TxnMode, retry_blocking,
};
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};
use clearway_types::TreeId;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ORPHAN: TreeId = TreeId(99_999);
const OTHER: TreeId = TreeId(99_998);
/// One page has 15 of them.
const ROWS: u32 = 30_000;

fn pages(disk: &MemDisk) -> Arc<dyn File> {
    disk.open(Path::new("/data/data/p0000.data"), Open::Existing).unwrap()
}

fn config() -> NodeConfig {
    let space = SpaceWaits { patience: Duration::from_millis(100), ..SpaceWaits::default() };
    // A drop of the orphan may use an eighth of a segment.
    NodeConfig {
        partitions: Some(1),
        frames: 4096,
        wal_segment_size: 128 << 10,
        undo_reserve_step: 1,
        space,
        ..NodeConfig::default()
    }
}

/// A directory opened without its engine.
struct Below {
    node: Node,
    store: Store,
}

impl Below {
    fn enter(disk: &MemDisk) -> Self {
        let mut node = Node::open(Arc::new(disk.clone()), Path::new("/data"), config()).unwrap();
        let store = node.take_stores().remove(0);
        Self { node, store }
    }

    fn run<T>(&mut self, mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>) -> T {
        retry_blocking(self.node.pool(), || attempt(&mut self.store)).unwrap()
    }

    /// Returns where its pages are in their file.
    fn create_orphan(&mut self, disk: &MemDisk) -> Range<u64> {
        let before = pages(disk).len().unwrap();
        self.run(|store| store.create_tree(ORPHAN));
        for row in 0..ROWS {
            let key = row.to_be_bytes();
            assert!(self.run(|s| s.insert_autocommit(ORPHAN, &key, &[1; 500])).is_some());
        }
        self.node.checkpoint().unwrap();
        let end = pages(disk).len().unwrap();
        // Another batch of pages: a start reads those of the last one.
        self.run(|store| store.create_tree(OTHER));
        assert!(self.run(|s| s.insert_autocommit(OTHER, b"k", &[0; 1000])).is_some());
        self.node.checkpoint().unwrap();
        before..end
    }
}

/// A directory with a table.
fn filled() -> (MemDisk, Bank) {
    let disk = MemDisk::new();
    let engine = open_behind(&disk, Nothing).unwrap();
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, 10, 100);
    worker.close();
    engine.shutdown().unwrap();
    (disk, bank)
}

/// Opens the engine with `by` in front of the files.
fn open_behind(disk: &MemDisk, by: impl Intercept + 'static) -> Result<Arc<Engine>, OpenError> {
    let disk = Arc::new(Intercepted::new(disk.clone(), Arc::new(by)));
    let config = EngineConfig { node: config(), ..EngineConfig::default() };
    Engine::open(disk, Path::new("/data"), config, vec![Arc::new(|| {}) as Waker])
}

/// The log is full, held by a transaction that is active at the crash, and the disk has no space
/// beyond that of the files. The orphan has so many pages that dropping it needs more log than
/// there is room for. Returns the disk, and where the orphan's pages are.
fn full_at_crash(disk: &MemDisk) -> (MemDisk, Range<u64>) {
    let mut below = Below::enter(disk);
    let orphan = below.create_orphan(disk);
    let mut txn = TxnLog::new(below.node.alloc_txn_id());
    below.run(|store| store.insert(&mut txn, TxnMode::Logged, OTHER, b"open", b""));
    below.node.checkpoint().unwrap();
    disk.set_capacity(disk.used());
    let (pool, store) = (below.node.pool(), &mut below.store);
    let full = (0u32..).find_map(|i| {
        let value = [&i.to_be_bytes()[..], &[1; 996]].concat();
        retry_blocking(pool, || store.update_autocommit(OTHER, b"k", &value)).err()
    });
    assert_eq!(OpenError::from(full.unwrap()).kind(), OpenErrorKind::Full);
    let wal = below.node.wal();
    wal.wait_durable(wal.appended()).unwrap();
    let crashed = disk.crash(0);
    crashed.set_capacity(crashed.used());
    (crashed, orphan)
}

/// The table's rows are there.
fn assert_serves(engine: &Arc<Engine>, bank: &Bank) {
    let mut worker = Worker::new(engine, 0);
    assert_eq!(bank.total(&mut worker), 1000);
    worker.close();
}

fn has_orphan(disk: &MemDisk) -> bool {
    let below = Below::enter(disk);
    let found = below.store.has_tree(ORPHAN);
    below.node.shutdown();
    found
}

/// Nothing is intercepted.
struct Nothing;
impl Intercept for Nothing {}

/// A bad page of the file for pages, at this offset.
struct Unreadable(u64);

impl Intercept for Unreadable {
    fn read_at(&self, to: &Opened, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = offset..offset + buf.len() as u64;
        if to.path.ends_with("p0000.data") && read.contains(&self.0) {
            return Err(io::Error::other("a bad sector"));
        }
        to.file.read_at(buf, offset)
    }
}

#[test]
fn orphan_with_an_unreadable_page_is_left() {
    let (disk, bank) = filled();
    let mut below = Below::enter(&disk);
    let orphan = below.create_orphan(&disk);
    below.node.shutdown();
    drop(below);
    let bad = orphan.start.midpoint(orphan.end);
    for _ in 0..2 {
        let engine = open_behind(&disk, Unreadable(bad)).expect("a start");
        assert_serves(&engine, &bank);
        engine.shutdown().unwrap();
    }
    assert!(has_orphan(&disk));
    open_behind(&disk, Nothing).unwrap().shutdown().unwrap();
    assert!(!has_orphan(&disk), "it is dropped when the page can be read");
}

#[test]
fn full_log_is_emptied_to_drop_orphans() {
    let (disk, bank) = filled();
    let (crashed, _) = full_at_crash(&disk);
    let engine = open_behind(&crashed, Nothing).expect("a start");
    assert_serves(&engine, &bank);
    engine.shutdown().unwrap();
    drop(engine);
    assert!(!has_orphan(&crashed));
}

/// The control file cannot be written for lack of space, so no checkpoint frees log. This begins
/// with the first read of the orphan's pages: before it, a start writes the file again.
struct NoCheckpoint {
    orphan: Range<u64>,
    on: AtomicBool,
}

impl Intercept for NoCheckpoint {
    fn read_at(&self, to: &Opened, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if to.path.ends_with("p0000.data") && self.orphan.contains(&offset) {
            // Relaxed: a flag that orders no other memory.
            self.on.store(true, Ordering::Relaxed);
        }
        to.file.read_at(buf, offset)
    }

    fn write_all_at(&self, to: &Opened, buf: &[u8], offset: u64) -> io::Result<()> {
        // Relaxed: see `read_at`.
        if to.path.ends_with("control") && self.on.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        to.file.write_all_at(buf, offset)
    }
}

#[test]
fn orphan_that_lacks_log_is_left() {
    let (disk, bank) = filled();
    let (crashed, orphan) = full_at_crash(&disk);
    let on = AtomicBool::new(false);
    let engine = open_behind(&crashed, NoCheckpoint { orphan, on }).expect("a start");
    assert_serves(&engine, &bank);
    let again = crashed.crash(0);
    drop(engine);
    again.set_capacity(u64::MAX);
    assert!(has_orphan(&again));
    open_behind(&again, Nothing).unwrap().shutdown().unwrap();
    assert!(!has_orphan(&again), "it is dropped when there is space");
}

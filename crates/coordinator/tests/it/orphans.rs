//! Trees that no table owns: a start opens the database even if it cannot drop them.

use crate::common::{Bank, Worker};
use clearway_coordinator::{Engine, EngineConfig, OpenError, Waker};
use clearway_env::{Disk, File, Open};
use clearway_storage::{Blocked, Node, NodeConfig, Store, Trees, retry_blocking};
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};
use clearway_types::TreeId;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const ORPHAN: TreeId = TreeId(99_999);
const OTHER: TreeId = TreeId(99_998);
const ROWS: u32 = 2000;

fn pages(disk: &MemDisk) -> Arc<dyn File> {
    disk.open(Path::new("/data/data/p0000.data"), Open::Existing).unwrap()
}

fn config() -> NodeConfig {
    NodeConfig { partitions: Some(1), frames: 4096, ..NodeConfig::default() }
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

//! The whole of storage on a real file system: with threads and with io_uring, through the
//! operating system's cache and with direct I/O.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use clearway_env::{DirectDisk, Disk, IoPool, OsDisk};
use clearway_storage::{Node, NodeConfig, Trees};
use clearway_types::TreeId;

const TREE: TreeId = TreeId(1);
/// Whether there is a ring, and whether it has registered buffers.
const THREADS: (bool, bool) = (false, false);
const RING: (bool, bool) = (true, false);
const REGISTERED: (bool, bool) = (true, true);

/// Reports past the test's capture, so that a skipped test is always visible.
fn skipped(what: &str, why: impl std::fmt::Display) {
    writeln!(std::io::stderr(), "SKIPPED {what}: {why}").expect("said");
}

/// Works on more data than the pool has frames, with checkpoints. Drops the node as a crash of the
/// process does, with dirty pages unwritten. There are three lives; each finds what the previous
/// one left.
fn live(name: &str, disk: Arc<dyn Disk>, (io_ring, io_registered): (bool, bool)) {
    if let (true, Err(error)) = (io_ring, IoPool::try_ring()) {
        return skipped(name, error);
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("engines-{name}-{}", std::process::id()));
    let random = Random::new(17);
    let mut model = Model::new();
    for life in 0..3 {
        let config = NodeConfig { io_ring, io_registered, ..config(1, 64) };
        let mut node = Node::open(disk.clone(), &dir, config).unwrap();
        assert_eq!(node.io().has_ring(), io_ring);
        let registered = node.io().registered();
        match registered.refused {
            Some(error) => skipped(name, error),
            None if io_registered => {
                assert!(registered.bytes > 64 * 8192, "the pool's frames and what is written from")
            }
            None => assert_eq!(registered.wanted, 0),
        }
        let stores = node.take_stores();
        let mut world = World { node, stores, retries: 0 };
        if life == 0 {
            world.run(0, |s| s.create_tree(TREE)).unwrap();
        }
        assert!(world.all(0, TREE, false).into_iter().eq(model.clone()), "{name}, life {life}");
        for step in 0..1500 {
            let (key, value) =
                (random.key(4000), vec![step as u8; 200 + random.below(400) as usize]);
            if model.remove(&key).is_some() {
                world.run(0, |s| s.delete_autocommit(TREE, &key)).unwrap();
            }
            world.run(0, |s| s.insert_autocommit(TREE, &key, &value)).unwrap();
            model.insert(key, value);
            if step % 700 == 600 {
                world.node.checkpoint().unwrap();
            }
        }
        let lsn = world.node.wal().appended();
        world.node.wal().wait_durable(lsn).unwrap();
        assert!(
            world.node.pool().stats().evictions > 100,
            "{name}: the data must be larger than the pool"
        );
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

fn live_directly(name: &str, by: (bool, bool)) {
    let disk = Arc::new(DirectDisk::new(false));
    live(name, disk.clone(), by);
    if disk.refused() {
        skipped(name, "the file system knows no direct I/O; it ran on buffered files");
    }
}

#[test]
fn threads_with_buffered_files() {
    live("threads-buffered", Arc::new(OsDisk), THREADS);
}

#[test]
fn threads_with_direct_files() {
    live_directly("threads-direct", THREADS);
}

#[test]
fn ring_with_buffered_files() {
    live("ring-buffered", Arc::new(OsDisk), RING);
}

#[test]
fn ring_with_direct_files() {
    live_directly("ring-direct", RING);
}

#[test]
fn ring_with_registered_buffers_and_both_file_kinds() {
    live("registered-buffered", Arc::new(OsDisk), REGISTERED);
    live_directly("registered-direct", REGISTERED);
}

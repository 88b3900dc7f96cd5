//! A full disk on which the log, not the pages, lacks space. A rollback never uses log that does
//! not exist: what is appended becomes durable, and the server continues.

use std::time::Duration;

use crate::check::assert_sound_with;
use crate::common::{World, config};
use clearway_storage::{NodeConfig, SpaceWaits, StorageError, Trees, TxnLog, TxnMode};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;

const ROWS: TreeId = TreeId(1);
const OTHERS: TreeId = TreeId(2);
const FRAMES: u32 = 8192;
/// Small, and so is the reserve, a quarter of it.
const SEGMENT: u64 = 256 << 10;

fn settings() -> NodeConfig {
    let patience = Duration::from_millis(100);
    NodeConfig {
        wal_segment_size: SEGMENT,
        wal_buffer_size: NodeConfig::default().wal_buffer_size,
        space: SpaceWaits { retry: Duration::from_millis(10), patience, ..SpaceWaits::default() },
        ..config(1, FRAMES)
    }
}

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// The numbers below `n` in an order that looks random. `n` is not a multiple of 7919.
fn shuffled(n: u32, from: u32) -> impl Iterator<Item = u32> {
    (0..n).map(move |i| (from + i * 7919) % n)
}

fn world(disk: &MemDisk) -> World {
    let mut world = World::open_with(disk, settings()).unwrap();
    for tree in [ROWS, OTHERS] {
        world.run(0, |s| s.create_tree(tree)).unwrap();
    }
    world.run(0, |s| s.insert_autocommit(OTHERS, b"k", &[0; 100])).unwrap();
    world
}

/// The disk has no space beyond that of the files, and others write until they are refused.
fn fill_log(disk: &MemDisk, world: &mut World) {
    world.node.checkpoint().unwrap();
    disk.set_capacity(disk.used());
    for i in 0..1_000_000u32 {
        let value = [&i.to_be_bytes()[..], &[i as u8; 96]].concat();
        match world.run(0, |s| s.update_autocommit(OTHERS, b"k", &value)) {
            Ok(_) => {}
            Err(StorageError::Page(error)) if error.is_full() => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the log is never full");
}

/// Everything appended has its place in the log's files.
fn assert_durable(world: &World) {
    let wal = world.node.wal();
    wal.wait_durable(wal.appended()).unwrap();
    assert_eq!(world.node.failed(), None);
}

/// The rollback needs no more than what is reserved for it.
fn assert_rolls_back(
    disk: &MemDisk,
    world: &mut World,
    mut txn: TxnLog,
    before: &[(Vec<u8>, Vec<u8>)],
) {
    fill_log(disk, world);
    world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})).unwrap();
    world.stores[0].aborted(txn);
    assert_durable(world);
    assert!(world.all(0, ROWS, false) == before, "other rows than before");
    assert_sound_with(&disk.crash(0), FRAMES);
}

/// The undo of an insert logs every page that it frees.
#[test]
fn rollback_of_long_inserts_has_its_log() {
    let disk = MemDisk::new();
    let mut world = world(&disk);
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    for i in 0..100 {
        let log = &mut txn;
        world.run(0, |s| s.insert(log, TxnMode::Logged, ROWS, &key(i), &[7; 1 << 20])).unwrap();
    }
    assert_rolls_back(&disk, &mut world, txn, &[]);
}

/// Rows that come back in another order than the keys' split leaves in the middle.
#[test]
fn rollback_of_deletes_in_another_order_has_its_log() {
    const N: u32 = 10_000;
    let disk = MemDisk::new();
    let mut world = world(&disk);
    for i in shuffled(N, 1) {
        world.run(0, |s| s.insert_autocommit(ROWS, &key(i), &[i as u8; 100])).unwrap();
    }
    let before = world.all(0, ROWS, false);
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    for i in shuffled(N, 77) {
        world.run(0, |s| s.delete(&mut txn, TxnMode::Logged, ROWS, &key(i))).unwrap();
    }
    assert_rolls_back(&disk, &mut world, txn, &before);
}

/// Others have filled the leaves of the deleted rows, so that each row's return splits a leaf: more
/// log than is reserved. The rollback is refused, everything else continues, and the rollback
/// resumes where it stopped, in this process or at the next start.
#[test]
fn rollback_without_log_resumes_with_space() {
    const N: u32 = 6000;
    let disk = MemDisk::new();
    let mut world = world(&disk);
    for i in 0..N {
        world.run(0, |s| s.insert_autocommit(ROWS, &key(2 * i), &[i as u8; 380])).unwrap();
    }
    // Free pages, so that the log is what lacks space.
    for i in 0..100u32 {
        world.run(0, |s| s.insert_autocommit(OTHERS, &key(i), &[7; 80_000])).unwrap();
    }
    for i in 0..100u32 {
        world.run(0, |s| s.delete_autocommit(OTHERS, &key(i))).unwrap();
    }
    let mut expected = world.all(0, ROWS, false);
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    for i in (5..N).step_by(20) {
        world.run(0, |s| s.delete(&mut txn, TxnMode::Logged, ROWS, &key(2 * i))).unwrap();
        world.run(0, |s| s.insert_autocommit(ROWS, &key(2 * i + 1), &[9; 380])).unwrap();
        expected.push((key(2 * i + 1).to_vec(), vec![9; 380]));
    }
    expected.sort();
    let mut other = TxnLog::new(world.node.alloc_txn_id());
    world.run(0, |s| s.insert(&mut other, TxnMode::Logged, OTHERS, b"other", b"")).unwrap();
    fill_log(&disk, &mut world);
    let stopped = world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {}));
    assert!(matches!(&stopped, Err(StorageError::Page(error)) if error.is_full()), "{stopped:?}");
    assert!(!txn.is_empty());
    // The ends of other transactions still have their space.
    world.stores[0].commit_local(other);
    assert_durable(&world);
    let crashed = disk.crash(0);
    disk.set_capacity(u64::MAX);
    // The log is full until it has retried to make a segment.
    while let Err(error) = world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})) {
        assert!(matches!(&error, StorageError::Page(error) if error.is_full()), "{error}");
        std::thread::yield_now();
    }
    world.stores[0].aborted(txn);
    assert_durable(&world);
    assert!(world.all(0, ROWS, false) == expected, "other rows after the rollback");
    crashed.set_capacity(u64::MAX);
    let mut started = World::open_with(&crashed, settings()).unwrap();
    assert!(started.all(0, ROWS, false) == expected, "other rows after the start");
}

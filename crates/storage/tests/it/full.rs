//! A full disk: the pages that a transaction has freed are available to its rollback. A rollback
//! that needs more continues when there is space.

use clearway_storage::{NodeConfig, StorageError, Trees, TxnLog, TxnMode};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;

use crate::check::assert_sound;
use crate::common::{World, config};

const ROWS: TreeId = TreeId(1);
const OTHERS: TreeId = TreeId(2);

/// Rows of the tree: short ones that fill leaves, and some that are many pages long.
fn value(i: u32) -> Vec<u8> {
    vec![i as u8; if i.is_multiple_of(50) { 60_000 } else { 400 }]
}

/// Two trees, and a disk without space beyond that of the files.
fn full() -> (MemDisk, World) {
    let disk = MemDisk::new();
    let config = NodeConfig { wal_segment_size: 16 << 20, ..config(1, 512) };
    let mut world = World::open_with(&disk, config).unwrap();
    world.run(0, |s| s.create_tree(ROWS)).unwrap();
    world.run(0, |s| s.create_tree(OTHERS)).unwrap();
    for i in 0..1000u32 {
        world.run(0, |s| s.insert_autocommit(ROWS, &i.to_be_bytes(), &value(i))).unwrap();
    }
    world.node.checkpoint().unwrap();
    disk.set_capacity(disk.used());
    (disk, world)
}

/// Others write until they are refused; returns the number of rows written.
fn others_fill(world: &mut World, from: u32) -> u32 {
    for i in from..from + 10_000 {
        match world.run(0, |s| s.insert_autocommit(OTHERS, &i.to_be_bytes(), &[9; 1500])) {
            Ok(_) => {}
            Err(StorageError::Page(error)) if error.is_full() => return i - from,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk is never full");
}

/// `spare`, invariant 2: others do not take pages that an uncommitted delete or update has freed.
#[test]
fn rollback_on_a_full_disk_has_its_freed_pages() {
    for update in [false, true] {
        let (disk, mut world) = full();
        let before = world.all(0, ROWS, false);
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        for i in 0..1000u32 {
            let key = i.to_be_bytes();
            let log = &mut txn;
            if update {
                world.run(0, |s| s.update(log, TxnMode::Logged, ROWS, &key, b"short")).unwrap();
            } else {
                world.run(0, |s| s.delete(log, TxnMode::Logged, ROWS, &key)).unwrap();
            }
        }
        assert_rolled_back(&disk, &mut world, txn, before);
    }
}

/// Others take what they can; the transaction's rollback must still restore all rows.
fn assert_rolled_back(
    disk: &MemDisk,
    world: &mut World,
    mut txn: TxnLog,
    before: Vec<(Vec<u8>, Vec<u8>)>,
) {
    others_fill(world, 0);
    world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})).unwrap();
    world.stores[0].aborted(txn);
    assert_eq!(world.all(0, ROWS, false), before);
    world.node.checkpoint().unwrap();
    assert_sound(&disk.crash(0));
}

/// Reserved pages are released when the transaction ends, and when it has rolled back to a
/// savepoint.
#[test]
fn freed_pages_are_reusable_after_the_transaction() {
    let (_, mut world) = full();
    let first = others_fill(&mut world, 0);
    for round in 0..3 {
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        for _ in 0..3 {
            for i in (0..1000u32).step_by(50) {
                assert!(
                    world
                        .run(0, |s| s.delete(&mut txn, TxnMode::Logged, ROWS, &i.to_be_bytes()))
                        .unwrap()
                );
            }
            if round < 2 {
                world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})).unwrap();
            } else {
                break;
            }
        }
        let during = others_fill(&mut world, 20_000 * (round + 1));
        assert!(during < 40, "{during} rows in reserved pages, or {first} at first");
        if round < 2 {
            world.stores[0].aborted(txn);
        } else {
            world.stores[0].commit_local(txn);
        }
    }
    // 20 values of 8 pages each are permanently gone.
    let after = others_fill(&mut world, 100_000);
    assert!(after > 20 * 8 * 3, "{after}");
}

/// The undo restores the rows from last to first, after those of the full leaf that has taken over
/// their range.
#[test]
fn rollback_on_a_full_disk_restores_an_inner_range() {
    for ascending in [true, false] {
        let (disk, mut world) = full();
        let before = world.all(0, ROWS, false);
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        for i in 101..900u32 {
            let i = if ascending { i } else { 1000 - i };
            assert!(
                world
                    .run(0, |s| s.delete(&mut txn, TxnMode::Logged, ROWS, &i.to_be_bytes()))
                    .unwrap()
            );
        }
        assert_rolled_back(&disk, &mut world, txn, before);
    }
}

/// Invariant 3 of `split`: when a rollback splits a node next to its last key, each half fits,
/// whatever the sizes of the cells.
#[test]
fn rollback_splits_leaves_with_any_cell_sizes() {
    let value = |i: u32| vec![i as u8; (i.wrapping_mul(0x9e37_79b1) >> 16) as usize % 1900];
    for round in 0..6 {
        let mut world = World::open(&MemDisk::new(), 1, 256).unwrap();
        world.run(0, |s| s.create_tree(ROWS)).unwrap();
        for i in 0..1500u32 {
            world
                .run(0, |s| {
                    s.insert_autocommit(ROWS, &(2 * i).to_be_bytes(), &value(i * 7 + round))
                })
                .unwrap();
        }
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        for i in 0..1500u32 {
            let key = (2 * if round % 2 == 0 { i } else { 1499 - i }).to_be_bytes();
            if i % 37 > round {
                world.run(0, |s| s.delete(&mut txn, TxnMode::Logged, ROWS, &key)).unwrap();
            }
        }
        for i in (0..1500u32).step_by(1 + round as usize) {
            world
                .run(0, |s| {
                    s.insert_autocommit(ROWS, &(2 * i + 1).to_be_bytes(), &value(i / 3 * round))
                })
                .unwrap();
        }
        world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})).unwrap();
        world.stores[0].aborted(txn);
        let rows = world.all(0, ROWS, false);
        let old = rows.iter().filter(|(key, _)| key[3].is_multiple_of(2)).cloned();
        let expected = (0..1500u32).map(|i| ((2 * i).to_be_bytes().to_vec(), value(i * 7 + round)));
        assert!(old.eq(expected), "round {round}");
        assert_eq!(rows.len(), 1500 + (0..1500).step_by(1 + round as usize).count());
    }
}

/// Others fill the space of deleted rows, so more leaves must split than there are reserved pages.
/// The rollback stops, and continues where it stopped when there is space.
#[test]
fn rollback_without_pages_resumes_with_space() {
    let (disk, mut world) = full();
    let before = world.all(0, ROWS, false);
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    for i in (0..1000u32).filter(|i| i % 3 == 1 && !i.is_multiple_of(50)) {
        assert!(
            world.run(0, |s| s.delete(&mut txn, TxnMode::Logged, ROWS, &i.to_be_bytes())).unwrap()
        );
    }
    let mut others = Vec::new();
    for i in (0..1000u32).filter(|i| i % 3 == 0) {
        let key = [&i.to_be_bytes()[..], b"other"].concat();
        match world.run(0, |s| s.insert_autocommit(ROWS, &key, &[7; 400])) {
            Ok(_) => others.push((key, vec![7; 400])),
            Err(StorageError::Page(error)) if error.is_full() => {}
            Err(error) => panic!("{error}"),
        }
    }
    others_fill(&mut world, 0);
    let stopped = world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {}));
    assert!(matches!(&stopped, Err(StorageError::Page(error)) if error.is_full()), "{stopped:?}");
    disk.set_capacity(u64::MAX);
    world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})).unwrap();
    world.stores[0].aborted(txn);
    let mut expected = [before, others].concat();
    expected.sort();
    assert_eq!(world.all(0, ROWS, false), expected);
    world.node.checkpoint().unwrap();
    assert_sound(&disk.crash(0));
}

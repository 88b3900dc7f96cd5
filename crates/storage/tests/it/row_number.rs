//! Hidden row numbers: none is given to two rows; recovery of a log in which one was (see
//! `recovery::renumber`).

use crate::check::assert_sound;
use crate::common::{Random, World};
use clearway_storage::{Store, Trees, TxnLog, TxnMode, rowid_key};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;
use std::collections::BTreeMap;

const TABLE: TreeId = TreeId(7);
/// A unique index on the row, and a non-unique one. Their keys are `u` and the row, and `v`, the
/// row and its key.
const UNIQUE: TreeId = TreeId(8);
const PLAIN: TreeId = TreeId(9);

fn entries(row: u64, number: u64) -> [(TreeId, Vec<u8>); 2] {
    let text = format!("{row:03}");
    let plain = [format!("v{text}").as_bytes(), &rowid_key(number)].concat();
    [(UNIQUE, format!("u{text}").into_bytes()), (PLAIN, plain)]
}

fn insert(world: &mut World, row: u64, number: u64) {
    let key = rowid_key(number);
    world.run(0, |s| s.insert_autocommit(TABLE, &key, &row.to_be_bytes())).unwrap().unwrap();
    for (tree, entry) in entries(row, number) {
        world.run(0, |s| s.insert_autocommit(tree, &entry, &key)).unwrap().unwrap();
    }
}

/// As SQL does it: the row first, then its entries.
fn delete(world: &mut World, log: &mut TxnLog, row: u64, number: u64) {
    let mut one = |tree, key: &[u8]| {
        assert!(world.run(0, |s: &mut Store| s.delete(log, TxnMode::Logged, tree, key)).unwrap());
    };
    one(TABLE, &rowid_key(number));
    for (tree, entry) in entries(row, number) {
        one(tree, &entry);
    }
}

fn filled(rows: u64) -> (MemDisk, World) {
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 1, 48).unwrap();
    for tree in [TABLE, UNIQUE, PLAIN] {
        world.run(0, |s| s.create_tree(tree)).unwrap();
    }
    (1..=rows).for_each(|n| insert(&mut world, n, n));
    (disk, world)
}

/// Makes the log durable, crashes, and opens the result.
fn crash(disk: &MemDisk, world: World, seed: u64) -> (MemDisk, World) {
    let end = world.node.wal().appended();
    world.node.wal().wait_durable(end).unwrap();
    let disk = disk.crash(seed);
    drop(world);
    let world = World::open(&disk, 1, 48).unwrap();
    (disk, world)
}

/// Returns the rows with their numbers; checks that each has its entries, and that there are no
/// others.
fn rows(world: &mut World) -> BTreeMap<u64, u64> {
    let mut rows = BTreeMap::new();
    for (key, row) in world.all(0, TABLE, false) {
        let number = u64::from_be_bytes(key[1..].try_into().unwrap()) ^ 1 << 63;
        let row = u64::from_be_bytes(row.try_into().unwrap());
        assert_eq!(rows.insert(row, number), None, "row {row} is there twice");
    }
    for (at, tree) in [UNIQUE, PLAIN].into_iter().enumerate() {
        let expected =
            rows.iter().map(|(row, n)| (entries(*row, *n)[at].1.clone(), rowid_key(*n).to_vec()));
        assert_eq!(world.all(0, tree, false), expected.collect::<Vec<_>>(), "tree {tree}");
    }
    rows
}

#[test]
fn deleted_row_number_stays_in_use_until_commit() {
    let (disk, world) = filled(5);
    let (_, mut world) = crash(&disk, world, 1);
    let mut log = TxnLog::new(world.node.alloc_txn_id());
    delete(&mut world, &mut log, 5, 5);
    delete(&mut world, &mut log, 4, 4);
    assert_eq!(world.run(0, |s| s.next_rowid(TABLE)).unwrap(), 6);
    world.run(0, |s| s.rollback(&mut log, 0, &mut |_, _, _| {})).unwrap();
    world.stores[0].aborted(log);
    assert_eq!(rows(&mut world).len(), 5);
}

/// Losers delete rows, and committed rows have taken some of their numbers. Recovery is killed a
/// few times.
fn reused(seed: u64) {
    let random = Random::new(seed);
    let n = 3 + random.below(6);
    let (mut disk, mut world) = filled(n);
    let mut losers = [world.node.alloc_txn_id(), world.node.alloc_txn_id()].map(TxnLog::new);
    let deleted: Vec<u64> = (1..=n).filter(|_| random.below(2) == 0).collect();
    for &row in deleted.iter().rev() {
        delete(&mut world, &mut losers[random.below(2) as usize], row, row);
    }
    let mut expected = n;
    for &number in deleted.iter().filter(|_| random.below(3) > 0) {
        expected += 1;
        insert(&mut world, expected, number);
    }
    let [mut first, second] = losers;
    if random.below(2) == 0 && !first.is_empty() {
        // Fails at the first number that is in use, if any, after restoring the entries of that
        // row.
        if world.run(0, |s| s.rollback(&mut first, 0, &mut |_, _, _| {})).is_ok() {
            world.stores[0].aborted(first);
        }
    }
    drop(second);
    let end = world.node.wal().appended();
    world.node.wal().wait_durable(end).unwrap();
    let mut after = disk.crash(seed);
    drop(world);
    for attempt in 0..random.below(4) {
        after.fail_after(after.operations() + random.below(60));
        let opened = World::open(&after, 1, 48);
        disk = after.crash(seed + attempt);
        drop(opened);
        after = disk;
    }
    let mut world = World::open(&after, 1, 48).unwrap();
    let rows = rows(&mut world);
    assert!(rows.keys().copied().eq(1..=expected), "seed {seed}: {rows:?} of {expected}");
    assert!(
        (1..=n).all(|row| rows[&row] == row),
        "seed {seed}: a restored row has another number: {rows:?}"
    );
    let next = world.run(0, |s| s.next_rowid(TABLE)).unwrap();
    assert!(rows.values().all(|number| *number < next), "seed {seed}: {next} after {rows:?}");
    world.node.checkpoint().unwrap();
    assert_sound(&after.crash(seed));
}

#[test]
fn recovery_frees_reused_numbers() {
    (0..60).for_each(reused);
}

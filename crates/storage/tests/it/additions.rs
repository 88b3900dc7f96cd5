//! Additions: several transactions add to the same integers concurrently. Each is undone
//! independently, in any order, from memory, from the log, and by recovery.

use crate::check::assert_sound;
use crate::common::{World, config};
use clearway_storage::{
    Addend, Addends, Incremented, Inserted, NodeConfig, Prior, Replaced, StorageError, Trees,
    TxnLog, TxnMode,
};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, TreeId};

const TREE: TreeId = TreeId(1);
const KEY: &[u8] = b"key";
/// Value sizes: in a leaf, nearly filling a cell, in overflow pages.
const LENGTHS: [usize; 3] = [24, 1900, 20_000];

pub fn addends(all: &[(u16, u8, i64)]) -> Addends {
    let mut out = Addends::default();
    for &(offset, width, delta) in all {
        assert!(out.push(Addend { offset, width, delta }));
    }
    out
}

pub fn open(disk: &MemDisk, undo_memory: usize) -> World {
    World::open_with(disk, NodeConfig { undo_memory, ..config(1, 64) }).unwrap()
}

fn with_row(disk: &MemDisk, undo_memory: usize, value: &[u8]) -> World {
    let mut world = open(disk, undo_memory);
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    world.run(0, |s| s.insert_autocommit(TREE, KEY, value)).unwrap().unwrap();
    world
}

fn begin(world: &World) -> TxnLog {
    TxnLog::new(world.node.alloc_txn_id())
}

fn add(world: &mut World, log: &mut TxnLog, what: Addends) {
    let done = world.run(0, |s| s.increment(log, TxnMode::Logged, TREE, KEY, &mut |_| Some(what)));
    assert_eq!(done.unwrap(), Incremented::Done(what));
}

fn update(world: &mut World, log: &mut TxnLog, value: &[u8]) {
    assert!(world.run(0, |s| s.update(log, TxnMode::Logged, TREE, KEY, value)).unwrap());
}

/// Returns the additions that the rollback has reported.
fn rollback(world: &mut World, log: &mut TxnLog, to: usize) -> Vec<Addends> {
    let mut told = Vec::new();
    let mut undone = |tree, key: &[u8], addends: &Addends| {
        assert_eq!((tree, key), (TREE, KEY));
        told.push(*addends);
    };
    world.run(0, |s| s.rollback(log, to, &mut undone)).unwrap();
    told
}

fn value(world: &mut World) -> Vec<u8> {
    let mut found = Vec::new();
    assert!(world.run(0, |s| s.get(TREE, KEY, &mut |value| found = value.to_vec())).unwrap());
    found
}

fn sum(base: &[u8], all: &[Addends]) -> Vec<u8> {
    let mut out = base.to_vec();
    assert!(all.iter().all(|addends| addends.add_to(&mut out)));
    out
}

fn durable(world: &World) -> Lsn {
    let lsn = world.node.wal().appended();
    world.node.wal().wait_durable(lsn).unwrap();
    lsn
}

fn ended(mut world: World, disk: &MemDisk, expected: &[u8]) {
    assert!(value(&mut world) == expected, "another value than expected");
    world.node.checkpoint().unwrap();
    assert_sound(&disk.crash(0));
    world.node.shutdown();
}

#[test]
fn increment_reports_its_result() {
    for len in LENGTHS {
        let disk = MemDisk::new();
        let base = vec![0xfe; len];
        let mut world = with_row(&disk, 1 << 20, &base);
        let mut log = begin(&world);
        let one = addends(&[(0, 2, 300), (len as u16 - 8, 8, -1)]);
        let mut shown = Vec::new();
        let mut compute = |value: &[u8]| {
            shown.push(value.to_vec());
            Some(one)
        };
        let mut run = |key, log: &mut _, compute: &mut dyn FnMut(&[u8]) -> Option<Addends>| {
            world.run(0, |s| s.increment(log, TxnMode::Logged, TREE, key, compute)).unwrap()
        };
        assert_eq!(run(KEY, &mut log, &mut compute), Incremented::Done(one));
        assert_eq!(run(KEY, &mut log, &mut compute), Incremented::Done(one));
        assert_eq!(run(b"none", &mut log, &mut |_| panic!("no value")), Incremented::Missing);
        assert_eq!(run(KEY, &mut log, &mut |_| None), Incremented::Refused);
        let nothing = Addends::default();
        assert_eq!(run(KEY, &mut log, &mut |_| Some(nothing)), Incremented::Done(nothing));
        // A repeated attempt sees the value again.
        shown.dedup();
        assert!(shown == [base.clone(), sum(&base, &[one])]);
        assert_eq!(log.mark(), 2, "only additions are logged");
        world.stores[0].commit_local(log);
        ended(world, &disk, &sum(&base, &[one, one]));
    }
}

#[test]
fn addition_out_of_bounds_is_refused() {
    for len in [24, 5000] {
        let mut world = with_row(&MemDisk::new(), 1 << 20, &vec![7; len]);
        let mut log = begin(&world);
        let behind = addends(&[(0, 2, 1), (len as u16 - 7, 8, 1)]);
        let refused = world
            .run(0, |s| s.increment(&mut log, TxnMode::Logged, TREE, KEY, &mut |_| Some(behind)));
        assert_eq!(refused.unwrap(), Incremented::Refused);
        assert_eq!((log.mark(), value(&mut world)), (0, vec![7; len]));
        world.stores[0].aborted(log);
    }
}

/// Two transactions that add in turn each end in each way, in both orders.
fn a_rollback_subtracts(len: usize, memory: usize) {
    for (ends, second_first) in [(0, false), (1, false), (2, false), (0, true), (3, true)] {
        let disk = MemDisk::new();
        let base = vec![0xff; len];
        let mut world = with_row(&disk, memory, &base);
        let mut logs = [begin(&world), begin(&world)];
        let one = addends(&[(1, 2, 5), (4, 4, i64::from(i32::MIN))]);
        let other = addends(&[(4, 4, -3), (len as u16 - 9, 8, i64::MAX)]);
        for round in 0..6 {
            add(&mut world, &mut logs[round % 2], [one, other][round % 2]);
        }
        let mut left = Vec::new();
        let mut order = [0, 1];
        if second_first {
            order.reverse();
        }
        for i in order {
            let mut log = std::mem::replace(&mut logs[i], begin(&world));
            let mine = [one, other][i];
            if ends >> i & 1 == 1 {
                world.stores[0].commit_local(log);
                left.extend([mine; 3]);
                continue;
            }
            assert_eq!(rollback(&mut world, &mut log, 2), [mine]);
            assert_eq!(rollback(&mut world, &mut log, 0), [mine; 2]);
            world.stores[0].aborted(log);
        }
        ended(world, &disk, &sum(&base, &left));
    }
}

#[test]
fn rollback_subtracts_the_transactions_additions() {
    for len in LENGTHS {
        a_rollback_subtracts(len, 1 << 20);
        a_rollback_subtracts(len, 0);
    }
}

/// A crash with two transactions that have added to a row, one of them committed.
fn losers_are_subtracted(len: usize, committed: usize) {
    let disk = MemDisk::new();
    let base = vec![0xff; len];
    let mut world = with_row(&disk, 1 << 20, &base);
    let mut logs = [begin(&world), begin(&world)];
    let all = [addends(&[(0, 8, 1), (12, 4, 9)]), addends(&[(0, 8, -70), (12, 4, 8)])];
    for round in 0..6 {
        add(&mut world, &mut logs[round % 2], all[round % 2]);
    }
    let mut logs = logs.into_iter();
    let winner = logs.nth(committed).unwrap();
    world.stores[0].commit_local(winner);
    durable(&world);
    let crashed = disk.crash(len as u64);
    drop(world);
    ended(open(&crashed, 0), &crashed, &sum(&base, &[all[committed]; 3]));
}

#[test]
fn recovery_subtracts_the_losers_additions() {
    for len in LENGTHS {
        losers_are_subtracted(len, 0);
        losers_are_subtracted(len, 1);
    }
}

/// A crash with two transactions that have added to a row in turn, neither of them committed.
fn additions_of_two_losers_are_subtracted() {
    for len in LENGTHS {
        let disk = MemDisk::new();
        let base = vec![0xff; len];
        let mut world = with_row(&disk, 1 << 20, &base);
        let mut logs = [begin(&world), begin(&world)];
        for round in 0..6 {
            let delta = 1 + round as i64 * 1000;
            add(&mut world, &mut logs[round % 2], addends(&[(0, 8, delta), (12, 4, -delta)]));
        }
        durable(&world);
        let crashed = disk.crash(len as u64);
        drop(world);
        ended(open(&crashed, 0), &crashed, &base);
    }
}

#[test]
fn recovery_subtracts_the_additions_of_two_losers() {
    additions_of_two_losers_are_subtracted();
}

/// A transaction that changes a value after another has added to it is undone first, whatever their
/// ids. Row locks released before the end of their transaction lead to such logs.
fn losers_are_undone_newest_record_first() {
    let disk = MemDisk::new();
    let base = [7; 24];
    let mut world = with_row(&disk, 1 << 20, &base);
    let (mut older, mut younger) = (begin(&world), begin(&world));
    add(&mut world, &mut older, addends(&[(8, 8, 1)]));
    update(&mut world, &mut younger, &[8; 30]);
    update(&mut world, &mut younger, b"too short");
    durable(&world);
    let crashed = disk.crash(1);
    drop(world);
    ended(open(&crashed, 0), &crashed, &base);
}

#[test]
fn recovery_undoes_the_newest_record_first() {
    losers_are_undone_newest_record_first();
}

/// Checks `prior` of the only key that has one.
fn assert_image(world: &mut World, log: &TxnLog, expected: &[Prior<'_>]) {
    let mut found = 0;
    let all = world.run(0, |s| {
        found = 0;
        s.images(log, &mut |tree, key, prior| {
            assert_eq!((tree, key, prior), (TREE, KEY, expected[found]));
            found += 1;
        })
    });
    assert!(all.unwrap());
    assert_eq!(found, expected.len());
}

#[test]
fn images_report_additions_or_the_old_value() {
    for len in LENGTHS {
        let disk = MemDisk::new();
        let base = vec![3; len];
        let mut world = with_row(&disk, 1 << 20, &base);
        let (mut log, mut other) = (begin(&world), begin(&world));
        let replaced =
            |world: &mut World, log: &TxnLog| world.run(0, |s| s.replaced(log, TREE, KEY)).unwrap();
        assert_image(&mut world, &log, &[]);
        assert_eq!(replaced(&mut world, &log), Replaced::Nothing);
        let (one, two) = (addends(&[(9, 4, 1)]), addends(&[(9, 4, 5), (0, 2, -1)]));
        add(&mut world, &mut log, one);
        add(&mut world, &mut other, addends(&[(9, 4, 70)]));
        add(&mut world, &mut log, two);
        assert_image(&mut world, &log, &[Prior::Added(&two), Prior::Added(&one)]);
        let sums: Vec<Addend> = addends(&[(0, 2, -1), (9, 4, 6)]).iter().collect();
        assert_eq!(replaced(&mut world, &log), Replaced::Added(sums));
        // The other transaction ends before the key can be changed in another way.
        world.stores[0].commit_local(other);
        let before = sum(&base, &[addends(&[(9, 4, 70)])]);
        update(&mut world, &mut log, &[1; 50]);
        add(&mut world, &mut log, addends(&[(40, 8, -5)]));
        for _ in 0..2 {
            assert_image(&mut world, &log, &[Prior::Value(Some(&before))]);
            assert_eq!(replaced(&mut world, &log), Replaced::Value(Some(before.clone().into())));
            world.run(0, |s| s.delete(&mut log, TxnMode::Logged, TREE, KEY)).unwrap();
            let inserted =
                world.run(0, |s| s.insert(&mut log, TxnMode::Logged, TREE, KEY, &[1; 9]));
            assert_eq!(inserted.unwrap(), Inserted::Ok);
            add(&mut world, &mut log, addends(&[(0, 8, -5)]));
        }
        let told = rollback(&mut world, &mut log, 0);
        assert_eq!(told.len(), 5);
        world.stores[0].aborted(log);
        ended(world, &disk, &before);
    }
}

#[test]
fn partly_spilled_additions_are_unknown() {
    let mut world = with_row(&MemDisk::new(), 0, &[3; 24]);
    let mut log = begin(&world);
    add(&mut world, &mut log, addends(&[(9, 4, 1)]));
    assert!(!world.run(0, |s| s.images(&log, &mut |_, _, _| panic!("told"))).unwrap());
    assert_eq!(world.run(0, |s| s.replaced(&log, TREE, KEY)).unwrap(), Replaced::Unknown);
}

#[test]
fn an_addition_to_a_fresh_tree_has_no_undo() {
    let disk = MemDisk::new();
    let mut world = with_row(&disk, 1 << 20, &[0; 24]);
    let (mut log, one) = (begin(&world), addends(&[(4, 4, 11)]));
    let compute = &mut |_: &[u8]| Some(one);
    let done = world.run(0, |s| s.increment(&mut log, TxnMode::Fresh, TREE, KEY, compute)).unwrap();
    assert_eq!((done, log.mark()), (Incremented::Done(one), 0));
    world.stores[0].commit_local(log);
    ended(world, &disk, &sum(&[0; 24], &[one]));
}

/// The log space that an addition reserves is enough for its undo, however far apart the integers
/// are, and however few bytes the undo record has.
#[test]
fn rollback_has_enough_log_space() {
    for len in LENGTHS {
        let disk = MemDisk::new();
        let base = vec![5; len];
        let config =
            NodeConfig { wal_segment_size: 256 << 10, undo_reserve_step: 8, ..config(1, 64) };
        let mut world = World::open_with(&disk, config).unwrap();
        world.run(0, |s| s.create_tree(TREE)).unwrap();
        world.run(0, |s| s.insert_autocommit(TREE, KEY, &base)).unwrap().unwrap();
        world.node.checkpoint().unwrap();
        let mut log = begin(&world);
        let one = addends(&[(0, 2, 1), (len as u16 - 8, 8, 1)]);
        disk.set_capacity(disk.used());
        let refused = (0..100_000).find_map(|_| {
            let compute = &mut |_: &[u8]| Some(one);
            let log = &mut log;
            world.run(0, |s| s.increment(log, TxnMode::Logged, TREE, KEY, compute)).err()
        });
        assert!(matches!(refused, Some(StorageError::Page(error)) if error.is_full()));
        let count = log.mark();
        assert!(count > 0);
        assert_eq!(rollback(&mut world, &mut log, 0).len(), count);
        world.stores[0].aborted(log);
        ended(world, &disk, &base);
    }
}

/// Returns a record without page changes, with the undo of an addition, by a separate transaction.
fn record_of_addition(world: &World, prev: Lsn, addends: &[u8]) -> Vec<u8> {
    let mut record = vec![1, 1, 0, 0];
    record.extend_from_slice(&world.node.alloc_txn_id().0.to_le_bytes());
    record.extend_from_slice(&prev.0.to_le_bytes());
    record.push(3);
    for word in [TREE.0, 8, 0, KEY.len() as u32, addends.len() as u32] {
        record.extend_from_slice(&word.to_le_bytes());
    }
    record.extend_from_slice(KEY);
    record.extend_from_slice(addends);
    record
}

/// The checksum is right but the content is not: a start and `check` name the record's place.
#[test]
fn malformed_addition_error_names_its_place() {
    let whole = [0, 0, 2, 1, 0];
    let malformed: [&[u8]; 5] =
        [&[], &[0, 0, 3, 1, 0, 0], &[0, 0, 9, 1, 0], &whole[..4], &whole.repeat(5)];
    for (i, bad) in malformed.into_iter().enumerate() {
        let disk = MemDisk::new();
        let world = with_row(&disk, 0, &[0; 24]);
        let place = durable(&world);
        world.node.wal().append(&[&record_of_addition(&world, Lsn(0), bad)]);
        durable(&world);
        let crashed = disk.crash(i as u64);
        drop(world);
        let Err(error) = World::open(&crashed, 1, 64) else { panic!("record {i} was accepted") };
        assert!(error.to_string().contains(&place.to_string()), "{error}");
        let found =
            crate::check::try_check(&crashed).map(|report| format!("{:?}", report.findings));
        let found = found.unwrap_or_else(|error| error.to_string());
        assert!(found.contains(&place.to_string()), "{found}");
    }
}

/// An addition that does not fit its value is damage that is reported with the page's name.
#[test]
fn logged_addition_out_of_bounds_is_damage() {
    let disk = MemDisk::new();
    let world = with_row(&disk, 0, &[0; 24]);
    world.node.wal().append(&[&record_of_addition(&world, Lsn(0), &[23, 0, 2, 1, 0])]);
    durable(&world);
    let crashed = disk.crash(1);
    drop(world);
    let Err(error) = World::open(&crashed, 1, 64) else { panic!("it was accepted") };
    assert!(error.to_string().contains("shorter than its undo says"), "{error}");
}

/// With each of these injected bugs, a test above fails (only in builds with `--cfg shuttle`).
/// Additions alone are the exception: recovery may undo them in any order.
#[cfg(shuttle)]
#[test]
fn canaries_are_found() {
    use clearway_sync::canary::{Bug, assert_found, assert_harmless};
    assert_found(&[Bug::PatchForAddition], || a_rollback_subtracts(24, 1 << 20));
    assert_found(&[Bug::PatchForAddition], || losers_are_subtracted(24, 1));
    let orders = [Bug::LosersById, Bug::UndoneOldestFirst];
    assert_found(&orders, losers_are_undone_newest_record_first);
    assert_harmless(&orders, additions_of_two_losers_are_subtracted);
}

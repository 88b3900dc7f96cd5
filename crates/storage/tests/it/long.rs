//! Transactions that are much larger than the pool and than their undo memory; values that are
//! longer than a page.

use crate::check::assert_sound;
use crate::common::{Model, World, as_model, config};
use clearway_buffer::{MissingPage, PageError};
use clearway_env::Disk;
use clearway_storage::{
    Blocked, Cursor, LogRead, Missed, Node, NodeConfig, OpenError, OpenErrorKind, StorageError,
    Store, Trees, TxnLog, TxnMode,
};
use clearway_testkit::MemDisk;
use clearway_types::{PageId, PartitionId, TreeId, TxnId};
use std::ops::{Bound, ControlFlow};
use std::path::Path;

const TREE: TreeId = TreeId(1);
const FRAMES: u32 = 64;
/// Rows that need ten times the pool.
const ROWS: u64 = 640 * 8192 / ROW;
const ROW: u64 = 500;
/// Undo memory of the transactions.
const MEMORY: [usize; 4] = [0, 5000, 64 << 10, 1 << 20];

fn key(n: u64) -> Vec<u8> {
    // Rows changed in succession are far apart in the tree, so that an undo misses as often as
    // possible.
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes().to_vec()
}

fn value(n: u64, round: u8) -> Vec<u8> {
    let mut bytes = vec![round; ROW as usize - 30];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

fn open(disk: &MemDisk, undo_memory: usize) -> World {
    let config = NodeConfig { undo_memory, wal_segment_size: 256 << 10, ..config(1, FRAMES) };
    World::open_with(disk, config).unwrap()
}

/// Returns a tree with every second row, all committed and in the files.
fn half_full(disk: &MemDisk, undo_memory: usize, rows: u64) -> World {
    let mut world = open(disk, undo_memory);
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    for n in (0..rows).step_by(2) {
        world.run(0, |s| s.insert_autocommit(TREE, &key(n), &value(n, 1))).unwrap().unwrap();
    }
    world.node.checkpoint().unwrap();
    world
}

fn expected(rows: u64) -> Model {
    (0..rows).step_by(2).map(|n| (key(n), value(n, 1))).collect()
}

/// Changes row `n`: updates or deletes an existing row, inserts a missing one.
fn change(store: &mut Store, log: &mut TxnLog, n: u64) -> Result<(), Blocked> {
    match n % 4 {
        0 => assert!(store.update(log, TxnMode::Logged, TREE, &key(n), &value(n, 2))?),
        2 => assert!(store.delete(log, TxnMode::Logged, TREE, &key(n))?),
        _ => drop(store.insert(log, TxnMode::Logged, TREE, &key(n), &value(n, 3))?),
    }
    Ok(())
}

/// Changes the rows, and checks that the undo stays within its memory.
fn change_all(world: &mut World, log: &mut TxnLog, rows: std::ops::Range<u64>, memory: usize) {
    for n in rows {
        world.run(0, |s| change(s, log, n)).unwrap();
        assert!(
            log.size() <= 2 * memory + 2 * ROW as usize,
            "{} bytes of undo in memory",
            log.size()
        );
    }
}

fn changed(model: &mut Model, rows: std::ops::Range<u64>) {
    for n in rows {
        match n % 4 {
            0 => drop(model.insert(key(n), value(n, 2))),
            2 => drop(model.remove(&key(n))),
            _ => drop(model.insert(key(n), value(n, 3))),
        }
    }
}

fn check(world: World, disk: &MemDisk, model: &Model) {
    let mut world = world;
    assert!(as_model(world.all(0, TREE, false)) == *model, "other rows than expected");
    world.node.checkpoint().unwrap();
    assert_sound(&disk.crash(0));
    world.node.shutdown();
}

#[test]
fn transaction_of_ten_times_the_pool_commits() {
    let disk = MemDisk::new();
    let mut world = half_full(&disk, 64 << 10, ROWS);
    let mut log = TxnLog::new(TxnId(7));
    change_all(&mut world, &mut log, 0..ROWS, 64 << 10);
    assert_eq!(log.mark(), ROWS as usize);
    let lsn = world.stores[0].commit_local(log);
    world.node.wal().wait_durable(lsn).unwrap();
    let mut model = expected(ROWS);
    changed(&mut model, 0..ROWS);
    drop(world);
    let crashed = disk.crash(1);
    let world = open(&crashed, 0);
    check(world, &crashed, &model);
}

/// Its abort writes about as much log as the transaction did, and reads about as many pages,
/// whatever its undo memory is. So it takes time in proportion to the writes.
#[test]
fn abort_of_a_huge_transaction_is_linear() {
    for memory in MEMORY {
        let disk = MemDisk::new();
        let mut world = half_full(&disk, memory, ROWS);
        let (appended, reads) = (world.node.wal().appended().0, world.node.pool().stats().reads);
        let mut log = TxnLog::new(TxnId(7));
        change_all(&mut world, &mut log, 0..ROWS, memory);
        let (logged, read) =
            (world.node.wal().appended().0 - appended, world.node.pool().stats().reads - reads);
        let (appended, reads) = (world.node.wal().appended().0, world.node.pool().stats().reads);
        world.run(0, |s| s.rollback(&mut log, 0, &mut |_, _, _| {})).unwrap();
        assert!(log.size() <= 2 * memory + (2 << 10), "{} bytes of undo in memory", log.size());
        world.stores[0].aborted(log);
        let undo_logged = world.node.wal().appended().0 - appended;
        let undo_read = world.node.pool().stats().reads - reads;
        assert!(undo_logged < logged * 3 / 2, "{undo_logged} bytes of log to undo {logged}");
        assert!(undo_read < read * 2, "{undo_read} pages read to undo what took {read}");
        check(world, &disk, &expected(ROWS));
    }
}

#[test]
fn rollback_to_a_savepoint_half_way() {
    for memory in MEMORY {
        let disk = MemDisk::new();
        let mut world = half_full(&disk, memory, ROWS);
        let mut log = TxnLog::new(TxnId(7));
        change_all(&mut world, &mut log, 0..ROWS / 2, memory);
        let mark = log.mark();
        for _ in 0..2 {
            change_all(&mut world, &mut log, ROWS / 2..ROWS, memory);
            world.run(0, |s| s.rollback(&mut log, mark, &mut |_, _, _| {})).unwrap();
            assert_eq!(log.mark(), mark);
        }
        change_all(&mut world, &mut log, ROWS / 2..ROWS * 3 / 4, memory);
        let mut model = expected(ROWS);
        if memory % 3 == 0 {
            world.run(0, |s| s.rollback(&mut log, 0, &mut |_, _, _| {})).unwrap();
            world.stores[0].aborted(log);
        } else {
            changed(&mut model, 0..ROWS * 3 / 4);
            world.stores[0].commit_local(log);
        }
        check(world, &disk, &model);
    }
}

/// A rollback that is retried before its read has ended requests another read. Each of the reads is
/// useful, whichever ends first.
#[test]
fn early_retry_of_a_rollback_makes_progress() {
    let disk = MemDisk::new();
    let mut world = half_full(&disk, 0, ROWS / 8);
    let mut log = TxnLog::new(TxnId(7));
    change_all(&mut world, &mut log, 0..ROWS / 8, 0);
    let (mut earlier, mut tries) = (None, 0);
    // Every read runs one attempt late, so that another one is always requested by the time it
    // ends.
    world
        .run(0, |s| {
            loop {
                tries += 1;
                assert!(tries < 4 * ROWS, "the rollback makes no progress");
                match s.rollback(&mut log, 0, &mut |_, _, _| {}) {
                    Err(Blocked::Log(read)) => {
                        earlier.replace(read).into_iter().for_each(LogRead::run)
                    }
                    other => return other,
                }
            }
        })
        .unwrap();
    world.stores[0].aborted(log);
    check(world, &disk, &expected(ROWS / 8));
}

/// Repeats an attempt until it is done or the disk has failed; returns true if it is done.
fn until_failure(
    world: &mut World,
    mut attempt: impl FnMut(&mut Store) -> Result<(), Blocked>,
) -> bool {
    let mut kept = Vec::new();
    loop {
        match attempt(&mut world.stores[0]) {
            Ok(()) => return true,
            Err(Blocked::Failed(_)) => return false,
            Err(Blocked::Log(read)) => read.run(),
            Err(Blocked::MissingPage(wants)) => {
                let fetched: Result<Vec<_>, _> =
                    wants.into_iter().map(|want| world.node.pool().fetch_blocking(want)).collect();
                let Ok(fetched) = fetched else { return false };
                drop(std::mem::replace(&mut kept, fetched));
            }
        }
    }
}

/// The disk fails at any moment of an abort, and recovery restores exactly the committed state
/// after a crash. The recovery is interrupted, too.
#[test]
fn crash_during_an_abort_is_recovered() {
    const SOME: u64 = ROWS / 8;
    let template = MemDisk::new();
    let world = half_full(&template, 0, SOME);
    world.node.shutdown();
    drop(world);
    let mut done = 0;
    for seed in 0..40u64 {
        let disk = template.crash(seed);
        let mut world = open(&disk, MEMORY[seed as usize % 3]);
        let mut log = TxnLog::new(TxnId(7));
        change_all(&mut world, &mut log, 0..SOME, MEMORY[seed as usize % 3]);
        let keep = if seed % 3 == 0 { log.mark() / 2 } else { 0 };
        disk.fail_after(seed * seed / 3);
        let undone = until_failure(&mut world, |s| s.rollback(&mut log, keep, &mut |_, _, _| {}));
        if undone && keep == 0 {
            world.stores[0].aborted(log);
            done += 1;
        }
        let mut after = disk.crash(seed);
        drop(world);
        for attempt in 0..seed % 3 {
            after.fail_after(attempt * 30 + seed);
            let opened =
                Node::open(std::sync::Arc::new(after.clone()), Path::new("db"), config(1, FRAMES));
            let again = after.crash(attempt);
            drop(opened);
            after = again;
        }
        let world = open(&after, 0);
        check(world, &after, &expected(SOME));
    }
    assert!(done < 30, "the disk did not fail in {done} of 40 aborts");
}

/// Repeats an attempt while others use every frame that is not pinned: with the pages that `missed`
/// remembers, or only with the requested ones.
fn among_others<T>(
    world: &mut World,
    mut missed: Option<Missed>,
    mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>,
) -> T {
    let mut kept = Vec::new();
    for _ in 0..1000 {
        match attempt(&mut world.stores[0]) {
            Ok(value) => return value,
            Err(Blocked::Log(read)) => read.run(),
            Err(Blocked::Failed(error)) => panic!("{error}"),
            Err(Blocked::MissingPage(wants)) => {
                kept.clear();
                for no in 1..200 {
                    drop(
                        world
                            .node
                            .pool()
                            .fetch_blocking(MissingPage::Page(PageId::new(PartitionId(0), no))),
                    );
                }
                let wants = match &mut missed {
                    Some(missed) => missed.recall(wants, 0),
                    None => wants,
                };
                kept.extend(
                    wants.into_iter().map(|want| world.node.pool().fetch_blocking(want).unwrap()),
                );
            }
        }
    }
    panic!("it misses the same pages again");
}

/// The path to a long value and its parts are requested together, so they are eventually all
/// resident.
#[test]
fn long_value_is_read_from_a_contended_pool() {
    let long = |round: u8| vec![round; 3 * 8192];
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 1, 32).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    for n in 0..2000u64 {
        let value = if n % 50 == 0 { long(1) } else { value(n, 1) };
        world.run(0, |s| s.insert_autocommit(TREE, &n.to_be_bytes(), &value)).unwrap().unwrap();
    }
    let key = |n: u64| n.to_be_bytes().to_vec();
    for reverse in [false, true] {
        let mut found = Vec::new();
        let mut cursor =
            Cursor::new(TREE, Bound::Included(key(490)), Bound::Included(key(510)), reverse);
        // Every attempt continues after what was found: only what is resident at once counts.
        let whole = among_others(&mut world, None, |s| {
            cursor.run(s, &mut |key, value| {
                found.push((key.to_vec(), value.len()));
                ControlFlow::Continue(())
            })
        });
        assert!(whole && found.len() == 21 && found.contains(&(key(500), 3 * 8192)), "{found:?}");
    }
    let get = |world: &mut World| {
        let mut found = Vec::new();
        assert!(among_others(world, None, |s| s
            .get(TREE, &key(500), &mut |value| found = value.to_vec())));
        found
    };
    assert_eq!(get(&mut world), long(1));
    let mut log = TxnLog::new(TxnId(7));
    let some = || Some(Missed::default());
    assert!(among_others(&mut world, some(), |s| s.update(
        &mut log,
        TxnMode::Logged,
        TREE,
        &key(500),
        &long(2)
    )));
    assert_eq!(get(&mut world), long(2));
    among_others(&mut world, some(), |s| s.rollback(&mut log, 0, &mut |_, _, _| {}));
    world.stores[0].aborted(log);
    assert_eq!(get(&mut world), long(1));
}

/// Rows that are much longer than what a small log buffer allows.
const LONG: [usize; 2] = [200_000, 500_000];

fn roomy(wal_buffer_size: usize) -> NodeConfig {
    NodeConfig { wal_buffer_size, wal_segment_size: 1 << 20, ..config(1, 512) }
}

/// Returns a directory with the long rows, made with the default log buffer. `change` changes it
/// before the process is killed.
fn with_long_rows(change: impl FnOnce(&mut World)) -> MemDisk {
    let disk = MemDisk::new();
    let mut world = World::open_with(&disk, roomy(16 << 20)).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    for len in LONG {
        let key = len.to_be_bytes();
        world.run(0, |s| s.insert_autocommit(TREE, &key, &vec![1; len])).unwrap().unwrap();
    }
    world.node.checkpoint().unwrap();
    change(&mut world);
    let end = world.node.wal().appended();
    world.node.wal().wait_durable(end).unwrap();
    disk.kill()
}

fn has_long_rows(world: &mut World) {
    let expected = LONG.map(|len| (len.to_be_bytes().to_vec(), vec![1; len]));
    assert!(world.all(0, TREE, false) == expected, "other rows than expected");
}

/// Deletes a long row, and shortens the other.
fn change_long_rows(world: &mut World) {
    let mut log = TxnLog::new(TxnId(7));
    let [one, other] = LONG.map(usize::to_be_bytes);
    assert!(world.run(0, |s| s.delete(&mut log, TxnMode::Logged, TREE, &other)).unwrap());
    assert!(world.run(0, |s| s.update(&mut log, TxnMode::Logged, TREE, &one, b"")).unwrap());
}

#[test]
fn recovery_undoes_more_than_its_log_buffer_allows() {
    for buffer in [64 << 10, 1 << 20] {
        let disk = with_long_rows(change_long_rows);
        let mut world = World::open_with(&disk, roomy(buffer)).unwrap();
        has_long_rows(&mut world);
        world.node.shutdown();
    }
}

/// A small pool is not damage: the next start with a larger one recovers.
#[test]
fn recovery_asks_for_a_larger_pool() {
    let disk = with_long_rows(change_long_rows);
    let small = NodeConfig { frames: 32, ..roomy(1 << 20) };
    let refused = World::open_with(&disk, small).map(drop).unwrap_err();
    assert_eq!(refused.kind(), OpenErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("buffer_pool"), "{refused}");
    let mut world = World::open_with(&disk, roomy(1 << 20)).unwrap();
    has_long_rows(&mut world);
    world.node.shutdown();
    let limits = [StorageError::ValueTooLong { len: 2, max: 1 }, PageError::NoFrames.into()];
    for error in limits.map(OpenError::from) {
        assert_eq!(error.kind(), OpenErrorKind::Refused, "{error}");
    }
}

/// What is changed with a smaller log buffer can be undone with it.
#[test]
fn rollback_fits_in_the_log_buffer() {
    let [one, other] = LONG.map(usize::to_be_bytes);
    for (buffer, fits) in [(64 << 10, [false, false]), (1 << 20, [true, false])] {
        let disk = with_long_rows(|_| {});
        let mut world = World::open_with(&disk, roomy(buffer)).unwrap();
        let mut log = TxnLog::new(TxnId(8));
        for (key, fits) in [one, other].into_iter().zip(fits) {
            let update = |s: &mut Store| s.update(&mut log, TxnMode::Logged, TREE, &key, b"");
            match world.run(0, update) {
                Err(StorageError::ValueTooLong { .. }) => assert!(!fits),
                updated => assert!(updated.unwrap() && fits),
            }
        }
        world.run(0, |s| s.rollback(&mut log, 0, &mut |_, _, _| {})).unwrap();
        world.stores[0].aborted(log);
        has_long_rows(&mut world);
        world.node.shutdown();
    }
}

fn log_on_disk(disk: &MemDisk) -> u64 {
    disk.list(Path::new("db/wal")).unwrap().len() as u64 * (256 << 10)
}

/// The log is truncated up to the oldest need: an open transaction keeps it, and its end releases
/// it.
#[test]
fn log_is_kept_for_the_oldest_transaction_only() {
    let disk = MemDisk::new();
    let mut world = half_full(&disk, 0, 200);
    let writes = |world: &mut World| {
        for round in 0..100u8 {
            for n in (0..200).step_by(2) {
                world
                    .run(0, |s| s.update_autocommit(TREE, &key(n), &value(n, round)))
                    .unwrap()
                    .unwrap();
            }
            world.node.checkpoint().unwrap();
        }
        log_on_disk(&disk)
    };
    // The current segment, the one before it, and those that are ready for use.
    let bound = 8 * (256 << 10);
    for _ in 0..3 {
        let held = writes(&mut world);
        assert!(held <= bound, "{held} bytes of log");
    }
    let mut old = TxnLog::new(TxnId(7));
    world.run(0, |s| s.insert(&mut old, TxnMode::Logged, TREE, &key(1), b"old")).unwrap();
    let held = writes(&mut world);
    assert!(held > 4 * bound / 3, "{held} bytes of log");
    let more = writes(&mut world);
    assert!(more > held + bound / 2, "{more} bytes of log");
    // All of its undo is only in that log.
    world.run(0, |s| s.rollback(&mut old, 0, &mut |_, _, _| {})).unwrap();
    world.stores[0].aborted(old);
    world.node.checkpoint().unwrap();
    let held = log_on_disk(&disk);
    assert!(held <= bound, "{held} bytes of log");
    assert!(!world.run(0, |s| s.get(TREE, &key(1), &mut |_| {})).unwrap());
    let mut model = expected(200);
    for n in (0..200).step_by(2) {
        model.insert(key(n), value(n, 99));
    }
    check(world, &disk, &model);
}

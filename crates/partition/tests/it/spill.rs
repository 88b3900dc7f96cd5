//! Readers of old row versions that are in the temporary file.

use crate::driver::{Driver, state_of};
use crate::history::run_each;
use crate::snapshots::{close, open, read_in};
use crate::sql::{BY_A, BY_B, Expected, Find, Model, ROWS, Row, Stmt, as_expected, rows_of, table};
use crate::trees::{MemTrees, Paging};
use crate::units::{D, abort, add, make_trees, numbers, one, select};
use clearway_env::Disk;
use clearway_ir::RowLock;
use clearway_partition::{Batch, Body, Limits, Partition, Snapshot};
use clearway_storage::SpillFile;
use clearway_testkit::{FOR_EVER, Fault, FaultPlan, FaultZone, MemDisk, Role, When};
use clearway_types::{SqlState, TxnId};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SLOT: usize = 2048;

fn disk() -> MemDisk {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/db")).expect("a directory");
    disk
}

fn file(disk: &MemDisk, slots: u64) -> Arc<SpillFile> {
    let file = SpillFile::new(Arc::new(disk.clone()), Path::new("/db"), slots * SLOT as u64, SLOT);
    file.expect("a slot fits")
}

/// Creates a partition with little memory for versions.
fn spilling(file: &Arc<SpillFile>, memory: usize) -> D {
    let mut d = Driver::new(MemTrees::new(None), ());
    let limits = Limits { version_memory: memory, ..Limits::default() };
    d.partition = Partition::new(MemTrees::new(None), limits, d.snapshots.clone())
        .with_spill(Some(file.clone()));
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    d
}

fn change(d: &mut D, model: &mut Model, stmt: &Stmt) {
    assert_eq!(as_expected(&one(d, stmt)), model.run(stmt), "{stmt:?}");
}

/// Changes every row of the table.
fn change_everything(d: &mut D, model: &mut Model, rows: i32) {
    for id in 0..rows {
        let find = Find::Point(id);
        let stmt = match id % 5 {
            0 => Stmt::Delete(find),
            1 => Stmt::Add { find, column: 2, by: 100_000 },
            2 => Stmt::Add { find, column: 0, by: 100_000 },
            _ => Stmt::Add { find, column: 1, by: 3 },
        };
        change(d, model, &stmt);
        change(
            d,
            model,
            &Stmt::Insert { rows: vec![(-1 - id, Some(id % 10), -1 - id)], ignore: false },
        );
    }
}

fn finds() -> Vec<Find> {
    let mut finds = vec![Find::All { a_less: None }, Find::All { a_less: Some(4) }];
    for reverse in [false, true] {
        finds.push(Find::Ids { low: None, high: None, reverse });
        finds.push(Find::Ids { low: Some(17), high: Some(90), reverse });
        finds.push(Find::ByA { low: None, high: None, reverse });
        finds.push(Find::ByA { low: Some(3), high: Some(4), reverse });
    }
    finds.extend((-3..60).map(Find::Point));
    finds.extend((1000..1030).map(Find::ByB));
    finds.push(Find::Points((0..100).step_by(7).collect()));
    finds
}

/// Reads a few rows at a time.
fn in_batches(d: &mut D, reader: &(TxnId, Snapshot), find: Find) -> Expected {
    let Body::StatementAt { at, repeatable, program, env, rows, .. } =
        read_in(&table(), reader, find)
    else {
        panic!("a statement")
    };
    let batch = Batch { id: 3, rows: 7, bytes: u32::MAX };
    let mut reply = d
        .call(reader.0, Body::StatementAt { at, repeatable, program, env, rows, batch })
        .expect("rows");
    let mut all = rows_of(&reply);
    while reply.more {
        reply = d.call(reader.0, Body::Next(3)).expect("rows");
        all.extend(rows_of(&reply));
    }
    Ok(all)
}

#[test]
fn readers_find_spilled_versions_by_every_path() {
    const ROW_COUNT: i32 = 200;
    let disk = disk();
    let file = file(&disk, 10_000);
    let mut d = spilling(&file, 40_000);
    let mut model = Model::default();
    change(&mut d, &mut model, &Stmt::Insert { rows: numbers(ROW_COUNT), ignore: false });
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push((open(&mut d), model.clone()));
        let now: Vec<i32> =
            model.0.keys().copied().filter(|id| (0..ROW_COUNT).contains(id)).collect();
        if now.len() == ROW_COUNT as usize {
            change_everything(&mut d, &mut model, ROW_COUNT);
        } else {
            now.iter().for_each(|id| change(&mut d, &mut model, &Stmt::Delete(Find::Point(*id))));
            change(
                &mut d,
                &mut model,
                &Stmt::Insert { rows: numbers(ROW_COUNT / 2), ignore: true },
            );
        }
    }
    assert!(file.bytes() > 60_000, "{}", file.bytes());
    assert!(d.partition.version_memory() < 50_000, "{}", d.partition.version_memory());
    for (reader, then) in &readers {
        for find in finds() {
            let expected = then.clone().run(&select(find.clone()));
            let got = as_expected(&d.call(reader.0, read_in(&table(), reader, find.clone())));
            assert_eq!(got, expected, "{find:?}");
            assert_eq!(in_batches(&mut d, reader, find), expected);
        }
    }
    assert!(d.spill_reads > 100, "{}", d.spill_reads);
    readers.into_iter().for_each(|(reader, _)| close(&mut d, reader));
    assert_eq!((d.partition.version_memory(), file.bytes(), d.nothing_pending()), (0, 0, true));
}

/// A change as of a snapshot detects later changes by others, wherever their images are.
#[test]
fn spilled_changes_since_the_snapshot_are_detected() {
    let disk = disk();
    let file = file(&disk, 10_000);
    let mut d = spilling(&file, 8_000);
    one(&mut d, &Stmt::Insert { rows: numbers(100), ignore: false }).expect("rows");
    let writer = open(&mut d);
    (0..99).for_each(|id| _ = one(&mut d, &add(id)).expect("a change"));
    assert!(file.bytes() > 0);
    let locking = |d: &mut D, id: i32| {
        let Body::StatementAt { at, repeatable, env, .. } =
            read_in(&table(), &writer, Find::Point(id))
        else {
            panic!("a statement")
        };
        let lock = Stmt::Select { find: Find::Point(id), limit: None, lock: Some(RowLock::Update) };
        let program = Arc::new(lock.program(&table()));
        d.call(
            writer.0,
            Body::StatementAt { at, repeatable, program, env, rows: None, batch: Batch::ALL },
        )
    };
    for id in 0..99 {
        assert_eq!(state_of(&locking(&mut d, id)), Some(SqlState::SERIALIZATION_FAILURE), "{id}");
    }
    assert_eq!(rows_of(&locking(&mut d, 99).expect("it is unchanged")), [(99, Some(9), 1099)]);
    assert!(d.spill_reads > 0);
    drop(writer.1);
    abort(&mut d, writer.0);
}

/// An insert as of a snapshot detects later deletions of rows, wherever their images are.
#[test]
fn spilled_deletions_since_the_snapshot_are_detected() {
    let disk = disk();
    let file = file(&disk, 10_000);
    let mut d = spilling(&file, 8_000);
    one(&mut d, &Stmt::Insert { rows: numbers(100), ignore: false }).expect("rows");
    let writer = open(&mut d);
    (0..100).for_each(|id| _ = one(&mut d, &Stmt::Delete(Find::Point(id))).expect("a change"));
    assert!(file.bytes() > 0);
    let insert = |d: &mut D, row: Row, repeatable: bool| {
        let Body::Statement { program, env, rows, batch, .. } =
            Stmt::Insert { rows: vec![row], ignore: false }.statement(&table())
        else {
            panic!("a statement")
        };
        d.call(
            writer.0,
            Body::StatementAt { at: writer.1.lsn(), repeatable, program, env, rows, batch },
        )
    };
    for id in 0..99 {
        for row in [(id, None, 5_000 + id), (500 + id, None, 1_000 + id)] {
            assert_eq!(
                state_of(&insert(&mut d, row, true)),
                Some(SqlState::SERIALIZATION_FAILURE),
                "{row:?}"
            );
        }
    }
    assert!(d.spill_reads > 0);
    let free = (500, None, 5_000);
    assert_eq!(insert(&mut d, free, true).expect("free").count, 1);
    assert_eq!(insert(&mut d, (99, None, 1_099), false).expect("READ COMMITTED").count, 1);
    drop(writer.1);
    abort(&mut d, writer.0);
}

/// Snapshots fail, oldest first; no writer does.
#[test]
fn full_files_fail_the_oldest_snapshot() {
    let disk = disk();
    let file = file(&disk, 4);
    let mut d = spilling(&file, 8_000);
    one(&mut d, &Stmt::Insert { rows: numbers(600), ignore: false }).expect("rows");
    let old = open(&mut d);
    (0..570).for_each(|id| _ = one(&mut d, &add(id)).expect("a change"));
    let newer = open(&mut d);
    (570..575).for_each(|id| _ = one(&mut d, &add(id)).expect("a change"));
    let reads = |d: &mut D, reader: &(TxnId, Snapshot), id: i32| {
        d.call(reader.0, read_in(&table(), reader, Find::Point(id)))
    };
    assert_eq!(state_of(&reads(&mut d, &old, 1)), Some(SqlState::SNAPSHOT_TOO_OLD));
    assert_eq!(as_expected(&reads(&mut d, &newer, 570)), Ok(vec![(570, Some(0), 1570)]));
    assert!(file.bytes() <= 4 * SLOT as u64);
    close(&mut d, old);
    close(&mut d, newer);
    assert_eq!((d.partition.version_memory(), file.bytes()), (0, 0));
}

/// A statement whose own changes leave no room for the versions that it reads fails, rather than
/// change rows that its snapshot does not see.
#[test]
fn versions_lost_during_a_statement_fail_it() {
    let mut d: D = Driver::new(MemTrees::new(None), ());
    // Few rows at a time: it finds some after it has changed others.
    let limits = Limits { version_memory: 8_000, collect: 4, ..Limits::default() };
    d.partition = Partition::new(MemTrees::new(None), limits, d.snapshots.clone());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: numbers(100), ignore: false }).expect("rows");
    let writer = open(&mut d);
    let newer = (100..108).map(|id| (id, None, 5_000 + id)).collect();
    one(&mut d, &Stmt::Insert { rows: newer, ignore: false }).expect("rows");
    let update = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 3 };
    let answer = d.call(
        writer.0,
        Body::StatementAt {
            at: writer.1.lsn(),
            repeatable: true,
            program: Arc::new(update.program(&table())),
            env: Arc::default(),
            rows: None,
            batch: Batch::ALL,
        },
    );
    let count = answer.as_ref().map(|reply| reply.count);
    assert_eq!(state_of(&answer), Some(SqlState::SNAPSHOT_TOO_OLD), "{count:?}");
    drop(writer.1);
    abort(&mut d, writer.0);
}

#[test]
fn unreadable_or_unwritable_blocks_fail_only_snapshots() {
    for fault in [Fault::FailedWrite, Fault::FailedRead, Fault::LostWrite, Fault::FailedOpen] {
        let disk = disk();
        let zone =
            FaultZone::under(Role::Cache, "versions", "/db").fault(fault, When::After(0), FOR_EVER);
        disk.set_faults(Some(Arc::new(FaultPlan::new(1, Duration::ZERO, vec![zone]))));
        let file = file(&disk, 10_000);
        let mut d = spilling(&file, 8_000);
        one(&mut d, &Stmt::Insert { rows: numbers(600), ignore: false }).expect("rows");
        let reader = open(&mut d);
        (0..600).for_each(|id| _ = one(&mut d, &add(id)).expect("a change"));
        let failed = d.call(reader.0, read_in(&table(), &reader, Find::All { a_less: None }));
        assert_eq!(state_of(&failed), Some(SqlState::SNAPSHOT_TOO_OLD), "{fault:?}");
        let again = open(&mut d);
        let answer = d.call(again.0, read_in(&table(), &again, Find::Point(0)));
        assert_eq!(as_expected(&answer), Ok(vec![(0, Some(1), 1000)]));
        close(&mut d, reader);
        close(&mut d, again);
        assert_eq!((d.partition.version_memory(), file.bytes()), (0, 0));
    }
}

/// Random histories with snapshot readers, in a partition that spills most of its versions.
#[test]
fn histories_with_spilled_versions_are_serializable() {
    for paging in [None, Some(Paging { pages: 40, frames: 5 })] {
        let seen = run_each(paging, 200, |mut driver| {
            let limits = Limits { version_memory: 0, ..Limits::default() };
            let file = SpillFile::new(Arc::new(disk()), Path::new("/db"), 1 << 30, 512);
            let partition = Partition::new(MemTrees::new(paging), limits, driver.snapshots.clone());
            driver.partition = partition.with_spill(file);
            driver
        });
        assert!(seen.spill_reads > 100, "{seen:?}");
    }
}

//! Tests of single rules of snapshots.

use crate::driver::{Answer, Driver, state_of};
use crate::sql::{BY_A, BY_B, Find, ROWS, Stmt, as_expected, plain_table, rows_of, table};
use crate::trees::MemTrees;
use crate::units::{D, add, driver, make_trees, numbers, one, select};
use clearway_ir::program::Env;
use clearway_ir::{RowLock, TableDef};
use clearway_partition::{Batch, Body, Limits, Partition, Snapshot};
use clearway_types::{Lsn, SqlState, TxnId};
use std::sync::Arc;

/// Opens a snapshot for a new reader.
pub fn open(d: &mut D) -> (TxnId, Snapshot) {
    let (txn, opening) = (d.txn(), d.snapshots.begin());
    if let Some(generation) = opening.generation() {
        assert_eq!(d.call(txn, Body::KeepVersions(generation)).expect("a reply").count, 1);
    }
    (txn, d.open(opening))
}

pub fn read_in(table: &Arc<TableDef>, (_, snapshot): &(TxnId, Snapshot), find: Find) -> Body {
    let env = Arc::new(Env::default());
    Body::StatementAt {
        at: snapshot.lsn(),
        repeatable: true,
        program: Arc::new(select(find).program(table)),
        env,
        rows: None,
        batch: Batch::ALL,
    }
}

fn read(d: &mut D, reader: &(TxnId, Snapshot), find: Find) -> Answer {
    d.call(reader.0, read_in(&table(), reader, find))
}

pub fn close(d: &mut D, (txn, snapshot): (TxnId, Snapshot)) {
    drop(snapshot);
    d.call(txn, Body::Finish { commit: Some(Lsn(0)) }).expect("the end");
}

#[test]
fn readers_and_writers_do_not_wait_for_each_other() {
    let mut d = driver(&numbers(5));
    let writer = d.txn();
    d.call(writer, add(2).statement(&table())).expect("a change");
    let reader = open(&mut d);
    let all = Find::All { a_less: None };
    assert_eq!(rows_of(&read(&mut d, &reader, all.clone()).expect("rows")), numbers(5));
    // Changes a row that has been read, and rows that have not been read yet.
    for change in [
        add(1),
        Stmt::Delete(Find::Point(3)),
        Stmt::Insert { rows: vec![(9, None, 9)], ignore: false },
    ] {
        d.call(writer, change.statement(&table())).expect("a change");
    }
    one(&mut d, &Stmt::Delete(Find::Point(4))).expect("a change");
    let commit = d.append_commit(writer);
    d.call(writer, Body::Finish { commit: Some(commit) }).expect("commit");
    for find in [all.clone(), Find::Ids { low: None, high: None, reverse: false }] {
        assert_eq!(rows_of(&read(&mut d, &reader, find).expect("rows")), numbers(5));
    }
    let later = open(&mut d);
    let now = vec![(0, Some(0), 1000), (1, Some(2), 1001), (2, Some(3), 1002), (9, None, 9)];
    assert_eq!(rows_of(&read(&mut d, &later, all).expect("rows")), now);
    assert_eq!(d.depends_on, commit);
    close(&mut d, reader);
    close(&mut d, later);
    assert_eq!(
        (d.partition.version_memory(), d.partition.active(), d.nothing_pending()),
        (0, 0, true)
    );
}

/// The commit record is in the log, but the partition has not received the outcome: until then it
/// is unknown whether the snapshot sees the commit.
#[test]
fn readers_wait_for_the_outcome_of_a_commit() {
    let mut d = driver(&numbers(3));
    let writer = d.txn();
    d.call(writer, add(2).statement(&table())).expect("a change");
    let before = open(&mut d);
    let committing = d.snapshots.commit(writer);
    let commit = d.append_commit(writer);
    let after = open(&mut d);
    let answers =
        [&before, &after].map(|reader| d.send(reader.0, read_in(&table(), reader, Find::Point(2))));
    assert_eq!(answers.map(|answer| d.take(answer)), [None, None]);
    d.call(writer, Body::Finish { commit: Some(commit) }).expect("commit");
    drop(committing);
    let rows = answers
        .map(|answer| rows_of(&d.take(answer).expect("the outcome has arrived").expect("rows")));
    assert_eq!(rows, [vec![(2, Some(2), 1002)], vec![(2, Some(3), 1002)]]);
    close(&mut d, before);
    close(&mut d, after);
    assert!(d.nothing_pending());
}

/// A transaction that makes partitions keep images for its own snapshot may have changed something
/// itself: others do not see that.
#[test]
fn changes_before_the_first_snapshot_stay_private() {
    let mut d = driver(&numbers(3));
    let (writer, opening) = (d.txn(), d.snapshots.begin());
    d.call(writer, add(1).statement(&table())).expect("a change");
    d.call(writer, Body::Savepoint(1)).expect("a savepoint");
    let generation = opening.generation().expect("it is the first");
    assert_eq!(d.call(writer, Body::KeepVersions(generation)).expect("a reply").count, 1);
    let own = (writer, d.open(opening));
    let reader = open(&mut d);
    d.call(writer, add(2).statement(&table())).expect("a change");
    let values = |d: &mut D| {
        [&own, &reader].map(|who| {
            rows_of(&read(d, who, Find::All { a_less: None }).expect("rows"))
                .into_iter()
                .map(|r| r.1)
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(
        values(&mut d),
        [[Some(0), Some(2), Some(3)], [Some(0), Some(1), Some(2)]].map(Vec::from)
    );
    d.call(writer, Body::RollbackTo(1)).expect("rolled back");
    assert_eq!(
        values(&mut d),
        [[Some(0), Some(2), Some(2)], [Some(0), Some(1), Some(2)]].map(Vec::from)
    );
    close(&mut d, reader);
    drop(own);
    d.call(writer, Body::Finish { commit: None }).expect("the end");
}

/// A change applies to the row's newest version, if the condition still holds; a repeatable
/// transaction fails instead.
#[test]
fn changes_apply_to_the_newest_version() {
    let mut d = driver(&numbers(4));
    let (early, repeatable) = (open(&mut d), open(&mut d));
    one(&mut d, &add(1)).expect("a change");
    one(&mut d, &Stmt::Delete(Find::Point(2))).expect("a change");
    let change = |d: &mut D, who: &(TxnId, Snapshot), repeatable: bool, find: Find| {
        let program = Arc::new(Stmt::Add { find, column: 1, by: 10 }.program(&table()));
        let env = Arc::new(Env::default());
        d.call(
            who.0,
            Body::StatementAt {
                at: who.1.lsn(),
                repeatable,
                program,
                env,
                rows: None,
                batch: Batch::ALL,
            },
        )
    };
    let by_a = |low, high| Find::ByA { low: Some(low), high: Some(high), reverse: false };
    for find in [Find::All { a_less: None }, by_a(2, 2), Find::Points(vec![1, 3])] {
        let refused = change(&mut d, &repeatable, true, find);
        assert_eq!(state_of(&refused), Some(SqlState::SERIALIZATION_FAILURE));
    }
    assert_eq!(
        change(&mut d, &repeatable, true, Find::Point(0)).expect("it is unchanged").count,
        1
    );
    d.call(repeatable.0, Body::Finish { commit: None }).expect("the end");
    // Row 1 has left the range, row 2 is deleted.
    for find in [by_a(1, 1), by_a(2, 2)] {
        assert_eq!(change(&mut d, &early, false, find).expect("no change").count, 0);
    }
    assert_eq!(
        change(&mut d, &early, false, Find::All { a_less: Some(2) }).expect("a change").count,
        1
    );
    let rows = rows_of(&read(&mut d, &early, Find::All { a_less: None }).expect("rows"));
    assert_eq!(
        rows,
        [(0, Some(10), 1000), (1, Some(1), 1001), (2, Some(2), 1002), (3, Some(3), 1003)]
    );
    close(&mut d, early);
}

#[test]
fn hot_rows_cost_one_image_per_snapshot() {
    let mut d = driver(&numbers(3));
    let plain = Arc::new(TableDef { indexes: Vec::new(), ..plain_table() });
    let reader = open(&mut d);
    let changes = |d: &mut D| {
        for one_shot in [true, false] {
            for _ in 0..100 {
                let txn = d.txn();
                if one_shot {
                    d.call(txn, add(1).one_shot(&plain)).expect("a change");
                } else {
                    d.call(txn, add(1).statement(&plain)).expect("a change");
                    let commit = d.append_commit(txn);
                    d.call(txn, Body::Finish { commit: Some(commit) }).expect("commit");
                }
            }
        }
        d.partition.version_memory()
    };
    let one = changes(&mut d);
    assert_eq!(changes(&mut d), one);
    let second = open(&mut d);
    assert_eq!(changes(&mut d), 2 * one);
    assert_eq!(changes(&mut d), 2 * one);
    let values = [&reader, &second]
        .map(|reader| read(&mut d, reader, Find::Point(1)).map(|reply| rows_of(&reply)[0].1));
    assert_eq!(values, [Ok(Some(1)), Ok(Some(401))]);
    close(&mut d, reader);
    assert_eq!(changes(&mut d), one, "the older one's image has gone");
    close(&mut d, second);
    assert_eq!(d.partition.version_memory(), 0);
}

/// A snapshot opened soon after another finds that versions are kept, but not versions that no one
/// sees any more.
#[test]
fn versions_are_kept_for_a_while_after_the_last_snapshot() {
    let limits = Limits { version_linger: 3, ..Limits::default() };
    let mut d = Driver::new(MemTrees::new(None), ());
    d.partition = Partition::new(MemTrees::new(None), limits, d.snapshots.clone());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: numbers(3), ignore: false }).expect("rows");
    let is_kept = |d: &D| d.snapshots.begin().generation().is_none();
    for _ in 0..2 {
        let reader = open(&mut d);
        one(&mut d, &add(1)).expect("a change");
        assert!(d.partition.version_memory() > 0);
        close(&mut d, reader);
        // The reader's end is a commit, too.
        for commits in 1..4 {
            assert!(is_kept(&d) && d.partition.version_memory() == 0, "after {commits} commits");
            one(&mut d, &add(1)).expect("a change");
        }
        assert!(!is_kept(&d));
    }
    // Without a message to the partition, a snapshot sees exactly what was committed before it.
    let first = open(&mut d);
    let writer = d.txn();
    d.call(writer, add(2).statement(&table())).expect("a change");
    close(&mut d, first);
    assert!(is_kept(&d));
    let second = open(&mut d);
    assert_eq!(as_expected(&read(&mut d, &second, Find::Point(2))), Ok(vec![(2, Some(2), 1002)]));
    let commit = d.append_commit(writer);
    d.call(writer, Body::Finish { commit: Some(commit) }).expect("commit");
    assert_eq!(as_expected(&read(&mut d, &second, Find::Point(2))), Ok(vec![(2, Some(2), 1002)]));
    close(&mut d, second);
}

/// Over the budget, snapshots fail, but no writer does.
#[test]
fn snapshots_fail_when_images_exceed_the_budget() {
    let mut d = Driver::new(MemTrees::new(None), ());
    let limits = Limits { version_memory: 10_000, ..Limits::default() };
    d.partition = Partition::new(MemTrees::new(None), limits, d.snapshots.clone());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: numbers(300), ignore: false }).expect("rows");
    let reader = open(&mut d);
    for id in 0..300 {
        one(&mut d, &add(id)).expect("a change");
        assert!(d.partition.version_memory() < 12_000);
    }
    assert_eq!(
        state_of(&read(&mut d, &reader, Find::Point(299))),
        Some(SqlState::SNAPSHOT_TOO_OLD)
    );
    let new = open(&mut d);
    assert_eq!(as_expected(&read(&mut d, &new, Find::Point(299))), Ok(vec![(299, Some(10), 1299)]));
    close(&mut d, reader);
    close(&mut d, new);
}

/// READ COMMITTED reports that a row has moved, even if another change came before.
#[test]
fn changed_and_then_moved_rows_are_reported_as_moved() {
    for changes in [&[0][..], &[1, 0], &[1, 1, 0]] {
        let mut d = driver(&numbers(3));
        let (txn, snapshot) = open(&mut d);
        for column in changes {
            one(&mut d, &Stmt::Add { find: Find::Point(2), column: *column, by: 50 })
                .expect("a change");
        }
        let lock = Stmt::Select { find: Find::Point(2), limit: None, lock: Some(RowLock::Update) };
        let (program, env) = (Arc::new(lock.program(&table())), Arc::new(Env::default()));
        let at = snapshot.lsn();
        let answer = d.call(
            txn,
            Body::StatementAt {
                at,
                repeatable: false,
                program,
                env,
                rows: None,
                batch: Batch::ALL,
            },
        );
        assert_eq!(state_of(&answer), Some(SqlState::SERIALIZATION_FAILURE), "{changes:?}");
        close(&mut d, (txn, snapshot));
    }
}

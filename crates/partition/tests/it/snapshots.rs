//! Single rules of snapshots.

use crate::driver::{Answer, Driver, state_of};
use crate::sql::{BY_A, BY_B, Find, ROWS, Stmt, as_expected, batch, plain_table, rows_of, table};
use crate::trees::MemTrees;
use crate::units::{D, add, driver, make_trees, numbers, one, select};
use clearway_partition::{Body, Limits, Partition, Snapshot};
use clearway_plan::TableDef;
use clearway_plan::program::Env;
use clearway_types::{Lsn, SqlState, TreeId, TxnId};
use std::sync::Arc;

/// A reader with its snapshot.
fn open(d: &mut D) -> (TxnId, Snapshot) {
    let (txn, opening) = (d.txn(), d.snapshots.begin());
    if let Some(generation) = opening.generation() {
        assert_eq!(d.call(txn, Body::KeepVersions(generation)).expect("an answer").count, 1);
    }
    (txn, d.open(opening))
}

fn read_in(table: &Arc<TableDef>, (_, snapshot): &(TxnId, Snapshot), find: Find) -> Body {
    let env = Arc::new(Env::default());
    Body::ReadAt { at: snapshot.lsn(), program: Arc::new(select(find).program(table)), env, rows: None, batch: None }
}

fn read(d: &mut D, reader: &(TxnId, Snapshot), find: Find) -> Answer {
    d.call(reader.0, read_in(&table(), reader, find))
}

fn close(d: &mut D, (txn, snapshot): (TxnId, Snapshot)) {
    drop(snapshot);
    d.call(txn, Body::Finish { commit: Some(Lsn(0)) }).expect("the end");
}

#[test]
fn a_reader_waits_for_no_writer_and_no_writer_for_it() {
    let mut d = driver(&numbers(5));
    let writer = d.txn();
    d.call(writer, add(2).statement(&table())).expect("a change");
    let reader = open(&mut d);
    let all = Find::All { a_less: None };
    assert_eq!(rows_of(&read(&mut d, &reader, all.clone()).expect("rows")), numbers(5));
    // A row that has been read is changed, and so are those that are to come.
    for change in [add(1), Stmt::Delete(Find::Point(3)), Stmt::Insert { rows: vec![(9, None, 9)], ignore: false }] {
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
    assert_eq!((d.partition.version_memory(), d.partition.active(), d.owes_nothing()), (0, 0, true));
}

/// Its commit record is in the log, and the partition has not been told: whether the snapshot sees it is known when it has.
#[test]
fn a_reader_waits_to_be_told_of_a_commit() {
    let mut d = driver(&numbers(3));
    let writer = d.txn();
    d.call(writer, add(2).statement(&table())).expect("a change");
    let before = open(&mut d);
    let committing = d.snapshots.commit(writer);
    let commit = d.append_commit(writer);
    let after = open(&mut d);
    let answers = [&before, &after].map(|reader| d.send(reader.0, read_in(&table(), reader, Find::Point(2))));
    assert_eq!(answers.map(|answer| d.take(answer)), [None, None]);
    d.call(writer, Body::Finish { commit: Some(commit) }).expect("commit");
    drop(committing);
    let rows = answers.map(|answer| rows_of(&d.take(answer).expect("it was told").expect("rows")));
    assert_eq!(rows, [vec![(2, Some(2), 1002)], vec![(2, Some(3), 1002)]]);
    close(&mut d, before);
    close(&mut d, after);
    assert!(d.owes_nothing());
}

#[test]
fn a_hot_row_costs_one_image_a_snapshot() {
    let mut d = driver(&numbers(3));
    let plain = Arc::new(TableDef { indexes: Vec::new(), ..plain_table() });
    let reader = open(&mut d);
    let changes = |d: &mut D| {
        for at_once in [true, false] {
            for _ in 0..100 {
                let txn = d.txn();
                if at_once {
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
    let values =
        [&reader, &second].map(|reader| read(&mut d, reader, Find::Point(1)).map(|reply| rows_of(&reply)[0].1));
    assert_eq!(values, [Ok(Some(1)), Ok(Some(401))]);
    close(&mut d, reader);
    assert_eq!(changes(&mut d), one, "the older one's image has gone");
    close(&mut d, second);
    assert_eq!(d.partition.version_memory(), 0);
}

/// Over the budget, snapshots fail, and no writer does.
#[test]
fn a_snapshot_fails_when_its_images_take_too_much_memory() {
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
    assert_eq!(state_of(&read(&mut d, &reader, Find::Point(299))), Some(SqlState::SNAPSHOT_TOO_OLD));
    let new = open(&mut d);
    assert_eq!(as_expected(&read(&mut d, &new, Find::Point(299))), Ok(vec![(299, Some(10), 1299)]));
    close(&mut d, reader);
    close(&mut d, new);
}

/// A table that a reader has used stays as it is; what has been made since its snapshot, it refuses.
#[test]
fn a_table_is_not_changed_under_a_reader() {
    let mut d = driver(&numbers(3));
    let reader = open(&mut d);
    read(&mut d, &reader, Find::Point(1)).expect("a row");
    let changer = d.txn();
    let waits = d.send(changer, Body::LockTable { table: table().id, asker: None });
    assert_eq!(d.in_way_of(changer), [reader.0]);
    let older = open(&mut d);
    close(&mut d, reader);
    assert!(d.take(waits).expect("its turn").is_ok());
    // Its trees are new ones, as after TRUNCATE.
    let moved = |tree: TreeId| TreeId(tree.0 + 100);
    let mut truncated = TableDef { tree: moved(ROWS), ..(*table()).clone() };
    truncated.indexes.iter_mut().for_each(|index| index.tree = moved(index.tree));
    let truncated = Arc::new(truncated);
    d.call(changer, Body::CreateTrees([ROWS, BY_A, BY_B].map(moved).to_vec())).expect("trees");
    let insert = Stmt::Insert { rows: vec![(7, None, 7)], ignore: false }.program(&truncated);
    let (program, env, rows) = (Arc::new(insert), Arc::new(Env::default()), Some(batch(&[(7, None, 7)])));
    d.call(changer, Body::Statement { program, env, rows, batch: None, fresh: true, learns: false }).expect("a row");
    let commit = d.append_commit(changer);
    d.call(changer, Body::Finish { commit: Some(commit) }).expect("commit");
    let all = Find::All { a_less: None };
    let answer = d.call(older.0, read_in(&truncated, &older, all.clone()));
    assert_eq!(state_of(&answer), Some(SqlState::SERIALIZATION_FAILURE));
    let newer = open(&mut d);
    let answer = d.call(newer.0, read_in(&truncated, &newer, all));
    assert_eq!(rows_of(&answer.expect("rows")), [(7, None, 7)]);
    close(&mut d, older);
    close(&mut d, newer);
}

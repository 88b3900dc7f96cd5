//! Reads of one row as it was last committed.

use crate::driver::Answer;
use crate::sql::{Find, Row, Stmt, rows_of, table};
use crate::units::{D, abort, add, driver, numbers, one, select};
use clearway_ir::program::Env;
use clearway_partition::{Batch, Body, COMMITTED, Failure, Snapshot};
use clearway_types::{Lsn, TxnId};
use std::sync::Arc;

fn read_body(id: i32) -> Body {
    let (program, env) =
        (Arc::new(select(Find::Point(id)).program(&table())), Arc::new(Env::default()));
    Body::StatementAt {
        at: COMMITTED,
        repeatable: false,
        program,
        env,
        rows: None,
        batch: Batch::ALL,
    }
}

fn read(d: &mut D, reader: TxnId, id: i32) -> Vec<Row> {
    rows_of(&d.call(reader, read_body(id)).expect("rows"))
}

fn commit(d: &mut D, txn: TxnId) {
    let lsn = d.append_commit(txn);
    d.call(txn, Body::Finish { commit: Some(lsn) }).expect("commit");
}

fn change(d: &mut D, writer: TxnId, stmt: &Stmt) -> Answer {
    d.call(writer, stmt.statement(&table()))
}

/// Makes the partition keep versions if `yes`.
fn keep(d: &mut D, yes: bool) -> Option<Snapshot> {
    yes.then(|| {
        let (txn, opening) = (d.txn(), d.snapshots.begin());
        if let Some(generation) = opening.generation() {
            d.call(txn, Body::KeepVersions(generation)).expect("a reply");
        }
        d.call(txn, Body::Finish { commit: Some(Lsn(0)) }).expect("the end");
        d.open(opening)
    })
}

#[test]
fn reads_see_committed_rows_and_own_changes() {
    for (kept, before) in [(false, false), (true, true), (true, false)] {
        let mut d = driver(&numbers(4));
        let held = keep(&mut d, kept && before);
        let (writer, reader) = (d.txn(), d.txn());
        for stmt in [
            add(1),
            add(1),
            Stmt::Delete(Find::Point(2)),
            Stmt::Insert { rows: vec![(7, None, 7)], ignore: false },
            Stmt::Delete(Find::Point(3)),
            Stmt::Insert { rows: vec![(3, None, 3)], ignore: false },
        ] {
            change(&mut d, writer, &stmt).expect("a change");
        }
        let late = keep(&mut d, kept && !before);
        let old =
            [vec![(1, Some(1), 1001)], vec![(2, Some(2), 1002)], vec![], vec![(3, Some(3), 1003)]];
        assert_eq!([1, 2, 7, 3].map(|id| read(&mut d, reader, id)), old);
        // No lock on the row remains, and it sees its own changes.
        change(&mut d, reader, &add(0)).expect("a change");
        assert_eq!(read(&mut d, reader, 0), [(0, Some(1), 1000)]);
        assert_eq!(read(&mut d, writer, 0), [(0, Some(0), 1000)]);
        commit(&mut d, writer);
        let new = [vec![(1, Some(3), 1001)], vec![], vec![(7, None, 7)], vec![(3, None, 3)]];
        assert_eq!([1, 2, 7, 3].map(|id| read(&mut d, reader, id)), new);
        abort(&mut d, reader);
        drop((held, late));
        assert!(d.nothing_pending());
    }
}

/// A table's lock protects changes like a row's lock.
#[test]
fn reads_see_through_a_table_lock() {
    let mut d = driver(&numbers(4));
    let (writer, reader) = (d.txn(), d.txn());
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 1 };
    assert_eq!(change(&mut d, writer, &all).expect("a change").count, 4);
    assert_eq!(read(&mut d, reader, 1), [(1, Some(1), 1001)]);
    abort(&mut d, writer);
    assert_eq!(read(&mut d, reader, 1), [(1, Some(1), 1001)]);
    abort(&mut d, reader);
}

#[test]
fn reads_wait_for_the_outcome_of_a_commit() {
    for kept in [false, true] {
        let mut d = driver(&numbers(3));
        let held = keep(&mut d, kept);
        let (writer, reader) = (d.txn(), d.txn());
        change(&mut d, writer, &add(2)).expect("a change");
        let committing = d.snapshots.commit(writer);
        let lsn = d.append_commit(writer);
        let answer = d.send(reader, read_body(2));
        assert_eq!(d.take(answer), None);
        assert_eq!(read(&mut d, TxnId(9999), 1), [(1, Some(1), 1001)], "another row");
        d.call(writer, Body::Finish { commit: Some(lsn) }).expect("commit");
        drop(committing);
        assert_eq!(
            rows_of(&d.take(answer).expect("the outcome has arrived").expect("rows")),
            [(2, Some(3), 1002)]
        );
        assert_eq!(d.depends_on, lsn);
        abort(&mut d, reader);
        abort(&mut d, TxnId(9999));
        drop(held);
        assert!(d.nothing_pending());
    }
}

/// A single row is read as committed; more than one row needs a snapshot.
#[test]
fn single_row_reads_do_not_wait_for_locks() {
    let mut d = driver(&numbers(4));
    let writer = d.txn();
    change(&mut d, writer, &add(1)).expect("a change");
    change(&mut d, writer, &Stmt::Delete(Find::Point(2))).expect("a change");
    let alone = |d: &mut D, find: Find| {
        let txn = d.txn();
        d.call(txn, select(find).one_shot(&table()))
    };
    assert_eq!(rows_of(&alone(&mut d, Find::Point(1)).expect("a row")), [(1, Some(1), 1001)]);
    assert_eq!(rows_of(&alone(&mut d, Find::Point(2)).expect("a row")), [(2, Some(2), 1002)]);
    let ids = |low, high| Find::Ids { low: Some(low), high: Some(high), reverse: false };
    assert_eq!(rows_of(&alone(&mut d, ids(3, 9)).expect("these rows are unlocked")).len(), 1);
    for find in [ids(1, 3), Find::Points(vec![0, 1]), Find::All { a_less: None }] {
        assert_eq!(alone(&mut d, find), Err(Failure::NeedsSnapshot));
    }
    assert_eq!((d.waiting(), d.partition.active()), (0, 1));
    abort(&mut d, writer);
    assert_eq!(alone(&mut d, Find::All { a_less: None }).expect("rows").count, 4);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn one_shots_are_visible_immediately() {
    let mut d = driver(&numbers(2));
    let reader = d.txn();
    assert_eq!(read(&mut d, reader, 1), [(1, Some(1), 1001)]);
    one(&mut d, &add(1)).expect("a change");
    assert_eq!(read(&mut d, reader, 1), [(1, Some(2), 1001)]);
    assert_eq!(read(&mut d, reader, 5), []);
    abort(&mut d, reader);
}

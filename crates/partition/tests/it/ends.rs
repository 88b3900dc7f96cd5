//! Transaction ends that meet unreadable or corrupt pages.

use crate::driver::{Answer, Driver, state_of};
use crate::sql::{BY_A, BY_B, Find, ROWS, Row, Stmt, plain_table, rows_of, table};
use crate::trees::{MemTrees, Paging};
use crate::units::{D, abort, add, driver, make_trees, numbers, one, select, share};
use clearway_ir::TableDef;
use clearway_partition::{Body, Failure};
use clearway_types::{Lsn, SqlError, SqlState, TableId, TreeId, TxnId};
use std::sync::Arc;

/// Creates a driver on trees that miss a page on almost any access.
fn paged(rows: &[Row]) -> D {
    let mut d = Driver::new(MemTrees::new(Some(Paging { pages: 40, frames: 5 })), ());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: rows.to_vec(), ignore: false }).expect("rows");
    d
}

fn unreadable() -> SqlError {
    SqlError::new(SqlState::IO, "cannot read a page")
}

/// Rolls the transaction back while no page can be read.
fn strand(d: &mut D, txn: TxnId) {
    let end = d.send(txn, Body::Finish { commit: None });
    for _ in 0..100 {
        if d.suspended.pop().is_none() {
            break;
        }
        d.fail_request(txn, unreadable());
    }
    assert_eq!(state_of(&d.take(end).expect("a reply")), Some(SqlState::IO));
}

#[test]
fn transaction_ends_are_retried_and_cannot_be_cancelled() {
    let mut d = paged(&numbers(60));
    let t = d.txn();
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 100 };
    d.call(t, all.statement(&table())).unwrap();
    let end = d.send(t, Body::Finish { commit: None });
    for error in [unreadable(), unreadable()] {
        assert_eq!(d.suspended.len(), 1, "the undo misses a page");
        d.suspended.clear();
        d.fail_request(t, error);
    }
    d.send(t, Body::Cancel(SqlError::new(SqlState::CONNECTION_FAILURE, "the client has gone")));
    d.settle();
    d.take(end).expect("a reply").expect("undone");
    assert_eq!(rows_of(&one(&mut d, &select(Find::Point(3))).unwrap()), [(3, Some(3), 1003)]);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// The pages of a cancelled call may turn out to be unreadable while a later call waits for others.
#[test]
fn late_read_errors_fail_no_later_call() {
    let mut d = paged(&numbers(60));
    let t = d.txn();
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 100 };
    let first = d.send(t, all.statement(&table()));
    assert_eq!(d.take(first), None, "it misses a page");
    let late = d.request(t);
    d.suspended.clear();
    d.send(t, Body::Cancel(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement")));
    d.settle();
    assert_eq!(state_of(&d.take(first).expect("a reply")), Some(SqlState::QUERY_CANCELED));
    let second = d.send(t, all.statement(&table()));
    assert_eq!(d.take(second), None, "it misses a page");
    d.send(t, Body::Unavailable { request: late, error: unreadable() });
    d.settle();
    d.take(second).expect("a reply").expect("all pages of this call are readable");
    abort(&mut d, t);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn unreadable_pages_strand_an_undo_with_its_locks() {
    let mut d = paged(&numbers(60));
    let t = d.txn();
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 100 };
    d.call(t, all.statement(&table())).unwrap();
    strand(&mut d, t);
    let cannot = |answer: Answer| {
        let Err(Failure::Sql(e)) = answer else { panic!("{answer:?}") };
        let why = "a blocking transaction could not be rolled back: cannot read a page";
        assert_eq!((e.state(), e.message()), (SqlState::IO, why));
    };
    cannot(one(&mut d, &share(Find::Point(3))));
    assert_eq!(
        rows_of(&one(&mut d, &select(Find::Point(3))).unwrap()),
        [(3, Some(3), 1003)],
        "a read needs no undo"
    );
    let general = d.txn();
    cannot(d.call(general, add(3).statement(&table())));
    abort(&mut d, general);
    assert!(d.nothing_pending());
}

/// The images of a change may need a page. A snapshot that cannot have them is refused, so that
/// readers of all other rows continue under locks.
#[test]
fn snapshots_that_need_an_unreadable_page_are_refused() {
    for is_stranded in [false, true] {
        let mut d = paged(&numbers(60));
        let (t, reader) = (d.txn(), d.txn());
        let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 100 };
        d.call(t, all.statement(&table())).unwrap();
        if is_stranded {
            strand(&mut d, t);
        }
        let opening = d.snapshots.begin();
        let keep = Body::KeepVersions(opening.generation().expect("versions are not kept yet"));
        let seq = d.send(reader, keep);
        let (suspended, _) = d.suspended.pop().expect("an image misses a page");
        assert_eq!(suspended, reader);
        d.fail_request(reader, unreadable());
        assert_eq!(d.take(seq).expect("a reply").expect("no error").count, 0, "it is refused");
        assert!(d.nothing_pending());
    }
}

/// The same for an image that is corrupt.
#[test]
fn snapshots_that_need_a_corrupt_page_are_refused() {
    let mut d = driver(&numbers(3));
    let (t, reader) = (d.txn(), d.txn());
    d.call(t, add(1).statement(&table())).unwrap();
    d.partition.trees().corrupt.extend([ROWS, BY_A, BY_B]);
    let opening = d.snapshots.begin();
    let keep = Body::KeepVersions(opening.generation().expect("versions are not kept yet"));
    assert_eq!(d.call(reader, keep).expect("no error").count, 0, "it is refused");
}

/// A cancellation is no reason to read under locks.
#[test]
fn cancelled_snapshots_fail() {
    let mut d = paged(&numbers(60));
    let (t, reader) = (d.txn(), d.txn());
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 100 };
    d.call(t, all.statement(&table())).unwrap();
    let opening = d.snapshots.begin();
    let keep = Body::KeepVersions(opening.generation().expect("versions are not kept yet"));
    let seq = d.send(reader, keep);
    let cancelled = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement");
    d.send(reader, Body::Cancel(cancelled));
    assert_eq!(state_of(&d.take(seq).expect("a reply")), Some(SqlState::QUERY_CANCELED));
}

/// Fails every attempt of the undo with this error until it is given up.
fn fail_undo(d: &mut D, txn: TxnId, why: SqlState) {
    let mut attempts = 0;
    while let Some((suspended, _)) = d.suspended.pop() {
        assert_eq!(suspended, txn);
        d.fail_request(txn, SqlError::new(why, "no space, or no frame"));
        attempts += 1;
        assert!(attempts < 100, "the retries do not end");
    }
    assert!(attempts > 0, "it was not tried");
}

/// Invariants 2 to 4 of `stranded`. The driver checks that no call gets two replies.
#[test]
fn a_rollback_without_space_or_frames_is_retried_until_it_succeeds() {
    [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].into_iter().for_each(retried_until_it_succeeds);
}

fn retried_until_it_succeeds(why: SqlState) {
    let mut d = paged(&numbers(60));
    let (t, waiter) = (d.txn(), d.txn());
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 100 };
    d.call(t, all.statement(&table())).unwrap();
    let waits = d.send(waiter, add(3).statement(&table()));
    while d.waiting() == 0 {
        d.resume(0);
    }
    let end = d.send(t, Body::Finish { commit: None });
    fail_undo(&mut d, t, why);
    assert_eq!(state_of(&d.take(end).expect("a reply")), Some(why));
    d.settle();
    assert_eq!(state_of(&d.take(waits).expect("a reply")), Some(why));
    // The end of another transaction triggers a retry; there is still no space.
    let end = d.send(waiter, Body::Finish { commit: None });
    d.take(end).expect("a reply").expect("an end");
    fail_undo(&mut d, t, why);
    assert_eq!(d.partition.active(), 1);
    // So does a transaction that wants its locks; now there is space.
    let late = d.txn();
    assert_eq!(state_of(&d.call(late, add(3).statement(&table()))), Some(why));
    abort(&mut d, late);
    assert_eq!(rows_of(&one(&mut d, &select(Find::Point(3))).unwrap()), [(3, Some(3), 1003)]);
    assert!(
        d.nothing_pending() && d.partition.active() == 0 && d.partition.trees().active.is_empty()
    );
}

/// Invariants 1 and 2 of `stranded`.
#[test]
fn waiters_for_a_stranded_transaction_fail() {
    let mut d = driver(&numbers(3));
    let (t, bystander, first, second) = (d.txn(), d.txn(), d.txn(), d.txn());
    d.call(t, add(1).statement(&table())).unwrap();
    d.partition.trees().corrupt.extend([ROWS, BY_A, BY_B]);
    let waiting = [
        d.send(first, add(1).statement(&table())),
        d.send(second, share(Find::Point(1)).one_shot(&table())),
    ];
    assert_eq!(d.waiting(), 2);
    assert_eq!(state_of(&d.call(t, Body::Finish { commit: None })), Some(SqlState::DATA_CORRUPTED));
    for seq in waiting {
        assert_eq!(state_of(&d.take(seq).expect("a reply")), Some(SqlState::DATA_CORRUPTED));
    }
    abort(&mut d, first);
    d.call(
        bystander,
        Stmt::Insert { rows: vec![(9, Some(9), 9)], ignore: false }.statement(&table()),
    )
    .unwrap();
    d.call(bystander, Body::Finish { commit: Some(Lsn(900)) }).unwrap();
    assert_eq!(
        rows_of(&one(&mut d, &select(Find::Point(9))).unwrap()).len(),
        1,
        "other rows are unaffected"
    );
    one(&mut d, &add(2)).unwrap();
    assert_eq!(state_of(&one(&mut d, &add(1))), Some(SqlState::DATA_CORRUPTED));
    assert!(d.nothing_pending() && d.partition.active() == 1);
}

/// Invariant 2 of `stranded`: a transaction that is behind others in line, or waits for another
/// holder first, eventually reaches the stranded transaction.
#[test]
fn lines_behind_others_reach_the_stranded_transaction() {
    let mut d = driver(&numbers(3));
    let read = |id| select(Find::Point(id)).statement(&table());
    let others: Vec<TxnId> = (0..8).map(|_| d.txn()).collect();
    others.iter().for_each(|other| drop(d.call(*other, read(1)).unwrap()));
    let (t, writer, behind, late) = (d.txn(), d.txn(), d.txn(), d.txn());
    d.call(t, read(1)).unwrap();
    d.call(t, add(2).statement(&table())).unwrap();
    let first = d.send(writer, add(1).statement(&table()));
    let second = d.send(behind, read(1));
    assert_eq!(d.blockers_of(writer), others, "the eight named blockers do not include the ninth");
    assert_eq!(d.blockers_of(behind), [writer]);
    d.partition.trees().corrupt.extend([ROWS, BY_A, BY_B]);
    assert_eq!(state_of(&d.call(t, Body::Finish { commit: None })), Some(SqlState::DATA_CORRUPTED));
    assert_eq!(d.waiting(), 2, "they wait for others, too");
    others[1..].iter().for_each(|other| abort(&mut d, *other));
    assert_eq!(d.waiting(), 2, "they wait for the one that they watch");
    abort(&mut d, others[0]);
    assert_eq!(state_of(&d.take(first).expect("a reply")), Some(SqlState::DATA_CORRUPTED));
    assert_eq!(d.waiting(), 0, "a reader waits for no reader");
    d.take(second).expect("a reply").unwrap();
    let third = d.send(late, add(1).statement(&table()));
    assert_eq!(state_of(&d.take(third).expect("a reply")), Some(SqlState::DATA_CORRUPTED));
}

/// A transaction that has the partition to itself keeps the tables that it has changed, but not the
/// partition.
#[test]
fn stranded_blockers_keep_only_the_tables_they_used() {
    let mut d = driver(&numbers(3));
    let other = TreeId(77);
    make_trees(&mut d, &[other]);
    let multi = d.txn();
    assert_eq!(d.call(multi, Body::Block { one_round: false }).unwrap().count, 1);
    d.call(multi, add(1).statement(&table())).unwrap();
    let in_line = d.txn();
    let waits = d.send(in_line, add(2).one_shot(&table()));
    d.partition.trees().corrupt.extend([ROWS, BY_A, BY_B]);
    assert_eq!(
        state_of(&d.call(multi, Body::Finish { commit: None })),
        Some(SqlState::DATA_CORRUPTED)
    );
    assert_eq!(state_of(&d.take(waits).expect("a reply")), Some(SqlState::DATA_CORRUPTED));
    let elsewhere =
        Arc::new(TableDef { id: TableId(70), tree: other, indexes: Vec::new(), ..plain_table() });
    let txn = d.txn();
    d.call(txn, select(Find::Point(1)).one_shot(&elsewhere)).unwrap();
    assert!(d.nothing_pending());
}

/// A tree that cannot be dropped is left, and blocks no one.
#[test]
fn corrupt_dropped_trees_are_left_and_unlocked() {
    for commit in [None, Some(Lsn(900))] {
        let mut d = driver(&numbers(3));
        let t = d.txn();
        let trees = [TreeId(70), TreeId(71)];
        d.call(t, Body::LockTable { table: table().id, requester: None }).unwrap();
        d.call(t, Body::CreateTrees(trees.to_vec())).unwrap();
        d.call(t, Body::DropTreesAtCommit(trees.to_vec())).unwrap();
        d.partition.trees().corrupt.insert(trees[1]);
        d.call(t, Body::Finish { commit }).expect("an end");
        assert!(!d.partition.trees().trees.contains_key(&trees[0]), "the other one is gone");
        assert_eq!(d.partition.active(), 0);
        assert_eq!(rows_of(&one(&mut d, &select(Find::Point(1))).unwrap()).len(), 1);
    }
}

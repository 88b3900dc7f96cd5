//! A transaction that has the partition to itself: who waits, who does not, and what ends it.

use crate::driver::{Driver, state_of};
use crate::sql::{BY_A, BY_B, Find, ROWS, Stmt, as_expected, rows_of, table};
use crate::trees::{MemTrees, Paging};
use crate::units::{D, abort, add, driver, make_trees, numbers, one, select, share};
use clearway_partition::Body;
use clearway_types::{Lsn, SqlError, SqlState, TreeId, TxnId};

/// Requests the partition; returns whether it was granted.
fn block(d: &mut D, txn: TxnId) -> bool {
    d.call(txn, Body::Block { one_round: false }).expect("a reply").count == 1
}

fn commit(d: &mut D, txn: TxnId) {
    d.call(txn, Body::Finish { commit: Some(Lsn(900)) }).expect("commit");
}

#[test]
fn all_others_wait_in_line_and_resume_in_order() {
    let mut d = driver(&[(1, Some(1), 1), (2, Some(2), 2)]);
    let (multi, general, single) = (d.txn(), d.txn(), d.txn());
    assert!(block(&mut d, multi));
    d.call(multi, add(1).statement(&table())).unwrap();
    let g = d.send(general, add(2).statement(&table()));
    let s = d.send(single, share(Find::All { a_less: None }).one_shot(&table()));
    assert!(
        d.take(g).is_none()
            && d.take(s).is_none()
            && d.blockers_of(general).is_empty()
            && d.blockers_of(single).is_empty()
    );
    assert_eq!(d.waiting(), 2, "waits in line are reported, too");
    commit(&mut d, multi);
    assert_eq!(as_expected(&d.take(g).unwrap()), Ok(vec![(2, Some(3), 2)]));
    assert!(d.take(s).is_none(), "it came later and waits for the row now");
    assert_eq!(d.waiting(), 1);
    assert_eq!(d.blockers_of(single), [general]);
    commit(&mut d, general);
    assert_eq!(rows_of(&d.take(s).unwrap().unwrap()), [(1, Some(2), 1), (2, Some(3), 2)]);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn the_partition_passes_to_the_next_blocker_unless_locked() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let (first, second, third, locker) = (d.txn(), d.txn(), d.txn(), d.txn());
    assert!(block(&mut d, first));
    let asked = d.send(second, Body::Block { one_round: false });
    let behind = d.send(third, add(1).statement(&table()));
    assert!(d.take(asked).is_none());
    abort(&mut d, first);
    assert_eq!(d.take(asked).unwrap().unwrap().count, 1);
    assert!(d.take(behind).is_none(), "the second has it now");
    commit(&mut d, second);
    d.take(behind).unwrap().unwrap();
    assert!(!block(&mut d, locker), "there are locks");
    commit(&mut d, third);
    assert!(block(&mut d, locker));
    commit(&mut d, locker);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn aborted_blockers_are_undone_before_others_run() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let (multi, single) = (d.txn(), d.txn());
    assert!(block(&mut d, multi));
    d.call(multi, Stmt::Delete(Find::All { a_less: None }).statement(&table())).unwrap();
    let s = d.send(single, select(Find::All { a_less: None }).one_shot(&table()));
    abort(&mut d, multi);
    assert_eq!(rows_of(&d.take(s).unwrap().unwrap()), [(1, Some(1), 1)]);
}

#[test]
fn cancelled_calls_leave_the_line() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let (multi, general, single) = (d.txn(), d.txn(), d.txn());
    assert!(block(&mut d, multi));
    let g = d.send(general, add(1).statement(&table()));
    let s = d.send(single, add(1).one_shot(&table()));
    let error =
        || SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request");
    d.send(single, Body::Cancel(error()));
    assert_eq!(state_of(&d.take(s).unwrap()), Some(SqlState::QUERY_CANCELED));
    d.call(general, Body::Finish { commit: None }).expect("an end does not wait");
    assert_eq!(state_of(&d.take(g).unwrap()), Some(SqlState::QUERY_CANCELED));
    commit(&mut d, multi);
    assert_eq!(rows_of(&one(&mut d, &select(Find::Point(1))).unwrap()), [(1, Some(1), 1)]);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// An undo holds no lock if everything is new, so the partition can be granted to another
/// transaction while it waits for a page.
#[test]
fn a_cancelled_rollback_in_line_continues() {
    let mut d = Driver::new(MemTrees::new(Some(Paging { pages: 40, frames: 5 })), ());
    let (maker, multi) = (d.txn(), d.txn());
    d.call(maker, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).expect("trees");
    d.call(maker, Body::Savepoint(0)).expect("a mark");
    let insert = Stmt::Insert { rows: numbers(60), ignore: false };
    let Body::Statement { program, env, rows, batch, .. } = insert.statement(&table()) else {
        panic!()
    };
    d.call(
        maker,
        Body::Statement {
            program,
            env,
            rows,
            batch,
            fresh: true,
            learns: false,
            may_use_retired: false,
            may_add: true,
            optimistic: false,
        },
    )
    .expect("rows");
    let rollback = d.send(maker, Body::Finish { commit: None });
    assert_eq!(d.suspended.len(), 1, "it waits for a page");
    let given = d.send(multi, Body::Block { one_round: false });
    assert_eq!(d.take(given).unwrap().unwrap().count, 1);
    d.resume(0);
    assert_eq!(d.waiting(), 1, "in line");
    d.send(
        maker,
        Body::Cancel(SqlError::new(
            SqlState::QUERY_CANCELED,
            "canceling statement due to user request",
        )),
    );
    assert!(d.take(rollback).is_none());
    commit(&mut d, multi);
    assert!(d.take(rollback).is_some(), "it did not continue");
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// If the savepoint waited in line, a cancelled call would leave the partition without the mark,
/// and ROLLBACK TO would not find it.
#[test]
fn savepoints_do_not_wait_for_a_blocked_partition() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let (multi, general) = (d.txn(), d.txn());
    assert!(block(&mut d, multi));
    d.call(general, Body::Savepoint(0)).expect("a mark");
    let s = d.send(general, add(1).statement(&table()));
    d.send(
        general,
        Body::Cancel(SqlError::new(
            SqlState::QUERY_CANCELED,
            "canceling statement due to user request",
        )),
    );
    assert_eq!(state_of(&d.take(s).unwrap()), Some(SqlState::QUERY_CANCELED));
    commit(&mut d, multi);
    d.call(general, Body::RollbackTo(0)).expect("the mark is there");
    abort(&mut d, general);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn long_statements_exchange_the_partition_for_a_table_lock() {
    let mut d = driver(&numbers(5000));
    let (multi, general, reader) = (d.txn(), d.txn(), d.txn());
    assert!(block(&mut d, multi));
    let s = d.send(multi, select(Find::All { a_less: None }).statement(&table()));
    assert_eq!((d.stalls, d.suspended.len()), (1, 1));
    assert_eq!(one(&mut d, &select(Find::Point(7))).unwrap().count, 1, "readers continue");
    d.call(reader, select(Find::Point(8)).statement(&table())).expect("readers continue");
    let g = d.send(general, add(1).statement(&table()));
    assert_eq!(d.blockers_of(general), [multi], "the table is locked");
    d.settle();
    assert_eq!(d.take(s).unwrap().unwrap().count, 5000);
    commit(&mut d, multi);
    d.take(g).unwrap().unwrap();
    abort(&mut d, general);
    abort(&mut d, reader);
}

#[test]
fn page_misses_free_the_partition_but_not_changed_rows() {
    let mut d = Driver::new(MemTrees::new(Some(Paging { pages: 40, frames: 5 })), ());
    let ddl = d.txn();
    d.call(ddl, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).expect("trees");
    commit(&mut d, ddl);
    one(&mut d, &Stmt::Insert { rows: numbers(60), ignore: false }).expect("rows");
    let (multi, single) = (d.txn(), d.txn());
    assert!(block(&mut d, multi));
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 100 };
    let s = d.send(multi, all.statement(&table()));
    while d.stalls == 0 {
        d.resume(0);
    }
    let p = d.send(single, share(Find::Point(3)).one_shot(&table()));
    d.settle();
    assert_eq!(d.blockers_of(single), [multi]);
    assert_eq!(d.take(s).unwrap().unwrap().count, 60);
    abort(&mut d, multi);
    d.settle();
    assert_eq!(rows_of(&d.take(p).unwrap().unwrap()), [(3, Some(3), 1003)]);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// The messages in line are processed a few at a time; new ones come after them.
#[test]
fn no_message_passes_a_line_processed_in_several_turns() {
    const LINE: usize = 200;
    let mut d = driver(&[(1, Some(0), 1)]);
    let multi = d.txn();
    assert!(block(&mut d, multi));
    let mut calls = Vec::new();
    for _ in 0..LINE {
        let txn = d.txn();
        calls.push(d.send(txn, add(1).one_shot(&table())));
    }
    d.send(multi, Body::Finish { commit: Some(Lsn(900)) });
    assert!(d.answers.len() < LINE);
    let last = d.txn();
    calls.push(d.send(last, Body::Block { one_round: false }));
    d.settle();
    let answered: Vec<u32> =
        d.answers.iter().map(|(seq, _)| *seq).filter(|seq| calls.contains(seq)).collect();
    assert_eq!(answered, calls);
    abort(&mut d, last);
    assert_eq!(
        rows_of(&one(&mut d, &select(Find::Point(1))).unwrap()),
        [(1, Some(LINE as i32), 1)]
    );
    assert!(d.partition.active() == 0);
}

#[test]
fn unblocking_keeps_locks_on_used_tables() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let (multi, single, idle) = (d.txn(), d.txn(), d.txn());
    assert!(block(&mut d, multi));
    d.call(multi, add(1).statement(&table())).unwrap();
    let s = d.send(single, share(Find::Point(1)).one_shot(&table()));
    d.send(multi, Body::Unblock);
    assert_eq!(d.blockers_of(single), [multi]);
    d.send(multi, Body::Unblock);
    commit(&mut d, multi);
    assert_eq!(rows_of(&d.take(s).unwrap().unwrap()), [(1, Some(2), 1)]);
    assert!(block(&mut d, idle));
    d.send(idle, Body::Unblock);
    one(&mut d, &add(1)).expect("no table was used, so none is locked");
    abort(&mut d, idle);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// Trees of a dropped table would stay until the next start if their drop waited in line and was
/// cancelled there.
#[test]
fn drops_of_trees_do_not_wait_for_the_partition() {
    let gone = TreeId(70);
    let mut d = driver(&[(1, Some(1), 1)]);
    make_trees(&mut d, &[gone]);
    let (multi, drops) = (d.txn(), d.txn());
    assert!(block(&mut d, multi));
    d.call(multi, add(1).statement(&table())).unwrap();
    let seq = d.send(drops, Body::DropTreesAtCommit(vec![gone]));
    d.send(drops, Body::Cancel(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement")));
    d.take(seq).expect("no wait").expect("not cancelled");
    commit(&mut d, drops);
    assert!(!d.partition.trees().trees.contains_key(&gone));
    commit(&mut d, multi);
    assert_eq!(rows_of(&one(&mut d, &select(Find::Point(1))).unwrap()), [(1, Some(2), 1)]);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

//! Statements that return batches: where they pause, how they resume, and what remains if no more
//! is requested.

use crate::sql::{Find, rows_of, table};
use crate::units::{D, abort, add, driver, numbers, one, select};
use clearway_ir::program::Env;
use clearway_partition::{Batch, Body, Failure, Reply};
use clearway_types::TxnId;
use std::sync::Arc;

const ALL: Find = Find::Ids { low: None, high: None, reverse: false };
const BACKWARDS: Find = Find::Ids { low: None, high: None, reverse: true };

fn batched(find: Find, batch: Batch) -> Body {
    let program = Arc::new(select(find).program(&table()));
    let env = Arc::new(Env::default());
    Body::Statement {
        program,
        env,
        rows: None,
        batch,
        fresh: false,
        learns: false,
        may_use_retired: false,
        may_add: true,
        optimistic: false,
    }
}

fn of_rows(id: u32, rows: u32) -> Batch {
    Batch { id, rows, bytes: u32::MAX }
}

fn ids(reply: &Reply) -> Vec<i32> {
    rows_of(reply).iter().map(|r| r.0).collect()
}

/// Runs the statement to its end.
fn rest(d: &mut D, t: TxnId, id: u32, mut reply: Reply) -> Vec<i32> {
    let mut all = ids(&reply);
    while reply.more {
        reply = d.call(t, Body::Next(id)).unwrap();
        all.extend(ids(&reply));
    }
    all
}

#[test]
fn statements_pause_when_their_batch_is_full() {
    for (batch, most) in
        [(of_rows(7, 4), 4), (Batch { id: 7, rows: 100, bytes: 1 }, 1), (of_rows(7, 10), 10)]
    {
        let mut d = driver(&numbers(10));
        let t = d.txn();
        let mut reply = d.call(t, batched(BACKWARDS, batch)).unwrap();
        let mut all = Vec::new();
        loop {
            assert!(reply.rows.len() <= most);
            all.extend(ids(&reply));
            if !reply.more {
                break;
            }
            reply = d.call(t, Body::Next(7)).unwrap();
        }
        assert_eq!(all, (0..10).rev().collect::<Vec<_>>());
        assert!(d.call(t, Body::Next(7)).is_err());
        abort(&mut d, t);
    }
}

#[test]
fn paused_statements_of_a_transaction_are_independent() {
    let mut d = driver(&numbers(10));
    let t = d.txn();
    let forwards = d.call(t, batched(ALL, of_rows(1, 3))).unwrap();
    let backwards = d.call(t, batched(BACKWARDS, of_rows(2, 4))).unwrap();
    let dropped = d.call(t, batched(ALL, of_rows(3, 1))).unwrap();
    assert!(dropped.more);
    d.call(t, add(5).statement(&table())).unwrap();
    d.send(t, Body::Forget(3));
    assert!(d.call(t, Body::Next(3)).is_err());
    assert_eq!(rest(&mut d, t, 1, forwards), (0..10).collect::<Vec<_>>());
    assert_eq!(rest(&mut d, t, 2, backwards), (0..10).rev().collect::<Vec<_>>());
    abort(&mut d, t);
    d.send(t, Body::Forget(1));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn paused_statements_keep_their_locks() {
    let mut d = driver(&numbers(10));
    let (reader, writer) = (d.txn(), d.txn());
    let first = d.call(reader, batched(ALL, of_rows(1, 1))).unwrap();
    let write = d.send(writer, add(9).one_shot(&table()));
    assert!(d.take(write).is_none(), "the row has not been read yet");
    assert_eq!(rest(&mut d, reader, 1, first).len(), 10);
    abort(&mut d, reader);
    assert!(d.take(write).unwrap().is_ok());
}

/// A transaction that has the partition must not keep it while its client takes its time: it keeps
/// the table's lock instead.
#[test]
fn paused_statements_do_not_block_the_partition() {
    let mut d = driver(&numbers(10));
    let (multi, reader, writer) = (d.txn(), d.txn(), d.txn());
    assert_eq!(d.call(multi, Body::Block { one_round: false }).unwrap().count, 1);
    let first = d.call(multi, batched(ALL, of_rows(1, 1))).unwrap();
    assert!(first.more);
    assert!(d.call(reader, select(Find::Point(3)).one_shot(&table())).is_ok());
    let write = d.send(writer, add(3).one_shot(&table()));
    assert!(d.take(write).is_none());
    assert_eq!(rest(&mut d, multi, 1, first).len(), 10);
    abort(&mut d, multi);
    assert!(d.take(write).unwrap().is_ok());
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn large_one_shots_are_rejected_and_leave_nothing() {
    let mut d = driver(&numbers(30_000));
    let txn = d.txn();
    assert_eq!(d.call(txn, select(ALL).one_shot(&table())), Err(Failure::NeedsSnapshot));
    assert_eq!(
        one(&mut d, &select(Find::Ids { low: None, high: Some(9), reverse: false }))
            .unwrap()
            .rows
            .len(),
        10
    );
    assert!(d.nothing_pending() && d.partition.active() == 0);
    assert!(one(&mut d, &add(1)).is_ok(), "no lock is left");
}

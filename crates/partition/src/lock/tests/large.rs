//! Waits for large transactions.

use super::super::{Event, LockTable, Mode, Target};
use super::rules::{MANY, TABLE, ask, granted};
use clearway_types::TxnId;

/// A lock table with these transactions, each of which has changed the table.
fn changed_by(txns: &[u64]) -> LockTable {
    let mut t = LockTable::new(MANY);
    for txn in txns {
        assert_eq!(ask(&mut t, *txn, Target::Table(TABLE), Mode::IntentExclusive), []);
    }
    t
}

/// Waits for the end of these large transactions. Returns those that block its line.
fn await_ends(t: &mut LockTable, txn: u64, on: &[u64], is_large: bool) -> Vec<u64> {
    let on = on.iter().map(|txn| TxnId(*txn)).collect();
    let line = t.await_ends(TxnId(txn), TABLE, on, is_large);
    line.on.iter().map(|txn| txn.0).collect()
}

#[test]
fn large_transaction_does_not_wait_for_itself() {
    let mut t = changed_by(&[1, 2]);
    assert_eq!(await_ends(&mut t, 3, &[1, 2], false), [1, 2]);
    assert_eq!(await_ends(&mut t, 2, &[1], true), [1], "a line of its own");
    assert_eq!(await_ends(&mut t, 4, &[1, 2], false), [1, 2]);
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [2]);
    t.release(TxnId(2));
    assert_eq!(granted(&mut t), [3, 4]);
    assert!(t.is_empty());
}

/// The first reader waits only for transaction 1. Transaction 2 becomes large later.
#[test]
fn first_waiter_need_not_know_all_large_ones() {
    let mut t = changed_by(&[1, 2]);
    assert_eq!(await_ends(&mut t, 3, &[1], false), [1]);
    assert_eq!(await_ends(&mut t, 2, &[1], true), [1]);
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [2], "the reader now waits for it");
    t.release(TxnId(2));
    assert_eq!(granted(&mut t), [3]);
    assert!(t.is_empty());
}

/// ROLLBACK TO may make a transaction small while others wait for its end.
#[test]
fn formerly_large_transaction_is_no_longer_awaited() {
    let mut t = changed_by(&[1, 2]);
    assert_eq!(await_ends(&mut t, 3, &[1, 2], false), [1, 2]);
    assert_eq!(await_ends(&mut t, 2, &[1], false), [1]);
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [3, 2]);
}

/// A reader that has waited holds no lock, so others need not consider it.
#[test]
fn waiter_without_locks_leaves_nothing() {
    let mut t = changed_by(&[1]);
    assert_eq!(await_ends(&mut t, 2, &[1], false), [1]);
    assert_eq!(await_ends(&mut t, 3, &[1], false), [1]);
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [2, 3]);
    assert!(t.is_empty());
}

/// No transaction waits for the end of one that cannot be rolled back.
#[test]
fn stranded_transaction_is_no_longer_awaited() {
    let mut t = changed_by(&[1, 2]);
    assert_eq!(await_ends(&mut t, 3, &[1, 2], false), [1, 2]);
    while t.next_event().is_some() {}
    t.stop_awaiting(TxnId(1));
    let Some(Event::Line(line)) = t.next_event() else { panic!("it waits for another one") };
    assert_eq!((line.on.as_slice(), t.next_event()), (&[TxnId(2)][..], None));
    assert!(t.waiters_of(TxnId(1)).is_empty());
    t.stop_awaiting(TxnId(2));
    assert_eq!(granted(&mut t), [3]);
}

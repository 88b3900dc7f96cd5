//! Waits for large transactions.

use super::super::{LockTable, Mode, Target};
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
fn await_ends(t: &mut LockTable, txn: u64, on: &[u64]) -> Vec<u64> {
    let on = on.iter().map(|txn| TxnId(*txn)).collect();
    let line = t.await_ends(TxnId(txn), TABLE, on);
    line.on.iter().map(|txn| txn.0).collect()
}

/// A reader that has waited holds no lock, so others need not consider it.
#[test]
fn waiter_without_locks_leaves_nothing() {
    let mut t = changed_by(&[1]);
    assert_eq!(await_ends(&mut t, 2, &[1]), [1]);
    assert_eq!(await_ends(&mut t, 3, &[1]), [1]);
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [2, 3]);
    assert!(t.is_empty());
}

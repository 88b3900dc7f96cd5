//! The lock table of one owner.
//!
//! # Invariants
//! 1. A row has one exclusive holder, or only shared holders.
//! 2. A waiter is older than every holder that it conflicts with. So waits lead from older to
//!    younger transactions and form no cycle. If a new holder is older than a waiter, the waiter is
//!    refused.
//! 3. Nobody waits in NO_WAIT. No transaction waits for two locks.
//!
//! Waits and their bounds: a row has at most one waiter for each running transaction. If several
//! waiters could get the lock, the youngest gets it, as in Deneva: the others remain older than it.

use crate::{Mode, Protocol, StartTimestamp};
use std::collections::HashMap;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    Waits,
    /// An older transaction holds the row, or any transaction in NO_WAIT. `newest` is the newest
    /// conflicting holder.
    Refused {
        older: Option<StartTimestamp>,
        newest: StartTimestamp,
    },
}

#[derive(Default)]
struct Lock {
    exclusive: bool,
    holders: Vec<StartTimestamp>,
    /// Youngest first, each with whether it wants an exclusive lock.
    waiters: Vec<(StartTimestamp, bool)>,
}

impl Lock {
    /// Returns the holders that conflict with a transaction's request.
    fn conflicts(
        &self,
        txn: StartTimestamp,
        exclusive: bool,
    ) -> impl Iterator<Item = StartTimestamp> {
        let conflict = exclusive || self.exclusive;
        self.holders.iter().copied().filter(move |holder| conflict && *holder != txn)
    }

    fn grant(&mut self, txn: StartTimestamp, exclusive: bool) {
        self.exclusive |= exclusive;
        if !self.holders.contains(&txn) {
            self.holders.push(txn);
        }
    }
}

pub(super) struct LockTable {
    mode: Mode,
    /// Rows with a holder or a waiter.
    rows: HashMap<u32, Lock>,
}

impl LockTable {
    pub fn new(mode: Mode) -> Self {
        Self { mode, rows: HashMap::new() }
    }

    pub fn lock(&mut self, row: u32, txn: StartTimestamp, exclusive: bool) -> Verdict {
        let exclusive = exclusive || !self.mode.shares();
        let lock = self.rows.entry(row).or_default();
        let Some(newest) = lock.conflicts(txn, exclusive).max() else {
            lock.grant(txn, exclusive);
            return Verdict::Granted;
        };
        let older = lock.conflicts(txn, exclusive).min().filter(|holder| *holder < txn);
        if self.mode.protocol == Protocol::NoWait || older.is_some() {
            return Verdict::Refused { older, newest };
        }
        let place = lock.waiters.partition_point(|(other, _)| *other > txn);
        lock.waiters.insert(place, (txn, exclusive));
        Verdict::Waits
    }

    pub fn holds(&self, row: u32, txn: StartTimestamp, exclusive: bool) -> bool {
        self.rows
            .get(&row)
            .is_some_and(|lock| lock.holders.contains(&txn) && (lock.exclusive || !exclusive))
    }

    /// Removes a holder or waiter from a row. The caller then settles the row's waiters.
    pub fn release(&mut self, row: u32, txn: StartTimestamp) {
        let Some(lock) = self.rows.get_mut(&row) else { return };
        lock.waiters.retain(|(waiter, _)| *waiter != txn);
        if lock.holders.contains(&txn) {
            lock.holders.retain(|holder| *holder != txn);
            lock.exclusive = false;
        }
        if lock.holders.is_empty() && lock.waiters.is_empty() {
            self.rows.remove(&row);
        }
    }

    /// Removes one waiter of a row whose wait is over. The caller repeats this until it returns
    /// `None`.
    pub fn settle(&mut self, row: u32) -> Option<(StartTimestamp, Verdict)> {
        let lock = self.rows.get_mut(&row)?;
        let over = |(txn, exclusive): &(StartTimestamp, bool)| {
            lock.conflicts(*txn, *exclusive).min().is_none_or(|oldest| oldest < *txn)
        };
        let place = lock.waiters.iter().position(over)?;
        let (txn, exclusive) = lock.waiters.remove(place);
        match lock.conflicts(txn, exclusive).max() {
            None => {
                lock.grant(txn, exclusive);
                Some((txn, Verdict::Granted))
            }
            Some(newest) => {
                let older = lock.conflicts(txn, exclusive).min();
                Some((txn, Verdict::Refused { older, newest }))
            }
        }
    }

    pub fn is_free(&self) -> bool {
        self.rows.is_empty()
    }
}

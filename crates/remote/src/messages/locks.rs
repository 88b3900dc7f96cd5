//! The lock table of one owner.
//!
//! # Invariants
//! 1. A row has one exclusive holder, or shared holders only.
//! 2. A waiter is older than every holder that it conflicts with: waits lead from older to younger
//!    transactions, so that no cycle can arise. A waiter that a new holder makes younger is
//!    refused.
//! 3. Nobody waits in NO_WAIT. No transaction waits twice.
//!
//! Waits and their bounds: a row has at most one waiter for each transaction under way. Of several
//! that could have the lock the youngest gets it, as in Deneva: the others remain older than it.

use crate::{Mode, Protocol, StartTimestamp};
use std::collections::HashMap;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Granted,
    Waits,
    /// An older transaction holds the row, or in NO_WAIT any. And the newest that holds it.
    Refused {
        older: Option<StartTimestamp>,
        newest: StartTimestamp,
    },
}

#[derive(Default)]
struct Lock {
    exclusive: bool,
    holders: Vec<StartTimestamp>,
    /// Youngest first, and whether for an exclusive lock.
    waiters: Vec<(StartTimestamp, bool)>,
}

impl Lock {
    /// The holders that keep a transaction from the lock.
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
    /// Rows that somebody holds or waits for.
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

    /// Takes a holder or waiter from a row, and settles who waits there.
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

    /// Takes one waiter of a row whose wait is over; again until there is none.
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

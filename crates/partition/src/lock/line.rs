//! A line: the queue of requests for the same place in the same mode, in order of arrival.
//!
//! All members of a line wait for what its first member waits for: they conflict with the same
//! locks, and with every request that conflicts with the first member and precedes it. So one edge
//! of the waits-for graph serves them all.

use super::scope::{LineRef, Place};
use super::table::{LockTable, ScopeId};
use clearway_sync::canary::{self, Bug};
use clearway_types::TxnId;

/// Maximum number of transactions named as blocking a line.
pub(super) const NAMED: usize = 8;

/// Where a request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InLine {
    /// The line's number at the partition, never reused.
    pub line: u64,
    /// Some of the transactions that block the line.
    pub on: Vec<TxnId>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub at: LineRef,
    pub scope: ScopeId,
    pub place: Place,
    pub first: TxnId,
    pub last: TxnId,
    /// The transactions that block it; it watches the first of them.
    pub on: Vec<TxnId>,
}

/// A transaction's position in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub line: u64,
    /// The sequence number of this wait at the partition.
    pub number: u64,
    pub before: Option<TxnId>,
    pub behind: Option<TxnId>,
}

impl LockTable {
    /// Returns true if the transaction waits here.
    pub(crate) fn waits(&self, txn: TxnId) -> bool {
        self.owners.get(&txn).is_some_and(|o| o.waits.is_some())
    }

    /// Returns the members of all lines that name the transaction as blocking them. Visits every
    /// line.
    pub(crate) fn waiters_of(&self, txn: TxnId) -> Vec<TxnId> {
        self.lines_naming(txn).into_iter().flat_map(|line| self.members(line)).collect()
    }

    /// Returns the lines that name the transaction as blocking them, oldest first. Visits every
    /// line.
    pub(super) fn lines_naming(&self, txn: TxnId) -> Vec<u64> {
        let naming =
            self.lines.values().filter(|line| line.on.contains(&txn)).map(|line| line.at.id);
        let mut lines: Vec<u64> = naming.collect();
        // A hash map's order is arbitrary.
        lines.sort_unstable();
        lines
    }

    /// Removes a transaction from those that the line names, unless the line watches it. A
    /// transaction that will run again has released its locks, but lines still name it.
    pub(super) fn unname(&mut self, line: u64, txn: TxnId) {
        let Some(found) = self.lines.get(&line) else { return };
        let Some((watched, others)) = found.on.split_first() else { return };
        if others.contains(&txn) {
            let others = others.iter().filter(|on| **on != txn);
            let on = std::iter::once(watched).chain(others).copied().collect();
            self.point(line, on);
        }
    }

    /// Removes the transaction if it neither waits nor holds anything.
    pub(super) fn forget_idle(&mut self, txn: TxnId) {
        if self.owners.get(&txn).is_some_and(|o| o.waits.is_none() && o.holds_nothing()) {
            self.owners.remove(&txn);
        }
    }

    /// Returns true if none of these transactions is a member of the line.
    pub(super) fn names_no_member(&self, line: u64, on: &[TxnId]) -> bool {
        let waits = |txn| self.owners.get(txn)?.waits;
        canary::on(Bug::StuckUpgrade) || on.iter().filter_map(waits).all(|w| w.line != line)
    }

    /// Returns the members of a line, in order.
    pub(crate) fn members(&self, line: u64) -> impl Iterator<Item = TxnId> + '_ {
        let first = self.lines.get(&line).map(|l| l.first);
        std::iter::successors(first, |txn| self.owners.get(txn)?.waits?.behind)
    }
}

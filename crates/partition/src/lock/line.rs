//! A line: requests for the same place in the same mode, in the order of their arrival.
//!
//! What the first of a line waits for, all others of it wait for, too: they conflict with the same
//! locks, and with every request that conflicts with the first and goes before it. So one edge of
//! the waits-for graph serves them all.

use super::scope::{LineRef, Place};
use super::table::{LockTable, ScopeId};
use clearway_types::TxnId;

/// The most transactions that are named as in a line's way.
pub(super) const NAMED: usize = 8;

/// Where a request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InLine {
    /// The number of its line at the partition, never used again.
    pub line: u64,
    /// Some of those in the line's way.
    pub on: Vec<TxnId>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub at: LineRef,
    pub scope: ScopeId,
    pub place: Place,
    pub first: TxnId,
    pub last: TxnId,
    /// In its way: the first of them is the one that it watches.
    pub on: Vec<TxnId>,
}

/// A transaction's place in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub line: u64,
    /// Of all waits at the partition, which this one is.
    pub number: u64,
    pub before: Option<TxnId>,
    pub behind: Option<TxnId>,
}

impl LockTable {
    /// Whether the transaction waits here.
    pub(crate) fn waits(&self, txn: TxnId) -> bool {
        self.owners.get(&txn).is_some_and(|o| o.waits.is_some())
    }

    /// The members of all lines that name the transaction as in their way. Looks at every line.
    pub(crate) fn waiters_of(&self, txn: TxnId) -> Vec<TxnId> {
        let naming =
            self.lines.values().filter(|line| line.on.contains(&txn)).map(|line| line.at.id);
        let mut lines: Vec<u64> = naming.collect();
        // The order of a hash map is nobody's.
        lines.sort_unstable();
        lines.into_iter().flat_map(|line| self.members(line)).collect()
    }

    /// Who waits in a line, in order.
    pub(crate) fn members(&self, line: u64) -> impl Iterator<Item = TxnId> + '_ {
        let first = self.lines.get(&line).map(|l| l.first);
        std::iter::successors(first, |txn| self.owners.get(txn)?.waits?.behind)
    }
}

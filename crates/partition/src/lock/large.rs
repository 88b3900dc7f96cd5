//! Waits for large transactions: those whose undo is only in the log.
//!
//! A snapshot cannot be opened beside them if images are not kept yet. A reader of a whole table
//! that one of them uses waits here for its end before it tries again. Nothing waits behind the
//! reader meanwhile, unlike behind a request for a lock on the table.
//!
//! The waits are lines at the table in [`Mode::Settled`], so deadlocks are detected. A large
//! transaction that waits for others has a line of its own. All members of a line wait for what
//! blocks its first member, and that may be any other large transaction.

use super::line::{InLine, Line, NAMED};
use super::scope::{Place, keys_of};
use super::table::{LockTable, Request, ScopeId};
use super::{Mode, Target};
use clearway_types::{TableId, TxnId};

impl Line {
    fn awaits_large(&self) -> bool {
        self.at.mode == Mode::Settled && matches!(self.scope, ScopeId::Table(_))
    }
}

impl LockTable {
    /// Returns true if the transaction holds a lock on the table or in it.
    pub(crate) fn uses(&self, txn: TxnId, table: TableId) -> bool {
        self.owners.get(&txn).is_some_and(|owner| owner.tables.contains(&table))
    }

    /// Waits for the end of large transactions that use the table, at least one. `is_large`: this
    /// one is large, too.
    pub(crate) fn await_ends(
        &mut self,
        txn: TxnId,
        table: TableId,
        on: Vec<TxnId>,
        is_large: bool,
    ) -> InLine {
        if is_large {
            self.large.insert(txn);
        } else {
            // It may have been large before a ROLLBACK TO.
            self.stop_awaiting(txn);
        }
        self.large.extend(&on);
        let (target, scope, mode) = (Target::Table(table), ScopeId::Table(table), Mode::Settled);
        let keys = keys_of(target);
        match self.line_of(&Request::new(txn, scope, keys, mode)) {
            Some(line) if !is_large => self.join(line, txn),
            _ => {
                let on = on.into_iter().take(NAMED).collect();
                self.open(txn, scope, Place::of(target), mode, is_large, on)
            }
        }
    }

    /// Ends all waits for the end of this transaction because of its size.
    pub(crate) fn stop_awaiting(&mut self, txn: TxnId) {
        if !self.large.remove(&txn) {
            return;
        }
        for line in self.lines_naming(txn) {
            if self.lines.get(&line).is_some_and(Line::awaits_large) {
                self.serve(line);
            }
        }
    }

    /// Returns the transactions that block such a wait.
    pub(super) fn large_ones(&self, r: &Request<'_>) -> Vec<TxnId> {
        let ScopeId::Table(table) = r.scope else { return Vec::new() };
        let blocks = |txn: &TxnId| *txn != r.txn && self.uses(*txn, table);
        self.large.iter().copied().filter(blocks).take(NAMED).collect()
    }
}

//! Reads whose lock is learned: which one they take, and what is noted of them.

use super::{Cx, Locking, Stop};
use crate::lock::{Mode, Target};
use crate::reads::{Gathering, Reads};
use crate::trees::Trees;
use clearway_plan::{Access, LearnedLock, RowLock};
use clearway_types::{TableId, TreeId};
use std::sync::Arc;

/// What a statement of a block leaves evidence in.
pub(crate) struct Learning<'a> {
    pub reads: &'a mut Reads,
    pub gathering: &'a mut Gathering,
    /// Its own reads count, too.
    pub learns: bool,
}

impl<T: Trees> Cx<'_, T> {
    /// What is learned of the plan, if the statement takes part in that.
    fn learned<'p>(&self, access: &'p Access) -> Option<&'p Arc<LearnedLock>> {
        let learns = self.locking == Locking::Take && self.learning.as_ref().is_some_and(|l| l.learns);
        access.learned.get().filter(|_| learns && access.lock.is_none())
    }

    /// The mode for the rows that a read finds; `mode`: the one for ranges and tables. Who shares the whole table keeps to that: its intent
    /// to change rows would be an upgrade.
    pub(super) fn row_mode(&self, access: &Access, mode: Mode) -> Mode {
        let whole = Target::Table(access.table.id);
        let exclusive = self.learned(access).is_some_and(|learned| learned.is_exclusive());
        if exclusive && !self.locks.covered(self.txn, whole, Mode::Shared) { Mode::Exclusive } else { mode }
    }

    /// Locks a row for a read, or for FOR UPDATE and FOR NO KEY UPDATE; `mode`: [`Cx::row_mode`]. A row that the transaction has locked is no evidence, and
    /// its lock is not upgraded for a guess.
    #[track_caller]
    pub(super) fn lock_read(&mut self, access: &Access, key: &[u8], mut mode: Mode) -> Result<(), Stop> {
        let (table, tree) = (access.table.id, access.table.tree);
        if access.read_lock() > RowLock::Share {
            return self.lock_change(table, tree, key, mode);
        }
        if let Some(learned) = self.learned(access) {
            if self.locks.covered(self.txn, Target::Key(tree, key), Mode::Shared) {
                return Ok(());
            }
            let whole = self.locks.covered(self.txn, Target::Table(table), Mode::Shared);
            if let Some(Learning { reads, gathering, .. }) = self.learning.as_mut().filter(|_| !whole) {
                if reads.is_full() {
                    mode = Mode::Shared;
                }
                gathering.note(reads, learned, tree, key, mode == Mode::Exclusive);
            }
        }
        self.lock_row(table, tree, key, mode)
    }

    /// Locks a row to change it: a read of it in the same transaction is evidence.
    #[track_caller]
    pub(super) fn lock_change(&mut self, table: TableId, tree: TreeId, key: &[u8], mode: Mode) -> Result<(), Stop> {
        if let Some(Learning { reads, gathering, .. }) = &mut self.learning {
            gathering.changes(reads, tree, key);
        }
        self.lock_row(table, tree, key, mode)
    }
}

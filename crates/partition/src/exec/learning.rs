//! Reads and additions whose lock is learned: the lock they take, and what is recorded about them.

use super::{Cx, Locking, Stop};
use crate::lock::{Mode, Target};
use crate::reads::{Gathering, Reads, Use};
use clearway_ir::{Access, LearnedLock, RowLock};
use clearway_storage::Trees;
use clearway_types::{TableId, TreeId};
use std::sync::Arc;

/// Where a statement in a transaction block records evidence.
pub(crate) struct Learning<'a> {
    pub reads: &'a mut Reads,
    pub gathering: &'a mut Gathering,
    /// Whether the statement's own reads and additions count, too.
    pub learns: bool,
}

impl<T: Trees> Cx<'_, T> {
    /// Returns the plan's learned lock, if the statement takes part in learning.
    fn learned<'p>(&self, access: &'p Access) -> Option<&'p Arc<LearnedLock>> {
        let learns =
            self.locking == Locking::Take && self.learning.as_ref().is_some_and(|l| l.learns);
        access.learned.get().filter(|learned| learns && (learned.adds || access.lock.is_none()))
    }

    /// Returns the mode for the rows that a read finds; `mode` is the one for ranges and tables. A
    /// transaction that holds the whole table in shared mode keeps to that: an intent to change
    /// rows would be an upgrade.
    pub(super) fn row_mode(&self, access: &Access, mode: Mode) -> Mode {
        let whole = Target::Table(access.table.id);
        let exclusive = self.learned(access).is_some_and(|learned| learned.is_exclusive());
        if exclusive && !self.locks.covered(self.txn, whole, Mode::Shared) {
            Mode::Exclusive
        } else {
            mode
        }
    }

    /// Locks a row for a read, or for FOR UPDATE and FOR NO KEY UPDATE; `mode` comes from
    /// [`Cx::row_mode`]. A row that the transaction has already locked is not evidence, and its
    /// lock is not upgraded for a guess.
    #[track_caller]
    pub(super) fn lock_read(
        &mut self,
        access: &Access,
        key: &[u8],
        mut mode: Mode,
    ) -> Result<(), Stop> {
        let (table, tree) = (access.table.id, access.table.tree);
        if access.read_lock() > RowLock::Share {
            return self.lock_change(table, tree, key, mode);
        }
        if self.locking == Locking::Take {
            self.uses(tree, key, Mode::of_row(access.read_lock()));
        }
        if let Some(learned) = self.learned(access) {
            if self.locks.covered(self.txn, Target::Key(tree, key), Mode::Shared) {
                return self.check_retired(tree, key);
            }
            let whole = self.locks.covered(self.txn, Target::Table(table), Mode::Shared);
            if let Some(Learning { reads, gathering, .. }) =
                self.learning.as_mut().filter(|_| !whole)
            {
                if reads.is_full() {
                    mode = Mode::Shared;
                }
                gathering.note(reads, learned, tree, key, mode == Mode::Exclusive);
            }
        }
        self.lock_row(table, tree, key, mode)
    }

    /// Locks a row to change it. A read of the row, or an addition to it, in the same transaction
    /// becomes evidence.
    #[track_caller]
    pub(super) fn lock_change(
        &mut self,
        table: TableId,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> Result<(), Stop> {
        self.uses(tree, key, mode);
        self.lock_row(table, tree, key, mode)
    }

    /// Locks a row to add to it concurrently with others. Returns false if it must be locked
    /// exclusively, because what the plan's transactions do later would deadlock. A row that the
    /// transaction has already locked is not evidence.
    #[track_caller]
    pub(super) fn lock_add(&mut self, access: &Access, key: &[u8]) -> Result<bool, Stop> {
        let (table, tree) = (access.table.id, access.table.tree);
        self.uses(tree, key, Mode::Increment);
        if let Some(learned) = self.learned(access) {
            let modes = Mode::Shared.covered_by() | Mode::Increment.covered_by();
            let known = self.locks.covered_in(self.txn, Target::Key(tree, key), modes);
            if let Some(Learning { reads, gathering, .. }) =
                self.learning.as_mut().filter(|_| !known)
            {
                // Beyond the rows that it remembers, nobody would learn that it reads afterwards.
                let exclusive = learned.is_exclusive() || reads.is_full();
                gathering.note(reads, learned, tree, key, exclusive);
                if exclusive {
                    return Ok(false);
                }
            }
        }
        self.lock_row(table, tree, key, Mode::Increment).map(|()| true)
    }

    /// Records for the views whether a row's exclusive lock for an addition was learned.
    pub(super) fn note_learned(&mut self, access: &Access, key: &[u8]) {
        if self.learned(access).is_some_and(|learned| learned.adds && learned.is_exclusive()) {
            self.locks.set_learned(access.table.tree, key);
        }
    }

    /// Turns the transaction's record of the row into evidence, if this use of the row counts as a
    /// change. `mode` is the mode that the statement requests.
    pub(super) fn uses(&mut self, tree: TreeId, key: &[u8], mode: Mode) {
        let by = match mode {
            Mode::KeyShared => return,
            Mode::Shared => Use::Reads,
            Mode::Increment => Use::Adds,
            _ => Use::Changes,
        };
        if let Some(Learning { reads, gathering, .. }) = &mut self.learning {
            gathering.uses(reads, tree, key, by);
        }
    }
}

//! Which plans are valid: the table definitions that have changed since startup.
//!
//! A plan is valid if its table has not changed since planning. A read under a snapshot is also
//! valid if the table had not changed as of the snapshot: DDL does not wait for it, and its trees
//! remain while the snapshot is open.
//!
//! Invariants
//! 1. A table is in `changing` from the message that announces its change to the end of its
//!    transaction. All partitions reply to that message before the transaction's commit record is
//!    in the log. So a reader whose snapshot sees the change finds it here, or in `least`.
//! 2. `past` has all changes that an open snapshot does not see.
//!
//! Locking: none, it belongs to the partition. A crash leaves nothing.

use clearway_ir::TableDef;
use clearway_types::{Lsn, TableId, TxnId};
use hashbrown::HashMap;

/// The changed tables; see the module.
#[derive(Default)]
pub(super) struct Tables {
    /// The lowest valid version. Has an entry of about 24 bytes for each table created, changed or
    /// dropped since startup: a session may still have a plan of any of them.
    least: HashMap<TableId, u64>,
    /// The transaction that will change the table.
    changing: HashMap<TableId, TxnId>,
    /// Versions, each with the end of the commit record that created it.
    past: HashMap<TableId, Vec<(u64, Lsn)>>,
}

impl Tables {
    /// Returns true if the table has not changed since planning.
    pub(super) fn is_current(&self, table: &TableDef) -> bool {
        self.least.get(&table.id).is_none_or(|least| table.version >= *least)
    }

    /// Returns true if the table has not changed since planning, or had not when the snapshot was
    /// opened.
    pub(super) fn was_current(&self, table: &TableDef, at: Lsn) -> bool {
        let changes = self.past.get(&table.id).into_iter().flatten();
        let next = changes
            .filter(|(version, _)| *version > table.version)
            .map(|(_, commit)| *commit)
            .min();
        self.is_current(table) || next.is_some_and(|commit| commit > at)
    }

    /// Returns the transaction that will change the table when it commits.
    pub(super) fn changer(&self, table: TableId) -> Option<TxnId> {
        self.changing.get(&table).copied()
    }

    /// Records that the transaction will change the table.
    pub(super) fn announce(&mut self, table: TableId, by: TxnId) {
        self.changing.insert(table, by);
    }

    /// Records the end of the transaction that changes these tables. `commit` is the end of its
    /// commit record; `floor` is [`crate::Snapshots::floor`], read after that.
    pub(super) fn end(
        &mut self,
        changed: impl Iterator<Item = (TableId, u64)>,
        commit: Option<Lsn>,
        floor: Lsn,
    ) {
        let mut some = false;
        for (table, version) in changed {
            some = true;
            self.changing.remove(&table);
            if let Some(commit) = commit {
                let least = self.least.entry(table).or_default();
                *least = (*least).max(version);
                self.past.entry(table).or_default().push((version, commit));
            }
        }
        if some {
            self.past.retain(|_, changes| {
                changes.retain(|(_, commit)| *commit > floor);
                !changes.is_empty()
            });
        }
    }
}

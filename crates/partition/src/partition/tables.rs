//! Which plans are good: the definitions of tables that have changed since the start.
//!
//! A plan is good if its table is still as it was planned. A read that sees a snapshot is also good
//! if the table was so then: DDL does not wait for it, and its trees stay as long as the snapshot
//! is open.
//!
//! Invariants
//! 1. A table is in `changing` from the message that announces its change to the end of its
//!    transaction. That message is answered by all partitions before the transaction's commit
//!    record is in the log: a reader whose snapshot sees the change finds it here, or in `least`.
//! 2. `past` has all changes that an open snapshot does not see.
//!
//! Locking: none, it belongs to the partition. A crash leaves nothing.

use clearway_ir::TableDef;
use clearway_types::{Lsn, TableId, TxnId};
use hashbrown::HashMap;

/// See above.
#[derive(Default)]
pub(super) struct Tables {
    /// The least good version.
    least: HashMap<TableId, u64>,
    /// Who will change it.
    changing: HashMap<TableId, TxnId>,
    /// Versions, each with the end of the commit record that brought it.
    past: HashMap<TableId, Vec<(u64, Lsn)>>,
}

impl Tables {
    /// Whether the table is as it was planned.
    pub(super) fn is_current(&self, table: &TableDef) -> bool {
        self.least.get(&table.id).is_none_or(|least| table.version >= *least)
    }

    /// Whether the table is as it was planned, or was when the snapshot was opened.
    pub(super) fn was_current(&self, table: &TableDef, at: Lsn) -> bool {
        let changes = self.past.get(&table.id).into_iter().flatten();
        let next = changes
            .filter(|(version, _)| *version > table.version)
            .map(|(_, commit)| *commit)
            .min();
        self.is_current(table) || next.is_some_and(|commit| commit > at)
    }

    /// Who changes the table when it commits.
    pub(super) fn changer(&self, table: TableId) -> Option<TxnId> {
        self.changing.get(&table).copied()
    }

    /// The transaction will change it.
    pub(super) fn announce(&mut self, table: TableId, by: TxnId) {
        self.changing.insert(table, by);
    }

    /// The transaction that changes these is over. `commit`: where its commit record ends; `floor`:
    /// [`crate::Snapshots::floor`] since then.
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

//! Reads of one row as it was last committed: what READ COMMITTED sees of a row that it looks up by
//! its key. This needs no snapshot.
//!
//! Everything uncommitted is protected by the lock of its transaction. So if no other transaction
//! has locked a key, the tree has its committed value. Otherwise the committed value is in an
//! image, if the partition keeps them, or follows from the undo of the lock's holder: the value
//! that it has replaced or, since others may have added to the row, the amount that it has added.
//!
//! Invariant: a reader whose reply excludes a change is not ordered after that change's commit. If
//! a transaction is committing but the partition has not received its outcome, the reader waits for
//! it.

use super::Partition;
use crate::exec::{Cx, Exec, Stop, granted, push_point, table_of};
use crate::lock::{LockTable, Mode, Target};
use crate::message::COMMITTED;
use crate::versions::{AsOf, Before, mismatch, subtract};
use clearway_ir::TableDef;
use clearway_storage::{Replaced, Trees};
use clearway_sync::canary::{self, Bug};
use clearway_types::TxnId;

/// The turn's cost of one row and its group. A read of committed data completes in one turn, so
/// that its reply reflects one moment.
const TURN: usize = 2;

impl<T: Trees> Cx<'_, T> {
    /// Sets what the run sees: the snapshot and, if it reads what is committed now, what others
    /// have replaced. `by_table` is [`Cx::by_table`].
    pub(super) fn set_snapshot(
        &mut self,
        as_of: Option<AsOf>,
        replaced: Option<Before>,
        by_table: bool,
    ) {
        if let Some(AsOf { at: COMMITTED, .. }) = as_of {
            self.budget = self.budget.max(TURN);
        }
        (self.as_of, self.replaced, self.by_table) = (as_of, replaced, by_table);
    }
}

/// Waits for the transactions that have changed the row.
fn wait_for(
    locks: &mut LockTable,
    id: TxnId,
    table: &TableDef,
    row: Target<'_>,
) -> Result<(), Stop> {
    let (whole, intent) = (Target::Table(table.id), Mode::IntentShared);
    granted(locks.acquire(id, whole, intent), whole, intent)?;
    granted(locks.acquire_in(id, table.id, row, Mode::Shared), row, Mode::Shared)
}

impl<T: Trees> Partition<T> {
    /// Returns what active transactions have replaced under the key that a statement with this
    /// snapshot reads. `None` means that the key's value, or its images, can be used.
    pub(super) fn replaced(
        &mut self,
        id: TxnId,
        exec: &Exec,
        as_of: Option<AsOf>,
    ) -> Result<Option<Before>, Stop> {
        if !matches!(as_of, Some(AsOf { at: COMMITTED, .. })) {
            return Ok(None);
        }
        if self.trees.versions.keeps() || self.txns.is_empty() || canary::on(Bug::DirtyRead) {
            return Ok(None);
        }
        let key = &mut self.scratch.key;
        key.clear();
        if !push_point(&exec.program, &exec.env, key)? {
            return Ok(None);
        }
        let table = table_of(&exec.program);
        let row = Target::Key(table.tree, key);
        if self.blocking.chain.has_detached() {
            // The locks are not those of the transactions that have changed the rows.
            wait_for(&mut self.locks, id, table, row)?;
            return Ok(None);
        }
        let mut writers = self.locks.holders_against(id, row, Mode::Shared);
        writers.extend(self.locks.holders_against(id, Target::Table(table.id), Mode::IntentShared));
        writers.sort_unstable();
        writers.dedup();
        if let Some(in_order) = self.locks.after(id, table.tree, key) {
            if self.locks.is_retired(id, table.tree, key) && !in_order.is_empty() {
                return Err(Stop::Reclaim(table.tree, key.as_slice().into()));
            }
            if in_order.len() > 1 {
                // Each undo except the last describes a value that is no longer there, and need not
                // even fit the current one.
                wait_for(&mut self.locks, id, table, row)?;
                return Ok(None);
            }
            writers = in_order;
        }
        let mut added = Vec::new();
        for writer in writers {
            let Some(txn) = self.txns.get(&writer) else { continue };
            match self.trees.replaced(&txn.log, table.tree, key)? {
                Replaced::Nothing => {}
                Replaced::Value(_) | Replaced::Added(_)
                    if self.trees.versions.is_undecided(writer) =>
                {
                    return Err(Stop::Commit(writer));
                }
                Replaced::Value(before) => return Ok(Some(before)),
                Replaced::Added(_) if canary::on(Bug::UnsubtractedDelta) => {}
                Replaced::Added(more) => added.extend(more),
                Replaced::Unknown => wait_for(&mut self.locks, id, table, row)?,
            }
        }
        if added.is_empty() {
            return Ok(None);
        }
        let mut before: Before = None;
        self.trees.get(table.tree, key, &mut |now| before = Some(now.into()))?;
        match before.as_deref_mut().is_some_and(|value| subtract(&added, value)) {
            true => Ok(Some(before)),
            false => Err(mismatch().into()),
        }
    }
}

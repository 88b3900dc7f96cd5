//! Reads of one row as it was last committed: what READ COMMITTED sees of a row by its key. No
//! snapshot is needed for that.
//!
//! Whatever is not committed lies under the lock of its transaction. So a key that nobody else has
//! locked has its committed value in the tree. Otherwise that is in an image, if the partition
//! keeps them, or in the undo of who has the lock: the value that it has replaced, or, as others
//! may have added to the row, what it has added.
//!
//! Invariant: a reader whose answer leaves out a change does not come after that change's commit:
//! of a transaction that commits, and of which the partition has not been told, it waits to be
//! told.

use super::Partition;
use crate::exec::{Cx, Exec, Stop, granted, push_point, table_of};
use crate::lock::{LockTable, Mode, Target};
use crate::message::COMMITTED;
use crate::trees::Trees;
use crate::versions::{AsOf, Before, misfit, subtract};
use clearway_ir::TableDef;
use clearway_storage::Replaced;
use clearway_sync::canary::{self, Bug};
use clearway_types::TxnId;

/// What one row costs of a turn, and the group that it makes: a read of what is committed is done
/// in one turn, so that its answer is of one moment.
const TURN: usize = 2;

impl<T: Trees> Cx<'_, T> {
    /// Sees it, and, of what is committed now, what others have replaced; `by_table`:
    /// [`Cx::by_table`].
    pub(super) fn see(&mut self, as_of: Option<AsOf>, replaced: Option<Before>, by_table: bool) {
        if let Some(AsOf { at: COMMITTED, .. }) = as_of {
            self.budget = self.budget.max(TURN);
        }
        (self.as_of, self.replaced, self.by_table) = (as_of, replaced, by_table);
    }
}

/// Waits for those who have changed the row.
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
    /// What others, who are not over, have replaced under the key that a statement reads which sees
    /// this. None: the key's value, or its images, are good.
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
        let mut writers = self.locks.holders_against(id, row, Mode::Shared);
        writers.extend(self.locks.holders_against(id, Target::Table(table.id), Mode::IntentShared));
        writers.sort_unstable();
        writers.dedup();
        if let Some(in_order) = self.locks.after(id, table.tree, key) {
            if self.locks.is_retired(id, table.tree, key) && !in_order.is_empty() {
                return Err(Stop::Reclaim(table.tree, key.as_slice().into()));
            }
            if in_order.len() > 1 {
                // The undo of each change but the last is of a value that is not there any more:
                // it does not even have to fit.
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
            false => Err(misfit().into()),
        }
    }
}

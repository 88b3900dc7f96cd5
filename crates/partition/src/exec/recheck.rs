//! Rows that a statement finds in a snapshot, and changes or locks in their current version.
//!
//! Invariant: a selected row satisfies the statement's condition twice, in the snapshot and in its
//! newest version, and that version does not change because the row is locked. The condition is the
//! filter and the path's range; a row cannot leave a range of the table's own keys.
//!
//! An INSERT finds no rows, but at REPEATABLE READ it must not hide one. A key has one place in its
//! tree, and after the block inserts there it sees only its own value. The same holds for UPDATE,
//! and for entries of indexes and global indexes.
//!
//! Source: PostgreSQL's manual, 13.2.1 and 13.2.2, and its `EvalPlanQual`.

use super::path::{Keys, Range};
use super::{Cx, Stop};
use crate::lock::{Mode, Target};
use crate::versions::{AsOf, Since};
use clearway_ir::program::{Access, Env};
use clearway_ir::{LockWait, TableDef};
use clearway_storage::Trees;
use clearway_sync::canary::{self, Bug};
use clearway_types::{RowView, SqlError, SqlResult, SqlState, TreeId};

/// Which rows to take, and how to lock them.
pub(super) struct Wanted<'a> {
    pub access: &'a Access,
    pub keys: &'a Keys,
    pub env: &'a Env,
    pub mode: Mode,
    pub wait: LockWait,
}

impl Wanted<'_> {
    fn satisfies(&self, row: &[u8]) -> SqlResult<bool> {
        self.access
            .filter
            .as_ref()
            .map_or(Ok(true), |filter| filter.eval_bool(RowView::new(row), self.env))
    }

    /// Returns true if the path still leads to the row.
    fn leads_to(&self, row: &[u8], key: &[u8]) -> SqlResult<bool> {
        match self.keys {
            Keys::Range(range) if range.by_index => {
                entry_is_within(&self.access.table, range, row, key)
            }
            _ => Ok(true),
        }
    }

    /// Locks the row under this key and reads its newest version into `row`. Returns false if the
    /// row does not qualify or is skipped.
    #[track_caller]
    pub(super) fn take<T: Trees>(
        &self,
        cx: &mut Cx<'_, T>,
        as_of: AsOf,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<bool, Stop> {
        let table = &*self.access.table;
        let mut wanted = Ok(false);
        let is_there = cx.get(table.tree, key, &mut |value| wanted = self.satisfies(value))?;
        if !(is_there && wanted?) {
            return Ok(false);
        }
        cx.uses(table.tree, key, self.mode);
        if !cx.try_lock_in(table, Target::Key(table.tree, key), self.mode, self.wait)? {
            return Ok(false);
        }
        // The updates that a shared key admits change none of its columns, and it reads no others.
        let open = self.mode != Mode::KeyShared;
        let since = since(cx, as_of, table, (table.tree, key), open)?;
        row.clear();
        if !cx.trees.get(table.tree, key, &mut |value| row.extend_from_slice(value))? {
            return if since == Since::Moved { Err(moved(table).into()) } else { Ok(false) };
        }
        if since == Since::Unchanged || canary::on(Bug::SkippedRecheck) {
            return Ok(true);
        }
        Ok(self.leads_to(row, key)? && self.satisfies(row)?)
    }
}

/// Returns what others have done to a locked key of the table. Fails with 40001 if that is anything
/// and the snapshot is repeatable. Changes of active transactions count if `open` is true.
pub(super) fn since<T: Trees>(
    cx: &Cx<'_, T>,
    as_of: AsOf,
    table: &TableDef,
    (tree, key): (TreeId, &[u8]),
    open: bool,
) -> Result<Since, Stop> {
    let since = cx.trees.versions.since(tree, key, as_of, open)?;
    if since != Since::Unchanged && as_of.repeatable && !canary::on(Bug::LostUpdate) {
        return Err(changed(table).into());
    }
    Ok(since)
}

/// Fails with 40001 if an insert under this locked key would hide a row of a repeatable snapshot,
/// because others have deleted that row since. If the key is not free, the insert itself finds
/// that.
pub(super) fn is_not_hidden<T: Trees>(
    cx: &Cx<'_, T>,
    table: &TableDef,
    tree: TreeId,
    key: &[u8],
) -> Result<(), Stop> {
    let Some(as_of) = cx.as_of.filter(|as_of| as_of.repeatable) else { return Ok(()) };
    let is_seen = cx.trees.get_at(tree, key, as_of, &mut |_| {})?;
    if is_seen && !cx.trees.get(tree, key, &mut |_| {})? && !canary::on(Bug::HiddenRow) {
        return Err(changed(table).into());
    }
    Ok(())
}

/// Returns true if the row's index entry is within the range's original bounds.
fn entry_is_within(table: &TableDef, range: &Range, row: &[u8], key: &[u8]) -> SqlResult<bool> {
    let Some(index) = table.indexes.iter().find(|index| index.tree == range.tree) else {
        return Ok(false);
    };
    let mut entry = Vec::with_capacity(32);
    index.push_entry(RowView::new(row), key, &mut entry)?;
    Ok(range.originally_contains(&entry))
}

/// Returns 40001 for a change of a row that others have changed since the snapshot.
#[cold]
fn changed(table: &TableDef) -> SqlError {
    let text = "could not serialize access due to concurrent update";
    SqlError::new(SqlState::SERIALIZATION_FAILURE, text)
        .hint("Run the transaction again.")
        .table(&table.name)
}

/// Returns 40001 for a row that is now under another key or at another partition.
#[cold]
fn moved(table: &TableDef) -> SqlError {
    let text =
        "tuple to be locked was already moved to another key or partition due to concurrent update";
    SqlError::new(SqlState::SERIALIZATION_FAILURE, text)
        .hint("Run the transaction again.")
        .table(&table.name)
}

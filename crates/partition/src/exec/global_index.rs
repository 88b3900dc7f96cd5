//! `Program::GlobalIndex`: each entry of a global index is one step.

use super::change::{damaged, duplicate_key, vanished};
use super::{Cx, Locking, Output, Stop, recheck};
use crate::lock::{Mode, Target};
use clearway_ir::program::Env;
use clearway_ir::{GlobalIndexOp, LockWait, Program, RowLock, TableDef};
use clearway_storage::{Inserted, Trees};
use clearway_sync::canary::{self, Bug};
use clearway_types::{DatumRef, RowBatch, RowView, SqlError, SqlResult, SqlState, key};

#[derive(Default)]
pub(super) struct GlobalIndex {
    locked: bool,
    /// Number of entries processed.
    at: usize,
}

impl GlobalIndex {
    pub(super) fn run<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        program: &Program,
        env: &Env,
        rows: Option<&RowBatch>,
        out: &mut Output,
    ) -> Result<bool, Stop> {
        let (Program::GlobalIndex { table, key, op }, Some(rows)) = (program, rows) else {
            return Err(SqlError::internal("a global index without entries").into());
        };
        let global_index = table
            .global_index(*key)
            .ok_or_else(|| SqlError::internal("a key without a global index"))?;
        let (mode, wait) = match op {
            GlobalIndexOp::Find { lock, wait } => (Mode::of_row(*lock), *wait),
            GlobalIndexOp::Clash => (Mode::of_row(RowLock::Update), LockWait::Wait),
            GlobalIndexOp::Insert | GlobalIndexOp::Delete => (Mode::Exclusive, LockWait::Wait),
        };
        if !self.locked {
            if !cx.try_lock_table(table, mode.intent(), wait)? {
                return Ok(false);
            }
            self.locked = true;
        }
        while self.at < rows.len() {
            cx.spend()?;
            let row = rows.get(self.at);
            let entry = entry_key(table, global_index.columns.len(), row)?;
            if !cx.try_lock_in(table, Target::Key(global_index.tree, &entry), mode, wait)? {
                self.at += 1;
                continue;
            }
            match op {
                GlobalIndexOp::Insert => {
                    let home = home(table, row, global_index.columns.len())?;
                    recheck::is_not_hidden(cx, table, global_index.tree, &entry)?;
                    if cx.trees.insert(cx.log, cx.mode, global_index.tree, &entry, &home)?
                        == Inserted::Exists
                    {
                        return Err(duplicate_key(table, *key, row, env)?.into());
                    }
                }
                GlobalIndexOp::Delete => {
                    if !cx.trees.delete(cx.log, cx.mode, global_index.tree, &entry)? {
                        return Err(vanished(table).into());
                    }
                }
                GlobalIndexOp::Find { .. } if cx.by_table => {
                    out.rows.push_with(|r| r.push(DatumRef::Null))
                }
                GlobalIndexOp::Find { .. } | GlobalIndexOp::Clash => {
                    let mut found = None;
                    let mut read = |value: &[u8]| found = Some(value.try_into());
                    if *op == GlobalIndexOp::Clash {
                        cx.trees.get(global_index.tree, &entry, &mut read)?;
                    } else {
                        cx.get(global_index.tree, &entry, &mut read)?;
                    }
                    let unchecked = *op == GlobalIndexOp::Clash && canary::on(Bug::UnseenConflict);
                    let takes = found.is_some() && cx.locking == Locking::Take && !unchecked;
                    if let Some(as_of) = cx.as_of.filter(|_| takes) {
                        // The row may no longer exist, or not exist yet.
                        recheck::since(cx, as_of, table, (global_index.tree, &entry), true)?;
                    }
                    if let Some(value) = found {
                        let home =
                            value.map(u16::from_le_bytes).map_err(|_| damaged_entry(table))?;
                        out.rows.push_with(|r| r.push(DatumRef::Int4(i32::from(home))));
                    }
                }
            }
            out.count += 1;
            self.at += 1;
        }
        Ok(false)
    }
}

fn entry_key(table: &TableDef, columns: usize, row: RowView<'_>) -> SqlResult<Vec<u8>> {
    let mut entry = Vec::with_capacity(32);
    for value in row.iter().take(columns) {
        key::push(&mut entry, value.map_err(|_| damaged(table))?);
    }
    Ok(entry)
}

/// Returns the value of an entry: the home partition, which follows the key's columns.
fn home(table: &TableDef, row: RowView<'_>, at: usize) -> SqlResult<[u8; 2]> {
    match row.get(at) {
        Ok(DatumRef::Int4(home)) => u16::try_from(home)
            .map(u16::to_le_bytes)
            .map_err(|_| SqlError::internal("no such partition")),
        _ => Err(damaged(table)),
    }
}

#[cold]
fn damaged_entry(table: &TableDef) -> SqlError {
    let text = format!("an entry of a unique key of table \"{}\" is damaged", table.name);
    SqlError::new(SqlState::DATA_CORRUPTED, text)
}

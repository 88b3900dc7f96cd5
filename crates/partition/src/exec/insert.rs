//! `Program::Insert`.

use super::buffers::Buffers;
use super::change::{Kind, index_steps};
use super::{Cx, Output, Stop};
use crate::lock::{Mode, Target};
use crate::message::Batch;
use clearway_ir::program::Env;
use clearway_ir::{OnConflict, Program, TableDef, UniqueKey};
use clearway_storage::Trees;
use clearway_types::{DatumRef, RowBatch, RowView, SqlError, key};

#[derive(Default)]
pub(super) struct Insert {
    locked: bool,
    /// Number of rows processed; pending steps belong to the next row.
    at: usize,
    /// Whether the steps of row `at` are in [`Buffers::steps`] but not all executed.
    noted: bool,
}

/// Appends the key of a row to insert.
pub(super) fn key_of<T: Trees>(
    cx: &mut Cx<'_, T>,
    table: &TableDef,
    row: RowView<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Stop> {
    if table.primary_key.is_empty() {
        let id = cx.trees.current.next_rowid(table.tree)?;
        key::push(out, DatumRef::Int8(id as i64));
    } else {
        table.push_primary_key(row, out)?;
    }
    Ok(())
}

impl Insert {
    pub(super) fn run<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        program: &Program,
        env: &Env,
        rows: Option<&RowBatch>,
        (out, buffers): (&mut Output, &mut Buffers),
        batch: &Batch,
    ) -> Result<bool, Stop> {
        let (Program::Insert { table, returning, on_conflict }, Some(rows)) = (program, rows)
        else {
            return Err(SqlError::internal("an insert without rows").into());
        };
        if !self.locked {
            cx.lock(Target::Table(table.id), Mode::IntentExclusive)?;
            self.locked = true;
        }
        loop {
            if self.noted {
                let row = rows.get(self.at);
                if *on_conflict != OnConflict::Fail && !buffers.steps.has_started() {
                    buffers.steps.lock(cx, table)?;
                    if buffers.steps.would_clash(cx, table, *on_conflict)? {
                        self.noted = false;
                        self.at += 1;
                        continue;
                    }
                }
                buffers.steps.take(cx, table, row.bytes(), env)?;
                if !returning.is_empty() {
                    out.project(returning, row, env)?;
                }
                out.count += 1;
                self.noted = false;
                self.at += 1;
            }
            if out.is_full(batch) {
                return Ok(true);
            }
            if self.at >= rows.len() {
                return Ok(false);
            }
            cx.spend()?;
            self.note(cx, table, rows.get(self.at), buffers)?;
        }
    }

    fn note<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        table: &TableDef,
        row: RowView<'_>,
        Buffers { steps, new: key, .. }: &mut Buffers,
    ) -> Result<(), Stop> {
        steps.clear();
        key.clear();
        key_of(cx, table, row, key)?;
        steps.push(Kind::Insert(UniqueKey::Primary), table.tree, key, row.bytes());
        index_steps(table, None, Some((row.bytes(), key)), steps)?;
        self.noted = true;
        Ok(())
    }
}

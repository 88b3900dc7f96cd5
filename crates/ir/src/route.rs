//! Maps rows to partitions and keys.

use crate::program::Env;
use crate::sort::damaged;
use crate::statement::Route;
use crate::{Distribution, Expr, IndexDef, TableDef};
use clearway_types::{PartitionId, RowView, SqlResult, hash, key};
use std::cell::Cell;

thread_local! {
    /// A reusable buffer: every statement for a single partition computes its route in it.
    static KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Returns the partition of the key that `push` encodes.
fn hashed(
    partitions: u16,
    push: impl FnOnce(&mut Vec<u8>) -> SqlResult<()>,
) -> SqlResult<Option<PartitionId>> {
    let mut key = KEY.take();
    key.clear();
    let partition = push(&mut key).map(|()| hash::partition_of(&key, partitions));
    KEY.set(key);
    partition.map(Some)
}

impl Route {
    /// Returns the partition of a [`Route::Hash`]; `None` for other routes.
    pub fn partition(&self, env: &Env, partitions: u16) -> SqlResult<Option<PartitionId>> {
        let Self::Hash(exprs) = self else { return Ok(None) };
        hashed(partitions, |key| {
            exprs.iter().try_for_each(|expr| {
                key::push(key, expr.eval_ref(RowView::new(&[]), env)?.as_ref());
                Ok(())
            })
        })
    }
}

impl TableDef {
    /// Returns the partition of a row; `None` for a randomly distributed table.
    pub fn partition_of(
        &self,
        row: RowView<'_>,
        partitions: u16,
    ) -> SqlResult<Option<PartitionId>> {
        let Distribution::Hash(columns) = &self.distribution else { return Ok(None) };
        hashed(partitions, |key| push_columns(columns, row, key).map(drop))
    }
    /// Like [`TableDef::partition_of`], for a row of expressions without input. Evaluates only the
    /// distribution columns.
    pub fn partition_of_values(
        &self,
        row: &[Expr],
        env: &Env,
        partitions: u16,
    ) -> SqlResult<Option<PartitionId>> {
        let Distribution::Hash(columns) = &self.distribution else { return Ok(None) };
        hashed(partitions, |key| {
            columns.iter().try_for_each(|column| {
                let value = row.get(*column).ok_or_else(damaged)?;
                key::push(key, value.eval_ref(RowView::new(&[]), env)?.as_ref());
                Ok(())
            })
        })
    }
    /// Appends the encoded primary key. The table must have one.
    pub fn push_primary_key(&self, row: RowView<'_>, out: &mut Vec<u8>) -> SqlResult<()> {
        push_columns(&self.primary_key, row, out).map(|_| ())
    }
}

impl IndexDef {
    /// Appends the index entry's key for `row`, whose key in the table's tree is `row_key`. Returns
    /// true if equal keys must be rejected (a unique index, no NULL in the key).
    pub fn push_entry(
        &self,
        row: RowView<'_>,
        row_key: &[u8],
        out: &mut Vec<u8>,
    ) -> SqlResult<bool> {
        let null = push_columns(&self.columns, row, out)?;
        let refuse = self.unique && !null;
        if !refuse {
            out.extend_from_slice(row_key);
        }
        Ok(refuse)
    }
}

/// Appends the key encoding of the row's columns; returns true if one of them is NULL.
pub fn push_columns(columns: &[usize], row: RowView<'_>, out: &mut Vec<u8>) -> SqlResult<bool> {
    let mut null = false;
    for &column in columns {
        let value = row.get(column).map_err(|_| damaged())?;
        null |= value.is_null();
        key::push(out, value);
    }
    Ok(null)
}

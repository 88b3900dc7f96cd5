//! Where rows live, and under which keys.

use crate::program::Env;
use crate::sort::damaged;
use crate::statement::Route;
use crate::{Distribution, IndexDef, TableDef};
use clearway_types::{PartitionId, RowView, SqlResult, hash, key};
use std::cell::Cell;

thread_local! {
    /// A buffer that outlives its use: each statement that goes to one partition routes itself.
    static KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The partition of the key that `push` makes.
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
    /// The one partition of a [`Route::Hash`]; `None` of others.
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
    /// The partition that a row belongs to; `None` for a randomly distributed table.
    pub fn partition_of(
        &self,
        row: RowView<'_>,
        partitions: u16,
    ) -> SqlResult<Option<PartitionId>> {
        let Distribution::Hash(columns) = &self.distribution else { return Ok(None) };
        hashed(partitions, |key| push_columns(columns, row, key).map(drop))
    }
    /// Appends the primary key's encoding. The table has one.
    pub fn push_primary_key(&self, row: RowView<'_>, out: &mut Vec<u8>) -> SqlResult<()> {
        push_columns(&self.primary_key, row, out).map(|_| ())
    }
}

impl IndexDef {
    /// Appends the key of the index's entry for `row`, whose key in the table's tree is `row_key`;
    /// true if equal keys must be refused (a unique index and no NULL in it).
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

/// Appends the key encoding of the row's columns; true if one of them is NULL.
pub fn push_columns(columns: &[usize], row: RowView<'_>, out: &mut Vec<u8>) -> SqlResult<bool> {
    let mut null = false;
    for &column in columns {
        let value = row.get(column).map_err(|_| damaged())?;
        null |= value.is_null();
        key::push(out, value);
    }
    Ok(null)
}

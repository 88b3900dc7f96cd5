//! Where rows live, and under which keys.

use crate::program::Env;
use crate::statement::Route;
use crate::{IndexDef, TableDef};
use clearway_types::{PartitionId, RowView, SqlError, SqlResult};

impl Route {
    /// The one partition of a [`Route::Hash`]; `None`: all.
    pub fn partition(&self, env: &Env, partitions: u16) -> SqlResult<Option<PartitionId>> {
        let _ = (env, partitions);
        Err(SqlError::internal("not built yet"))
    }
}

impl TableDef {
    /// The partition that a row belongs to; `None` for a randomly distributed table.
    pub fn partition_of(&self, row: RowView<'_>, partitions: u16) -> SqlResult<Option<PartitionId>> {
        let _ = (row, partitions);
        Err(SqlError::internal("not built yet"))
    }
    /// Appends the primary key's encoding. The table has one.
    pub fn push_primary_key(&self, row: RowView<'_>, out: &mut Vec<u8>) -> SqlResult<()> {
        push_columns(&self.primary_key, row, out).map(|_| ())
    }
}

impl IndexDef {
    /// Appends the key of the index's entry for `row`, whose key in the table's tree is `row_key`; true if equal keys must be refused
    /// (a unique index and no NULL in it).
    pub fn push_entry(&self, row: RowView<'_>, row_key: &[u8], out: &mut Vec<u8>) -> SqlResult<bool> {
        let _ = (row, row_key, out);
        Err(SqlError::internal("not built yet"))
    }
}

/// Appends the key encoding of the row's columns; true if one of them is NULL.
pub fn push_columns(columns: &[usize], row: RowView<'_>, out: &mut Vec<u8>) -> SqlResult<bool> {
    let _ = (columns, row, out);
    Err(SqlError::internal("not built yet"))
}

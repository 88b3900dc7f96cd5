//! Comparing values, sorting rows, dropping equal ones: the coordinator's finishing steps.

use crate::program::Env;
use crate::statement::SortKey;
use clearway_types::{DatumRef, RowBatch, SqlError, SqlResult};
use std::cmp::Ordering;

/// Order of two non-NULL values of comparable types (integers of any width; numeric and float8 with integers; text by bytes).
/// NULLs sort after everything. Agrees with the key encoding.
pub fn compare(a: DatumRef<'_>, b: DatumRef<'_>) -> Ordering {
    let _ = (a, b);
    Ordering::Equal
}

/// The rows in the order of `keys`; rows that compare equal keep their order.
pub fn sort(rows: &RowBatch, keys: &[SortKey], env: &Env) -> SqlResult<RowBatch> {
    let _ = (rows, keys, env);
    Err(SqlError::internal("not built yet"))
}

/// The first of each set of equal rows; NULLs are equal to each other.
pub fn distinct(rows: &RowBatch) -> SqlResult<RowBatch> {
    let _ = rows;
    Err(SqlError::internal("not built yet"))
}

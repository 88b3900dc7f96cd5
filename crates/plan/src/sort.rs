//! Comparing values, sorting rows, dropping equal ones: the coordinator's finishing steps.

use crate::cast::{to_decimal, to_float};
use crate::program::Env;
use crate::statement::SortKey;
use clearway_types::{Datum, DatumRef, RowBatch, RowView, SqlError, SqlResult, hash, key};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Order of two values of comparable types (integers of any width; numeric and float8 with integers; text by bytes). NULLs sort
/// after everything. Agrees with the key encoding: -0 equals 0, NaN is greater than every number and equals itself.
pub fn compare(a: DatumRef<'_>, b: DatumRef<'_>) -> Ordering {
    use DatumRef as D;
    match (a, b) {
        (D::Int4(x), D::Int4(y)) => x.cmp(&y),
        (D::Null, D::Null) => Ordering::Equal,
        (D::Null, _) => Ordering::Greater,
        (_, D::Null) => Ordering::Less,
        (D::Bool(x), D::Bool(y)) => x.cmp(&y),
        (D::Text(x), D::Text(y)) => x.as_bytes().cmp(y.as_bytes()),
        (D::Date(x), D::Date(y)) => x.cmp(&y),
        (D::Timestamp(x) | D::Timestamptz(x), D::Timestamp(y) | D::Timestamptz(y)) => x.cmp(&y),
        (D::Float8(_), _) | (_, D::Float8(_)) => match (to_float(a), to_float(b)) {
            (Some(x), Some(y)) => float(x, y),
            _ => Ordering::Equal,
        },
        _ => match (integer(a), integer(b)) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => match (to_decimal(a), to_decimal(b)) {
                (Some(x), Some(y)) => x.cmp(&y),
                _ => Ordering::Equal,
            },
        },
    }
}

fn integer(v: DatumRef<'_>) -> Option<i64> {
    match v {
        DatumRef::Int2(v) => Some(i64::from(v)),
        DatumRef::Int4(v) => Some(i64::from(v)),
        DatumRef::Int8(v) => Some(v),
        _ => None,
    }
}

fn float(x: f64, y: f64) -> Ordering {
    x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
}

/// The rows in the order of `keys`; rows that compare equal keep their order.
pub fn sort(rows: &RowBatch, keys: &[SortKey], env: &Env) -> SqlResult<RowBatch> {
    let mut order = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        let values: SqlResult<Vec<Datum>> = keys.iter().map(|k| k.expr.eval(row, env)).collect();
        order.push((values?, i));
    }
    order.sort_by(|a, b| {
        keys.iter()
            .enumerate()
            .map(|(n, key)| key.compare(a.0[n].as_ref(), b.0[n].as_ref()))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    let mut out = RowBatch::new();
    for (_, i) in order {
        out.push_encoded(rows.get(i).bytes());
    }
    Ok(out)
}

impl SortKey {
    /// Order of two values of this key.
    pub fn compare(&self, a: DatumRef<'_>, b: DatumRef<'_>) -> Ordering {
        match (a.is_null(), b.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if self.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if self.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if self.descending => compare(b, a),
            (false, false) => compare(a, b),
        }
    }
}

/// The first of each set of equal rows; NULLs are equal to each other.
pub fn distinct(rows: &RowBatch) -> SqlResult<RowBatch> {
    let mut seen = KeySet::default();
    let mut out = RowBatch::new();
    for row in rows.iter() {
        if seen.insert(row_identity(row)?) {
            out.push_encoded(row.bytes());
        }
    }
    Ok(out)
}

/// A set of keys made by [`push_identity`].
pub type KeySet = HashSet<Vec<u8>, BuildHasherDefault<KeyHasher>>;

/// Hashes such keys with [`hash::stable_hash`].
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(5) ^ hash::stable_hash(bytes);
    }
}

/// Appends bytes that are equal for values that are equal. Unlike the key encoding they tell all numerics apart.
pub fn push_identity(out: &mut Vec<u8>, value: DatumRef<'_>) {
    match value {
        DatumRef::Numeric(v) => {
            out.push(3);
            out.extend_from_slice(&v.normalize().serialize());
        }
        other => key::push(out, other),
    }
}

fn row_identity(row: RowView<'_>) -> SqlResult<Vec<u8>> {
    let mut out = Vec::with_capacity(row.bytes().len() + 8);
    for value in row.iter() {
        push_identity(&mut out, value.map_err(|_| damaged())?);
    }
    Ok(out)
}

/// A row whose bytes are not a row.
pub(crate) fn damaged() -> SqlError {
    SqlError::new(clearway_types::SqlState::DATA_CORRUPTED, "a row's encoding is damaged")
}

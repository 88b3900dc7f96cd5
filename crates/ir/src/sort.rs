//! Comparing values, sorting rows and removing duplicates: the coordinator's final steps.

use crate::cast::{to_decimal, to_float};
use crate::operand::Value;
use crate::program::Env;
use crate::statement::SortKey;
use clearway_types::{Datum, DatumRef, RowBatch, RowView, SqlError, SqlResult, key};
use hashbrown::HashSet;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

/// Compares two values of comparable types (integers of any width; numeric and float8 with
/// integers; text by bytes). NULLs sort last. Agrees with the key encoding: -0 equals 0, NaN is
/// greater than every number and equals itself.
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

/// A row's sort keys, borrowed from the row where possible, and its number.
struct Keyed<'r> {
    keys: &'r [SortKey],
    first: Value<'r>,
    /// The keys after the first. Most sorts have none, and allocate nothing per row.
    others: Vec<Value<'r>>,
    row: usize,
}

impl Keyed<'_> {
    /// Returns the approximate size in bytes.
    fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.others)
            + self.values().map(Value::owned_bytes).sum::<usize>()
    }

    fn values(&self) -> impl Iterator<Item = &Value<'_>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Ord for Keyed<'_> {
    /// Rows with equal keys keep the order of their numbers.
    fn cmp(&self, other: &Self) -> Ordering {
        let mut pairs = self.keys.iter().zip(self.values().zip(other.values()));
        let order = pairs.find_map(|(key, (a, b))| {
            Some(key.compare(a.as_ref(), b.as_ref())).filter(|o| o.is_ne())
        });
        order.unwrap_or_else(|| self.row.cmp(&other.row))
    }
}
impl PartialOrd for Keyed<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Keyed<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Keyed<'_> {}

/// A stable sort of a batch's rows in steps of bounded length: it sorts runs, then merges them.
pub struct Sorter<'r> {
    keys: &'r [SortKey],
    rows: &'r RowBatch,
    env: &'r Env,
    runs: Vec<std::vec::IntoIter<Keyed<'r>>>,
    /// The smallest row of each non-empty run, and the run's number.
    heads: BinaryHeap<Reverse<(Keyed<'r>, usize)>>,
    memory: usize,
}

impl<'r> Sorter<'r> {
    /// Creates a sorter without runs.
    pub fn new(keys: &'r [SortKey], rows: &'r RowBatch, env: &'r Env) -> Self {
        Self { keys, rows, env, runs: Vec::new(), heads: BinaryHeap::new(), memory: 0 }
    }

    /// Adds these rows as the next run. Every row must be in one run, and runs must come in the
    /// order of the rows.
    pub fn push_run(&mut self, run: Range<usize>) -> SqlResult<()> {
        let mut sorted = Vec::with_capacity(run.len());
        for row in run {
            let mut values =
                self.keys.iter().map(|k| k.expr.eval_ref(self.rows.get(row), self.env));
            let first = values.next().unwrap_or(Ok(Value::NULL))?;
            let keyed =
                Keyed { keys: self.keys, first, others: values.collect::<SqlResult<_>>()?, row };
            self.memory += keyed.memory();
            sorted.push(keyed);
        }
        sorted.sort_unstable();
        let mut sorted = sorted.into_iter();
        self.heads.extend(sorted.next().map(|first| Reverse((first, self.runs.len()))));
        self.runs.push(sorted);
        Ok(())
    }

    /// Returns the approximate size of the keys in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Appends the next rows in order, at most `most`; returns false if there are no more.
    pub fn merge(&mut self, most: usize, out: &mut RowBatch) -> bool {
        for _ in 0..most {
            let Some(mut head) = self.heads.peek_mut() else { return false };
            let Reverse((least, run)) = &mut *head;
            out.push_encoded(self.rows.get(least.row).bytes());
            match self.runs[*run].next() {
                Some(next) => *least = next,
                None => drop(PeekMut::pop(head)),
            }
        }
        true
    }
}

impl SortKey {
    /// Compares two values of this key.
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

/// Keeps the first of each set of equal rows; NULLs are equal to each other.
#[derive(Default)]
pub struct Distinct {
    seen: KeySet,
    memory: usize,
}

impl Distinct {
    /// Appends the rows that are not equal to an earlier one.
    pub fn push(
        &mut self,
        rows: &RowBatch,
        range: Range<usize>,
        out: &mut RowBatch,
    ) -> SqlResult<()> {
        self.seen.reserve(range.len());
        for row in range.map(|i| rows.get(i)) {
            let identity = row_identity(row)?;
            let memory = key_memory(&identity);
            if self.seen.insert(identity) {
                self.memory += memory;
                out.push_encoded(row.bytes());
            }
        }
        Ok(())
    }

    /// Returns the approximate memory used, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }
}

/// Returns the approximate memory that a key uses in a hash table, in bytes.
pub(crate) fn key_memory(key: &[u8]) -> usize {
    // The entry, its control byte, and the free space that a table keeps.
    key.len() + 2 * size_of::<Vec<u8>>()
}

/// Returns the memory that a value uses, in bytes.
pub(crate) fn datum_memory(value: &Datum) -> usize {
    size_of::<Datum>() + if let Datum::Text(text) = value { text.len() } else { 0 }
}

/// A set of keys built by [`push_identity`].
pub(crate) type KeySet = HashSet<Vec<u8>>;

/// Appends bytes that are equal exactly for equal values. Unlike the key encoding, they distinguish
/// all numerics.
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

/// Returns the error for a row that cannot be decoded.
pub(crate) fn damaged() -> SqlError {
    SqlError::new(clearway_types::SqlState::DATA_CORRUPTED, "a row's encoding is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expr;

    /// Rows (n * 7919 % 13, n), so that many share a key.
    fn rows(n: i32) -> RowBatch {
        let mut rows = RowBatch::new();
        for i in 0..n {
            rows.push_with(|row| {
                row.push(DatumRef::Int4(i * 7919 % 13));
                row.push(DatumRef::Int4(i));
            });
        }
        rows
    }

    fn numbers(rows: &RowBatch) -> Vec<(i64, i64)> {
        let number = |row: RowView<'_>, at| row.get(at).unwrap().to_owned().as_i64().unwrap();
        rows.iter().map(|row| (number(row, 0), number(row, 1))).collect()
    }

    #[test]
    fn runs_of_any_length_sort_stably() {
        for (n, run, most) in [(0, 3, 3), (1, 1, 1), (100, 7, 3), (100, 100, 1000), (257, 16, 300)]
        {
            let rows = rows(n);
            for descending in [false, true] {
                let keys = [SortKey { expr: Expr::Column(0), descending, nulls_first: false }];
                let env = Env::default();
                let mut sorter = Sorter::new(&keys, &rows, &env);
                for from in (0..rows.len()).step_by(run) {
                    let to = rows.len().min(from + run);
                    sorter.push_run(from..to).unwrap();
                }
                let mut out = RowBatch::new();
                while sorter.merge(most, &mut out) {}
                let mut expected = numbers(&rows);
                expected.sort_by_key(|(key, _)| if descending { -key } else { *key });
                assert_eq!(numbers(&out), expected, "{n} rows in runs of {run}");
            }
        }
    }

    #[test]
    fn later_sort_keys_break_ties() {
        let rows = rows(100);
        let key = |column, descending| SortKey {
            expr: Expr::Column(column),
            descending,
            nulls_first: false,
        };
        let (keys, env) = ([key(0, false), key(1, true)], Env::default());
        let mut sorter = Sorter::new(&keys, &rows, &env);
        for from in (0..100).step_by(30) {
            sorter.push_run(from..100.min(from + 30)).unwrap();
        }
        let mut out = RowBatch::new();
        while sorter.merge(7, &mut out) {}
        let mut expected = numbers(&rows);
        expected.sort_by_key(|(first, second)| (*first, -second));
        assert_eq!(numbers(&out), expected);
    }
}

//! The self-describing row encoding: the values in a table's tree, and the rows that fragments
//! return.
//!
//! `count: u16 LE`, then each value as a tag byte and its payload:
//!
//! | tag | value | payload |
//! |---|---|---|
//! | 0 | NULL | |
//! | 1, 2 | false, true | |
//! | 3, 4, 5 | int2, int4, int8 | 2, 4, 8 bytes LE |
//! | 6 | float8 | 8 bytes LE |
//! | 7 | text | LEB128 length, UTF-8 |
//! | 8, 9 | timestamp, timestamptz | 8 bytes LE |
//! | 10 | numeric | 16 bytes, `rust_decimal`'s serialized form |
//! | 11 | date | 4 bytes LE |
//!
//! Bytes may come from a damaged disk: a reader never panics on them.

use crate::{Datum, DatumRef};
use rust_decimal::Decimal;

/// Bytes that are not a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRow;

/// Initial spare capacity of a row in bytes. A short row grows its buffer at most once.
const SHORT_ROW: usize = 64;

/// Appends one row's encoding to a buffer.
pub struct RowBuilder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: u16,
}

impl<'a> RowBuilder<'a> {
    /// Starts a row at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.reserve(SHORT_ROW);
        out.extend_from_slice(&[0, 0]);
        Self { out, start, count: 0 }
    }
    /// Appends the next column.
    pub fn push(&mut self, value: DatumRef<'_>) {
        self.count += 1;
        match value {
            DatumRef::Null => self.out.push(0),
            DatumRef::Bool(v) => self.out.push(1 + u8::from(v)),
            DatumRef::Int2(v) => self.fixed(3, &v.to_le_bytes()),
            DatumRef::Int4(v) => self.fixed(4, &v.to_le_bytes()),
            DatumRef::Int8(v) => self.fixed(5, &v.to_le_bytes()),
            DatumRef::Float8(v) => self.fixed(6, &v.to_le_bytes()),
            DatumRef::Text(s) => {
                self.out.push(7);
                let mut n = s.len();
                while n >= 0x80 {
                    self.out.push(n as u8 | 0x80);
                    n >>= 7;
                }
                self.out.push(n as u8);
                self.out.extend_from_slice(s.as_bytes());
            }
            DatumRef::Date(v) => self.fixed(11, &v.to_le_bytes()),
            DatumRef::Timestamp(v) => self.fixed(8, &v.to_le_bytes()),
            DatumRef::Timestamptz(v) => self.fixed(9, &v.to_le_bytes()),
            DatumRef::Numeric(v) => self.fixed(10, &v.serialize()),
        }
    }
    /// Appends a column in its encoded form from another row: [`RowView::column`].
    pub fn push_encoded(&mut self, column: &[u8]) {
        self.count += 1;
        self.out.extend_from_slice(column);
    }
    fn fixed(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(bytes);
    }
    /// Ends the row: writes its number of columns.
    pub fn finish(self) {
        self.out[self.start..self.start + 2].copy_from_slice(&self.count.to_le_bytes());
    }
}

/// Encodes a whole row at the end of `out`.
pub fn encode(values: &[Datum], out: &mut Vec<u8>) {
    let mut row = RowBuilder::new(out);
    for v in values {
        row.push(v.as_ref());
    }
    row.finish();
}

/// An encoded row, read in place.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a>(&'a [u8]);

impl<'a> RowView<'a> {
    /// Wraps the bytes of a row. They are verified when they are read.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Returns the row's bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
    /// Returns the number of columns.
    pub fn len(self) -> usize {
        if self.0.len() < 2 { 0 } else { usize::from(u16::from_le_bytes([self.0[0], self.0[1]])) }
    }
    /// Returns true if the row has no columns.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// Returns the value of column `i`: `Err` if the bytes are damaged, NULL if the row is shorter.
    pub fn get(self, i: usize) -> Result<DatumRef<'a>, BadRow> {
        self.iter().nth(i).unwrap_or(Ok(DatumRef::Null))
    }
    /// Returns the bytes of column `i`, without validating its text; NULL's if the row is shorter.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn column(self, i: usize) -> Result<&'a [u8], BadRow> {
        let mut columns = self.iter();
        if !columns.skip_columns(i)? || columns.left == 0 {
            return Ok(&[0]);
        }
        columns.encoded()
    }
    /// Iterates over the columns in order.
    pub fn iter(self) -> RowIter<'a> {
        RowIter { rest: self.0.get(2..).unwrap_or(&[]), left: self.len() }
    }
    /// Returns the row as owned values.
    pub fn to_datums(self) -> Result<Vec<Datum>, BadRow> {
        self.iter().map(|d| d.map(DatumRef::to_owned)).collect()
    }
}

/// Iterates over a row's columns; after damage it yields `Err` and ends.
pub struct RowIter<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> RowIter<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadRow> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(BadRow)?;
        self.rest = tail;
        Ok(*head)
    }
    fn length(&mut self) -> Result<usize, BadRow> {
        let mut len = 0usize;
        for shift in (0..35).step_by(7) {
            let [b] = self.take::<1>()?;
            len |= usize::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(len);
            }
        }
        Err(BadRow)
    }
    fn text(&mut self) -> Result<&'a str, BadRow> {
        let len = self.length()?;
        let (head, tail) = self.rest.split_at_checked(len).ok_or(BadRow)?;
        self.rest = tail;
        std::str::from_utf8(head).map_err(|_| BadRow)
    }
    /// Returns the bytes of the next column.
    fn encoded(&mut self) -> Result<&'a [u8], BadRow> {
        let column = self.rest;
        let [tag] = self.take::<1>()?;
        let len = match tag {
            0..=2 => 0,
            3 => 2,
            4 | 11 => 4,
            5 | 6 | 8 | 9 => 8,
            10 => 16,
            7 => self.length()?,
            _ => return Err(BadRow),
        };
        self.rest = self.rest.get(len..).ok_or(BadRow)?;
        Ok(&column[..column.len() - self.rest.len()])
    }
    /// Skips the next `n` columns. Returns false if there are fewer.
    fn skip_columns(&mut self, n: usize) -> Result<bool, BadRow> {
        for _ in 0..n {
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            self.encoded()?;
        }
        Ok(true)
    }
    fn value(&mut self) -> Result<DatumRef<'a>, BadRow> {
        let [tag] = self.take::<1>()?;
        Ok(match tag {
            0 => DatumRef::Null,
            1 => DatumRef::Bool(false),
            2 => DatumRef::Bool(true),
            3 => DatumRef::Int2(i16::from_le_bytes(self.take()?)),
            4 => DatumRef::Int4(i32::from_le_bytes(self.take()?)),
            5 => DatumRef::Int8(i64::from_le_bytes(self.take()?)),
            6 => DatumRef::Float8(f64::from_le_bytes(self.take()?)),
            7 => DatumRef::Text(self.text()?),
            8 => DatumRef::Timestamp(i64::from_le_bytes(self.take()?)),
            9 => DatumRef::Timestamptz(i64::from_le_bytes(self.take()?)),
            10 => DatumRef::Numeric(Decimal::deserialize(self.take()?)),
            11 => DatumRef::Date(i32::from_le_bytes(self.take()?)),
            _ => return Err(BadRow),
        })
    }
}

impl<'a> Iterator for RowIter<'a> {
    type Item = Result<DatumRef<'a>, BadRow>;
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let value = self.value();
        if value.is_err() {
            self.left = 0;
        }
        Some(value)
    }
    /// Does not validate the text of the columns before it.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        match self.skip_columns(n) {
            Ok(there) => there.then(|| self.next())?,
            Err(damage) => {
                self.left = 0;
                Some(Err(damage))
            }
        }
    }
}

/// Rows one after the other in one buffer, without an allocation for each row. Fragments return
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBatch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RowBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Returns the size of the rows in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
    /// Returns the memory that the batch uses in bytes, without spare capacity.
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }
    /// Appends a row that `build` writes.
    pub fn push_with(&mut self, build: impl FnOnce(&mut RowBuilder<'_>)) {
        let mut row = RowBuilder::new(&mut self.bytes);
        build(&mut row);
        row.finish();
        self.ends.push(self.bytes.len());
    }
    /// Like [`RowBatch::push_with`], but appends nothing if `build` fails.
    pub fn try_push_with<E>(
        &mut self,
        build: impl FnOnce(&mut RowBuilder<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        let mut row = RowBuilder::new(&mut self.bytes);
        match build(&mut row) {
            Ok(()) => {
                row.finish();
                self.ends.push(self.bytes.len());
                Ok(())
            }
            Err(e) => {
                self.bytes.truncate(start);
                Err(e)
            }
        }
    }
    /// Appends a row that is already encoded.
    pub fn push_encoded(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
    }
    /// Appends all rows of `other`.
    pub fn append(&mut self, other: &RowBatch) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|e| base + e));
    }
    /// Drops all rows after the first `n`.
    pub fn truncate(&mut self, n: usize) {
        if n < self.ends.len() {
            self.ends.truncate(n);
            self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        }
    }
    /// Returns row `i`. Panics if there is no such row.
    pub fn get(&self, i: usize) -> RowView<'_> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        RowView(&self.bytes[start..self.ends[i]])
    }
    /// Iterates over the rows in order.
    pub fn iter(&self) -> impl Iterator<Item = RowView<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }
}

//! RowDescription and DataRow: the encoding of results.

use crate::{backend, binary};
use clearway_ir::Zone;
use clearway_ir::statement::OutColumn;
use clearway_ir::value::write_text;
use clearway_types::row::BadRow;
use clearway_types::{Datum, DatumRef, RowView, SqlError, SqlResult, SqlState, SqlType};

/// How a value is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As the type's output function prints it.
    Text,
    /// As the type's send function writes it.
    Binary,
}

/// A column's type and format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnFormat {
    /// The type.
    pub ty: SqlType,
    /// The format of its values.
    pub format: Format,
}

/// The first OID that PostgreSQL gives to a user's table. Our tables get OIDs from here on, in the
/// order of their ids.
const FIRST_TABLE_OID: u32 = 16_384;

/// Appends RowDescription.
pub fn row_description<'a>(
    out: &mut Vec<u8>,
    columns: impl ExactSizeIterator<Item = (&'a OutColumn, ColumnFormat)>,
) {
    let at = backend::begin(out, b'T');
    out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
    for (shown, column) in columns {
        out.extend(shown.name.bytes().take_while(|&b| b != 0));
        out.push(0);
        let (table, number) = match shown.origin {
            Some(origin) => {
                (FIRST_TABLE_OID.wrapping_add(origin.table.0), origin.column as u16 + 1)
            }
            None => (0, 0),
        };
        out.extend_from_slice(&table.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&column.ty.oid().to_be_bytes());
        out.extend_from_slice(&column.ty.typlen().to_be_bytes());
        out.extend_from_slice(&column.ty.typmod().to_be_bytes());
        out.extend_from_slice(&u16::from(column.format == Format::Binary).to_be_bytes());
    }
    backend::end(out, at);
}

/// Appends DataRow.
///
/// # Errors
/// The row is corrupt; nothing is appended.
pub fn data_row(
    out: &mut Vec<u8>,
    row: RowView<'_>,
    columns: impl ExactSizeIterator<Item = ColumnFormat>,
    zone: &Zone,
) -> Result<(), BadRow> {
    let at = backend::begin(out, b'D');
    out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
    let mut values = row.iter();
    for column in columns {
        match values.next().unwrap_or(Ok(DatumRef::Null)) {
            Ok(value) => field(out, column, value, zone),
            Err(bad) => {
                out.truncate(at);
                return Err(bad);
            }
        }
    }
    backend::end(out, at);
    Ok(())
}

fn field(out: &mut Vec<u8>, column: ColumnFormat, value: DatumRef<'_>, zone: &Zone) {
    if value.is_null() && column.ty != SqlType::Void {
        out.extend_from_slice(&(-1i32).to_be_bytes());
        return;
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    match column.format {
        Format::Text => text(out, column.ty, value, zone),
        Format::Binary => binary::write(out, column.ty, value, zone),
    }
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

/// Appends a value's text form; integers take a fast path.
pub fn text(out: &mut Vec<u8>, ty: SqlType, value: DatumRef<'_>, zone: &Zone) {
    match value {
        DatumRef::Null => {}
        DatumRef::Int2(v) => push_i64(out, i64::from(v)),
        DatumRef::Int4(v) => push_i64(out, i64::from(v)),
        DatumRef::Int8(v) => push_i64(out, v),
        value => write_text(out, ty, value, zone),
    }
}

fn push_i64(out: &mut Vec<u8>, v: i64) {
    if v < 0 {
        out.push(b'-');
    }
    push_u64(out, v.unsigned_abs());
}

/// Appends a decimal number.
pub(crate) fn push_u64(out: &mut Vec<u8>, mut v: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (v % 10) as u8;
        v /= 10;
        if v == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Decodes parameter `number` of a Bind message, counted from 1.
pub fn parameter(
    ty: SqlType,
    format: Format,
    bytes: Option<&[u8]>,
    zone: &Zone,
    number: usize,
) -> SqlResult<Datum> {
    let Some(bytes) = bytes else { return Ok(Datum::Null) };
    if format == Format::Binary {
        return binary::read(ty, bytes, number);
    }
    match ty {
        SqlType::Int4 => {
            if let Some(v) = plain_i64(bytes).and_then(|v| i32::try_from(v).ok()) {
                return Ok(Datum::Int4(v));
            }
        }
        SqlType::Int8 => {
            if let Some(v) = plain_i64(bytes) {
                return Ok(Datum::Int8(v));
            }
        }
        _ => {}
    }
    let text = crate::reader::utf8(bytes)?;
    if text.contains('\0') {
        return Err(SqlError::new(
            SqlState::NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    clearway_ir::value::parse_text(ty, text, zone)
}

/// Parses an integer of up to 18 digits; everything else takes the general path, which also reports
/// errors.
pub(crate) fn plain_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut v = 0i64;
    for &d in digits {
        let d = d.wrapping_sub(b'0');
        if d > 9 {
            return None;
        }
        v = v * 10 + i64::from(d);
    }
    Some(if negative { -v } else { v })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_row_is_encoded_or_left_out() {
        let mut row = Vec::new();
        clearway_types::row::encode(&[Datum::Int4(-12), Datum::Null, Datum::Int8(7)], &mut row);
        let columns = [
            (SqlType::Int4, Format::Text),
            (SqlType::Int4, Format::Text),
            (SqlType::Int8, Format::Binary),
        ]
        .map(|(ty, format)| ColumnFormat { ty, format });
        let mut out = Vec::new();
        data_row(&mut out, RowView::new(&row), columns.into_iter(), &Zone::utc()).unwrap();
        assert_eq!(
            out,
            b"D\0\0\0\x1d\0\x03\0\0\0\x03-12\xff\xff\xff\xff\0\0\0\x08\0\0\0\0\0\0\0\x07"
        );
        let before = out.len();
        assert!(
            data_row(&mut out, RowView::new(&[1, 0, 99]), columns.into_iter(), &Zone::utc())
                .is_err()
        );
        assert_eq!(out.len(), before);
    }

    #[test]
    fn integers_round_trip() {
        for v in [0, 9, 10, -1, i64::MAX, i64::MIN, 123_456] {
            let mut out = Vec::new();
            push_i64(&mut out, v);
            assert_eq!(String::from_utf8(out.clone()).unwrap(), v.to_string());
            if out.len() < 18 {
                assert_eq!(plain_i64(&out), Some(v));
            }
        }
        for bad in ["", "-", "1a", " 1", "9999999999999999999"] {
            assert_eq!(plain_i64(bad.as_bytes()), None);
        }
    }
}

//! The memcomparable key encoding: the byte order of two keys is the order of their columns.
//!
//! Each column begins with a marker byte: 1 for a value, 2 for NULL (NULLs sort last, as in
//! PostgreSQL). A value follows:
//!
//! - integers of any width, dates and timestamps: 8 bytes, big-endian, with the sign bit flipped.
//!   All integer widths have one encoding, so a bigint parameter finds an integer column;
//! - booleans: one byte;
//! - float8: its bits, all flipped if it is negative, otherwise with the sign bit set. -0 equals 0;
//!   NaN sorts last and equals itself;
//! - text: its bytes, with 0x00 encoded as 0x00 0xFF, followed by 0x00 0x00.

use crate::{Datum, DatumRef, SqlType};

const VALUE: u8 = 1;
const NULL: u8 = 2;

/// Appends one column. A numeric is encoded as float8: no key column is numeric.
pub fn push(out: &mut Vec<u8>, value: DatumRef<'_>) {
    if value.is_null() {
        out.push(NULL);
        return;
    }
    out.push(VALUE);
    match value {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(u8::from(v)),
        DatumRef::Int2(v) => int(out, i64::from(v)),
        DatumRef::Int4(v) | DatumRef::Date(v) => int(out, i64::from(v)),
        DatumRef::Int8(v) | DatumRef::Timestamp(v) | DatumRef::Timestamptz(v) => int(out, v),
        DatumRef::Float8(v) => float(out, v),
        DatumRef::Numeric(v) => {
            float(out, rust_decimal::prelude::ToPrimitive::to_f64(&v).unwrap_or(f64::NAN))
        }
        DatumRef::Text(s) => {
            // Split at zeros, which are rare in text.
            for (n, piece) in s.as_bytes().split(|b| *b == 0).enumerate() {
                if n > 0 {
                    out.extend_from_slice(&[0, 0xff]);
                }
                out.extend_from_slice(piece);
            }
            out.extend_from_slice(&[0, 0]);
        }
    }
}

fn int(out: &mut Vec<u8>, v: i64) {
    out.extend_from_slice(&((v as u64) ^ (1 << 63)).to_be_bytes());
}

fn float(out: &mut Vec<u8>, v: f64) {
    let v = if v == 0.0 {
        0.0
    } else if v.is_nan() {
        f64::NAN
    } else {
        v
    };
    let bits = v.to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.extend_from_slice(&ordered.to_be_bytes());
}

/// Decodes the first column, which has this type, and advances the key past it. Returns `None` if
/// the bytes do not begin with such a column: the bound of a range need not be a complete key.
pub fn take(key: &mut &[u8], ty: SqlType) -> Option<Datum> {
    let (marker, rest) = key.split_first()?;
    let (value, rest) = match (*marker, ty) {
        (NULL, _) => (Datum::Null, rest),
        (VALUE, SqlType::Bool) => {
            let (value, rest) = rest.split_first()?;
            (Datum::Bool(*value != 0), rest)
        }
        (VALUE, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_)) => take_text(rest)?,
        (VALUE, ty) => {
            let (bytes, rest) = rest.split_first_chunk::<8>()?;
            let bits = u64::from_be_bytes(*bytes);
            let int = (bits ^ (1 << 63)) as i64;
            let value = match ty {
                SqlType::Int2 => Datum::Int2(int.try_into().ok()?),
                SqlType::Int4 => Datum::Int4(int.try_into().ok()?),
                SqlType::Int8 => Datum::Int8(int),
                SqlType::Date => Datum::Date(int.try_into().ok()?),
                SqlType::Timestamp => Datum::Timestamp(int),
                SqlType::Timestamptz => Datum::Timestamptz(int),
                SqlType::Float8 => Datum::Float8(f64::from_bits(if bits >> 63 == 1 {
                    bits ^ (1 << 63)
                } else {
                    !bits
                })),
                _ => return None,
            };
            (value, rest)
        }
        _ => return None,
    };
    *key = rest;
    Some(value)
}

fn take_text(bytes: &[u8]) -> Option<(Datum, &[u8])> {
    let (mut text, mut rest) = (Vec::new(), bytes);
    loop {
        match rest {
            [0, 0, rest @ ..] => return Some((std::str::from_utf8(&text).ok()?.into(), rest)),
            [0, 0xff, more @ ..] => {
                text.push(0);
                rest = more;
            }
            [0, ..] | [] => return None,
            [byte, more @ ..] => {
                text.push(*byte);
                rest = more;
            }
        }
    }
}

/// Returns the least key that is greater than every key with this prefix; `None` if all its bytes
/// are 0xFF.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut out = prefix[..=keep].to_vec();
    out[keep] += 1;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_columns_are_decoded() {
        let columns = [
            (SqlType::Bool, Datum::Bool(true)),
            (SqlType::Int2, Datum::Int2(-7)),
            (SqlType::Int4, Datum::Int4(i32::MIN)),
            (SqlType::Int8, Datum::Int8(i64::MAX)),
            (SqlType::Float8, Datum::Float8(-2.5)),
            (SqlType::Float8, Datum::Float8(1e300)),
            (SqlType::Text, "a\0\u{ff}b".into()),
            (SqlType::Varchar(None), "".into()),
            (SqlType::Date, Datum::Date(-1)),
            (SqlType::Timestamp, Datum::Timestamp(5)),
            (SqlType::Timestamptz, Datum::Timestamptz(-5)),
            (SqlType::Text, Datum::Null),
        ];
        let mut bytes = Vec::new();
        columns.iter().for_each(|(_, value)| push(&mut bytes, value.as_ref()));
        let mut rest = bytes.as_slice();
        for (ty, value) in &columns {
            assert_eq!(take(&mut rest, *ty).as_ref(), Some(value));
        }
        assert!(rest.is_empty());
        // Truncated keys and other types are rejected, and the input is not advanced.
        let mut cut = &bytes[2..9];
        assert_eq!((take(&mut cut, SqlType::Int2), cut.len()), (None, 7));
        assert_eq!(take(&mut &[9u8, 1, 2][..], SqlType::Bool), None);
        assert_eq!(take(&mut &[VALUE, 0xff, 0, 0][..], SqlType::Text), None);
    }
}

//! The memcomparable key encoding: comparing two keys as bytes compares their columns in order.
//!
//! Each column is a marker byte (1 for a value, 2 for NULL: NULLs sort last, as in PostgreSQL) and:
//! integers of any width, dates and timestamps as 8 bytes big-endian with the sign bit flipped; booleans as one byte;
//! float8 with the IEEE sign trick (-0 equals 0, NaN sorts last and equals itself); text as its bytes with 0x00 written 0x00 0xFF,
//! ended by 0x00 0x00. Integer widths share one encoding, so a bigint parameter finds an integer column.

use crate::DatumRef;

const VALUE: u8 = 1;
const NULL: u8 = 2;

/// Appends one column. A numeric is encoded through float8: a key column is never numeric itself.
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
        DatumRef::Numeric(v) => float(out, rust_decimal::prelude::ToPrimitive::to_f64(&v).unwrap_or(f64::NAN)),
        DatumRef::Text(s) => {
            for &b in s.as_bytes() {
                out.push(b);
                if b == 0 {
                    out.push(0xff);
                }
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

/// The least key that is greater than every key starting with `prefix`; `None` if there is none (all bytes are 0xFF).
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut out = prefix[..=keep].to_vec();
    out[keep] += 1;
    Some(out)
}

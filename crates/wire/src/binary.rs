//! PostgreSQL's binary formats of values.
//!
//! A numeric consists of `ndigits`, `weight`, `sign` and `dscale`, 16 bits each, and of base-10000
//! digits; the first digit is worth 10000^weight.

use crate::reader::malformed;
use clearway_ir::Zone;
use clearway_ir::value::fit;
use clearway_ir::value::{checked_timestamp, is_date, write_text};
use clearway_types::{Datum, DatumRef, SqlError, SqlResult, SqlState, SqlType};
use rust_decimal::Decimal;

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const MINUS_INFINITY: u16 = 0xF000;
/// The maximum number of decimal digits after the point in PostgreSQL's numeric.
const MAX_DSCALE: u16 = 0x3FFF;

/// Appends a value that is not NULL in the binary format of the column's type.
pub(crate) fn write(out: &mut Vec<u8>, ty: SqlType, value: DatumRef<'_>, zone: &Zone) {
    let integer = match value {
        DatumRef::Int2(v) => i64::from(v),
        DatumRef::Int4(v) => i64::from(v),
        DatumRef::Date(v) => return out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::Int8(v) | DatumRef::Timestamp(v) | DatumRef::Timestamptz(v) => v,
        DatumRef::Bool(v) => return out.push(u8::from(v)),
        DatumRef::Float8(v) => return out.extend_from_slice(&v.to_be_bytes()),
        DatumRef::Numeric(v) => return numeric(out, v),
        DatumRef::Text(_) => return write_text(out, ty, value, zone),
        DatumRef::Null => return,
    };
    match ty {
        SqlType::Int2 => out.extend_from_slice(&(integer as i16).to_be_bytes()),
        SqlType::Int4 => out.extend_from_slice(&(integer as i32).to_be_bytes()),
        _ => out.extend_from_slice(&integer.to_be_bytes()),
    }
}

fn numeric(out: &mut Vec<u8>, v: Decimal) {
    let scale = v.scale();
    // Scale the fraction to a whole number of base-10000 digits.
    let pad = (4 - scale % 4) % 4;
    let mantissa = v.mantissa().unsigned_abs();
    let (mut high, mut low) = (mantissa / 10u128.pow(scale), mantissa % 10u128.pow(scale));
    low *= 10u128.pow(pad);
    let mut digits = Vec::with_capacity(16);
    for _ in 0..scale.div_ceil(4) {
        digits.push((low % 10_000) as u16);
        low /= 10_000;
    }
    let mut weight = -1i16;
    while high > 0 {
        digits.push((high % 10_000) as u16);
        high /= 10_000;
        weight += 1;
    }
    digits.reverse();
    let lead = digits.iter().take_while(|&&d| d == 0).count();
    digits.drain(..lead);
    weight -= if weight < 0 { lead as i16 } else { 0 };
    while digits.last() == Some(&0) {
        digits.pop();
    }
    if digits.is_empty() {
        weight = 0;
    }
    let sign = if v.is_sign_negative() && mantissa != 0 { NEGATIVE } else { 0 };
    for head in [digits.len() as u16, weight as u16, sign, scale as u16] {
        out.extend_from_slice(&head.to_be_bytes());
    }
    digits.iter().for_each(|d| out.extend_from_slice(&d.to_be_bytes()));
}

fn incorrect(ty: SqlType) -> SqlError {
    SqlError::new(SqlState::INVALID_BINARY, format!("incorrect binary data format for type {ty}"))
}

/// Decodes the binary format of parameter `number` of a Bind message.
pub(crate) fn read(ty: SqlType, bytes: &[u8], number: usize) -> SqlResult<Datum> {
    let fixed = Fixed { bytes, number };
    Ok(match ty {
        SqlType::Bool => Datum::Bool(fixed.array::<1>()?[0] != 0),
        SqlType::Int2 => Datum::Int2(i16::from_be_bytes(fixed.array()?)),
        SqlType::Int4 => Datum::Int4(i32::from_be_bytes(fixed.array()?)),
        SqlType::Int8 => Datum::Int8(i64::from_be_bytes(fixed.array()?)),
        SqlType::Float8 => Datum::Float8(f64::from_be_bytes(fixed.array()?)),
        SqlType::Date => Datum::Date(date(i32::from_be_bytes(fixed.array()?))?),
        SqlType::Timestamp => {
            Datum::Timestamp(checked_timestamp(i64::from_be_bytes(fixed.array()?))?)
        }
        SqlType::Timestamptz => {
            Datum::Timestamptz(checked_timestamp(i64::from_be_bytes(fixed.array()?))?)
        }
        SqlType::Numeric => Datum::Numeric(read_numeric(bytes)?),
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Name => {
            Datum::Text(fit(text(bytes)?, ty, false)?.into())
        }
        SqlType::Text | SqlType::Unknown => Datum::Text(text(bytes)?.into()),
        SqlType::Void => return Err(incorrect(ty)),
    })
}

/// The bytes of a value with a fixed length.
struct Fixed<'a> {
    bytes: &'a [u8],
    number: usize,
}

impl Fixed<'_> {
    fn array<const N: usize>(&self) -> SqlResult<[u8; N]> {
        match self.bytes.split_first_chunk() {
            Some((array, [])) => Ok(*array),
            None => Err(malformed()),
            Some(_) => {
                let text =
                    format!("incorrect binary data format in bind parameter {}", self.number);
                Err(SqlError::new(SqlState::INVALID_BINARY, text))
            }
        }
    }
}

/// Like PostgreSQL's date_recv.
fn date(days: i32) -> SqlResult<i32> {
    let good = matches!(days, i32::MIN | i32::MAX) || is_date(i64::from(days));
    if good {
        Ok(days)
    } else {
        Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range"))
    }
}

fn text(bytes: &[u8]) -> SqlResult<&str> {
    let text = crate::frontend::utf8(bytes)?;
    if text.contains('\0') {
        return Err(SqlError::new(
            SqlState::NOT_IN_REPERTOIRE,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    Ok(text)
}

/// Like PostgreSQL's numeric_recv; fails with 0A000 if our numeric cannot hold the value.
fn read_numeric(bytes: &[u8]) -> SqlResult<Decimal> {
    let bad = || incorrect(SqlType::Numeric);
    let (words, []) = bytes.as_chunks::<2>() else { return Err(bad()) };
    let [n, weight, sign, dscale, digits @ ..] = words else { return Err(bad()) };
    let [n, sign, dscale] = [n, sign, dscale].map(|w| u16::from_be_bytes(*w));
    let weight = i16::from_be_bytes(*weight);
    let digits: Vec<u16> = digits.iter().map(|d| u16::from_be_bytes(*d)).collect();
    if usize::from(n) != digits.len() || digits.iter().any(|d| *d > 9999) || dscale > MAX_DSCALE {
        return Err(bad());
    }
    match sign {
        0 | NEGATIVE => {}
        NAN | INFINITY | MINUS_INFINITY => {
            return Err(SqlError::unsupported("numeric NaN or infinity"));
        }
        _ => return Err(bad()),
    }
    let value = mantissa(&digits, weight, dscale).map(|m| if sign == NEGATIVE { -m } else { m });
    value
        .and_then(|m| Decimal::try_from_i128_with_scale(m, u32::from(dscale)).ok())
        .ok_or_else(|| SqlError::unsupported("a numeric of more than 28 digits"))
}

/// Returns the mantissa at scale `dscale`; further digits are truncated.
fn mantissa(digits: &[u16], weight: i16, dscale: u16) -> Option<i128> {
    let mut mantissa = 0i128;
    for d in digits {
        mantissa = mantissa.checked_mul(10_000)?.checked_add(i128::from(*d))?;
    }
    // The value is mantissa * 10^exponent.
    let exponent =
        if digits.is_empty() { 0 } else { (i32::from(weight) - digits.len() as i32 + 1) * 4 };
    let shift = exponent + i32::from(dscale);
    if mantissa == 0 {
        Some(0)
    } else if shift >= 0 {
        mantissa.checked_mul(10i128.checked_pow(shift as u32)?)
    } else {
        Some(10i128.checked_pow(shift.unsigned_abs()).map_or(0, |unit| mantissa / unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(v: Decimal) {
        let mut out = Vec::new();
        numeric(&mut out, v);
        let back = read_numeric(&out).unwrap();
        assert_eq!((back, back.scale()), (v, v.scale()), "{out:?}");
    }

    #[test]
    fn numerics_match_numeric_send() {
        // Recorded from PostgreSQL 15's numeric_send.
        for (text, words) in [
            ("0", vec![0, 0, 0, 0]),
            ("1.5", vec![2, 0, 0, 1, 1, 5000]),
            ("-12345.678", vec![3, 1, 0x4000, 3, 1, 2345, 6780]),
            ("0.00012", vec![2, 0xffff, 0, 5, 1, 2000]),
            ("10000", vec![1, 1, 0, 0, 1]),
            ("100000000", vec![1, 2, 0, 0, 1]),
            ("0.10", vec![1, 0xffff, 0, 2, 1000]),
        ] {
            let mut out = Vec::new();
            numeric(&mut out, text.parse().unwrap());
            let got: Vec<u16> =
                out.as_chunks::<2>().0.iter().map(|w| u16::from_be_bytes(*w)).collect();
            assert_eq!(got, words, "{text}");
        }
    }

    #[test]
    fn unsupported_numerics_are_refused() {
        let state = |words: &[u16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            read_numeric(&bytes).map_err(|e| e.state().to_string()).unwrap_err()
        };
        // 1e28 + 0.1, 1e-29, 1e40, NaN.
        for words in [
            &[9, 7, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1000][..],
            &[1, 0xfff8, 0, 29, 1000],
            &[1, 10, 0, 0, 1],
            &[0, 0, 0xC000, 0],
        ] {
            assert_eq!(state(words), "0A000", "{words:?}");
        }
        for words in [&[1, 0, 0, 0, 10_000][..], &[2, 0, 0, 0, 1], &[0, 0, 0x1234, 0], &[0, 0]] {
            assert_eq!(state(words), "22P03", "{words:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn numerics_round_trip(m in -(1i128 << 95)..(1i128 << 95), scale in 0u32..=24) {
            round_trip(Decimal::from_i128_with_scale(m, scale));
        }
        #[test]
        fn reading_never_panics(bytes: Vec<u8>) {
            for ty in [SqlType::Numeric, SqlType::Int4, SqlType::Bool, SqlType::Char(3), SqlType::Timestamp, SqlType::Date] {
                let _ = read(ty, &bytes, 1);
            }
        }
    }
}

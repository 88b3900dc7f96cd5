//! Text forms of numbers.

use super::{invalid, is_space};
use crate::decimal;
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use rust_decimal::Decimal;

/// Parses an integer of type `ty`, whose Rust type is `T`.
pub(super) fn parse_int<T: TryFrom<i128>>(text: &str, ty: SqlType) -> SqlResult<T> {
    let word = text.trim_matches(is_space);
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(ty, text));
    }
    word.parse::<i128>().ok().and_then(|v| T::try_from(v).ok()).ok_or_else(|| {
        SqlError::new(
            SqlState::OUT_OF_RANGE,
            format!("value \"{text}\" is out of range for type {ty}"),
        )
    })
}

pub(super) fn parse_float(text: &str) -> SqlResult<f64> {
    let word = text.trim_matches(is_space);
    let v: f64 = word.parse().map_err(|_| invalid(SqlType::Float8, text))?;
    let named = word.bytes().any(|b| matches!(b, b'n' | b'N'));
    let nonzero =
        || word.bytes().take_while(|b| !matches!(b, b'e' | b'E')).any(|b| matches!(b, b'1'..=b'9'));
    if !named && (v.is_infinite() || v == 0.0 && nonzero()) {
        return Err(SqlError::new(
            SqlState::OUT_OF_RANGE,
            format!("\"{word}\" is out of range for type double precision"),
        ));
    }
    Ok(v)
}

pub(super) fn parse_numeric(text: &str) -> SqlResult<Decimal> {
    let word = text.trim_matches(is_space);
    if let Some(read) = decimal::read(word) {
        return read;
    }
    let name = word.to_ascii_lowercase();
    match name.strip_prefix(['-', '+']).unwrap_or(&name) {
        "nan" if name == "nan" => Err(SqlError::unsupported("numeric NaN")),
        "inf" | "infinity" => Err(SqlError::unsupported("numeric infinity")),
        _ => Err(invalid(SqlType::Numeric, text)),
    }
}

/// Appends decimal digits without a formatter: integers dominate the replies to point queries.
pub(super) fn write_int(out: &mut Vec<u8>, v: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = v.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if v < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the shortest digits that parse back to the same value. As in PostgreSQL, uses an
/// exponent from 1e+15 up and below 1e-04.
pub(super) fn write_float(out: &mut Vec<u8>, v: f64) {
    if v.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if v.is_infinite() {
        return out.extend_from_slice(if v > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let text = format!("{v:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..15).contains(&exponent) {
        out.extend_from_slice(format!("{v}").as_bytes());
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("{mantissa}e{sign}{:02}", exponent.abs()).as_bytes());
    }
}

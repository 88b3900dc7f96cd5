//! Numeric arithmetic: PostgreSQL's value and scale, or an error.
//!
//! Our numeric holds a mantissa below 2^96 and at most 28 digits after the decimal point;
//! PostgreSQL's is far longer. Invariants:
//! 1. No function here rounds away a digit that PostgreSQL would keep: the result is exact, or the
//!    error is 0A000.
//! 2. No result is a negative zero, which PostgreSQL does not have.

use clearway_types::{SqlError, SqlResult, SqlState};
use rust_decimal::Decimal;

/// Maximum number of digits after the decimal point.
const MAX_SCALE: u32 = Decimal::MAX_SCALE;
/// Minimum number of significant digits of a quotient (PostgreSQL's NUMERIC_MIN_SIG_DIGITS).
const MIN_SIGNIFICANT: i64 = 16;
/// The largest exponent that PostgreSQL accepts; it rejects larger ones with 22003.
const MAX_EXPONENT: i64 = i32::MAX as i64 / 2;

/// Returns 0A000: PostgreSQL can represent the value, but our numeric cannot.
pub(crate) fn too_long() -> SqlError {
    SqlError::unsupported("a numeric of more than 28 digits")
}

/// Returns `mantissa / 10^scale`.
fn from_parts(mantissa: Option<i128>, scale: u32) -> SqlResult<Decimal> {
    mantissa.and_then(|m| Decimal::try_from_i128_with_scale(m, scale).ok()).ok_or_else(too_long)
}

/// Returns the mantissa at `scale`, which must not be below the value's own scale.
fn at_scale(v: Decimal, scale: u32) -> Option<i128> {
    v.mantissa().checked_mul(10i128.checked_pow(scale.checked_sub(v.scale())?)?)
}

/// Parses `[sign] digits [. digits] [e exponent]`. Returns `None` if the text has another form, and
/// 0A000 if our numeric cannot hold the value.
pub(crate) fn read(text: &str) -> Option<SqlResult<Decimal>> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (number, exponent) = match body.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (body, None),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let exponent = match exponent.map(|e| (e, e.strip_prefix(['+', '-']).unwrap_or(e))) {
        None => 0,
        Some((_, digits)) if digits.is_empty() || !all_digits(digits) => return None,
        Some((signed, _)) => signed.parse::<i64>().unwrap_or(i64::MAX),
    };
    if exponent.unsigned_abs() > MAX_EXPONENT as u64 {
        return Some(Err(overflow()));
    }
    let mut mantissa = Some(0i128);
    for b in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa.and_then(|m| m.checked_mul(10)?.checked_add(i128::from(b - b'0')));
    }
    let scale = fraction.len() as i64 - exponent;
    if scale < 0 {
        let zeros = u32::try_from(-scale).unwrap_or(u32::MAX);
        mantissa = mantissa
            .and_then(|m| if m == 0 { Some(0) } else { m.checked_mul(10i128.checked_pow(zeros)?) });
    }
    let scale = u32::try_from(scale.max(0)).unwrap_or(u32::MAX);
    Some(from_parts(mantissa.map(|m| if negative { -m } else { m }), scale))
}

/// Returns 22003: the value exceeds PostgreSQL's numeric, too.
pub(crate) fn overflow() -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, "value overflows numeric format")
}

/// Returns the sum.
pub(crate) fn add(a: Decimal, b: Decimal) -> SqlResult<Decimal> {
    aligned(a, b, i128::checked_add)
}

/// Returns the difference.
pub(crate) fn subtract(a: Decimal, b: Decimal) -> SqlResult<Decimal> {
    aligned(a, b, i128::checked_sub)
}

/// Returns the remainder, with the sign of `a`; `b` must not be zero.
pub(crate) fn remainder(a: Decimal, b: Decimal) -> SqlResult<Decimal> {
    aligned(a, b, i128::checked_rem)
}

fn aligned(a: Decimal, b: Decimal, op: fn(i128, i128) -> Option<i128>) -> SqlResult<Decimal> {
    let scale = a.scale().max(b.scale());
    let both = at_scale(a, scale).zip(at_scale(b, scale));
    from_parts(both.and_then(|(a, b)| op(a, b)), scale)
}

/// Returns the product.
pub(crate) fn multiply(a: Decimal, b: Decimal) -> SqlResult<Decimal> {
    from_parts(a.mantissa().checked_mul(b.mantissa()), a.scale() + b.scale())
}

/// Returns the negated value.
pub(crate) fn negate(v: Decimal) -> Decimal {
    if v.is_zero() { v } else { -v }
}

/// Returns the quotient with the scale that PostgreSQL's select_div_scale chooses, rounded half
/// away from zero; `b` must not be zero.
pub(crate) fn divide(a: Decimal, b: Decimal) -> SqlResult<Decimal> {
    let (aw, ad) = leading(a);
    let (bw, bd) = leading(b);
    let weight = aw - bw - i64::from(ad <= bd);
    let scale =
        (MIN_SIGNIFICANT - weight * 4).max(i64::from(a.scale())).max(i64::from(b.scale())).max(0);
    let scale = u32::try_from(scale).ok().filter(|s| *s <= MAX_SCALE).ok_or_else(too_long)?;
    let negative = a.is_sign_negative() != b.is_sign_negative();
    let (n, d) = (a.mantissa().unsigned_abs(), b.mantissa().unsigned_abs());
    let (mut q, mut rest) = (n / d, n % d);
    // Digit by digit: the remainder is below 2^96, so ten times the remainder fits.
    for _ in 0..scale + b.scale() - a.scale() {
        rest *= 10;
        q = q.checked_mul(10).and_then(|q| q.checked_add(rest / d)).ok_or_else(too_long)?;
        rest %= d;
    }
    q += u128::from(rest * 2 >= d);
    from_parts(i128::try_from(q).ok().map(|q| if negative { -q } else { q }), scale)
}

/// Returns the weight and the value of the first base-10000 digit, as PostgreSQL stores numerics.
fn leading(v: Decimal) -> (i64, u128) {
    let digits = v.mantissa().unsigned_abs();
    if digits == 0 {
        return (0, 0);
    }
    let places = i64::from(digits.ilog10()) + 1 - i64::from(v.scale());
    let weight = (places - 1).div_euclid(4);
    let shift = i64::from(v.scale()) + weight * 4;
    let first = if shift >= 0 {
        digits / 10u128.pow(shift.min(38) as u32)
    } else {
        digits * 10u128.pow((-shift) as u32)
    };
    (weight, first)
}

/// Rounds half away from zero to `places` decimal places; a negative number rounds before the
/// point.
pub(crate) fn round(v: Decimal, places: i64) -> SqlResult<Decimal> {
    let own = i64::from(v.scale());
    if places >= own {
        let places = u32::try_from(places).ok().filter(|p| *p <= MAX_SCALE).ok_or_else(too_long)?;
        return from_parts(at_scale(v, places), places);
    }
    let Some(unit) = u32::try_from(own - places).ok().and_then(|cut| 10i128.checked_pow(cut))
    else {
        return Ok(Decimal::ZERO);
    };
    let (mut q, rest) = (v.mantissa() / unit, v.mantissa() % unit);
    if rest.unsigned_abs() * 2 >= unit.unsigned_abs() {
        q += rest.signum();
    }
    match u32::try_from(places) {
        Ok(places) => from_parts(Some(q), places),
        Err(_) => from_parts(
            10i128.checked_pow(places.unsigned_abs() as u32).and_then(|unit| q.checked_mul(unit)),
            0,
        ),
    }
}

/// Returns the largest integer that is not greater than `v`.
pub(crate) fn floor(v: Decimal) -> SqlResult<Decimal> {
    let unit = 10i128.pow(v.scale());
    from_parts(Some(v.mantissa().div_euclid(unit)), 0)
}

/// Returns the smallest integer that is not less than `v`.
pub(crate) fn ceil(v: Decimal) -> SqlResult<Decimal> {
    floor(negate(v)).map(negate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Decimal {
        read(text).unwrap().unwrap()
    }

    #[test]
    fn parsing_keeps_scale_and_digits() {
        for (text, shown) in [
            ("1.50", "1.50"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1.50e1", "15.0"),
            ("1.5e-3", "0.0015"),
            ("-0.0", "0.0"),
            ("0e5", "0"),
            ("+1.e2", "100"),
            ("79228162514264337593543950335", "79228162514264337593543950335"),
            ("0.0000000000000000000000000001", "0.0000000000000000000000000001"),
        ] {
            assert_eq!(number(text).to_string(), shown, "{text}");
        }
        for text in ["", ".", "-", "e5", "1e", "1e+", "1.2.3", "0x1", "1_0", "1 2", "--1"] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn unrepresentable_values_are_rejected() {
        let state = |r: SqlResult<Decimal>| r.map_err(|e| e.state().to_string()).unwrap_err();
        for text in [
            "79228162514264337593543950336",
            "1e29",
            "1e-29",
            "0.12345678901234567890123456789",
            "1e400",
        ] {
            assert_eq!(state(read(text).unwrap()), "0A000", "{text}");
        }
        assert_eq!(state(read("1e99999999999").unwrap()), "22003");
        let (long, small) = (number("12345678901234567890123456789"), number("1.5"));
        assert_eq!(state(add(long, small)), "0A000");
        assert_eq!(
            state(multiply(number("1.00000000000001"), number("1.000000000000001"))),
            "0A000"
        );
        assert_eq!(state(divide(small, number("1e14"))), "0A000");
        assert_eq!(state(round(small, 29)), "0A000");
    }

    #[test]
    fn rounding_goes_away_from_zero() {
        for (v, places, shown) in [
            ("2.5", 0, "3"),
            ("-2.5", 0, "-3"),
            ("-0.4", 0, "0"),
            ("1250", -2, "1300"),
            ("4", -1, "0"),
            ("1.5", 3, "1.500"),
        ] {
            assert_eq!(round(number(v), places).unwrap().to_string(), shown, "{v} {places}");
        }
        assert_eq!(
            (floor(number("-0.5")).unwrap(), ceil(number("-0.5")).unwrap()),
            (number("-1"), number("0"))
        );
    }
}

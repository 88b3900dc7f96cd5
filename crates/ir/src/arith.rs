//! Arithmetic with PostgreSQL's results and errors: 22003 on overflow, 22012 on division by zero.

use crate::cast::{to_decimal, to_float};
use crate::decimal;
use crate::expr::BinaryOp;
use crate::operand::Value;
use crate::value::is_date;
use clearway_types::{DatumRef, SqlError, SqlResult, SqlState};
use rust_decimal::Decimal;

/// Computes +, -, *, / or % of two non-NULL values. For integers of different widths the result has
/// the wider type.
pub(crate) fn arithmetic<'a>(
    op: BinaryOp,
    l: DatumRef<'_>,
    r: DatumRef<'_>,
) -> SqlResult<Value<'a>> {
    use DatumRef as D;
    let value = match (l, r) {
        (D::Int4(a), D::Int4(b)) => D::Int4(int4(op, a, b)?),
        (D::Int2(a), D::Int2(b)) => {
            let v = integer(op, i64::from(a), i64::from(b), "smallint")?;
            D::Int2(i16::try_from(v).map_err(|_| out_of_range("smallint"))?)
        }
        (D::Int2(a), D::Int4(b)) => D::Int4(int4(op, i32::from(a), b)?),
        (D::Int4(a), D::Int2(b)) => D::Int4(int4(op, a, i32::from(b))?),
        (D::Int8(a), D::Int8(b)) => D::Int8(integer(op, a, b, "bigint")?),
        (D::Int8(a), D::Int4(b)) => D::Int8(integer(op, a, i64::from(b), "bigint")?),
        (D::Int8(a), D::Int2(b)) => D::Int8(integer(op, a, i64::from(b), "bigint")?),
        (D::Int4(a), D::Int8(b)) => D::Int8(integer(op, i64::from(a), b, "bigint")?),
        (D::Int2(a), D::Int8(b)) => D::Int8(integer(op, i64::from(a), b, "bigint")?),
        (D::Date(_), _) | (_, D::Date(_)) => date(op, l, r)?,
        (D::Float8(_), _) | (_, D::Float8(_)) => match (to_float(l), to_float(r)) {
            (Some(a), Some(b)) => D::Float8(float(op, a, b)?),
            _ => return Err(untyped()),
        },
        _ => match (to_decimal(l), to_decimal(r)) {
            (Some(a), Some(b)) => D::Numeric(numeric(op, a, b)?),
            _ => return Err(untyped()),
        },
    };
    Ok(owned(value))
}

/// Converts a value to one that borrows nothing; text is copied.
pub(crate) fn owned<'a>(value: DatumRef<'_>) -> Value<'a> {
    Value::Ref(match value {
        DatumRef::Bool(v) => DatumRef::Bool(v),
        DatumRef::Int2(v) => DatumRef::Int2(v),
        DatumRef::Int4(v) => DatumRef::Int4(v),
        DatumRef::Int8(v) => DatumRef::Int8(v),
        DatumRef::Float8(v) => DatumRef::Float8(v),
        DatumRef::Numeric(v) => DatumRef::Numeric(v),
        DatumRef::Date(v) => DatumRef::Date(v),
        DatumRef::Timestamp(v) => DatumRef::Timestamp(v),
        DatumRef::Timestamptz(v) => DatumRef::Timestamptz(v),
        DatumRef::Text(v) => return Value::Text(v.into()),
        DatumRef::Null => DatumRef::Null,
    })
}

pub(crate) fn negate<'a>(value: DatumRef<'_>) -> SqlResult<Value<'a>> {
    use DatumRef as D;
    Ok(Value::Ref(match value {
        D::Int2(v) => D::Int2(v.checked_neg().ok_or_else(|| out_of_range("smallint"))?),
        D::Int4(v) => D::Int4(v.checked_neg().ok_or_else(|| out_of_range("integer"))?),
        D::Int8(v) => D::Int8(v.checked_neg().ok_or_else(|| out_of_range("bigint"))?),
        D::Float8(v) => D::Float8(-v),
        D::Numeric(v) => D::Numeric(decimal::negate(v)),
        _ => return Err(untyped()),
    }))
}

pub(crate) fn out_of_range(what: &str) -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, format!("{what} out of range"))
}

fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn untyped() -> SqlError {
    SqlError::internal("arithmetic on values that are not numbers")
}

/// Date arithmetic: date plus days, date minus days, date minus date.
fn date<'a>(op: BinaryOp, l: DatumRef<'_>, r: DatumRef<'_>) -> SqlResult<DatumRef<'a>> {
    use DatumRef as D;
    let infinite = |v: i32| v == i32::MAX || v == i32::MIN;
    let (date, days) = match (op, l, r) {
        (BinaryOp::Sub, D::Date(a), D::Date(b)) if infinite(a) || infinite(b) => {
            return Err(SqlError::new(
                SqlState::DATETIME_OVERFLOW,
                "cannot subtract infinite dates",
            ));
        }
        (BinaryOp::Sub, D::Date(a), D::Date(b)) => return Ok(D::Int4(a - b)),
        (BinaryOp::Add, D::Date(date), D::Int4(days))
        | (BinaryOp::Add, D::Int4(days), D::Date(date)) => (date, i64::from(days)),
        (BinaryOp::Sub, D::Date(date), D::Int4(days)) => (date, -i64::from(days)),
        _ => return Err(untyped()),
    };
    let moved = i64::from(date) + days;
    match infinite(date) {
        true => Ok(D::Date(date)),
        false if is_date(moved) => Ok(D::Date(moved as i32)),
        false => Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range")),
    }
}

fn int4(op: BinaryOp, a: i32, b: i32) -> SqlResult<i32> {
    let v = integer(op, i64::from(a), i64::from(b), "integer")?;
    i32::try_from(v).map_err(|_| out_of_range("integer"))
}

fn integer(op: BinaryOp, a: i64, b: i64, what: &str) -> SqlResult<i64> {
    match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Sub => a.checked_sub(b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div | BinaryOp::Mod if b == 0 => return Err(division_by_zero()),
        BinaryOp::Div => a.checked_div(b),
        BinaryOp::Mod => Some(a.wrapping_rem(b)),
        _ => return Err(untyped()),
    }
    .ok_or_else(|| out_of_range(what))
}

pub(crate) fn float(op: BinaryOp, a: f64, b: f64) -> SqlResult<f64> {
    let v = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div if b == 0.0 && !a.is_nan() => return Err(division_by_zero()),
        BinaryOp::Div => a / b,
        _ => return Err(untyped()),
    };
    if v.is_infinite() && a.is_finite() && b.is_finite() {
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: overflow"));
    }
    let shrinks = matches!(op, BinaryOp::Mul | BinaryOp::Div);
    if shrinks && v == 0.0 && a != 0.0 && b != 0.0 && b.is_finite() {
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: underflow"));
    }
    Ok(v)
}

fn numeric(op: BinaryOp, a: Decimal, b: Decimal) -> SqlResult<Decimal> {
    match op {
        BinaryOp::Add => decimal::add(a, b),
        BinaryOp::Sub => decimal::subtract(a, b),
        BinaryOp::Mul => decimal::multiply(a, b),
        BinaryOp::Div | BinaryOp::Mod if b.is_zero() => Err(division_by_zero()),
        BinaryOp::Div => decimal::divide(a, b),
        BinaryOp::Mod => decimal::remainder(a, b),
        _ => Err(untyped()),
    }
}

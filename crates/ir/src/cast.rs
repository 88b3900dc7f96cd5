//! Conversions between types.

use crate::decimal;
use crate::operand::Value;
use crate::value::{self, Zone, fit};
use clearway_types::{Datum, DatumRef, SqlError, SqlResult, SqlState, SqlType};
use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};

/// Converts `value` to type `to`. An explicit cast (`explicit`) truncates text that is too long for
/// `char(n)` or `varchar(n)`. An implicit one (an assignment, a parameter bound to a column)
/// truncates only trailing blanks, else fails with 22001.
pub fn cast(value: DatumRef<'_>, to: SqlType, explicit: bool, zone: &Zone) -> SqlResult<Datum> {
    cast_value(Value::Ref(value), to, explicit, zone).map(Value::into_datum)
}

/// Like [`cast`], but borrows values that do not change.
pub fn cast_value<'a>(
    value: Value<'a>,
    to: SqlType,
    explicit: bool,
    zone: &Zone,
) -> SqlResult<Value<'a>> {
    if to.is_string() || to == SqlType::Void {
        return to_string(value, to, explicit, zone);
    }
    let fixed = match (value.as_ref(), to) {
        (DatumRef::Null, _)
        | (DatumRef::Bool(_), SqlType::Bool)
        | (DatumRef::Int2(_), SqlType::Int2)
        | (DatumRef::Int4(_), SqlType::Int4)
        | (DatumRef::Int8(_), SqlType::Int8)
        | (DatumRef::Float8(_), SqlType::Float8)
        | (DatumRef::Numeric(_), SqlType::Numeric)
        | (DatumRef::Date(_), SqlType::Date)
        | (DatumRef::Timestamp(_), SqlType::Timestamp)
        | (DatumRef::Timestamptz(_), SqlType::Timestamptz) => return Ok(value),
        (DatumRef::Text(s), _) => value::parse_text(to, s, zone)?,
        (DatumRef::Timestamp(v), SqlType::Timestamptz) => Datum::Timestamptz(utc(v, zone)?),
        (DatumRef::Timestamptz(v), SqlType::Timestamp) => {
            Datum::Timestamp(value::checked_timestamp(value::to_local(v, zone))?)
        }
        (DatumRef::Date(v), SqlType::Timestamp) => Datum::Timestamp(midnight(v)?),
        (DatumRef::Date(v), SqlType::Timestamptz) => Datum::Timestamptz(utc(midnight(v)?, zone)?),
        (DatumRef::Timestamp(v), SqlType::Date) => Datum::Date(value::date_of(v)),
        (DatumRef::Timestamptz(v), SqlType::Date) => {
            Datum::Date(value::date_of(value::to_local(v, zone)))
        }
        (DatumRef::Bool(v), SqlType::Int4) => Datum::Int4(i32::from(v)),
        (from, SqlType::Int2 | SqlType::Int4 | SqlType::Int8) => to_int(from, to)?,
        (from, SqlType::Float8) => Datum::Float8(to_float(from).ok_or_else(|| cannot(from, to))?),
        (from, SqlType::Numeric) => Datum::Numeric(to_numeric(from, to)?),
        (DatumRef::Int4(v), SqlType::Bool) => Datum::Bool(v != 0),
        (from, _) => return Err(cannot(from, to)),
    };
    Ok(fixed_value(fixed))
}

/// Converts a datum to a value that borrows nothing.
fn fixed_value(d: Datum) -> Value<'static> {
    match d {
        Datum::Text(t) => Value::Text(t),
        Datum::Null => Value::NULL,
        Datum::Bool(v) => Value::Ref(DatumRef::Bool(v)),
        Datum::Int2(v) => Value::Ref(DatumRef::Int2(v)),
        Datum::Int4(v) => Value::Ref(DatumRef::Int4(v)),
        Datum::Int8(v) => Value::Ref(DatumRef::Int8(v)),
        Datum::Float8(v) => Value::Ref(DatumRef::Float8(v)),
        Datum::Date(v) => Value::Ref(DatumRef::Date(v)),
        Datum::Timestamp(v) => Value::Ref(DatumRef::Timestamp(v)),
        Datum::Timestamptz(v) => Value::Ref(DatumRef::Timestamptz(v)),
        Datum::Numeric(v) => Value::Ref(DatumRef::Numeric(v)),
    }
}

/// Returns the type of a value; `text` for every string.
pub fn type_of(value: DatumRef<'_>) -> SqlType {
    match value {
        DatumRef::Null => SqlType::Unknown,
        DatumRef::Bool(_) => SqlType::Bool,
        DatumRef::Int2(_) => SqlType::Int2,
        DatumRef::Int4(_) => SqlType::Int4,
        DatumRef::Int8(_) => SqlType::Int8,
        DatumRef::Float8(_) => SqlType::Float8,
        DatumRef::Text(_) => SqlType::Text,
        DatumRef::Date(_) => SqlType::Date,
        DatumRef::Timestamp(_) => SqlType::Timestamp,
        DatumRef::Timestamptz(_) => SqlType::Timestamptz,
        DatumRef::Numeric(_) => SqlType::Numeric,
    }
}

/// Converts a local time to UTC, if it is in range.
fn utc(local: i64, zone: &Zone) -> SqlResult<i64> {
    value::checked_timestamp(value::to_utc(local, zone))
}

fn midnight(days: i32) -> SqlResult<i64> {
    let bad = || SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range for timestamp");
    value::midnight(days).ok_or_else(bad)
}

fn cannot(from: DatumRef<'_>, to: SqlType) -> SqlError {
    SqlError::new(SqlState::CANNOT_COERCE, format!("cannot cast type {} to {to}", type_of(from)))
}

fn to_string<'a>(
    value: Value<'a>,
    to: SqlType,
    explicit: bool,
    zone: &Zone,
) -> SqlResult<Value<'a>> {
    match value {
        Value::Ref(DatumRef::Null) => Ok(value),
        Value::Ref(DatumRef::Text(s)) => {
            fit(s, to, explicit).map(|s| Value::Ref(DatumRef::Text(s)))
        }
        // A boolean becomes a `name` in its output form, t or f.
        Value::Ref(DatumRef::Bool(v)) if to == SqlType::Name => {
            Ok(Value::text(if v { "t" } else { "f" }))
        }
        Value::Ref(DatumRef::Bool(v)) => fit(if v { "true" } else { "false" }, to, explicit)
            .map(|s| Value::Ref(DatumRef::Text(s))),
        Value::Ref(other) => {
            let text = value::to_text(SqlType::Text, other, zone);
            Ok(Value::Text(fit(&text, to, explicit)?.into()))
        }
        Value::Text(t) => {
            let keep = fit(&t, to, explicit)?.len();
            if keep == t.len() { Ok(Value::Text(t)) } else { Ok(Value::Text(t[..keep].into())) }
        }
    }
}

fn to_int(from: DatumRef<'_>, to: SqlType) -> SqlResult<Datum> {
    let out_of_range = || SqlError::new(SqlState::OUT_OF_RANGE, format!("{to} out of range"));
    let wide: i64 = match from {
        DatumRef::Int2(v) => i64::from(v),
        DatumRef::Int4(v) => i64::from(v),
        DatumRef::Int8(v) => v,
        DatumRef::Float8(v) => {
            let r = v.round_ties_even();
            if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&r) {
                return Err(out_of_range());
            }
            r as i64
        }
        DatumRef::Numeric(v) => v
            .round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero)
            .to_i64()
            .ok_or_else(out_of_range)?,
        _ => return Err(cannot(from, to)),
    };
    match to {
        SqlType::Int2 => i16::try_from(wide).map(Datum::Int2).map_err(|_| out_of_range()),
        SqlType::Int4 => i32::try_from(wide).map(Datum::Int4).map_err(|_| out_of_range()),
        _ => Ok(Datum::Int8(wide)),
    }
}

/// Converts a number to float8.
pub(crate) fn to_float(from: DatumRef<'_>) -> Option<f64> {
    Some(match from {
        DatumRef::Int2(v) => f64::from(v),
        DatumRef::Int4(v) => f64::from(v),
        DatumRef::Int8(v) => v as f64,
        DatumRef::Float8(v) => v,
        DatumRef::Numeric(v) => v.to_string().parse().ok()?,
        _ => return None,
    })
}

/// Converts an integer or numeric to numeric.
pub(crate) fn to_decimal(from: DatumRef<'_>) -> Option<Decimal> {
    Some(match from {
        DatumRef::Int2(v) => Decimal::from(v),
        DatumRef::Int4(v) => Decimal::from(v),
        DatumRef::Int8(v) => Decimal::from(v),
        DatumRef::Numeric(v) => v,
        _ => return None,
    })
}

/// Converts to numeric. A float8 yields its 15 significant digits, as in PostgreSQL.
fn to_numeric(from: DatumRef<'_>, to: SqlType) -> SqlResult<Decimal> {
    if let DatumRef::Float8(v) = from {
        if !v.is_finite() {
            return Err(SqlError::unsupported(format!("numeric {v}")));
        }
        let text = format!("{v:.14e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        return decimal::read(&format!("{digits}e{exponent}"))
            .unwrap_or_else(|| Err(cannot(from, to)));
    }
    to_decimal(from).ok_or_else(|| cannot(from, to))
}

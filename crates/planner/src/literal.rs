//! Constants of SQL text.

use clearway_types::{Datum, SqlType};
use rust_decimal::Decimal;

/// A number's value and type as PostgreSQL gives them: integer, else bigint, else numeric (float8 where ours ends). `None`: not a number that we can hold.
pub(crate) fn number(text: &str, negative: bool) -> Option<(Datum, SqlType)> {
    if text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(v) = text.parse::<i128>()
    {
        let v = if negative { -v } else { v };
        if let Ok(v) = i32::try_from(v) {
            return Some((Datum::Int4(v), SqlType::Int4));
        }
        if let Ok(v) = i64::try_from(v) {
            return Some((Datum::Int8(v), SqlType::Int8));
        }
    }
    let parsed = if text.contains(['e', 'E']) { Decimal::from_scientific(text) } else { text.parse::<Decimal>() };
    if let Ok(v) = parsed {
        return Some((Datum::Numeric(if negative { -v } else { v }), SqlType::Numeric));
    }
    // Our numeric ends at 28 digits: beyond, a float8 is the nearest thing.
    let v = text.parse::<f64>().ok().filter(|v| v.is_finite())?;
    Some((Datum::Float8(if negative { -v } else { v }), SqlType::Float8))
}

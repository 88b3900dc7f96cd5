//! Constants in SQL text.

use clearway_ir::{Zone, value};
use clearway_types::{Datum, SqlType};

/// Returns a number's value and type as in PostgreSQL: integer, otherwise bigint, otherwise
/// numeric. `None`: we cannot represent the number with all its digits.
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
    let signed = if negative { format!("-{text}") } else { text.to_owned() };
    let read = value::parse_text(SqlType::Numeric, &signed, &Zone::utc());
    read.ok().map(|d| (d, SqlType::Numeric))
}

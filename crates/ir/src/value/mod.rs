//! Text forms of values, exactly as PostgreSQL parses and prints them (DateStyle ISO).

mod datetime;
mod fields;
mod number;
mod time;
mod zone;

pub(crate) use time::{
    DAY, HOUR, MINUTE, SECOND, civil_from_days, date_of, days_from_civil, is_infinite, midnight,
};
pub use time::{checked as checked_timestamp, is_date};
pub use zone::Zone;
pub(crate) use zone::{to_local, to_utc};

use clearway_types::{Datum, DatumRef, SqlError, SqlResult, SqlState, SqlType};
use std::io::Write as _;

/// Parses a value's text form like the type's input function: for a quoted literal, a text-format
/// parameter or a COPY field. Text that is too long for `char(n)` or `varchar(n)` is 22001, unless
/// the excess is blanks.
pub fn parse_text(ty: SqlType, text: &str, zone: &Zone) -> SqlResult<Datum> {
    Ok(match ty {
        SqlType::Bool => Datum::Bool(parse_bool(text)?),
        SqlType::Int2 => Datum::Int2(number::parse_int(text, ty)?),
        SqlType::Int4 => Datum::Int4(number::parse_int(text, ty)?),
        SqlType::Int8 => Datum::Int8(number::parse_int(text, ty)?),
        SqlType::Float8 => Datum::Float8(number::parse_float(text)?),
        SqlType::Numeric => Datum::Numeric(number::parse_numeric(text)?),
        SqlType::Text | SqlType::Unknown | SqlType::Void => Datum::Text(text.into()),
        SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Name => {
            Datum::Text(fit(text, ty, false)?.into())
        }
        SqlType::Date => Datum::Date(datetime::date(text)?),
        SqlType::Timestamp => Datum::Timestamp(datetime::timestamp(text, None)?),
        SqlType::Timestamptz => Datum::Timestamptz(datetime::timestamp(text, Some(zone))?),
    })
}

/// Maximum length of a `name`, in bytes; longer text is truncated silently.
pub const MAX_NAME: usize = 63;

/// Fits text to a string type: checks the length, and removes trailing blanks for `char(n)`.
pub fn fit(text: &str, to: SqlType, explicit: bool) -> SqlResult<&str> {
    let (limit, text) = match to {
        SqlType::Char(n) => (n, text.trim_end_matches(' ')),
        SqlType::Varchar(Some(n)) => (n, text),
        SqlType::Name => return Ok(&text[..text.floor_char_boundary(MAX_NAME)]),
        _ => return Ok(text),
    };
    if text.len() <= limit as usize {
        return Ok(text);
    }
    let Some((end, _)) = text.char_indices().nth(limit as usize) else { return Ok(text) };
    let (head, tail) = text.split_at(end);
    if explicit || tail.bytes().all(|b| b == b' ') {
        return Ok(if matches!(to, SqlType::Char(_)) { head.trim_end_matches(' ') } else { head });
    }
    Err(SqlError::new(SqlState::STRING_TRUNCATION, format!("value too long for type {to}")))
}

/// Appends a value's text form. `ty` is the column's type: `char(n)` is padded. NULL appends
/// nothing.
pub fn write_text(out: &mut Vec<u8>, ty: SqlType, value: DatumRef<'_>, zone: &Zone) {
    match value {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(if v { b't' } else { b'f' }),
        DatumRef::Int2(v) => number::write_int(out, i64::from(v)),
        DatumRef::Int4(v) => number::write_int(out, i64::from(v)),
        DatumRef::Int8(v) => number::write_int(out, v),
        DatumRef::Float8(v) => number::write_float(out, v),
        DatumRef::Numeric(v) => {
            let _ = write!(out, "{v}");
        }
        DatumRef::Date(v) => time::write_date(out, v),
        DatumRef::Timestamp(v) => time::write(out, v, None),
        DatumRef::Timestamptz(v) => time::write(out, v, Some(zone)),
        DatumRef::Text(s) => {
            out.extend_from_slice(s.as_bytes());
            if let SqlType::Char(n @ 0..=MAX_CHAR) = ty {
                let have = if s.is_ascii() { s.len() } else { s.chars().count() };
                out.resize(out.len() + (n as usize).saturating_sub(have), b' ');
            }
        }
    }
}

/// PostgreSQL's maximum n for `char(n)`; a larger n means no limit.
const MAX_CHAR: u32 = 10_485_760;

/// Returns a value's text form as a string.
pub fn to_text(ty: SqlType, value: DatumRef<'_>, zone: &Zone) -> String {
    let mut out = Vec::new();
    write_text(&mut out, ty, value, zone);
    String::from_utf8(out).unwrap_or_default()
}

fn parse_bool(text: &str) -> SqlResult<bool> {
    let word = text.trim_matches(is_space).to_ascii_lowercase();
    let prefix = |full: &str, least: usize| word.len() >= least && full.starts_with(&word);
    if prefix("true", 1) || prefix("yes", 1) || word == "on" || word == "1" {
        Ok(true)
    } else if prefix("false", 1) || prefix("no", 1) || prefix("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(invalid(SqlType::Bool, text))
    }
}

pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// Returns 22P02 with PostgreSQL's message.
pub(crate) fn invalid(ty: SqlType, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type {ty}: \"{text}\""))
}

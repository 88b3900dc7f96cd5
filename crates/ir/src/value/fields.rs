//! Splits the text of a date or timestamp into fields and interprets its words: PostgreSQL's
//! `ParseDateTime` and its word table.

use super::is_space;
use super::time::{EPOCH, SECOND};
use clearway_types::{SqlError, SqlState};

/// Maximum number of fields in a text.
const MAX_FIELDS: usize = 25;
/// Number of significant characters in a word.
const MAX_WORD: usize = 10;
/// Maximum number of hours in an offset.
const MAX_OFFSET: i64 = 15;

/// Why a text is not a date.
pub(super) enum Bad {
    Format,
    Range,
    /// The month or the day: another DateStyle might accept it.
    MonthOrDay,
    Displacement,
    Zone(String),
    /// PostgreSQL accepts it.
    Unsupported(String),
}

impl Bad {
    pub(super) fn reported(self, text: &str, ty: &str) -> SqlError {
        let range = |what: &str| format!("{what} out of range: \"{text}\"");
        match self {
            Self::Format => SqlError::new(
                SqlState::INVALID_DATETIME,
                format!("invalid input syntax for type {ty}: \"{text}\""),
            ),
            Self::Range => {
                SqlError::new(SqlState::DATETIME_OVERFLOW, range("date/time field value"))
            }
            Self::MonthOrDay => {
                SqlError::new(SqlState::DATETIME_OVERFLOW, range("date/time field value"))
                    .hint("Perhaps you need a different \"datestyle\" setting.")
            }
            Self::Displacement => {
                SqlError::new(SqlState(*b"22009"), range("time zone displacement"))
            }
            Self::Zone(name) => SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("time zone \"{name}\" not recognized"),
            ),
            Self::Unsupported(what) => SqlError::unsupported(what),
        }
    }
}

/// The result of parsing a field.
pub(super) type Done<T> = Result<T, Bad>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Number,
    Date,
    Time,
    Word,
    /// A sign and digits.
    Offset,
}

/// Splits a text into fields, in lower case. Returns `None` if it has a character that cannot be in
/// a field.
pub(super) fn fields(text: &str) -> Option<Vec<(Kind, String)>> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&c) = bytes.get(at) {
        let start = at;
        let run = |from: usize, more: &dyn Fn(u8) -> bool| {
            from + bytes[from..].iter().take_while(|b| more(**b)).count()
        };
        let digit = |b: u8| b.is_ascii_digit();
        let next = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let kind;
        if is_space(c as char) {
            at += 1;
            continue;
        } else if c.is_ascii_digit() {
            at = run(at, &digit);
            let delimiter = next(at);
            if delimiter == b':' {
                kind = Kind::Time;
                at = run(at, &|b| b.is_ascii_digit() || matches!(b, b':' | b'.'));
            } else if matches!(delimiter, b'-' | b'/' | b'.') {
                if next(at + 1).is_ascii_digit() {
                    at = run(at + 1, &digit);
                    let three = next(at) == delimiter;
                    kind = if three || delimiter != b'.' { Kind::Date } else { Kind::Number };
                    if three {
                        at = run(at, &|b| b.is_ascii_digit() || b == delimiter);
                    }
                } else {
                    kind = Kind::Date;
                    at = run(at + 1, &|b| b.is_ascii_alphanumeric() || b == delimiter);
                }
            } else {
                kind = Kind::Number;
            }
        } else if c == b'.' {
            at = run(at + 1, &digit);
            kind = Kind::Number;
        } else if c.is_ascii_alphabetic() {
            at = run(at, &|b| b.is_ascii_alphabetic());
            let punctuated = matches!(next(at), b'-' | b'/' | b'.');
            let more = next(at) == b'+' || next(at).is_ascii_digit();
            if punctuated || more && word(&text[start..at].to_ascii_lowercase()).is_none() {
                kind = Kind::Date;
                at = run(at, &|b| {
                    b.is_ascii_alphanumeric()
                        || matches!(b, b'+' | b'-' | b'/' | b'_' | b'.' | b':')
                });
            } else {
                kind = Kind::Word;
            }
        } else if c == b'+' || c == b'-' {
            let body = run(at + 1, &|b| is_space(b as char));
            let sign = c as char;
            if next(body).is_ascii_digit() {
                at = run(body, &|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
                out.push((Kind::Offset, format!("{sign}{}", &text[body..at])));
            } else if next(body).is_ascii_alphabetic() {
                at = run(body, &|b| b.is_ascii_alphabetic());
                out.push((Kind::Word, format!("{sign}{}", text[body..at].to_ascii_lowercase())));
            } else {
                return None;
            }
            continue;
        } else if c.is_ascii_punctuation() {
            at += 1;
            continue;
        } else {
            return None;
        }
        out.push((kind, text[start..at].to_ascii_lowercase()));
    }
    (out.len() <= MAX_FIELDS).then_some(out)
}

/// The meaning of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    Month(i64),
    Weekday,
    Ignored,
    BeforeChrist(bool),
    Afternoon(bool),
    Moment(i64),
    Midnight,
    Present,
    DaylightSaving,
    Prefix(Prefix),
}

/// The kind of the next field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Prefix {
    Julian,
    Time,
    /// A unit, which is valid in intervals only.
    Unit,
}

pub(super) fn word(lower: &str) -> Option<Word> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    const DAYS: &[&str] = &[
        "sun",
        "sunday",
        "mon",
        "monday",
        "tue",
        "tues",
        "tuesday",
        "wed",
        "weds",
        "wednesday",
        "thu",
        "thur",
        "thurs",
        "thursday",
        "fri",
        "friday",
        "sat",
        "saturday",
    ];
    let lower = lower.get(..MAX_WORD).unwrap_or(lower);
    let month = MONTHS
        .iter()
        .position(|m| *m == lower || m[..3] == *lower || lower == "sept" && *m == "september");
    if let Some(n) = month {
        return Some(Word::Month(n as i64 + 1));
    }
    Some(match lower {
        "infinity" => Word::Moment(i64::MAX),
        "-infinity" => Word::Moment(i64::MIN),
        "epoch" => Word::Moment(-EPOCH * SECOND),
        "ad" => Word::BeforeChrist(false),
        "bc" => Word::BeforeChrist(true),
        "am" => Word::Afternoon(false),
        "pm" => Word::Afternoon(true),
        "allballs" => Word::Midnight,
        "now" | "today" | "tomorrow" | "yesterday" => Word::Present,
        "dst" => Word::DaylightSaving,
        "at" | "on" => Word::Ignored,
        "t" => Word::Prefix(Prefix::Time),
        "j" | "jd" | "julian" => Word::Prefix(Prefix::Julian),
        "d" | "dow" | "doy" | "h" | "isodow" | "isoyear" | "m" | "mm" | "s" | "y" => {
            Word::Prefix(Prefix::Unit)
        }
        day if DAYS.contains(&day) => Word::Weekday,
        _ => return None,
    })
}

pub(super) fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Parses a number of PostgreSQL's `int`.
pub(super) fn integer(digits: &str) -> Done<i64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Format);
    }
    digits.parse::<i32>().map(i64::from).map_err(|_| Bad::Range)
}

/// Converts the fraction of a second, `.digits`, to microseconds.
pub(super) fn micros(fraction: &str) -> Done<i64> {
    let value: f64 = match fraction {
        "." => 0.0,
        _ => format!("0{fraction}").parse().map_err(|_| Bad::Format)?,
    };
    Ok((value * 1e6).round_ties_even() as i64)
}

/// Parses `+HH`, `+HHMM`, `+HH:MM` or `+HH:MM:SS` to seconds east of UTC.
pub(super) fn offset(text: &str) -> Done<i64> {
    let mut rest = &text[1..];
    let mut number = || {
        let (digits, more) = rest.split_at(leading_digits(rest));
        let colon = more.starts_with(':');
        rest = if colon { &more[1..] } else { more };
        let value = if digits.is_empty() {
            Ok(0)
        } else {
            digits.parse::<i32>().map_err(|_| Bad::Displacement)
        };
        value.map(|v| (i64::from(v), colon))
    };
    let (mut hours, colon) = number()?;
    let (mut minutes, mut seconds) = (0, 0);
    if colon {
        let colon;
        (minutes, colon) = number()?;
        if colon {
            // A third colon remains, and is rejected below.
            let digits = leading_digits(rest);
            seconds = if digits == 0 {
                0
            } else {
                rest[..digits].parse().map_err(|_| Bad::Displacement)?
            };
            rest = &rest[digits..];
        }
    } else if rest.is_empty() && text.len() > 3 {
        (hours, minutes) = (hours / 100, hours % 100);
    }
    if hours > MAX_OFFSET || minutes > 59 || seconds > 59 {
        return Err(Bad::Displacement);
    }
    if !rest.is_empty() {
        return Err(Bad::Format);
    }
    let east = hours * 3600 + minutes * 60 + seconds;
    Ok(if text.starts_with('-') { -east } else { east })
}

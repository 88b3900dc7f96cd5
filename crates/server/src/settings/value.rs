//! Kinds of settings and their checks. A check returns the value as SHOW prints it.

use super::units::{self, Unit};
use clearway_ir::Zone;
use clearway_ir::statement::Isolation;
use clearway_types::{SqlError, SqlResult, SqlState};

/// A setting's kind of value.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Text,
    Bool,
    /// An integer in this unit, between these bounds.
    Int(Unit, i32, i32),
    /// A float that is not negative.
    Float,
    /// An integer from -15 to 3, of which only 1 and above are supported: floats are printed with
    /// the digits that identify them.
    FloatDigits,
    OneOf(&'static [&'static str]),
    /// One of these values. PostgreSQL accepts off, too, which is not supported.
    NotOff(&'static [&'static str]),
    /// Only the first of these values is supported; PostgreSQL accepts the others, too.
    First(&'static [&'static str]),
    /// A boolean of which only on is supported.
    On,
    Isolation,
    Encoding,
    DateStyle,
    Tablespace,
    /// A table access method. The only name is PostgreSQL's, which its dumps set.
    TableMethod,
    Zone,
    /// Cannot be set.
    Fixed,
}

/// A time in milliseconds.
pub(super) const MS: Kind = Kind::Int(Unit::Ms, 0, i32::MAX);

pub(super) fn invalid(name: &str, value: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_PARAMETER,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
}

fn refused(name: &str, value: &str) -> SqlError {
    SqlError::unsupported(format!("value \"{value}\" of parameter \"{name}\""))
}

/// Returns the value as it is stored, or an error.
pub(super) fn check(name: &str, kind: Kind, value: &str) -> SqlResult<String> {
    let wrong = || invalid(name, value);
    let lower = value.trim().to_ascii_lowercase();
    Ok(match kind {
        Kind::Text => value.to_owned(),
        Kind::Bool => boolean(name, &lower)?.to_owned(),
        Kind::On if boolean(name, &lower)? == "on" => "on".to_owned(),
        Kind::On => return Err(refused(name, value)),
        Kind::Int(unit, least, most) => integer(name, value, unit, least, most)?,
        Kind::Float => float(name, value)?,
        Kind::FloatDigits => {
            let digits = integer(name, value, Unit::None, -15, 3)?;
            if !matches!(digits.as_str(), "1" | "2" | "3") {
                return Err(refused(name, value));
            }
            digits
        }
        Kind::OneOf(values) if values.contains(&lower.as_str()) => match lower.as_str() {
            "true" | "yes" | "1" => "on".to_owned(),
            "false" | "no" | "0" => "off".to_owned(),
            "debug" => "debug2".to_owned(),
            _ => lower,
        },
        Kind::OneOf(_) => return Err(wrong()),
        Kind::NotOff(values) => match check(name, Kind::OneOf(values), value)?.as_str() {
            "off" => return Err(refused(name, value)),
            value => value.to_owned(),
        },
        Kind::First([first, ..]) if *first == lower => lower,
        Kind::First(values) if values.contains(&lower.as_str()) => {
            return Err(refused(name, value));
        }
        // As in PostgreSQL, the error uses the name as written.
        Kind::First(_) => return Err(invalid(&name.to_ascii_lowercase(), value)),
        Kind::Isolation => Isolation::named(&lower).ok_or_else(wrong)?.name().to_owned(),
        Kind::Encoding => encoding(value)?,
        Kind::DateStyle => date_style(name, value)?,
        Kind::Tablespace if value.is_empty() || value == "pg_default" => value.to_owned(),
        Kind::Tablespace => {
            return Err(wrong().detail(format!("Tablespace \"{value}\" does not exist.")));
        }
        Kind::TableMethod if value == "heap" => value.to_owned(),
        Kind::TableMethod if value.is_empty() => {
            return Err(wrong().detail(format!("{name} cannot be empty.")));
        }
        Kind::TableMethod => {
            return Err(wrong().detail(format!("Table access method \"{value}\" does not exist.")));
        }
        Kind::Zone if lower == "default" => "UTC".to_owned(),
        Kind::Zone => Zone::setting(value).ok_or_else(wrong)?.1,
        Kind::Fixed => {
            let text = format!("parameter \"{name}\" cannot be changed");
            return Err(SqlError::new(SqlState::CANT_CHANGE_PARAM, text));
        }
    })
}

fn boolean(name: &str, lower: &str) -> SqlResult<&'static str> {
    match lower {
        "on" | "true" | "t" | "yes" | "y" | "1" => Ok("on"),
        "off" | "false" | "f" | "no" | "n" | "0" => Ok("off"),
        _ => {
            let text = format!("parameter \"{name}\" requires a Boolean value");
            Err(SqlError::new(SqlState::INVALID_PARAMETER, text))
        }
    }
}

fn integer(name: &str, value: &str, unit: Unit, least: i32, most: i32) -> SqlResult<String> {
    let wrong = invalid(name, value);
    match units::parse(value, unit) {
        Ok(n) if (least..=most).contains(&n) => Ok(units::text(n, unit)),
        Ok(n) => {
            let space = if unit == Unit::None { "" } else { " " };
            let base = unit.name();
            let text = format!(
                "{n}{space}{base} is outside the valid range for parameter \"{name}\" ({least} .. {most})"
            );
            Err(SqlError::new(SqlState::INVALID_PARAMETER, text))
        }
        Err(units::Wrong::Number) => Err(wrong),
        Err(units::Wrong::Unit) => Err(match unit.hint() {
            Some(hint) => wrong.hint(hint),
            None => wrong,
        }),
        Err(units::Wrong::Huge) => Err(wrong.hint("Value exceeds integer range.")),
    }
}

fn float(name: &str, value: &str) -> SqlResult<String> {
    let n: f64 = value.trim().parse().map_err(|_| invalid(name, value))?;
    if n.is_nan() || n < 0.0 {
        let text =
            format!("{n} is outside the valid range for parameter \"{name}\" (0 .. 1.79769e+308)");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, text));
    }
    Ok(n.to_string())
}

fn encoding(value: &str) -> SqlResult<String> {
    let plain: String =
        value.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    match plain.as_str() {
        "utf8" | "unicode" | "default" => Ok("UTF8".to_owned()),
        "sqlascii" => Ok("SQL_ASCII".to_owned()),
        "latin1" | "iso88591" | "win1252" | "windows1252" | "euckr" | "sjis" | "big5" | "gbk" => {
            Err(SqlError::unsupported(format!("client_encoding {value}")).hint("Use UTF8."))
        }
        _ => Err(invalid("client_encoding", value)),
    }
}

/// Checks a list of an output style, which must be ISO, and a field order, which must be MDY. Each
/// may appear once, or repeatedly with the same value.
fn date_style(name: &str, value: &str) -> SqlResult<String> {
    let mut order = None;
    let (mut conflict, mut other_style) = (false, false);
    let mut iso = false;
    for word in value.split(',').map(str::trim) {
        let upper = word.to_ascii_uppercase();
        let given = match upper.as_str() {
            "ISO" => {
                iso = true;
                continue;
            }
            "DEFAULT" => continue,
            "MDY" | "US" => "MDY",
            "YMD" => "YMD",
            "DMY" => "DMY",
            "" => return Err(invalid(name, value).detail("List syntax is invalid.")),
            w if w.starts_with("NONEURO") => "MDY",
            w if w.starts_with("EURO") => "DMY",
            w if w == "SQL" || w.starts_with("POSTGRES") || w.starts_with("GERMAN") => {
                other_style = true;
                continue;
            }
            _ => {
                return Err(
                    invalid(name, value).detail(format!("Unrecognized key word: \"{word}\"."))
                );
            }
        };
        conflict |= order.is_some_and(|earlier| earlier != given);
        order = Some(given);
    }
    if conflict || iso && other_style {
        return Err(invalid(name, value).detail("Conflicting \"datestyle\" specifications."));
    }
    if other_style || order.is_some_and(|order| order != "MDY") {
        return Err(refused(name, value));
    }
    Ok("ISO, MDY".to_owned())
}

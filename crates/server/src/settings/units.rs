//! Settings that are times: PostgreSQL's way to read and to show them, in milliseconds.

/// The longest time.
pub(super) const LONGEST_MS: u64 = i32::MAX as u64;

/// What a wrong unit is answered with.
pub(super) const UNITS_HINT: &str =
    "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".";

/// Milliseconds of each unit, the longest first.
const UNITS: [(&str, f64); 6] =
    [("d", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0), ("s", 1_000.0), ("ms", 1.0), ("us", 0.001)];

/// Why a text is not a time.
#[derive(Debug, PartialEq)]
pub(super) enum Wrong {
    /// It does not begin with a number.
    Number,
    /// Nobody knows its unit.
    Unit,
    /// It is no integer of 32 bits.
    Huge,
    /// It is that many milliseconds, which is out of range.
    Range(i64),
}

/// Reads a number with or without a unit.
pub(super) fn parse(text: &str) -> Result<u64, Wrong> {
    let text = text.trim();
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| Wrong::Number)?;
    let unit = text[end..].trim();
    let factor = if unit.is_empty() { 1.0 } else { UNITS.iter().find(|(name, _)| *name == unit).ok_or(Wrong::Unit)?.1 };
    let ms = (number * factor).round_ties_even();
    if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&ms) {
        return Err(Wrong::Huge);
    }
    u64::try_from(ms as i64).map_err(|_| Wrong::Range(ms as i64))
}

/// Shows a time in the longest unit that it is a multiple of.
pub(super) fn text(ms: u64) -> String {
    if ms == 0 {
        return "0".to_owned();
    }
    let fits = |(_, factor): &&(&str, f64)| *factor >= 1.0 && ms.is_multiple_of(*factor as u64);
    UNITS.iter().find(fits).map_or_else(|| ms.to_string(), |(name, factor)| format!("{}{name}", ms / *factor as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown_as_postgresql_does() {
        for (given, ms, shown) in [
            ("0", 0, "0"),
            ("1500", 1500, "1500ms"),
            ("2000", 2000, "2s"),
            (" 90 s ", 90_000, "90s"),
            ("1.5min", 90_000, "90s"),
            ("499us", 0, "0"),
            ("1d", 86_400_000, "1d"),
            ("2147483647", LONGEST_MS, "2147483647ms"),
        ] {
            assert_eq!((parse(given), text(ms).as_str()), (Ok(ms), shown), "{given}");
        }
        for (given, wrong) in [
            ("soon", Wrong::Number),
            ("", Wrong::Number),
            ("5 parsecs", Wrong::Unit),
            ("5S", Wrong::Unit),
            ("2147483648", Wrong::Huge),
            ("1000d", Wrong::Huge),
            ("-5", Wrong::Range(-5)),
        ] {
            assert_eq!(parse(given), Err(wrong), "{given}");
        }
    }
}

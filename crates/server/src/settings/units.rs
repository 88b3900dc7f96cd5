//! Numeric settings: parsed and printed like PostgreSQL, with units of time and memory.

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// No unit.
    None,
    /// Milliseconds.
    Ms,
    /// Kibibytes.
    KiB,
}

/// Factors to the base unit by name, the longest unit first.
type Names = &'static [(&'static str, f64)];

const TIMES: Names = &[
    ("d", 86_400_000.0),
    ("h", 3_600_000.0),
    ("min", 60_000.0),
    ("s", 1_000.0),
    ("ms", 1.0),
    ("us", 0.001),
];
const MEMORY: Names = &[
    ("TB", 1_073_741_824.0),
    ("GB", 1_048_576.0),
    ("MB", 1_024.0),
    ("kB", 1.0),
    ("B", 1.0 / 1_024.0),
];

impl Unit {
    fn names(self) -> Names {
        match self {
            Self::None => &[],
            Self::Ms => TIMES,
            Self::KiB => MEMORY,
        }
    }

    /// Returns the name of the base unit.
    pub(super) fn name(self) -> &'static str {
        self.names().iter().find(|(_, factor)| *factor == 1.0).map_or("", |(name, _)| *name)
    }

    /// Returns the hint for an unknown unit; `None` if the setting has no unit.
    pub(super) fn hint(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Ms => Some(
                "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".",
            ),
            Self::KiB => Some(
                "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
            ),
        }
    }
}

/// Why a text is not a valid number.
#[derive(Debug, PartialEq)]
pub(super) enum Wrong {
    /// It does not begin with a number.
    Number,
    /// Its unit is unknown.
    Unit,
    /// It does not fit in a 32-bit integer.
    Huge,
}

/// Parses a number with an optional unit, as a multiple of the base unit.
pub(super) fn parse(text: &str, unit: Unit) -> Result<i32, Wrong> {
    let text = text.trim();
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| Wrong::Number)?;
    let name = text[end..].trim();
    let factor = match name {
        "" => 1.0,
        _ => unit.names().iter().find(|(known, _)| *known == name).ok_or(Wrong::Unit)?.1,
    };
    let number = (number * factor).round_ties_even();
    if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        return Err(Wrong::Huge);
    }
    Ok(number as i32)
}

/// Prints a number in the largest unit that divides it.
pub(super) fn text(n: i32, unit: Unit) -> String {
    let fits = |(_, factor): &&(&str, f64)| n > 0 && *factor >= 1.0 && n % *factor as i32 == 0;
    let longest = unit.names().iter().find(fits);
    longest.map_or_else(|| n.to_string(), |(name, factor)| format!("{}{name}", n / *factor as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_and_print_like_postgresql() {
        for (unit, given, n, shown) in [
            (Unit::Ms, "0", 0, "0"),
            (Unit::Ms, "1500", 1500, "1500ms"),
            (Unit::Ms, "2000", 2000, "2s"),
            (Unit::Ms, " 90 s ", 90_000, "90s"),
            (Unit::Ms, "1.5min", 90_000, "90s"),
            (Unit::Ms, "499us", 0, "0"),
            (Unit::Ms, "1d", 86_400_000, "1d"),
            (Unit::Ms, "2147483647", i32::MAX, "2147483647ms"),
            (Unit::Ms, "-5", -5, "-5"),
            (Unit::KiB, "4096", 4096, "4MB"),
            (Unit::KiB, "1536B", 2, "2kB"),
            (Unit::KiB, "1TB", 1 << 30, "1TB"),
            (Unit::None, "+3", 3, "3"),
            (Unit::None, "-15", -15, "-15"),
        ] {
            assert_eq!((parse(given, unit), text(n, unit).as_str()), (Ok(n), shown), "{given}");
        }
        for (unit, given, wrong) in [
            (Unit::Ms, "soon", Wrong::Number),
            (Unit::Ms, "", Wrong::Number),
            (Unit::Ms, "5 parsecs", Wrong::Unit),
            (Unit::Ms, "5S", Wrong::Unit),
            (Unit::Ms, "2147483648", Wrong::Huge),
            (Unit::Ms, "1000d", Wrong::Huge),
            (Unit::KiB, "2TB", Wrong::Huge),
            (Unit::KiB, "1mb", Wrong::Unit),
            (Unit::None, "1kB", Wrong::Unit),
        ] {
            assert_eq!(parse(given, unit), Err(wrong), "{given}");
        }
    }
}

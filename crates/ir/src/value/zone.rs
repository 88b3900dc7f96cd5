//! Time zones: names, POSIX specifications, and the abbreviations that timestamps may contain.
//!
//! Names come from the IANA database. An abbreviation means a fixed offset on any date, as in
//! PostgreSQL's default set (`timezone_abbreviations`). The few that PostgreSQL looks up by date
//! are rejected.

use super::is_space;
use super::time::{DAY, EPOCH, SECOND, is_infinite};
use jiff::tz::{Offset, TimeZone};

/// The last moment that `jiff` supports, in Unix seconds: 26 hours before the end of 9999.
const LAST: i64 = 253_402_207_199;
/// 400 years of the Gregorian calendar in seconds: after this time weekdays and time zone rules
/// repeat.
const CYCLE: i64 = 146_097 * 86_400;
/// The rule for a POSIX specification that names daylight saving time without a rule.
const DEFAULT_RULE: &str = ",M3.2.0,M11.1.0";

/// The session's time zone. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone(pub(crate) TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl Zone {
    /// Returns UTC.
    pub fn utc() -> Self {
        Self::default()
    }

    /// Returns the zone with that name: from the IANA database, or a POSIX specification such as
    /// `UTC+3`, which is west of UTC.
    pub fn named(name: &str) -> Option<Self> {
        Self::shown(name.trim_matches(is_space)).map(|(zone, _)| zone)
    }

    /// Parses the value of `SET TIME ZONE`: a number of hours east of UTC, else a name. Returns the
    /// zone and the text for SHOW.
    pub fn setting(value: &str) -> Option<(Self, String)> {
        let value = value.trim_matches(is_space);
        let number = value.strip_prefix(['+', '-']).unwrap_or(value);
        let numeric = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        match value.parse::<f64>().ok().filter(|_| numeric) {
            Some(hours) => {
                let seconds = (hours * 3600.0) as i32;
                let digits = offset_text(i64::from(seconds.abs()));
                let (east, west) = if seconds < 0 { ('-', '+') } else { ('+', '-') };
                Some((Self::fixed(i64::from(seconds))?, format!("<{east}{digits}>{west}{digits}")))
            }
            None => Self::shown(value),
        }
    }

    /// Returns the zone that is `seconds` east of UTC.
    fn fixed(seconds: i64) -> Option<Self> {
        let offset = Offset::from_seconds(i32::try_from(seconds).ok()?).ok()?;
        Some(Self(TimeZone::fixed(offset)))
    }

    /// Returns the zone with that name, and its name as PostgreSQL spells it.
    fn shown(name: &str) -> Option<(Self, String)> {
        if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("gmt") {
            return Some((Self::utc(), name.to_ascii_uppercase()));
        }
        if let Ok(zone) = TimeZone::get(name) {
            let canonical = zone.iana_name().unwrap_or(name).to_owned();
            return Some((Self(zone), canonical));
        }
        let upper = name.to_ascii_uppercase();
        // An offset without a name, or after a name in angle brackets.
        let labelled = name.strip_prefix('<').and_then(|n| n.split_once('>')).map(|(_, west)| west);
        if let Some(west) = labelled.or_else(|| name.starts_with(['+', '-']).then_some(name)) {
            let seconds = clock(west.strip_prefix(['+', '-']).unwrap_or(west))?;
            return Some((
                Self::fixed(if west.starts_with('-') { seconds } else { -seconds })?,
                upper,
            ));
        }
        let posix = |spec: &str| TimeZone::posix(spec).ok();
        let digits = upper.bytes().any(|b| b.is_ascii_digit());
        let zone = posix(&upper)
            .or_else(|| posix(&format!("{upper}{DEFAULT_RULE}")))
            .filter(|_| digits)?;
        Some((Self(zone), upper))
    }

    /// Returns the seconds east of UTC at a moment. After the end of the zone database, its last
    /// rules continue.
    pub(super) fn offset_at(&self, micros: i64) -> i64 {
        let seconds = (micros.div_euclid(SECOND) + EPOCH).max(-377_705_023_201);
        let beyond = (seconds - LAST).max(0);
        let seconds = seconds - (beyond + CYCLE - 1) / CYCLE * CYCLE;
        jiff::Timestamp::from_second(seconds)
            .map_or(0, |t| i64::from(self.0.to_offset(t).seconds()))
    }
}

/// Parses `H`, `H:MM` or `H:MM:SS` to seconds.
fn clock(text: &str) -> Option<i64> {
    let mut seconds = 0;
    let parts: Vec<&str> = text.split(':').collect();
    for (part, unit) in parts.iter().zip([3600, 60, 1]) {
        let plain = (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        let value = part.parse::<i64>().ok().filter(|v| plain && (unit == 3600 || *v < 60))?;
        seconds += value * unit;
    }
    (parts.len() <= 3).then_some(seconds)
}

/// Converts a moment to local time.
pub(crate) fn to_local(micros: i64, zone: &Zone) -> i64 {
    if is_infinite(micros) {
        micros
    } else {
        micros.saturating_add(zone.offset_at(micros) * SECOND)
    }
}

/// Converts a local time to UTC. As in PostgreSQL, a time in a gap uses the offset before the gap,
/// and a time in a fold the offset after it.
pub(crate) fn to_utc(local: i64, zone: &Zone) -> i64 {
    if is_infinite(local) {
        return local;
    }
    let by_offset_at = |when: i64| local.saturating_sub(zone.offset_at(when) * SECOND);
    let after = by_offset_at(local.saturating_add(DAY));
    if to_local(after, zone) == local { after } else { by_offset_at(local.saturating_sub(DAY)) }
}

/// Formats a non-negative offset as `HH`, `HH:MM` or `HH:MM:SS`.
fn offset_text(seconds: i64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (minutes, rest) {
        (0, 0) => format!("{hours:02}"),
        (_, 0) => format!("{hours:02}:{minutes:02}"),
        _ => format!("{hours:02}:{minutes:02}:{rest:02}"),
    }
}

/// The meaning of an abbreviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Abbreviation {
    /// Seconds east of UTC.
    Fixed(i64),
    /// An offset that depends on the date.
    Dynamic,
}

/// Looks up an abbreviation, ignoring case; `None` if it is not one.
pub(super) fn abbreviation(word: &str) -> Option<Abbreviation> {
    let upper = word.to_ascii_uppercase();
    if let Ok(at) = FIXED.binary_search_by(|(name, _)| (*name).cmp(&upper)) {
        return Some(Abbreviation::Fixed(i64::from(FIXED[at].1) * 60));
    }
    DYNAMIC.binary_search(&&*upper).is_ok().then_some(Abbreviation::Dynamic)
}

/// Minutes east of UTC, sorted by name.
#[rustfmt::skip]
const FIXED: &[(&str, i32)] = &[
    ("ACDT", 630), ("ACSST", 630), ("ACST", 570), ("ACT", -300), ("ACWST", 525), ("ADT", -180),
    ("AEDT", 660), ("AESST", 660), ("AEST", 600), ("AFT", 270), ("AKDT", -480), ("AKST", -540),
    ("ALMST", 420), ("ALMT", 360), ("AMT", -240), ("AST", -240), ("AWSST", 540), ("AWST", 480),
    ("AZOST", 0), ("AZOT", -60), ("BDST", 120), ("BDT", 360), ("BNT", 480), ("BORT", 480),
    ("BOT", -240), ("BRA", -180), ("BRST", -120), ("BRT", -180), ("BST", 60), ("BTT", 360),
    ("CADT", 630), ("CAST", 570), ("CCT", 480), ("CDT", -300), ("CEST", 120), ("CET", 60),
    ("CETDST", 120), ("CHADT", 825), ("CHAST", 765), ("CHUT", 600), ("CLST", -180), ("COT", -300),
    ("CST", -360), ("CXT", 420), ("DDUT", 600), ("EAT", 180), ("EDT", -240), ("EEST", 180),
    ("EET", 120), ("EETDST", 180), ("EGST", 0), ("EGT", -60), ("EST", -300), ("FET", 180),
    ("FJST", 780), ("FJT", 720), ("FNST", -60), ("FNT", -120), ("GALT", -360), ("GAMT", -540),
    ("GFT", -180), ("GILT", 720), ("GMT", 0), ("HKT", 480), ("HST", -600), ("ICT", 420),
    ("IDT", 180), ("IRT", 210), ("IST", 120), ("JAYT", 540), ("JST", 540), ("KDT", 600),
    ("KGST", 360), ("KST", 540), ("LHST", 630), ("LIGT", 600), ("MART", -570), ("MDT", -360),
    ("MEST", 120), ("MESZ", 120), ("MET", 60), ("METDST", 120), ("MEZ", 60), ("MHT", 720),
    ("MMT", 390), ("MPT", 600), ("MSD", 240), ("MST", -420), ("MUST", 300), ("MUT", 240),
    ("MVT", 300), ("MYT", 480), ("NDT", -150), ("NFT", -210), ("NPT", 345), ("NST", -210),
    ("NZDT", 780), ("NZST", 720), ("NZT", 720), ("PDT", -420), ("PET", -300), ("PGT", 600),
    ("PHT", 480), ("PKST", 360), ("PKT", 300), ("PMDT", -120), ("PMST", -180), ("PONT", 660),
    ("PST", -480), ("PWT", 540), ("PYST", -180), ("RET", 240), ("SADT", 630), ("SAST", 120),
    ("SCT", 240), ("TAHT", -600), ("TFT", 300), ("TJT", 300), ("TOT", 780), ("TRUT", 600),
    ("TVT", 720), ("UCT", 0), ("ULAST", 540), ("UT", 0), ("UTC", 0), ("UYST", -120), ("UYT", -180),
    ("UZST", 360), ("UZT", 300), ("VUT", 660), ("WADT", 480), ("WAKT", 720), ("WAST", 420),
    ("WAT", 60), ("WDT", 540), ("WET", 0), ("WETDST", 60), ("WFT", 720), ("WGST", -120),
    ("WGT", -180), ("XJT", 360), ("YAPT", 600), ("YEKST", 360), ("Z", 0), ("ZULU", 0),
];

/// Sorted.
#[rustfmt::skip]
const DYNAMIC: &[&str] = &[
    "AMST", "ANAST", "ANAT", "ARST", "ART", "AZST", "AZT", "CKT", "CLT", "DAVT", "EASST", "EAST",
    "FKST", "FKT", "GEST", "GET", "GYT", "IOT", "IRKST", "IRKT", "KGT", "KOST", "KRAST", "KRAT",
    "LHDT", "LINT", "LKT", "MAGST", "MAGT", "MAWT", "MSK", "NOVST", "NOVT", "NUT", "OMSST", "OMST",
    "PETST", "PETT", "PYT", "SGT", "TKT", "TMT", "ULAT", "VET", "VLAST", "VLAT", "VOLT", "YAKST",
    "YAKT", "YEKT",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abbreviations_are_sorted() {
        assert!(FIXED.is_sorted() && DYNAMIC.is_sorted());
        assert_eq!(abbreviation("pdt"), Some(Abbreviation::Fixed(-7 * 3600)));
        assert_eq!((abbreviation("MSK"), abbreviation("xyz")), (Some(Abbreviation::Dynamic), None));
    }

    #[test]
    fn posix_offsets_are_west_of_utc_and_numbers_east() {
        for (value, shown, seconds) in [
            ("+02:00", "+02:00", -7200),
            ("-05:30", "-05:30", 19_800),
            ("+02", "<+02>-02", 7200),
            ("-5", "<-05>+05", -18_000),
            ("5.5", "<+05:30>-05:30", 19_800),
            ("0", "<+00>-00", 0),
            ("UTC+3", "UTC+3", -10_800),
            ("foo-3", "FOO-3", 10_800),
            ("<+05:30>-05:30", "<+05:30>-05:30", 19_800),
            ("<x>3", "<X>3", -10_800),
            ("utc", "UTC", 0),
        ] {
            let (zone, name) = Zone::setting(value).unwrap_or_else(|| panic!("{value}"));
            assert_eq!((name.as_str(), zone.offset_at(0)), (shown, seconds), "{value}");
        }
        for value in ["", "PDT", "FOO", "+", "+02:60", "1e1", "nan"] {
            assert_eq!(Zone::setting(value), None, "{value}");
        }
    }
}

//! Dates and timestamps as text: days and microseconds since 2000-01-01, ISO form, the proleptic Gregorian calendar.

use super::is_space;
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use jiff::tz::TimeZone;

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;
/// 2000-01-01 in seconds of the Unix epoch.
const EPOCH: i64 = 946_684_800;
/// The moments that PostgreSQL's timestamps hold: 4714-11-24 BC to 294276-12-31 AD.
const RANGE: std::ops::Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;
/// The years that local times within the range may have.
const YEARS: std::ops::RangeInclusive<i64> = -4713..=294_277;

/// The last year that PostgreSQL's dates hold.
const LAST_YEAR: i64 = 5_874_897;

/// The session's time zone. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone(pub(crate) TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl Zone {
    /// UTC.
    pub fn utc() -> Self {
        Self::default()
    }
    /// The zone of that name (IANA, `UTC`, or an offset such as `+02`); `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim_matches(is_space);
        if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("gmt") || name.eq_ignore_ascii_case("z") {
            return Some(Self::utc());
        }
        if name.starts_with(['+', '-']) {
            let (seconds, rest) = offset(name)?;
            let fixed = jiff::tz::Offset::from_seconds(i32::try_from(seconds).ok()?).ok()?;
            return rest.is_empty().then(|| Self(TimeZone::fixed(fixed)));
        }
        TimeZone::get(name).ok().map(Self)
    }
    /// Seconds east of UTC at a moment; beyond the year 9999 as in 9999.
    fn offset_at(&self, micros: i64) -> i64 {
        let seconds = (micros.div_euclid(SECOND) + EPOCH).clamp(-377_705_023_201, 253_402_207_199);
        jiff::Timestamp::from_second(seconds).map_or(0, |t| i64::from(self.0.to_offset(t).seconds()))
    }
}

/// Local time of a moment.
pub(crate) fn to_local(micros: i64, zone: &Zone) -> i64 {
    if is_infinite(micros) { micros } else { micros.saturating_add(zone.offset_at(micros) * SECOND) }
}

/// The moment of a local time: in a gap by the offset before it, in a fold by the offset after it, as PostgreSQL.
pub(crate) fn to_utc(local: i64, zone: &Zone) -> i64 {
    if is_infinite(local) {
        return local;
    }
    let by_offset_at = |when: i64| local.saturating_sub(zone.offset_at(when) * SECOND);
    let after = by_offset_at(local.saturating_add(DAY));
    if to_local(after, zone) == local { after } else { by_offset_at(local.saturating_sub(DAY)) }
}

/// A timestamp that was computed; 22008 if there is none such.
pub fn checked(micros: i64) -> SqlResult<i64> {
    if is_infinite(micros) || RANGE.contains(&micros) {
        return Ok(micros);
    }
    Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range"))
}

fn is_infinite(v: i64) -> bool {
    v == i64::MAX || v == i64::MIN
}

/// Days from 2000-01-01 of a civil date (Howard Hinnant's algorithm); year 0 is 1 BC.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 730_425
}

/// The inverse of [`days_from_civil`].
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 730_425;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

/// The local time at which a date begins; `None`: no timestamp holds it.
pub(crate) fn midnight(days: i32) -> Option<i64> {
    match days {
        i32::MAX => Some(i64::MAX),
        i32::MIN => Some(i64::MIN),
        days => i64::from(days).checked_mul(DAY).filter(|local| RANGE.contains(local)),
    }
}

/// The date of a local time.
pub(crate) fn date_of(local: i64) -> i32 {
    match local {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        local => local.div_euclid(DAY) as i32,
    }
}

/// Whether PostgreSQL has a date so many days after 2000-01-01.
pub fn is_date(days: i64) -> bool {
    let last = days_from_civil(LAST_YEAR, 12, 31);
    (RANGE.start / DAY..=last).contains(&days)
}

/// Appends the ISO form of a date.
pub(super) fn write_date(out: &mut Vec<u8>, days: i32) {
    if days == i32::MAX || days == i32::MIN {
        return out.extend_from_slice(if days > 0 { b"infinity" } else { b"-infinity" });
    }
    let (year, month, day) = civil_from_days(i64::from(days));
    padded(out, if year > 0 { year } else { 1 - year }, 4);
    for value in [month, day] {
        out.push(b'-');
        padded(out, value, 2);
    }
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// Appends the ISO form; with a zone, local time and offset.
pub(super) fn write(out: &mut Vec<u8>, micros: i64, zone: Option<&Zone>) {
    if is_infinite(micros) {
        return out.extend_from_slice(if micros > 0 { b"infinity" } else { b"-infinity" });
    }
    let local = zone.map_or(micros, |z| to_local(micros, z));
    let (year, month, day) = civil_from_days(local.div_euclid(DAY));
    let time = local.rem_euclid(DAY);
    padded(out, if year > 0 { year } else { 1 - year }, 4);
    for (mark, value) in
        [(b'-', month), (b'-', day), (b' ', time / HOUR), (b':', time / MINUTE % 60), (b':', time / SECOND % 60)]
    {
        out.push(mark);
        padded(out, value, 2);
    }
    if time % SECOND != 0 {
        out.push(b'.');
        padded(out, time % SECOND, 6);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
    if let Some(zone) = zone {
        let offset = zone.offset_at(micros);
        out.push(if offset < 0 { b'-' } else { b'+' });
        let offset = offset.abs();
        padded(out, offset / 3600, 2);
        if offset % 3600 != 0 {
            out.push(b':');
            padded(out, offset / 60 % 60, 2);
        }
        if offset % 60 != 0 {
            out.push(b':');
            padded(out, offset % 60, 2);
        }
    }
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

fn padded(out: &mut Vec<u8>, v: i64, width: usize) {
    let start = out.len();
    super::number::write_int(out, v);
    let have = out.len() - start;
    for _ in have..width {
        out.insert(start, b'0');
    }
}

/// Reads a timestamp; with a zone, the moment that it means there unless it says an offset itself.
pub(super) fn parse(text: &str, ty: SqlType, zone: Option<&Zone>) -> SqlResult<i64> {
    debug_assert!(matches!(ty, SqlType::Timestamp | SqlType::Timestamptz));
    let short = if zone.is_some() { "timestamp with time zone" } else { "timestamp" };
    let fields = match read(text, short)? {
        Read::Word(local) => return Ok(local),
        Read::Fields(fields) => fields,
    };
    let local = fields.local().ok_or_else(|| out_of_range(text))?;
    let held = |micros: i64| if RANGE.contains(&micros) { Ok(micros) } else { Err(out_of_range(text)) };
    let Some(session) = zone else { return held(local) };
    let rest = fields.zone.trim_matches(is_space);
    if rest.is_empty() {
        return held(to_utc(local, session));
    }
    let named = Zone::named(rest)
        .ok_or_else(|| SqlError::new(SqlState::INVALID_PARAMETER, format!("time zone \"{rest}\" not recognized")))?;
    held(to_utc(local, &named))
}

/// Reads a date; a time of day behind it is read and dropped.
pub(super) fn parse_date(text: &str) -> SqlResult<i32> {
    match read(text, "date")? {
        Read::Word(local) => Ok(date_of(local)),
        Read::Fields(fields) => {
            let days = fields.time_of_day().and(fields.days()).ok_or_else(|| out_of_range(text))?;
            if !is_date(days) {
                return Err(SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date out of range: \"{text}\"")));
            }
            Ok(days as i32)
        }
    }
}

enum Read<'a> {
    /// A word for a moment.
    Word(i64),
    Fields(Fields<'a>),
}

fn read<'a>(text: &'a str, short: &str) -> SqlResult<Read<'a>> {
    let word = text.trim_matches(is_space);
    match word.to_ascii_lowercase().as_str() {
        "infinity" | "+infinity" => return Ok(Read::Word(i64::MAX)),
        "-infinity" => return Ok(Read::Word(i64::MIN)),
        "epoch" => return Ok(Read::Word(-EPOCH * SECOND)),
        _ => {}
    }
    let (body, before_christ) = match word.len().checked_sub(2).and_then(|at| word.split_at_checked(at)) {
        Some((head, tail)) if tail.eq_ignore_ascii_case("bc") => (head.trim_end_matches(is_space), true),
        _ => (word, false),
    };
    match fields(body) {
        Some(fields) => Ok(Read::Fields(Fields { before_christ, ..fields })),
        None => {
            let text = format!("invalid input syntax for type {short}: \"{text}\"");
            Err(SqlError::new(SqlState::INVALID_DATETIME, text))
        }
    }
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

struct Fields<'a> {
    before_christ: bool,
    date: (i64, i64, i64),
    time: (i64, i64, i64),
    micros: i64,
    zone: &'a str,
}

impl Fields<'_> {
    fn year(&self) -> i64 {
        if self.before_christ { 1 - self.date.0 } else { self.date.0 }
    }

    fn local(&self) -> Option<i64> {
        if !YEARS.contains(&self.year()) {
            return None;
        }
        self.days()?.checked_mul(DAY)?.checked_add(self.time_of_day()?)
    }

    fn time_of_day(&self) -> Option<i64> {
        let (hour, minute, second) = self.time;
        let midnight = (hour, minute, second, self.micros) == (24, 0, 0, 0);
        let good = (hour < 24 || midnight) && minute < 60 && (second < 60 || second == 60 && self.micros == 0);
        good.then_some(hour * HOUR + minute * MINUTE + second * SECOND + self.micros)
    }

    fn days(&self) -> Option<i64> {
        let (_, month, day) = self.date;
        let year = self.year();
        if self.date.0 == 0 || !(1..=12).contains(&month) || day < 1 {
            return None;
        }
        let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        let days = days_from_civil(year, month, day);
        (days < days_from_civil(next.0, next.1, 1)).then_some(days)
    }
}

fn fields(text: &str) -> Option<Fields<'_>> {
    let (year, rest) = digits(text, 7)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let date = (year, month, day);
    let trimmed = rest.trim_start_matches(is_space);
    let clock = trimmed.strip_prefix(['T', 't']).unwrap_or(trimmed);
    let Some((hour, rest)) = digits(clock, 2) else {
        return zone_shaped(trimmed).then_some(Fields {
            before_christ: false,
            date,
            time: (0, 0, 0),
            micros: 0,
            zone: trimmed,
        });
    };
    let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (mut second, mut micros, mut zone) = (0, 0, rest);
    if let Some(rest) = rest.strip_prefix(':') {
        (second, zone) = digits(rest, 2)?;
        if let Some(rest) = zone.strip_prefix('.') {
            let end = rest.bytes().take_while(u8::is_ascii_digit).count();
            let fraction: f64 = format!("0.{}", &rest[..end]).parse().ok()?;
            micros = (fraction * 1e6).round_ties_even() as i64;
            zone = &rest[end..];
        }
    }
    zone_shaped(zone).then_some(Fields { before_christ: false, date, time: (hour, minute, second), micros, zone })
}

fn zone_shaped(text: &str) -> bool {
    let text = text.trim_matches(is_space);
    if text.starts_with(['+', '-']) {
        return offset(text).is_some_and(|(_, rest)| rest.is_empty());
    }
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+'))
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// `+HH`, `+HH:MM`, `+HHMM`, `+HH:MM:SS` in seconds, and what follows.
fn offset(text: &str) -> Option<(i64, &str)> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let body = &text[1..];
    let run = body.bytes().take_while(u8::is_ascii_digit).count();
    if run == 4 {
        let (both, rest) = digits(body, 4)?;
        return Some((sign * (both / 100 * 3600 + both % 100 * 60), rest));
    }
    let (hours, mut rest) = digits(body, 2)?;
    let mut seconds = hours * 3600;
    for unit in [60, 1] {
        if let Some(more) = rest.strip_prefix(':') {
            let (value, tail) = digits(more, 2)?;
            seconds += value * unit;
            rest = tail;
        }
    }
    (seconds < 16 * 3600).then_some((sign * seconds, rest))
}

fn digits(text: &str, most: usize) -> Option<(i64, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    if end == 0 || end > most {
        return None;
    }
    Some((text[..end].parse().ok()?, &text[end..]))
}

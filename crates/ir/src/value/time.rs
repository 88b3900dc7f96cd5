//! Dates and timestamps: days and microseconds since 2000-01-01 in the proleptic Gregorian
//! calendar, and their ISO text form.

use super::zone::{Zone, to_local};
use clearway_types::{SqlError, SqlResult, SqlState};

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;
/// 2000-01-01 in Unix seconds.
pub(super) const EPOCH: i64 = 946_684_800;
/// The range of PostgreSQL's timestamps: 4714-11-24 BC to 294276-12-31 AD.
pub(super) const RANGE: std::ops::Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;
/// The last year of PostgreSQL's dates.
const LAST_YEAR: i64 = 5_874_897;

/// Checks a computed timestamp; 22008 if it is out of range.
pub fn checked(micros: i64) -> SqlResult<i64> {
    if is_infinite(micros) || RANGE.contains(&micros) {
        return Ok(micros);
    }
    Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range"))
}

pub(crate) fn is_infinite(v: i64) -> bool {
    v == i64::MAX || v == i64::MIN
}

/// Converts a civil date to days since 2000-01-01 (Howard Hinnant's algorithm); year 0 is 1 BC.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 730_425
}

/// Converts days since 2000-01-01 to a civil date: the inverse of [`days_from_civil`].
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

/// Returns the local time at which a date begins; `None` if it is out of the range of timestamps.
pub(crate) fn midnight(days: i32) -> Option<i64> {
    match days {
        i32::MAX => Some(i64::MAX),
        i32::MIN => Some(i64::MIN),
        days => i64::from(days).checked_mul(DAY).filter(|local| RANGE.contains(local)),
    }
}

/// Returns the date of a local time.
pub(crate) fn date_of(local: i64) -> i32 {
    match local {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        local => local.div_euclid(DAY) as i32,
    }
}

/// Returns true if PostgreSQL has a date `days` days after 2000-01-01.
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

/// Appends the ISO form; with a zone, the local time and the offset.
pub(super) fn write(out: &mut Vec<u8>, micros: i64, zone: Option<&Zone>) {
    if is_infinite(micros) {
        return out.extend_from_slice(if micros > 0 { b"infinity" } else { b"-infinity" });
    }
    let local = zone.map_or(micros, |z| to_local(micros, z));
    let (year, month, day) = civil_from_days(local.div_euclid(DAY));
    let time = local.rem_euclid(DAY);
    padded(out, if year > 0 { year } else { 1 - year }, 4);
    for (mark, value) in [
        (b'-', month),
        (b'-', day),
        (b' ', time / HOUR),
        (b':', time / MINUTE % 60),
        (b':', time / SECOND % 60),
    ] {
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

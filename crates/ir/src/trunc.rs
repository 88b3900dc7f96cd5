//! date_trunc().

use crate::operand::Value;
use crate::value::{
    DAY, HOUR, MAX_NAME, MINUTE, SECOND, Zone, checked_timestamp, civil_from_days, days_from_civil,
    is_infinite, to_local, to_utc,
};
use clearway_types::{DatumRef, SqlError, SqlResult, SqlState};

/// The units, from short to long.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

/// Truncates a timestamp.
///
/// A moment is truncated in local time. For an hour and less it keeps its offset from UTC: the
/// local time alone would be ambiguous in the hour that clocks repeat. For a day and more, the
/// offset is that of the result.
///
/// Source: PostgreSQL's `timestamptz_trunc_internal`.
pub(crate) fn date_trunc<'a>(
    unit: DatumRef<'_>,
    value: DatumRef<'_>,
    zone: &Zone,
) -> SqlResult<Value<'a>> {
    let DatumRef::Text(name) = unit else { return Ok(Value::NULL) };
    Ok(Value::Ref(match value {
        DatumRef::Timestamp(v) if is_infinite(v) => DatumRef::Timestamp(v),
        DatumRef::Timestamptz(v) if is_infinite(v) => DatumRef::Timestamptz(v),
        DatumRef::Timestamp(v) => {
            let v = truncate(unit_of(name, "timestamp without time zone")?, v);
            DatumRef::Timestamp(checked_timestamp(v)?)
        }
        DatumRef::Timestamptz(v) => {
            let unit = unit_of(name, "timestamp with time zone")?;
            let local = to_local(v, zone);
            let truncated = truncate(unit, local);
            let keeps_offset = unit <= Unit::Hour;
            let v = if keeps_offset { v - (local - truncated) } else { to_utc(truncated, zone) };
            DatumRef::Timestamptz(checked_timestamp(v)?)
        }
        _ => return Err(SqlError::internal("date_trunc of a value that is not a timestamp")),
    }))
}

/// Truncates a finite local time, in microseconds since 2000-01-01.
fn truncate(unit: Unit, v: i64) -> i64 {
    let step = |n: i64| v.div_euclid(n) * n;
    let (year, month, _) = civil_from_days(v.div_euclid(DAY));
    let first = |y: i64, m: i64| days_from_civil(y, m, 1) * DAY;
    let first_of = |years: i64| first((year - 1).div_euclid(years) * years + 1, 1);
    match unit {
        Unit::Microsecond => v,
        Unit::Millisecond => step(1000),
        Unit::Second => step(SECOND),
        Unit::Minute => step(MINUTE),
        Unit::Hour => step(HOUR),
        Unit::Day => step(DAY),
        // 2000-01-01 was a Saturday, two days before a Monday.
        Unit::Week => (v.div_euclid(DAY) - 2).div_euclid(7) * 7 * DAY + 2 * DAY,
        Unit::Month => first(year, month),
        Unit::Quarter => first(year, (month - 1) / 3 * 3 + 1),
        Unit::Year => first(year, 1),
        Unit::Decade => first(year.div_euclid(10) * 10, 1),
        Unit::Century => first_of(100),
        Unit::Millennium => first_of(1000),
    }
}

/// Returns the unit of this name. Letter case does not matter, nor do letters after the tenth.
///
/// Source: PostgreSQL's `DecodeUnits` and its table `deltatktbl`.
fn unit_of(name: &str, ty: &str) -> SqlResult<Unit> {
    let name = name[..name.floor_char_boundary(MAX_NAME)].to_ascii_lowercase();
    Ok(match &name[..name.floor_char_boundary(10)] {
        "us" | "usec" | "usecs" | "useconds" | "microsecon" => Unit::Microsecond,
        "ms" | "msec" | "msecs" | "mseconds" | "millisecon" => Unit::Millisecond,
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
        "d" | "day" | "days" => Unit::Day,
        "w" | "week" | "weeks" => Unit::Week,
        "mon" | "mons" | "month" | "months" => Unit::Month,
        "qtr" | "quarter" => Unit::Quarter,
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
        "dec" | "decs" | "decade" | "decades" => Unit::Decade,
        "c" | "cent" | "century" | "centuries" => Unit::Century,
        "mil" | "mils" | "millennia" | "millennium" => Unit::Millennium,
        "timezone" | "timezone_h" | "timezone_m" => {
            let text = format!("unit \"{name}\" not supported for type {ty}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
        }
        _ => {
            let text = format!("unit \"{name}\" not recognized for type {ty}");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, text));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truncates a moment given in minutes since 2024-11-03 00:00 UTC; New York's clocks go back at
    /// 06:00 UTC, from 02:00 to 01:00.
    fn in_new_york(unit: &str, minutes: i64) -> i64 {
        let zone = Zone::named("America/New_York").unwrap();
        let start = days_from_civil(2024, 11, 3) * DAY;
        let moment = DatumRef::Timestamptz(start + minutes * MINUTE);
        match date_trunc(DatumRef::Text(unit), moment, &zone).unwrap().as_ref() {
            DatumRef::Timestamptz(v) => (v - start) / MINUTE,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_repeated_hour_keeps_its_offset() {
        // 01:30 for the first and for the second time.
        for (minutes, hour) in [(330, 300), (390, 360)] {
            assert_eq!(in_new_york("hour", minutes), hour);
            for unit in ["minute", "second", "millisecond", "microsecond"] {
                assert_eq!(in_new_york(unit, minutes), minutes, "{unit}");
            }
            // 00:00 -04.
            assert_eq!(in_new_york("day", minutes), 240);
        }
        // 01:30 -05 of the next day: the month began with -04.
        let day_later = 390 + 24 * 60;
        assert_eq!(in_new_york("month", day_later), 240 - 2 * 24 * 60);
        assert_eq!(in_new_york("day", day_later), 300 + 24 * 60);
    }

    #[test]
    fn infinity_is_not_truncated() {
        for v in [i64::MIN, i64::MAX] {
            let at = DatumRef::Timestamptz(v);
            assert_eq!(date_trunc(DatumRef::Text("x"), at, &Zone::utc()).unwrap().as_ref(), at);
        }
    }
}

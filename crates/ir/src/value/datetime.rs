//! Parses dates and timestamps: the grammar of PostgreSQL's `DecodeDateTime` with DateStyle `ISO,
//! MDY`.
//!
//! The text is split into fields, and the fields before it determine the meaning of each: `Jan 8,
//! 1999`, `01-02-03` (month, day, year), `20240229`, `1999.008`, `J2451187`, `12:30 PM`. Words for
//! the present moment (`now`, `today`) are rejected: a literal is parsed when a statement is
//! planned, and a plan may be reused.

use super::fields::{
    Bad, Done, Kind, Prefix, Word, fields, integer, leading_digits, micros, offset, word,
};
use super::time::{
    DAY, HOUR, MINUTE, RANGE, SECOND, civil_from_days, date_of, days_from_civil, is_date,
};
use super::zone::{Abbreviation, Zone, abbreviation, to_utc};
use clearway_types::{SqlError, SqlResult, SqlState};

/// Julian day of 2000-01-01.
const JULIAN_EPOCH: i64 = 2_451_545;
/// The last year that PostgreSQL converts to a day.
const LAST_YEAR: i64 = 5_874_898;

/// Parses a timestamp. With a zone, returns the moment in that zone unless the text has its own
/// offset.
pub(super) fn timestamp(text: &str, zone: Option<&Zone>) -> SqlResult<i64> {
    let ty = if zone.is_some() { "timestamp with time zone" } else { "timestamp" };
    let moment = match read(text).map_err(|e| e.reported(text, ty))? {
        Read::Moment(at) => return Ok(at),
        Read::Fields(moment) => moment,
    };
    let out = || {
        SqlError::new(SqlState::DATETIME_OVERFLOW, format!("timestamp out of range: \"{text}\""))
    };
    let local =
        moment.days().and_then(|d| d.checked_mul(DAY)?.checked_add(moment.time)).ok_or_else(out)?;
    let at = match (zone, &moment.zone) {
        (None, _) => local,
        (Some(session), None) => to_utc(local, session),
        (Some(_), Some(Place::Zone(named))) => to_utc(local, named),
        (Some(_), Some(Place::Offset(seconds))) => {
            local.checked_sub(seconds * SECOND).ok_or_else(out)?
        }
    };
    if RANGE.contains(&at) { Ok(at) } else { Err(out()) }
}

/// Parses a date; a time of day is parsed and ignored.
pub(super) fn date(text: &str) -> SqlResult<i32> {
    match read(text).map_err(|e| e.reported(text, "date"))? {
        Read::Moment(at) => Ok(date_of(at)),
        Read::Fields(moment) => {
            let days = moment.days().filter(|d| is_date(*d));
            days.map(|d| d as i32).ok_or_else(|| {
                SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date out of range: \"{text}\""))
            })
        }
    }
}

enum Read {
    /// `infinity`, `-infinity`, `epoch`.
    Moment(i64),
    Fields(Decoded),
}

/// A civil date, a time of day in microseconds, and the zone.
struct Decoded {
    year: i64,
    month: i64,
    day: i64,
    time: i64,
    zone: Option<Place>,
}

enum Place {
    /// Seconds east of UTC.
    Offset(i64),
    Zone(Zone),
}

impl Decoded {
    /// Returns the days since 2000-01-01; `None` if no date has this year.
    fn days(&self) -> Option<i64> {
        let low = self.year > -4713 || self.year == -4713 && self.month >= 11;
        (low && self.year < LAST_YEAR).then(|| days_from_civil(self.year, self.month, self.day))
    }
}

fn read(text: &str) -> Done<Read> {
    let mut d = Decoder::default();
    for (kind, field) in fields(text).ok_or(Bad::Format)? {
        let taken = d.field(kind, &field)?;
        if d.seen & taken != 0 {
            return Err(Bad::Format);
        }
        d.seen |= taken;
    }
    if d.prefix.is_some() {
        return Err(Bad::Format);
    }
    d.finish()
}

/// The parts that have been determined: bits of `Decoder::seen`.
mod bit {
    pub const YEAR: u32 = 1;
    pub const MONTH: u32 = 2;
    pub const DAY: u32 = 4;
    pub const MONTH_DAY: u32 = MONTH | DAY;
    pub const DATE: u32 = YEAR | MONTH | DAY;
    pub const TIME: u32 = 8;
    pub const ZONE: u32 = 16;
    pub const DAY_OF_YEAR: u32 = 32;
    pub const WEEKDAY: u32 = 64;
    pub const AFTERNOON: u32 = 128;
    pub const ERA: u32 = 256;
    pub const SPECIAL: u32 = 512;
}

#[derive(Default)]
struct Decoder {
    seen: u32,
    prefix: Option<Prefix>,
    special: Option<i64>,
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    text_month: bool,
    short_year: bool,
    julian: bool,
    before_christ: bool,
    afternoon: Option<bool>,
    zone: Option<Place>,
}

impl Decoder {
    /// Parses one field; returns the bits that it determines.
    fn field(&mut self, kind: Kind, field: &str) -> Done<u32> {
        match kind {
            Kind::Date => self.date_field(field),
            Kind::Time => {
                if self.prefix.take().is_some_and(|p| p != Prefix::Time) {
                    return Err(Bad::Format);
                }
                self.clock(field)?;
                Ok(bit::TIME)
            }
            Kind::Offset => {
                self.zone = Some(Place::Offset(offset(field)?));
                Ok(bit::ZONE)
            }
            Kind::Number => self.number_field(field),
            Kind::Word => self.word_field(field),
        }
    }

    fn date_field(&mut self, field: &str) -> Done<u32> {
        if self.prefix == Some(Prefix::Julian) {
            let (digits, rest) = field.split_at(leading_digits(field));
            if !rest.starts_with('-') {
                return Err(Bad::Format);
            }
            self.julian_day(integer(digits)?)?;
            self.zone = Some(Place::Offset(offset(rest)?));
            self.prefix = None;
            return Ok(bit::DATE | bit::TIME | bit::ZONE);
        }
        if self.seen & bit::MONTH_DAY != bit::MONTH_DAY && self.prefix.is_none() {
            return self.date(field);
        }
        if !field.starts_with(|c: char| c.is_ascii_digit()) && self.prefix.is_none() {
            // PostgreSQL takes nearly every word followed by digits for a POSIX zone.
            let strange = field.bytes().any(|b| b.is_ascii_digit());
            let unknown = || match strange {
                true => Bad::Unsupported(format!("the time zone \"{field}\" in a text")),
                false => Bad::Zone(field.to_owned()),
            };
            self.zone = Some(Place::Zone(Zone::named(field).ok_or_else(unknown)?));
            return Ok(bit::ZONE);
        }
        if self.prefix.take().is_some_and(|p| p != Prefix::Time) || self.seen & bit::TIME != 0 {
            return Err(Bad::Format);
        }
        // A time without separators, with its offset: `040506-08`.
        let (time, zone) = field.split_at(field.find('-').ok_or(Bad::Format)?);
        self.zone = Some(Place::Offset(offset(zone)?));
        Ok(self.run_together(time, self.seen)? | bit::ZONE)
    }

    fn number_field(&mut self, field: &str) -> Done<u32> {
        match self.prefix.take() {
            Some(Prefix::Julian) => {
                let (digits, rest) = field.split_at(leading_digits(field));
                self.julian_day(integer(digits)?)?;
                if rest.is_empty() {
                    return Ok(bit::DATE);
                }
                let day: f64 = format!("0{rest}").parse().map_err(|_| Bad::Format)?;
                self.micros = (day * DAY as f64) as i64;
                return Ok(bit::DATE | bit::TIME);
            }
            Some(Prefix::Time) => {
                let taken = self.run_together(field, self.seen | bit::DATE)?;
                return if taken == bit::TIME { Ok(taken) } else { Err(Bad::Format) };
            }
            Some(Prefix::Unit) => return Err(Bad::Format),
            None => {}
        }
        let (dated, timed) = (self.seen & bit::DATE != 0, self.seen & bit::TIME != 0);
        match field.find('.') {
            Some(_) if !dated => self.date(field),
            Some(point) if point > 2 => self.run_together(field, self.seen),
            None if field.len() >= 6 && (!dated || !timed) => self.run_together(field, self.seen),
            _ => self.number(field, self.seen),
        }
    }

    fn word_field(&mut self, field: &str) -> Done<u32> {
        match abbreviation(field) {
            Some(Abbreviation::Fixed(seconds)) => {
                self.zone = Some(Place::Offset(seconds));
                return Ok(bit::ZONE);
            }
            Some(Abbreviation::Dynamic) => {
                return Err(Bad::Unsupported(format!("time zone abbreviation \"{field}\"")));
            }
            None => {}
        }
        Ok(match word(field) {
            Some(Word::Month(n)) => return Ok(self.month_word(n)),
            Some(Word::Weekday) => bit::WEEKDAY,
            Some(Word::Ignored) => 0,
            Some(Word::BeforeChrist(bc)) => {
                self.before_christ = bc;
                bit::ERA
            }
            Some(Word::Afternoon(pm)) => {
                self.afternoon = Some(pm);
                bit::AFTERNOON
            }
            Some(Word::Moment(at)) => {
                self.special = Some(at);
                bit::SPECIAL
            }
            Some(Word::Midnight) => {
                self.special = None;
                (self.hour, self.minute, self.second, self.micros) = (0, 0, 0, 0);
                self.zone = Some(Place::Offset(0));
                bit::TIME | bit::ZONE
            }
            Some(Word::Present) => {
                return Err(Bad::Unsupported(format!("the date \"{field}\" in a text")));
            }
            Some(Word::DaylightSaving) => {
                return Err(Bad::Unsupported("DST after a time zone".to_owned()));
            }
            Some(Word::Prefix(prefix)) => {
                let undated = prefix == Prefix::Time && self.seen & bit::DATE != bit::DATE;
                if undated || self.prefix.is_some() {
                    return Err(Bad::Format);
                }
                self.prefix = Some(prefix);
                0
            }
            None => {
                self.zone = Some(Place::Zone(Zone::named(field).ok_or(Bad::Format)?));
                bit::ZONE
            }
        })
    }

    /// Applies a month's name; a number previously taken for the month was the day.
    fn month_word(&mut self, n: i64) -> u32 {
        let swap = self.seen & bit::MONTH != 0 && !self.text_month && self.seen & bit::DAY == 0;
        let swap = swap && (1..=31).contains(&self.month);
        if swap {
            self.day = self.month;
        }
        self.text_month = true;
        self.month = n;
        if swap { bit::DAY } else { bit::MONTH }
    }

    /// `HH:MM`, `HH:MM:SS.f`, `MM:SS.f`.
    fn clock(&mut self, text: &str) -> Done<()> {
        let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
        let parts: Vec<&str> = whole.split(':').collect();
        let values = parts
            .iter()
            .map(|p| integer(if p.is_empty() { "0" } else { p }))
            .collect::<Done<Vec<_>>>()?;
        (self.hour, self.minute, self.second) = match values[..] {
            [minute, second] if !fraction.is_empty() => (0, minute, second),
            [hour, minute] => (hour, minute, 0),
            [hour, minute, second] => (hour, minute, second),
            _ => return Err(Bad::Format),
        };
        self.micros = if fraction.is_empty() { 0 } else { micros(fraction)? };
        let good = self.minute < 60 && self.second <= 60 && self.time() <= DAY && self.hour <= 24;
        if good { Ok(()) } else { Err(Bad::Range) }
    }

    fn time(&self) -> i64 {
        self.hour * HOUR + self.minute * MINUTE + self.second * SECOND + self.micros
    }

    /// Parses parts with separators between them: a month's name and numbers.
    fn date(&mut self, text: &str) -> Done<u32> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
            let digits = rest.starts_with(|c: char| c.is_ascii_digit());
            let end = rest
                .find(|c: char| if digits { !c.is_ascii_digit() } else { !c.is_ascii_alphabetic() })
                .unwrap_or(rest.len());
            if end == 0 {
                return Err(Bad::Format);
            }
            parts.push((digits, &rest[..end]));
            // Skip the separator, whatever it is.
            rest = rest.get(end + 1..).unwrap_or("");
        }
        let (mut taken, mut seen) = (0, self.seen);
        for (_, name) in parts.iter().filter(|(digits, _)| !digits) {
            match word(name) {
                Some(Word::Month(n)) if seen & bit::MONTH == 0 => {
                    self.month = n;
                    self.text_month = true;
                    (taken, seen) = (taken | bit::MONTH, seen | bit::MONTH);
                }
                _ => return Err(Bad::Format),
            }
        }
        for (_, number) in parts.iter().filter(|(digits, _)| *digits) {
            let new = self.number(number, seen)?;
            if seen & new != 0 {
                return Err(Bad::Format);
            }
            (taken, seen) = (taken | new, seen | new);
        }
        if seen & !(bit::DAY_OF_YEAR | bit::ZONE) == bit::DATE {
            Ok(taken)
        } else {
            Err(Bad::Format)
        }
    }

    /// Parses a single number: the next undetermined part of the date, else a time.
    fn number(&mut self, text: &str, seen: u32) -> Done<u32> {
        let (digits, rest) = text.split_at(leading_digits(text));
        let value = integer(digits)?;
        if rest.starts_with('.') {
            if digits.len() > 2 {
                return self.run_together(text, seen | bit::DATE);
            }
            self.micros = micros(rest)?;
        } else if !rest.is_empty() {
            return Err(Bad::Format);
        }
        let long = text.len() >= 3;
        if text.len() == 3 && seen & bit::DATE == bit::YEAR && (1..=366).contains(&value) {
            self.day_of_year = value;
            return Ok(bit::DAY_OF_YEAR | bit::MONTH | bit::DAY);
        }
        const YEAR_MONTH: u32 = bit::YEAR | bit::MONTH;
        let taken = match seen & bit::DATE {
            0 if long => bit::YEAR,
            0 => bit::MONTH,
            bit::YEAR | bit::DAY => bit::MONTH,
            bit::MONTH if self.text_month && long => bit::YEAR,
            bit::MONTH => bit::DAY,
            YEAR_MONTH => {
                if self.text_month && long && self.short_year {
                    // The number before the month was the day.
                    self.day = std::mem::replace(&mut self.year, value);
                    self.short_year = false;
                    return Ok(bit::DAY);
                }
                bit::DAY
            }
            bit::MONTH_DAY => bit::YEAR,
            bit::DATE => return self.run_together(text, seen),
            _ => return Err(Bad::Format),
        };
        match taken {
            bit::YEAR => (self.year, self.short_year) = (value, text.len() <= 2),
            bit::MONTH => self.month = value,
            _ => self.day = value,
        }
        Ok(taken)
    }

    /// `YYYYMMDD`, `YYMMDD`, `HHMMSS.f`, `HHMM`.
    fn run_together(&mut self, text: &str, seen: u32) -> Done<u32> {
        let (digits, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Bad::Format);
        }
        let part = |from: usize, to: usize| integer(&digits[from..to]);
        let len = digits.len();
        if !fraction.is_empty() {
            self.micros = micros(fraction)?;
        } else if seen & bit::DATE != bit::DATE && len >= 6 {
            (self.year, self.month, self.day) =
                (part(0, len - 4)?, part(len - 4, len - 2)?, part(len - 2, len)?);
            self.short_year |= len == 6;
            return Ok(bit::DATE);
        }
        if seen & bit::TIME == 0 && (len == 6 || len == 4) {
            (self.hour, self.minute) = (part(0, 2)?, part(2, 4)?);
            self.second = if len == 6 { part(4, 6)? } else { 0 };
            return Ok(bit::TIME);
        }
        Err(Bad::Format)
    }

    fn julian_day(&mut self, day: i64) -> Done<()> {
        (self.year, self.month, self.day) = civil_from_days(day - JULIAN_EPOCH);
        self.julian = true;
        Ok(())
    }

    /// Runs the final checks.
    fn finish(mut self) -> Done<Read> {
        if self.seen & bit::YEAR != 0 && !self.julian {
            match self.year {
                0 if self.before_christ || !self.short_year => return Err(Bad::Range),
                year if self.before_christ => self.year = 1 - year,
                year if self.short_year && year < 70 => self.year += 2000,
                year if self.short_year && year < 100 => self.year += 1900,
                _ => {}
            }
        }
        if self.seen & bit::DAY_OF_YEAR != 0 {
            let days = days_from_civil(self.year, 1, 1) + self.day_of_year - 1;
            (self.year, self.month, self.day) = civil_from_days(days);
        }
        if self.seen & bit::MONTH != 0 && !(1..=12).contains(&self.month)
            || self.seen & bit::DAY != 0 && !(1..=31).contains(&self.day)
        {
            return Err(Bad::MonthOrDay);
        }
        if self.seen & bit::DATE == bit::DATE && self.day > days_in_month(self.year, self.month) {
            return Err(Bad::Range);
        }
        match self.afternoon {
            Some(_) if self.hour > 12 => return Err(Bad::Range),
            Some(false) if self.hour == 12 => self.hour = 0,
            Some(true) if self.hour != 12 => self.hour += 12,
            _ => {}
        }
        if let Some(at) = self.special {
            return Ok(Read::Moment(at));
        }
        if self.seen & bit::DATE != bit::DATE {
            return Err(Bad::Format);
        }
        let time = self.time();
        Ok(Read::Fields(Decoded {
            year: self.year,
            month: self.month,
            day: self.day,
            time,
            zone: self.zone,
        }))
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_from_civil(next.0, next.1, 1) - days_from_civil(year, month, 1)
}

//! Text forms of values, exactly as PostgreSQL reads and prints them (DateStyle ISO, bytea and intervals do not exist here).

use clearway_types::{Datum, DatumRef, SqlError, SqlResult, SqlType};
use jiff::tz::TimeZone;

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
        TimeZone::get(name).ok().map(Self)
    }
}

/// Reads a value's text form as the type's input function does: also what a quoted literal, a text-format parameter and a COPY field mean.
/// For `char(n)` and `varchar(n)` the length is not checked here: [`crate::cast::assign`] does that.
pub fn parse_text(ty: SqlType, text: &str, zone: &Zone) -> SqlResult<Datum> {
    let _ = (ty, text, zone);
    Err(SqlError::internal("not built yet"))
}

/// Appends a value's text form. `ty` is the column's type: `char(n)` is padded. NULL appends nothing.
pub fn write_text(out: &mut Vec<u8>, ty: SqlType, value: DatumRef<'_>, zone: &Zone) {
    let _ = (out, ty, value, zone);
}

//! Conversions between types.

use crate::value::Zone;
use clearway_types::{Datum, DatumRef, SqlError, SqlResult, SqlType};

/// Converts `value` to `to`. `explicit`: the user wrote the cast, and text too long for `char(n)`/`varchar(n)` is cut; otherwise
/// (an assignment, a parameter bound to a column) only trailing blanks may be cut, else 22001.
pub fn cast(value: DatumRef<'_>, to: SqlType, explicit: bool, zone: &Zone) -> SqlResult<Datum> {
    let _ = (value, to, explicit, zone);
    Err(SqlError::internal("not built yet"))
}

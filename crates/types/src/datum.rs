//! One SQL value, owned or borrowed from a row.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// An owned SQL value. It does not carry its column's type: `char(n)`, `varchar(n)` and `text` are
/// all `Text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Datum {
    /// SQL NULL.
    Null,
    /// boolean
    Bool(bool),
    /// smallint
    Int2(i16),
    /// integer
    Int4(i32),
    /// bigint
    Int8(i64),
    /// double precision; serialized as its bits, so that every format preserves NaN and infinities
    #[serde(with = "float_bits")]
    Float8(f64),
    /// text, varchar; char(n) without its trailing blanks
    Text(Box<str>),
    /// days since 2000-01-01
    Date(i32),
    /// microseconds since 2000-01-01
    Timestamp(i64),
    /// microseconds since 2000-01-01 UTC
    Timestamptz(i64),
    /// numeric
    Numeric(Decimal),
}

/// A SQL value whose text is borrowed, as read from a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DatumRef<'a> {
    /// SQL NULL.
    Null,
    /// boolean
    Bool(bool),
    /// smallint
    Int2(i16),
    /// integer
    Int4(i32),
    /// bigint
    Int8(i64),
    /// double precision
    Float8(f64),
    /// text, varchar; char(n) without its trailing blanks
    Text(&'a str),
    /// days since 2000-01-01
    Date(i32),
    /// microseconds since 2000-01-01
    Timestamp(i64),
    /// microseconds since 2000-01-01 UTC
    Timestamptz(i64),
    /// numeric
    Numeric(Decimal),
}

impl Datum {
    /// Borrows the value.
    pub fn as_ref(&self) -> DatumRef<'_> {
        match self {
            Self::Null => DatumRef::Null,
            Self::Bool(v) => DatumRef::Bool(*v),
            Self::Int2(v) => DatumRef::Int2(*v),
            Self::Int4(v) => DatumRef::Int4(*v),
            Self::Int8(v) => DatumRef::Int8(*v),
            Self::Float8(v) => DatumRef::Float8(*v),
            Self::Text(v) => DatumRef::Text(v),
            Self::Date(v) => DatumRef::Date(*v),
            Self::Timestamp(v) => DatumRef::Timestamp(*v),
            Self::Timestamptz(v) => DatumRef::Timestamptz(*v),
            Self::Numeric(v) => DatumRef::Numeric(*v),
        }
    }
    /// Returns true for SQL NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
    /// Returns the value if it has an integer type.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int2(v) => Some(i64::from(*v)),
            Self::Int4(v) => Some(i64::from(*v)),
            Self::Int8(v) => Some(*v),
            _ => None,
        }
    }
}

impl DatumRef<'_> {
    /// Returns an owned copy.
    pub fn to_owned(self) -> Datum {
        match self {
            Self::Null => Datum::Null,
            Self::Bool(v) => Datum::Bool(v),
            Self::Int2(v) => Datum::Int2(v),
            Self::Int4(v) => Datum::Int4(v),
            Self::Int8(v) => Datum::Int8(v),
            Self::Float8(v) => Datum::Float8(v),
            Self::Text(v) => Datum::Text(v.into()),
            Self::Date(v) => Datum::Date(v),
            Self::Timestamp(v) => Datum::Timestamp(v),
            Self::Timestamptz(v) => Datum::Timestamptz(v),
            Self::Numeric(v) => Datum::Numeric(v),
        }
    }
    /// Returns true for SQL NULL.
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }
}

impl From<&str> for Datum {
    fn from(s: &str) -> Self {
        Self::Text(s.into())
    }
}

mod float_bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(v.to_bits())
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        u64::deserialize(d).map(f64::from_bits)
    }
}

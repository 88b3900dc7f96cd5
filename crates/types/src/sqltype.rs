//! The SQL types, with PostgreSQL's OIDs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A column's or expression's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SqlType {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `double precision`
    Float8,
    /// `text`
    Text,
    /// `varchar(n)`; `None` is without limit. The limit counts characters.
    Varchar(Option<u32>),
    /// `char(n)`. Values are kept without their trailing blanks; whoever shows one pads it to n
    /// characters.
    Char(u32),
    /// `date`: days since 2000-01-01.
    Date,
    /// `timestamp`: microseconds since 2000-01-01 00:00:00.
    Timestamp,
    /// `timestamptz`: microseconds since 2000-01-01 00:00:00 UTC.
    Timestamptz,
    /// `numeric`: of expressions only (a decimal literal, avg, sum of bigint); not yet of columns.
    Numeric,
    /// A string literal or parameter whose type nothing decides: shown as text.
    Unknown,
    /// The result of a function that returns nothing, such as `pg_sleep`.
    Void,
    /// `name`: a text of at most 63 bytes; of expressions only.
    Name,
}

impl SqlType {
    /// PostgreSQL's OID of the type.
    pub const fn oid(self) -> u32 {
        match self {
            Self::Bool => 16,
            Self::Name => 19,
            Self::Int8 => 20,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Text | Self::Unknown => 25,
            Self::Float8 => 701,
            Self::Char(_) => 1042,
            Self::Varchar(_) => 1043,
            Self::Date => 1082,
            Self::Timestamp => 1114,
            Self::Timestamptz => 1184,
            Self::Numeric => 1700,
            Self::Void => 2278,
        }
    }
    /// The type that an OID of a client's Parse message means; `None` for one that we do not have.
    /// OID 0 is Unknown.
    pub const fn from_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            0 | 705 => Self::Unknown,
            16 => Self::Bool,
            19 => Self::Name,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            25 => Self::Text,
            701 => Self::Float8,
            1042 => Self::Char(u32::MAX),
            1043 => Self::Varchar(None),
            1082 => Self::Date,
            1114 => Self::Timestamp,
            1184 => Self::Timestamptz,
            1700 => Self::Numeric,
            _ => return None,
        })
    }
    /// The wire's `typlen`: bytes of a fixed-size value, -1 for a variable one.
    pub const fn typlen(self) -> i16 {
        match self {
            Self::Bool => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Date | Self::Void => 4,
            Self::Int8 | Self::Float8 | Self::Timestamp | Self::Timestamptz => 8,
            Self::Name => 64,
            _ => -1,
        }
    }
    /// The wire's `atttypmod`: n + 4 for `char(n)` and `varchar(n)`, else -1.
    pub const fn typmod(self) -> i32 {
        match self {
            Self::Char(n) | Self::Varchar(Some(n)) if n < 1 << 30 => n as i32 + 4,
            _ => -1,
        }
    }
    /// smallint, integer or bigint.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }
    /// text, varchar, char, name or an undecided string.
    pub const fn is_string(self) -> bool {
        matches!(self, Self::Text | Self::Varchar(_) | Self::Char(_) | Self::Name | Self::Unknown)
    }
}

impl fmt::Display for SqlType {
    /// PostgreSQL's own name for the type, as in its error messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("boolean"),
            Self::Int2 => f.write_str("smallint"),
            Self::Int4 => f.write_str("integer"),
            Self::Int8 => f.write_str("bigint"),
            Self::Float8 => f.write_str("double precision"),
            Self::Text => f.write_str("text"),
            Self::Varchar(Some(n)) => write!(f, "character varying({n})"),
            Self::Varchar(None) => f.write_str("character varying"),
            Self::Char(n) => write!(f, "character({n})"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp without time zone"),
            Self::Timestamptz => f.write_str("timestamp with time zone"),
            Self::Numeric => f.write_str("numeric"),
            Self::Unknown => f.write_str("unknown"),
            Self::Void => f.write_str("void"),
            Self::Name => f.write_str("name"),
        }
    }
}

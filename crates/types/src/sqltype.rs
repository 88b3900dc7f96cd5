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
    /// `varchar(n)`, with n in characters; `None` means unlimited.
    Varchar(Option<u32>),
    /// `char(n)`. Values are stored without trailing blanks, and padded to n characters for output.
    Char(u32),
    /// `date`: days since 2000-01-01.
    Date,
    /// `timestamp`: microseconds since 2000-01-01 00:00:00.
    Timestamp,
    /// `timestamptz`: microseconds since 2000-01-01 00:00:00 UTC.
    Timestamptz,
    /// `numeric`: only for expressions (a decimal literal, avg, sum of bigint), not yet for
    /// columns.
    Numeric,
    /// A string literal or parameter of undetermined type. It is sent to clients as text.
    Unknown,
    /// The result of a function that returns nothing, such as `pg_sleep`.
    Void,
    /// `name`: text of at most 63 bytes; only for expressions.
    Name,
}

impl SqlType {
    /// Returns PostgreSQL's OID of the type.
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
    /// Returns the type of an OID in a client's Parse message; `None` if it is not supported. OID 0
    /// is Unknown.
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
    /// Returns the protocol's `typlen`: the size of a fixed-size type in bytes, or -1.
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
    /// Returns the protocol's `atttypmod`: n + 4 for `char(n)` and `varchar(n)`, otherwise -1.
    pub const fn typmod(self) -> i32 {
        match self {
            Self::Char(n) | Self::Varchar(Some(n)) if n < 1 << 30 => n as i32 + 4,
            _ => -1,
        }
    }
    /// Returns true for smallint, integer and bigint.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }
    /// Returns true for text, varchar, char, name and a string of undetermined type.
    pub const fn is_string(self) -> bool {
        matches!(self, Self::Text | Self::Varchar(_) | Self::Char(_) | Self::Name | Self::Unknown)
    }
}

impl fmt::Display for SqlType {
    /// Writes PostgreSQL's name of the type, as in its error messages.
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

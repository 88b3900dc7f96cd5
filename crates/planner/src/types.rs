//! Maps SQL type names to our types.

use crate::error::foreign;
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};

/// PostgreSQL's longest `char(n)` and `varchar(n)`.
pub(crate) const MAX_LENGTH: u32 = 10_485_760;
/// PostgreSQL's bpchar: a character without a length, the type of a parameter that is compared with
/// a `char(n)` or assigned to it. PostgreSQL keeps the trailing blanks of its values, we do not.
pub(crate) const BPCHAR: SqlType = SqlType::Char(u32::MAX);

/// Returns the type named by a cast or a parameter declaration.
pub(crate) fn resolve(ty: &DataType) -> SqlResult<SqlType> {
    Ok(match ty {
        DataType::Bool | DataType::Boolean => SqlType::Bool,
        DataType::SmallInt(n) | DataType::Int2(n) => integer(*n, SqlType::Int2)?,
        DataType::Int(n) | DataType::Int4(n) | DataType::Integer(n) => integer(*n, SqlType::Int4)?,
        DataType::BigInt(n) | DataType::Int8(n) => integer(*n, SqlType::Int8)?,
        DataType::Float8 | DataType::DoublePrecision => SqlType::Float8,
        DataType::Float(ExactNumberInfo::None) => SqlType::Float8,
        DataType::Float(ExactNumberInfo::Precision(n)) if (25..=53).contains(n) => SqlType::Float8,
        DataType::Text => SqlType::Text,
        DataType::Varchar(n) | DataType::CharacterVarying(n) | DataType::CharVarying(n) => {
            SqlType::Varchar(length(n.as_ref(), "varchar")?)
        }
        DataType::Char(n) | DataType::Character(n) => {
            SqlType::Char(length(n.as_ref(), "char")?.unwrap_or(1))
        }
        DataType::Date => SqlType::Date,
        DataType::Timestamp(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            SqlType::Timestamp
        }
        DataType::Timestamp(None | Some(6), TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            SqlType::Timestamptz
        }
        DataType::Numeric(ExactNumberInfo::None)
        | DataType::Decimal(ExactNumberInfo::None)
        | DataType::Dec(ExactNumberInfo::None) => SqlType::Numeric,
        DataType::Custom(name, args) => return custom(&name.to_string(), args),
        other => return Err(unsupported(&other.to_string())),
    })
}

/// Returns the type before a string: like [`resolve`], but a character without a length is not one
/// character long there. Its blanks would count, as those of bpchar.
pub(crate) fn resolve_literal(ty: &DataType) -> SqlResult<SqlType> {
    match ty {
        DataType::Char(None) | DataType::Character(None) => Err(no_bpchar()),
        ty => resolve(ty),
    }
}

/// Returns a column's type: like [`resolve`], but numeric and name are for expressions only.
pub(crate) fn resolve_column(ty: &DataType) -> SqlResult<SqlType> {
    match resolve(ty)? {
        ty @ (SqlType::Numeric | SqlType::Name) => {
            Err(SqlError::unsupported(format!("a column of type {ty}")))
        }
        ty => Ok(ty),
    }
}

/// Returns 0A000 where the blanks of a [`BPCHAR`] value would count.
pub(crate) fn no_bpchar() -> SqlError {
    unsupported("bpchar without a length")
}

fn unsupported(name: &str) -> SqlError {
    SqlError::unsupported(format!("type {}", name.to_ascii_lowercase()))
}

fn integer(length: Option<u64>, ty: SqlType) -> SqlResult<SqlType> {
    foreign(&[(length.is_some(), "a length of an integer type")])?;
    Ok(ty)
}

fn length(n: Option<&CharacterLength>, name: &str) -> SqlResult<Option<u32>> {
    let Some(n) = n else { return Ok(None) };
    match n {
        CharacterLength::IntegerLength { length, .. } => limited(*length, name).map(Some),
        CharacterLength::Max => {
            Err(SqlError::new(SqlState::SYNTAX, "syntax error at or near \"max\""))
        }
    }
}

fn limited(n: u64, name: &str) -> SqlResult<u32> {
    if n == 0 {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("length for type {name} must be at least 1"),
        ));
    }
    if n > u64::from(MAX_LENGTH) {
        let text = format!("length for type {name} cannot exceed {MAX_LENGTH}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, text));
    }
    Ok(n as u32)
}

/// Returns the length in a type's modifiers.
fn modifier(args: &[String], name: &str) -> SqlResult<Option<u32>> {
    let invalid = || SqlError::new(SqlState::INVALID_PARAMETER, "invalid type modifier");
    match args {
        [] => Ok(None),
        [n] => limited(n.parse().map_err(|_| invalid())?, name).map(Some),
        _ => Err(invalid()),
    }
}

fn custom(name: &str, args: &[String]) -> SqlResult<SqlType> {
    let lower = name.to_ascii_lowercase().replace('"', "");
    let plain = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let ty = match plain {
        "bpchar" => match modifier(args, "char")? {
            Some(n) => SqlType::Char(n),
            None => return Err(no_bpchar()),
        },
        "int2" => SqlType::Int2,
        "int4" => SqlType::Int4,
        "int8" => SqlType::Int8,
        "float8" => SqlType::Float8,
        "bool" => SqlType::Bool,
        "text" => SqlType::Text,
        "name" => SqlType::Name,
        "varchar" => SqlType::Varchar(modifier(args, "varchar")?),
        "date" => SqlType::Date,
        "timestamp" => SqlType::Timestamp,
        "timestamptz" => SqlType::Timestamptz,
        "numeric" => SqlType::Numeric,
        "serial" | "bigserial" | "smallserial" | "serial4" | "serial8" | "serial2" | "json"
        | "jsonb" | "uuid" | "regclass" | "regtype" | "regproc" | "oid" | "money" | "xml"
        | "inet" | "cidr" | "float4" | "real" | "time" | "interval" | "bytea" | "int4range"
        | "int8range" | "tsvector" | "tsquery" => {
            return Err(unsupported(plain));
        }
        _ => {
            return Err(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type \"{name}\" does not exist"),
            ));
        }
    };
    match ty {
        _ if args.is_empty() => Ok(ty),
        SqlType::Char(_) | SqlType::Varchar(_) => Ok(ty),
        SqlType::Timestamp | SqlType::Timestamptz | SqlType::Numeric => {
            Err(unsupported(&format!("{plain}({})", args.join(","))))
        }
        _ => {
            let text = format!("type modifier is not allowed for type \"{plain}\"");
            Err(SqlError::new(SqlState::SYNTAX, text))
        }
    }
}

/// Returns the internal name, used for a cast's result column.
pub(crate) fn internal_name(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Bool => "bool",
        SqlType::Int2 => "int2",
        SqlType::Int4 => "int4",
        SqlType::Int8 => "int8",
        SqlType::Float8 => "float8",
        SqlType::Text | SqlType::Unknown => "text",
        SqlType::Varchar(_) => "varchar",
        SqlType::Name => "name",
        SqlType::Char(_) => "bpchar",
        SqlType::Date => "date",
        SqlType::Timestamp => "timestamp",
        SqlType::Timestamptz => "timestamptz",
        SqlType::Numeric => "numeric",
        SqlType::Void => "void",
    }
}

/// Returns the type without its length: the type of a parameter compared with it or assigned to it.
pub(crate) fn base(ty: SqlType) -> SqlType {
    match ty {
        SqlType::Char(_) => BPCHAR,
        SqlType::Varchar(_) => SqlType::Varchar(None),
        other => other,
    }
}

//! Conversions: undecided expressions, implicit and explicit casts, assignments, and the common
//! type of alternatives.

use crate::bind::{Binder, Typed};
use crate::ops::shown;
use crate::types;
use clearway_ir::{Expr, Zone, cast, value};
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};

impl Binder<'_> {
    /// Gives an undecided expression a type: parses a literal, or sets a parameter's type. Leaves
    /// other expressions alone.
    pub(crate) fn decide(&mut self, t: Typed, to: SqlType) -> SqlResult<Typed> {
        if t.ty != SqlType::Unknown {
            return Ok(t);
        }
        match t.expr {
            Expr::Param(n) => {
                if self.params[n] == SqlType::Unknown {
                    self.params[n] = types::base(to);
                }
                let ty = self.params[n];
                if ty != types::base(to) {
                    let text = format!("inconsistent types deduced for parameter ${}", n + 1);
                    return Err(SqlError::new(SqlState(*b"42P08"), text).detail(format!(
                        "{} versus {}",
                        shown(ty),
                        shown(to)
                    )));
                }
                let param = Typed::new(Expr::Param(n), ty);
                if ty == to { Ok(param) } else { Ok(cast_expr(param, to, false)) }
            }
            Expr::Literal(Datum::Null) => Ok(Typed::new(t.expr, to)),
            // The meaning depends on the session's time zone, so it is parsed at each execution. A
            // text that is invalid in every zone is an error now.
            Expr::Literal(Datum::Text(ref s)) if to == SqlType::Timestamptz => {
                match value::parse_text(to, s, &Zone::utc()) {
                    Err(e) if e.state() != SqlState::DATETIME_OVERFLOW || !some_zone_reads(s) => {
                        Err(e)
                    }
                    _ => Ok(cast_expr(t, to, false)),
                }
            }
            Expr::Literal(Datum::Text(s)) => {
                let d = value::parse_text(to, &s, &Zone::utc())?;
                Ok(Typed::new(Expr::Literal(d), to))
            }
            _ => Ok(cast_expr(t, to, false)),
        }
    }

    /// Converts implicitly between known types.
    pub(crate) fn cast_to(&mut self, t: Typed, to: SqlType) -> SqlResult<Typed> {
        if t.ty == SqlType::Unknown {
            return self.decide(t, to);
        }
        if t.ty == to {
            return Ok(t);
        }
        Ok(fold_constant(cast_expr(t, to, false)))
    }

    /// Applies an explicit cast.
    pub(crate) fn explicit_cast(&mut self, t: Typed, to: SqlType) -> SqlResult<Typed> {
        if t.ty == SqlType::Unknown {
            let bounded =
                matches!(to, SqlType::Char(_) | SqlType::Varchar(Some(_)) | SqlType::Name);
            let t = self.decide(t, if bounded { SqlType::Text } else { to })?;
            if !bounded {
                return Ok(t);
            }
            if let Expr::Param(n) = t.expr
                && self.params[n] == SqlType::Text
            {
                self.params[n] = types::base(to);
            }
            return Ok(fold_constant(cast_expr(t, to, true)));
        }
        if t.ty == to {
            return Ok(t);
        }
        if !castable(t.ty, to) {
            let text = format!("cannot cast type {} to {}", shown(t.ty), shown(to));
            return Err(SqlError::new(SqlState::CANNOT_COERCE, text));
        }
        Ok(fold_constant(cast_expr(t, to, true)))
    }

    /// Converts for assignment to a column, as in INSERT and UPDATE.
    pub(crate) fn assign(&mut self, t: Typed, to: SqlType, column: &str) -> SqlResult<Expr> {
        if t.ty == SqlType::Unknown {
            return self.decide(t, to).map(|t| t.expr);
        }
        if t.ty == to {
            return Ok(t.expr);
        }
        if !assignable(t.ty, to) {
            let text =
                format!("column \"{column}\" is of type {to} but expression is of type {}", t.ty);
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, text)
                .hint("You will need to rewrite or cast the expression."));
        }
        Ok(fold_constant(cast_expr(t, to, false)).expr)
    }

    /// Finds one type for alternatives: of CASE, COALESCE, GREATEST, VALUES. A length is kept only
    /// if all of them have it.
    pub(crate) fn unify(
        &mut self,
        items: Vec<Typed>,
        what: &str,
    ) -> SqlResult<(Vec<Expr>, SqlType)> {
        let mut common = SqlType::Unknown;
        for t in &items {
            common = common_type(common, t.ty).ok_or_else(|| {
                let text =
                    format!("{what} types {} and {} cannot be matched", shown(common), shown(t.ty));
                SqlError::new(SqlState::DATATYPE_MISMATCH, text)
            })?;
        }
        if common == SqlType::Unknown {
            common = SqlType::Text;
        }
        let null = |t: &Typed| t.expr == Expr::Literal(Datum::Null);
        if !items.iter().all(|t| t.ty == common || null(t)) {
            // In PostgreSQL, a char(n) value has its blanks, and a value without a length keeps
            // the blanks of its source. We store no blanks.
            if matches!(common, SqlType::Char(_)) {
                return Err(SqlError::unsupported(format!(
                    "{what} of type character and another type or length"
                )));
            }
            common = types::base(common);
        }
        let exprs: SqlResult<Vec<Expr>> =
            items.into_iter().map(|t| self.cast_to(t, common).map(|t| t.expr)).collect();
        Ok((exprs?, common))
    }
}

/// Returns true if a timestamp that is out of range in UTC is in range in some time zone: zones are
/// less than 16 hours from UTC.
fn some_zone_reads(text: &str) -> bool {
    let mut ends = ["-15.99", "15.99"].into_iter().filter_map(Zone::setting);
    ends.any(|(zone, _)| value::parse_text(SqlType::Timestamptz, text, &zone).is_ok())
}

/// PostgreSQL's select_common_type for two types: the first type is kept unless only it converts to
/// the other. `None`: different categories.
pub(crate) fn common_type(a: SqlType, b: SqlType) -> Option<SqlType> {
    use SqlType as T;
    Some(match (a, b) {
        (a, T::Unknown) => a,
        (T::Unknown, b) => b,
        (a, b) if a == b => a,
        (T::Varchar(_) | T::Char(_), T::Name) => T::Name,
        (T::Name, T::Varchar(_) | T::Char(_)) => T::Name,
        (a, b) if a.is_string() && b.is_string() => a,
        (a, b) if is_time(a) && is_time(b) => time_common(a, b),
        (a, b) => crate::ops::numeric_common(a, b)?,
    })
}

pub(crate) fn cast_expr(t: Typed, to: SqlType, explicit: bool) -> Typed {
    Typed::new(Expr::Cast { expr: Box::new(t.expr), to, explicit }, to)
}

/// Represents a numeric literal that our numeric cannot hold. It may still become a float8; as a
/// numeric it fails when evaluated.
pub(crate) fn long_numeric(text: &str) -> Typed {
    cast_expr(Typed::new(Expr::Literal(text.into()), SqlType::Text), SqlType::Numeric, false)
}

/// Returns the text of a [`long_numeric`].
pub(crate) fn long_numeric_text(e: &Expr) -> Option<&str> {
    match e {
        Expr::Cast { expr, to: SqlType::Numeric, explicit: false } => match &**expr {
            Expr::Literal(Datum::Text(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Evaluates a cast of a literal now, unless it depends on the session's time zone. A cast that
/// fails is left alone: it is an error only where it is evaluated, which COALESCE and CASE may
/// never do.
fn fold_constant(mut t: Typed) -> Typed {
    if let Expr::Cast { expr, to: SqlType::Float8, explicit } = &t.expr
        && let Some(text) = long_numeric_text(expr)
    {
        let text = Typed::new(Expr::Literal(text.into()), SqlType::Text);
        t = cast_expr(text, SqlType::Float8, *explicit);
    }
    let Expr::Cast { expr, to, explicit } = &t.expr else { return t };
    let Expr::Literal(d) = &**expr else { return t };
    if *to == SqlType::Timestamptz || matches!(d, Datum::Timestamptz(_)) {
        return t;
    }
    match cast::cast(d.as_ref(), *to, *explicit, &Zone::utc()) {
        Ok(d) => Typed::new(Expr::Literal(d), t.ty),
        Err(_) => t,
    }
}

pub(crate) fn is_number(ty: SqlType) -> bool {
    ty.is_integer() || matches!(ty, SqlType::Numeric | SqlType::Float8)
}

pub(crate) fn is_time(ty: SqlType) -> bool {
    matches!(ty, SqlType::Date | SqlType::Timestamp | SqlType::Timestamptz)
}

/// Returns the common type of two of date, timestamp and timestamptz: the more specific one.
pub(crate) fn time_common(a: SqlType, b: SqlType) -> SqlType {
    match (a, b) {
        (a, b) if a == b => a,
        (SqlType::Timestamptz, _) | (_, SqlType::Timestamptz) => SqlType::Timestamptz,
        _ => SqlType::Timestamp,
    }
}

/// Returns true if PostgreSQL converts implicitly in an assignment.
pub fn assignable(from: SqlType, to: SqlType) -> bool {
    to.is_string() || is_number(from) && is_number(to) || is_time(from) && is_time(to) || from == to
}

/// Returns true if an explicit cast is allowed.
fn castable(from: SqlType, to: SqlType) -> bool {
    let int4_bool =
        matches!((from, to), (SqlType::Int4, SqlType::Bool) | (SqlType::Bool, SqlType::Int4));
    assignable(from, to) || from.is_string() || int4_bool
}

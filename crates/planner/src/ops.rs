//! Operators: which operand types they accept, and the result types.

use crate::bind::{Binder, Typed};
use crate::coerce::{is_time, time_common};
use clearway_ir::Expr;
use clearway_ir::expr::{BinaryOp, UnaryOp};
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};

const HINT: &str = "No operator matches the given name and argument types. You might need to add explicit type casts.";

const NOT_UNIQUE: &str =
    "Could not choose a best candidate operator. You might need to add explicit type casts.";

impl Binder<'_> {
    /// Binds a binary operator with bound operands.
    pub(crate) fn binary(&mut self, op: BinaryOp, left: Typed, right: Typed) -> SqlResult<Typed> {
        match op {
            BinaryOp::And | BinaryOp::Or => {
                let name = if op == BinaryOp::And { "AND" } else { "OR" };
                let (l, r) = (self.boolean(left, name)?, self.boolean(right, name)?);
                Ok(Typed::new(Expr::Binary(op, Box::new(l), Box::new(r)), SqlType::Bool))
            }
            BinaryOp::Concat => self.concat(left, right),
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod => {
                self.arithmetic(op, left, right)
            }
            _ => {
                let (l, r) = self.comparable(op.symbol(), left, right)?;
                Ok(Typed::new(Expr::Binary(op, Box::new(l.expr), Box::new(r.expr)), SqlType::Bool))
            }
        }
    }

    /// Converts both sides to comparable types. Integers of any width stay as they are.
    pub(crate) fn comparable(
        &mut self,
        op: &str,
        left: Typed,
        right: Typed,
    ) -> SqlResult<(Typed, Typed)> {
        let (left, right) = self.known(left, right)?;
        let (l, r) = (left.ty, right.ty);
        let common = match (l, r) {
            _ if l.is_integer() && r.is_integer() || l == r => return Ok((left, right)),
            // A varchar becomes a char(n): its blanks do not count. A text's do.
            (SqlType::Char(_), SqlType::Varchar(_)) => {
                let right = self.cast_to(right, crate::types::BPCHAR)?;
                return Ok((left, right));
            }
            (SqlType::Varchar(_), SqlType::Char(_)) => {
                let left = self.cast_to(left, crate::types::BPCHAR)?;
                return Ok((left, right));
            }
            _ if l.is_string() && r.is_string() => return Ok((left, right)),
            _ if is_time(l) && is_time(r) => time_common(l, r),
            _ => numeric_common(l, r).ok_or_else(|| no_operator(op, l, r))?,
        };
        Ok((self.cast_to(left, common)?, self.cast_to(right, common)?))
    }

    /// Gives an undecided side the other's type; two undecided ones become text.
    fn known(&mut self, left: Typed, right: Typed) -> SqlResult<(Typed, Typed)> {
        Ok(match (left.ty, right.ty) {
            (SqlType::Unknown, SqlType::Unknown) => {
                (self.decide(left, SqlType::Text)?, self.decide(right, SqlType::Text)?)
            }
            (SqlType::Unknown, ty) => (self.decide(left, comparison_type(ty))?, right),
            (ty, SqlType::Unknown) => {
                let right = self.decide(right, comparison_type(ty))?;
                (left, right)
            }
            _ => (left, right),
        })
    }

    fn arithmetic(&mut self, op: BinaryOp, left: Typed, right: Typed) -> SqlResult<Typed> {
        if left.ty == SqlType::Unknown && right.ty == SqlType::Unknown {
            let text = format!("operator is not unique: unknown {} unknown", op.symbol());
            return Err(SqlError::new(SqlState(*b"42725"), text).hint(NOT_UNIQUE));
        }
        if interval_arithmetic(op, left.ty, right.ty) {
            return Err(SqlError::unsupported("type interval"));
        }
        // PostgreSQL's only minus operator with a string on the right.
        if op == BinaryOp::Sub && left.ty == SqlType::Unknown && right.ty.is_string() {
            return Err(SqlError::unsupported("type jsonb"));
        }
        let (left, right) = self.known(left, right)?;
        let (l, r) = (left.ty, right.ty);
        if let Some(ty) = date_arithmetic(op, l, r) {
            let days = |b: &mut Self, t: Typed| {
                if t.ty == SqlType::Int2 { b.cast_to(t, SqlType::Int4) } else { Ok(t) }
            };
            let (left, right) = (days(self, left)?, days(self, right)?);
            return Ok(Typed::new(Expr::Binary(op, Box::new(left.expr), Box::new(right.expr)), ty));
        }
        let common = numeric_common(l, r).ok_or_else(|| no_operator(op.symbol(), l, r))?;
        if op == BinaryOp::Mod && common == SqlType::Float8 {
            return Err(no_operator("%", l, r));
        }
        let (left, right) = if common.is_integer() {
            (left, right)
        } else {
            (self.cast_to(left, common)?, self.cast_to(right, common)?)
        };
        Ok(Typed::new(Expr::Binary(op, Box::new(left.expr), Box::new(right.expr)), common))
    }

    fn concat(&mut self, left: Typed, right: Typed) -> SqlResult<Typed> {
        if !left.ty.is_string() && !right.ty.is_string() {
            return Err(no_operator("||", left.ty, right.ty));
        }
        let side = |b: &mut Self, t: Typed| match t.ty {
            SqlType::Unknown => b.decide(t, SqlType::Text),
            // A char(n) never keeps its blanks here: as text it has none. The cast spells out a
            // boolean.
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Name => Ok(t),
            _ => b.cast_to(t, SqlType::Text),
        };
        let (left, right) = (side(self, left)?, side(self, right)?);
        Ok(Typed::new(
            Expr::Binary(BinaryOp::Concat, Box::new(left.expr), Box::new(right.expr)),
            SqlType::Text,
        ))
    }

    /// Binds unary plus, for numbers only. An undecided operand becomes a float8.
    pub(crate) fn plus(&mut self, inner: Typed) -> SqlResult<Typed> {
        let inner = self.decide(inner, SqlType::Float8)?;
        if inner.ty.is_integer() || matches!(inner.ty, SqlType::Float8 | SqlType::Numeric) {
            return Ok(inner);
        }
        let text = format!("operator does not exist: + {}", shown(inner.ty));
        Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, text).hint(HINT))
    }

    /// Binds unary minus, for numbers only. An undecided operand is ambiguous (42725).
    pub(crate) fn negate(&mut self, inner: Typed) -> SqlResult<Typed> {
        match inner.ty {
            SqlType::Unknown => {
                let text = "operator is not unique: - unknown";
                Err(SqlError::new(SqlState(*b"42725"), text).hint(NOT_UNIQUE))
            }
            ty if ty.is_integer() || matches!(ty, SqlType::Float8 | SqlType::Numeric) => {
                Ok(Typed::new(Expr::Unary(UnaryOp::Neg, Box::new(inner.expr)), ty))
            }
            ty => Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("operator does not exist: - {}", shown(ty)),
            )
            .hint(HINT)),
        }
    }
}

/// Returns the type of an undecided literal compared with this type: a length never matters in a
/// comparison.
fn comparison_type(ty: SqlType) -> SqlType {
    match ty {
        SqlType::Varchar(_) => SqlType::Text,
        other => crate::types::base(other),
    }
}

/// Returns the result type of adding days to or subtracting them from a date, or of subtracting two
/// dates. `None` for anything else.
fn date_arithmetic(op: BinaryOp, l: SqlType, r: SqlType) -> Option<SqlType> {
    use SqlType::{Date, Int2, Int4};
    match (op, l, r) {
        (BinaryOp::Sub, Date, Date) => Some(Int4),
        (BinaryOp::Add | BinaryOp::Sub, Date, Int2 | Int4) | (BinaryOp::Add, Int2 | Int4, Date) => {
            Some(Date)
        }
        _ => None,
    }
}

/// Returns true if the operator takes or returns an interval.
fn interval_arithmetic(op: BinaryOp, l: SqlType, r: SqlType) -> bool {
    use SqlType::{Date, Timestamp, Timestamptz, Unknown};
    let moment = |ty| matches!(ty, Timestamp | Timestamptz);
    match op {
        BinaryOp::Sub => {
            moment(l) && (is_time(r) || r == Unknown) || matches!(l, Date | Unknown) && moment(r)
        }
        BinaryOp::Add => moment(l) && r == Unknown || l == Unknown && moment(r),
        _ => false,
    }
}

/// Returns the wider of two numeric types, or `None` if one is not numeric.
pub(crate) fn numeric_common(l: SqlType, r: SqlType) -> Option<SqlType> {
    let rank = |t| match t {
        SqlType::Int2 => Some(0),
        SqlType::Int4 => Some(1),
        SqlType::Int8 => Some(2),
        SqlType::Numeric => Some(3),
        SqlType::Float8 => Some(4),
        _ => None,
    };
    Some(if rank(l)? >= rank(r)? { l } else { r })
}

/// Returns the type's name for messages about operators and functions, without its length.
pub(crate) fn shown(ty: SqlType) -> String {
    match ty {
        SqlType::Char(_) => "character".to_owned(),
        SqlType::Varchar(_) => "character varying".to_owned(),
        other => other.to_string(),
    }
}

pub(crate) fn no_operator(op: &str, l: SqlType, r: SqlType) -> SqlError {
    let text = format!("operator does not exist: {} {op} {}", shown(l), shown(r));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, text).hint(HINT)
}

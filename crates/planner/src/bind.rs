//! Binding of scalar expressions: names, operators, what has a syntax of its own.
//!
//! Aggregates are bound to [`Expr::Column`]s numbered from [`AGGREGATE`]; `select` puts them in their places once all are known.

use crate::coerce::{common_type, long_numeric, long_numeric_text};
use crate::error::place;
use crate::literal::number;
use crate::ops::shown;
use crate::scope::{Scope, fold};
use crate::types;
use clearway_plan::Expr;
use clearway_plan::expr::{BinaryOp, Func, UnaryOp};
use clearway_plan::program::Aggregate;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, BinaryOperator, Spanned, UnaryOperator};

/// Columns from here on are aggregates, not yet placed.
pub(crate) const AGGREGATE: usize = 1 << 24;
/// PostgreSQL's limit of parameters.
const MAX_PARAMS: usize = 65_535;

/// A bound expression and its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) ty: SqlType,
}

impl Typed {
    pub(crate) fn new(expr: Expr, ty: SqlType) -> Self {
        Self { expr, ty }
    }
}

/// What a bound aggregate may do where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aggregates {
    Allowed,
    /// The clause that refuses them.
    Refused(&'static str),
    /// Inside another aggregate.
    Nested,
}

/// Binds the expressions of one statement.
pub(crate) struct Binder<'a> {
    pub(crate) sql: &'a str,
    /// The type of each parameter as far as it is known.
    pub(crate) params: Vec<SqlType>,
    pub(crate) scope: Scope,
    pub(crate) mode: Aggregates,
    pub(crate) aggregates: Vec<Aggregate>,
    /// Calls of random() so far.
    pub(crate) randoms: i32,
}

impl<'a> Binder<'a> {
    pub(crate) fn new(sql: &'a str, param_types: &[SqlType]) -> Self {
        Self {
            sql,
            params: param_types.to_vec(),
            scope: Scope::default(),
            mode: Aggregates::Refused("this clause"),
            aggregates: Vec::new(),
            randoms: 0,
        }
    }

    /// The parameters' final types: what nothing decided is text.
    pub(crate) fn final_params(&self) -> Vec<SqlType> {
        self.params.iter().map(|t| if *t == SqlType::Unknown { SqlType::Text } else { *t }).collect()
    }

    /// An error at the expression's place.
    pub(crate) fn at<T>(&self, e: &ast::Expr, r: SqlResult<T>) -> SqlResult<T> {
        r.map_err(|err| if err.position().is_some() { err } else { place(err, self.sql, e.span().start) })
    }

    /// Binds an expression; an undecided one keeps type Unknown.
    pub(crate) fn bind(&mut self, e: &ast::Expr) -> SqlResult<Typed> {
        let r = self.bind_inner(e);
        self.at(e, r)
    }

    /// As [`Binder::bind`], with errors where the innermost expression is.
    fn boxed(&mut self, e: &ast::Expr) -> SqlResult<Typed> {
        self.bind(e)
    }

    fn bind_inner(&mut self, e: &ast::Expr) -> SqlResult<Typed> {
        use ast::Expr as E;
        match e {
            E::Nested(inner) => self.bind(inner),
            E::Identifier(name) => {
                let name = fold(name);
                let at = match self.scope.find(None, &name) {
                    Ok(at) => at,
                    Err(e) => return crate::funcs::bare_word(&name).ok_or(e),
                };
                Ok(Typed::new(Expr::Column(at), self.scope.columns[at].1))
            }
            E::CompoundIdentifier(names) => {
                let names: Vec<String> = names.iter().map(fold).collect();
                let names = if names.len() == 3 && names[0] == "public" { &names[1..] } else { &names[..] };
                let [relation, column] = names else {
                    return Err(SqlError::unsupported("a column name of more than two parts"));
                };
                let at = self.scope.find(Some(relation), column)?;
                Ok(Typed::new(Expr::Column(at), self.scope.columns[at].1))
            }
            E::Value(v) => self.constant(&v.value),
            E::BinaryOp { left, op, right } => self.binary_operator(left, op, right),
            E::UnaryOp { op, expr } => self.unary_operator(op, expr),
            E::IsNull(inner) => self.is_null(inner),
            E::IsNotNull(inner) => Ok(not(self.is_null(inner)?)),
            E::IsTrue(inner) => self.is_bool(inner, Some(true), "IS TRUE"),
            E::IsNotTrue(inner) => Ok(not(self.is_bool(inner, Some(true), "IS NOT TRUE")?)),
            E::IsFalse(inner) => self.is_bool(inner, Some(false), "IS FALSE"),
            E::IsNotFalse(inner) => Ok(not(self.is_bool(inner, Some(false), "IS NOT FALSE")?)),
            E::IsUnknown(inner) => self.is_bool(inner, None, "IS UNKNOWN"),
            E::IsNotUnknown(inner) => Ok(not(self.is_bool(inner, None, "IS NOT UNKNOWN")?)),
            E::IsNotDistinctFrom(l, r) => self.not_distinct(l, r),
            E::IsDistinctFrom(l, r) => Ok(not(self.not_distinct(l, r)?)),
            E::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            E::Between { expr, negated, low, high } => self.between(expr, low, high, *negated),
            E::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), *negated, false)
            }
            E::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), *negated, true)
            }
            E::Cast { expr, data_type, .. } => self.cast(expr, data_type),
            E::TypedString(t) => {
                let to = types::resolve(&t.data_type)?;
                let literal = self.constant(&t.value.value)?;
                self.explicit_cast(literal, to)
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            _ => crate::funcs::bind(self, e),
        }
    }

    fn constant(&mut self, v: &ast::Value) -> SqlResult<Typed> {
        use ast::Value as V;
        Ok(match v {
            V::Null => Typed::new(Expr::Literal(Datum::Null), SqlType::Unknown),
            V::Boolean(b) => Typed::new(Expr::Literal(Datum::Bool(*b)), SqlType::Bool),
            V::Number(text, _) => match number(text, false) {
                Some((d, ty)) => Typed::new(Expr::Literal(d), ty),
                None => long_numeric(text),
            },
            V::SingleQuotedString(s) | V::EscapedStringLiteral(s) | V::UnicodeStringLiteral(s) => {
                Typed::new(Expr::Literal(Datum::Text(s.as_str().into())), SqlType::Unknown)
            }
            V::DollarQuotedString(s) => {
                Typed::new(Expr::Literal(Datum::Text(s.value.as_str().into())), SqlType::Unknown)
            }
            V::Placeholder(name) => self.param(name)?,
            other => return Err(SqlError::unsupported(format!("the literal {other}"))),
        })
    }

    fn param(&mut self, name: &str) -> SqlResult<Typed> {
        let n = name
            .strip_prefix('$')
            .and_then(|n| n.parse::<usize>().ok())
            .filter(|n| (1..=MAX_PARAMS).contains(n))
            .ok_or_else(|| SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}")))?;
        if self.params.len() < n {
            self.params.resize(n, SqlType::Unknown);
        }
        Ok(Typed::new(Expr::Param(n - 1), self.params[n - 1]))
    }

    fn cast(&mut self, e: &ast::Expr, to: &ast::DataType) -> SqlResult<Typed> {
        let to = types::resolve(to)?;
        let inner = self.boxed(e)?;
        self.explicit_cast(inner, to)
    }

    /// A condition.
    pub(crate) fn boolean(&mut self, t: Typed, clause: &str) -> SqlResult<Expr> {
        let t = self.decide(t, SqlType::Bool)?;
        if t.ty != SqlType::Bool {
            let text = format!("argument of {clause} must be type boolean, not type {}", shown(t.ty));
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, text));
        }
        Ok(t.expr)
    }

    fn binary_operator(&mut self, l: &ast::Expr, op: &BinaryOperator, r: &ast::Expr) -> SqlResult<Typed> {
        use BinaryOperator as O;
        let op = match op {
            O::Plus => BinaryOp::Add,
            O::Minus => BinaryOp::Sub,
            O::Multiply => BinaryOp::Mul,
            O::Divide => BinaryOp::Div,
            O::Modulo => BinaryOp::Mod,
            O::StringConcat => BinaryOp::Concat,
            O::Gt => BinaryOp::Gt,
            O::Lt => BinaryOp::Lt,
            O::GtEq => BinaryOp::Ge,
            O::LtEq => BinaryOp::Le,
            O::Eq => BinaryOp::Eq,
            O::NotEq => BinaryOp::Ne,
            O::And => BinaryOp::And,
            O::Or => BinaryOp::Or,
            O::PGLikeMatch => return self.like(l, r, None, false, false),
            O::PGNotLikeMatch => return self.like(l, r, None, true, false),
            other => return Err(SqlError::unsupported(format!("operator {other}"))),
        };
        let (left, right) = (self.boxed(l)?, self.boxed(r)?);
        self.binary(op, left, right)
    }

    fn unary_operator(&mut self, op: &UnaryOperator, e: &ast::Expr) -> SqlResult<Typed> {
        // Minuses before a number are folded before its type is found.
        let (mut operand, mut negative) = (e, true);
        loop {
            match operand {
                ast::Expr::Nested(inner) => operand = inner,
                ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr } => (operand, negative) = (expr, !negative),
                _ => break,
            }
        }
        if *op == UnaryOperator::Minus
            && let ast::Expr::Value(v) = operand
            && let ast::Value::Number(text, _) = &v.value
            && let Some((d, ty)) = number(text, negative)
        {
            return Ok(Typed::new(Expr::Literal(d), ty));
        }
        let inner = self.boxed(e)?;
        match op {
            UnaryOperator::Minus => match long_numeric_text(&inner.expr) {
                Some(text) => Ok(long_numeric(&format!("-{text}"))),
                None => self.negate(inner),
            },
            UnaryOperator::Plus => self.plus(inner),
            UnaryOperator::Not => {
                let b = self.boolean(inner, "NOT")?;
                Ok(not(Typed::new(b, SqlType::Bool)))
            }
            other => Err(SqlError::unsupported(format!("operator {other}"))),
        }
    }

    fn is_null(&mut self, e: &ast::Expr) -> SqlResult<Typed> {
        let inner = self.boxed(e)?;
        if let (SqlType::Unknown, Expr::Param(n)) = (inner.ty, &inner.expr) {
            let text = format!("could not determine data type of parameter ${}", n + 1);
            return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, text));
        }
        Ok(Typed::new(Expr::IsNull(Box::new(inner.expr)), SqlType::Bool))
    }

    /// Whether a condition is this truth value; `None` is unknown.
    fn is_bool(&mut self, e: &ast::Expr, wanted: Option<bool>, clause: &str) -> SqlResult<Typed> {
        let inner = self.boxed(e)?;
        let b = self.boolean(inner, clause);
        let b = Box::new(self.at(e, b)?);
        let same = match wanted {
            Some(v) => Expr::Binary(BinaryOp::NotDistinct, b, Box::new(Expr::Literal(Datum::Bool(v)))),
            None => Expr::IsNull(b),
        };
        Ok(Typed::new(same, SqlType::Bool))
    }

    fn not_distinct(&mut self, l: &ast::Expr, r: &ast::Expr) -> SqlResult<Typed> {
        let (left, right) = (self.boxed(l)?, self.boxed(r)?);
        self.binary(BinaryOp::NotDistinct, left, right)
    }

    fn in_list(&mut self, e: &ast::Expr, list: &[ast::Expr], negated: bool) -> SqlResult<Typed> {
        let mut needle = self.boxed(e)?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            items.push(self.boxed(item)?);
        }
        // Values without columns take one type with the needle, if there is one for all.
        let fixed = |t: &Typed| crate::tree::is_constant(&t.expr);
        let many = items.iter().filter(|t| fixed(t)).count() > 1;
        let mut types = items.iter().filter(|t| fixed(t)).map(|t| t.ty);
        let common = types.try_fold(needle.ty, common_type);
        if let Some(common) = common.filter(|ty| many && *ty != SqlType::Unknown).map(types::base) {
            for item in items.iter_mut().filter(|t| fixed(t)) {
                *item = self.cast_to(item.clone(), common)?;
            }
        }
        // Without a common type an undecided needle takes that of each value.
        if common.is_none() && matches!((needle.ty, &needle.expr), (SqlType::Unknown, Expr::Literal(_))) {
            let mut found = Typed::new(Expr::Literal(Datum::Bool(false)), SqlType::Bool);
            for item in items {
                let equal = self.binary(BinaryOp::Eq, needle.clone(), item)?;
                found = self.binary(BinaryOp::Or, found, equal)?;
            }
            return Ok(if negated { not(found) } else { found });
        }
        // One type for all: the needle goes where its widest item goes.
        for item in &items {
            let (l, _) = self.comparable("=", needle, item.clone())?;
            needle = l;
        }
        let mut exprs = Vec::with_capacity(items.len());
        for item in items {
            exprs.push(self.comparable("=", needle.clone(), item)?.1.expr);
        }
        let found = Typed::new(Expr::InList(Box::new(needle.expr), exprs), SqlType::Bool);
        Ok(if negated { not(found) } else { found })
    }

    fn between(&mut self, e: &ast::Expr, low: &ast::Expr, high: &ast::Expr, negated: bool) -> SqlResult<Typed> {
        // The value is bound twice: what is undecided may become of one type here and of another there.
        let (value, low) = (self.boxed(e)?, self.boxed(low)?);
        let above = self.binary(BinaryOp::Ge, value, low)?;
        let (value, high) = (self.boxed(e)?, self.boxed(high)?);
        let below = self.binary(BinaryOp::Le, value, high)?;
        let both = self.binary(BinaryOp::And, above, below)?;
        Ok(if negated { not(both) } else { both })
    }

    fn like(
        &mut self,
        e: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
        negated: bool,
        insensitive: bool,
    ) -> SqlResult<Typed> {
        let backslash = |v: &ast::Value| matches!(v, ast::Value::SingleQuotedString(s) if s == "\\");
        match escape {
            None => {}
            Some(ast::Expr::Value(v)) if backslash(&v.value) => {}
            Some(_) => return Err(SqlError::unsupported("LIKE with an ESCAPE other than a backslash")),
        }
        let (text, pattern) = (self.boxed(e)?, self.boxed(pattern)?);
        if !text.ty.is_string() || !pattern.ty.is_string() {
            return Err(crate::ops::no_operator(if insensitive { "~~*" } else { "~~" }, text.ty, pattern.ty));
        }
        // The blanks of a char(n) count, but not those of a pattern: that is a text.
        let text = padded(self.decide(text, SqlType::Text)?);
        let pattern = self.decide(pattern, SqlType::Text)?;
        let (expr, pattern) = (Box::new(text.expr), Box::new(pattern.expr));
        let found = Typed::new(Expr::Like { expr, pattern, insensitive }, SqlType::Bool);
        Ok(if negated { not(found) } else { found })
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        arms: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> SqlResult<Typed> {
        let operand = operand.map(|e| self.boxed(e).and_then(|t| self.decide(t, SqlType::Text))).transpose()?;
        let (mut conditions, mut results) = (Vec::new(), Vec::new());
        for arm in arms {
            let when = self.boxed(&arm.condition)?;
            conditions.push(match &operand {
                Some(o) => self.binary(BinaryOp::Eq, o.clone(), when)?.expr,
                None => self.boolean(when, "CASE/WHEN")?,
            });
            results.push(self.boxed(&arm.result)?);
        }
        if let Some(e) = otherwise {
            results.push(self.boxed(e)?);
        }
        let (mut results, ty) = self.unify(results, "CASE")?;
        let last = if otherwise.is_some() { results.pop().map(Box::new) } else { None };
        Ok(Typed::new(Expr::Case(conditions.into_iter().zip(results).collect(), last), ty))
    }
}

fn not(t: Typed) -> Typed {
    Typed::new(Expr::Unary(UnaryOp::Not, Box::new(t.expr)), SqlType::Bool)
}

/// A value of char(n) as a text that has its blanks.
pub(crate) fn padded(t: Typed) -> Typed {
    match t.ty {
        SqlType::Char(n) if n <= types::MAX_LENGTH => {
            let n = Expr::Literal(Datum::Int4(n as i32));
            Typed::new(Expr::Func(Func::Pad, vec![t.expr, n]), SqlType::Text)
        }
        _ => t,
    }
}

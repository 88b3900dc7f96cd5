//! Binding of scalar expressions: names, types, casts.
//!
//! Aggregates are bound to [`Expr::Column`]s numbered from [`AGGREGATE`]; `select` puts them in their places once all are known.

use crate::error::place;
use crate::literal::number;
use crate::scope::{Scope, fold};
use crate::types;
use clearway_plan::expr::{BinaryOp, UnaryOp};
use clearway_plan::program::Aggregate;
use clearway_plan::{Expr, Zone, cast, value};
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
            E::IsTrue(inner) => self.is_bool(inner, true),
            E::IsNotTrue(inner) => Ok(not(self.is_bool(inner, true)?)),
            E::IsFalse(inner) => self.is_bool(inner, false),
            E::IsNotFalse(inner) => Ok(not(self.is_bool(inner, false)?)),
            E::IsUnknown(inner) => self.is_null(inner),
            E::IsNotUnknown(inner) => Ok(not(self.is_null(inner)?)),
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
            V::Number(text, _) => {
                let (d, ty) = number(text, false)
                    .ok_or_else(|| SqlError::new(SqlState::OUT_OF_RANGE, "value overflows numeric format"))?;
                Typed::new(Expr::Literal(d), ty)
            }
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

    /// Gives an undecided expression a type: a literal is read, a parameter becomes of it. Others are left alone.
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
                let param = Typed::new(Expr::Param(n), ty);
                if ty == to { Ok(param) } else { Ok(cast_expr(param, to, false)) }
            }
            Expr::Literal(Datum::Null) => Ok(Typed::new(t.expr, to)),
            // The meaning depends on the session's zone: it is read at each execution.
            Expr::Literal(Datum::Text(_)) if to == SqlType::Timestamptz => Ok(cast_expr(t, to, false)),
            Expr::Literal(Datum::Text(s)) => {
                let d = value::parse_text(to, &s, &Zone::utc())?;
                Ok(Typed::new(Expr::Literal(d), to))
            }
            _ => Ok(cast_expr(t, to, false)),
        }
    }

    /// An implicit conversion between known types.
    pub(crate) fn cast_to(&mut self, t: Typed, to: SqlType) -> SqlResult<Typed> {
        if t.ty == SqlType::Unknown {
            return self.decide(t, to);
        }
        if t.ty == to {
            return Ok(t);
        }
        fold_constant(cast_expr(t, to, false))
    }

    /// A cast that the user wrote.
    pub(crate) fn explicit_cast(&mut self, t: Typed, to: SqlType) -> SqlResult<Typed> {
        if t.ty == SqlType::Unknown {
            let bounded = matches!(to, SqlType::Char(_) | SqlType::Varchar(Some(_)));
            let t = self.decide(t, if bounded { SqlType::Text } else { to })?;
            if !bounded {
                return Ok(t);
            }
            if let Expr::Param(n) = t.expr
                && self.params[n] == SqlType::Text
            {
                self.params[n] = types::base(to);
            }
            return fold_constant(cast_expr(t, to, true));
        }
        if t.ty == to {
            return Ok(t);
        }
        if !castable(t.ty, to) {
            let text = format!("cannot cast type {} to {}", t.ty, to);
            return Err(SqlError::new(SqlState::CANNOT_COERCE, text));
        }
        fold_constant(cast_expr(t, to, true))
    }

    fn cast(&mut self, e: &ast::Expr, to: &ast::DataType) -> SqlResult<Typed> {
        let to = types::resolve(to)?;
        let inner = self.boxed(e)?;
        self.explicit_cast(inner, to)
    }

    /// An assignment to a column: what INSERT and UPDATE do.
    pub(crate) fn assign(&mut self, t: Typed, to: SqlType, column: &str) -> SqlResult<Expr> {
        if t.ty == SqlType::Unknown {
            return self.decide(t, to).map(|t| t.expr);
        }
        if t.ty == to {
            return Ok(t.expr);
        }
        if !assignable(t.ty, to) {
            let text = format!("column \"{column}\" is of type {to} but expression is of type {}", t.ty);
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, text)
                .hint("You will need to rewrite or cast the expression."));
        }
        fold_constant(cast_expr(t, to, false)).map(|t| t.expr)
    }

    /// A condition.
    pub(crate) fn boolean(&mut self, t: Typed, clause: &str) -> SqlResult<Expr> {
        let t = self.decide(t, SqlType::Bool)?;
        if t.ty != SqlType::Bool {
            let text = format!("argument of {clause} must be type boolean, not type {}", t.ty);
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
        if *op == UnaryOperator::Minus
            && let ast::Expr::Value(v) = e
            && let ast::Value::Number(text, _) = &v.value
            && let Some((d, ty)) = number(text, true)
        {
            return Ok(Typed::new(Expr::Literal(d), ty));
        }
        let inner = self.boxed(e)?;
        match op {
            UnaryOperator::Minus => self.negate(inner),
            UnaryOperator::Plus => Ok(inner),
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

    fn is_bool(&mut self, e: &ast::Expr, wanted: bool) -> SqlResult<Typed> {
        let inner = self.boxed(e)?;
        let b = self.boolean(inner, if wanted { "IS TRUE" } else { "IS FALSE" })?;
        let literal = Expr::Literal(Datum::Bool(wanted));
        Ok(Typed::new(Expr::Binary(BinaryOp::NotDistinct, Box::new(b), Box::new(literal)), SqlType::Bool))
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
        let (value, low, high) = (self.boxed(e)?, self.boxed(low)?, self.boxed(high)?);
        let above = self.binary(BinaryOp::Ge, value.clone(), low)?;
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
        let (text, pattern) = (self.decide(text, SqlType::Text)?, self.decide(pattern, SqlType::Text)?);
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
        let operand = operand.map(|e| self.boxed(e)).transpose()?;
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

    /// One type for alternatives: of CASE, COALESCE, GREATEST, VALUES.
    pub(crate) fn unify(&mut self, items: Vec<Typed>, what: &str) -> SqlResult<(Vec<Expr>, SqlType)> {
        let mut common = SqlType::Unknown;
        for t in &items {
            common = match (common, t.ty) {
                (a, SqlType::Unknown) => a,
                (SqlType::Unknown, b) => b,
                (a, b) if a == b => a,
                (a, b) if a.is_string() && b.is_string() => {
                    if types::base(a) == types::base(b) {
                        types::base(a)
                    } else {
                        SqlType::Text
                    }
                }
                (a, b) if is_time(a) && is_time(b) => time_common(a, b),
                (a, b) => crate::ops::numeric_common(a, b).ok_or_else(|| {
                    SqlError::new(SqlState::DATATYPE_MISMATCH, format!("{what} types {a} and {b} cannot be matched"))
                })?,
            };
        }
        if common == SqlType::Unknown {
            common = SqlType::Text;
        }
        let exprs: SqlResult<Vec<Expr>> = items.into_iter().map(|t| self.cast_to(t, common).map(|t| t.expr)).collect();
        Ok((exprs?, common))
    }
}

fn not(t: Typed) -> Typed {
    Typed::new(Expr::Unary(UnaryOp::Not, Box::new(t.expr)), SqlType::Bool)
}

pub(crate) fn cast_expr(t: Typed, to: SqlType, explicit: bool) -> Typed {
    Typed::new(Expr::Cast { expr: Box::new(t.expr), to, explicit }, to)
}

/// Evaluates a cast of a literal now, unless it depends on the session's zone.
fn fold_constant(t: Typed) -> SqlResult<Typed> {
    let Expr::Cast { expr, to, explicit } = &t.expr else { return Ok(t) };
    let Expr::Literal(d) = &**expr else { return Ok(t) };
    let zoned = |ty| ty == SqlType::Timestamptz;
    if zoned(*to) || matches!(d, Datum::Timestamptz(_)) {
        return Ok(t);
    }
    let d = cast::cast(d.as_ref(), *to, *explicit, &Zone::utc())?;
    Ok(Typed::new(Expr::Literal(d), t.ty))
}

fn is_number(ty: SqlType) -> bool {
    ty.is_integer() || matches!(ty, SqlType::Numeric | SqlType::Float8)
}

pub(crate) fn is_time(ty: SqlType) -> bool {
    matches!(ty, SqlType::Date | SqlType::Timestamp | SqlType::Timestamptz)
}

/// What two of date, timestamp and timestamptz both become: the one that says most.
pub(crate) fn time_common(a: SqlType, b: SqlType) -> SqlType {
    match (a, b) {
        (a, b) if a == b => a,
        (SqlType::Timestamptz, _) | (_, SqlType::Timestamptz) => SqlType::Timestamptz,
        _ => SqlType::Timestamp,
    }
}

/// Whether PostgreSQL converts silently in an assignment.
pub(crate) fn assignable(from: SqlType, to: SqlType) -> bool {
    to.is_string() || is_number(from) && is_number(to) || is_time(from) && is_time(to) || from == to
}

/// Whether a cast that is written out is allowed.
fn castable(from: SqlType, to: SqlType) -> bool {
    let int4_bool = matches!((from, to), (SqlType::Int4, SqlType::Bool) | (SqlType::Bool, SqlType::Int4));
    assignable(from, to) || from.is_string() || int4_bool
}

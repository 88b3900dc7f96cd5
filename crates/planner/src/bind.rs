//! Binds scalar expressions: names, operators, and constructs with a syntax of their own.
//!
//! Aggregates are bound to [`Expr::Column`]s numbered from [`AGGREGATE`]. `select` replaces the
//! numbers once all aggregates are known.

use crate::coerce::{long_numeric, long_numeric_text};
use crate::error::foreign;
use crate::literal::number;
use crate::ops::shown;
use crate::position::{is_undecided, is_word};
use crate::relation::cross_database;
use crate::scope::{Scope, fold};
use crate::types;
use clearway_ir::Expr;
use clearway_ir::expr::{BinaryOp, Func, SwitchArm, UnaryOp};
use clearway_ir::program::Aggregate;
use clearway_ir::search_path::SearchPath;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, Spanned, UnaryOperator};
use sqlparser::tokenizer::{Location, Token};

/// Column numbers from here on are aggregates that have no position yet.
pub(crate) const AGGREGATE: usize = 1 << 24;
/// Maximum number of nodes of a statement's copied expressions.
const MAX_COPIED: usize = 1 << 17;
/// Maximum size of the literals in a statement's copied expressions, in bytes. Twice the size of
/// the statement's text is also allowed: one copy of each literal multiplies nothing.
const MAX_COPIED_TEXT: usize = 2 << 20;
/// Stands for the operand of a simple CASE while its conditions are bound.
const OPERAND: usize = usize::MAX;
/// PostgreSQL's limit on parameters.
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

/// Whether aggregates are allowed at the current position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aggregates {
    Allowed,
    /// The clause that does not allow them.
    Refused(&'static str),
    /// Inside another aggregate.
    Nested,
}

/// Whether calls of pg_export_snapshot() are allowed. They bind to the only column of the
/// statement's source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Exports {
    Refused,
    Allowed,
    /// One has been bound.
    Called,
}

/// One of LIKE, ILIKE, NOT LIKE and NOT ILIKE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LikeForm {
    pub(crate) negated: bool,
    pub(crate) insensitive: bool,
}

/// Binds the expressions of one statement.
pub(crate) struct Binder<'a> {
    pub(crate) sql: &'a str,
    /// The type of each parameter, as far as it is known.
    pub(crate) params: Vec<SqlType>,
    /// The types of the literals that the parameters stand for, in a plan that is cached. An
    /// undecided one may take another type each time it is bound.
    pub(crate) literals: Vec<SqlType>,
    pub(crate) scope: Scope,
    pub(crate) mode: Aggregates,
    pub(crate) aggregates: Vec<Aggregate>,
    pub(crate) exports: Exports,
    /// Number of calls of random() so far.
    pub(crate) randoms: i32,
    /// Number of nodes of the expressions that are evaluated in more places than the one where they
    /// are written, and the size of their literals in bytes.
    copied: (usize, usize),
    /// The schemas searched for a name without a schema.
    pub(crate) path: SearchPath,
    /// Parameters used, and where, when their types were not decided and did not matter there.
    untyped: Vec<(usize, Option<u32>)>,
    /// Columns of the scope named outside aggregates and GROUP BY, and where.
    pub(crate) seen: Vec<(usize, Location)>,
}

impl<'a> Binder<'a> {
    pub(crate) fn new(sql: &'a str, param_types: &[SqlType], path: SearchPath) -> Self {
        Self {
            sql,
            params: param_types.to_vec(),
            literals: Vec::new(),
            scope: Scope::default(),
            mode: Aggregates::Refused("this clause"),
            aggregates: Vec::new(),
            exports: Exports::Refused,
            randoms: 0,
            copied: (0, 0),
            path,
            untyped: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Returns the parameters' final types. Undecided ones become text.
    ///
    /// # Errors
    /// As in PostgreSQL, 42P08 if a type was decided after a use that did not decide it, and 42P18
    /// if there were only such uses.
    pub(crate) fn final_params(&self) -> SqlResult<Vec<SqlType>> {
        let is_decided = |n: usize| self.params[n] != SqlType::Unknown;
        let late = self.untyped.iter().find(|(n, _)| is_decided(*n));
        if let Some((n, position)) = late.or(self.untyped.iter().min_by_key(|(n, _)| n)) {
            let text = format!("could not determine data type of parameter ${}", n + 1);
            if !is_decided(*n) {
                return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, text));
            }
            let error = SqlError::new(SqlState(*b"42P08"), text);
            return Err(if let Some(at) = position { error.at(*at) } else { error });
        }
        let decided = |t: &SqlType| if *t == SqlType::Unknown { SqlType::Text } else { *t };
        Ok(self.params.iter().map(decided).collect())
    }

    /// Binds an expression. An undecided one keeps type Unknown. Errors point to the innermost
    /// expression.
    pub(crate) fn bind(&mut self, e: &ast::Expr) -> SqlResult<Typed> {
        let r = self.bind_inner(e);
        self.at(e, r)
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
                self.saw(at, e.span().start);
                Ok(Typed::new(Expr::Column(at), self.scope.columns[at].1))
            }
            E::CompoundIdentifier(names) => {
                let names: Vec<String> = names.iter().map(fold).collect();
                let at = match names.as_slice() {
                    [relation, column] => self.scope.find(Some(relation), column)?,
                    [schema, relation, column] => {
                        self.scope.of_schema(schema, relation)?;
                        self.scope.find(Some(relation), column)?
                    }
                    _ => return Err(cross_database(&names.join("."))),
                };
                self.saw(at, e.span().start);
                Ok(Typed::new(Expr::Column(at), self.scope.columns[at].1))
            }
            E::Value(v) => self.constant(&v.value),
            E::BinaryOp { .. } => self.chain(e),
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
                let form = LikeForm { negated: *negated, insensitive: false };
                self.like(expr, pattern, escape_char.as_deref(), form)
            }
            E::ILike { negated, any: false, expr, pattern, escape_char } => {
                let form = LikeForm { negated: *negated, insensitive: true };
                self.like(expr, pattern, escape_char.as_deref(), form)
            }
            E::Cast { kind, expr, data_type, format } => {
                let tried = matches!(kind, ast::CastKind::TryCast | ast::CastKind::SafeCast);
                foreign(&[(tried, "TRY_CAST"), (format.is_some(), "FORMAT in CAST")])?;
                self.cast(kind, expr, data_type)
            }
            E::TypedString(t) => {
                foreign(&[(!is_string(&t.value.value), "a type before a value without quotes")])?;
                let to = self.of_type(&t.data_type, types::resolve_literal(&t.data_type))?;
                let literal = self.constant(&t.value.value)?;
                let r = self.explicit_cast(literal, to);
                self.at_literal(&ast::Expr::Value(t.value.clone()), r)
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            _ => crate::funcs::bind(self, e),
        }
    }

    /// Copies a bound expression.
    pub(crate) fn copy(&mut self, t: &Typed) -> SqlResult<Typed> {
        self.count_copy(&t.expr)?;
        Ok(t.clone())
    }

    /// Counts a copy of an expression. 54001 if there are too many: nested constructs that copy
    /// their operands make a plan exponentially larger than its text.
    pub(crate) fn count_copy(&mut self, e: &Expr) -> SqlResult<()> {
        let (nodes, text) = &mut self.copied;
        crate::tree::walk(e, &mut |e| {
            *nodes += 1;
            if let Expr::Literal(Datum::Text(s)) = e {
                *text += s.len();
            }
        });
        // A copy of a leaf adds as much as the text that requires it.
        *nodes -= 1;
        if *nodes <= MAX_COPIED && *text <= MAX_COPIED_TEXT.max(2 * self.sql.len()) {
            return Ok(());
        }
        Err(crate::error::too_deep()
            .hint("BETWEEN, IN and NULLIF copy an operand. Do not nest them in that operand."))
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
            // A stored condition outlives the statement.
            .filter(|_| self.mode != Aggregates::Refused(crate::checks::CLAUSE))
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::UNDEFINED_PARAMETER,
                    format!("there is no parameter {name}"),
                )
            })?;
        if self.params.len() < n {
            self.params.resize(n, SqlType::Unknown);
        }
        let ty = self.literals.get(n - 1).unwrap_or(&self.params[n - 1]);
        Ok(Typed::new(Expr::Param(n - 1), *ty))
    }

    fn cast(
        &mut self,
        kind: &ast::CastKind,
        e: &ast::Expr,
        to: &ast::DataType,
    ) -> SqlResult<Typed> {
        let to = self.of_type(to, types::resolve(to))?;
        let inner = self.bind(e)?;
        let undecided = is_undecided(&inner);
        let r = self.explicit_cast(inner, to);
        if undecided {
            return self.at_literal(e, r);
        }
        match kind {
            ast::CastKind::DoubleColon => {
                // Each inner cast has its own pair of colons before this one.
                let mut inside = 0;
                let mut inner = e;
                while let ast::Expr::Cast { kind: ast::CastKind::DoubleColon, expr, .. } = inner {
                    inside += 1;
                    inner = expr;
                }
                let seen = std::cell::Cell::new(0);
                self.of_operator(r, &[(false, e)], |t| {
                    *t == Token::DoubleColon && seen.replace(seen.get() + 1) == inside
                })
            }
            _ => self.of_call(e, r),
        }
    }

    /// Converts to a condition of a clause.
    pub(crate) fn boolean(&mut self, t: Typed, clause: &str) -> SqlResult<Expr> {
        let t = self.decide(t, SqlType::Bool)?;
        if t.ty != SqlType::Bool {
            let text =
                format!("argument of {clause} must be type boolean, not type {}", shown(t.ty));
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, text));
        }
        Ok(t.expr)
    }

    fn unary_operator(&mut self, op: &UnaryOperator, e: &ast::Expr) -> SqlResult<Typed> {
        // Minus signs before a number are folded before its type is determined.
        let (mut operand, mut negative) = (e, true);
        loop {
            match operand {
                ast::Expr::Nested(inner) => operand = inner,
                ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                    (operand, negative) = (expr, !negative)
                }
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
        let inner = self.bind(e)?;
        match op {
            UnaryOperator::Minus => match long_numeric_text(&inner.expr) {
                Some(text) => Ok(long_numeric(&format!("-{text}"))),
                None => {
                    let r = self.negate(inner);
                    self.of_prefix(e, r)
                }
            },
            UnaryOperator::Plus => {
                let undecided = is_undecided(&inner);
                let r = self.plus(inner);
                if undecided { self.at_literal(e, r) } else { self.of_prefix(e, r) }
            }
            UnaryOperator::Not => {
                let b = self.boolean(inner, "NOT");
                let b = self.at_literal(e, b)?;
                Ok(not(Typed::new(b, SqlType::Bool)))
            }
            other => Err(SqlError::unsupported(format!("operator {other}"))),
        }
    }

    fn is_null(&mut self, e: &ast::Expr) -> SqlResult<Typed> {
        let inner = self.bind(e)?;
        if let (SqlType::Unknown, Expr::Param(n)) = (inner.ty, &inner.expr) {
            let position = self.position(e);
            self.untyped.push((*n, position));
        }
        Ok(Typed::new(Expr::IsNull(Box::new(inner.expr)), SqlType::Bool))
    }

    /// Binds a test for this truth value; `None` is unknown.
    fn is_bool(&mut self, e: &ast::Expr, wanted: Option<bool>, clause: &str) -> SqlResult<Typed> {
        let inner = self.bind(e)?;
        let b = self.boolean(inner, clause);
        let b = Box::new(self.at_literal(e, b)?);
        let same = match wanted {
            Some(v) => {
                Expr::Binary(BinaryOp::NotDistinct, b, Box::new(Expr::Literal(Datum::Bool(v))))
            }
            None => Expr::IsNull(b),
        };
        Ok(Typed::new(same, SqlType::Bool))
    }

    pub(crate) fn like(
        &mut self,
        e: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
        LikeForm { negated, insensitive }: LikeForm,
    ) -> SqlResult<Typed> {
        let backslash =
            |v: &ast::Value| matches!(v, ast::Value::SingleQuotedString(s) if s == "\\");
        match escape {
            None => {}
            Some(ast::Expr::Value(v)) if backslash(&v.value) => {}
            Some(_) => {
                return Err(SqlError::unsupported("LIKE with an ESCAPE other than a backslash"));
            }
        }
        let (text, pattern) = (self.bind(e)?, self.bind(pattern)?);
        if !text.ty.is_string() || !pattern.ty.is_string() {
            let op = match (negated, insensitive) {
                (false, false) => "~~",
                (false, true) => "~~*",
                (true, false) => "!~~",
                (true, true) => "!~~*",
            };
            let e = [(false, e)];
            let is_like = |t: &Token| {
                is_word(t, &["not", "like", "ilike"])
                    || matches!(t, Token::DoubleTilde | Token::ExclamationMarkDoubleTilde)
            };
            return self.of_operator(
                Err(crate::ops::no_operator(op, text.ty, pattern.ty)),
                &e,
                is_like,
            );
        }
        // The blanks of a char(n) count, but not those of a pattern: the pattern is a text.
        let text = padded(self.decide(text, SqlType::Text)?)?;
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
        let mut operand = operand
            .map(|e| self.bind(e).and_then(|t| self.decide(t, SqlType::Text)))
            .transpose()?;
        // Each arm's test: the type that the operand is converted to, and what it is compared with;
        // or a condition.
        let (mut tests, mut results) = (Vec::new(), Vec::new());
        let results_of = otherwise.into_iter().chain(arms.iter().map(|arm| &arm.result));
        // PostgreSQL checks ELSE first.
        if let Some(e) = otherwise {
            results.push(self.bind(e)?);
        }
        for arm in arms {
            let when = self.bind(&arm.condition)?;
            let condition = match &operand {
                Some(o) => {
                    let operand = Typed::new(Expr::Column(OPERAND), o.ty);
                    let equal = self.binary(BinaryOp::Eq, operand, when).map(|t| t.expr);
                    self.of_prefix(&arm.condition, equal)
                }
                None => self.boolean(when, "CASE/WHEN"),
            };
            tests.push(match (&operand, self.at_literal(&arm.condition, condition)?) {
                (Some(_), Expr::Binary(_, operand, value)) => match *operand {
                    Expr::Cast { to, .. } => (Some(to), *value),
                    _ => (None, *value),
                },
                (_, condition) => (None, condition),
            });
            results.push(self.bind(&arm.result)?);
        }
        // An operand that our numeric cannot hold is a float8 if all arms compare it as one.
        if let Some(o) = &mut operand
            && long_numeric_text(&o.expr).is_some()
            && tests.iter().all(|(to, _)| *to == Some(SqlType::Float8))
        {
            *o = self.cast_to(o.clone(), SqlType::Float8)?;
            tests.iter_mut().for_each(|(to, _)| *to = None);
        }
        let (mut results, ty) = self.unify_at(results, results_of, "CASE")?;
        let otherwise = otherwise.is_some().then(|| Box::new(results.remove(0)));
        let arms = tests.into_iter().zip(results);
        let case = match operand {
            Some(operand) => {
                let arms = arms.map(|((to, value), then)| SwitchArm { to, value, then });
                let operand = Box::new(operand.expr);
                Expr::Switch { operand, arms: arms.collect(), otherwise }
            }
            None => Expr::Case(arms.map(|((_, when), then)| (when, then)).collect(), otherwise),
        };
        Ok(Typed::new(case, ty))
    }
}

/// Returns true for a literal in quotes.
fn is_string(v: &ast::Value) -> bool {
    use ast::Value as V;
    matches!(
        v,
        V::SingleQuotedString(_)
            | V::EscapedStringLiteral(_)
            | V::UnicodeStringLiteral(_)
            | V::DollarQuotedString(_)
    )
}

pub(crate) fn not(t: Typed) -> Typed {
    Typed::new(Expr::Unary(UnaryOp::Not, Box::new(t.expr)), SqlType::Bool)
}

/// Converts a char(n) value to a text that keeps its blanks.
pub(crate) fn padded(t: Typed) -> SqlResult<Typed> {
    match t.ty {
        types::BPCHAR => Err(types::no_bpchar()),
        SqlType::Char(n) => {
            let n = Expr::Literal(Datum::Int4(n as i32));
            Ok(Typed::new(Expr::Func(Func::Pad, vec![t.expr, n]), SqlType::Text))
        }
        _ => Ok(t),
    }
}

//! Operators as written: binds both sides, and positions their errors.

use crate::bind::{Binder, LikeForm, Typed, not};
use crate::coerce::{common_type, is_number, is_time};
use crate::position::{is_undecided, is_word};
use crate::types;
use clearway_ir::Expr;
use clearway_ir::expr::BinaryOp;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, BinaryOperator, Spanned};
use sqlparser::tokenizer::Token;

impl Binder<'_> {
    /// Binds consecutive operators from the left, in a loop, since there may be very many.
    pub(crate) fn chain(&mut self, e: &ast::Expr) -> SqlResult<Typed> {
        let (mut nodes, mut first) = (Vec::new(), e);
        while let ast::Expr::BinaryOp { left, op, right } = first {
            nodes.push((first, op, &**right));
            first = left;
        }
        let (mut left, mut l) = (self.bind(first)?, first);
        for (node, op, right) in nodes.into_iter().rev() {
            let r = self.binary_operator((left, l), op, right);
            (left, l) = (self.at(node, r)?, node);
        }
        Ok(left)
    }

    fn binary_operator(
        &mut self,
        (left, l): (Typed, &ast::Expr),
        op: &BinaryOperator,
        r: &ast::Expr,
    ) -> SqlResult<Typed> {
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
            O::PGLikeMatch | O::PGNotLikeMatch => {
                let negated = matches!(op, O::PGNotLikeMatch);
                return self.like(l, r, None, LikeForm { negated, insensitive: false });
            }
            // PostgreSQL does not have these, either.
            O::Custom(op) if op == "==" || op.ends_with(['+', '-']) => {
                let right = self.bind(r)?;
                let error = crate::ops::no_operator(op, left.ty, right.ty);
                return self.of_operator(Err(error), &[(false, l)], |t| match t {
                    Token::DoubleEq => op == "==",
                    Token::CustomBinaryOperator(token) => token == op,
                    _ => false,
                });
            }
            other => return Err(SqlError::unsupported(format!("operator {other}"))),
        };
        let right = self.bind(r)?;
        if let BinaryOp::And | BinaryOp::Or = op {
            let name = if op == BinaryOp::And { "AND" } else { "OR" };
            let (left, right) = (self.boolean(left, name), self.boolean(right, name));
            let (left, right) = (self.at_literal(l, left)?, self.at_literal(r, right)?);
            return Ok(Typed::new(
                Expr::Binary(op, Box::new(left), Box::new(right)),
                SqlType::Bool,
            ));
        }
        let operands = [(is_undecided(&left), l), (is_undecided(&right), r)];
        let result = self.binary(op, left, right);
        let symbol = op.symbol();
        self.of_operator(result, &operands, |t| {
            t.to_string() == symbol || symbol == "<>" && *t == Token::Neq
        })
    }

    pub(crate) fn not_distinct(&mut self, l: &ast::Expr, r: &ast::Expr) -> SqlResult<Typed> {
        let (left, right) = (self.bind(l)?, self.bind(r)?);
        let operands = [(is_undecided(&left), l), (is_undecided(&right), r)];
        let result = self.binary(BinaryOp::NotDistinct, left, right);
        self.of_operator(result, &operands, |t| is_word(t, &["is"]))
    }

    pub(crate) fn in_list(
        &mut self,
        e: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
    ) -> SqlResult<Typed> {
        let mut needle = self.bind(e)?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            items.push(self.bind(item)?);
        }
        let is_in = |t: &Token| is_word(t, &["not", "in"]);
        // Values without columns share one type with the needle, if all have a common type.
        let fixed = |t: &Typed| t.expr.is_constant();
        let many = items.iter().filter(|t| fixed(t)).count() > 1;
        let mut types = items.iter().filter(|t| fixed(t)).map(|t| t.ty);
        let common = types.try_fold(needle.ty, common_type);
        if let Some(common) = common.filter(|ty| many && *ty != SqlType::Unknown).map(types::base) {
            for (item, place) in items.iter_mut().zip(list).filter(|(t, _)| fixed(t)) {
                let undecided = is_undecided(item);
                let r = self.cast_to(item.clone(), common);
                *item = if undecided { self.at_literal(place, r)? } else { r? };
            }
        }
        // Without a common type, an undecided needle takes each value's type.
        if common.is_none()
            && matches!((needle.ty, &needle.expr), (SqlType::Unknown, Expr::Literal(_)))
        {
            let each = if negated { BinaryOp::Ne } else { BinaryOp::Eq };
            let mut found = Vec::with_capacity(items.len());
            for (item, place) in items.into_iter().zip(list) {
                let operands = [(true, e), (is_undecided(&item), place)];
                let needle = self.copy(&needle)?;
                let r = self.binary(each, needle, item);
                found.push(match self.of_operator(r, &operands, is_in)?.expr {
                    Expr::Binary(_, l, r) => Expr::Binary(BinaryOp::Eq, l, r),
                    other => other,
                });
            }
            let found = any(found).unwrap_or(Expr::Literal(Datum::Bool(false)));
            let found = Typed::new(found, SqlType::Bool);
            return Ok(if negated { not(found) } else { found });
        }
        // One type for all: the needle takes the type of its widest item.
        let op = if negated { "<>" } else { "=" };
        for (item, place) in items.iter().zip(list) {
            let operands = [(is_undecided(&needle), e), (is_undecided(item), place)];
            let r = self.comparable(op, needle, item.clone());
            (needle, _) = self.of_operator(r, &operands, is_in)?;
        }
        let mut exprs = Vec::with_capacity(items.len());
        for (item, place) in items.into_iter().zip(list) {
            let operands = [(false, e), (is_undecided(&item), place)];
            // Only the needle's type matters to an item.
            let of_type = Typed::new(Expr::Literal(Datum::Null), needle.ty);
            let r = self.comparable(op, of_type, item);
            exprs.push(self.of_operator(r, &operands, is_in)?.1.expr);
        }
        let found = Typed::new(Expr::InList(Box::new(needle.expr), exprs), SqlType::Bool);
        Ok(if negated { not(found) } else { found })
    }

    pub(crate) fn between(
        &mut self,
        e: &ast::Expr,
        low: &ast::Expr,
        high: &ast::Expr,
        negated: bool,
    ) -> SqlResult<Typed> {
        let is_between = |t: &Token| is_word(t, &["not", "between"]);
        // The value is bound twice: an undecided one may take different types in the two
        // comparisons.
        let (value, from) = (self.bind(e)?, self.bind(low)?);
        self.count_copy(&value.expr)?;
        let operands = [(is_undecided(&value), e), (is_undecided(&from), low)];
        let above = self.binary(BinaryOp::Ge, value, from);
        let above = self.of_operator(above, &operands, is_between)?;
        let (value, to) = (self.bind(e)?, self.bind(high)?);
        let operands = [(is_undecided(&value), e), (is_undecided(&to), high)];
        let below = self.binary(BinaryOp::Le, value, to);
        let below = self.of_operator(below, &operands, is_between)?;
        let both = self.binary(BinaryOp::And, above, below)?;
        Ok(if negated { not(both) } else { both })
    }

    /// Like [`Binder::unify`], with errors at the first expression that does not match the previous
    /// ones.
    pub(crate) fn unify_at<'e>(
        &mut self,
        items: Vec<Typed>,
        mut places: impl Iterator<Item = &'e ast::Expr>,
        what: &str,
    ) -> SqlResult<(Vec<Expr>, SqlType)> {
        let error = match self.unify(items.clone(), what) {
            Ok(unified) => return Ok(unified),
            Err(error) => error,
        };
        let types: Vec<SqlType> = items.iter().map(|t| t.ty).collect();
        let wrong = match error.state() {
            SqlState::DATATYPE_MISMATCH => mismatch(&types),
            _ => self.unreadable(items),
        };
        Err(match wrong.and_then(|n| places.nth(n)) {
            Some(e) => crate::error::place(error, self.sql, e.span().start),
            None => error,
        })
    }

    /// Returns the first literal that is invalid for the common type.
    fn unreadable(&mut self, items: Vec<Typed>) -> Option<usize> {
        let common =
            types::base(items.iter().try_fold(SqlType::Unknown, |ty, t| common_type(ty, t.ty))?);
        items.into_iter().position(|t| is_undecided(&t) && self.decide(t, common).is_err())
    }
}

/// Joins conditions by OR, from the left, as a balanced tree: there may be more of them than a
/// chain may have operators.
fn any(mut conditions: Vec<Expr>) -> Option<Expr> {
    while conditions.len() > 1 {
        let mut rest = conditions.into_iter();
        let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
        while let Some(first) = rest.next() {
            pairs.push(match rest.next() {
                Some(next) => Expr::Binary(BinaryOp::Or, Box::new(first), Box::new(next)),
                None => first,
            });
        }
        conditions = pairs;
    }
    conditions.pop()
}

/// Returns the first type that does not match the previous ones.
pub(crate) fn mismatch(types: &[SqlType]) -> Option<usize> {
    let first = types.iter().position(|ty| *ty != SqlType::Unknown)?;
    (first..types.len())
        .find(|n| types[*n] != SqlType::Unknown && !go_together(types[first], types[*n]))
}

/// Returns true if two types are in the same category, so that they have a common type.
pub(crate) fn go_together(a: SqlType, b: SqlType) -> bool {
    a == b
        || a.is_string() && b.is_string()
        || is_number(a) && is_number(b)
        || is_time(a) && is_time(b)
}

//! Operators as written: binds both sides, and positions their errors.

use crate::bind::{AGGREGATE, Binder, LikeForm, Typed, not};
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
        for place in list {
            let item = self.bind(place)?;
            let fixed = !self.has_columns(&item.expr);
            items.push((item, place, fixed));
        }
        // Several values without columns share one type with the needle, if all have a common type.
        let fixed = || items.iter().filter(|(.., fixed)| *fixed).map(|(item, ..)| item.ty);
        let common = fixed().try_fold(needle.ty, common_type).filter(|_| fixed().count() > 1);
        let (array, others): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|(.., fixed)| *fixed && common.is_some());
        let op = if negated { "<>" } else { "=" };
        let mut groups = Groups::default();
        if let Some(common) = common {
            let common = if common == SqlType::Unknown { SqlType::Text } else { common };
            for (item, place, _) in array {
                let undecided = is_undecided(&item);
                let r = self.cast_to(item, types::base(common));
                let item = if undecided { self.at_literal(place, r)? } else { r? };
                groups.add(self, op, (&needle, e), (item, place))?;
            }
            // A parameter keeps the type that these values gave it. A literal does not.
            if let (SqlType::Unknown, Expr::Param(_)) = (needle.ty, &needle.expr)
                && self.literals.is_empty()
                && let Some((decided, _)) = groups.groups.first()
            {
                needle = decided.clone();
            }
        }
        // Each other item is compared by itself, with its own conversion of the needle.
        for (item, place, _) in others {
            groups.add(self, op, (&needle, e), (item, place))?;
        }
        let found = Typed::new(groups.condition(), SqlType::Bool);
        Ok(if negated { not(found) } else { found })
    }

    /// Returns true if the value depends on a column of the scope. That of an aggregate does if its
    /// argument does.
    fn has_columns(&self, e: &Expr) -> bool {
        e.any(&mut |e| match e {
            Expr::Column(n) if *n >= AGGREGATE => {
                let argument = self.aggregates[n - AGGREGATE].arg.as_ref();
                argument.is_some_and(|arg| self.has_columns(arg))
            }
            Expr::Column(_) => true,
            _ => false,
        })
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

/// The items of an IN, grouped by the conversion of the needle that they are compared with.
#[derive(Default)]
struct Groups {
    /// The group of each type of item. Lengths have no effect.
    of_type: Vec<(SqlType, usize)>,
    groups: Vec<(Typed, Vec<Expr>)>,
}

impl Groups {
    fn add(
        &mut self,
        b: &mut Binder<'_>,
        op: &str,
        (needle, needle_at): (&Typed, &ast::Expr),
        (item, at): (Typed, &ast::Expr),
    ) -> SqlResult<()> {
        let ty = types::base(item.ty);
        let known = self.of_type.iter().find(|(of, _)| *of == ty).map(|(_, group)| *group);
        let left = match known {
            // Only the needle's type matters to an item.
            Some(group) => Typed::new(Expr::Literal(Datum::Null), self.groups[group].0.ty),
            None if self.groups.is_empty() => needle.clone(),
            None => b.copy(needle)?,
        };
        let operands = [(is_undecided(&left), needle_at), (is_undecided(&item), at)];
        let r = b.comparable(op, left, item);
        let (left, item) = b.of_operator(r, &operands, |t| is_word(t, &["not", "in"]))?;
        let same = known.or_else(|| self.groups.iter().position(|(needle, _)| *needle == left));
        let group = same.unwrap_or(self.groups.len());
        if same.is_none() {
            self.groups.push((left, Vec::new()));
        }
        if known.is_none() {
            self.of_type.push((ty, group));
        }
        self.groups[group].1.push(item.expr);
        Ok(())
    }

    /// Returns the condition that an item equals the needle.
    fn condition(self) -> Expr {
        let groups = self.groups.into_iter();
        let each = groups.map(|(needle, items)| Expr::InList(Box::new(needle.expr), items));
        any(each.collect()).unwrap_or(Expr::Literal(Datum::Bool(false)))
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

//! Evaluation of scalar expressions against one row.
//!
//! The executor uses [`Expr::eval_ref`], which borrows literals, parameters and columns: a
//! comparison or an integer sum allocates nothing.

use crate::arith::{arithmetic, negate};
use crate::cast::cast_value;
use crate::expr::{BinaryOp, SwitchArm, UnaryOp};
use crate::operand::Value;
use crate::program::Env;
use crate::sort::{compare, damaged};
use crate::value::to_text;
use crate::{Expr, func, like};
use clearway_types::{Datum, DatumRef, RowBuilder, RowView, SqlError, SqlResult, SqlType};
use std::cmp::Ordering;

impl Expr {
    /// Evaluates the expression for `row` to an owned value.
    pub fn eval(&self, row: RowView<'_>, env: &Env) -> SqlResult<Datum> {
        self.eval_ref(row, env).map(Value::into_datum)
    }

    /// Evaluates the expression for `row`; borrows the value where possible.
    pub fn eval_ref<'a>(&'a self, row: RowView<'a>, env: &'a Env) -> SqlResult<Value<'a>> {
        match self {
            Self::Literal(d) => Ok(Value::Ref(d.as_ref())),
            Self::Param(n) => match env.params.get(*n) {
                Some(d) => Ok(Value::Ref(d.as_ref())),
                None => {
                    Err(SqlError::internal(format!("there is no value for parameter ${}", n + 1)))
                }
            },
            Self::Column(n) => row.get(*n).map(Value::Ref).map_err(|_| damaged()),
            Self::Unary(op, inner) => unary(*op, inner.eval_ref(row, env)?),
            Self::Binary(op @ (BinaryOp::And | BinaryOp::Or), l, r) => {
                logic(*op == BinaryOp::Or, l, r, row, env)
            }
            Self::Binary(op, l, r) => {
                binary(*op, l.eval_ref(row, env)?, r.eval_ref(row, env)?, env)
            }
            Self::Cast { expr, to, explicit } => {
                cast_value(expr.eval_ref(row, env)?, *to, *explicit, env.zone())
            }
            Self::IsNull(inner) => Ok(Value::bool(inner.eval_ref(row, env)?.is_null())),
            Self::InList(needle, list) => in_list(needle, list, row, env),
            Self::Like { expr, pattern, insensitive } => {
                let (text, pattern) = (expr.eval_ref(row, env)?, pattern.eval_ref(row, env)?);
                match (text.as_ref(), pattern.as_ref()) {
                    (DatumRef::Text(t), DatumRef::Text(p)) => {
                        like::matches(t, p, *insensitive).map(Value::bool)
                    }
                    _ => Ok(Value::NULL),
                }
            }
            Self::Case(arms, otherwise) => {
                for (when, then) in arms {
                    if when.eval_bool(row, env)? {
                        return then.eval_ref(row, env);
                    }
                }
                otherwise.as_ref().map_or(Ok(Value::NULL), |e| e.eval_ref(row, env))
            }
            Self::Switch { operand, arms, otherwise } => {
                let operand = operand.eval_ref(row, env)?;
                for arm in arms {
                    if arm.equals(&operand, row, env)? {
                        return arm.then.eval_ref(row, env);
                    }
                }
                otherwise.as_ref().map_or(Ok(Value::NULL), |e| e.eval_ref(row, env))
            }
            Self::Func(f, args) => func::call(*f, args, row, env),
        }
    }

    /// Returns true if the condition holds; NULL counts as false.
    pub fn eval_bool(&self, row: RowView<'_>, env: &Env) -> SqlResult<bool> {
        Ok(matches!(self.eval_ref(row, env)?.as_ref(), DatumRef::Bool(true)))
    }

    /// Appends the expression's value for `row` to another row; a column's bytes are copied
    /// unchanged.
    ///
    /// # Errors
    /// Same as [`Expr::eval`].
    #[inline]
    pub fn push_to(&self, out: &mut RowBuilder<'_>, row: RowView<'_>, env: &Env) -> SqlResult<()> {
        match self {
            Self::Column(n) => out.push_encoded(row.column(*n).map_err(|_| damaged())?),
            other => out.push(other.eval_ref(row, env)?.as_ref()),
        }
        Ok(())
    }

    /// Evaluates an expression without columns.
    pub fn eval_const(&self, env: &Env) -> SqlResult<Datum> {
        self.eval(RowView::new(&[]), env)
    }
}

impl SwitchArm {
    fn equals(&self, operand: &Value<'_>, row: RowView<'_>, env: &Env) -> SqlResult<bool> {
        let operand = Value::Ref(operand.as_ref());
        let operand = match self.to {
            Some(to) => cast_value(operand, to, false, env.zone())?,
            None => operand,
        };
        let value = self.value.eval_ref(row, env)?;
        let null = operand.is_null() || value.is_null();
        Ok(!null && compare(operand.as_ref(), value.as_ref()).is_eq())
    }
}

fn unary<'a>(op: UnaryOp, value: Value<'a>) -> SqlResult<Value<'a>> {
    match (op, value.as_ref()) {
        (_, DatumRef::Null) => Ok(Value::NULL),
        (UnaryOp::Not, DatumRef::Bool(v)) => Ok(Value::bool(!v)),
        (UnaryOp::Neg, v) => negate(v),
        (UnaryOp::Not, _) => Err(SqlError::internal("NOT of a value that is not boolean")),
    }
}

/// Evaluates AND or OR with three-valued logic. `decides` is the operand that determines the result
/// alone.
fn logic<'a>(
    decides: bool,
    l: &'a Expr,
    r: &'a Expr,
    row: RowView<'a>,
    env: &'a Env,
) -> SqlResult<Value<'a>> {
    let left = l.eval_ref(row, env)?;
    if left.as_ref() == DatumRef::Bool(decides) {
        return Ok(left);
    }
    let right = r.eval_ref(row, env)?;
    if right.as_ref() == DatumRef::Bool(decides) {
        return Ok(right);
    }
    Ok(if left.is_null() || right.is_null() { Value::NULL } else { Value::bool(!decides) })
}

fn binary<'a>(op: BinaryOp, left: Value<'a>, right: Value<'a>, env: &Env) -> SqlResult<Value<'a>> {
    let (l, r) = (left.as_ref(), right.as_ref());
    if op == BinaryOp::NotDistinct {
        return Ok(Value::bool(compare(l, r) == Ordering::Equal));
    }
    if l.is_null() || r.is_null() {
        return Ok(Value::NULL);
    }
    let truth = match op {
        BinaryOp::Eq => compare(l, r).is_eq(),
        BinaryOp::Ne => compare(l, r).is_ne(),
        BinaryOp::Lt => compare(l, r).is_lt(),
        BinaryOp::Le => compare(l, r).is_le(),
        BinaryOp::Gt => compare(l, r).is_gt(),
        BinaryOp::Ge => compare(l, r).is_ge(),
        BinaryOp::Concat => {
            let (mut text, tail) =
                (to_text(SqlType::Text, l, env.zone()), to_text(SqlType::Text, r, env.zone()));
            func::check_length(text.len() + tail.len())?;
            text += &tail;
            return Ok(Value::text(text));
        }
        _ => return arithmetic(op, l, r),
    };
    Ok(Value::bool(truth))
}

fn in_list<'a>(
    needle: &'a Expr,
    list: &'a [Expr],
    row: RowView<'a>,
    env: &'a Env,
) -> SqlResult<Value<'a>> {
    let needle = needle.eval_ref(row, env)?;
    if needle.is_null() {
        return Ok(Value::NULL);
    }
    let mut null = false;
    for item in list {
        let item = item.eval_ref(row, env)?;
        if item.is_null() {
            null = true;
        } else if compare(needle.as_ref(), item.as_ref()).is_eq() {
            return Ok(Value::bool(true));
        }
    }
    Ok(if null { Value::NULL } else { Value::bool(false) })
}

//! Recognises UPDATEs that only add to integers of one row: their effect does not depend on the
//! current values.
//!
//! Two transactions that only add to a row need not wait for each other. The partition implements
//! the locks and versions of such rows; see docs/decisions/increments.md.

use crate::bounds::Bounds;
use crate::check::reads_environment;
use crate::expr::BinaryOp;
use crate::program::{Access, Env, Path, Program};
use crate::{Distribution, Expr, TableDef};
use clearway_types::{Datum, SqlType};

/// Maximum number of columns in a statement that only adds.
pub const MOST_ADDED: usize = 4;

impl Program {
    /// Creates an UPDATE. Determines which CHECK constraints it tests, and whether it only adds.
    pub fn update(
        access: Access,
        set: Vec<(usize, Expr)>,
        returning: Vec<Expr>,
        moves: bool,
    ) -> Self {
        let checks = access.table.checks_of_update(&set);
        let adds = !moves && returning.is_empty() && only_adds(&access, &set);
        let adds = if adds { bounds(&access.table, &set, &checks) } else { None };
        Self::Update { access, set, returning, checks, moves, adds }
    }
}

/// Returns true if an UPDATE without RETURNING only adds. It must find one row by its primary key.
/// It must read nothing from the row except the integers it adds to. These must not be columns of
/// the primary key, of an index or of the distribution.
fn only_adds(access: &Access, set: &[(usize, Expr)]) -> bool {
    let table = &*access.table;
    let in_key = |c: &usize| {
        table.primary_key.contains(c)
            || table.indexes.iter().any(|index| index.columns.contains(c))
            || matches!(&table.distribution, Distribution::Hash(columns) if columns.contains(c))
    };
    let adds = |(c, e): &(usize, Expr)| {
        table
            .columns
            .get(*c)
            .is_some_and(|column| is_integer(column.ty) && adds_to(e, *c, column.ty))
            && !in_key(c)
    };
    matches!(access.path, Path::Point(_))
        && access.filter.is_none()
        && (1..=MOST_ADDED).contains(&set.len())
        && set.iter().all(adds)
}

/// Returns the bounds of the columns that an UPDATE adds to, in its order.
///
/// A stored row violates no constraint. Within these bounds it violates none after the UPDATE
/// either, whatever other additions are undone. A constraint gives bounds if its conjuncts that
/// mention the columns are comparisons of one of them with a constant, and the others depend only
/// on the row. Returns `None` if these `checks` include another one.
fn bounds(table: &TableDef, set: &[(usize, Expr)], checks: &[usize]) -> Option<Vec<Bounds>> {
    let of_type = |(c, _): &(usize, Expr)| Bounds::of(table.columns[*c].ty);
    let mut all = set.iter().map(of_type).collect::<Option<Vec<_>>>()?;
    for check in checks {
        let condition = &table.checks[*check].condition;
        if reads_environment(condition, table) || !narrow(condition, table, set, &mut all) {
            return None;
        }
    }
    Some(all)
}

fn narrow(e: &Expr, table: &TableDef, set: &[(usize, Expr)], all: &mut [Bounds]) -> bool {
    let position = |column: usize| set.iter().position(|(c, _)| *c == column);
    if let Expr::Binary(BinaryOp::And, a, b) = e {
        return narrow(a, table, set, all) && narrow(b, table, set, all);
    }
    if !e.any(&mut |e| matches!(e, Expr::Column(c) if position(*c).is_some())) {
        return true;
    }
    let Expr::Binary(op, a, b) = e else { return false };
    let (column, op, bound) = match (widened(a, table), widened(b, table)) {
        (Some(column), None) => (column, *op, constant(b)),
        (None, Some(column)) => (column, mirrored(*op), constant(a)),
        _ => return false,
    };
    match (position(column), bound) {
        (Some(at), Some(bound)) => all[at].narrow(op, bound),
        _ => false,
    }
}

/// Returns the column if the expression is an integer column, or one in a wider integer type.
fn widened(e: &Expr, table: &TableDef) -> Option<usize> {
    let ty = |column: usize| Some(table.columns.get(column)?.ty);
    let (column, to) = match e {
        Expr::Column(column) => (*column, ty(*column)?),
        Expr::Cast { expr, to, .. } => match **expr {
            Expr::Column(column) => (column, *to),
            _ => return None,
        },
        _ => return None,
    };
    widens(ty(column)?, to).then_some(column)
}

/// Returns the value of an integer expression without columns.
fn constant(e: &Expr) -> Option<i64> {
    if has_column(e) {
        return None;
    }
    match e.eval_const(&Env::default()).ok()? {
        Datum::Int2(value) => Some(value.into()),
        Datum::Int4(value) => Some(value.into()),
        Datum::Int8(value) => Some(value),
        _ => None,
    }
}

/// Returns the operator with its operands swapped.
fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::Le => BinaryOp::Ge,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::Ge => BinaryOp::Le,
        other => other,
    }
}

fn is_integer(ty: SqlType) -> bool {
    Bounds::of(ty).is_some()
}

/// Returns true if both are integers, and the second has every value of the first.
fn widens(from: SqlType, to: SqlType) -> bool {
    Bounds::of(from).zip(Bounds::of(to)).is_some_and(|(from, to)| to.low <= from.low)
}

/// Returns true if the expression is the column, of type `ty`, plus or minus something that needs
/// no row. The column may be widened for that, and the sum cast back to the column's type.
fn adds_to(e: &Expr, column: usize, ty: SqlType) -> bool {
    match e {
        Expr::Cast { expr, to, explicit: false } if *to == ty => is_sum(expr, column, ty),
        e => is_sum(e, column, ty),
    }
}

fn is_sum(e: &Expr, column: usize, ty: SqlType) -> bool {
    let is_column = |e| is_column(e, column, ty);
    match e {
        Expr::Binary(BinaryOp::Add, a, b) => {
            is_column(a) && !has_column(b) || is_column(b) && !has_column(a)
        }
        Expr::Binary(BinaryOp::Sub, a, b) => is_column(a) && !has_column(b),
        _ => false,
    }
}

/// Returns true if the expression is the column as an integer of its type or a wider one. As a
/// fractional number the sum would be rounded, by an amount that depends on the column. In a
/// narrower type the sum would be an error that depends on it.
fn is_column(e: &Expr, column: usize, ty: SqlType) -> bool {
    match e {
        Expr::Column(c) => *c == column,
        Expr::Cast { expr, to, .. } => widens(ty, *to) && **expr == Expr::Column(column),
        _ => false,
    }
}

fn has_column(e: &Expr) -> bool {
    e.any(&mut |e| matches!(e, Expr::Column(_)))
}

//! Recognises UPDATEs that only add to integers of one row: their effect does not depend on the
//! current values.
//!
//! Two transactions that only add to a row need not wait for each other. The partition implements
//! the locks and versions of such rows; see docs/decisions/increments.md.

use crate::expr::BinaryOp;
use crate::program::{Access, Path, Program};
use crate::{Distribution, Expr};
use clearway_types::SqlType;

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
        let adds = !moves && returning.is_empty() && checks.is_empty() && only_adds(&access, &set);
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

fn is_integer(ty: SqlType) -> bool {
    matches!(ty, SqlType::Int2 | SqlType::Int4 | SqlType::Int8)
}

/// Returns true if the expression is the column plus or minus something that needs no row. The
/// column may be widened for that, and the sum cast back to the column's type.
fn adds_to(e: &Expr, column: usize, ty: SqlType) -> bool {
    match e {
        Expr::Cast { expr, to, explicit: false } if *to == ty => is_sum(expr, column),
        e => is_sum(e, column),
    }
}

fn is_sum(e: &Expr, column: usize) -> bool {
    match e {
        Expr::Binary(BinaryOp::Add, a, b) => {
            is_column(a, column) && !has_column(b) || is_column(b, column) && !has_column(a)
        }
        Expr::Binary(BinaryOp::Sub, a, b) => is_column(a, column) && !has_column(b),
        _ => false,
    }
}

/// Returns true if the expression is the column as an integer. As a fractional number the sum would
/// be rounded, by an amount that depends on the column.
fn is_column(e: &Expr, column: usize) -> bool {
    match e {
        Expr::Column(c) => *c == column,
        Expr::Cast { expr, to, .. } => is_integer(*to) && **expr == Expr::Column(column),
        _ => false,
    }
}

fn has_column(e: &Expr) -> bool {
    e.any(&mut |e| matches!(e, Expr::Column(_)))
}

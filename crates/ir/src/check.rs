//! CHECK constraints.
//!
//! Invariant: no stored row violates a constraint of its table. So an UPDATE tests only the
//! constraints whose value its columns can change.

use crate::expr::{BinaryOp, Func};
use crate::{Expr, TableDef};
use clearway_types::{Datum, SqlType};
use serde::{Deserialize, Serialize};

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckConstraint {
    /// The constraint's name.
    pub name: String,
    /// The condition; input: the table's row. A row violates the constraint if it is false, but not
    /// if it is NULL.
    pub condition: Expr,
}

impl TableDef {
    /// Returns the positions in [`TableDef::checks`] of the constraints that a row may violate
    /// after an UPDATE of these columns, although it satisfied them before.
    ///
    /// PostgreSQL tests all constraints. The difference cannot be observed: the value of the others
    /// depends only on columns that have not changed.
    pub fn checks_of_update(&self, set: &[(usize, Expr)]) -> Vec<usize> {
        let changes = |check: &CheckConstraint| {
            reads_environment(&check.condition, self)
                || check
                    .condition
                    .any(&mut |e| matches!(e, Expr::Column(n) if set.iter().any(|(c, _)| c == n)))
        };
        (0..self.checks.len()).filter(|n| changes(&self.checks[*n])).collect()
    }
}

/// Returns true if the expression's value for the same row may differ between executions: it
/// depends on time, chance, the session, or the session's time zone.
pub(crate) fn reads_environment(e: &Expr, table: &TableDef) -> bool {
    let zoned = |e: &Expr| {
        e.any(&mut |e| match e {
            Expr::Column(n) => table.columns.get(*n).is_none_or(|c| c.ty == SqlType::Timestamptz),
            Expr::Literal(value) => matches!(value, Datum::Timestamptz(_)),
            _ => false,
        })
    };
    e.any(&mut |e| match e {
        Expr::Param(_) => true,
        Expr::Cast { to: SqlType::Timestamptz, .. } => true,
        Expr::Cast { expr, .. } => zoned(expr),
        Expr::Switch { operand, arms, .. } => {
            let zone = |to| to == SqlType::Timestamptz || zoned(operand);
            arms.iter().any(|arm| arm.to.is_some_and(zone))
        }
        Expr::Binary(BinaryOp::Concat, a, b) => zoned(a) || zoned(b),
        Expr::Func(func, args) => match func {
            Func::DateTrunc | Func::Concat => args.iter().any(zoned),
            Func::Now
            | Func::StatementNow
            | Func::Random
            | Func::Version
            | Func::CurrentUser
            | Func::CurrentDatabase
            | Func::CurrentSchema
            | Func::CurrentSetting
            | Func::PgBackendPid
            | Func::PgCancelBackend
            | Func::PgTerminateBackend
            | Func::PgSleep => true,
            Func::Abs
            | Func::Lower
            | Func::Upper
            | Func::Length
            | Func::Coalesce
            | Func::NullIf
            | Func::Greatest
            | Func::Least
            | Func::Substring
            | Func::Trim
            | Func::Replace
            | Func::Round
            | Func::Floor
            | Func::Ceil
            | Func::Md5
            | Func::Repeat
            | Func::Pad
            | Func::Left
            | Func::Right
            | Func::Position
            | Func::ExactInt
            | Func::FloorInt
            | Func::CeilInt => false,
        },
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::unnumbered_table;
    use crate::{Column, Distribution};

    fn table(conditions: Vec<Expr>) -> TableDef {
        let column = |(name, ty): (&str, SqlType)| Column {
            name: name.to_owned(),
            ty,
            not_null: false,
            default: None,
        };
        let columns = [("n", SqlType::Int4), ("m", SqlType::Int4), ("at", SqlType::Timestamptz)];
        let columns = columns.map(column).to_vec();
        let mut table = unnumbered_table("t", columns, vec![0], Distribution::Random);
        let check = |(n, condition)| CheckConstraint { name: format!("c{n}"), condition };
        table.checks = conditions.into_iter().enumerate().map(check).collect();
        table
    }

    fn column(n: usize) -> Box<Expr> {
        Box::new(Expr::Column(n))
    }

    #[test]
    fn an_update_tests_only_what_it_can_violate() {
        let compared = |a, b| Expr::Binary(BinaryOp::Le, a, b);
        let one = || Box::new(Expr::Literal(Datum::Int4(1)));
        let cast = |n, to| Box::new(Expr::Cast { expr: column(n), to, explicit: true });
        let table = table(vec![
            compared(column(0), one()),
            compared(column(0), column(1)),
            compared(one(), one()),
            compared(column(2), Box::new(Expr::Literal(Datum::Timestamptz(7)))),
            compared(column(2), Box::new(Expr::Func(Func::Now, Vec::new()))),
            compared(cast(2, SqlType::Date), cast(2, SqlType::Date)),
            compared(cast(0, SqlType::Int8), cast(0, SqlType::Int8)),
        ]);
        let of = |columns: &[usize]| {
            let set: Vec<_> = columns.iter().map(|c| (*c, Expr::Column(1))).collect();
            table.checks_of_update(&set)
        };
        assert_eq!(of(&[0]), [0, 1, 4, 5, 6]);
        assert_eq!(of(&[1]), [1, 4, 5]);
        assert_eq!(of(&[2]), [3, 4, 5]);
        assert_eq!(of(&[1, 2]), [1, 3, 4, 5]);
    }
}

//! Prints expressions as SQL, for EXPLAIN and for `clearway.plans`.

use crate::expr::{BinaryOp, UnaryOp};
use crate::program::Aggregate;
use crate::{Access, Expr, Path, TableDef, Zone, value};
use clearway_types::{Datum, SqlType};

/// How constants and parameters are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constants {
    /// As values and parameter numbers.
    Shown,
    /// As question marks; a list of constants of any length is one question mark.
    Hidden,
}

/// Prints expressions over a row.
#[derive(Clone, Copy, Debug)]
pub struct Printer<'a> {
    /// The table that names the columns; without one, columns are numbered.
    pub table: Option<&'a TableDef>,
    /// How constants are printed.
    pub constants: Constants,
}

impl Printer<'_> {
    /// Prints one expression.
    pub fn expr(&self, e: &Expr) -> String {
        let sub = |e: &Expr| self.expr(e);
        match e {
            Expr::Literal(_) | Expr::Param(_) if self.constants == Constants::Hidden => {
                "?".to_owned()
            }
            Expr::Literal(d) => literal(d),
            Expr::Param(n) => format!("${}", n + 1),
            Expr::Column(n) => match self.table.and_then(|t| t.columns.get(*n)) {
                Some(c) => c.name.clone(),
                None => format!("column {}", n + 1),
            },
            Expr::Unary(UnaryOp::Not, a) => format!("(NOT {})", sub(a)),
            Expr::Unary(UnaryOp::Neg, a) => format!("(- {})", sub(a)),
            Expr::Binary(BinaryOp::NotDistinct, a, b) => {
                format!("({} IS NOT DISTINCT FROM {})", sub(a), sub(b))
            }
            Expr::Binary(op, a, b) => format!("({} {} {})", sub(a), op.symbol(), sub(b)),
            Expr::Cast { expr, to, .. } => format!("({})::{to}", sub(expr)),
            Expr::IsNull(a) => format!("({} IS NULL)", sub(a)),
            Expr::InList(a, items) => {
                let constant = |e: &Expr| matches!(e, Expr::Literal(_) | Expr::Param(_));
                let hidden = self.constants == Constants::Hidden && items.iter().all(constant);
                format!(
                    "({} IN ({}))",
                    sub(a),
                    if hidden { "?".to_owned() } else { self.list(items) }
                )
            }
            Expr::Like { expr, pattern, insensitive } => {
                format!(
                    "({} {} {})",
                    sub(expr),
                    if *insensitive { "ILIKE" } else { "LIKE" },
                    sub(pattern)
                )
            }
            Expr::Case(arms, last) => {
                let arms: Vec<String> =
                    arms.iter().map(|(w, t)| format!("WHEN {} THEN {}", sub(w), sub(t))).collect();
                let last = last.as_ref().map_or(String::new(), |e| format!(" ELSE {}", sub(e)));
                format!("CASE {}{last} END", arms.join(" "))
            }
            Expr::Switch { operand, arms, otherwise } => {
                let arms: Vec<String> = arms
                    .iter()
                    .map(|arm| format!("WHEN {} THEN {}", sub(&arm.value), sub(&arm.then)))
                    .collect();
                let last =
                    otherwise.as_ref().map_or(String::new(), |e| format!(" ELSE {}", sub(e)));
                format!("CASE {} {}{last} END", sub(operand), arms.join(" "))
            }
            Expr::Func(f, args) => {
                format!("{}({})", format!("{f:?}").to_lowercase(), self.list(args))
            }
        }
    }

    /// Prints several expressions, separated by commas.
    pub fn list(&self, exprs: &[Expr]) -> String {
        exprs.iter().map(|e| self.expr(e)).collect::<Vec<_>>().join(", ")
    }

    /// Prints an aggregate call.
    pub fn aggregate(&self, a: &Aggregate) -> String {
        let arg = a.arg.as_ref().map_or("*".to_owned(), |e| self.expr(e));
        format!(
            "{}({}{arg})",
            format!("{:?}", a.func).to_lowercase(),
            if a.distinct { "DISTINCT " } else { "" }
        )
    }

    /// Returns the path's conditions on the key; none for a full scan.
    pub fn key(&self, access: &Access) -> Vec<String> {
        let table = &*access.table;
        let name = |column: Option<&usize>| {
            column.and_then(|c| table.columns.get(*c)).map_or("?", |c| c.name.as_str())
        };
        let equal = |columns: &[usize], exprs: &[Expr]| -> Vec<String> {
            columns
                .iter()
                .zip(exprs)
                .map(|(c, e)| format!("{} = {}", name(Some(c)), self.expr(e)))
                .collect()
        };
        match &access.path {
            Path::Full => Vec::new(),
            Path::Point(keys) => equal(&table.primary_key, keys),
            Path::Points(keys) => {
                let keys = if self.constants == Constants::Hidden {
                    "?".to_owned()
                } else {
                    self.list(keys)
                };
                vec![format!("{} IN ({keys})", name(table.primary_key.first()))]
            }
            Path::Range { index, prefix, low, high, .. } => {
                let columns = index
                    .and_then(|i| table.indexes.get(i))
                    .map_or(&table.primary_key, |i| &i.columns);
                let mut all = equal(columns, prefix);
                let next = name(columns.get(prefix.len()));
                for (bound, open, closed) in [(low, ">", ">="), (high, "<", "<=")] {
                    if let Some((e, inclusive)) = bound {
                        all.push(format!(
                            "{next} {} {}",
                            if *inclusive { closed } else { open },
                            self.expr(e)
                        ));
                    }
                }
                all
            }
        }
    }
}

fn literal(d: &Datum) -> String {
    match d {
        Datum::Null => "NULL".to_owned(),
        Datum::Bool(b) => b.to_string(),
        Datum::Text(s) => format!("'{}'", s.replace('\'', "''")),
        Datum::Date(_) | Datum::Timestamp(_) | Datum::Timestamptz(_) => {
            format!("'{}'", value::to_text(SqlType::Text, d.as_ref(), &Zone::utc()))
        }
        other => value::to_text(SqlType::Text, other.as_ref(), &Zone::utc()),
    }
}

//! What a plan reads at a partition, as SQL without constants: plans with the same text are one in `clearway.plans`.

use crate::expr::{BinaryOp, UnaryOp};
use crate::program::{Access, Group};
use crate::{Expr, Path, Program, TableDef};

/// Longer texts are cut.
const LONGEST: usize = 1000;

/// The text of a program that reads; `None`: it changes something.
pub fn read_text(program: &Program) -> Option<String> {
    let Program::Scan { access, group, project, limit } = program else { return None };
    let table = &*access.table;
    let mut text = format!("SELECT {} FROM {}", output(group.as_ref(), project, table), table.name);
    let conditions = conditions(access);
    if !conditions.is_empty() {
        text += &format!(" WHERE {}", conditions.join(" AND "));
    }
    if let Some(group) = group.as_ref().filter(|g| !g.keys.is_empty()) {
        text += &format!(" GROUP BY {}", list(&group.keys, table));
    }
    if limit.is_some() {
        text += " LIMIT ?";
    }
    text.truncate(text.floor_char_boundary(LONGEST));
    Some(text)
}

fn output(group: Option<&Group>, project: &[Expr], table: &TableDef) -> String {
    let Some(group) = group else {
        return list(project, table);
    };
    let call = |a: &crate::program::Aggregate| {
        let arg = a.arg.as_ref().map_or("*".to_owned(), |e| show(e, table));
        format!("{}({}{arg})", format!("{:?}", a.func).to_lowercase(), if a.distinct { "DISTINCT " } else { "" })
    };
    let keys = group.keys.iter().map(|e| show(e, table));
    keys.chain(group.aggregates.iter().map(call)).collect::<Vec<_>>().join(", ")
}

fn conditions(access: &Access) -> Vec<String> {
    let table = &*access.table;
    let name = |column: Option<&usize>| column.and_then(|c| table.columns.get(*c)).map_or("?", |c| c.name.as_str());
    let mut all = Vec::new();
    match &access.path {
        Path::Full => {}
        Path::Point(keys) => {
            let columns = table.primary_key.iter().zip(keys);
            all.extend(columns.map(|(c, e)| format!("{} = {}", name(Some(c)), show(e, table))));
        }
        Path::Points(_) => all.push(format!("{} IN (?)", name(table.primary_key.first()))),
        Path::Range { index, prefix, low, high, .. } => {
            let columns = index.and_then(|i| table.indexes.get(i)).map_or(&table.primary_key, |index| &index.columns);
            all.extend(columns.iter().zip(prefix).map(|(c, e)| format!("{} = {}", name(Some(c)), show(e, table))));
            let next = name(columns.get(prefix.len()));
            for (bound, open, closed) in [(low, ">", ">="), (high, "<", "<=")] {
                if let Some((e, inclusive)) = bound {
                    all.push(format!("{next} {} {}", if *inclusive { closed } else { open }, show(e, table)));
                }
            }
        }
    }
    all.extend(access.filter.iter().map(|f| show(f, table)));
    all
}

fn list(exprs: &[Expr], table: &TableDef) -> String {
    exprs.iter().map(|e| show(e, table)).collect::<Vec<_>>().join(", ")
}

/// Constants and parameters are question marks, and so is a list of them, however long.
fn show(e: &Expr, table: &TableDef) -> String {
    let sub = |e: &Expr| show(e, table);
    match e {
        Expr::Literal(_) | Expr::Param(_) => "?".to_owned(),
        Expr::Column(n) => table.columns.get(*n).map_or_else(|| format!("column {}", n + 1), |c| c.name.clone()),
        Expr::Unary(UnaryOp::Not, a) => format!("(NOT {})", sub(a)),
        Expr::Unary(UnaryOp::Neg, a) => format!("(- {})", sub(a)),
        Expr::Binary(BinaryOp::NotDistinct, a, b) => format!("({} IS NOT DISTINCT FROM {})", sub(a), sub(b)),
        Expr::Binary(op, a, b) => format!("({} {} {})", sub(a), op.symbol(), sub(b)),
        Expr::Cast { expr, to, .. } => format!("({})::{to}", sub(expr)),
        Expr::IsNull(a) => format!("({} IS NULL)", sub(a)),
        Expr::InList(a, items) if items.iter().all(|i| matches!(i, Expr::Literal(_) | Expr::Param(_))) => {
            format!("({} IN (?))", sub(a))
        }
        Expr::InList(a, items) => format!("({} IN ({}))", sub(a), list(items, table)),
        Expr::Like { expr, pattern, insensitive } => {
            format!("({} {} {})", sub(expr), if *insensitive { "ILIKE" } else { "LIKE" }, sub(pattern))
        }
        Expr::Case(arms, last) => {
            let arms: Vec<String> = arms.iter().map(|(w, t)| format!("WHEN {} THEN {}", sub(w), sub(t))).collect();
            let last = last.as_ref().map_or(String::new(), |e| format!(" ELSE {}", sub(e)));
            format!("CASE {}{last} END", arms.join(" "))
        }
        Expr::Func(f, args) => format!("{}({})", format!("{f:?}").to_lowercase(), list(args, table)),
    }
}

//! Describes what a plan does at a partition, as SQL without constants. Plans with the same text
//! share a row in `clearway.plans`.

use crate::program::{Access, Group};
use crate::show::{Constants, Printer};
use crate::{Expr, Program};

/// Maximum length in bytes; longer texts are truncated.
const LONGEST: usize = 1000;

/// Returns the text of a program that reads or only adds to a row; `None` for other programs.
pub fn plan_text(program: &Program) -> Option<String> {
    let mut text = match program {
        Program::Scan { access, group, project, limit } => {
            let printer = printer(access);
            let output = output(group.as_ref(), project, &printer);
            let mut text = format!("SELECT {output} FROM {}", access.table.name);
            text += &conditions(access, &printer);
            if let Some(group) = group.as_ref().filter(|g| !g.keys.is_empty()) {
                text += &format!(" GROUP BY {}", printer.list(&group.keys));
            }
            if limit.is_some() {
                text += " LIMIT ?";
            }
            text
        }
        Program::Update { access, set, adds: Some(_), .. } => {
            let (table, printer) = (&access.table, printer(access));
            let one = |(c, e): &(usize, Expr)| {
                format!("{} = {}", table.columns[*c].name, printer.expr(e))
            };
            let set: Vec<_> = set.iter().map(one).collect();
            format!("UPDATE {} SET {}{}", table.name, set.join(", "), conditions(access, &printer))
        }
        _ => return None,
    };
    text.truncate(text.floor_char_boundary(LONGEST));
    Some(text)
}

fn printer(access: &Access) -> Printer<'_> {
    Printer { table: Some(&access.table), constants: Constants::Hidden }
}

/// Returns the WHERE clause of the path and the filter, if there is any.
fn conditions(access: &Access, printer: &Printer<'_>) -> String {
    let mut conditions = printer.key(access);
    conditions.extend(access.filter.iter().map(|f| printer.expr(f)));
    if conditions.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", conditions.join(" AND "))
    }
}

fn output(group: Option<&Group>, project: &[Expr], printer: &Printer<'_>) -> String {
    let Some(group) = group else {
        return printer.list(project);
    };
    let keys = group.keys.iter().map(|e| printer.expr(e));
    keys.chain(group.aggregates.iter().map(|a| printer.aggregate(a))).collect::<Vec<_>>().join(", ")
}

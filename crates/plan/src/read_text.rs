//! What a plan reads at a partition, as SQL without constants: plans with the same text are one in `clearway.plans`.

use crate::program::Group;
use crate::show::{Constants, Printer};
use crate::{Expr, Program};

/// Longer texts are cut.
const LONGEST: usize = 1000;

/// The text of a program that reads; `None`: it changes something.
pub fn read_text(program: &Program) -> Option<String> {
    let Program::Scan { access, group, project, limit } = program else { return None };
    let printer = Printer { table: Some(&access.table), constants: Constants::Hidden };
    let mut text = format!("SELECT {} FROM {}", output(group.as_ref(), project, &printer), access.table.name);
    let mut conditions = printer.key(access);
    conditions.extend(access.filter.iter().map(|f| printer.expr(f)));
    if !conditions.is_empty() {
        text += &format!(" WHERE {}", conditions.join(" AND "));
    }
    if let Some(group) = group.as_ref().filter(|g| !g.keys.is_empty()) {
        text += &format!(" GROUP BY {}", printer.list(&group.keys));
    }
    if limit.is_some() {
        text += " LIMIT ?";
    }
    text.truncate(text.floor_char_boundary(LONGEST));
    Some(text)
}

fn output(group: Option<&Group>, project: &[Expr], printer: &Printer<'_>) -> String {
    let Some(group) = group else {
        return printer.list(project);
    };
    let keys = group.keys.iter().map(|e| printer.expr(e));
    keys.chain(group.aggregates.iter().map(|a| printer.aggregate(a))).collect::<Vec<_>>().join(", ")
}

//! Expressions: `SELECT <text>` is evaluated, and its values are the same after they were encoded
//! for a client and decoded.

use super::common::{catalog, check_wire_forms, env, session, text};
use clearway_ir::statement::{Query, Source};
use clearway_ir::{Plan, Statement};
use clearway_types::{Datum, SqlResult, SqlType};

pub(super) fn run(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(plan) = plan(&format!("select {text}")) else { return };
    let Statement::Query(query) = &plan.statement else { return };
    if !plan.params.is_empty() {
        return;
    }
    let Some(Ok(rows)) = evaluate(query, Vec::new()) else { return };
    // The finishing steps may drop or reorder columns; the simplest query has none.
    if !query.finish.is_empty() {
        return;
    }
    for (column, value) in rows.iter().flat_map(|row| plan.columns.iter().zip(row)) {
        if column.ty != SqlType::Void {
            check_wire_forms(column.ty, value);
        }
    }
}

/// Returns the plan of a text with one statement.
pub(super) fn plan(sql: &str) -> SqlResult<Plan> {
    let parsed = clearway_planner::parse(sql)?;
    match &parsed[..] {
        [one] => clearway_planner::plan(one, catalog(), &[], session()),
        _ => Err(clearway_types::SqlError::internal("several statements")),
    }
}

/// Returns the rows of a query without tables, before its finishing steps.
pub(super) fn evaluate(query: &Query, params: Vec<Datum>) -> Option<SqlResult<Vec<Vec<Datum>>>> {
    let env = env(params);
    let Source::Rows(rows) = &query.source else { return None };
    Some(rows.iter().map(|row| row.iter().map(|e| e.eval_const(&env)).collect()).collect())
}

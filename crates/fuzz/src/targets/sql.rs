//! SQL text: parsed, planned with a catalog, and evaluated if it needs no table. The same text has
//! the same plan.

use super::common::{catalog, session, text};
use super::expr::evaluate;
use clearway_ir::Statement;

pub(super) fn run(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(statements) = clearway_planner::parse(text) else { return };
    assert!(!statements.is_empty());
    for statement in &statements {
        let planned = clearway_planner::plan(statement, catalog(), &[], session());
        let Ok(plan) = planned else { continue };
        let again =
            clearway_planner::plan(statement, catalog(), &[], session()).expect("the same plan");
        assert_eq!(format!("{plan:?}"), format!("{again:?}"));
        if let Statement::Query(query) = &plan.statement
            && plan.params.is_empty()
        {
            let _ = evaluate(query, Vec::new());
        }
    }
}

//! Expressions against what PostgreSQL 15 made of them: `expressions.tsv` holds, a line, `select`'s expression, a tab, and the text form
//! of the value (NULL for a null) or `ERROR: SQLSTATE message`, as psql got it from a server in UTC.

use clearway_plan::{Catalog, Env, SessionEnv, Statement, Zone, statement::Source, value};
use clearway_types::SqlResult;

fn evaluate(expression: &str) -> SqlResult<String> {
    let parsed = clearway_planner::parse(&format!("select {expression}"))?;
    let plan = clearway_planner::plan(&parsed[0], &Catalog::default(), &[], &SessionEnv::default())?;
    let Statement::Query(query) = &plan.statement else { panic!("{expression}") };
    let Source::Rows(rows) = &query.source else { panic!("{expression}") };
    let value = rows[0][0].eval_const(&Env::default())?;
    Ok(match value.is_null() {
        true => "NULL".to_owned(),
        false => value::to_text(plan.columns[0].ty, value.as_ref(), &Zone::utc()),
    })
}

#[test]
fn expressions_give_what_postgresql_gives() {
    let mut wrong = Vec::new();
    for line in include_str!("expressions.tsv").lines() {
        let (expression, expected) = line.split_once('\t').unwrap_or((line, ""));
        let got = evaluate(expression).unwrap_or_else(|e| format!("ERROR: {} {}", e.state(), e.message()));
        if got != expected {
            wrong.push(format!("{expression}: got {got}, PostgreSQL {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

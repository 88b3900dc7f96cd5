//! A small catalog and helpers.

use clearway_ir::catalog::{Catalog, Column, Distribution, IndexDef, TableDef};
use clearway_ir::statement::unnumbered_table;
use clearway_ir::{Plan, SessionEnv, Statement};
use clearway_types::{SqlError, SqlResult, SqlType, TreeId};
use std::sync::Arc;

fn table(name: &str, columns: &[(&str, SqlType, bool)], key: &[usize]) -> TableDef {
    let columns = columns
        .iter()
        .map(|(name, ty, not_null)| Column {
            name: (*name).to_owned(),
            ty: *ty,
            not_null: *not_null,
            default: None,
        })
        .collect();
    let distribution = key.first().map_or(Distribution::Random, |c| Distribution::Hash(vec![*c]));
    unnumbered_table(name, columns, key.to_vec(), distribution)
}

/// Returns a catalog with pgbench's tables, one table with a two-column key and an index, and one
/// with a global index.
pub fn catalog() -> Catalog {
    use SqlType::{Char, Int4, Int8, Text, Timestamp};
    let accounts = table(
        "accounts",
        &[
            ("aid", Int4, true),
            ("bid", Int4, false),
            ("abalance", Int4, false),
            ("filler", Char(84), false),
        ],
        &[0],
    );
    let history = table(
        "history",
        &[
            ("tid", Int4, false),
            ("bid", Int4, false),
            ("aid", Int4, false),
            ("delta", Int4, false),
            ("mtime", Timestamp, false),
            ("filler", Char(22), false),
        ],
        &[],
    );
    let mut pairs = table(
        "pairs",
        &[("a", Int8, true), ("b", Int4, true), ("k", Int4, false), ("v", Text, false)],
        &[0, 1],
    );
    pairs.indexes.push(IndexDef {
        name: "pairs_k".to_owned(),
        tree: TreeId(9),
        columns: vec![2],
        unique: false,
        constraint: Some(false),
        global_index: None,
    });
    let mut users =
        table("users", &[("id", Int4, true), ("email", Text, false), ("n", Int4, false)], &[0]);
    let (tree, global_index) = (TreeId(10), Some(TreeId(11)));
    users.indexes.push(IndexDef {
        name: "users_email_key".to_owned(),
        tree,
        columns: vec![1],
        unique: true,
        constraint: Some(true),
        global_index,
    });
    let tables = [accounts, history, pairs, users]
        .into_iter()
        .map(|t| (t.name.clone(), Arc::new(t)))
        .collect();
    Catalog { version: 7, tables }
}

/// Plans the text's only statement.
pub fn plan(sql: &str) -> SqlResult<Plan> {
    plan_in(&catalog(), sql)
}

/// Same as [`plan`], with another catalog.
pub fn plan_in(catalog: &Catalog, sql: &str) -> SqlResult<Plan> {
    let parsed = clearway_planner::parse(sql)?;
    assert_eq!(parsed.len(), 1, "{sql}");
    clearway_planner::plan(&parsed[0], catalog, &[], &SessionEnv::default())
}

/// Returns the error from planning.
#[track_caller]
pub fn error(sql: &str) -> SqlError {
    match plan(sql) {
        Ok(p) => panic!("{sql} was planned: {p:?}"),
        Err(e) => e,
    }
}

/// Returns EXPLAIN's lines.
#[track_caller]
pub fn explain(sql: &str) -> Vec<String> {
    match plan(&format!("explain {sql}")).unwrap_or_else(|e| panic!("{sql}: {e}")).statement {
        Statement::Explain(lines) => lines,
        other => panic!("{other:?}"),
    }
}

/// Checks that planning the statement fails with this SQLSTATE and message.
#[track_caller]
pub fn fails(sql: &str, state: &str, message: &str) {
    let e = error(sql);
    assert_eq!((e.state().as_str(), e.message()), (state, message), "{sql}");
}

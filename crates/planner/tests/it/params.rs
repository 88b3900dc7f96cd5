//! The types of parameters: what decides them, and in which order.

use crate::common::plan;

#[test]
fn parameter_types_are_inferred_from_use() {
    let params = |sql: &str| {
        let p = plan(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        p.params.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        params("UPDATE accounts SET abalance = abalance + $1 WHERE aid = $2"),
        "integer, integer"
    );
    assert_eq!(params("select $1"), "text");
    assert_eq!(params("select aid from accounts limit $1 offset $2"), "bigint, bigint");
    assert_eq!(
        params("insert into accounts values ($1, $2, $3, $4)"),
        "integer, integer, integer, character(4294967295)"
    );
    assert_eq!(params("select $1::int8 + 1"), "bigint");
    assert_eq!(
        params("insert into history (mtime, tid) values ($1, $2)"),
        "timestamp without time zone, integer"
    );
    assert_eq!(params("select 1 from accounts where aid in ($1, $2)"), "integer, integer");
    assert_eq!(params("select 1 from accounts where filler like $1"), "text");
}

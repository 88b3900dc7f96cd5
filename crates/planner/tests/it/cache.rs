//! Normalisation and the plan cache.

use crate::common::catalog;
use clearway_ir::{Env, SessionEnv};
use clearway_planner::{PlanCache, normalize};
use clearway_types::Datum;

#[track_caller]
fn check(sql: &str, text: &str, literals: &[Datum]) {
    let n = normalize(sql).unwrap_or_else(|| panic!("{sql} was refused"));
    assert_eq!((n.text(), n.literals.as_slice()), (text, literals), "{sql}");
}

#[test]
fn literals_become_parameters() {
    check(
        "SELECT abalance FROM accounts WHERE aid = 5;",
        "SELECT abalance FROM accounts WHERE aid = $1",
        &[Datum::Int4(5)],
    );
    check(
        "UPDATE a SET b = b + -9461 WHERE c = 3",
        "UPDATE a SET b = b + $1 WHERE c = $2",
        &[Datum::Int4(-9461), Datum::Int4(3)],
    );
    check(
        "select a-1, a - 1, (-1)",
        "select a-$1, a - $2, ($3)",
        &[Datum::Int4(1), Datum::Int4(1), Datum::Int4(-1)],
    );
    check(
        "insert into t values (1, 'it''s', -3000000000, 1.5)",
        "insert into t values ($1, $2, $3, $4)",
        &[
            Datum::Int4(1),
            "it's".into(),
            Datum::Int8(-3_000_000_000),
            Datum::Numeric("1.5".parse().unwrap()),
        ],
    );
    check(
        "select a  from\n t order by 1 limit 5",
        "select a from t order by 1 limit $1",
        &[Datum::Int4(5)],
    );
    check(
        "select 'x'::char(5), \"a 1\" from t1",
        "select $1::char(5), \"a 1\" from t1",
        &["x".into()],
    );
}

#[test]
fn truncated_identifiers_are_not_normalised() {
    let (most, long) = ("x".repeat(63), "x".repeat(64));
    for name in [&most, &format!("\"{most}\"")] {
        let text = format!("select {name} from t");
        check(&text, &text, &[]);
    }
    let doubled = format!("\"{most}\"\"\"");
    for name in [&long, &format!("\"{long}\""), &doubled] {
        assert_eq!(normalize(&format!("select {name} from t")), None, "{name}");
    }
}

/// A text's notices belong to its statements.
#[test]
fn long_identifiers_are_truncated_with_a_notice() {
    let (most, long) = ("x".repeat(63), "x".repeat(64));
    let text = format!("select 1 as {long}; select 2; select 3 as {long}, 4 as {most}");
    let notices = |sql: &str| -> Vec<usize> {
        clearway_planner::parse(sql).unwrap().iter().map(|s| s.notices().len()).collect()
    };
    assert_eq!(notices(&text), [1, 0, 1]);
    assert_eq!(notices(&format!("select {}1", format!("1 as {long}, ").repeat(300))), [100]);
}

#[test]
fn ambiguous_texts_are_not_normalised() {
    for sql in [
        "begin",
        "select 1; select 2",
        "select 1 -- x",
        "select $1",
        "select timestamp '2020-01-01'",
        "select interval '1 day'",
        "select e'\\n'",
        "select cast(1 as char(5))",
        "select 'a'\n'b'",
        "select 1a",
        "select 'open",
    ] {
        assert_eq!(normalize(sql), None, "{sql}");
    }
}

#[test]
fn types_are_part_of_the_key() {
    let key = |sql: &str| normalize(sql).unwrap().key;
    assert_eq!(key("select 1"), key("select  2"));
    assert_ne!(key("select 1"), key("select 3000000000"));
    assert_ne!(key("select 1"), key("select '1'"));
}

#[test]
fn plans_are_reused_until_the_catalog_changes() {
    let (mut cache, mut c, s) = (PlanCache::new(), catalog(), SessionEnv::default());
    let (p1, v1) =
        cache.get_or_plan("select abalance from accounts where aid = 1", &c, &s).unwrap();
    let (p2, v2) =
        cache.get_or_plan("select abalance from accounts where aid = '2'", &c, &s).unwrap();
    let (p3, v3) =
        cache.get_or_plan("select abalance from accounts where aid = 3", &c, &s).unwrap();
    assert_eq!((v1, v2, v3), (vec![Datum::Int4(1)], vec![Datum::Int4(2)], vec![Datum::Int4(3)]));
    assert!(std::sync::Arc::ptr_eq(&p1, &p3) && !std::sync::Arc::ptr_eq(&p1, &p2));
    assert_eq!(cache.len(), 2);
    c.version += 1;
    let (p4, _) = cache.get_or_plan("select abalance from accounts where aid = 1", &c, &s).unwrap();
    assert_eq!((cache.len(), p4.catalog), (1, Some(8)));
    // Errors are found by planning the text as it is.
    assert!(cache.get_or_plan("select x from accounts where aid = 1", &c, &s).is_none());
    assert!(cache.get_or_plan("select aid from accounts where aid = 'x'", &c, &s).is_none());
    // So are texts that need their literals.
    assert!(cache.get_or_plan("select aid + 1 from accounts group by aid + 1", &c, &s).is_none());
    crate::common::plan("select aid + 1 from accounts group by aid + 1").unwrap();
}

/// A literal may take two types, a parameter cannot.
#[test]
fn literals_of_two_types_are_planned_as_they_are() {
    let (mut cache, c, s) = (PlanCache::new(), catalog(), SessionEnv::default());
    for condition in [
        "'2020-01-01 01:00' between mtime::date and mtime",
        "'2020-01-01 01:00' in (mtime::date, mtime)",
        "'x ' in ('a', 'b', filler)",
        "'1' in (2, 3, delta::int8)",
    ] {
        let sql = format!("select 1 from history where {condition}");
        assert!(cache.get_or_plan(&sql, &c, &s).is_none(), "{sql}");
        crate::common::plan(&sql).unwrap();
    }
    let sql = "select 1 from history where '1' between delta and tid and '2' in (delta, tid)";
    assert!(cache.get_or_plan(sql, &c, &s).is_some());
}

#[test]
fn cached_plan_gives_the_same_result() {
    let (mut cache, c, s) = (PlanCache::new(), catalog(), SessionEnv::default());
    for sql in [
        "select 1 + -2",
        "select 7 / 2, 'a' || 'b', -5 % 3",
        "select 1.50 * 2, 'x' = 'x ', null is null",
    ] {
        let value = |plan: &clearway_ir::Plan, params: Vec<Datum>| {
            let clearway_ir::Statement::Query(q) = &plan.statement else { panic!() };
            let clearway_ir::statement::Source::Rows(rows) = &q.source else { panic!() };
            let env = Env { params, ..Env::default() };
            rows[0].iter().map(|e| e.eval_const(&env).unwrap()).collect::<Vec<_>>()
        };
        let (plan, params) = cache.get_or_plan(sql, &c, &s).unwrap();
        assert_eq!(
            value(&plan, params),
            value(&crate::common::plan(sql).unwrap(), Vec::new()),
            "{sql}"
        );
    }
}

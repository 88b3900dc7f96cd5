//! CHECK constraints: names, what an UPDATE tests, and the bounds of additions. The messages are
//! compared with PostgreSQL's by the server's tests (`sql/checks.sql`).

use crate::common::{error, plan_in};
use clearway_ir::{Bounds, Catalog, Program, Statement, TableDef};
use clearway_types::SqlState;
use std::sync::Arc;

fn created(catalog: &Catalog, sql: &str) -> TableDef {
    match plan_in(catalog, sql).unwrap_or_else(|e| panic!("{sql}: {e}")).statement {
        Statement::CreateTable { table, .. } => table,
        other => panic!("{other:?}"),
    }
}

fn with(sql: &str) -> Catalog {
    let table = created(&Catalog::default(), sql);
    Catalog { version: 1, tables: [(table.name.clone(), Arc::new(table))].into() }
}

fn names(table: &TableDef) -> Vec<&str> {
    table.checks.iter().map(|check| check.name.as_str()).collect()
}

#[test]
fn constraints_are_sorted_by_name() {
    let table = created(
        &Catalog::default(),
        "create table t (w int check (w > 1), check (v < w), v int check (v > 0) constraint b check (v < 9), constraint a check (w < 5))",
    );
    assert_eq!(names(&table), ["a", "b", "t_check", "t_v_check", "t_w_check"]);
}

#[test]
fn default_names_are_unused_by_constraints_of_all_tables() {
    let catalog = with("create table other (v int constraint t_v_check check (v > 0))");
    let table = created(&catalog, "create table t (v int check (v > 0) check (v < 9))");
    assert_eq!(names(&table), ["t_v_check1", "t_v_check2"]);
    let Statement::AddCheck { check, .. } =
        plan_in(&catalog, "alter table other add check (v < 9)").unwrap().statement
    else {
        panic!()
    };
    assert_eq!(check.name, "other_v_check");
}

/// A definition that cannot be read again would keep the server from starting.
#[test]
fn stored_expressions_can_be_read_again() {
    let mut deepest = 0;
    for (open, middle, close, after) in [
        ("", "v > 0", " and v > 0", ""),
        ("", "v", " + 1", " > 0"),
        ("- (", "v", " + 1)", " > 0"),
        ("abs(", "v", ")", " > 0"),
        ("coalesce(", "v", ", 1)", " > 0"),
        ("v in (1, v, case when ", "v > 0", " then 2 end)", ""),
        ("case v when 1 then 2 else ", "v", " end", " > 0"),
        ("case case ", "v", " when 1 then 2 end when 2 then v end", " > 0"),
        ("case when ", "v > 0", " then true end", ""),
        ("not (", "v > 0", ") is null", ""),
        ("", "v", "::int8::int4", " > 0"),
        ("'x' || ", "v", "", " like 'x'"),
    ] {
        for n in 1..80 {
            let condition = format!("{}{middle}{}{after}", open.repeat(n), close.repeat(n));
            let sql = format!("create table t (v int check ({condition}))");
            match plan_in(&Catalog::default(), &sql) {
                Ok(plan) => {
                    let Statement::CreateTable { table, .. } = plan.statement else { panic!() };
                    let stored = serde_json::to_vec(&table).unwrap();
                    let read: TableDef = serde_json::from_slice(&stored).unwrap();
                    assert_eq!(read.checks, table.checks, "{sql}");
                    deepest = deepest.max(n);
                }
                // sqlparser reports some texts that are nested too deeply as syntax errors.
                Err(e) => assert!(["54001", "42601"].contains(&e.state().as_str()), "{sql}: {e}"),
            }
        }
    }
    assert!(deepest >= 50, "{deepest}");
    let default = format!("create table t (v int default abs(1){})", " + 1".repeat(80));
    assert_eq!(error(&default).state().as_str(), "54001");
}

#[test]
fn conditions_need_the_row_only() {
    for (sql, state) in [
        ("create table t (v int check (v > $1))", SqlState::UNDEFINED_PARAMETER),
        ("create table t (v int check (v > (select 1)))", SqlState::FEATURE_NOT_SUPPORTED),
        ("create table t (v int check (pg_sleep(v) is null))", SqlState::FEATURE_NOT_SUPPORTED),
        ("create table t (v int check (max(v) > 1))", SqlState::GROUPING),
        ("create table t (v int check (w > 1))", SqlState::UNDEFINED_COLUMN),
        ("create table t (v int check (v > 1) enforced)", SqlState::SYNTAX),
    ] {
        assert_eq!(error(sql).state(), state, "{sql}");
    }
}

/// Returns the tested constraints and the bounds of an UPDATE of the row with id 1.
fn update(columns: &str, set: &str) -> (Vec<usize>, Option<Vec<(i64, i64)>>) {
    let catalog = with(&format!("create table t (id int primary key, {columns})"));
    let sql = format!("update t set {set} where id = 1");
    let Statement::Modify { program, .. } = plan_in(&catalog, &sql).unwrap().statement else {
        panic!()
    };
    let Program::Update { checks, adds, .. } = &*program else { panic!() };
    let pair = |bounds: &Bounds| (bounds.low, bounds.high);
    (checks.clone(), adds.as_ref().map(|adds| adds.iter().map(pair).collect()))
}

#[test]
fn updates_test_the_constraints_on_their_columns() {
    let columns = "a int check (a > 0), b int check (b > 0), check (a < b), c text, at timestamptz, constraint z check (at < now())";
    // By name: t_a_check, t_b_check, t_check, z.
    assert_eq!(update(columns, "a = 1").0, [0, 2, 3]);
    assert_eq!(update(columns, "b = 1").0, [1, 2, 3]);
    assert_eq!(update(columns, "c = 'x'").0, [3]);
}

#[test]
fn comparisons_with_constants_bound_additions() {
    let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
    for (check, bounds) in [
        ("n >= 0", (0, most)),
        ("n > 0", (1, most)),
        ("n <= 7", (least, 7)),
        ("n < 7", (least, 6)),
        ("n = 7", (7, 7)),
        ("0 <= n", (0, most)),
        ("0 < n", (1, most)),
        ("7 >= n", (least, 7)),
        ("7 > n", (least, 6)),
        ("n between -5 and 5", (-5, 5)),
        ("n >= 0 and n < 10 and n > -3", (0, 9)),
        ("(n >= 0) and (n <= 5 and n <= 4)", (0, 4)),
        ("n > -(2 + 3)", (-4, most)),
        ("n >= '3'", (3, most)),
        ("n::int8 >= 3", (3, most)),
        ("n >= 3000000000", (3_000_000_000, most)),
        ("n < -3000000000", (least, -3_000_000_001)),
        ("n > 9223372036854775807", (i64::MAX, i64::MIN)),
        ("n >= 0 and m > 3", (0, most)),
        ("n >= 0 and (m > 3 or c <> 'x')", (0, most)),
        ("m <> 3", (least, most)),
        ("n >= 0), check (n <= 9", (0, 9)),
        ("m > id), check (n <= 9", (least, 9)),
    ] {
        let columns = format!("n int, m int, c text, check ({check})");
        for set in ["n = n + 1", "n = n - $1"] {
            assert_eq!(update(&columns, set).1, Some(vec![bounds]), "{check}");
        }
    }
    assert_eq!(
        update("a int2 check (a > 1), b int8 check (b < 9)", "b = b + 1, a = a - 1").1,
        Some(vec![(i64::MIN, 8), (2, i64::from(i16::MAX))])
    );
}

#[test]
fn other_conditions_on_a_column_prevent_shared_additions() {
    for check in [
        "n <> 3",
        "not n < 0",
        "n < m",
        "n + 1 > 0",
        "abs(n) < 5",
        "n % 2 = 0",
        "n in (1, 2)",
        "n > 0 or m > 0",
        "n is not null",
        "n > 0.5",
        "n > null",
        "n::float8 > 0",
        "n::int2 > 0",
        "n::text <> '3'",
        "n >= 0 and n <> 3",
        "n > 1 / 0",
        "coalesce(n, 1) > 0",
        "case when n > 0 then true else false end",
        "n > 0 is not distinct from true",
        "n > 0 and now() > '2000-01-01'",
        "m > 0 and random() < 2",
    ] {
        let columns = format!("n int, m int, check ({check})");
        assert_eq!(update(&columns, "n = n + 1").1, None, "{check}");
    }
    assert_eq!(update("n int check (n >= 0)", "n = 1 - n").1, None);
}

//! Compares expressions with PostgreSQL 15's results. Each line of `expressions.tsv` holds
//! `select`'s expression, a tab, and the text form of the value (NULL for a null) or `ERROR:
//! SQLSTATE message`, as psql got it from a server in UTC.

use clearway_ir::{Catalog, Env, Plan, SessionEnv, Statement, Zone, statement::Source, value};
use clearway_planner::PlanCache;
use clearway_types::{Datum, SqlResult};

fn evaluate(expression: &str) -> SqlResult<String> {
    let parsed = clearway_planner::parse(&format!("select {expression}"))?;
    let plan =
        clearway_planner::plan(&parsed[0], &Catalog::default(), &[], &SessionEnv::default())?;
    value_of(&plan, Vec::new())
}

/// Like [`evaluate`], with the literals as parameters. `None`: the cache leaves this text to the
/// planner.
fn evaluate_cached(expression: &str) -> Option<SqlResult<String>> {
    let sql = format!("select {expression}");
    let (plan, params) =
        PlanCache::new().get_or_plan(&sql, &Catalog::default(), &SessionEnv::default())?;
    Some(value_of(&plan, params))
}

fn value_of(plan: &Plan, params: Vec<Datum>) -> SqlResult<String> {
    let Statement::Query(query) = &plan.statement else { panic!("{plan:?}") };
    let Source::Rows(rows) = &query.source else { panic!("{plan:?}") };
    let value = rows[0][0].eval_const(&Env { params, ..Env::default() })?;
    Ok(match value.is_null() {
        true => "NULL".to_owned(),
        false => value::to_text(plan.columns[0].ty, value.as_ref(), &Zone::utc()),
    })
}

#[test]
fn long_operator_chain_is_evaluated() {
    let chain = |first: &str, unit: &str, n: usize| {
        evaluate(&format!("{first}{}", unit.repeat(n))).unwrap()
    };
    assert_eq!(chain("0", " + 1", 1499), "1499");
    assert_eq!(chain("true", " and true", 1499), "t");
    assert_eq!(chain("1 = 0", " or 1 = 1", 749), "t");
    assert_eq!(chain("'x'", " || 'y'", 1499).len(), 1500);
}

/// A plan is not exponentially larger than its text.
#[test]
fn nested_operands_do_not_multiply() {
    let nested = |open: &str, middle: &str, close: &str| {
        evaluate(&format!("{}{middle}{}", open.repeat(40), close.repeat(40)))
            .map_err(|e| e.state().to_string())
    };
    let too_deep = Err("54001".to_owned());
    assert_eq!(nested("case (", "1", ") when 1 then 1 when 2 then 2 end"), Ok("1".to_owned()));
    assert_eq!(nested("concat(", "true", ") = 't'"), Ok("t".to_owned()));
    assert_eq!(nested("(", "true", " between false and true)"), too_deep);
    assert_eq!(nested("nullif(", "date '2024-01-01'", ", timestamp '2024-01-02')"), too_deep);
    assert_eq!(evaluate("1 + 1 between 2 and 3").unwrap(), "t");
    assert_eq!(evaluate("nullif(date '2024-01-01', timestamp '2024-01-01')").unwrap(), "NULL");
}

/// A list may be longer than a chain of operators.
#[test]
fn long_lists_do_not_nest() {
    let state = |expression: &str| evaluate(expression).map_err(|e| e.state().to_string());
    let list = |n: usize| vec!["1"; n].join(", ");
    assert_eq!(state(&format!("concat({})", list(100))), Ok("1".repeat(100)));
    assert_eq!(state(&format!("concat({})", list(101))), Err("54023".to_owned()));
    assert_eq!(state(&format!("concat({})", list(150_000))), Err("54023".to_owned()));
    assert_eq!(state(&format!("greatest({})", list(30_000))), Ok("1".to_owned()));
    assert_eq!(state(&format!("'0' in (1, true, {})", list(100_000))), Ok("f".to_owned()));
    let long = format!("{}0", " ".repeat(1000));
    // It is read once for each type.
    assert_eq!(state(&format!("'{long}' in (1, true, {})", list(30_000))), Ok("f".to_owned()));
    // One long literal is copied, but not multiplied.
    let long = "y".repeat(3 << 20);
    assert_eq!(state(&format!("'{long}' between 'a' and 'z'")), Ok("t".to_owned()));
    assert_eq!(state(&format!("'{long}' in ('a'::text, 1)")), Err("22P02".to_owned()));
    let nested =
        |n: usize| format!("{}'{long}'{}", "(".repeat(n), " between '' and 'z')::text".repeat(n));
    assert_eq!(state(&nested(1)), Ok("true".to_owned()));
    assert_eq!(state(&nested(9)), Err("54001".to_owned()));
    assert_eq!(state(&format!("'0' not in (1, true, {})", list(30_000))), Ok("t".to_owned()));
    assert_eq!(state("'1' in (0, false)"), Ok("f".to_owned()));
    assert_eq!(state("'1' not in (1, true)"), Ok("f".to_owned()));
    assert_eq!(state("'1' in (0, false, null)"), Ok("NULL".to_owned()));
    assert_eq!(state("'1' not in (0, false, null)"), Ok("NULL".to_owned()));
}

#[test]
fn expressions_match_postgresql() {
    let mut wrong = Vec::new();
    for line in include_str!("expressions.tsv").lines() {
        let (expression, expected) = line.split_once('\t').unwrap_or((line, ""));
        let planned = Some(("planned", evaluate(expression)));
        for (how, got) in
            planned.into_iter().chain(evaluate_cached(expression).map(|got| ("cached", got)))
        {
            let got = got.unwrap_or_else(|e| format!("ERROR: {} {}", e.state(), e.message()));
            if got != expected {
                wrong.push(format!("{expression}: {how} {got}, PostgreSQL {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Values that our numerics, dates and strings cannot hold as PostgreSQL does are refused instead
/// of giving different results.
#[test]
fn unrepresentable_values_are_refused() {
    for expression in [
        "12345678901234567890123456789012345678901234567890",
        "1.23456789012345678901234567890123456789",
        "-1e300",
        "1e300 + 1",
        "12345678901234567890 * 12345678901234567890",
        "0.12345678901234567890 * 0.12345678901234567890",
        "1.5 + 12345678901234567890123456789",
        "1 / 3e20",
        "round(0.5, 30)",
        "'NaN'::numeric",
        "'inf'::float8::numeric",
        "coalesce('ab'::char(5), 'x')",
        "'x'::bpchar",
        "timestamp '2024-01-01' - date '2023-01-01'",
        "timestamp '2024-01-01' + '1 day'",
        "date 'today'",
        "timestamptz 'now'",
        "timestamptz '2024-01-01 12:00 MSK'",
        "substring('abc', 'b')",
        "sqrt(4)",
    ] {
        let planned = evaluate(expression);
        assert_eq!(
            planned.map_err(|e| e.state().to_string()),
            Err("0A000".to_owned()),
            "{expression}"
        );
        assert!(
            evaluate_cached(expression)
                .is_none_or(|r| r.is_err_and(|e| e.state().as_str() == "0A000"))
        );
    }
}

/// A cast of a constant that fails is an error only where it is evaluated.
#[test]
fn failing_casts_fail_where_they_are_evaluated() {
    let state = |expression: &str| evaluate(expression).map_err(|e| e.state().to_string());
    for (expression, value) in [
        ("coalesce(-1.5, -2147483648::int2, 32767)", "-1.5"),
        ("case when true then 1 else 2147483648::int2 end", "1"),
        ("case 1 when 1 then 'a' when 32768::int2 then 'b' end", "a"),
        ("coalesce(1::float8, 1e400::float8)", "1"),
    ] {
        assert_eq!(state(expression), Ok(value.to_owned()), "{expression}");
    }
    for expression in [
        "2147483648::int2",
        "coalesce(null, 2147483648::int2)",
        "1e400::float8",
        "round(null, (-2147483648)::int2)",
    ] {
        assert_eq!(state(expression), Err("22003".to_owned()), "{expression}");
    }
    // A literal without a type is read when the statement is planned.
    assert_eq!(state("coalesce(1, 'x'::int4)"), Err("22P02".to_owned()));
}

/// PostgreSQL 15 does not accept later versions' number formats, and nothing may directly follow a
/// number.
#[test]
fn junk_after_a_number_is_an_error() {
    let state = |expression: &str| evaluate(expression).map_err(|e| e.state().to_string());
    for expression in [
        "123abc",
        "1_2_3",
        "0.a",
        "0.0e",
        "1e",
        "1.5e+",
        "0x1F",
        "1L",
        "1 'x'",
        "1 as 'x'",
        "1 from t 'x'",
        "'a' 'b'",
        "$1abc",
    ] {
        assert_eq!(state(expression), Err("42601".to_owned()), "{expression}");
    }
    assert_eq!(state("3e-500::float8"), Err("22003".to_owned()));
    assert_eq!(state("'foo'\n'bar'"), Ok("foobar".to_owned()));
    assert_eq!(state("'foo' -- and\n  'bar' \n 'baz'"), Ok("foobarbaz".to_owned()));
}

//! Randomly generated expressions over types, literals, operators and functions, compared with
//! PostgreSQL 15.
//!
//! If PostgreSQL returns a value, we must return the same value with the same type and column name,
//! or refuse with 0A000. If it returns an error, we must return one. Each expression is run in two
//! ways, which must agree: as a simple query, whose literals the plan cache turns into parameters,
//! and through PREPARE, which plans the text as written. SEED and ROUNDS in the environment select
//! other expressions.

use super::{LIMIT, columns, data_dir, row, start};
use clearway_harness::client::{PgClient, field};
use clearway_harness::server::Kind;
use clearway_harness::tools::{self, TempDir};
use clearway_testkit::Rng;

const SEED: u64 = 15;
const ROUNDS: u64 = 2000;

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "100",
    "32767",
    "-32768",
    "32768",
    "2147483647",
    "-2147483648",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "null",
];
const NUMERICS: &[&str] = &[
    "0.0",
    "1.5",
    "-1.5",
    "2.50",
    "0.001",
    "-0.005",
    "123456.789",
    "99999999999.99",
    "1e3",
    "1.e2",
    ".5",
    "-.5",
    "12345678901234567890",
    "1e-5",
    "-0.0",
    "10.10",
    "3e10",
];
const STRINGS: &[&str] = &[
    "''",
    "'a'",
    "'A'",
    "'abc'",
    "'ab '",
    "'  x'",
    "'12'",
    "' 7 '",
    "'1.5'",
    "'true'",
    "'f'",
    "'2024-02-29'",
    "'%'",
    "'a%'",
    "'_b_'",
    "'a\\b'",
    "'it''s'",
    "null",
    "'2024-02-29 12:30:00'",
    "'-5'",
    "'1e3'",
    "'NaN'",
    "'abcdef'",
];
const OTHERS: &[&str] = &[
    "true",
    "false",
    "null",
    "date '2024-02-29'",
    "date 'infinity'",
    "date '0044-03-15 BC'",
    "timestamp '2000-01-01'",
    "timestamp '2024-02-29 12:34:56.789'",
    "timestamptz '2024-02-29 12:34:56+02'",
    "timestamptz '2000-01-01 PST'",
    "'NaN'::float8",
    "'inf'::float8",
    "1e300::float8",
    "0.1::float8",
    "'-0'::float8",
];
const TYPES: &[&str] = &[
    "int2",
    "int4",
    "int8",
    "numeric",
    "float8",
    "text",
    "varchar",
    "varchar(3)",
    "char(4)",
    "bool",
    "date",
    "timestamp",
    "timestamptz",
    "name",
];
const OPERATORS: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "is distinct from",
    "is not distinct from",
    "like",
    "ilike",
    "not like",
];
const TESTS: &[&str] = &[
    "is null",
    "is not null",
    "is true",
    "is not true",
    "is false",
    "is unknown",
    "is not unknown",
    "isnull",
    "notnull",
];
const UNARY: &[&str] = &["-", "+", "not"];
const ONE: &[&str] = &[
    "abs",
    "lower",
    "upper",
    "length",
    "char_length",
    "round",
    "floor",
    "ceil",
    "md5",
    "btrim",
    "ltrim",
    "coalesce",
    "concat",
];
const TWO: &[&str] = &[
    "nullif", "coalesce", "greatest", "least", "round", "substr", "left", "right", "strpos",
    "btrim", "rtrim", "concat",
];
const THREE: &[&str] = &["replace", "substr", "coalesce", "greatest", "least", "concat"];
const UNITS: &[&str] =
    &["day", "hour", "month", "week", "year", "quarter", "decade", "century", "second", "nope"];

fn pick<'a>(rng: &mut Rng, list: &[&'a str]) -> &'a str {
    list[rng.between(0, list.len() as u64 - 1) as usize]
}

fn literal(rng: &mut Rng) -> String {
    let plain = |rng: &mut Rng| {
        let list = [INTEGERS, NUMERICS, STRINGS, OTHERS][rng.between(0, 3) as usize];
        pick(rng, list).to_owned()
    };
    match rng.between(0, 2) {
        0 => format!("{}::{}", plain(rng), pick(rng, TYPES)),
        _ => plain(rng),
    }
}

fn expression(rng: &mut Rng, depth: u32) -> String {
    if depth == 0 || rng.between(0, 3) == 0 {
        return literal(rng);
    }
    let sub = |rng: &mut Rng| expression(rng, depth - 1);
    let (a, b, c) = (sub(rng), sub(rng), sub(rng));
    match rng.between(0, 14) {
        0..=4 => format!("({a} {} {b})", pick(rng, OPERATORS)),
        5 => format!("({} {a})", pick(rng, UNARY)),
        6 => format!("({a})::{}", pick(rng, TYPES)),
        7 => format!("cast({a} as {})", pick(rng, TYPES)),
        8 => format!("{}({a})", pick(rng, ONE)),
        9 => format!("{}({a}, {b})", pick(rng, TWO)),
        10 => format!("{}({a}, {b}, {c})", pick(rng, THREE)),
        11 => format!("({a} {})", pick(rng, TESTS)),
        12 => format!("(case when {a} then {b} else {c} end)"),
        13 => format!("({a} {} ({b}, {c}))", pick(rng, &["in", "not in"])),
        _ => match rng.between(0, 1) {
            0 => format!("({a} {} {b} and {c})", pick(rng, &["between", "not between"])),
            _ => format!("date_trunc('{}', {a})", pick(rng, UNITS)),
        },
    }
}

/// The columns and the row, or the SQLSTATE.
type Outcome = Result<String, String>;

fn run(client: &mut PgClient, sql: &str) -> Outcome {
    let messages = client.messages(sql, None).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut out = String::new();
    for (tag, body) in &messages {
        match tag {
            b'T' => out += &columns(body),
            b'D' => out += &format!(" {}", row(body)),
            b'E' => return Err(field(body, b'C')),
            _ => {}
        }
    }
    Ok(out)
}

/// Runs the statement through PREPARE.
fn prepared(client: &mut PgClient, sql: &str) -> Outcome {
    run(client, &format!("prepare generated as {sql}"))?;
    let outcome = run(client, "execute generated");
    run(client, "deallocate generated").unwrap();
    outcome
}

fn agrees(ours: &Outcome, postgres: &Outcome) -> bool {
    match (ours, postgres) {
        (Err(code), _) if code == "0A000" => true,
        (Err(_), Err(_)) => true,
        _ => ours == postgres,
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap())
}

#[test]
fn generated_expressions_agree_with_postgres_15() {
    if !tools::has_postgres_15() {
        assert!(!tools::in_ci(), "PostgreSQL 15 is not installed");
        eprintln!("no expressions are compared: PostgreSQL 15 is not installed");
        return;
    }
    let directory = TempDir::new("sql-generated").unwrap();
    let kind = Kind::Postgres { settings: vec!["timezone=UTC".to_owned()] };
    kind.prepare(&directory.path().join("data")).unwrap();
    let judge = kind.start(&directory.path().join("data")).unwrap();
    let data = data_dir("generated");
    let server = start(&data);
    let mut postgres = PgClient::connect(judge.endpoint(), LIMIT).unwrap();
    let mut ours = PgClient::connect(server.endpoint(), LIMIT).unwrap();
    let mut rng = Rng::new(number("SEED", SEED));
    let mut wrong = String::new();
    for _ in 0..number("ROUNDS", ROUNDS) {
        let depth = rng.between(1, 3) as u32;
        let sql = format!("select {}", expression(&mut rng, depth));
        let expected = run(&mut postgres, &sql);
        for (how, outcome) in
            [("simple", run(&mut ours, &sql)), ("prepared", prepared(&mut ours, &sql))]
        {
            if !agrees(&outcome, &expected) {
                wrong += &format!("\n{sql}\n  PostgreSQL {expected:?}\n  {how} {outcome:?}");
            }
        }
    }
    drop((postgres, ours));
    judge.stop().unwrap();
    server.stop().unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    assert_eq!(wrong, "");
}

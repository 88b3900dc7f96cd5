//! SQL scripts against the server, one statement a line, with the answers that PostgreSQL 15 gives to the same lines.
//!
//! `sql/NAME.sql` is the script, `sql/NAME.out` what PostgreSQL answered: the rows, the tag, or SQLSTATE and message. To make the
//! answers again, run with `BLESS=HOST:PORT` naming a PostgreSQL with an empty database. Messages are compared word for word, but for
//! syntax errors. What PostgreSQL does not have is in a script of its own (`system`), with Clearway's own
//! answers, to be read before they are kept. `COPY ... <- DATA` sends the data, in which `\\n` and `\\t` stand for a line's end and a tab.

use clearway_harness::Endpoint;
use clearway_harness::client::{Client, QueryError};
use clearway_harness::server::Kind;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn answer(client: &mut Client, sql: &str) -> String {
    let mut out = String::new();
    let result = match sql.split_once(" <- ") {
        Some((copy, data)) => client.copy_in(copy, data.replace("\\n", "\n").replace("\\t", "\t").as_bytes()),
        None => client.query(sql),
    };
    match result {
        Ok(answer) => {
            for notice in &answer.notices {
                writeln!(out, "{notice}").unwrap();
            }
            let cell = |c: &Option<String>| c.clone().unwrap_or_else(|| "NULL".into());
            let mut rows: Vec<String> =
                answer.rows.iter().map(|r| r.iter().map(cell).collect::<Vec<_>>().join(" | ")).collect();
            if !sql.contains("order by") {
                rows.sort();
            }
            for row in rows {
                writeln!(out, "{row}").unwrap();
            }
            writeln!(out, "{}", answer.tag).unwrap();
        }
        Err(QueryError::Sql { code, .. }) if own_words(&code) => writeln!(out, "ERROR {code}").unwrap(),
        Err(QueryError::Sql { code, message, detail, context }) => {
            writeln!(out, "ERROR {code}: {message}").unwrap();
            if !detail.is_empty() {
                writeln!(out, "DETAIL: {detail}").unwrap();
            }
            if !context.is_empty() {
                writeln!(out, "CONTEXT: {context}").unwrap();
            }
        }
        Err(QueryError::Lost(why)) => panic!("{sql}: {why}"),
    }
    out
}

/// Syntax errors come from another parser: their code is the same, their words are not.
fn own_words(code: &str) -> bool {
    code == "42601"
}

/// What PostgreSQL gets of a statement: it does not distribute rows.
fn without_distribution(sql: &str) -> String {
    sql.split_once(" distributed by ").map_or(sql, |(before, _)| before).to_owned()
}

fn transcript(client: &mut Client, script: &str, said: fn(&str) -> String) -> String {
    let mut out = String::new();
    for sql in script.lines().filter(|l| !l.trim().is_empty()) {
        writeln!(out, "> {sql}").unwrap();
        out.push_str(&answer(client, &said(sql)));
    }
    out
}

fn check(name: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql");
    let script = std::fs::read_to_string(dir.join(format!("{name}.sql"))).unwrap();
    let expected_at = dir.join(format!("{name}.out"));
    let of_postgres = name != "system";
    if of_postgres && let Ok(postgres) = std::env::var("BLESS") {
        let mut client = Client::connect(&Endpoint::parse(&postgres).unwrap(), LIMIT).unwrap();
        std::fs::write(expected_at, transcript(&mut client, &script, without_distribution)).unwrap();
        return;
    }
    let data = data_dir(name);
    let kind = Kind::Clearway {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_clearway")),
        args: ["--partitions", "4", "--buffer-pool", "16MiB"].map(str::to_owned).to_vec(),
    };
    let server = kind.start(&data).unwrap();
    let mut client = Client::connect(server.endpoint(), LIMIT).unwrap();
    let actual = transcript(&mut client, &script, str::to_owned);
    drop(client);
    server.stop().unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(expected_at, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(expected_at).unwrap();
    assert_eq!(differences(&expected, &actual), "", "see tests/sql/{name}.out");
}

/// A fresh directory under the build's own temporary one.
fn data_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sql-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

/// The statements whose answers differ, with both.
fn differences(expected: &str, actual: &str) -> String {
    let parts = |s: &str| s.split("> ").map(str::to_owned).collect::<Vec<_>>();
    let (expected, actual) = (parts(expected), parts(actual));
    let mut out = String::new();
    for (e, a) in expected.iter().zip(&actual).filter(|(e, a)| e != a) {
        write!(out, "\n> {e}--- but we answer:\n> {a}").unwrap();
    }
    if expected.len() != actual.len() {
        write!(out, "\n{} statements expected, {} answered", expected.len(), actual.len()).unwrap();
    }
    out
}

#[test]
fn select() {
    check("select");
}
#[test]
fn errors() {
    check("errors");
}
#[test]
fn transactions() {
    check("transactions");
}
#[test]
fn modify() {
    check("modify");
}
#[test]
fn copy() {
    check("copy");
}
#[test]
fn date() {
    check("date");
}
#[test]
fn settings() {
    check("settings");
}
#[test]
fn system() {
    check("system");
}
#[test]
fn unique() {
    check("unique");
}

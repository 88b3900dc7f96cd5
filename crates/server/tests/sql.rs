//! SQL scripts, one statement per line, compared with the answers of PostgreSQL 15.
//!
//! `sql/NAME.sql` is the script. `sql/NAME.out` has PostgreSQL's answers: columns with their types,
//! rows, tags, or SQLSTATE, message and fields. One file covers one topic; each runs in its own
//! database.
//!
//! To record the answers again: `BLESS=1 cargo test -p clearway-server --test sql recorded`. Where
//! PostgreSQL 15 is installed, the same test without BLESS checks that the recorded answers are
//! PostgreSQL's. Features that PostgreSQL does not have are in a separate script (`system`) with
//! Clearway's own answers; review them before recording.
//!
//! `generated` draws expressions and compares directly with PostgreSQL.
//!
//! In a script
//! - `--refused` at the end marks a statement that PostgreSQL runs and we refuse with 0A000. If we
//!   run it, the test fails: the mark must be removed.
//! - `{nl}` stands for a line feed, `{500*+1}` for 500 times `+1`.
//! - `COPY ... <- DATA` sends the data, in which `\n`, `\r` and `\t` stand for a line feed, a
//!   carriage return and a tab.
//! - Rows are sorted unless the statement contains `order by`.

use clearway_harness::Endpoint;
use clearway_harness::client::{PgClient, data_row, field};
use clearway_harness::server::{Kind, PrivateServer};
use clearway_harness::tools::{self, TempDir};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[path = "sql/generated.rs"]
mod generated;

const LIMIT: Duration = Duration::from_secs(60);

/// The script whose recorded answers are Clearway's.
const OURS: &str = "system";

/// The mark of a statement that we refuse and PostgreSQL runs.
const REFUSED: &str = "--refused";

/// Defines a test for each script.
macro_rules! scripts {
    ($($name:ident)*) => {
        const SCRIPTS: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

scripts! {
    blocks
    checks
    copy
    cursors
    date
    datetimes
    errors
    literals
    messages
    modify
    names
    options
    readonly
    select
    settings
    snapshots
    system
    transactions
    types
    unique
    values
}

#[test]
fn every_script_is_run() {
    let files =
        std::fs::read_dir(dir()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    for name in files.filter_map(|f| f.strip_suffix(".sql").map(str::to_owned)) {
        assert!(SCRIPTS.contains(&name.as_str()), "sql/{name}.sql has no test");
    }
}

/// Records the answers again if BLESS is set.
#[test]
fn recorded_answers_match_postgres_15() {
    let bless = std::env::var_os("BLESS").is_some();
    if !tools::has_postgres_15() {
        assert!(!bless && !tools::in_ci(), "PostgreSQL 15 is not installed");
        eprintln!("the recorded answers are NOT checked: PostgreSQL 15 is not installed");
        return;
    }
    let directory = TempDir::new("sql-postgres").unwrap();
    let data = directory.path().join("data");
    let kind = Kind::Postgres { settings: vec!["timezone=UTC".to_owned()] };
    kind.prepare(&data).unwrap();
    let server = kind.start(&data).unwrap();
    let mut changed = String::new();
    for name in SCRIPTS.iter().filter(|name| **name != OURS) {
        let mut client = PgClient::connect(server.endpoint(), LIMIT).unwrap();
        client.query(&format!("create database corpus_{name}")).unwrap();
        let endpoint = Endpoint { database: format!("corpus_{name}"), ..server.endpoint().clone() };
        let mut client = PgClient::connect(&endpoint, LIMIT).unwrap();
        let answers = transcript(&mut client, &script(name), without_distribution);
        if bless {
            std::fs::write(recorded_at(name), answers).unwrap();
        } else {
            changed +=
                &differences(&std::fs::read_to_string(recorded_at(name)).unwrap(), &answers, false);
        }
    }
    server.stop().unwrap();
    assert_eq!(changed, "", "PostgreSQL's answers differ from the recorded ones");
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql")
}

fn script(name: &str) -> String {
    std::fs::read_to_string(dir().join(format!("{name}.sql"))).unwrap()
}

fn recorded_at(name: &str) -> PathBuf {
    dir().join(format!("{name}.out"))
}

fn check(name: &str) {
    let data = data_dir(name);
    let server = start(&data);
    let mut client = PgClient::connect(server.endpoint(), LIMIT).unwrap();
    let actual = transcript(&mut client, &script(name), str::to_owned);
    drop(client);
    server.stop().unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    if name == OURS && std::env::var_os("BLESS").is_some() {
        std::fs::write(recorded_at(name), actual).unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(recorded_at(name)).unwrap();
    assert_eq!(differences(&recorded, &actual, true), "", "see tests/sql/{name}.out");
}

fn start(data: &Path) -> PrivateServer {
    let kind = Kind::Clearway {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_clearway")),
        args: ["--partitions", "4", "--buffer-pool", "16MiB"].map(str::to_owned).to_vec(),
    };
    kind.start(data).unwrap()
}

/// A new directory under the build's temporary directory.
fn data_dir(name: &str) -> PathBuf {
    let dir =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sql-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

/// The statement for PostgreSQL, which does not distribute rows.
fn without_distribution(sql: &str) -> String {
    sql.split_once(" distributed by ").map_or(sql, |(before, _)| before).to_owned()
}

fn transcript(client: &mut PgClient, script: &str, adapted: fn(&str) -> String) -> String {
    let mut out = String::new();
    for sql in script.lines().filter(|l| !l.trim().is_empty()) {
        writeln!(out, "> {sql}").unwrap();
        answer(client, &expanded(&adapted(sql)), &mut out);
    }
    out
}

/// Expands `{nl}` and `{500*+1}` in a statement.
fn expanded(sql: &str) -> String {
    let mut out = String::new();
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((inside, behind)) = after.split_once('}') else { break };
        out.push_str(before);
        match inside.split_once('*').map(|(n, text)| (n.parse::<usize>(), text)) {
            Some((Ok(n), text)) => out.push_str(&text.repeat(n)),
            _ if inside == "nl" => out.push('\n'),
            _ => write!(out, "{{{inside}}}").unwrap(),
        }
        rest = behind;
    }
    out + rest
}

fn answer(client: &mut PgClient, sql: &str, out: &mut String) {
    let messages = match sql.split_once(" <- ") {
        Some((copy, data)) => {
            let data = data.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t");
            client.messages(copy, Some(data.as_bytes()))
        }
        None => client.messages(sql, None),
    };
    let messages = messages.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let (mut head, mut rows) = (None, Vec::new());
    for (tag, body) in &messages {
        match tag {
            b'T' => head = Some(columns(body)),
            b'D' => rows.push(row(body)),
            b'C' => {
                if !sql.contains("order by") {
                    rows.sort();
                }
                head.take()
                    .into_iter()
                    .chain(rows.drain(..))
                    .for_each(|line| writeln!(out, "{line}").unwrap());
                writeln!(out, "{}", String::from_utf8_lossy(body).trim_end_matches('\0')).unwrap();
            }
            b'E' => {
                // The number of rows sent before an error is unspecified.
                (head, rows) = (None, Vec::new());
                error(body, out);
            }
            b'N' => {
                writeln!(out, "{} {}: {}", field(body, b'S'), field(body, b'C'), field(body, b'M'))
                    .unwrap()
            }
            _ => {}
        }
    }
}

fn row(body: &[u8]) -> String {
    let values = data_row(body).unwrap();
    values.into_iter().map(|v| v.unwrap_or_else(|| "NULL".into())).collect::<Vec<_>>().join(" | ")
}

/// Formats a RowDescription: `(id int4 @1, sum int8)`, with the column's number in its table.
fn columns(body: &[u8]) -> String {
    let mut rest = &body[2..];
    let mut out = Vec::new();
    while let Some(end) = rest.iter().position(|b| *b == 0) {
        let name = String::from_utf8_lossy(&rest[..end]).into_owned();
        let (fixed, behind) = rest[end + 1..].split_at(18);
        let number = |at: usize| i32::from_be_bytes(fixed[at..at + 4].try_into().unwrap());
        let origin = i16::from_be_bytes(fixed[4..6].try_into().unwrap());
        let origin =
            if number(0) == 0 && origin == 0 { String::new() } else { format!(" @{origin}") };
        out.push(format!("{name} {}{origin}", type_name(number(6), number(12))));
        rest = behind;
    }
    format!("({})", out.join(", "))
}

fn type_name(oid: i32, modifier: i32) -> String {
    let name = match oid {
        16 => "bool",
        19 => "name",
        20 => "int8",
        21 => "int2",
        23 => "int4",
        25 => "text",
        701 => "float8",
        1042 => "bpchar",
        1043 => "varchar",
        1082 => "date",
        1114 => "timestamp",
        1184 => "timestamptz",
        1700 => "numeric",
        2278 => "void",
        other => return format!("type {other}"),
    };
    if modifier < 0 { name.to_owned() } else { format!("{name}({modifier})") }
}

/// The compared fields of an error. Hints are Clearway's own.
const FIELDS: [(u8, &str); 8] = [
    (b'D', "DETAIL"),
    (b'W', "CONTEXT"),
    (b'P', "POSITION"),
    (b's', "SCHEMA"),
    (b't', "TABLE"),
    (b'c', "COLUMN"),
    (b'd', "TYPE"),
    (b'n', "CONSTRAINT"),
];

/// Formats an error. Syntax errors come from a different parser: only their code is compared.
fn error(body: &[u8], out: &mut String) {
    let code = field(body, b'C');
    if code == "42601" {
        return writeln!(out, "ERROR {code}").unwrap();
    }
    writeln!(out, "ERROR {code}: {}", field(body, b'M')).unwrap();
    for (kind, word) in FIELDS {
        let text = field(body, kind);
        if !text.is_empty() {
            writeln!(out, "{word}: {text}").unwrap();
        }
    }
}

/// The statements whose answers differ, with both answers. If the answers are `ours`, statements
/// marked as refused must be refused.
fn differences(expected: &str, actual: &str, ours: bool) -> String {
    let parts =
        |s: &str| s.split("\n> ").map(|p| p.trim_end_matches('\n').to_owned()).collect::<Vec<_>>();
    let (expected, actual) = (parts(expected), parts(actual));
    let mut out = String::new();
    for (e, a) in expected.iter().zip(&actual) {
        let (sql, text) = a.split_once('\n').unwrap_or((a, ""));
        let fine = if ours && sql.ends_with(REFUSED) {
            text.starts_with("ERROR 0A000") && !e.contains("\nERROR 0A000") && e.starts_with(sql)
        } else {
            e == a
        };
        if !fine {
            write!(out, "\n> {e}\n--- but the answer is:\n> {a}").unwrap();
        }
    }
    if expected.len() != actual.len() {
        write!(out, "\n{} statements expected, {} answered", expected.len(), actual.len()).unwrap();
    }
    out
}

//! Transactions that arrive whole, in one simple query or in one pipeline: the replies are those of
//! PostgreSQL 15, byte for byte except for source locations.
//!
//! `whole.out` has the recorded answers. To record them again:
//! `BLESS=1 cargo test -p clearway-server --test protocol recorded_whole`. Where PostgreSQL 15 is
//! installed, the same test without BLESS checks that the recorded answers are PostgreSQL's.

use crate::raw::{
    Fixture, LIMIT, Message, Raw, bind, close, describe, execute, flush, parse, query, sync,
};
use clearway_harness::client::PgClient;
use clearway_harness::server::{Kind, PrivateServer};
use clearway_harness::tools::{self, TempDir};
use clearway_server::config::HotRows;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

const WHOLE: HotRows = HotRows { increments: true, whole: true, retire: false };

/// One Parse, Bind, Describe and Execute.
fn run(sql: &str) -> Vec<u8> {
    [parse("", sql, &[]), bind("", "", &[], false), describe('P', ""), execute("", 0)].concat()
}

fn pipe(statements: &[&str]) -> Vec<u8> {
    let mut out: Vec<u8> = statements.iter().flat_map(|sql| run(sql)).collect();
    out.extend(sync());
    out
}

const ADD: &str = "update t set v = v + 1 where k = 1";
const ADD_2: &str = "update t set v = v + 1 where k = 2";
const TWICE: &str = "insert into t values (1, 1)";

/// Name, bytes sent in one write, and the number of ReadyForQuery in reply.
fn cases() -> Vec<(&'static str, Vec<u8>, usize)> {
    let prepared = |value: &str| [bind("", "add", &[value, "1"], false), execute("", 0)].concat();
    let simple = |name, sql: &str| (name, query(sql), 1);
    let in_pipeline = |name, statements: &[&str]| (name, pipe(statements), 1);
    let joined = |statements: &[&str]| statements.join("; ");
    vec![
        simple(
            "query: block",
            &joined(&["begin", ADD, ADD_2, "select v from t where k = 1", "commit"]),
        ),
        simple(
            "query: rolled back",
            &joined(&["begin", ADD, "insert into t values (9, 9)", "rollback"]),
        ),
        simple("query: fails in the middle", &joined(&["begin", ADD, TWICE, ADD_2, "commit"])),
        simple(
            "query: divides by zero",
            &joined(&["begin", ADD, "update t set v = 1 / 0 where k = 2", "commit"]),
        ),
        simple("query: implicit", &joined(&[ADD, ADD_2])),
        simple("query: implicit that fails", &joined(&[ADD, TWICE, ADD_2])),
        simple("query: begin in an implicit block", &joined(&[ADD, "begin", ADD_2, "commit"])),
        simple("query: no commit", &joined(&["begin", ADD])),
        simple(
            "query: commit and more",
            &joined(&["begin", ADD, "commit", ADD_2, "begin", ADD, "rollback"]),
        ),
        simple(
            "query: more fails after a commit",
            &joined(&["begin", ADD, "commit", ADD_2, TWICE]),
        ),
        simple(
            "query: savepoint",
            &joined(&[
                "begin",
                ADD,
                "savepoint s",
                ADD_2,
                "rollback to s",
                "release s",
                ADD,
                "commit",
            ]),
        ),
        simple(
            "query: fails behind a savepoint",
            &joined(&["begin", ADD, "savepoint s", TWICE, "commit"]),
        ),
        simple(
            "query: set",
            &joined(&[
                "begin",
                "set local extra_float_digits = 1",
                ADD,
                "show extra_float_digits",
                "commit",
            ]),
        ),
        simple(
            "query: table made",
            &joined(&[
                "begin",
                ADD,
                "create table n (a int primary key)",
                "insert into n values (1)",
                "commit",
            ]),
        ),
        simple("query: no such table", &joined(&["begin", ADD, "select * from nowhere", "commit"])),
        simple("query: syntax", &joined(&["begin", ADD, "selec", "commit"])),
        simple(
            "query: many rows",
            &joined(&[
                "begin",
                ADD,
                "select * from generate_series(1, 30)",
                "update t set v = v + 1",
                "commit",
            ]),
        ),
        simple(
            "query: serializable",
            &joined(&["begin isolation level serializable", ADD, "select sum(v) from t", "commit"]),
        ),
        simple(
            "query: repeatable read",
            &joined(&[
                "begin isolation level repeatable read",
                ADD,
                "select v from t where k = 1",
                ADD,
                "commit",
            ]),
        ),
        simple(
            "query: read only",
            &joined(&["begin read only", "select v from t where k = 1", ADD, "commit"]),
        ),
        simple("query: begin twice", &joined(&["begin", ADD, "begin", ADD, "commit", "commit"])),
        in_pipeline(
            "pipeline: block",
            &["begin", ADD, ADD_2, "select v from t where k = 1", "commit"],
        ),
        in_pipeline("pipeline: rolled back", &["begin", ADD, "rollback"]),
        in_pipeline("pipeline: fails in the middle", &["begin", ADD, TWICE, ADD_2, "commit"]),
        in_pipeline("pipeline: implicit", &[ADD, ADD_2, "select v from t where k = 2"]),
        in_pipeline("pipeline: implicit that fails", &[ADD, TWICE, ADD_2]),
        in_pipeline("pipeline: begin in an implicit block", &[ADD, "begin", ADD_2, "commit"]),
        in_pipeline("pipeline: no commit", &["begin", ADD]),
        in_pipeline("pipeline: commit and more", &["begin", ADD, "commit", ADD_2]),
        in_pipeline(
            "pipeline: savepoint",
            &["begin", ADD, "savepoint s", ADD_2, "rollback to s", "commit"],
        ),
        in_pipeline(
            "pipeline: fails behind a savepoint",
            &["begin", ADD, "savepoint s", TWICE, "commit"],
        ),
        in_pipeline("pipeline: syntax", &["begin", ADD, "selec", "commit"]),
        in_pipeline("pipeline: no such table", &["begin", ADD, "select * from nowhere", "commit"]),
        in_pipeline(
            "pipeline: table made",
            &["begin", ADD, "create table n (a int primary key)", "commit"],
        ),
        (
            "pipeline: parameters",
            [
                parse("add", "update t set v = v + $1 where k = $2", &[23, 23]),
                run("begin"),
                prepared("5"),
                prepared("7"),
                run("commit"),
                sync(),
            ]
            .concat(),
            1,
        ),
        (
            "pipeline: a parameter that is no number",
            [
                parse("add", "update t set v = v + $1 where k = $2", &[23, 23]),
                run("begin"),
                prepared("5"),
                prepared("x"),
                run("commit"),
                sync(),
            ]
            .concat(),
            1,
        ),
        (
            "pipeline: described",
            [
                parse("s", "select v from t where k = 1", &[]),
                run("begin"),
                describe('S', "s"),
                run(ADD),
                close('S', "s"),
                run("commit"),
                sync(),
            ]
            .concat(),
            1,
        ),
        (
            "pipeline: flush",
            [run("begin"), run(ADD), flush(), run(ADD_2), run("commit"), sync()].concat(),
            1,
        ),
        (
            "pipeline: row limit",
            [
                run("begin"),
                run(ADD),
                parse("", "select * from t order by k", &[]),
                bind("", "", &[], false),
                execute("", 1),
                execute("", 0),
                run("commit"),
                sync(),
            ]
            .concat(),
            1,
        ),
        (
            "pipeline: two",
            [
                pipe(&["begin", ADD, "commit"]),
                pipe(&["begin", ADD_2, TWICE, "commit"]),
                pipe(&["rollback"]),
            ]
            .concat(),
            3,
        ),
        (
            "pipeline: query behind it",
            [run("begin"), run(ADD), query("select v from t where k = 1"), run("commit"), sync()]
                .concat(),
            2,
        ),
    ]
}

fn shown(m: &Message) -> String {
    let (tag, text) = (m.tag, m.text());
    match tag {
        'E' | 'N' => format!("{tag} {} {} {}", m.severity(), m.code(), m.primary()),
        'C' | 'S' => format!("{tag} {}", text.replace('\0', "=")),
        'Z' => format!("Z {}", char::from(m.body[0])),
        'D' => {
            let values = m.values();
            let values = values
                .iter()
                .map(|v| String::from_utf8_lossy(v.as_deref().unwrap_or(b"null")).into_owned());
            format!("D {}", values.collect::<Vec<_>>().join(","))
        }
        'T' => format!("T {}", m.body[1]),
        _ => tag.to_string(),
    }
}

/// Plays all cases, each on its own connection and with the same initial table.
fn play(address: SocketAddr) -> String {
    let mut out = String::new();
    let mut control = Raw::connect(address);
    control.query("create table t (k int primary key, v int)");
    for (name, bytes, ends) in cases() {
        control.query("drop table if exists n");
        control.query("truncate t");
        control.query("insert into t select i, 100 from generate_series(1, 8) i");
        let mut client = Raw::connect(address);
        client.send(&bytes);
        writeln!(out, "# {name}").unwrap();
        for _ in 0..ends {
            let messages = client.until_ready();
            let texts: Vec<String> = messages.iter().map(shown).collect();
            writeln!(out, "{}", texts.join("\n")).unwrap();
        }
        // Shows what the transaction has left. Its own session rolls back first, because it may
        // still be in a block.
        let mut left =
            client.query("rollback").iter().filter(|m| m.tag != 'N').map(shown).collect::<Vec<_>>();
        let rows = control.query("select k, v from t where v <> 100 order by k");
        left.extend(rows.iter().filter(|m| m.tag == 'D').map(shown));
        left.extend(
            control
                .query("select count(*) from n")
                .iter()
                .filter(|m| "DE".contains(m.tag))
                .map(shown),
        );
        writeln!(out, "left: {}", left.join("; ")).unwrap();
    }
    out
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/whole.out")
}

#[test]
fn whole_transactions_match_the_recorded_answers() {
    for hot_rows in [WHOLE, HotRows::OFF] {
        let server = Fixture::with("whole", |config| config.hot_rows = hot_rows);
        let answers = play(server.address());
        server.stop();
        let recorded = std::fs::read_to_string(path()).unwrap();
        let differs = recorded.lines().zip(answers.lines()).position(|(a, b)| a != b);
        let case = recorded
            .lines()
            .take(differs.unwrap_or(0) + 1)
            .filter(|line| line.starts_with('#'))
            .last();
        let line = differs.map(|at| (recorded.lines().nth(at), answers.lines().nth(at)));
        assert!(recorded == answers, "{hot_rows:?}: {case:?}: {line:?}");
    }
}

/// Records the answers again if BLESS is set.
#[test]
fn recorded_whole_transactions_match_postgres_15() {
    let bless = std::env::var_os("BLESS").is_some();
    if !tools::has_postgres_15() {
        assert!(!bless && !tools::in_ci(), "PostgreSQL 15 is not installed");
        eprintln!("the recorded answers are NOT checked: PostgreSQL 15 is not installed");
        return;
    }
    let directory = TempDir::new("whole-postgres").unwrap();
    let data = directory.path().join("data");
    let socket_in = format!("unix_socket_directories={}", data.display());
    let kind = Kind::Postgres {
        settings: vec![socket_in, "timezone=UTC".to_owned(), "fsync=off".to_owned()],
    };
    kind.prepare(&data).unwrap();
    let server = kind.start(&data).unwrap();
    let mut client = PgClient::connect(server.endpoint(), LIMIT).unwrap();
    client.query("create role tester login superuser").unwrap();
    client.query("create database tester").unwrap();
    drop(client);
    let answers = play(SocketAddr::from(([127, 0, 0, 1], server.endpoint().port)));
    server.stop().unwrap();
    if bless {
        std::fs::write(path(), answers).unwrap();
    } else {
        assert!(
            std::fs::read_to_string(path()).unwrap() == answers,
            "PostgreSQL's answers differ from the recorded ones"
        );
    }
}

/// Starts a server in a process of its own, because lock requests are counted per process.
fn alone(hot_rows: &str) -> (PrivateServer, TempDir) {
    let directory = TempDir::new("whole-alone").unwrap();
    let args = ["--hot-rows", hot_rows, "--partitions", "4", "--workers", "2"];
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_clearway"));
    let kind = Kind::Clearway { binary, args: args.map(String::from).to_vec() };
    (kind.start(&directory.path().join("data")).unwrap(), directory)
}

/// Requests for locks of rows, ranges and tables since the server's start.
fn lock_requests(c: &mut Raw) -> u64 {
    let sum = "select coalesce(sum(requests), 0) from clearway.contention \
               where name like 'lock.%' and name <> 'lock.partition'";
    c.column(sum)[0].parse().unwrap()
}

/// Waits until no transaction is active at any partition: a whole transaction locks where others
/// hold locks.
fn await_quiet(c: &mut Raw) {
    let began = Instant::now();
    while c.column("select sum(active) from clearway.partitions") != ["0"] {
        assert!(began.elapsed() < LIMIT, "a transaction is still active");
    }
}

/// A complete transaction in one message, or in one pipeline before its Sync, is recognised: with
/// `whole` it takes no locks. The same transaction sent one statement at a time does, and so do all
/// of them without `whole`.
#[test]
fn complete_transactions_take_no_locks() {
    let statements = ["begin", ADD, ADD_2, "select v from t where k = 1", "commit"];
    let implicit = &statements[1..4];
    let complete = [
        ("query", query(&statements.join("; "))),
        ("query without begin", query(&implicit.join("; "))),
        ("pipeline", pipe(&statements)),
        ("pipeline without begin", pipe(implicit)),
    ];
    for (hot_rows, is_recognised) in [("whole", true), ("off", false)] {
        let (server, _directory) = alone(hot_rows);
        let address = SocketAddr::from(([127, 0, 0, 1], server.endpoint().port));
        let (mut client, mut control) = (Raw::connect(address), Raw::connect(address));
        control.query("create table t (k int primary key, v int)");
        control.query("insert into t select i, 100 from generate_series(1, 8) i");
        let mut locks = |send: &mut dyn FnMut(&mut Raw)| {
            await_quiet(&mut control);
            let before = lock_requests(&mut control);
            send(&mut client);
            lock_requests(&mut control) - before
        };
        for (name, bytes) in &complete {
            let requests = locks(&mut |client| {
                client.send(bytes);
                let reply = client.until_ready();
                assert!(reply.iter().all(|m| m.tag != 'E'), "{hot_rows}: {name}: {reply:?}");
            });
            // Otherwise at least the two rows.
            let fits = if is_recognised { requests == 0 } else { requests >= 2 };
            assert!(fits, "{hot_rows}: {name}: {requests} lock requests");
        }
        let requests = locks(&mut |client| {
            statements.iter().for_each(|sql| drop(client.query(sql)));
        });
        assert!(requests >= 2, "{hot_rows}: one at a time: {requests} lock requests");
        let rows = control.column("select v from t where k <= 2 order by k");
        assert_eq!(rows, ["105", "105"], "{hot_rows}");
        server.stop().unwrap();
    }
}

/// The number of waits in progress.
fn waits(c: &mut Raw) -> usize {
    c.column("select waiter from clearway.locks").len()
}

/// A transaction whose end has not arrived locks rows, not its partition.
#[test]
fn incomplete_transaction_locks_only_its_rows() {
    let server = Fixture::with("whole-part", |config| config.hot_rows = WHOLE);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.query("create table t (k int primary key, v int)");
    first.query("insert into t select i, 100 from generate_series(1, 100) i");
    let all = pipe(&["begin", ADD, "commit"]);
    let (now, later) = all.split_at(all.len() - 8);
    first.send(now);
    // Nothing is sent before the Sync. The row's lock shows that the statement has run.
    let locked = "begin; select v from t where k = 1 for update nowait";
    while second.column(locked) != ["55P03"] {
        second.query("rollback");
    }
    second.query("rollback");
    let updated = second.query("update t set v = v + 1 where k > 1");
    assert_eq!((updated[0].text(), waits(&mut second)), ("UPDATE 99".into(), 0));
    first.send(later);
    assert!(first.tags().ends_with("CZI"));
    assert_eq!(second.column("select v from t where k = 1"), ["101"]);
}

/// A client that does not read its rows does not block the partitions.
#[test]
fn slow_reader_releases_its_partitions() {
    let server = Fixture::with("whole-slow", |config| config.hot_rows = WHOLE);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.query("create table t (k int primary key, v int)");
    first.query("insert into t select i, 100 from generate_series(1, 100) i");
    let rows = "select repeat('x', 1000) from generate_series(1, 30000)";
    first.send(&pipe(&["begin", ADD, rows, ADD_2, "commit"]));
    while second.column("select v from t where k = 1 for update nowait") != ["55P03"] {}
    let mut third = server.connect();
    third.send(&query("update t set v = v + 1 where k = 50"));
    // The row may be at the partition where the first session holds its table lock: this statement
    // may have to wait, but not forever.
    assert!(first.tags().ends_with("CZI"));
    assert_eq!(third.tags(), "CZI");
    assert_eq!(second.column("select v from t where k <= 2 order by k"), ["101", "101"]);
}

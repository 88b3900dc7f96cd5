//! The log lines about waits for locks and deadlocks.

use crate::raw::{Fixture, LIMIT, Raw, bind, execute, parse, query, sync};
use clearway_server::config::LogLockWaits;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// So long that no wait is logged.
const DAY_MS: u64 = 86_400_000;

/// Log lines of all servers in this process; tests find their own by table names.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static MORE: Condvar = Condvar::new();

struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(String::from_utf8_lossy(line).into_owned());
        MORE.notify_all();
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts to record log lines.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
}

/// Waits for the first line that contains all of these parts.
#[track_caller]
fn line(parts: &[&str]) -> String {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let find = |lines: &[String]| {
        lines.iter().find(|line| parts.iter().all(|part| line.contains(part))).cloned()
    };
    let (lines, timeout) = MORE
        .wait_timeout_while(lines, LIMIT, |lines| find(lines).is_none())
        .unwrap_or_else(PoisonError::into_inner);
    assert!(!timeout.timed_out(), "no line with {parts:?} in {lines:#?}");
    find(&lines).unwrap()
}

fn lines_with(part: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.contains(part)).cloned().collect()
}

/// Starts a server that logs waits longer than `ms` milliseconds, and opens connections.
fn server(name: &str, ms: u64) -> (Fixture, Vec<Raw>) {
    listen();
    let after = LogLockWaits(Some(Duration::from_millis(ms)));
    let server = Fixture::with(name, |config| config.log_lock_waits = after);
    let clients = (0..4).map(|_| server.connect()).collect();
    (server, clients)
}

#[test]
fn long_wait_and_its_end_are_logged() {
    let (_server, mut c) = server("long-waits", 1);
    let pids: Vec<i32> = c.iter().map(|c| c.pid).collect();
    let [holder, first, second] = [0, 1, 2].map(|at| format!("process {}", pids[at]));
    c[0].query("create table long (a int primary key, n text)");
    c[0].query("insert into long values (1, 'x'), (2, 'y')");
    c[0].query("begin; update long set n = 'held' where a = 1");
    c[1].query("begin; update long set n = 'first' where a = 2");
    c[1].send(&query("update long set n = 'first'\n where a = 1"));
    let waits =
        format!("{first} still waits for no key update lock on key (1) of table long after ");
    let logged = line(&[&waits, " INFO ", &format!(" ms; blocked by {holder} statement")]);
    let its = "statement=\"update long set n = 'first'  where a = 1\"";
    let of_holder = "blocker_statement=\"begin; update long set n = 'held' where a = 1\"";
    assert!(logged.contains(its) && logged.contains(of_holder), "{logged}");
    assert!(
        logged.contains("blocker_state=\"idle in transaction\"")
            && !logged.contains("holder_statement"),
        "{logged}"
    );
    c[2].send(&query("update long set n = 'second' where a = 2"));
    let chain = format!("blocked by {first}; the chain ends at {holder} ");
    let logged = line(&[
        &format!("{second} still waits for"),
        &chain,
        "'second'",
        &of_holder.replace("blocker", "holder"),
    ]);
    assert!(
        logged.contains("blocker_state=\"active\" blocker_statement=\"update long set n = 'first'"),
        "{logged}"
    );
    let mut asker = c.pop().unwrap();
    assert_eq!(asker.column(&format!("select pg_cancel_backend({})", pids[2])), ["t"]);
    assert_eq!(c[2].until_ready()[0].code(), "57014");
    line(&[
        &format!("{second} gave up waiting for no key update lock on key (2) of table long after "),
        "'second'",
    ]);
    c[0].query("commit");
    c[1].until_ready();
    line(&[&format!("{first} acquired no key update lock on key (1) of table long after "), its]);
    let of_first = lines_with(&waits);
    assert_eq!(of_first.len(), 1, "{of_first:#?}");
}

#[test]
fn each_wait_of_a_transaction_is_logged() {
    let (_server, mut c) = server("each-wait", 1);
    c[0].query("create table each_wait (a int primary key, n int)");
    c[0].query("insert into each_wait values (1, 0), (2, 0)");
    c[0].query("begin; update each_wait set n = 1 where a = 1");
    c[1].query("begin; update each_wait set n = 1 where a = 2");
    // One statement that waits twice, first for one row and then for the other.
    c[2].send(&query("select n from each_wait where a in (1, 2) for update"));
    let waits = format!("process {} still waits for update lock on key", c[2].pid);
    line(&[&format!("{waits} (1)"), &format!("blocked by process {} ", c[0].pid)]);
    line(&[&format!("{waits} (2)"), &format!("blocked by process {} ", c[1].pid)]);
    c[0].query("commit");
    c[1].query("commit");
    c[2].until_ready();
    let acquired = format!("process {} acquired update lock on key", c[2].pid);
    line(&[&format!("{acquired} (1)")]);
    line(&[&format!("{acquired} (2)")]);
}

#[test]
fn short_wait_is_not_logged() {
    let (_server, mut c) = server("short-waits", DAY_MS);
    c[0].query("create table short (a int primary key, n int)");
    c[0].query("insert into short values (1, 0)");
    c[0].query("begin; update short set n = 1");
    c[1].send(&query("update short set n = 2"));
    while c[2].column("select count(*) from clearway.locks") == ["0"] {}
    c[0].query("commit");
    c[1].until_ready();
    assert_eq!(lines_with("table short"), Vec::<String>::new());
}

/// Waits until this number of waits are in progress.
fn in_progress(asker: &mut Raw, waits: usize) {
    let began = Instant::now();
    while asker.column("select count(*) from clearway.locks") != [waits.to_string()] {
        assert!(began.elapsed() < LIMIT, "no {waits} waits");
    }
}

/// Each of three transactions waits for the next one. The last one closes the cycle; it fails
/// because it has done the least.
#[test]
fn deadlock_is_reported_and_logged_with_all_waits() {
    let (_server, mut c) = server("deadlock", DAY_MS);
    let mut asker = c.pop().unwrap();
    let pids: Vec<i32> = c.iter().map(|c| c.pid).collect();
    asker.query("create table dead (a int primary key, n int)");
    asker.query("insert into dead select i, 0 from generate_series(1, 9) i");
    c[0].query("begin; update dead set n = 1 where a in (1, 4, 5)");
    c[1].query("begin; update dead set n = 1 where a in (2, 6)");
    c[2].query("begin; update dead set n = 1 where a = 3");
    c[2].send_all(&[
        parse("", "update dead set n = $1 where a = 1", &[]),
        bind("", "", &["7"], false),
        execute("", 0),
        sync(),
    ]);
    in_progress(&mut asker, 1);
    c[0].send(&query("update dead set n = 2\twhere a = 2"));
    in_progress(&mut asker, 2);
    c[1].send(&query("delete from dead where a = 3"));
    let answer = c[2].until_ready();
    let error = answer.iter().find(|message| message.tag == 'E').unwrap();
    assert_eq!((error.code(), error.primary()), ("40P01".into(), "deadlock detected".into()));
    let waits = |mode: &str, at: usize, key: usize, on: usize| {
        let (waiter, blocker) = (pids[at], pids[on]);
        format!(
            "rocess {waiter} waits for {mode} lock on key ({key}) of table dead; blocked by process {blocker}."
        )
    };
    let circle = [
        waits("no key update", 2, 1, 0),
        waits("no key update", 0, 2, 1),
        waits("update", 1, 3, 2),
    ];
    assert_eq!(error.detail(), format!("P{}", circle.join("\nP")));
    assert_eq!(error.hint(), "Run the transaction again. The server's log has the statements.");
    let logged = line(&[
        " WARN ",
        &format!("deadlock detected: process {} fails: p{}", pids[2], circle.join(" p")),
    ]);
    let [a, b, c_] = [pids[2], pids[0], pids[1]];
    let statements = format!(
        "statements=\"process {a}: update dead set n = $1 where a = 1 | process {b}: update dead set n = 2 where a = 2 | \
         process {c_}: delete from dead where a = 3\""
    );
    assert!(logged.contains(&statements), "{logged}");
    c[2].query("rollback");
    c[1].until_ready();
    c[1].query("rollback");
    c[0].until_ready();
}

#[test]
fn deadlock_with_ddl_is_logged_with_statements() {
    let (_server, mut c) = server("deadlock-ddl", DAY_MS);
    let mut asker = c.pop().unwrap();
    asker.query("create table ddl_one (a int primary key, n int)");
    asker.query("create table ddl_two (a int primary key, n int)");
    asker.query("insert into ddl_one values (1, 0)");
    asker.query("insert into ddl_two values (1, 0)");
    c[0].query("begin; update ddl_one set n = 1; update ddl_one set n = 2");
    c[1].query("begin; update ddl_two set n = 1");
    c[1].send(&query("truncate ddl_one"));
    let began = Instant::now();
    while asker.column("select count(*) from clearway.locks where table_name = 'ddl_one'") == ["0"]
    {
        assert!(began.elapsed() < LIMIT, "no session waits");
    }
    c[0].send(&query("update ddl_two set n = 2"));
    let logged = line(&["deadlock detected", "table ddl_one", "table ddl_two"]);
    for (client, statement) in [(0, "update ddl_two set n = 2"), (1, "truncate ddl_one")] {
        assert!(logged.contains(&format!("process {}: {statement}", c[client].pid)), "{logged}");
    }
    assert!(logged.contains(&format!("process {} fails: ", c[1].pid)), "{logged}");
    assert_eq!(c[1].until_ready()[0].code(), "40P01");
    c[1].query("rollback");
    c[0].until_ready();
}

/// A single statement yields to a block and runs again: its client does not notice.
#[test]
fn deadlock_resolved_by_a_retry_is_logged() {
    listen();
    let server = Fixture::with("deadlock-lone", |config| config.partitions = Some(1));
    let [mut block, mut lone, mut asker] = [(); 3].map(|()| server.connect());
    asker.query("create table lone (a int primary key, n int)");
    asker.query("insert into lone values (1, 0), (2, 0)");
    block.query("begin; update lone set n = 1 where a = 2");
    lone.send(&query("update lone set n = n + 10 where a in (1, 2)"));
    in_progress(&mut asker, 1);
    block.query("update lone set n = 1 where a = 1");
    let again = format!(
        " INFO clearway_coordinator::deadlock::report: deadlock detected: process {} runs",
        lone.pid
    );
    let logged = line(&[
        &again,
        "table lone",
        &format!("process {}: update lone set n = n + 10 where a in (1, 2) | ", lone.pid),
    ]);
    assert!(logged.contains("runs its statement again: "), "{logged}");
    block.query("commit");
    assert_eq!(lone.tags(), "CZI");
    assert_eq!(asker.column("select distinct n from lone"), ["11"]);
}

//! `clearway.sessions` and `clearway.snapshots`; cancelling and terminating other sessions.

use crate::raw::{Fixture, LIMIT, Message, Raw, bind, execute, flush, parse, query, sync};
use std::time::Instant;

/// These columns of the session's row in `clearway.sessions`, as one text value.
fn shown(asker: &mut Raw, pid: i32, columns: &str) -> String {
    asker.column(&shown_by(pid, columns)).join(";")
}

fn shown_by(pid: i32, columns: &str) -> String {
    format!("select concat({columns}) from clearway.sessions where pid = {pid}")
}

/// Repeats the query until it returns this value.
#[track_caller]
fn becomes(asker: &mut Raw, pid: i32, columns: &str, wanted: &str) {
    asker.repeat_until(&shown_by(pid, columns), &[wanted]);
}

/// Repeats the query until the session is no longer listed.
#[track_caller]
fn ends(asker: &mut Raw, pid: i32) {
    asker.repeat_until(&shown_by(pid, "pid"), &[]);
}

const STATE: &str = "state, '|', waits_for, '|', blocked_by, '|', statement";

/// A snapshot is shown with the amount of log written since and of versions kept for it.
#[test]
fn snapshots_are_shown_with_their_sessions() {
    let server = Fixture::new("snapshots");
    let (mut c, mut writer, mut asker) = (server.connect(), server.connect(), server.connect());
    asker.query("create table t (a int primary key, v int)");
    asker.query("insert into t values (1, 0)");
    let shown = |asker: &mut Raw| {
        asker.column(
            "select concat(pid, ' ', log_bytes > 0, ' ', kept_bytes > 0, ' ', file_bytes, ' ', statement) from clearway.snapshots",
        )
    };
    c.query("begin isolation level repeatable read");
    assert_eq!(shown(&mut asker), [""; 0]);
    c.query("select v from t");
    assert_eq!(asker.column("select since <= now() from clearway.snapshots"), ["t"]);
    writer.query("update t set v = 1");
    assert_eq!(shown(&mut asker), [format!("{} t t 0 select v from t", c.pid)]);
    c.query("commit");
    writer.query("update t set v = 2");
    assert_eq!(shown(&mut asker), [""; 0]);
}

#[test]
fn sessions_show_state_and_waits() {
    let server = Fixture::new("sessions");
    let (mut asker, mut holder, mut waiter) =
        (server.connect(), server.connect(), server.connect());
    asker.query("create table t (a int primary key, n int)");
    asker.query("insert into t values (1, 0)");
    becomes(&mut asker, holder.pid, STATE, "idle|||");
    holder.query("set application_name = 'holder'");
    holder.query("begin; update t set n = 1 where a = 1");
    let text = "begin; update t set n = 1 where a = 1";
    becomes(&mut asker, holder.pid, STATE, &format!("idle in transaction|||{text}"));
    assert_eq!(
        shown(
            &mut asker,
            holder.pid,
            "application, ' ', user_name, ' ', client like '127.0.0.1:%'"
        ),
        "holder tester t"
    );
    assert_eq!(
        shown(
            &mut asker,
            holder.pid,
            "transaction > 0, transaction_since <= statement_since, state_since < now()"
        ),
        "ttt"
    );
    // A prepared statement.
    waiter.send_all(&[
        parse("p", "update t set n = $1 where a = 1", &[]),
        bind("", "p", &["5"], false),
        execute("", 0),
        sync(),
    ]);
    let waits = format!("active|lock|{}|update t set n = $1 where a = 1", holder.pid);
    becomes(&mut asker, waiter.pid, STATE, &waits);
    holder.query("commit");
    waiter.until_ready();
    becomes(&mut asker, waiter.pid, STATE, "idle|||update t set n = $1 where a = 1");
    assert_eq!(
        shown(
            &mut asker,
            waiter.pid,
            "transaction, transaction_since, state_since > statement_since"
        ),
        "t"
    );
    becomes(&mut asker, holder.pid, STATE, "idle|||commit");
    holder.query("begin; select 1 / 0");
    becomes(&mut asker, holder.pid, STATE, "idle in transaction (aborted)|||begin; select 1 / 0");
    waiter.send(&query("select pg_sleep(1000)"));
    becomes(&mut asker, waiter.pid, STATE, "active|sleep||select pg_sleep(1000)");
    holder.query("rollback");
    holder.send(&query("copy t from stdin"));
    becomes(&mut asker, holder.pid, STATE, "active|client||copy t from stdin");
    let own = asker.pid;
    assert_eq!(
        asker.column(&format!("select state from clearway.sessions where pid = {own}")),
        ["active"]
    );
}

#[test]
fn sessions_of_all_workers_are_shown_once() {
    let server = Fixture::with("many-sessions", |config| config.workers = 3);
    let mut all: Vec<Raw> = (0..900).map(|_| server.connect()).collect();
    // Leaves unused slots.
    all.drain(10..40);
    let count = "select count(*), count(distinct pid) from clearway.sessions";
    let began = Instant::now();
    let mut asker = server.connect();
    while asker.query(count)[1].values() != [Some(b"871".to_vec()), Some(b"871".to_vec())] {
        assert!(began.elapsed() < LIMIT);
    }
}

/// Starts a server and creates a table with one row.
fn with_a_row(name: &str) -> (Fixture, Raw) {
    let server = Fixture::new(name);
    let mut asker = server.connect();
    asker.query("create table t (a int primary key, n int)");
    asker.query("insert into t values (1, 0)");
    (server, asker)
}

fn warnings(messages: &[Message]) -> Vec<String> {
    messages
        .iter()
        .filter(|m| m.tag == 'N')
        .map(|m| format!("{} {}", m.severity(), m.primary()))
        .collect()
}

fn cancel(asker: &mut Raw, pid: i32) {
    assert_eq!(asker.column(&format!("select pg_cancel_backend({pid})")), ["t"]);
}

/// The answers are those of PostgreSQL 15.
#[test]
fn cancel_and_terminate_answer_as_postgresql() {
    let (server, mut c) = with_a_row("signal-answers");
    let nobody = "WARNING PID 999999 is not a PostgreSQL backend process";
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        let answer = c.query(&format!("select {function}(999999)"));
        assert_eq!(
            (warnings(&answer), &answer[2].values()),
            (vec![nobody.to_owned()], &vec![Some(b"f".to_vec())])
        );
        assert_eq!(c.column(&format!("select {function}(null)")), [""]);
        assert_eq!(c.column(&format!("select {function}('x')")), ["22P02"]);
    }
    assert_eq!(c.column("select pg_cancel_backend(1::bigint)"), ["42883"]);
    let answer = c.query("select pg_terminate_backend(999999, 1000)");
    assert_eq!(
        (warnings(&answer), &answer[2].values()),
        (vec![nobody.to_owned()], &vec![Some(b"f".to_vec())])
    );
    assert_eq!(warnings(&c.query("select pg_terminate_backend(999999, 0) from t")), [nobody]);
    for (arguments, answer) in
        [("null, 5", ""), ("5, null", ""), ("5, -1", "22003"), ("5, 1.5", "42883")]
    {
        assert_eq!(
            c.column(&format!("select pg_terminate_backend({arguments})")),
            [answer],
            "{arguments}"
        );
    }
    assert_eq!(c.column("select pg_terminate_backend(1, 1, 1)"), ["42883"]);
    // For each row; in a read-only transaction; not in EXPLAIN.
    c.query("insert into t values (2, 0)");
    assert_eq!(warnings(&c.query("select pg_cancel_backend(999999) from t")), [nobody, nobody]);
    assert_eq!(
        warnings(&c.query("select 1 from t where a = 1 and pg_cancel_backend(999999)")),
        [nobody]
    );
    assert_eq!(
        warnings(&c.query("begin read only; select pg_cancel_backend(999999); commit")),
        [nobody]
    );
    assert_eq!(warnings(&c.query("explain select pg_cancel_backend(999999)")), [""; 0]);
    // The own session: the statement and its block fail.
    let own = c.query("begin; insert into t values (3, pg_cancel_backend(pg_backend_pid())::int)");
    let error = own.iter().find(|m| m.tag == 'E').unwrap();
    assert_eq!((error.severity(), error.code(), error.primary()), {
        ("ERROR".into(), "57014".into(), "canceling statement due to user request".into())
    });
    assert_eq!(c.column("select 1"), ["25P02"]);
    c.query("rollback");
    assert_eq!(c.column("select count(*) from t"), ["2"]);
    c.send(&query("insert into t values (3, pg_terminate_backend(pg_backend_pid())::int)"));
    is_terminated(&mut c);
    assert_eq!(server.connect().column("select count(*) from t"), ["2"]);
}

/// PostgreSQL warns about each backend id; Clearway counts those after the first 100.
#[test]
fn warnings_about_unknown_pids_are_bounded() {
    let server = Fixture::new("unknown-pids");
    let mut c = server.connect();
    for (last, seen) in [(100, 100), (101, 101), (5000, 101), (1, 1)] {
        let ids = format!("generate_series(1, {last}) as s(i)");
        let answer = c.query(&format!("select pg_cancel_backend(-i) from {ids}"));
        assert_eq!(answer.iter().filter(|m| m.tag == 'D').count(), last);
        let warnings = warnings(&answer);
        assert_eq!(warnings.len(), seen);
        assert_eq!(warnings[0], "WARNING PID -1 is not a PostgreSQL backend process");
        let more = warnings.get(100).map(String::as_str);
        let left = last.saturating_sub(100);
        let expected =
            format!("WARNING further PIDs that are not PostgreSQL backend processes: {left}");
        assert_eq!(more, (last > 100).then_some(expected.as_str()));
    }
}

/// Checks that the session gets the termination error and its connection is closed.
#[track_caller]
fn is_terminated(c: &mut Raw) {
    let mut last = c.next();
    while let Some(next) = c.try_next() {
        last = next;
    }
    assert_eq!((last.severity(), last.code(), last.primary()), {
        (
            "FATAL".into(),
            "57P01".into(),
            "terminating connection due to administrator command".into(),
        )
    });
}

#[test]
fn cancel_ends_statements_and_ignores_idle_sessions() {
    let (server, mut asker) = with_a_row("cancel-backend");
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    // An idle session, in a block or not: no effect now or later.
    cancel(&mut asker, holder.pid);
    becomes(&mut asker, holder.pid, "state", "idle");
    holder.query("begin; update t set n = 1 where a = 1");
    cancel(&mut asker, holder.pid);
    // The query reads the sessions after the cancellation has been handled.
    becomes(&mut asker, holder.pid, "state", "idle in transaction");
    assert_eq!(holder.column("select n from t"), ["1"]);
    // Between the messages of a pipeline: what has been answered stays.
    waiter.send_all(&[parse("", "insert into t values (2, 0)", &[]), bind("", "", &[], false)]);
    waiter.send_all(&[execute("", 0), flush()]);
    let answered: String = (0..3).map(|_| waiter.next().tag).collect();
    assert_eq!(answered, "12C");
    cancel(&mut asker, waiter.pid);
    // As above; without a Sync it counts as active.
    becomes(&mut asker, waiter.pid, "state", "active");
    waiter.send_all(&[parse("", "delete from t where a = 2", &[]), bind("", "", &[], false)]);
    waiter.send_all(&[execute("", 0), sync()]);
    assert_eq!(waiter.tags(), "12CZI");
    // While it waits for a row lock, in a single statement and in a block.
    for (begin, status) in [("", 'I'), ("begin", 'E')] {
        waiter.query(begin);
        waiter.send(&query("update t set n = 2 where a = 1"));
        becomes(&mut asker, waiter.pid, "waits_for, blocked_by", &format!("lock{}", holder.pid));
        cancel(&mut asker, waiter.pid);
        let answer = waiter.until_ready();
        assert_eq!((answer[0].code(), answer[0].severity()), ("57014".into(), "ERROR".into()));
        assert_eq!(char::from(answer[1].body[0]), status);
    }
    waiter.query("rollback");
    holder.query("commit");
    // While it sleeps, and while it sorts rows.
    waiter.send(&query("select pg_sleep(1000)"));
    becomes(&mut asker, waiter.pid, "waits_for", "sleep");
    cancel(&mut asker, waiter.pid);
    assert_eq!(waiter.until_ready()[0].code(), "57014");
    waiter.send(&query(
        "select n from generate_series(1, 20000000) as s(n) order by md5(n::text) limit 1",
    ));
    becomes(&mut asker, waiter.pid, "state", "active");
    cancel(&mut asker, waiter.pid);
    assert_eq!(waiter.until_ready()[0].code(), "57014");
    assert_eq!(waiter.column("select n from t"), ["1"]);
}

#[test]
fn terminate_ends_a_session_in_any_state() {
    let (server, mut asker) = with_a_row("terminate-backend");
    // A statement, and the row of `clearway.sessions` that shows its state.
    let cases = [
        ("", "state", "idle"),
        ("begin; update t set n = 5 where a = 1", "state", "idle in transaction"),
        ("begin; select 1 / 0", "state", "idle in transaction (aborted)"),
        ("begin; select pg_sleep(1000)", "waits_for", "sleep"),
        ("copy t from stdin", "waits_for", "client"),
        // A result that is larger than the socket's buffers, and a client that does not read.
        ("select repeat('x', 10000) from generate_series(1, 20000)", "waits_for", "client"),
    ];
    for (sql, column, seen) in cases {
        let mut victim = server.connect();
        if !sql.is_empty() {
            victim.send(&query(sql));
        }
        becomes(&mut asker, victim.pid, column, seen);
        let pid = victim.pid;
        assert_eq!(
            asker.column(&format!(
                "select pg_terminate_backend(pid) from clearway.sessions where pid = {pid}"
            )),
            ["t"]
        );
        if !sql.contains("repeat") {
            is_terminated(&mut victim);
        }
        // Its locks are released and its changes undone.
        ends(&mut asker, pid);
        assert_eq!(asker.column("update t set n = n + 1 where a = 1 returning n"), ["1"], "{sql}");
        asker.query("update t set n = 0");
    }
    // A session that waits for a lock.
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.query("begin; update t set n = 1 where a = 1");
    waiter.send(&query("begin; insert into t values (2, 2); update t set n = 2 where a = 1"));
    becomes(&mut asker, waiter.pid, "blocked_by", &holder.pid.to_string());
    assert_eq!(asker.column(&format!("select pg_terminate_backend({})", waiter.pid)), ["t"]);
    is_terminated(&mut waiter);
    holder.query("commit");
    assert_eq!(asker.column("select n from t"), ["1"]);
    let mut idle = server.connect();
    let pid = idle.pid;
    assert_eq!(asker.column(&format!("select pg_terminate_backend({pid}, 100000000)")), ["t"]);
    assert_eq!(
        asker.column(&format!("select count(*) from clearway.sessions where pid = {pid}")),
        ["0"]
    );
    is_terminated(&mut idle);
    // PostgreSQL waits in this case.
    let elsewhere = format!(
        "select pg_terminate_backend(pid, 5) from clearway.sessions where pid = {}",
        holder.pid
    );
    assert_eq!(asker.column(&elsewhere), ["0A000"]);
    assert_eq!(holder.column("select 1"), ["1"]);
    let gone = waiter.pid;
    assert_eq!(warnings(&asker.query(&format!("select pg_terminate_backend({gone})"))).len(), 1);
}

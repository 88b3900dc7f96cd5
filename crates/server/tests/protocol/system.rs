//! System views: their contents in both protocols, and resetting the counts of waits.

use crate::raw::{Fixture, LIMIT, bind, describe, execute, message, parse, query, sync};
use clearway_latch::lockstat::Class;
use std::panic::Location;
use std::time::Instant;

/// A class that only this test uses.
static WAITED_FOR: Class = Class::new("test.waited_for");

/// Repeats the check until it succeeds.
#[track_caller]
fn in_time(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "the condition never holds");
    }
}

#[test]
fn contention_is_shown_until_it_is_reset() {
    let server = Fixture::new("contention");
    let mut c = server.connect();
    for _ in 0..3 {
        WAITED_FOR.request();
    }
    WAITED_FOR.waited(Location::caller(), 40_000);
    let sql = "select requests, contended, per_million::int8, mean_wait_us, p99_wait_us > 0, caller like 'server::tests::protocol::system:%' \
               from clearway.contention where name = $1 order by total_wait_us desc limit 1";
    c.send_all(&[parse("waits", sql, &[]), describe('S', "waits"), sync()]);
    assert_eq!(c.tags(), "1tTZI");
    let mut seen = || {
        c.send_all(&[bind("", "waits", &["test.waited_for"], false), execute("", 0), sync()]);
        let row = c.until_ready().into_iter().find(|m| m.tag == 'D')?;
        let texts =
            row.values().into_iter().map(|v| String::from_utf8(v.unwrap_or_default()).unwrap());
        Some(texts.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(seen().unwrap(), "3 1 333333 40 t t");
    WAITED_FOR.request();
    assert_eq!(seen().unwrap(), "4 1 250000 40 t t");
    let mut other = server.connect();
    other.send_all(&[
        parse("", "select clearway.reset_contention()", &[]),
        bind("", "", &[], false),
        describe('P', ""),
    ]);
    other.send_all(&[execute("", 0), sync()]);
    let answer = other.until_ready();
    assert_eq!(answer.iter().map(|m| m.tag).collect::<String>(), "12TDCZ");
    assert_eq!(answer[3].values(), [Some(Vec::new())]);
    assert!(seen().is_none_or(|row| row.starts_with("0 0 0 0 f")), "the counts are still there");
}

#[test]
fn waits_are_shown_with_their_callers() {
    let server = Fixture::new("waits");
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.query("create table t (a int primary key, n int)");
    holder.query("insert into t values (1, 0)");
    let seen = "select name from clearway.contention where contended > 0 and total_wait_us > 0 \
                and (name = 'lock.key_no_key_update' and caller like 'partition::exec::modify:%' \
                or name = 'log.durable' and caller like 'server::session::run:%') order by name";
    // The waiter may come too late, and another test may reset the counts.
    in_time(|| {
        holder.query("begin; update t set n = n + 1 where a = 1");
        waiter.send_all(&[query("update t set n = n * 2 where a = 1")]);
        holder.query("select pg_sleep(0.002); commit");
        waiter.until_ready();
        let mut names = holder.column(seen);
        names.dedup();
        names == ["lock.key_no_key_update", "log.durable"]
    });
}

#[test]
fn activity_counts_what_sessions_do() {
    let server = Fixture::new("activity");
    let mut c = server.connect();
    let mut asker = server.connect();
    let mut figures = |column: &str| -> i64 {
        let sql = format!("select {column} from clearway.activity");
        asker.column(&sql)[0].parse().unwrap()
    };
    assert_eq!(figures("sessions"), 2);
    c.query("create table t (a int primary key)");
    let before: Vec<i64> =
        ["committed", "aborted", "errors", "statements"].map(&mut figures).to_vec();
    // Committed: two single statements, a block, two statements in one message. Aborted: a single
    // statement, a block by ROLLBACK, and one by an error.
    c.query("insert into t values (1)");
    c.query("select * from t");
    c.query("begin; insert into t values (2); commit");
    c.query("insert into t values (3); insert into t values (4)");
    c.query("insert into t values (1)");
    c.query("begin; insert into t values (5); rollback");
    c.query("insert into t values (6); select 1 / 0");
    c.query("nonsense");
    let after: Vec<i64> =
        ["committed", "aborted", "errors", "statements"].map(&mut figures).to_vec();
    let grown: Vec<i64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    // The observer adds a transaction and a statement per figure.
    assert_eq!(grown, [4 + 4, 3, 3, 13 + 4]);
    let (received, sent) = (figures("received_bytes"), figures("sent_bytes"));
    c.query(&format!("select '{}'", "x".repeat(10_000)));
    // Traffic is counted after it was sent and before the session's next statement.
    c.query("select 1");
    assert!(figures("sent_bytes") - sent >= 10_000);
    assert!(figures("received_bytes") - received >= 10_000);
    drop(c);
    in_time(|| figures("sessions") == 1);
}

/// The harness relies on this order: a server that it has started has no session.
#[test]
fn session_is_not_counted_once_its_connection_is_closed() {
    let server = Fixture::new("closed");
    let mut asker = server.connect();
    for _ in 0..100 {
        let mut c = server.connect();
        c.send(&message(b'X', &[]));
        assert_eq!(c.try_next(), None);
        assert_eq!(asker.column("select sessions from clearway.activity"), ["1"]);
    }
}

#[test]
fn configured_latch_is_the_chosen_one() {
    let server = Fixture::with("latch-settings", |config| {
        config.latch = "test-cas".parse().unwrap();
        config.latch_spins = "77".parse().unwrap();
    });
    let mut c = server.connect();
    assert_eq!(c.column("select name from clearway.latch_calibration where chosen"), ["test-cas"]);
    assert_eq!(c.column("select distinct spin_limit from clearway.latch_calibration"), ["77"]);
}

#[test]
fn writing_to_views_is_refused_with_a_hint() {
    let server = Fixture::new("views");
    let mut c = server.connect();
    for (sql, code, hint) in [
        (
            "delete from clearway.contention",
            "42809",
            "It can only be read: SELECT * FROM clearway.contention.",
        ),
        (
            "select * from clearway.waits",
            "42P01",
            "The views of schema clearway are activity, cascades, contention, hot_rows, latch_calibration, latency, locks, partitions, plans, \
             sessions, snapshots.",
        ),
        (
            "create table clearway.t (a int)",
            "42501",
            "Schema clearway is for the server's own views. Use a name without a schema.",
        ),
        (
            "select 1 + clearway.reset_contention()",
            "0A000",
            "Call it alone: SELECT clearway.reset_contention().",
        ),
    ] {
        let answer = c.query(sql);
        assert_eq!((answer[0].code().as_str(), answer[0].hint().as_str()), (code, hint), "{sql}");
    }
}

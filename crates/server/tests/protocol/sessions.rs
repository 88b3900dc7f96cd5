//! Who is connected and what each session does; ending what others do.

use crate::raw::{Fixture, LIMIT, Raw, bind, execute, parse, query, sync};
use std::time::Instant;

/// What `clearway.sessions` says of the session with this backend id: these columns of it, in one text.
fn shown(asker: &mut Raw, pid: i32, columns: &str) -> String {
    asker.column(&format!("select concat({columns}) from clearway.sessions where pid = {pid}")).join(";")
}

/// Asks until it says so.
#[track_caller]
fn becomes(asker: &mut Raw, pid: i32, columns: &str, wanted: &str) {
    let began = Instant::now();
    loop {
        let found = shown(asker, pid, columns);
        if found == wanted {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{found}");
    }
}

const STATE: &str = "state, '|', waits_for, '|', blocked_by, '|', statement";

#[test]
fn sessions_show_what_each_client_does_and_waits_for() {
    let server = Fixture::new("sessions");
    let (mut asker, mut holder, mut waiter) = (server.connect(), server.connect(), server.connect());
    asker.query("create table t (a int primary key, n int)");
    asker.query("insert into t values (1, 0)");
    becomes(&mut asker, holder.pid, STATE, "idle|||");
    holder.query("set application_name = 'holder'");
    holder.query("begin; update t set n = 1 where a = 1");
    let text = "begin; update t set n = 1 where a = 1";
    becomes(&mut asker, holder.pid, STATE, &format!("idle in transaction|||{text}"));
    assert_eq!(
        shown(&mut asker, holder.pid, "application, ' ', user_name, ' ', client like '127.0.0.1:%'"),
        "holder tester t"
    );
    assert_eq!(
        shown(&mut asker, holder.pid, "transaction > 0, transaction_since <= statement_since, state_since < now()"),
        "ttt"
    );
    // By a prepared statement, of a block.
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
    assert_eq!(shown(&mut asker, waiter.pid, "transaction, transaction_since, state_since > statement_since"), "t");
    becomes(&mut asker, holder.pid, STATE, "idle|||commit");
    holder.query("begin; select 1 / 0");
    becomes(&mut asker, holder.pid, STATE, "idle in transaction (aborted)|||begin; select 1 / 0");
    waiter.send(&query("select pg_sleep(1000)"));
    becomes(&mut asker, waiter.pid, STATE, "active|sleep||select pg_sleep(1000)");
    holder.query("rollback");
    holder.send(&query("copy t from stdin"));
    becomes(&mut asker, holder.pid, STATE, "active|client||copy t from stdin");
    let own = asker.pid;
    assert_eq!(asker.column(&format!("select state from clearway.sessions where pid = {own}")), ["active"]);
}

#[test]
fn sessions_of_all_workers_are_shown_once() {
    let server = Fixture::with("many-sessions", |config| config.workers = 3);
    let mut all: Vec<Raw> = (0..900).map(|_| server.connect()).collect();
    // Places that nobody has any more.
    all.drain(10..40);
    let count = "select count(*), count(distinct pid) from clearway.sessions";
    let began = Instant::now();
    let mut asker = server.connect();
    while asker.query(count)[1].values() != [Some(b"871".to_vec()), Some(b"871".to_vec())] {
        assert!(began.elapsed() < LIMIT);
    }
}

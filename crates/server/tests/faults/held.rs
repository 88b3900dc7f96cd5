//! Replies that show data that is not durable yet are held until it is.

use crate::place::LIMIT;
use crate::world::{connect, start};
use clearway_env::OsClock;
use clearway_harness::client::{Answer, PgClient, QueryError};
use clearway_server::Server;
use clearway_testkit::{MemDisk, OpKind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Blocks syncs of the log until it is dropped.
struct ClosedGate {
    disk: MemDisk,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl ClosedGate {
    fn new(disk: &MemDisk) -> Self {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let gate = open.clone();
        disk.set_hook(Some(Arc::new(move |operation| {
            if operation.kind == OpKind::Sync && operation.path.starts_with(Path::new("/data/wal"))
            {
                drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
            }
        })));
        Self { disk: disk.clone(), open }
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        self.disk.set_hook(None);
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

/// A statement whose reply must be held: the statements that its session runs first, the statement,
/// and its expected tag or SQLSTATE.
struct Probe {
    before: &'static [&'static str],
    sql: &'static str,
    extended: bool,
    expected: &'static str,
}

const fn probe(
    before: &'static [&'static str],
    sql: &'static str,
    expected: &'static str,
) -> Probe {
    Probe { before, sql, extended: false, expected }
}

const fn extended(sql: &'static str, expected: &'static str) -> Probe {
    Probe { before: &[], sql, extended: true, expected }
}

type Reply = (usize, Result<Answer, QueryError>);

/// Sends the statement; its reply goes to `replies`.
fn ask(server: &Server, number: usize, probe: &Probe, replies: &Sender<Reply>) {
    let mut client: PgClient = connect(server);
    for sql in probe.before {
        // Replied to at once, even if it fails.
        drop(client.query(sql));
    }
    let sent =
        if probe.extended { client.send_extended(probe.sql) } else { client.send(probe.sql) };
    sent.unwrap();
    let replies = replies.clone();
    std::thread::spawn(move || replies.send((number, client.receive())));
}

/// Waits until this number of sessions have their replies held.
fn wait_for_held(
    observer: &mut PgClient,
    sessions: usize,
    replies: &Receiver<Reply>,
    probes: &[Probe],
) {
    let began = Instant::now();
    loop {
        match replies.try_recv() {
            Ok((number, answer)) => {
                panic!("{} got a reply before the log was synced: {answer:?}", probes[number].sql)
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => panic!("no session is left"),
        }
        if observer.number("select commits_waiting from clearway.activity") == Ok(sessions as i64) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "not all of {sessions} replies are held");
        std::thread::yield_now();
    }
}

/// Runs the probes one after the other while the log is not synced.
fn all_are_held(probes: &[Probe]) {
    let disk = MemDisk::new();
    let server = start(&disk, Arc::new(OsClock));
    let mut observer = connect(&server);
    observer.query("create table t (a int primary key, b text)").unwrap();
    observer.query("insert into t values (1, 'one'), (2, 'two')").unwrap();
    // In a block the observer's queries get replies at once, whatever they read.
    observer.query("begin").unwrap();
    let gate = ClosedGate::new(&disk);
    let (sender, replies) = channel();
    for (number, probe) in probes.iter().enumerate() {
        ask(&server, number, probe, &sender);
        wait_for_held(&mut observer, number + 1, &replies, probes);
    }
    drop(gate);
    for _ in probes {
        let (number, answer) = replies.recv().unwrap();
        let probe = &probes[number];
        let outcome = match answer {
            Ok(answer) => answer.tag,
            Err(QueryError::Sql { code, .. }) => code,
            Err(lost) => panic!("{}: {lost}", probe.sql),
        };
        assert_eq!(outcome, probe.expected, "{}", probe.sql);
    }
    server.stop().unwrap();
}

#[test]
fn replies_that_show_rows_wait_for_the_log() {
    all_are_held(&[
        probe(&[], "insert into t values (10, 'ten')", "INSERT 0 1"),
        probe(&[], "delete from t where a = 1", "DELETE 1"),
        // These show what the statements above have written.
        probe(&[], "insert into t values (10, 'again')", "23505"),
        extended("insert into t values (10, 'again')", "23505"),
        probe(&[], "insert into t select i, 'many' from generate_series(10, 30) i", "23505"),
        probe(&[], "select * from t where a = 10", "SELECT 1"),
        probe(&[], "select * from t where a = 1", "SELECT 0"),
        extended("select * from t where a = 1", "SELECT 0"),
        probe(&[], "select count(*) from t", "SELECT 1"),
        probe(&[], "update t set b = 'x' where a = 1", "UPDATE 0"),
        probe(&[], "delete from t where a = 1", "DELETE 0"),
        probe(&[], "select * from t where a = 10; select 1 / 0", "22012"),
        probe(&["begin", "select * from t where a = 10"], "commit", "COMMIT"),
        probe(&["begin", "select * from t where a = 10"], "rollback", "ROLLBACK"),
        probe(&["begin", "select * from t where a = 1"], "rollback", "ROLLBACK"),
        probe(&["begin", "insert into t values (10, 'again')"], "commit", "ROLLBACK"),
        probe(&["begin", "insert into t values (10, 'again')"], "rollback", "ROLLBACK"),
    ]);
}

#[test]
fn replies_that_show_the_catalog_wait_for_the_log() {
    all_are_held(&[
        probe(&[], "create table u (a int primary key)", "CREATE TABLE"),
        probe(&[], "select nothing from u", "42703"),
        extended("select nothing from u", "42703"),
        probe(&[], "create table u (b int)", "42P07"),
        probe(&[], "select * from u", "SELECT 0"),
        probe(&["begin", "select nothing from u"], "rollback", "ROLLBACK"),
        probe(&[], "prepare p as select * from u", "PREPARE"),
    ]);
}

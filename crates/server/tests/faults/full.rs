//! A full file system under load: what writes is refused with 53100, what reads goes on, writing
//! goes on when there is room again, and nothing that was acknowledged is missing, whenever the
//! server ends.

use crate::place::{LIMIT, Place, binary};
use clearway_harness::Endpoint;
use clearway_harness::client::{Client, QueryError};
use clearway_harness::server::{Kind, Server};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

const WRITERS: u64 = 4;
/// Rows of a transaction that has several.
const ROWS: u64 = 40;

fn start(place: &Place) -> Server {
    let args =
        ["--partitions", "2", "--workers", "2", "--buffer-pool", "2MiB", "--log-segment", "1MiB"];
    let more = ["--log-buffer", "1MiB", "--checkpoint-interval-s", "1", "--log-filter", "info"];
    let args = args.iter().chain(&more).map(|a| (*a).to_owned()).collect();
    Kind::Clearway { binary: binary().to_owned(), args }.start(&place.data()).unwrap()
}

fn connect(server: &Server) -> Client {
    Client::connect(server.endpoint(), LIMIT).unwrap()
}

/// Takes space on a file system until there is so much left.
fn ballast(path: &Path, bytes: u64) {
    let file = std::fs::File::create(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; bytes as usize], 0).unwrap();
}

/// What the writers have been told.
#[derive(Default)]
struct Told {
    acknowledged: Mutex<BTreeSet<u64>>,
    refused: [AtomicU64; WRITERS as usize],
    written: [AtomicU64; WRITERS as usize],
    stop: AtomicBool,
}

impl Told {
    /// Waits until each writer has been refused, or has written, so many times more.
    fn wait(&self, what: &str, counts: &[AtomicU64], more: u64) {
        let from: Vec<u64> = counts.iter().map(|c| c.load(SeqCst)).collect();
        let began = Instant::now();
        while counts.iter().zip(&from).any(|(c, from)| c.load(SeqCst) < from + more) {
            assert!(
                began.elapsed() < LIMIT,
                "not every writer is {what}: {counts:?} after {from:?}"
            );
            std::thread::yield_now();
        }
    }
}

/// Inserts rows until told to stop: one at a time, or in transactions. Ends when the server is
/// gone.
fn write(endpoint: &Endpoint, told: &Told, writer: u64) {
    let Ok(mut client) = Client::connect(endpoint, LIMIT) else { return };
    let at = writer as usize;
    for round in 0.. {
        if told.stop.load(SeqCst) {
            return;
        }
        let first = (writer << 32) + round * ROWS;
        let ids = if writer.is_multiple_of(2) { first..first + 1 } else { first..first + ROWS };
        let inserts =
            ids.clone().map(|id| format!("insert into t values ({id}, repeat('x', 700))"));
        let mut statements: Vec<String> = inserts.collect();
        if statements.len() > 1 {
            statements.insert(0, "begin".into());
            statements.push("commit".into());
        }
        match statements.iter().try_for_each(|s| client.query(s).map(drop)) {
            Ok(()) => {
                told.acknowledged.lock().unwrap().extend(ids);
                told.written[at].fetch_add(1, SeqCst);
            }
            Err(QueryError::Sql { code, message, .. }) => {
                // A scan's lock and a transaction's may deadlock; that is no fault of the disk.
                if code != "40P01" {
                    assert_eq!(code, "53100", "{message}");
                    told.refused[at].fetch_add(1, SeqCst);
                }
                if statements.len() > 1
                    && matches!(client.query("rollback"), Err(QueryError::Lost(_)))
                {
                    return;
                }
            }
            Err(QueryError::Lost(_)) => return,
        }
    }
}

fn ids(client: &mut Client) -> BTreeSet<u64> {
    let rows = client.query("select id from t").unwrap().rows;
    rows.into_iter().map(|row| row[0].clone().unwrap().parse().unwrap()).collect()
}

/// All that was acknowledged is there, and of each transaction all or nothing.
fn check(server: &Server, told: &Told) {
    // Before the look: writers may be told of more meanwhile.
    let acknowledged = told.acknowledged.lock().unwrap().clone();
    let found = ids(&mut connect(server));
    let missing: Vec<_> = acknowledged.difference(&found).take(5).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?} and maybe more");
    for id in found.iter().filter(|id| (*id >> 32) % 2 == 1) {
        let first = id - (id & 0xffff_ffff) % ROWS;
        assert!(
            (first..first + ROWS).all(|id| found.contains(&id)),
            "half a transaction at {first}"
        );
    }
}

/// Fills the file system under load; in the full state `then` ends the server, or frees room. The
/// place comes back with what was told.
fn fill(name: &str, then: impl FnOnce(&Place, Server, &Told) -> Server) {
    let Some(place) = Place::mount(name, "size=24m") else { return };
    ballast(&place.path().join("ballast"), 10 << 20);
    let server = start(&place);
    connect(&server).query("create table t (id bigint primary key, filler text)").unwrap();
    let told = Told::default();
    let endpoint = server.endpoint().clone();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (told, endpoint) = (&told, &endpoint);
            scope.spawn(move || write(endpoint, told, writer));
        }
        told.wait("refused", &told.refused, 3);
        let server = then(&place, server, &told);
        told.stop.store(true, SeqCst);
        check(&server, &told);
        let log = server.stop().unwrap();
        // A statement was refused; no page failed.
        assert!(!log.contains("could not be read"), "{log}");
    });
    let server = start(&place);
    check(&server, &told);
    connect(&server).query("insert into t values (-1, 'after')").unwrap();
    server.stop().unwrap();
}

#[test]
fn reads_go_on_and_writes_resume_when_there_is_room() {
    fill("full-resume", |place, server, told| {
        let mut reader = connect(&server);
        for _ in 0..20 {
            let acknowledged = told.acknowledged.lock().unwrap().len();
            assert!(ids(&mut reader).len() >= acknowledged);
        }
        told.wait("refused again", &told.refused, 3);
        std::fs::remove_file(place.path().join("ballast")).unwrap();
        told.wait("writing again", &told.written, 3);
        server
    });
}

#[test]
fn a_crash_while_it_is_full_loses_nothing() {
    fill("full-crash", |place, server, told| {
        server.kill();
        // There is still no room; the start needs none, and reading goes on.
        let server = start(place);
        check(&server, told);
        let mut client = connect(&server);
        let refused = (0..100_000u64).find_map(|i| {
            let statement =
                format!("insert into t values ({}, repeat('x', 700))", (8u64 << 32) + i);
            client.query(&statement).err()
        });
        assert!(
            matches!(&refused, Some(QueryError::Sql { code, .. }) if code == "53100"),
            "{refused:?}"
        );
        check(&server, told);
        std::fs::remove_file(place.path().join("ballast")).unwrap();
        server
    });
}

/// Runs statements until one is refused for lack of space; what it was told.
fn until_refused(client: &mut Client, mut statement: impl FnMut(u64) -> String) -> String {
    for i in 0..200_000 {
        match client.query(&statement(i)) {
            Ok(_) => {}
            Err(QueryError::Sql { code, message, .. }) if code == "53100" => return message,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it is never full");
}

fn update(i: u64) -> String {
    format!("update t set filler = repeat('{}', 700) where id = {}", i / 100 % 10, i % 100)
}

/// Keeps trying until the statement succeeds.
fn until_written(client: &mut Client, statement: &str) {
    let began = Instant::now();
    while let Err(error) = client.query(statement) {
        assert!(matches!(&error, QueryError::Sql { code, .. } if code == "53100"), "{error}");
        assert!(began.elapsed() < LIMIT, "it stays full: {error}");
    }
}

/// The log is full because a transaction needs all of it: writing goes on by itself when that has
/// ended.
#[test]
fn a_log_that_a_transaction_has_filled_empties_when_it_ends() {
    let Some(place) = Place::mount("full-log", "size=12m") else { return };
    let server = start(&place);
    let (mut idle, mut busy) = (connect(&server), connect(&server));
    busy.query("create table t (id bigint primary key, filler text)").unwrap();
    busy.query("insert into t select i, repeat('x', 700) from generate_series(0, 99) i").unwrap();
    idle.query("begin; insert into t values (1000, 'idle')").unwrap();
    let message = until_refused(&mut busy, update);
    assert!(
        message.starts_with("cannot write to the log: ") && message.contains("No space left"),
        "{message}"
    );
    assert_eq!(busy.number("select count(*) from t where id < 1000").unwrap(), 100);
    // Whoever has written may still commit or go back.
    idle.query("commit").unwrap();
    until_written(&mut busy, &update(0));
    // The same by one transaction's own changes, which are undone in room that was kept for that.
    busy.query("begin").unwrap();
    until_refused(&mut busy, |i| format!("insert into t values ({}, repeat('y', 700))", 2000 + i));
    busy.query("rollback").unwrap();
    until_written(&mut busy, "update t set filler = '' where id < 100");
    assert_eq!(busy.number("select count(*) from t").unwrap(), 101);
    let log = server.stop().unwrap();
    assert!(
        log.contains("the log is full") && log.contains("there is room for the log again"),
        "{log}"
    );
    let server = start(&place);
    assert_eq!(connect(&server).number("select count(*) from t where filler = ''").unwrap(), 100);
    server.stop().unwrap();
}

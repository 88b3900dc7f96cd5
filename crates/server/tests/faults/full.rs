//! A full file system under load: writes fail with 53100, reads continue, writes resume when there
//! is space again, and no acknowledged row is lost, whenever the server ends.

use crate::place::{LIMIT, Place, binary};
use clearway_harness::Endpoint;
use clearway_harness::client::{PgClient, QueryError};
use clearway_harness::server::{Kind, PrivateServer};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
// Relaxed throughout: counters and flags. Joins, mutexes and sockets order everything else.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const WRITERS: u64 = 4;
/// Rows per transaction, for writers that use transactions.
const ROWS: u64 = 40;

fn start(place: &Place) -> PrivateServer {
    let args =
        ["--partitions", "2", "--workers", "2", "--buffer-pool", "2MiB", "--log-segment", "1MiB"];
    let more = ["--log-buffer", "1MiB", "--checkpoint-interval-s", "1", "--log-filter", "info"];
    let args = args.iter().chain(&more).map(|a| (*a).to_owned()).collect();
    Kind::Clearway { binary: binary().to_owned(), args }.start(&place.data()).unwrap()
}

fn connect(server: &PrivateServer) -> PgClient {
    PgClient::connect(server.endpoint(), LIMIT).unwrap()
}

/// Fills `bytes` of a file system.
fn ballast(path: &Path, bytes: u64) {
    let file = std::fs::File::create(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; bytes as usize], 0).unwrap();
}

/// What the writers have observed.
#[derive(Default)]
struct Observed {
    acknowledged: Mutex<BTreeSet<u64>>,
    refused: [AtomicU64; WRITERS as usize],
    written: [AtomicU64; WRITERS as usize],
    stop: AtomicBool,
}

impl Observed {
    /// Waits until each counter has increased by `more`.
    fn wait(&self, what: &str, counts: &[AtomicU64], more: u64) {
        let from: Vec<u64> = counts.iter().map(|c| c.load(Relaxed)).collect();
        let began = Instant::now();
        while counts.iter().zip(&from).any(|(c, from)| c.load(Relaxed) < from + more) {
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
fn write(endpoint: &Endpoint, observed: &Observed, writer: u64) {
    let Ok(mut client) = PgClient::connect(endpoint, LIMIT) else { return };
    let at = writer as usize;
    for round in 0.. {
        if observed.stop.load(Relaxed) {
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
                observed.acknowledged.lock().unwrap().extend(ids);
                observed.written[at].fetch_add(1, Relaxed);
            }
            Err(QueryError::Sql { code, message, .. }) => {
                // A scan's lock and a transaction's may deadlock, which is unrelated to the disk.
                if code != "40P01" {
                    assert_eq!(code, "53100", "{message}");
                    observed.refused[at].fetch_add(1, Relaxed);
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

fn ids(client: &mut PgClient) -> BTreeSet<u64> {
    let rows = client.query("select id from t").unwrap().rows;
    rows.into_iter().map(|row| row[0].clone().unwrap().parse().unwrap()).collect()
}

/// Checks that all acknowledged rows exist, and of each transaction all rows or none.
fn check(server: &PrivateServer, observed: &Observed) {
    // Copied first, because writers may continue during the query.
    let acknowledged = observed.acknowledged.lock().unwrap().clone();
    let found = ids(&mut connect(server));
    let missing: Vec<_> = acknowledged.difference(&found).take(5).copied().collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?} and maybe more");
    for id in found.iter().filter(|id| (*id >> 32) % 2 == 1) {
        let first = id - (id & 0xffff_ffff) % ROWS;
        assert!(
            (first..first + ROWS).all(|id| found.contains(&id)),
            "half a transaction at {first}"
        );
    }
}

/// Fills the file system under load. While it is full, `then` ends the server or frees space.
/// Checks the rows before and after a restart.
fn fill(name: &str, then: impl FnOnce(&Place, PrivateServer, &Observed) -> PrivateServer) {
    let Some(place) = Place::mount(name, "size=24m") else { return };
    ballast(&place.path().join("ballast"), 10 << 20);
    let server = start(&place);
    connect(&server).query("create table t (id bigint primary key, filler text)").unwrap();
    let observed = Observed::default();
    let endpoint = server.endpoint().clone();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (observed, endpoint) = (&observed, &endpoint);
            scope.spawn(move || write(endpoint, observed, writer));
        }
        observed.wait("refused", &observed.refused, 3);
        let server = then(&place, server, &observed);
        observed.stop.store(true, Relaxed);
        check(&server, &observed);
        let log = server.stop().unwrap();
        // Only statements failed, no page access.
        assert!(!log.contains("could not be read"), "{log}");
    });
    let server = start(&place);
    check(&server, &observed);
    connect(&server).query("insert into t values (-1, 'after')").unwrap();
    server.stop().unwrap();
}

#[test]
fn reads_continue_and_writes_resume_when_there_is_space() {
    fill("full-resume", |place, server, observed| {
        let mut reader = connect(&server);
        for _ in 0..20 {
            let acknowledged = observed.acknowledged.lock().unwrap().len();
            assert!(ids(&mut reader).len() >= acknowledged);
        }
        observed.wait("refused again", &observed.refused, 3);
        std::fs::remove_file(place.path().join("ballast")).unwrap();
        observed.wait("writing again", &observed.written, 3);
        server
    });
}

#[test]
fn crash_on_a_full_file_system_loses_nothing() {
    fill("full-crash", |place, server, observed| {
        server.kill();
        // There is still no space: the start needs none, and reads work.
        let server = start(place);
        check(&server, observed);
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
        check(&server, observed);
        std::fs::remove_file(place.path().join("ballast")).unwrap();
        server
    });
}

/// Runs statements until one fails for lack of space; returns the error's message.
fn until_refused(client: &mut PgClient, mut statement: impl FnMut(u64) -> String) -> String {
    for i in 0..200_000 {
        match client.query(&statement(i)) {
            Ok(_) => {}
            Err(QueryError::Sql { code, message, .. }) if code == "53100" => return message,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the file system never fills up");
}

fn update(i: u64) -> String {
    format!("update t set filler = repeat('{}', 700) where id = {}", i / 100 % 10, i % 100)
}

/// Keeps trying until the statement succeeds.
fn until_written(client: &mut PgClient, statement: &str) {
    let began = Instant::now();
    while let Err(error) = client.query(statement) {
        assert!(matches!(&error, QueryError::Sql { code, .. } if code == "53100"), "{error}");
        assert!(began.elapsed() < LIMIT, "the file system stays full: {error}");
    }
}

/// A transaction keeps the whole log in use: writes resume without help when it has ended.
#[test]
fn log_filled_by_a_transaction_empties_when_it_ends() {
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
    // Transactions that have written can still commit or roll back.
    idle.query("commit").unwrap();
    until_written(&mut busy, &update(0));
    // The same for one transaction's own changes: undoing them uses space that was reserved.
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

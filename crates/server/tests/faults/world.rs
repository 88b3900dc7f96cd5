//! Faults that need a disk or clock of the test's own: failing syncs, a clock that is set back.

use crate::place::LIMIT;
use clearway_env::{Clock, Disk, OsClock};
use clearway_harness::Endpoint;
use clearway_harness::client::{PgClient, QueryError};
use clearway_server::exit::{ExitCode, ExitFailure};
use clearway_server::{Config, Server, World};
use clearway_testkit::{
    FOR_EVER, Fault, FaultPlan, FaultZone, ManualClock, MemDisk, OpKind, Role, When,
};
use std::sync::Arc;
// Relaxed throughout: counters and flags. Joins, mutexes and sockets order everything else.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(crate) fn start(disk: &MemDisk, clock: Arc<dyn Clock>) -> Server {
    try_start(disk, clock).unwrap()
}

fn try_start(disk: &MemDisk, clock: Arc<dyn Clock>) -> Result<Server, ExitFailure> {
    start_on(Arc::new(disk.clone()), clock)
}

pub(crate) fn start_on(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Server, ExitFailure> {
    let mut config = Config::new("/data");
    config.listen = "127.0.0.1:0".parse().unwrap();
    (config.partitions, config.workers, config.buffer_pool) = (Some(2), 2, 8 << 20);
    (config.log_segment, config.log_buffer) = (1 << 20, 1 << 20);
    // No checkpoint comes by itself while a test is busy.
    config.checkpoint_interval_s = 86_400;
    Server::start_in(World { disk, clock }, config)
}

fn endpoint(server: &Server) -> Endpoint {
    Endpoint::loopback(server.address().port())
}

pub(crate) fn connect(server: &Server) -> PgClient {
    PgClient::connect(&endpoint(server), LIMIT).unwrap()
}

/// One sync of the log fails and later ones would succeed: nothing after it is ever acknowledged.
#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    const CLIENTS: u64 = 6;
    let disk = MemDisk::new();
    let server = start(&disk, Arc::new(OsClock));
    connect(&server).query("create table t (a bigint primary key)").unwrap();
    let acknowledged: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let failed = AtomicBool::new(false);
    let (reason, after) = std::thread::scope(|scope| {
        for (client, acknowledged) in acknowledged.iter().enumerate() {
            let (endpoint, failed) = (endpoint(&server), &failed);
            scope.spawn(move || {
                let mut session = PgClient::connect(&endpoint, LIMIT).unwrap();
                for i in 0.. {
                    let was_failed = failed.load(Relaxed);
                    match session
                        .query(&format!("insert into t values ({})", ((client as u64) << 32) + i))
                    {
                        Ok(_) => assert!(!was_failed, "acknowledged after the failure"),
                        Err(QueryError::Sql { code, message, .. }) => {
                            assert_eq!(code, "58030", "{message}");
                            return;
                        }
                        Err(QueryError::Lost(_)) => return,
                    }
                    acknowledged.store(i + 1, Relaxed);
                }
            });
        }
        let began = Instant::now();
        while acknowledged.iter().any(|a| a.load(Relaxed) < 20) {
            assert!(began.elapsed() < LIMIT);
            std::thread::yield_now();
        }
        let zone = FaultZone::under(Role::Log, "log", "/data/wal").fault(
            Fault::FailedSync,
            When::After(0),
            1,
        );
        disk.set_faults(Some(Arc::new(FaultPlan::new(3, Duration::ZERO, vec![zone]))));
        let reason = loop {
            if let Some(reason) = server.failed() {
                break reason;
            }
            assert!(began.elapsed() < LIMIT, "the failure is not reported");
            std::thread::yield_now();
        };
        failed.store(true, Relaxed);
        // The same for a new client: reads work until the process ends, writes do not.
        let refused = connect(&server).query("insert into t values (-1)");
        assert!(
            matches!(&refused, Err(QueryError::Sql { code, .. }) if code == "58030"),
            "{refused:?}"
        );
        // What is on disk when the process ends.
        let after = disk.crash(5);
        assert!(server.stop().is_err());
        (reason, after)
    });
    assert!(reason.starts_with("the log cannot be written: "), "{reason}");
    let server = start(&after, Arc::new(OsClock));
    let mut session = connect(&server);
    for (client, acknowledged) in acknowledged.iter().enumerate() {
        let (from, to) = ((client as u64) << 32, acknowledged.load(Relaxed));
        let count = format!("select count(*) from t where a >= {from} and a < {}", from + to);
        assert_eq!(session.number(&count).unwrap(), to as i64, "of client {client}");
    }
    server.stop().unwrap();
}

/// A failed read of a page is reported to the statements that need it; others are not affected.
#[test]
fn failed_read_is_58030_and_affects_nothing_else() {
    let disk = MemDisk::new();
    let server = start(&disk, Arc::new(OsClock));
    let mut session = connect(&server);
    session.query("create table t (a int primary key, b text)").unwrap();
    session.query("create table u (a int primary key)").unwrap();
    session.query("insert into u select i from generate_series(1, 10) i").unwrap();
    session
        .query("insert into t select i, repeat('x', 1000) from generate_series(1, 3000) i")
        .unwrap();
    server.stop().unwrap();
    let server = start(&disk, Arc::new(OsClock));
    let mut session = connect(&server);
    assert_eq!(session.number("select count(*) from u").unwrap(), 10);
    let zone = FaultZone::under(Role::Pages, "pages", "/data/data/p0001.data").fault(
        Fault::FailedRead,
        When::After(0),
        FOR_EVER,
    );
    disk.set_faults(Some(Arc::new(FaultPlan::new(3, Duration::ZERO, vec![zone]))));
    match session.query("select count(*) from t") {
        Err(QueryError::Sql { code, message, .. }) => {
            assert_eq!(code, "58030");
            assert!(
                message.contains("partition 1 page ") && message.contains("p0001.data"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(session.number("select count(*) from u").unwrap(), 10);
    session.query("insert into u values (11)").unwrap();
    disk.set_faults(None);
    assert_eq!(session.number("select count(*) from t").unwrap(), 3000);
    assert_eq!(server.failed(), None);
    server.stop().unwrap();
}

/// The wall clock only provides now(); it orders nothing.
#[test]
fn clock_set_back_changes_only_now() {
    let disk = MemDisk::new();
    let hour = Duration::from_hours(1);
    let clock = Arc::new(ManualClock::new(1_000 * hour.as_micros() as i64));
    let server = start(&disk, clock.clone());
    let mut session = connect(&server);
    session.query("create table t (a int primary key, at timestamptz)").unwrap();
    session.query("insert into t values (1, now())").unwrap();
    session.query("begin").unwrap();
    let before = session.query("select now()").unwrap().rows;
    clock.set_wall_micros(900 * hour.as_micros() as i64);
    // now() is the start of the transaction.
    assert_eq!(session.query("select now()").unwrap().rows, before);
    session.query("insert into t values (2, now())").unwrap();
    session.query("commit").unwrap();
    session.query("insert into t values (3, now())").unwrap();
    let later = session.query("select a from t where at < (select at from t where a = 1)");
    if let Ok(answer) = later {
        assert_eq!(answer.rows, [[Some("3".to_owned())]]);
    }
    // Deadlines fire although the wall clock stands still.
    session.query("select pg_sleep(0.01)").unwrap();
    session.query("set statement_timeout = 20").unwrap();
    let cancelled = session.query("select pg_sleep(60)");
    assert!(
        matches!(&cancelled, Err(QueryError::Sql { code, .. }) if code == "57014"),
        "{cancelled:?}"
    );
    session.query("set statement_timeout = 0").unwrap();
    server.stop().unwrap();
    // A start at an earlier time than the log's works: transactions are numbered, not dated.
    let server = start(&disk, clock);
    let mut session = connect(&server);
    session.query("update t set at = now() where a = 1").unwrap();
    assert_eq!(session.number("select count(*) from t").unwrap(), 3);
    server.stop().unwrap();
}

/// A clock that panics on request.
struct PlantedClock(AtomicBool);

impl Clock for PlantedClock {
    fn monotonic(&self) -> Duration {
        OsClock.monotonic()
    }
    fn wall_micros(&self) -> i64 {
        assert!(!self.0.load(Relaxed), "planted in the clock");
        OsClock.wall_micros()
    }
}

/// A panic of a worker stops the server and reports the panic's message.
#[test]
fn panic_of_a_worker_fails_the_server_with_its_message() {
    let disk = MemDisk::new();
    let clock = Arc::new(PlantedClock(AtomicBool::new(false)));
    let server = start(&disk, clock.clone());
    let mut session = connect(&server);
    session.query("create table t (a int primary key)").unwrap();
    session.query("insert into t values (1)").unwrap();
    clock.0.store(true, Relaxed);
    assert!(session.query("select now()").is_err());
    let began = Instant::now();
    let reason = loop {
        if let Some(reason) = server.failed() {
            break reason;
        }
        assert!(began.elapsed() < LIMIT, "the failure is not reported");
        std::thread::yield_now();
    };
    assert!(reason.contains("worker-") && reason.contains("planted in the clock"), "{reason}");
    clock.0.store(false, Relaxed);
    assert!(server.stop().is_err(), "no last checkpoint");
    // As after the end of the process: in this one the worker's state keeps the directory locked.
    let server = start(&disk.crash(1), clock);
    assert_eq!(connect(&server).number("select count(*) from t").unwrap(), 1);
    server.stop().unwrap();
}

/// A panic is reported as a panic, not as damage or a failing disk, whichever thread panics.
#[test]
fn panic_during_a_start_is_reported_as_a_panic() {
    let made = MemDisk::new();
    let server = start(&made, Arc::new(OsClock));
    connect(&server).query("create table t (a int primary key)").unwrap();
    server.stop().unwrap();
    let starter = std::thread::current().id();
    for (kind, at, by_starter) in [
        (OpKind::Read, "/data/control", true),
        (OpKind::Read, "/data/wal", true),
        (OpKind::Write, "/data/wal", true),
        (OpKind::Read, "/data/data/p0000", true),
        (OpKind::Read, "/data/data/p0000", false),
    ] {
        let disk = made.crash(0);
        disk.set_hook(Some(Arc::new(move |operation| {
            let here = (std::thread::current().id() == starter) == by_starter;
            let hit =
                here && operation.kind == kind && operation.path.to_string_lossy().starts_with(at);
            assert!(!hit, "planted at {at}");
        })));
        let failure = try_start(&disk, Arc::new(OsClock)).err().expect("a panic");
        let text = failure.to_string();
        assert!(text.contains("panicked") && text.contains(&format!("planted at {at}")), "{text}");
        assert_eq!(failure.code, ExitCode::Other, "{text}");
        assert!(text.contains("hint: This is a bug"), "{text}");
        disk.set_hook(None);
        start(&disk.crash(0), Arc::new(OsClock)).stop().unwrap();
    }
}

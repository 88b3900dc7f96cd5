//! Timeouts: of statements, of waits for locks, of idle transactions, of the startup packet.

use crate::raw::{Fixture, Raw, bind, execute, flush, message, parse, query, startup, sync};
use clearway_env::OsClock;
use clearway_server::{Config, Server, World};
use clearway_testkit::MemDisk;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Creates a table with a row that a block of the first session has locked; returns that session
/// and another one.
fn with_locked_row(server: &Fixture) -> (Raw, Raw) {
    let (mut holder, waiter) = (server.connect(), server.connect());
    holder.query("create table t (a int primary key, b int)");
    holder.query("insert into t values (1, 1), (2, 2)");
    holder.query("begin; update t set b = 0 where a = 1");
    (holder, waiter)
}

#[test]
fn lock_timeout_ends_a_wait_for_a_row() {
    let server = Fixture::new("lock-timeout");
    let (mut holder, mut waiter) = with_locked_row(&server);
    waiter.query("set lock_timeout = '20ms'");
    let messages = waiter.query("update t set b = 3 where a = 1");
    assert_eq!(messages[0].code(), "55P03");
    assert_eq!(messages[0].primary(), "canceling statement due to lock timeout");
    // In a block, over several partitions, for a whole table, and in COPY.
    waiter.query("begin; update t set b = 3 where a = 2");
    assert_eq!(waiter.column("update t set b = b + 1"), ["55P03"]);
    assert_eq!(waiter.column("select 1"), ["25P02"]);
    waiter.query("rollback");
    assert_eq!(waiter.column("drop table t"), ["55P03"]);
    holder.query("insert into t values (7, 7)");
    waiter.send_all(&[query("copy t from stdin"), message(b'd', b"7\t7\n"), message(b'c', b"")]);
    assert_eq!(waiter.until_ready()[1].code(), "55P03");
    holder.query("rollback");
    assert_eq!(waiter.column("select b from t order by a"), ["1", "2"]);
    waiter.query("update t set b = 3 where a = 1");
    assert_eq!(waiter.column("select b from t where a = 1"), ["3"]);
}

#[test]
fn lock_timeout_does_not_limit_a_long_statement() {
    let server = Fixture::new("lock-timeout-long");
    let mut c = server.connect();
    c.query("set lock_timeout = 1");
    assert_eq!(c.column("select pg_sleep(0.05)"), [""]);
    c.query("create table t (a int primary key)");
    assert_eq!(
        c.query("insert into t select * from generate_series(1, 50000)")[0].text(),
        "INSERT 0 50000"
    );
}

#[test]
fn lock_timeout_follows_its_setting() {
    let server = Fixture::new("lock-timeout-set");
    let (_holder, mut waiter) = with_locked_row(&server);
    // A deadline in an hour is pending, and the next limit is shorter.
    waiter.query("set lock_timeout = '1h'; set statement_timeout = 20");
    assert_eq!(waiter.column("update t set b = 3 where a = 1"), ["57014"]);
    waiter.query("set lock_timeout = 20; set statement_timeout = 0");
    assert_eq!(waiter.column("update t set b = 3 where a = 1"), ["55P03"]);
}

#[test]
fn statement_timeout_covers_the_whole_copy() {
    let server = Fixture::new("statement-timeout-copy");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    c.query("set statement_timeout = 20");
    c.send(&query("copy t from stdin"));
    assert_eq!(c.next().tag, 'G');
    // The client sends nothing more.
    assert_eq!(c.until_ready()[0].code(), "57014");
    c.query("set statement_timeout = 0");
    assert_eq!(c.column("select count(*) from t"), ["0"]);
}

/// Whether the statement is between two rounds of messages then, or waits for a lock that is held
/// for ever.
#[test]
fn statement_timeout_ends_a_statement_wherever_it_is() {
    const ROWS: i32 = 20_000;
    let server = Fixture::new("statement-timeout-anywhere");
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.query("create table t (a int primary key, b int)");
    holder.query("create table source (a int, b int)");
    let fill = format!("insert into source select a, a from generate_series(1, {ROWS}) a");
    holder.query(&fill);
    holder.query(&format!("begin; insert into t values ({ROWS}, 0)"));
    for milliseconds in 1..30 {
        waiter.query(&format!("set statement_timeout = {milliseconds}"));
        assert_eq!(waiter.column("insert into t select a, b from source"), ["57014"]);
    }
    waiter.query("reset statement_timeout");
    holder.query("rollback");
    assert_eq!(waiter.column("select count(*) from t"), ["0"]);
}

#[test]
fn idle_transaction_timeout_ends_the_session() {
    let server = Fixture::new("idle-in-transaction");
    let (mut holder, mut waiter) = with_locked_row(&server);
    // Set inside the block, it counts from that statement's ReadyForQuery.
    holder.query("set idle_in_transaction_session_timeout = 20");
    let end = holder.next();
    assert_eq!((end.tag, end.code().as_str(), end.severity().as_str()), ('E', "25P03", "FATAL"));
    assert!(holder.try_next().is_none());
    // Its locks have been released.
    assert_eq!(waiter.query("update t set b = 3 where a = 1")[0].text(), "UPDATE 1");

    // The same in a failed block; an incomplete message does not count as activity.
    let mut c = server.connect();
    c.query("set idle_in_transaction_session_timeout = 20");
    c.send(&query("begin; select 1 / 0"));
    c.until_ready();
    c.send(b"Q\0\0");
    assert_eq!(c.next().code(), "25P03");
}

#[test]
fn idle_timeout_applies_only_inside_transactions() {
    let server = Fixture::with("idle-outside", |config| config.workers = 1);
    let mut c = server.connect();
    c.query("set idle_in_transaction_session_timeout = 20");
    // Each of these takes longer than the limit, without being idle in a transaction.
    assert_eq!(c.column("begin; select pg_sleep(0.06); rollback"), [""]);
    c.send_all(&[
        parse("", "select pg_sleep(0.06)", &[]),
        bind("", "", &[], false),
        execute("", 0),
        flush(),
    ]);
    let tags: String = (0..4).map(|_| c.next().tag).collect();
    assert_eq!(tags, "12DC");
    c.send(&sync());
    assert_eq!(c.tags(), "ZI");
    // The deadline of an earlier block fires outside of a transaction and has no effect. COMMIT
    // arrives together with BEGIN: a client that answers a reply may need longer than the limit.
    c.send_all(&[query("begin"), query("commit")]);
    assert_eq!((c.tags(), c.tags()), ("CZT".to_owned(), "CZI".to_owned()));
    // The one worker handles deadlines in order, so the block's comes before the end of this sleep.
    let mut other = server.connect();
    other.query("select pg_sleep(0.06)");
    assert_eq!(c.column("select 1"), ["1"]);
}

/// The clients connect and send before the server has a worker: it finds their bytes when it sets
/// their deadlines, so only its own timer decides which connections are closed.
#[test]
fn silent_connection_is_closed() {
    const SSL: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let sockets =
        std::env::temp_dir().join(format!("clearway-startup-timeout-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&sockets);
    std::fs::create_dir_all(&sockets).unwrap();
    let mut config = Config::new("/data");
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.unix_socket = Some(sockets.clone());
    (config.partitions, config.workers, config.buffer_pool) = (Some(2), 1, 8 << 20);
    (config.log_segment, config.log_buffer) = (1 << 20, 1 << 20);
    config.startup_timeout_ms = 50;

    let hello = startup(&[("user", "tester")]);
    let said = [hello.clone(), Vec::new(), hello[..9].to_vec(), SSL.to_vec()];
    let clients = Arc::new(OnceLock::new());
    let (disk, opened, dir) = (MemDisk::new(), clients.clone(), sockets.clone());
    // The server listens before it opens its directory. The name of its socket has the TCP port.
    disk.set_hook(Some(Arc::new(move |_| {
        opened.get_or_init(|| {
            let socket = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().file_name();
            let port = socket.to_str().unwrap().strip_prefix(".s.PGSQL.").unwrap();
            let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
            said.each_ref().map(|bytes| {
                let mut client = Raw::open(address);
                client.send(bytes);
                Mutex::new(client)
            })
        });
    })));
    let world = World { disk: Arc::new(disk.clone()), clock: Arc::new(OsClock) };
    let server = Server::start_in(world, config).unwrap();
    disk.set_hook(None);
    let clients: &[Mutex<Raw>; 4] = clients.get().unwrap();
    let [mut begun, nothing, half, ssl] = clients.each_ref().map(|client| client.lock().unwrap());
    begun.until_ready();
    for (mut client, answer) in [(nothing, &b""[..]), (half, b""), (ssl, b"N")] {
        let mut heard = Vec::new();
        client.stream.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, answer);
    }
    // Its deadline was the first.
    assert_eq!(begun.column("select 1"), ["1"]);
    server.stop().unwrap();
    std::fs::remove_dir_all(&sockets).unwrap();
}

#[test]
fn sleep_lasts_for_the_calls_that_are_made() {
    let server = Fixture::new("sleep-calls");
    let mut c = server.connect();
    for (sql, at_least_ms) in [
        ("select pg_sleep(0.05), 7, pg_sleep(0.05)", 100),
        ("values (pg_sleep(0.05)), (pg_sleep(0.05))", 100),
        ("values (pg_sleep(0.05)), (pg_sleep(1000)) limit 1", 50),
        ("select pg_sleep(0.05) where true", 50),
        ("select pg_sleep(0.05), count(*) where false", 50),
        ("select pg_sleep(0.05) offset 1", 50),
        ("select pg_sleep(1000) where false", 0),
        ("select pg_sleep(1000) limit 0", 0),
        ("select pg_sleep(null)", 0),
    ] {
        let began = Instant::now();
        let messages = c.query(sql);
        assert!(messages.iter().all(|m| m.tag != 'E'), "{sql}: {}", messages[0].primary());
        assert!(began.elapsed() >= Duration::from_millis(at_least_ms), "{sql}");
    }
    // An expression cannot wait.
    c.query("create table t (a int primary key); insert into t values (1)");
    for sql in [
        "select pg_sleep(0.01) from t",
        "select a from t where pg_sleep(0.01) is not null",
        "select pg_sleep(0.01) from generate_series(1, 2) i",
        "select pg_sleep(0.01) is null",
        "select 1 where pg_sleep(0.01) is not null",
        "select pg_sleep(count(*)) from t",
        "update t set a = 2 where pg_sleep(a) is not null",
        "insert into t values (3) returning pg_sleep(0.01)",
    ] {
        assert_eq!(c.column(sql), ["0A000"], "{sql}");
    }
    assert_eq!(c.column("select a from t"), ["1"]);
}

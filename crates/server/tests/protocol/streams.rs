//! Results that are larger than the buffers of the server and the network: they are sent as fast as
//! the client takes them, and end in every way that a statement can end.

use crate::raw::{
    Fixture, LIMIT, Message, Raw, bind, close, describe, execute, parse, query, sync,
};
use clearway_server::Config;
use std::time::Instant;

/// Rows of the table, 1 kB each in the result: more than any socket buffers.
pub const ROWS: usize = 64_000;
pub const WIDE: &str = "select id, repeat('x', 1000), n from t";

/// Starts a server with one worker and creates the table.
pub fn fixture(name: &str) -> (Fixture, Raw) {
    fixture_with(name, |_| {})
}

pub fn fixture_with(name: &str, change: impl FnOnce(&mut Config)) -> (Fixture, Raw) {
    let server = Fixture::with(name, |config| {
        config.workers = 1;
        change(config);
    });
    let mut c = server.connect();
    c.query("create table t (id int primary key, n int)");
    c.query("create table other (id int primary key)");
    c.query(&format!("insert into t select i, 0 from generate_series(1, {ROWS}) i"));
    assert_eq!(c.column("select count(*) from t"), [ROWS.to_string()]);
    (server, c)
}

/// Waits until the session waits for its client to read.
#[track_caller]
pub fn waits_for_client(asker: &mut Raw, pid: i32) {
    let began = Instant::now();
    while asker.column(&format!("select waits_for from clearway.sessions where pid = {pid}"))
        != ["client"]
    {
        assert!(began.elapsed() < LIMIT, "the session does not wait for its client");
    }
}

/// Waits until the session of this statement has ended it, though its client may have read nothing.
#[track_caller]
pub fn waits_for_end(asker: &mut Raw, statement: &str) {
    let text = statement.replace('\'', "''");
    let state = format!("select state from clearway.sessions where statement = '{text}'");
    asker.repeat_until(&state, &["idle"]);
}

/// The messages up to ReadyForQuery without the rows, and the number of rows.
pub fn summary(c: &mut Raw) -> (Vec<Message>, usize) {
    let (mut others, mut rows) = (Vec::new(), 0);
    loop {
        let message = c.next();
        match message.tag {
            'D' | 'd' => rows += 1,
            'Z' => {
                others.push(message);
                return (others, rows);
            }
            _ => others.push(message),
        }
    }
}

pub fn tags(messages: &[Message]) -> String {
    messages.iter().map(|m| m.tag).collect()
}

fn wide_portal(name: &str) -> [Vec<u8>; 2] {
    [parse("", WIDE, &[]), bind(name, "", &[], false)]
}

#[test]
fn slow_client_delays_only_itself() {
    let (server, mut asker) = fixture("stream-slow");
    let mut slow = server.connect();
    for (messages, before, after) in [
        (query(WIDE), "T", "SELECT"),
        (query(&format!("copy ({WIDE}) to stdout")), "Hc", "COPY"),
        (
            [wide_portal("").concat(), describe('P', ""), execute("", 0), sync()].concat(),
            "12T",
            "SELECT",
        ),
        (
            query(&format!("select i, repeat('x', 1000) from generate_series(1, {ROWS}) i")),
            "T",
            "SELECT",
        ),
        (query(&format!("begin; {WIDE}")), "CT", "SELECT"),
    ] {
        slow.send(&messages);
        waits_for_client(&mut asker, slow.pid);
        assert_eq!(asker.column("select n from t where id = 5"), ["0"]);
        let (others, rows) = summary(&mut slow);
        assert_eq!((rows, tags(&others)), (ROWS, format!("{before}CZ")));
        assert_eq!(others[others.len() - 2].text(), format!("{after} {ROWS}"));
    }
    slow.query("commit");
    assert_eq!(asker.query("update t set n = n")[0].text(), format!("UPDATE {ROWS}"));
    server.stop();
}

#[test]
fn error_follows_the_rows_before_it() {
    let (server, mut asker) = fixture("stream-error");
    let mut c = server.connect();
    let failing = format!("select 1 / (id - {}), repeat('x', 1000) from t", ROWS - 1);
    for (block, status) in [(false, b'I'), (true, b'E')] {
        if block {
            c.query("begin");
        }
        c.send(&query(&failing));
        let (others, rows) = summary(&mut c);
        assert_eq!((tags(&others), others[1].code()), ("TEZ".to_owned(), "22012".to_owned()));
        assert!(rows > 100 && rows < ROWS && others[2].body == [status], "{rows} rows");
    }
    c.query("rollback");
    c.send_all(&[parse("", &failing, &[]), bind("", "", &[], false), execute("", 0), sync()]);
    let (others, rows) = summary(&mut c);
    assert_eq!((tags(&others).as_str(), rows > 100), ("12EZ", true));
    assert_eq!(
        asker.query("update t set n = n")[0].text(),
        format!("UPDATE {ROWS}"),
        "no lock is left"
    );
    server.stop();
}

#[test]
fn interrupted_stream_leaves_no_lock() {
    let (server, mut asker) = fixture("stream-end");
    let free = |asker: &mut Raw| {
        assert_eq!(asker.query("update t set n = n")[0].text(), format!("UPDATE {ROWS}"));
    };
    let mut cancelled = server.connect();
    cancelled.send(&query(WIDE));
    waits_for_client(&mut asker, cancelled.pid);
    asker.query(&format!("select pg_cancel_backend({})", cancelled.pid));
    // Its locks are released before its client has read anything.
    free(&mut asker);
    let (others, _) = summary(&mut cancelled);
    assert_eq!((tags(&others), others[1].code()), ("TEZ".to_owned(), "57014".to_owned()));
    assert_eq!(cancelled.column("select 1"), ["1"]);

    let mut timed = server.connect();
    timed.query("set statement_timeout = 300");
    let copy = format!("copy ({WIDE}) to stdout");
    timed.send(&query(&copy));
    // A client that reads before the timeout would get the whole result.
    waits_for_end(&mut asker, &copy);
    free(&mut asker);
    let (others, _) = summary(&mut timed);
    assert_eq!((tags(&others), others[1].code()), ("HEZ".to_owned(), "57014".to_owned()));

    let mut terminated = server.connect();
    terminated.send(&query(WIDE));
    waits_for_client(&mut asker, terminated.pid);
    asker.query(&format!("select pg_terminate_backend({})", terminated.pid));
    free(&mut asker);

    let mut gone = server.connect();
    gone.send(&query(WIDE));
    waits_for_client(&mut asker, gone.pid);
    drop(gone);
    free(&mut asker);
    let mut stopped = server.connect();
    stopped.send(&query(WIDE));
    waits_for_client(&mut asker, stopped.pid);
    server.stop();
}

/// Reads a portal to its end; returns the sum of `n` and the number of rows.
fn read_portal(c: &mut Raw, portal: &str, most: u32) -> (i64, usize) {
    let (mut sum, mut count) = (0, 0);
    loop {
        c.send_all(&[execute(portal, most), sync()]);
        let messages = c.until_ready();
        let rows: Vec<_> = messages.iter().filter(|m| m.tag == 'D').collect();
        let n = |row: &&Message| {
            String::from_utf8(row.values()[2].clone().unwrap()).unwrap().parse::<i64>().unwrap()
        };
        sum += rows.iter().map(n).sum::<i64>();
        count += rows.len();
        let end = &messages[messages.len() - 2];
        match end.tag {
            's' => assert_eq!(rows.len(), most as usize),
            'C' => {
                assert_eq!(end.text(), format!("SELECT {}", rows.len()));
                return (sum, count);
            }
            other => panic!("{other}: {}", end.primary()),
        }
    }
}

#[test]
fn portals_are_read_in_parts_between_statements() {
    let (server, mut asker) = fixture("stream-portals");
    let mut c = server.connect();
    c.query("begin");
    c.send_all(&[wide_portal("p").concat(), execute("p", 10), sync()]);
    assert_eq!(c.tags(), format!("12{}sZT", "D".repeat(10)));
    c.send_all(&[wide_portal("q").concat(), execute("q", 3), sync()]);
    assert_eq!(c.tags(), "12DDDsZT");
    c.send_all(&[
        wide_portal("closed").concat(),
        execute("closed", 3),
        close('P', "closed"),
        sync(),
    ]);
    assert_eq!(c.tags(), "12DDDs3ZT");
    assert_eq!(c.column("select count(*) from t"), [ROWS.to_string()]);
    assert_eq!(
        c.query("insert into other select i from generate_series(1, 1000) i")[0].text(),
        "INSERT 0 1000"
    );
    assert_eq!(read_portal(&mut c, "p", 20_000), (0, ROWS - 10));
    // The rest of the other portal shows the rows before the change.
    assert_eq!(c.query("savepoint s; update t set n = 1")[1].text(), format!("UPDATE {ROWS}"));
    c.send_all(&[wide_portal("r").concat(), execute("r", 5), sync()]);
    assert_eq!(c.tags(), "12DDDDDsZT");
    c.query("rollback to s; update t set n = 3 where id < 100");
    assert_eq!(read_portal(&mut c, "q", 0), (0, ROWS - 3));
    // A portal created after the savepoint ends with it.
    c.query("savepoint s");
    c.send_all(&[execute("r", 0), sync()]);
    assert_eq!(c.until_ready()[0].code(), "34000");
    c.query("rollback to s");
    c.send_all(&[wide_portal("left").concat(), execute("left", 5), sync()]);
    assert_eq!(c.tags(), "12DDDDDsZT");
    assert_eq!(c.query("commit")[0].text(), "COMMIT");
    assert_eq!(asker.query("update t set n = n")[0].text(), format!("UPDATE {ROWS}"));
    server.stop();
}

/// Outside of a block a portal ends with its Sync.
#[test]
fn suspended_portal_ends_with_its_sync() {
    let (server, mut asker) = fixture("stream-sync");
    let mut c = server.connect();
    c.send_all(&[wide_portal("p").concat(), execute("p", 2), execute("p", 3), sync()]);
    assert_eq!(c.tags(), "12DDsDDDsZI");
    c.send_all(&[wide_portal("p").concat(), execute("p", 2), sync()]);
    assert_eq!(c.tags(), "12DDsZI");
    c.send_all(&[execute("p", 2), sync()]);
    assert_eq!(c.until_ready()[0].code(), "34000");
    assert_eq!(asker.query("update t set n = n")[0].text(), format!("UPDATE {ROWS}"));
    // A portal whose connection is closed.
    c.query("begin");
    c.send_all(&[wide_portal("p").concat(), execute("p", 2), sync()]);
    assert_eq!(c.tags(), "12DDsZT");
    drop(c);
    assert_eq!(asker.query("update t set n = n")[0].text(), format!("UPDATE {ROWS}"));
    server.stop();
}

/// A READ ONLY block reads a snapshot: neither a slow client nor a suspended portal blocks a
/// writer, and all parts show the same moment.
#[test]
fn slow_snapshot_reader_blocks_no_writer() {
    let (server, mut writer) = fixture("stream-snapshot");
    let mut slow = server.connect();
    for (value, level) in [(1, "repeatable read"), (2, "read committed")] {
        slow.query(&format!("begin isolation level {level} read only"));
        slow.send_all(&[wide_portal("p").concat(), execute("p", 10), sync()]);
        assert_eq!(slow.tags(), format!("12{}sZT", "D".repeat(10)));
        // At READ COMMITTED the next query reads a newer snapshot; the portal keeps its own.
        assert_eq!(slow.column("select count(*) from t"), [ROWS.to_string()]);
        slow.send(&query(WIDE));
        waits_for_client(&mut writer, slow.pid);
        assert_eq!(
            writer.query(&format!("update t set n = {value}"))[0].text(),
            format!("UPDATE {ROWS}")
        );
        let (others, rows) = summary(&mut slow);
        assert_eq!((rows, tags(&others)), (ROWS, "TCZ".to_owned()));
        assert_eq!(read_portal(&mut slow, "p", 0), ((value - 1) * (ROWS as i64 - 10), ROWS - 10));
        slow.query("commit");
    }
    server.stop();
}

/// Reads rows of a cursor; returns the sum of `n` and the number of rows.
fn fetch(c: &mut Raw, which: &str) -> (i64, usize) {
    let messages = c.query(&format!("fetch {which}"));
    let rows: Vec<_> = messages.iter().filter(|m| m.tag == 'D').collect();
    let n = |row: &&Message| {
        String::from_utf8(row.values()[2].clone().unwrap()).unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(messages[messages.len() - 2].text(), format!("FETCH {}", rows.len()), "{which}");
    (rows.iter().map(n).sum(), rows.len())
}

/// A FETCH that fails undoes nothing that its transaction has done since DECLARE.
#[test]
fn failed_fetch_keeps_changes_before_the_savepoint() {
    let (server, mut c) = fixture("stream-failed-fetch");
    c.query(&format!(
        "begin; declare c cursor for select id, repeat('x', 1000), 1 / (id - {ROWS}) from t"
    ));
    c.query("insert into other select i from generate_series(1, 100) i");
    c.query("savepoint s");
    c.send(&query("fetch all from c"));
    let (others, _) = summary(&mut c);
    assert_eq!(others[others.len() - 2].code(), "22012");
    c.query("rollback to s; commit");
    assert_eq!(c.column("select count(*) from other"), ["100"]);
    server.stop();
}

/// The rest of a cursor, which a rollback has to read first, fails: not the rollback.
#[test]
fn rollback_to_a_savepoint_succeeds_beside_a_cursor_that_fails() {
    let (server, mut c) = fixture("stream-failed-rest");
    for change in ["rollback to s", "release s; rollback to r"] {
        c.query(&format!(
            "begin; declare c cursor for select id, repeat('x', 1000), 1 / (id - {ROWS}) from t"
        ));
        c.query("insert into other select i from generate_series(1, 100) i");
        c.query("savepoint r; savepoint s");
        c.query("insert into other values (0)");
        let answers = c.query(change);
        assert_eq!(answers[answers.len() - 2].text(), "ROLLBACK", "{change}");
        c.query("commit");
        assert_eq!(c.column("select count(*) from other"), ["100"]);
        c.query("truncate other");
    }
    server.stop();
}

/// A cursor keeps the snapshot of its DECLARE and one part of its result, and no lock.
#[test]
fn cursor_blocks_no_writer_and_keeps_its_snapshot() {
    let (server, mut writer) = fixture("stream-cursor");
    let mut c = server.connect();
    let snapshots = |asker: &mut Raw, pid: i32| {
        asker.column(&format!("select count(*) from clearway.snapshots where pid = {pid}"))
    };
    for (value, level) in [(1, "read committed"), (2, "repeatable read")] {
        c.query(&format!("begin isolation level {level}; declare c cursor for {WIDE}"));
        assert_eq!(
            writer.query(&format!("update t set n = {value}"))[0].text(),
            format!("UPDATE {ROWS}")
        );
        let before = value - 1;
        assert_eq!(fetch(&mut c, "10 from c"), (10 * before, 10));
        assert_eq!(snapshots(&mut writer, c.pid), ["1"]);
        if level == "read committed" {
            assert_eq!(c.column("select sum(n) from t"), [(ROWS as i64 * value).to_string()]);
        }
        // Moves beyond the part that DECLARE has read.
        assert_eq!(c.query("move 5000 in c")[0].text(), "MOVE 5000");
        assert_eq!(fetch(&mut c, "relative 1000 from c"), (before, 1));
        c.send(&query("fetch all from c"));
        waits_for_client(&mut writer, c.pid);
        assert_eq!(
            writer.column("update t set n = n where id = 5 returning n"),
            [value.to_string()]
        );
        let (others, rows) = summary(&mut c);
        assert_eq!((tags(&others), rows), ("TCZ".to_owned(), ROWS - 6010));
        assert_eq!(others[1].text(), format!("FETCH {rows}"));
        assert_eq!(fetch(&mut c, "all from c"), (0, 0));
        if level == "read committed" {
            assert_eq!(snapshots(&mut writer, c.pid), ["0"], "the cursor has read all rows");
        }
        c.query("commit");
    }
    // A failed block has no cursors and therefore no snapshots.
    c.query(&format!("begin; declare c cursor for {WIDE}"));
    assert_eq!(snapshots(&mut writer, c.pid), ["1"]);
    assert_eq!(c.query("selec")[0].code(), "42601");
    assert_eq!(snapshots(&mut writer, c.pid), ["0"]);
    c.query("rollback");
    // Cursors that are closed.
    c.query(&format!("begin; declare c cursor for {WIDE}; declare d cursor for {WIDE}"));
    c.query("close c");
    assert_eq!(snapshots(&mut writer, c.pid), ["1"]);
    c.query("close d");
    assert_eq!(snapshots(&mut writer, c.pid), ["0"]);
    server.stop();
}

/// A cursor whose result exceeds the memory limit is read one part at a time. The rest is read as a
/// whole before its own transaction changes the table.
#[test]
fn cursor_takes_bounded_memory() {
    let (server, mut asker) = fixture_with("stream-memory", |config| config.query_memory = 2 << 20);
    let mut c = server.connect();
    c.query(&format!("begin; declare c cursor for {WIDE}; declare d cursor for {WIDE}"));
    let mut rows = 0;
    while let (_, n @ 1..) = fetch(&mut c, "5000 from c") {
        rows += n;
    }
    assert_eq!((rows, fetch(&mut c, "all from d")), (ROWS, (0, ROWS)));
    c.query(&format!("close all; savepoint s; declare c cursor for {WIDE}"));
    assert_eq!(c.query("delete from other")[0].text(), "DELETE 0", "another table");
    assert_eq!(c.query("update t set n = 1 where id = 1")[0].code(), "53200");
    c.query("rollback to s");
    assert_eq!(c.query("update t set n = 1 where id = 1")[0].text(), "UPDATE 1");
    c.query("commit");
    assert_eq!(asker.column("select sum(n) from t"), ["1"]);
    server.stop();
}

/// A cursor does not see later changes of its own transaction: its rest is read before the change.
#[test]
fn cursor_does_not_see_later_changes() {
    let (server, _asker) = fixture("stream-insensitive");
    let mut c = server.connect();
    c.query(&format!("begin; declare c cursor for {WIDE}; declare d cursor for {WIDE}"));
    assert_eq!(fetch(&mut c, "10 from c"), (0, 10));
    assert_eq!(c.query("update t set n = 1")[0].text(), format!("UPDATE {ROWS}"));
    assert_eq!(fetch(&mut c, "100 from c"), (0, 100));
    assert_eq!(c.query("delete from t where id > 100")[0].text(), format!("DELETE {}", ROWS - 100));
    assert_eq!(fetch(&mut c, "all from c"), (0, ROWS - 110));
    assert_eq!(fetch(&mut c, "all from d"), (0, ROWS));
    assert_eq!(c.column("select sum(n) from t"), ["100"]);
    c.query("rollback");
    server.stop();
}

/// FETCH in the extended protocol uses the columns and formats requested by the client, and has its
/// own row limit.
#[test]
fn fetch_works_in_the_extended_protocol() {
    let (server, _asker) = fixture("stream-fetch");
    let mut c = server.connect();
    c.query("begin; declare c cursor for select id, n from t order by id; declare b binary cursor for select id from t where id = 7");
    c.send_all(&[
        parse("", "fetch 5 from c", &[]),
        describe('S', ""),
        bind("f", "", &[], true),
        describe('P', "f"),
        execute("f", 2),
        sync(),
    ]);
    assert_eq!(c.tags(), "1tT2TDDsZT");
    c.send_all(&[execute("f", 2), execute("f", 2), execute("f", 2), sync()]);
    let messages = c.until_ready();
    assert_eq!(tags(&messages[..messages.len() - 1]), "DDsDCC");
    assert_eq!(
        messages[0].values()[0],
        Some(3i32.to_be_bytes().to_vec()),
        "in binary, as requested by Bind"
    );
    assert_eq!(
        (messages[4].text(), messages[5].text()),
        ("FETCH 1".to_owned(), "FETCH 0".to_owned())
    );
    // A cursor is an ordinary portal.
    c.send_all(&[execute("c", 2), describe('P', "c"), sync()]);
    let messages = c.until_ready();
    assert_eq!(tags(&messages), "DDsTZ");
    assert_eq!(messages[0].values()[0], Some(b"6".to_vec()));
    let messages = c.query("fetch from b");
    assert_eq!(messages[1].values()[0], Some(7i32.to_be_bytes().to_vec()), "a BINARY cursor");
    // Other portals are cursors, whether executed or not.
    c.send_all(&[wide_portal("p").concat(), wide_portal("q").concat(), execute("q", 3), sync()]);
    assert_eq!(c.tags(), "1212DDDsZT");
    assert_eq!((fetch(&mut c, "4 from p"), fetch(&mut c, "4 from q")), ((0, 4), (0, 4)));
    assert_eq!(c.query("move 10 in p")[0].text(), "MOVE 10");
    c.send_all(&[
        parse("", "declare d cursor for select id from t where id = $1", &[23]),
        bind("", "", &["9"], false),
        execute("", 0),
        sync(),
    ]);
    assert_eq!(c.tags(), "12CZT");
    assert_eq!(c.column("fetch d"), ["9"]);
    c.send_all(&[
        parse("", "move from nothing", &[]),
        bind("", "", &[], false),
        execute("", 0),
        sync(),
    ]);
    assert_eq!(c.until_ready()[2].code(), "34000");
    c.query("rollback");
    server.stop();
}

/// An error before a statement runs undoes the block in the extended protocol, too.
#[test]
fn failed_parse_releases_the_locks_of_its_block() {
    let (server, mut asker) = fixture("stream-parse");
    let mut c = server.connect();
    c.query("begin; update t set n = 1");
    c.send_all(&[parse("", "selec", &[]), sync()]);
    let messages = c.until_ready();
    assert_eq!((tags(&messages), messages[0].code()), ("EZ".to_owned(), "42601".to_owned()));
    assert_eq!(asker.query("update t set n = n + 2")[0].text(), format!("UPDATE {ROWS}"));
    c.query("begin");
    assert_eq!(c.query("commit")[0].text(), "ROLLBACK");
    assert_eq!(asker.column("select sum(n) from t"), [(ROWS * 2).to_string()]);
    server.stop();
}

/// The rows of generate_series are computed one at a time: none beyond a limit, and none before the
/// part that is full has been sent or inserted.
#[test]
fn series_is_computed_row_by_row() {
    let (server, mut c) = fixture_with("stream-series", |config| config.query_memory = 1 << 20);
    for limit in ["limit 3", "limit 2 offset 1", "where i < 4", "where i < 4 limit 5"] {
        let sql = format!("select 1 / (i - 5) from generate_series(1, 1000) i {limit}");
        let rows = if limit.contains("offset") { 2 } else { 3 };
        assert_eq!(c.column(&sql), vec!["0"; rows], "{limit}");
    }
    assert_eq!(c.column("select 1 / (i - 1) from generate_series(1, 9) i limit 0"), [""; 0]);
    let failing = "select repeat('x', 600000), 1 / (i - 100) from generate_series(1, 1000) i";
    for (sql, before) in [(failing.to_owned(), "T"), (format!("copy ({failing}) to stdout"), "H")] {
        c.send(&query(&sql));
        let (others, rows) = summary(&mut c);
        assert_eq!((tags(&others), rows), (format!("{before}EZ"), 99));
        assert_eq!(others[1].code(), "22012");
    }
    c.query("create table tall (id int check (id > 1), v text)");
    assert_eq!(
        c.column(
            "insert into tall select i, repeat('x', 600000 / (2 - i)) from generate_series(1, 2) i"
        ),
        ["23514"]
    );
    assert_eq!(
        c.query("insert into other select i - 1 / (i - 5) from generate_series(1, 1000) i limit 3")
            [0]
        .text(),
        "INSERT 0 3"
    );
    server.stop();
}

/// Each row is charged before the next one is computed.
#[test]
fn computed_rows_are_charged_one_by_one() {
    let (server, mut c) = fixture_with("stream-charge", |config| config.query_memory = 1 << 20);
    c.query("create table tall (id int, v text)");
    let wide = "select i, repeat('x', 2000000 / (2 - i)) from generate_series(1, 2) i";
    for sql in [
        wide,
        &format!("{wide} order by 1"),
        &format!("insert into tall {wide}"),
        "values (repeat('x', 2000000)), ((1 / (random() * 0)::int)::text)",
        "insert into tall (v) values (repeat('x', 2000000)), ((1 / (random() * 0)::int)::text)",
    ] {
        assert_eq!(c.column(sql), ["53200"], "{sql}");
    }
    // One row is bounded while it is computed.
    let row = ["repeat('x', 67108864)"; 5].join(", ");
    for sql in [format!("select {row} from generate_series(1, 2) i"), format!("values ({row})")] {
        assert_eq!(c.column(&sql), ["54000"]);
    }
    server.stop();
}

//! Startup, settings, COPY, cancel requests, pg_sleep.

use crate::raw::{
    Fixture, LIMIT, Message, Raw, bind, execute, message, parse, query, startup, sync,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a test listens when no message should come.
const MOMENT: Duration = Duration::from_millis(50);

#[test]
fn startup_refuses_encryption_and_reports_thirteen_parameters() {
    let server = Fixture::new("startup");
    let mut c = Raw::open(server.address());
    for request in [5679u16, 5680] {
        let mut packet = vec![0, 0, 0, 8, 4, 210];
        packet.extend(request.to_be_bytes());
        c.send(&packet);
        let mut answer = [0];
        c.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"N");
    }
    c.send(&startup(&[
        ("user", "me"),
        ("client_encoding", "'utf-8'"),
        ("options", "-c extra_float_digits=3"),
        ("datestyle", "ISO"),
    ]));
    let tags: String = c.until_ready().iter().map(|m| m.tag).collect();
    assert_eq!(tags, format!("R{}KZ", "S".repeat(13)));
    assert_eq!(c.column("show extra_float_digits"), ["3"]);
    let mut c = Raw::open(server.address());
    c.send(&startup(&[("database", "d")]));
    assert_eq!(c.next().code(), "28000");
    assert!(c.try_next().is_none());
}

/// Options apply before the other parameters. A dash in a name stands for an underscore.
#[test]
fn startup_parameters_override_options() {
    let server = Fixture::new("startup-options");
    let mut c = Raw::open(server.address());
    c.send(&startup(&[
        ("user", "me"),
        ("application_name", "parameter"),
        ("options", "-c application-name=option --lc-time=a-b -cextra-float-digits=3"),
    ]));
    c.until_ready();
    assert_eq!(c.column("show application_name"), ["parameter"]);
    assert_eq!(c.column("show lc_time"), ["a-b"]);
    assert_eq!(c.column("show extra_float_digits"), ["3"]);
    let mut c = Raw::open(server.address());
    c.send(&startup(&[("user", "me"), ("options", "--jit")]));
    let messages: Vec<_> = std::iter::from_fn(|| c.try_next()).collect();
    assert_eq!(messages.last().unwrap().primary(), "--jit requires a value");
}

#[test]
fn unknown_database_is_refused() {
    let server = Fixture::with("databases", |config| config.database = "shop".into());
    for (database, known) in [
        ("shop", true),
        ("postgres", true),
        ("clearway", true),
        ("tester", true),
        ("shops", false),
        ("template1", false),
    ] {
        let mut c = Raw::open(server.address());
        c.send(&startup(&[("user", "tester"), ("database", database)]));
        assert_eq!(c.next().tag, 'R');
        if known {
            c.until_ready();
            assert_eq!(c.column("select current_database()"), [database]);
        } else {
            let first = c.next();
            assert_eq!((first.code().as_str(), first.severity().as_str()), ("3D000", "FATAL"));
            assert_eq!(first.primary(), format!("database \"{database}\" does not exist"));
            assert!(c.try_next().is_none());
        }
    }
}

#[test]
fn user_named_like_a_system_schema_creates_tables() {
    let server = Fixture::new("user-schema");
    for user in ["clearway", "information_schema"] {
        let mut c = Raw::open(server.address());
        c.send(&startup(&[("user", user)]));
        c.until_ready();
        assert_eq!(c.column("select current_schema"), ["public"]);
        assert_eq!(c.query("create table t (a int)")[0].text(), "CREATE TABLE");
        assert_eq!(c.column("select count(*) from t"), ["0"]);
        c.query("drop table t");
    }
}

#[test]
fn too_many_connections_are_refused() {
    let server = Fixture::with("too-many", |config| config.max_connections = 1);
    let first = server.connect();
    let mut c = Raw::open(server.address());
    c.send(&startup(&[("user", "me")]));
    assert_eq!(c.next().code(), "53300");
    drop(first);
}

#[test]
fn control_socket_is_not_limited() {
    let server = Fixture::with("reserved", |config| config.max_connections = 1);
    let _first = server.connect();
    let mut control = UnixStream::connect(server.dir().join(".s.PGSQL.1")).unwrap();
    control.write_all(&startup(&[("user", "me")])).unwrap();
    let mut tag = [0];
    control.read_exact(&mut tag).unwrap();
    assert_eq!(tag, *b"R");
}

/// On a Unix socket, the end of the stream arrives together with the messages before it.
#[test]
fn messages_before_the_end_of_a_unix_stream_are_handled() {
    let server = Fixture::new("unix-end");
    let mut c = server.connect();
    let mut unix = UnixStream::connect(server.dir().join(".s.PGSQL.1")).unwrap();
    unix.set_read_timeout(Some(LIMIT)).unwrap();
    unix.write_all(&startup(&[("user", "me")])).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"Z\0\0\0\x05I") {
        let mut byte = [0];
        unix.read_exact(&mut byte).unwrap();
        received.extend(byte);
    }
    unix.write_all(&query(&format!("select pg_terminate_backend({})", c.pid))).unwrap();
    drop(unix);
    assert_eq!(c.next().code(), "57P01");
}

#[test]
fn several_statements_are_one_transaction() {
    let server = Fixture::new("several");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    let messages = c.query(
        "insert into t values (1); insert into t values (2); insert into t values (1); insert into t values (3)",
    );
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "CCEZ");
    assert_eq!(c.column("select count(*) from t"), ["0"]);
    c.query("begin; insert into t values (1); commit; insert into t values (2)");
    assert_eq!(c.column("select count(*) from t"), ["2"]);
    c.send_all(&[query(""), query(" -- nothing\n;")]);
    assert_eq!([c.tags(), c.tags()], ["IZI", "IZI"]);
}

#[test]
fn copy_in_and_out() {
    let server = Fixture::new("copy");
    let mut c = server.connect();
    c.query("create table t (a int primary key, b text)");
    c.send(&query("copy t from stdin"));
    assert_eq!(c.next().tag, 'G');
    // Split at odd places: a message need not be a line.
    c.send_all(&[
        message(b'd', b"1\tone\n2\t"),
        message(b'd', b"\\N\n3\tth"),
        message(b'd', b"ree\n"),
        message(b'c', b""),
    ]);
    let messages = c.until_ready();
    assert_eq!(messages[0].text(), "COPY 3");
    c.send(&query("copy (select * from t order by a) to stdout with (format csv, header)"));
    let messages = c.until_ready();
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "HddddcCZ");
    let lines: String = messages.iter().filter(|m| m.tag == 'd').map(|m| m.text()).collect();
    assert_eq!(lines, "a,b\n1,one\n2,\n3,three\n");
}

#[test]
fn very_many_statements_and_rows_fit_one_message() {
    let server = Fixture::new("very-many");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    let rows: String = (0..200_000).map(|i| format!("{i}\n")).collect();
    c.send(&query("copy t from stdin"));
    assert_eq!(c.next().tag, 'G');
    c.send_all(&[message(b'd', rows.as_bytes()), message(b'c', b"")]);
    assert_eq!(c.until_ready()[0].text(), "COPY 200000");
    assert_eq!(
        c.query(&"select 1;".repeat(20_000)).iter().filter(|m| m.tag == 'D').count(),
        20_000
    );
}

#[test]
fn failed_copy_leaves_nothing() {
    let server = Fixture::new("copy-fail");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    for (end, code) in [
        (message(b'f', b"enough\0"), "57014"),
        (message(b'd', b"x\n"), "22P02"),
        (message(b'd', b"1\n"), "23505"),
    ] {
        c.send(&query("copy t from stdin"));
        assert_eq!(c.next().tag, 'G');
        // Data after the error is ignored.
        c.send_all(&[message(b'd', b"1\n"), end, message(b'd', b"2\n"), message(b'c', b"")]);
        let messages = c.until_ready();
        assert_eq!((messages.len(), messages[0].code().as_str()), (2, code));
        assert_eq!(c.column("select count(*) from t"), ["0"]);
    }
}

#[test]
fn copy_of_a_key_deleted_since_the_snapshot_fails() {
    let server = Fixture::new("copy-deleted");
    let (mut c, mut other) = (server.connect(), server.connect());
    c.query("create table t (a int primary key, b int unique)");
    c.query("insert into t values (1, 10), (2, 20)");
    for (level, code) in [("repeatable read", Some("40001")), ("read committed", None)] {
        c.query(&format!("begin isolation level {level}"));
        assert_eq!(c.column("select count(*) from t"), ["2"]);
        other.query("delete from t where a = 2");
        c.send(&query("copy t from stdin"));
        assert_eq!(c.next().tag, 'G');
        c.send_all(&[message(b'd', b"3\t20\n"), message(b'c', b"")]);
        let messages = c.until_ready();
        match code {
            Some(code) => assert_eq!(messages[0].code(), code),
            None => assert_eq!(messages[0].text(), "COPY 1"),
        }
        c.query("rollback");
        other.query("insert into t values (2, 20)");
    }
}

/// COPY holds its table from its start, before its first row.
#[test]
fn copy_locks_its_table_before_the_first_row() {
    let server = Fixture::new("copy-lock");
    let (mut c, mut other, mut asker) = (server.connect(), server.connect(), server.connect());
    let waiters = "select waiter from clearway.locks group by waiter";
    c.query("create table t (a int primary key)");
    // ALTER TABLE already has its lock at some of the rows' partitions. It starts over.
    for (data, tag) in [(&b""[..], "COPY 0"), (b"1\n2\n3\n4\n5\n6\n7\n8\n", "COPY 8")] {
        c.send(&query("copy t from stdin"));
        assert_eq!(c.next().tag, 'G');
        other.send(&query("alter table t add check (a > 0)"));
        asker.repeat_until(waiters, &[&other.pid.to_string()]);
        c.send_all(&[message(b'd', data), message(b'c', b"")]);
        assert_eq!(c.until_ready()[0].text(), tag);
        assert_eq!(other.until_ready()[0].text(), "ALTER TABLE");
    }
    assert_eq!(asker.column("select count(*) from t"), ["8"]);
}

/// A COPY that starts while its table changes waits, and sees the table as it is then.
#[test]
fn copy_waits_for_a_change_of_its_table() {
    let server = Fixture::new("copy-waits");
    let (mut c, mut other, mut asker) = (server.connect(), server.connect(), server.connect());
    let waiters = "select waiter from clearway.locks group by waiter";
    c.query("create table t (a int primary key)");
    let mut wait = |c: &mut Raw, other: &mut Raw, change: &str| {
        other.query(&format!("begin; {change}"));
        c.send(&query("copy t from stdin"));
        asker.repeat_until(waiters, &[&c.pid.to_string()]);
    };
    for (end, refused) in [("rollback", false), ("commit", true)] {
        wait(&mut c, &mut other, "alter table t add check (a > 1)");
        other.query(end);
        assert_eq!(c.next().tag, 'G');
        c.send_all(&[message(b'd', b"1\n"), message(b'c', b"")]);
        let messages = c.until_ready();
        match refused {
            false => assert_eq!(messages[0].text(), "COPY 1"),
            true => assert_eq!(messages[0].code(), "23514"),
        }
        c.query("delete from t");
    }
    wait(&mut c, &mut other, "truncate t");
    cancel(&server, c.pid, c.secret);
    assert_eq!(c.until_ready()[0].code(), "57014");
    other.query("rollback");
    wait(&mut c, &mut other, "drop table t");
    other.query("commit");
    assert_eq!(c.until_ready()[0].code(), "42P01");
    assert_eq!(c.column("select 1"), ["1"]);
}

/// Sends a cancel request and waits until the server has accepted it.
fn cancel(server: &Fixture, pid: i32, secret: i32) {
    let mut packet = vec![0, 0, 0, 16, 4, 210, 22, 46];
    packet.extend(pid.to_be_bytes());
    packet.extend(secret.to_be_bytes());
    let mut other = Raw::open(server.address());
    other.send(&packet);
    assert!(other.try_next().is_none());
}

#[test]
fn cancel_request_ends_the_running_statement() {
    let server = Fixture::new("cancel");
    let (mut sleeper, mut waiter, mut holder) =
        (server.connect(), server.connect(), server.connect());
    holder.query("create table t (a int primary key, b int)");
    holder.query("insert into t values (1, 1)");
    let cancel = |c: &Raw, secret: i32| cancel(&server, c.pid, secret);
    // A request that arrives before the statement cancels nothing, so it is repeated. A surplus
    // request would cancel the session's next statement.
    let cancelled = |mut c: Raw| {
        let began = Instant::now();
        while !c.hears_within(MOMENT) {
            assert!(began.elapsed() < LIMIT, "the statement is not cancelled");
            cancel(&c, c.secret);
        }
        c.until_ready()[0].code()
    };
    sleeper.send(&query("select pg_sleep(1000)"));
    cancel(&sleeper, sleeper.secret ^ 1);
    assert!(!sleeper.hears_within(MOMENT));
    assert_eq!(cancelled(sleeper), "57014");
    // The same while waiting for a row lock.
    holder.query("begin; update t set b = 2 where a = 1");
    waiter.send(&query("update t set b = 3 where a = 1"));
    assert!(!waiter.hears_within(MOMENT));
    assert_eq!(cancelled(waiter), "57014");
    holder.query("rollback");
    assert_eq!(holder.column("select b from t"), ["1"]);
}

/// Cancels statements whose first reply has arrived, and checks that not all of them ran.
fn cancel_unread(server: &Fixture, c: &mut Raw, statements: usize) {
    assert!(c.hears_within(LIMIT));
    cancel(server, c.pid, c.secret);
    let messages = c.until_ready();
    let [.., error, _] = messages.as_slice() else { panic!("{} messages", messages.len()) };
    assert_eq!((error.tag, error.code().as_str()), ('E', "57014"));
    assert!(messages.iter().filter(|m| m.tag == 'D').count() < statements);
}

/// A query of short statements is cancelled although none of them can be.
#[test]
fn cancel_request_ends_a_query_between_two_statements() {
    const STATEMENTS: usize = 1000;
    let server = Fixture::new("cancel-between");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    let statements = "; select repeat('x', 100000)".repeat(STATEMENTS);
    c.send(&query(&format!("insert into t values (1){statements}")));
    // The client reads nothing, so the server cannot send all of the results: it stops early in the
    // query, and the request comes before the end.
    cancel_unread(&server, &mut c, STATEMENTS);
    // The implicit transaction is undone, and the next query runs.
    assert_eq!(c.column("select count(*) from t"), ["0"]);
}

/// The same for a pipeline: a group of messages up to its Sync.
#[test]
fn cancel_request_ends_a_pipeline_between_two_statements() {
    const STATEMENTS: usize = 1000;
    let server = Fixture::new("cancel-pipeline");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    c.query("prepare i as insert into t values (1); prepare r as select repeat('x', 100000)");
    let run = |name: &str| [bind("", name, &[], false), execute("", 0)].concat();
    c.send_all(&[run("i"), run("r").repeat(STATEMENTS), sync()]);
    cancel_unread(&server, &mut c, STATEMENTS);
    // The group is undone, and the next one runs.
    c.send_all(&[run("i"), sync()]);
    assert_eq!(c.tags(), "2CZI");
    assert_eq!(c.column("select count(*) from t"), ["1"]);
}

#[test]
fn sleeping_session_does_not_block_its_worker() {
    let server = Fixture::with("sleep", |config| config.workers = 1);
    let (mut a, mut b) = (server.connect(), server.connect());
    a.send(&query("select pg_sleep(0.2)"));
    assert_eq!(b.column("select 1"), ["1"]);
    assert_eq!(a.tags(), "TDCZI");
}

#[test]
fn settings_follow_transactions() {
    let server = Fixture::new("settings");
    let mut c = server.connect();
    let tags: String = c.query("set application_name = 'x'").iter().map(|m| m.tag).collect();
    assert_eq!(tags, "SCZ");
    c.query("begin; set application_name = 'y'; set local jit = on");
    assert_eq!(c.column("show jit"), ["on"]);
    c.query("commit");
    assert_eq!(
        (c.column("show jit"), c.column("show application_name")),
        (vec!["off".into()], vec!["y".into()])
    );
    c.query("begin; set application_name = 'z'");
    c.query("rollback");
    assert_eq!(c.column("show application_name"), ["y"]);
    assert_eq!(c.column("show nonsense"), ["42704"]);
    assert_eq!(c.column("set client_encoding = 'latin1'"), ["0A000"]);
}

/// The messages that run one statement of a pipeline.
fn run(sql: &str) -> Vec<u8> {
    [parse("", sql, &[]), bind("", "", &[], false), execute("", 0)].concat()
}

/// COMMIT and ROLLBACK settle the settings of their transaction, also inside a query or a pipeline.
#[test]
fn settings_follow_transactions_inside_a_message_group() {
    let server = Fixture::new("settings-in-groups");
    let mut c = server.connect();
    c.query("set application_name = 'old'");
    for (statements, name) in [
        ("begin; set application_name = 'x'; rollback", "old"),
        ("begin; set application_name = 'x'; rollback; select 1", "old"),
        ("begin; set application_name = 'x'; commit; select 1 / 0", "x"),
        ("set application_name = 'y'; commit; select 1 / 0", "y"),
        ("set application_name = 'z'; rollback; select 1", "y"),
        ("begin; select 1; commit; set application_name = 'z'; select 1 / 0", "y"),
    ] {
        for pipeline in [false, true] {
            if pipeline {
                let mut messages: Vec<_> = statements.split("; ").map(run).collect();
                messages.push(sync());
                c.send_all(&messages);
                c.until_ready();
            } else {
                c.query(statements);
            }
            c.query("rollback");
            assert_eq!(c.column("show application_name"), [name], "{statements:?} {pipeline}");
        }
    }
    assert_eq!(c.column("begin; set local jit = on; show jit; commit; show jit"), ["on", "off"]);
}

#[test]
fn transactions_of_a_pipeline_have_their_own_time() {
    let server = Fixture::new("times-in-groups");
    let mut c = server.connect();
    let statements = [
        "begin",
        "select now()",
        "select pg_sleep(0.01)",
        "select now()",
        "commit",
        "select now()",
        "rollback",
    ];
    c.send_all(&statements.map(run));
    c.send(&sync());
    let answer = c.until_ready();
    let rows: Vec<_> = answer.iter().filter(|m| m.tag == 'D').map(Message::values).collect();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[0], rows[2]);
    assert_ne!(rows[0], rows[3]);
}

#[test]
fn sql_prepare_and_execute() {
    let server = Fixture::new("prepare");
    let mut c = server.connect();
    c.query("prepare p (int) as select $1 + 1");
    assert_eq!(c.column("execute p(41)"), ["42"]);
    assert_eq!(c.column("execute p"), ["42601"]);
    assert_eq!(c.column("prepare p as select 1"), ["42P05"]);
    assert_eq!(c.column("prepare q (int text) as select $1, $2"), ["42601"]);
    c.query("deallocate p");
    assert_eq!(c.column("execute p(1)"), ["26000"]);
}

#[test]
fn stopping_server_ends_its_sessions() {
    let server = Fixture::new("stop");
    let [mut idle, mut open, mut partial] = [(); 3].map(|()| server.connect());
    idle.query("create table t (a int primary key)");
    open.query("begin; insert into t values (1)");
    // It is idle, too: its message is incomplete.
    partial.send(&query("select 1")[..7]);
    server.stop();
    assert_eq!(partial.next().code(), "57P01");
    assert_eq!(idle.next().code(), "57P01");
    assert!(idle.try_next().is_none());
    assert_eq!(open.next().code(), "57P01");
}

#[test]
fn client_that_has_closed_its_side_gets_its_replies() {
    let server = Fixture::new("half-close");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    c.send(&query("insert into t values (1)"));
    c.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(c.tags(), "CZI");
    assert!(c.try_next().is_none());
}

/// No Sync has committed the group or asked for its replies.
#[test]
fn terminate_undoes_an_open_group() {
    let server = Fixture::new("terminate");
    let (mut c, mut other) = (server.connect(), server.connect());
    other.query("create table t (a int primary key)");
    c.send_all(&[run("insert into t values (1)"), message(b'X', b"")]);
    let mut rest = Vec::new();
    c.stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    assert_eq!(other.query("insert into t values (1)")[0].text(), "INSERT 0 1");
}

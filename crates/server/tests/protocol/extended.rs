//! The extended protocol: pipelines, Flush, errors up to Sync, portals, replanned statements.

use crate::raw::{Fixture, bind, close, describe, execute, flush, message, parse, query, sync};

#[test]
fn pipeline_is_answered_in_order() {
    let server = Fixture::new("pipeline");
    let mut c = server.connect();
    let group =
        |n: &str| [bind("", "s", &[n], true), describe('P', ""), execute("", 0), sync()].concat();
    c.send_all(&[
        parse("s", "select $1::int4 + 1", &[23]),
        describe('S', "s"),
        sync(),
        group("1"),
        group("2"),
        query("select 7"),
    ]);
    assert_eq!(c.tags(), "1tTZI");
    for n in [2i32, 3] {
        let messages = c.until_ready();
        assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "2TDCZ");
        assert_eq!(messages[2].values(), [Some(n.to_be_bytes().to_vec())]);
        assert_eq!(messages[3].text(), "SELECT 1");
    }
    assert_eq!(c.tags(), "TDCZI");
}

#[test]
fn flush_sends_the_replies_so_far() {
    let server = Fixture::new("flush");
    let mut c = server.connect();
    c.send_all(&[parse("", "select 1", &[]), describe('S', ""), flush()]);
    assert_eq!([c.next().tag, c.next().tag, c.next().tag], ['1', 't', 'T']);
    c.send_all(&[bind("", "", &[], false), execute("", 0), flush()]);
    assert_eq!([c.next().tag, c.next().tag, c.next().tag], ['2', 'D', 'C']);
    c.send(&sync());
    assert_eq!(c.tags(), "ZI");
}

#[test]
fn error_is_sent_without_waiting_for_flush() {
    let server = Fixture::new("flush-error");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    c.query("insert into t values (1)");
    for (messages, before, code) in [
        // As asyncpg prepares a statement.
        (vec![parse("", "select * from nosuch", &[]), describe('S', ""), flush()], "", "42P01"),
        // PostgreSQL sends errors without being asked by a Flush.
        (vec![parse("", "select * from nosuch", &[])], "", "42P01"),
        (vec![parse("", "select 1", &[]), bind("", "", &["x"], false), flush()], "1", "08P01"),
        (
            vec![
                parse("", "insert into t values (1)", &[]),
                bind("", "", &[], false),
                execute("", 0),
                flush(),
            ],
            "12",
            "23505",
        ),
        (vec![execute("nosuch", 0), flush()], "", "34000"),
        (vec![message(b'B', b"xx"), flush()], "", "08P01"),
    ] {
        c.send_all(&messages);
        let tags: String = before.chars().map(|_| c.next().tag).collect();
        assert_eq!(tags, before);
        assert_eq!(c.next().code(), code);
        // Everything up to the Sync is skipped, even Flush.
        c.send_all(&[parse("", "select 1", &[]), flush(), query("select 1"), sync()]);
        assert_eq!(c.tags(), "ZI");
    }
}

#[test]
fn invariant_2_after_an_error_messages_are_skipped_to_sync() {
    let server = Fixture::new("skip");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    let insert = |n: &str| [bind("", "i", &[n], false), execute("", 0)].concat();
    c.send_all(&[
        parse("i", "insert into t values ($1)", &[]),
        insert("1"),
        insert("1"),
        insert("2"),
        parse("x", "nonsense", &[]),
        sync(),
    ]);
    let messages = c.until_ready();
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "12C2EZ");
    assert_eq!(messages[4].code(), "23505");
    // A group is one implicit transaction: the first insert was rolled back with it.
    assert_eq!(c.column("select count(*) from t"), ["0"]);
    c.send_all(&[insert("3"), insert("4"), sync(), insert("5"), sync()]);
    assert_eq!([c.tags(), c.tags()], ["2C2CZI", "2CZI"]);
    assert_eq!(c.column("select count(*) from t"), ["3"]);
}

#[test]
fn portal_returns_its_rows_in_parts() {
    let server = Fixture::new("portal");
    let mut c = server.connect();
    c.send(&query("begin"));
    assert_eq!(c.tags(), "CZT");
    c.send_all(&[parse("", "select * from generate_series(1, 4)", &[]), bind("p", "", &[], false)]);
    c.send_all(&[execute("p", 3), sync()]);
    assert_eq!(c.tags(), "12DDDsZT");
    c.send_all(&[execute("p", 1), sync()]);
    // Exactly the requested number: the portal is still suspended.
    assert_eq!(c.tags(), "DsZT");
    c.send_all(&[execute("p", 1), sync()]);
    let messages = c.until_ready();
    assert_eq!((messages[0].tag, messages[0].text().as_str()), ('C', "SELECT 0"));
    c.send_all(&[close('P', "p"), execute("p", 1), sync()]);
    let messages = c.until_ready();
    assert_eq!((messages[0].tag, messages[1].code().as_str()), ('3', "34000"));
    c.send(&query("rollback"));
    assert_eq!(c.tags(), "CZI");
}

/// As in PostgreSQL, FETCH moves its cursor at once, however few rows its Execute returns.
#[test]
fn fetch_moves_its_cursor_by_all_of_its_rows() {
    let server = Fixture::with("fetch-limit", |config| config.query_memory = 1 << 20);
    let mut c = server.connect();
    c.query("begin; declare c cursor for select i from generate_series(1, 20) i");
    c.send_all(&[parse("", "fetch 5 from c", &[]), bind("f", "", &[], false)]);
    c.send_all(&[execute("f", 2), sync()]);
    assert_eq!(c.tags(), "12DDsZT");
    assert_eq!(c.column("fetch c"), ["6"]);
    // The rest does not depend on the cursor any more.
    c.query("close c");
    c.send_all(&[execute("f", 3), execute("f", 0), sync()]);
    let messages = c.until_ready();
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "DDDsCZ");
    assert_eq!(messages[0].values(), [Some(b"3".to_vec())]);
    assert_eq!(messages[4].text(), "FETCH 0");
    // The rows come from the cursor in several parts, and are charged to the FETCH.
    c.query("declare w cursor for select repeat('x', 10000) from generate_series(1, 1000)");
    c.send_all(&[parse("", "fetch 70 from w", &[]), bind("", "", &[], false)]);
    c.send_all(&[execute("", 69), execute("", 69), sync()]);
    assert_eq!(c.tags(), format!("12{}sDCZT", "D".repeat(69)));
    c.send_all(&[parse("", "fetch all from w", &[]), bind("", "", &[], false)]);
    c.send_all(&[execute("", 2), sync()]);
    assert_eq!(c.until_ready()[2].code(), "53200");
}

/// The tag names the command and counts the rows of the last part.
#[test]
fn suspended_portal_ends_with_its_commands_tag() {
    let server = Fixture::new("portal-tag");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    c.query("begin");
    for (sql, first, again) in [
        ("insert into t values (1), (2), (3) returning a", "INSERT 0 1", "INSERT 0 0"),
        ("update t set a = a + 10 returning a", "UPDATE 1", "UPDATE 0"),
        ("delete from t returning a", "DELETE 1", "DELETE 0"),
        ("show all", "SHOW", "SHOW"),
        ("explain select a from t where a = 1", "EXPLAIN", "EXPLAIN"),
    ] {
        c.send_all(&[parse("", sql, &[]), bind("", "", &[], false), execute("", 2), sync()]);
        assert_eq!(c.tags(), "12DDsZT", "{sql}");
        c.send_all(&[execute("", 0), execute("", 0), sync()]);
        let messages = c.until_ready();
        let tags: Vec<String> =
            messages.iter().filter(|m| m.tag == 'C').map(|m| m.text()).collect();
        assert_eq!(tags, [first, again], "{sql}");
    }
}

#[test]
fn close_does_not_close_its_own_portal() {
    let server = Fixture::new("close-own");
    let mut c = server.connect();
    c.query("begin; declare c cursor for values (1)");
    c.send_all(&[parse("", "close all", &[]), bind("p", "", &[], false), execute("p", 0), sync()]);
    assert_eq!(c.tags(), "12CZT");
    c.send_all(&[describe('P', "p"), describe('P', "c"), sync()]);
    let messages = c.until_ready();
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "nEZ");
    assert_eq!(messages[1].code(), "34000");
    c.query("rollback");
    c.send_all(&[parse("", "close p", &[]), bind("p", "", &[], false), execute("p", 0), sync()]);
    assert_eq!(c.until_ready()[2].code(), "24000");
}

#[test]
fn discard_all_keeps_the_unnamed_statement() {
    let server = Fixture::new("discard");
    let mut c = server.connect();
    let run = [bind("", "", &[], false), execute("", 0), sync()].concat();
    c.send_all(&[parse("", "discard all", &[]), run.clone(), run]);
    assert_eq!([c.tags(), c.tags()], ["12CZI", "2CZI"]);
}

#[test]
fn row_description_names_table_and_column() {
    let server = Fixture::new("origin");
    let mut c = server.connect();
    c.query("create table t (a int primary key, b text)");
    c.query("create table u (a int primary key)");
    let origin = |c: &mut crate::raw::Raw, sql: &str| {
        let body = c.query(sql)[0].body.clone();
        let at = body[2..].iter().position(|b| *b == 0).unwrap() + 3;
        let table = u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
        (table, u16::from_be_bytes(body[at + 4..at + 6].try_into().unwrap()))
    };
    let (t, column) = origin(&mut c, "select b from t");
    assert!(t >= 16_384);
    assert_eq!(column, 2);
    assert_eq!(origin(&mut c, "select x.a from t x"), (t, 1));
    assert_eq!(origin(&mut c, "insert into t values (1, 'x') returning b"), (t, 2));
    assert_ne!(origin(&mut c, "select a from u").0, t);
    assert_eq!(origin(&mut c, "select a + 1 from t"), (0, 0));
}

/// COPY ignores a Sync before the end of its data, so its group goes on to the next one.
#[test]
fn copy_commits_with_the_sync_that_ends_its_group() {
    let server = Fixture::new("copy-group");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    c.send_all(&[parse("copy", "copy t from stdin", &[]), sync()]);
    assert_eq!(c.tags(), "1ZI");
    let run = |sql: &str| [parse("", sql, &[]), bind("", "", &[], false), execute("", 0)].concat();
    let data = [message(b'd', b"1\n"), message(b'c', b"")].concat();
    for copy in ["copy t from stdin", "execute copy"] {
        c.send_all(&[run(copy), sync(), data.clone(), run("insert into t values (1)"), sync()]);
        let messages = c.until_ready();
        assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "12GC12EZ", "{copy}");
        assert_eq!(messages[6].code(), "23505");
        assert_eq!(c.column("select count(*) from t"), ["0"], "{copy}");
        c.send_all(&[run(copy), sync(), data.clone(), sync()]);
        assert_eq!(c.tags(), "12GCZI");
        assert_eq!(c.column("delete from t returning a"), ["1"], "{copy}");
    }
}

#[test]
fn portals_end_with_their_transaction() {
    let server = Fixture::new("portal-end");
    let mut c = server.connect();
    c.send_all(&[
        parse("", "select * from generate_series(1, 4)", &[]),
        bind("p", "", &[], false),
        execute("p", 1),
        sync(),
    ]);
    assert_eq!(c.tags(), "12DsZI");
    c.send_all(&[execute("p", 1), sync()]);
    assert_eq!(c.until_ready()[0].code(), "34000");
}

#[test]
fn failed_block_refuses_everything_but_its_end() {
    let server = Fixture::new("failed-block");
    let mut c = server.connect();
    c.send_all(&[
        query("begin"),
        query("bogus"),
        query("select 1"),
        query("create table x (a int)"),
    ]);
    assert_eq!(c.tags(), "CZT");
    assert_eq!(c.tags(), "EZE");
    for _ in 0..2 {
        assert_eq!(c.until_ready()[0].code(), "25P02");
    }
    // An empty statement can be parsed, but not bound.
    c.send_all(&[parse("", "", &[]), bind("", "", &[], false), sync()]);
    let messages = c.until_ready();
    assert_eq!((messages[0].tag, messages[1].code().as_str()), ('1', "25P02"));
    c.send_all(&[
        parse("", "select 1", &[]),
        sync(),
        parse("", "rollback", &[]),
        bind("", "", &[], false),
        execute("", 0),
        sync(),
    ]);
    assert_eq!(c.until_ready()[0].code(), "25P02");
    assert_eq!(c.tags(), "12CZI");
}

#[test]
fn prepared_statements_are_replanned_or_fail() {
    let server = Fixture::new("replan");
    let mut c = server.connect();
    c.query("create table t (a int primary key, b text)");
    c.query("insert into t values (1, 'x')");
    c.send_all(&[parse("s", "select * from t where a = $1", &[]), sync()]);
    assert_eq!(c.tags(), "1ZI");
    c.query("create index t_b on t (b)");
    let run = [bind("", "s", &["1"], false), execute("", 0), sync()].concat();
    c.send(&run);
    assert_eq!(c.tags(), "2DCZI");
    c.query("drop table t; create table t (a int primary key, b int)");
    c.send(&run);
    let messages = c.until_ready();
    assert_eq!((messages[0].tag, messages[0].code().as_str()), ('E', "0A000"));
    c.send_all(&[close('S', "s"), parse("s", "select * from t where a = $1", &[]), sync(), run]);
    assert_eq!([c.tags(), c.tags()], ["31ZI", "2CZI"]);
}

/// Sessions share a statement, and the clients of all of them know its columns.
#[test]
fn replan_by_one_session_keeps_the_columns_for_all() {
    let server = Fixture::with("replan-shared", |config| config.workers = 1);
    let [mut a, mut b, mut c] = [(); 3].map(|()| server.connect());
    let drop =
        "drop table t; create table t (a int primary key, b int); insert into t values (1, 7)";
    for (i, sql) in ["select * from t", "delete from t returning *"].iter().enumerate() {
        b.query("drop table if exists t; create table t (a int primary key, b text)");
        b.query("insert into t values (1, 'x')");
        let s = format!("s{i}");
        for session in [&mut a, &mut c] {
            session.send_all(&[parse(&s, sql, &[]), sync()]);
            assert_eq!(session.tags(), "1ZI");
        }
        if i == 0 {
            a.query("begin");
            a.send_all(&[bind("p", &s, &[], false), sync()]);
            assert_eq!(a.tags(), "2ZT");
            b.query(drop);
            a.send(&query("fetch all from p"));
        } else {
            b.query(&format!("begin; {drop}"));
            a.send(&query(&format!("execute {s}")));
            let waits_for =
                format!("select waits_for from clearway.sessions where pid = {}", a.pid);
            b.repeat_until(&waits_for, &["lock"]);
            b.query("commit");
        }
        assert_eq!(a.until_ready()[0].code(), "0A000", "{sql}");
        a.query("rollback");
        c.send_all(&[bind("", &s, &[], true), execute("", 0), sync()]);
        assert_eq!(c.until_ready()[0].code(), "0A000", "{sql}");
        assert_eq!(b.column("select b from t"), ["7"]);
    }
}

/// As in PostgreSQL, a statement keeps the parameter types inferred at its Parse or PREPARE.
#[test]
fn replanned_statements_keep_their_parameter_types() {
    let server = Fixture::new("replan-types");
    let mut c = server.connect();
    let types = |c: &mut crate::raw::Raw, name: &str| {
        c.send_all(&[describe('S', name), sync()]);
        let messages = c.until_ready();
        let types = messages[0].body[2..].chunks(4);
        types.map(|ty| u32::from_be_bytes(ty.try_into().unwrap())).collect::<Vec<_>>()
    };
    let find = "select b from t where a = $1";
    c.query("create table t (a int primary key, b text)");
    c.query(&format!("prepare p as {find}; prepare i as insert into t values ($1, $2)"));
    c.send_all(&[parse("s", find, &[]), sync()]);
    assert_eq!(c.tags(), "1ZI");
    c.query("drop table t; create table t (a bigint primary key, b text)");
    c.query("insert into t values (1, 'x')");
    let run = |name: &str| [bind("", name, &["1"], false), execute("", 0), sync()].concat();
    for name in ["s", "p"] {
        c.send(&run(name));
        assert_eq!(c.tags(), "2DCZI", "{name}");
        assert_eq!(types(&mut c, name), [23], "{name}");
    }
    assert_eq!(c.column("execute p(1)"), ["x"]);
    assert_eq!(c.column("execute p(4294967296)"), ["22003"]);
    assert_eq!(c.query("execute i(2, 'y')")[0].text(), "INSERT 0 1");
    // A new Parse infers them from the table of now.
    c.send_all(&[parse("new", find, &[]), sync()]);
    assert_eq!(c.tags(), "1ZI");
    assert_eq!(types(&mut c, "new"), [20]);
    // The comparison is impossible with the types of the statement.
    c.query("drop table t; create table t (a text primary key, b text)");
    for name in ["s", "p", "new"] {
        c.send(&run(name));
        assert_eq!(c.until_ready()[0].code(), "42883", "{name}");
    }
}

#[test]
fn execute_statement_has_the_columns_of_its_statement() {
    let server = Fixture::new("execute");
    let mut c = server.connect();
    c.query("prepare q (int) as select g, 'x' from generate_series(1, $1) g");
    c.send_all(&[
        parse("", "execute q(3)", &[]),
        describe('S', ""),
        bind("", "", &[], true),
        describe('P', ""),
        execute("", 2),
        execute("", 0),
        execute("", 0),
        sync(),
    ]);
    let messages = c.until_ready();
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "1tT2TDDsDCCZ");
    assert_eq!(messages[8].values(), [Some(3i32.to_be_bytes().to_vec()), Some(b"x".to_vec())]);
    assert_eq!([messages[9].text(), messages[10].text()], ["SELECT 1", "SELECT 0"]);
    // A statement without rows, and one that does not exist.
    c.query("create table t (a int primary key); prepare i as insert into t values (1)");
    for (name, tags, code) in [("i", "1tn2nCZ", ""), ("nosuch", "1tn2nEZ", "26000")] {
        let sql = format!("execute {name}");
        let described = [describe('S', ""), bind("", "", &[], false), describe('P', "")].concat();
        c.send_all(&[parse("", &sql, &[]), described, execute("", 0), sync()]);
        let messages = c.until_ready();
        assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), tags);
        assert_eq!(messages[5].code(), code);
    }
    // The name belongs to another statement when it is executed.
    c.send_all(&[
        parse("change", "deallocate q", &[]),
        parse("again", "prepare q as select 'text'", &[]),
        parse("", "execute q(1)", &[]),
        bind("", "", &[], false),
        bind("p", "change", &[], false),
        execute("p", 0),
        bind("r", "again", &[], false),
        execute("r", 0),
        execute("", 0),
        sync(),
    ]);
    let messages = c.until_ready();
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "11122C2CEZ");
    assert_eq!(messages[8].code(), "0A000");
}

/// A suspended EXECUTE is the suspended query: its own transaction's changes do not show.
#[test]
fn suspended_execute_does_not_see_later_changes() {
    const ROWS: usize = 20_000;
    let server = Fixture::new("execute-suspended");
    let mut c = server.connect();
    c.query("create table t (id int primary key, n int)");
    c.query(&format!("insert into t select i, 0 from generate_series(1, {ROWS}) i"));
    c.query("prepare q as select n, repeat('x', 100) from t");
    c.query("begin");
    c.send_all(&[parse("", "execute q", &[]), bind("p", "", &[], false), execute("p", 2), sync()]);
    assert_eq!(c.tags(), "12DDsZT");
    assert_eq!(c.query("update t set n = 1")[0].text(), format!("UPDATE {ROWS}"));
    c.send_all(&[execute("p", 0), sync()]);
    let messages = c.until_ready();
    let rows: Vec<_> = messages.iter().filter(|m| m.tag == 'D').collect();
    assert_eq!(rows.len(), ROWS - 2);
    assert!(rows.iter().all(|row| row.values()[0] == Some(b"0".to_vec())));
}

/// As in PostgreSQL, whatever the number of result formats.
#[test]
fn bind_ignores_result_formats_of_a_statement_without_rows() {
    let server = Fixture::new("no-columns");
    let mut c = server.connect();
    c.query("create table t (a int)");
    // No parameters, and two result formats.
    let bound = message(b'B', b"\0\0\0\0\0\0\0\x02\0\x01\0\x01");
    let [parse, execute] = [parse("", "insert into t values (1)", &[]), execute("", 0)];
    c.send_all(&[parse, bound, execute, sync()]);
    assert_eq!(c.tags(), "12CZI");
}

/// A simple query is the last statement of a pipeline that no Sync has ended.
#[test]
fn simple_query_in_a_pipeline_is_in_its_transaction() {
    let server = Fixture::new("simple-in-pipeline");
    let mut c = server.connect();
    c.query("create table t (a int)");
    for refused in ["vacuum t", "discard all"] {
        c.send_all(&[parse("", "insert into t values (1)", &[]), bind("", "", &[], false)]);
        c.send_all(&[execute("", 0), query(refused)]);
        let messages = c.until_ready();
        assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "12CEZ", "{refused}");
        assert_eq!(messages[3].code(), "25001");
        assert_eq!(c.column("select count(*) from t"), ["0"]);
    }
}

#[test]
fn wrong_messages_get_their_sqlstates() {
    let server = Fixture::new("wrong");
    let mut c = server.connect();
    for (bytes, code) in [
        (bind("", "none", &[], false), "26000"),
        (execute("none", 0), "34000"),
        (describe('S', "none"), "26000"),
        (parse("", "select 1; select 2", &[]), "42601"),
        ([parse("", "select $1::int4", &[]), bind("", "", &[], false)].concat(), "08P01"),
        ([parse("", "select $1::int4", &[]), bind("", "", &["x"], false)].concat(), "22P02"),
        (message(b'B', b"xx"), "08P01"),
    ] {
        c.send_all(&[bytes, sync()]);
        let messages = c.until_ready();
        assert_eq!(messages[messages.len() - 2].code(), code);
    }
    // Out of sync: nothing that follows can be decoded.
    c.send(&message(0xff, b""));
    assert_eq!(c.next().code(), "08P01");
    assert!(c.try_next().is_none());
}

#[test]
fn failed_begin_ends_the_transaction_of_its_pipeline() {
    let server = Fixture::new("failed-begin");
    let mut c = server.connect();
    c.query("create table t (a int primary key)");
    let run = |sql: &str| [parse("", sql, &[]), bind("", "", &[], false), execute("", 0)].concat();
    let begin = run("begin isolation level serializable");
    c.send_all(&[run("insert into t values (1)"), begin, run("select 1"), sync()]);
    let messages = c.until_ready();
    assert_eq!(messages.iter().map(|m| m.tag).collect::<String>(), "12C12EZ");
    assert_eq!((messages[5].code(), messages[6].text()), ("25001".to_owned(), "I".to_owned()));
    assert_eq!(c.column("select count(*) from t"), ["0"]);
}

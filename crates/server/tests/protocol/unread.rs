//! Large results whose client cancels, or closes its side, before it has read them.

use crate::raw::{bind, execute, message, parse, query, sync};
use crate::streams::{
    ROWS, WIDE, fixture, fixture_with, summary, tags, waits_for_client, waits_for_end,
};
use std::io::Read;
use std::net::Shutdown;

/// A sorted result is complete before it is sent. It can be cancelled all the same.
#[test]
fn sorted_result_is_cancelled_while_it_is_sent() {
    let (server, mut asker) = fixture("stream-sorted");
    let mut c = server.connect();
    let cancel = format!("select pg_cancel_backend({})", c.pid);
    let sorted = format!("{WIDE} order by n");
    let copy = format!("copy ({sorted}) to stdout");
    let pipeline = [parse("", &sorted, &[]), bind("", "", &[], false), execute("", 0), sync()];
    for (messages, before) in
        [(query(&sorted), "T"), (query(&copy), "H"), (pipeline.concat(), "12")]
    {
        c.send(&messages);
        waits_for_client(&mut asker, c.pid);
        asker.query(&cancel);
        let (others, rows) = summary(&mut c);
        assert_eq!(tags(&others), format!("{before}EZ"));
        assert_eq!(others[before.len()].code(), "57014");
        assert!(rows < ROWS, "{rows} rows");
    }
    // By its timeout.
    c.query("set statement_timeout = 1000");
    c.send(&query(&sorted));
    // It ends before its client has read anything.
    waits_for_end(&mut asker, &sorted);
    let (others, _) = summary(&mut c);
    assert_eq!(others[others.len() - 2].code(), "57014");
    server.stop();
}

/// RETURNING's rows are complete before they are sent. The change is undone if it is not committed
/// yet; otherwise it has succeeded.
#[test]
fn returning_is_cancelled_unless_it_has_committed() {
    let (server, mut asker) = fixture("stream-returning");
    let mut c = server.connect();
    let cancel = format!("select pg_cancel_backend({})", c.pid);
    let change = "update t set n = n + 1 returning id, repeat('x', 1000), n";
    c.query("begin");
    c.send(&query(change));
    waits_for_client(&mut asker, c.pid);
    asker.query(&cancel);
    assert_eq!(asker.query("update t set n = n")[0].text(), format!("UPDATE {ROWS}"));
    let (others, _) = summary(&mut c);
    assert_eq!((tags(&others), others[1].code()), ("TEZ".to_owned(), "57014".to_owned()));
    c.query("rollback");
    c.send(&query(change));
    waits_for_client(&mut asker, c.pid);
    asker.query(&cancel);
    assert_eq!(asker.column("select sum(n) from t"), [ROWS.to_string()]);
    let (others, rows) = summary(&mut c);
    assert_eq!((tags(&others), rows), ("TCZ".to_owned(), ROWS));
    server.stop();
}

/// A client that has sent its last message gets its replies, although they do not fit into the
/// buffers of the server and the network.
#[test]
fn client_that_has_closed_its_side_gets_a_large_result() {
    let (server, mut asker) = fixture("stream-half-close");
    for terminates in [false, true] {
        let mut c = server.connect();
        c.send(&query(WIDE));
        if terminates {
            c.send(&message(b'X', b""));
        } else {
            c.stream.shutdown(Shutdown::Write).unwrap();
        }
        waits_for_client(&mut asker, c.pid);
        let (others, rows) = summary(&mut c);
        assert_eq!((tags(&others), rows), ("TCZ".to_owned(), ROWS));
        assert_eq!(c.stream.read(&mut [0]).unwrap(), 0);
    }
    server.stop();
}

/// Such a client may stop reading: then its connection is closed.
#[test]
fn client_that_does_not_read_on_is_closed() {
    let (server, mut asker) =
        fixture_with("stream-unread", |config| config.startup_timeout_ms = 2_000);
    let mut c = server.connect();
    c.query("begin; update t set n = 1 where id = 1");
    c.send(&query(WIDE));
    c.stream.shutdown(Shutdown::Write).unwrap();
    waits_for_client(&mut asker, c.pid);
    // Read until the server has handled the end of the stream. Part of the reply is still unsent.
    let is_listed = format!("select count(*) from clearway.sessions where pid = {}", c.pid);
    while asker.column(&is_listed) == ["1"] {
        c.stream.read_exact(&mut [0; 64 << 10]).unwrap();
    }
    // Its transaction has ended.
    assert_eq!(asker.query("update t set n = n")[0].text(), format!("UPDATE {ROWS}"));
    asker.repeat_until("select sessions from clearway.activity", &["1"]);
    server.stop();
}

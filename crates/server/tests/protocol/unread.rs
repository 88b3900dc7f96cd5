//! Large results whose client cancels before it has read them.

use crate::raw::{bind, execute, parse, query, sync};
use crate::streams::{ROWS, WIDE, fixture, summary, tags, waits_for_client};

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
    let text = sorted.replace('\'', "''");
    // It ends before its client has read anything.
    let state = format!("select state from clearway.sessions where statement = '{text}'");
    asker.repeat_until(&state, &["idle"]);
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

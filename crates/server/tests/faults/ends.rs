//! Waiting for sessions that cannot end yet.

use crate::check::checkpoint;
use crate::place::LIMIT;
use crate::world::{connect, start};
use clearway_env::OsClock;
use clearway_harness::client::{PgClient, QueryError, data_row, field};
use clearway_testkit::{MemDisk, OpKind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Waits until this condition holds for the session's row in `clearway.sessions`.
fn waits_for(observer: &mut PgClient, pid: i64, what: &str) {
    let began = Instant::now();
    let sql = format!("select count(*) from clearway.sessions where pid = {pid} and {what}");
    while observer.number(&sql) != Ok(1) {
        assert!(began.elapsed() < LIMIT, "the session never reaches {what}");
        std::thread::yield_now();
    }
}

/// CHECKPOINT cannot be interrupted: its session does not end while the disk does not complete a
/// sync of pages.
#[test]
fn terminate_waits_until_the_end_or_its_timeout() {
    let disk = MemDisk::new();
    let server = start(&disk, Arc::new(OsClock));
    let (mut victim, mut asker, mut observer) =
        (connect(&server), connect(&server), connect(&server));
    // From here on no other checkpoint writes the table's pages, so the victim's has pages to sync.
    checkpoint(&mut observer);
    observer.query("create table t (a int primary key)").unwrap();
    observer.query("insert into t values (1)").unwrap();
    let [pid, asking] =
        [&mut victim, &mut asker].map(|client| client.number("select pg_backend_pid()").unwrap());
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = gate.clone();
    disk.set_hook(Some(Arc::new(move |operation| {
        if operation.kind == OpKind::Sync && operation.path.starts_with(Path::new("/data/data")) {
            drop(held.1.wait_while(held.0.lock().unwrap(), |open| !*open).unwrap());
        }
    })));
    victim.send("checkpoint").unwrap();
    waits_for(&mut observer, pid, "state = 'active'");
    let messages = asker.messages(
        &format!("select pg_terminate_backend({pid}, 1), pg_terminate_backend({pid}, 20)"),
        None,
    );
    let messages = messages.unwrap();
    let warnings: Vec<_> = messages
        .iter()
        .filter(|(tag, _)| *tag == b'N')
        .map(|(_, body)| field(body, b'M'))
        .collect();
    let text = |rest| format!("backend with PID {pid} did not terminate within {rest}");
    assert_eq!(warnings, [text("1 millisecond"), text("20 milliseconds")]);
    let row =
        messages.iter().find(|(tag, _)| *tag == b'D').and_then(|(_, body)| data_row(body)).unwrap();
    assert_eq!(row, [Some("f".to_owned()), Some("f".to_owned())]);
    // One wait is cancelled; the next one completes.
    asker.send(&format!("select pg_terminate_backend({pid}, 100000000)")).unwrap();
    waits_for(&mut observer, asking, "waits_for = 'session'");
    observer.query(&format!("select pg_cancel_backend({asking})")).unwrap();
    assert!(matches!(asker.receive(), Err(QueryError::Sql { code, .. }) if code == "57014"));
    asker.send(&format!("select pg_terminate_backend({pid}, 100000000), 5")).unwrap();
    waits_for(&mut observer, asking, "waits_for = 'session'");
    disk.set_hook(None);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let answer = asker.receive().unwrap();
    assert_eq!(
        (answer.rows, answer.notices),
        (vec![vec![Some("t".into()), Some("5".into())]], Vec::new())
    );
    assert_eq!(
        observer.number(&format!("select count(*) from clearway.sessions where pid = {pid}")),
        Ok(0)
    );
    server.stop().unwrap();
}

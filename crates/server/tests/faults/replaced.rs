//! A data directory that is moved away while its server runs, so that another one takes its name.

use crate::place::{LIMIT, Place, binary, run};
use crate::stop::start;
use clearway_harness::client::PgClient;
use clearway_harness::process::Running;
use std::path::Path;
use std::process::Command;

/// Starts a server in a new directory, and makes a database with several segments of log.
fn make(data: &Path) -> (Running, PgClient) {
    let (server, endpoint) = start(data);
    let mut client = PgClient::connect(&endpoint, LIMIT).unwrap();
    client.query("create table t (a int primary key, b text)").unwrap();
    let fill = "insert into t select i, repeat('x', 1000) from generate_series(1, 4000) i";
    client.query(fill).unwrap();
    (server, client)
}

/// As after `kill PID; mv data old; clearway restore backup data; clearway serve`: the first server
/// still runs, and at its end would remove old log by names that are the second one's.
#[test]
fn server_without_its_directory_leaves_the_next_one_alone() {
    let place = Place::new("replaced");
    let (data, moved) = (place.data(), place.path().join("moved"));
    let (old, _) = make(&data);
    std::fs::rename(&data, &moved).unwrap();
    let (mut new, mut client) = make(&data);
    old.signal("TERM").unwrap();
    let stopped = old.finish(LIMIT).unwrap();
    client.query("insert into t values (0)").unwrap();
    new.kill();

    for directory in [&data, &moved] {
        let done = run(Command::new(binary()).arg("check").arg(directory));
        assert!(done.status.success(), "{}", done.output);
    }
    let (server, endpoint) = start(&data);
    let mut client = PgClient::connect(&endpoint, LIMIT).unwrap();
    assert_eq!(client.number("select count(*) from t").unwrap(), 4001);
    server.signal("TERM").unwrap();
    assert_eq!(server.finish(LIMIT).unwrap().status.code(), Some(0));

    let says = format!("{} was removed or replaced while", data.display());
    assert!(stopped.output.contains(&says), "{}", stopped.output);
    assert_eq!(stopped.status.code(), Some(10), "{}", stopped.output);
}

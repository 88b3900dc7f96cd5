//! A server whose log can no longer be written: it stops and says why, with an exit code of its
//! own, and acknowledges nothing more.

use crate::check::checkpoint;
use crate::place::{LIMIT, Place, binary};
use clearway_harness::Endpoint;
use clearway_harness::client::PgClient;
use clearway_harness::process::Running;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const ROOM: &str = "1MiB";

/// Starts a server with a small log and rare checkpoints.
pub fn start(data: &Path) -> (Running, Endpoint) {
    let mut command = Command::new(binary());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--partitions",
        "2",
        "--workers",
        "1",
        "--buffer-pool",
        "8MiB",
    ]);
    command
        .args(["--log-segment", ROOM, "--log-buffer", ROOM, "--log-filter", "off"])
        .args(["--checkpoint-interval-s", "3600", "--data"])
        .arg(data);
    let mut running = Running::start(&mut command, "").unwrap();
    loop {
        assert!(running.line(LIMIT).unwrap().is_some(), "no start:\n{}", running.output());
        if let Some((_, rest)) = running.output().split_once("listens on 127.0.0.1:") {
            let port = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
            return (running, Endpoint::loopback(port));
        }
    }
}

/// Makes every further write to a file fail, by limiting the size of the process's files.
fn forbid_writes(server: &Running) {
    let status = Command::new("prlimit")
        .args(["--fsize=0:0", "--pid", &server.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn unwritable_log_stops_the_server() {
    let place = Place::new("stop");
    let (server, endpoint) = start(&place.data());
    let mut client = PgClient::connect(&endpoint, LIMIT).unwrap();
    client.query("create table t (a int primary key)").unwrap();
    let mut acknowledged = 0;
    while acknowledged < 50 {
        client.query(&format!("insert into t values ({acknowledged})")).unwrap();
        acknowledged += 1;
    }
    // No checkpoint is in progress or due: the log is the first file that cannot be written.
    checkpoint(&mut client);
    forbid_writes(&server);
    let began = Instant::now();
    // Not acknowledged: the server stops first.
    assert!(client.query("insert into t values (-1)").is_err());
    let done = server.finish(LIMIT).unwrap();
    assert!(began.elapsed() < LIMIT);
    assert_eq!(done.status.code(), Some(10), "{}", done.output);
    let lines: Vec<&str> =
        done.output.lines().filter(|line| !line.contains("listens on")).collect();
    assert!(
        lines[0].starts_with("clearway: the log cannot be written: ")
            && lines[0].contains("File too large"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("hint: "), "{lines:?}");

    let (server, endpoint) = start(&place.data());
    let mut client = PgClient::connect(&endpoint, LIMIT).unwrap();
    assert_eq!(client.number("select count(*) from t where a >= 0").unwrap(), acknowledged);
    server.signal("TERM").unwrap();
    assert_eq!(server.finish(LIMIT).unwrap().status.code(), Some(0));
}

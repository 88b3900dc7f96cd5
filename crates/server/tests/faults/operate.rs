//! What an operator does with a server: choose its directory, stop it, read its log.

use crate::exits::{refused, serve, started, until_ready};
use crate::place::{LIMIT, Place, binary, is_available, run};
use clearway_harness::Endpoint;
use clearway_harness::client::PgClient;
use clearway_harness::process::Running;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Starts a server that logs, and waits until it listens.
fn logging(place: &Place) -> Running {
    let mut command = Command::new(binary());
    command.args([
        "serve",
        "--listen",
        "localhost:0",
        "--log_filter",
        "info",
        "--buffer_pool=8MiB",
        "--partitions",
        "2",
    ]);
    let mut running = Running::start(command.arg("--data").arg(place.data()), "").unwrap();
    while !running.output().contains("listens on") {
        assert!(running.line(LIMIT).unwrap().is_some(), "no start:\n{}", running.output());
    }
    running
}

/// The command of [`serve`] with another filter for the log.
fn logs(filter: &str, serve: &Command) -> Command {
    let mut command = Command::new(serve.get_program());
    command.args(serve.get_args().map(|arg| if arg == "off" { filter.as_ref() } else { arg }));
    command
}

#[test]
fn foreign_directory_is_left_alone() {
    let place = Place::new("foreign");
    for name in ["PG_VERSION", "notes.txt"] {
        let other = place.path().join(format!("of-{name}"));
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join(name), "15\n").unwrap();
        refused(&mut serve(&other), 5, "is not empty and has no control file");
        assert_eq!(names(&other), [name]);
    }
}

#[test]
fn copy_inside_its_source_is_refused() {
    let place = Place::new("inside");
    let backup = |from: &Path, to: &Path| {
        let mut command = Command::new(binary());
        command.arg("backup").arg(from).arg(to);
        command
    };
    let server = started(&place.data());
    refused(&mut backup(&place.data(), &place.data().join("inside")), 5, "is inside");
    server.signal("TERM").unwrap();
    assert_eq!(server.finish(LIMIT).unwrap().status.code(), Some(0));
    let before = names(&place.data());
    std::os::unix::fs::symlink(place.data(), place.path().join("link")).unwrap();
    for inside in ["data/inside", "data/wal/../inside", "link/inside", "data/data/deep/er"] {
        refused(&mut backup(&place.data(), &place.path().join(inside)), 5, "is inside");
    }
    assert_eq!(names(&place.data()), before);
    let copy = place.path().join("data-copy");
    assert!(run(&mut backup(&place.data(), &copy)).status.success());
    let mut restore = Command::new(binary());
    refused(restore.arg("restore").arg(&copy).arg(copy.join("inside")), 5, "is inside");
}

/// Returns true if a process ignores SIGHUP.
fn ignores_hangup(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1
}

#[test]
fn every_signal_stops_cleanly_and_is_logged() {
    let place = Place::new("signals");
    let mut signals = vec!["TERM", "INT"];
    if ignores_hangup("self") {
        println!("SKIPPED HUP: this process ignores it, and so do those that it starts");
    } else {
        signals.push("HUP");
    }
    for (n, signal) in signals.into_iter().enumerate() {
        let running = logging(&place);
        running.signal(signal).unwrap();
        let done = running.finish(LIMIT).unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", done.output);
        assert!(
            done.output.contains("stopping") && done.output.contains("stopped"),
            "{}",
            done.output
        );
        assert!(done.output.contains("no authentication"), "{}", done.output);
        // Only the first start creates the directory; the others recover it.
        assert_eq!(done.output.contains("a new data directory"), n == 0, "{}", done.output);
        assert_eq!(done.output.contains("recovery took"), n > 0, "{}", done.output);
    }
}

#[test]
fn refused_memory_is_a_usage_error() {
    let overcommits = std::fs::read_to_string("/proc/sys/vm/overcommit_memory")
        .is_ok_and(|text| text.trim() == "1");
    if overcommits {
        println!("SKIPPED: this system grants all memory");
        return;
    }
    let place = Place::new("memory");
    let mut command = Command::new(binary());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--log-filter",
        "off",
        "--buffer-pool",
        "15TiB",
        "--data",
    ]);
    refused(command.arg(place.data()), 2, "the system refuses to allocate");
    assert!(!place.data().exists());
}

/// The same port at two addresses: the sockets would have the same name.
#[test]
fn unix_socket_of_a_running_server_is_not_taken() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new("sockets");
    let sockets = place.path().join("sockets");
    std::fs::create_dir(&sockets).unwrap();
    let with = |data: &str, listen: &str| {
        let mut command = Command::new(binary());
        command.args(["serve", "--log-filter", "off", "--buffer-pool", "8MiB", "--workers", "1"]);
        command.args(["--partitions", "2", "--listen", listen, "--unix-socket"]).arg(&sockets);
        command.arg("--data").arg(place.path().join(data));
        command
    };
    let mut server = Running::start(&mut with("a", "127.0.0.1:0"), "").unwrap();
    let port = until_ready(&mut server);
    let socket = sockets.join(format!(".s.PGSQL.{port}"));
    let before = std::fs::metadata(&socket).unwrap().ino();
    let mut other = with("b", &format!("127.0.0.2:{port}"));
    refused(&mut other, 3, &format!("{}: it is in use by another server", socket.display()));
    assert_eq!(std::fs::metadata(&socket).unwrap().ino(), before);
    server.signal("TERM").unwrap();
    assert_eq!(server.finish(LIMIT).unwrap().status.code(), Some(0));
    assert!(!socket.exists());
}

/// The log opens a file for each of its segments.
#[test]
fn connections_leave_descriptors_for_files() {
    let place = Place::new("descriptors");
    let limited = |files: u64, program: &Command| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files}:{files}"));
        command.arg(program.get_program()).args(program.get_args());
        command
    };
    if !is_available("descriptors", &mut limited(256, &Command::new("true"))) {
        return;
    }
    let serve = serve(&place.data());
    refused(&mut limited(64, &serve), 2, "the limit of 64 open files is too low: at least ");
    let mut server = Running::start(&mut limited(256, &logs("warn", &serve)), "").unwrap();
    let port = until_ready(&mut server);
    let mut client = PgClient::connect(&Endpoint::loopback(port), LIMIT).unwrap();
    client.query("create table t (a int primary key, b text)").unwrap();
    // They send nothing. The server closes the last ones.
    let mut flood: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let last = flood.last_mut().unwrap();
    last.set_read_timeout(Some(LIMIT)).unwrap();
    let end = last.read(&mut [0]);
    let is_closed = match &end {
        Ok(n) => *n == 0,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(is_closed, "{end:?}");
    // Several segments of 1 MiB.
    for i in 0..60 {
        client.query(&format!("insert into t values ({i}, repeat('x', 100000))")).unwrap();
    }
    client.query("checkpoint").unwrap();
    let mut top = Command::new(binary());
    top.args(["top", "--once", "--interval", "0.1", "--unix-socket"]).arg(place.data());
    let shown = run(&mut top);
    assert!(shown.status.success(), "{}", shown.output);
    drop(flood);
    server.signal("TERM").unwrap();
    let done = server.finish(LIMIT).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", done.output);
    for warning in ["max_connections is lowered from 10000 to 1", "new connections are closed: "] {
        assert!(done.output.contains(warning), "{warning} is not in\n{}", done.output);
    }
}

/// The command in a shell that redirects its output.
fn redirected(command: &Command, redirection: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let place = Place::new("output");
    let server = started(&place.data());
    server.signal("TERM").unwrap();
    assert_eq!(server.finish(LIMIT).unwrap().status.code(), Some(0));
    for (verb, more) in [("backup", Some(place.path().join("copy"))), ("check", None)] {
        let mut command = Command::new(binary());
        command.arg(verb).arg(place.data()).args(more);
        // On a slow disk there may be lines about the progress, too.
        let done = run(&mut redirected(&command, ">/dev/full"));
        let reported = done.output.contains("clearway: output: No space left on device");
        assert!(done.status.code() == Some(1) && reported, "{}: {}", done.status, done.output);
    }
    assert!(place.path().join("copy/manifest").exists());
}

#[test]
fn server_runs_without_its_output() {
    let place = Place::new("silent");
    let server = logs("info", &serve(&place.data()));
    let mut running = Running::start(&mut redirected(&server, "2>/dev/full"), "").unwrap();
    until_ready(&mut running);
    running.signal("TERM").unwrap();
    assert_eq!(running.finish(LIMIT).unwrap().status.code(), Some(0));
    let mut running = Running::start(&mut redirected(&server, ">/dev/full"), "").unwrap();
    while !running.output().contains("output: No space left on device") {
        assert!(running.line(LIMIT).unwrap().is_some(), "no warning:\n{}", running.output());
    }
    running.signal("TERM").unwrap();
    assert_eq!(running.finish(LIMIT).unwrap().status.code(), Some(0));
}

/// `nohup clearway serve &`, and the terminal is closed.
#[test]
fn ignored_hangup_stays_ignored() {
    let place = Place::new("nohup");
    let serve = serve(&place.data());
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    nohup.arg(serve.get_program()).args(serve.get_args());
    let mut server = Running::start(&mut nohup, "").unwrap();
    until_ready(&mut server);
    assert!(ignores_hangup(&server.id().to_string()));
    server.signal("HUP").unwrap();
    server.signal("TERM").unwrap();
    assert_eq!(server.finish(LIMIT).unwrap().status.code(), Some(0));
}

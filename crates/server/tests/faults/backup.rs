//! `clearway backup` and `clearway restore`: with a running server, and when they are refused.

use crate::exits::{refused, serve, started, until_ready};
use crate::place::{LIMIT, Place, binary, is_available, run};
use clearway_harness::Endpoint;
use clearway_harness::client::{PgClient, QueryError};
use clearway_harness::process::{Finished, Running};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const ACCOUNTS: i64 = 50;

fn client(server: &Running) -> PgClient {
    let line = server.output().lines().find(|line| line.contains("listens on")).unwrap();
    let address = line.split("listens on ").nth(1).unwrap().split([' ', ':']).nth(1).unwrap();
    PgClient::connect(&Endpoint::loopback(address.parse().unwrap()), LIMIT).unwrap()
}

fn backup(dir: &Path, target: &Path) -> Command {
    let mut command = Command::new(binary());
    command.arg("backup").arg(dir).arg(target);
    command
}

fn restore(backup: &Path, dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command.arg("restore").arg(backup).arg(dir);
    command
}

#[track_caller]
fn done(command: &mut Command) -> String {
    let Finished { status, output, .. } = run(command);
    assert!(status.success(), "{command:?}: {status}\n{output}");
    output
}

#[track_caller]
fn stop(server: Running) {
    server.signal("TERM").unwrap();
    let done = server.finish(LIMIT).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", done.output);
}

fn fill(client: &mut PgClient) {
    for table in ["a", "b"] {
        client.query(&format!("create table {table} (id int primary key, v int8)")).unwrap();
        client
            .query(&format!(
                "insert into {table} select i, 0 from generate_series(1, {ACCOUNTS}) i"
            ))
            .unwrap();
    }
    client.query("create table h (id int primary key, v int8)").unwrap();
}

/// Adds the same value to a row of each of two tables and to the history, in one transaction, until
/// `stop` is set.
fn add(mut client: PgClient, writer: i64, stop: &AtomicBool) {
    let mut n = 0;
    // Relaxed: a stop flag that orders nothing.
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let (id, v) = (1 + (n * 7 + writer) % ACCOUNTS, n % 10 - 3);
        let sql = format!(
            "begin; update a set v = v + {v} where id = {id}; update b set v = v + {v} where id = {}; \
             insert into h values ({}, {v}); commit",
            1 + (n * 11) % ACCOUNTS,
            writer * 1_000_000 + n
        );
        match client.query(&sql) {
            Ok(_) => {}
            Err(QueryError::Sql { code, .. }) if code == "40P01" => {
                client.query("rollback").unwrap();
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// Checks that the three sums agree; returns the number of rows in the history.
fn consistent(client: &mut PgClient) -> i64 {
    let sums = ["a", "b", "h"]
        .map(|t| client.number(&format!("select coalesce(sum(v), 0) from {t}")).unwrap());
    assert!(sums[0] == sums[1] && sums[1] == sums[2], "{sums:?}");
    client.number("select count(*) from h").unwrap()
}

#[test]
fn restored_backup_contains_what_was_committed() {
    let place = Place::new("backup");
    let server = started(&place.data());
    fill(&mut client(&server));
    let path = |name: String| place.path().join(name);
    let stop_writing = &AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        for writer in 0..3 {
            let client = client(&server);
            scope.spawn(move || add(client, writer, stop_writing));
        }
        let mut reader = client(&server);
        let mut count = || reader.number("select count(*) from h").unwrap();
        let mut counts = Vec::new();
        while counts.len() < 3 {
            let before = count();
            done(&mut backup(&place.data(), &path(format!("b{}", counts.len()))));
            counts.push((before, count()));
        }
        stop_writing.store(true, Ordering::Relaxed);
        counts
    });
    for (i, (before, after)) in counts.into_iter().enumerate() {
        let (copy, new) = (path(format!("b{i}")), path(format!("new{i}")));
        done(Command::new(binary()).args(["restore", "--verify"]).arg(&copy));
        done(&mut restore(&copy, &new));
        let other = started(&new);
        let rows = consistent(&mut client(&other));
        assert!(
            (before..=after).contains(&rows),
            "backup {i}: {rows} rows, {before} before it and {after} after it"
        );
        stop(other);
    }
    let rows = consistent(&mut client(&server));
    // A killed server leaves its socket. The offline backup copies what the next start would find.
    drop(server);
    assert!(place.data().join(".s.PGSQL.1").exists());
    done(&mut backup(&place.data(), &path("dead".into())));
    done(&mut restore(&path("dead".into()), &path("reborn".into())));
    let reborn = started(&path("reborn".into()));
    assert_eq!(consistent(&mut client(&reborn)), rows);
    stop(reborn);
}

/// The update's log record has the old and the new row, together more than 1 MiB.
#[test]
fn update_of_a_long_row_survives_a_kill() {
    const ROWS: i64 = 3;
    let place = Place::new("backup-long-row");
    let path = |name: &str| place.path().join(name);
    let row = |id: i64| format!("repeat('{id}', 600000 + {id})");
    let server = started(&place.data());
    let mut session = client(&server);
    session.query("create table t (id int primary key, body text)").unwrap();
    session.query("create table other (id int primary key)").unwrap();
    for id in 1..=ROWS {
        session.query(&format!("insert into t values ({id}, repeat('x', 600000))")).unwrap();
    }
    session.query("checkpoint").unwrap();
    // Checkpoints keep the log from the first change of this transaction on.
    let mut open = client(&server);
    open.query("begin; insert into other values (1)").unwrap();
    for id in 1..=ROWS {
        let sql = format!("begin; update t set body = {} where id = {id}; commit", row(id));
        session.query(&sql).unwrap();
    }
    drop(server);
    done(Command::new(binary()).arg("check").arg(place.data()));
    done(&mut backup(&place.data(), &path("copy")));
    done(Command::new(binary()).args(["restore", "--verify"]).arg(path("copy")));
    done(&mut restore(&path("copy"), &path("restored")));
    for data in [place.data(), path("restored")] {
        let server = started(&data);
        let mut session = client(&server);
        for id in 1..=ROWS {
            let sql = format!("select count(*) from t where id = {id} and body = {}", row(id));
            assert_eq!(session.number(&sql).unwrap(), 1, "row {id} of {}", data.display());
        }
        assert_eq!(session.number("select count(*) from other").unwrap(), 0);
        stop(server);
    }
}

#[test]
fn backup_and_restore_are_refused() {
    let place = Place::new("backup-refused");
    let server = started(&place.data());
    let mut client = client(&server);
    fill(&mut client);
    let target = |name: &str| place.path().join(name);
    let socket = std::fs::metadata(place.data().join(".s.PGSQL.1")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600, "mode of the control socket");
    // TCP connections may not take backups.
    let by_tcp = client.query(&format!("backup to '{}'", target("tcp").display()));
    assert!(matches!(by_tcp, Err(QueryError::Sql { code, .. }) if code == "42501"));
    // One backup at a time; a client that disconnects aborts its backup.
    let mut slow =
        Running::start(backup(&place.data(), &target("slow")).args(["--rate", "1KiB"]), "")
            .unwrap();
    let progress = slow.line(LIMIT).unwrap().unwrap();
    assert!(progress.ends_with("bytes copied"), "{progress}");
    refused(&mut backup(&place.data(), &target("second")), 4, "another backup is being taken");
    drop(slow);
    while !run(&mut backup(&place.data(), &target("third"))).status.success() {}
    refused(&mut restore(&target("slow"), &target("new")), 9, "has no manifest");
    refused(&mut restore(&target("nowhere"), &target("new")), 5, "there is no directory");
    let mut verify = Command::new(binary());
    verify.args(["restore", "--verify"]).arg(target("nowhere"));
    refused(&mut verify, 5, "there is no directory");
    refused(&mut backup(&place.data(), &target("third")), 5, "is not an empty directory");
    let mut nothing = backup(&target("nothing"), &target("fourth"));
    refused(&mut nothing, 5, "is not a data directory");
    let hint = "hint: Nothing was changed. Name the data directory of a server, ";
    assert!(run(&mut nothing).output.contains(hint), "{}", run(&mut nothing).output);
    refused(&mut restore(&target("third"), &place.data()), 5, "is not an empty directory");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .read(true)
        .open(target("third/data/p0001.data"))
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 8192 + 77).unwrap();
    file.write_all_at(&[!byte[0]], 8192 + 77).unwrap();
    let says = "third/data/p0001.data is damaged at byte 8192: partition 1 page 1";
    refused(&mut restore(&target("third"), &target("new")), 9, says);
    refused(&mut started_on(&target("new")), 5, "has data");
    assert!(
        run(Command::new(binary()).arg("restore").arg("--verify").arg(target("third")))
            .output
            .contains(says)
    );
    if let Some(small) = Place::mount("backup-full", "size=64k") {
        refused(
            &mut backup(&place.data(), &small.path().join("copy")),
            7,
            "No space left on device",
        );
        client.query("insert into h values (-1, 0)").unwrap();
    }
    stop(server);
    assert!(!place.data().join(".s.PGSQL.1").exists());
}

fn started_on(data: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-filter", "off", "--data"]).arg(data);
    command
}

#[test]
fn stopping_server_aborts_its_backup() {
    let place = Place::new("backup-stop");
    let server = started(&place.data());
    fill(&mut client(&server));
    let target = place.path().join("copy");
    let mut slow =
        Running::start(backup(&place.data(), &target).args(["--rate", "1KiB"]), "").unwrap();
    assert!(slow.line(LIMIT).unwrap().unwrap().ends_with("bytes copied"));
    stop(server);
    let ended = slow.finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
    assert!(
        ended.output.contains("terminating connection due to administrator command"),
        "{}",
        ended.output
    );
    assert!(!target.join("manifest").exists());
    // No server has the directory open now.
    done(&mut backup(&place.data(), &place.path().join("another")));
}

#[test]
fn commands_work_with_a_path_longer_than_a_socket_address() {
    let place = Place::new("backup-far");
    let far: PathBuf = place.path().join("a-directory-with-a-long-name/".repeat(5));
    std::fs::create_dir_all(&far).unwrap();
    let data = far.join("data");
    let server = started(&data);
    fill(&mut client(&server));
    let top = || {
        let mut top = Command::new(binary());
        done(top.args(["top", "--once", "--interval", "0.1", "--unix-socket"]).arg(&data));
    };
    top();
    // A server may have its Unix socket in its data directory, too.
    drop(std::os::unix::net::UnixListener::bind(place.path().join("other")).unwrap());
    std::fs::rename(place.path().join("other"), data.join(".s.PGSQL.5432")).unwrap();
    top();
    done(&mut backup(&data, &place.path().join("it's here")));
    assert!(place.path().join("it's here/manifest").exists());
    stop(server);
}

/// In a mount namespace of its own, as in a container or with systemd's PrivateTmp=, a server
/// writes where the command does not see it.
#[test]
fn backup_that_the_command_does_not_see_is_not_complete() {
    const MOUNT: &str = "mount -t tmpfs clearway-test \"$0\" && exec \"$@\"";
    let place = Place::new("backup-unseen");
    let private = place.path().join("private");
    std::fs::create_dir(&private).unwrap();
    let separate = |program: &[&std::ffi::OsStr]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MOUNT]).arg(&private).args(program);
        command
    };
    if !is_available("backup-unseen", &mut separate(&["true".as_ref()])) {
        return;
    }
    // An earlier backup of the same name, which the command sees and the server does not.
    let server = started(&place.data());
    done(&mut backup(&place.data(), &private.join("earlier")));
    fill(&mut client(&server));
    stop(server);
    let serve = serve(&place.data());
    let program: Vec<_> = std::iter::once(serve.get_program()).chain(serve.get_args()).collect();
    let mut server = Running::start(&mut separate(&program), "").unwrap();
    until_ready(&mut server);
    for (name, why) in [("new", "is not there"), ("earlier", "belongs to another backup")] {
        let target = private.join(name);
        let says = format!(
            "the server reports a complete backup, but {}/manifest {why}",
            target.display()
        );
        // On a slow disk there may be lines about the progress, too.
        let ended = run(&mut backup(&place.data(), &target));
        assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
        for text in [&*says, "\nhint: The server sees other files"] {
            assert!(ended.output.contains(text), "{text} is not in\n{}", ended.output);
        }
    }
    assert!(!private.join("new").exists());
    stop(server);
}

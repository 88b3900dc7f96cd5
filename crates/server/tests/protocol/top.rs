//! `clearway top`: the text of one interval, the screen, and servers that cannot be reached.

use crate::raw::{Fixture, LIMIT, query};
use clearway_latch::lockstat::Class;
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::Location;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Instant;

/// A class that only this test waits for.
static WAITED_FOR: Class = Class::new("test.top");

fn top(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.arg("top").args(args);
    command
}

fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs `top` for an interval with work and a long wait. Repeats this if the threads that do the
/// work did not run during the interval.
fn once(server: &Fixture, args: &[&str]) -> Vec<String> {
    let began = Instant::now();
    loop {
        let shown = interval(server, args);
        let worked = !shown.iter().any(|line| line.contains("commits 0/s"));
        if worked && shown.iter().any(|line| line.contains("test.top")) {
            return shown;
        }
        assert!(began.elapsed() < LIMIT, "{shown:?}");
    }
}

fn interval(server: &Fixture, args: &[&str]) -> Vec<String> {
    let mut c = server.connect();
    let mut command = top(args);
    let running = std::thread::spawn(move || command.output().unwrap());
    while !running.is_finished() {
        assert_eq!(c.column("select 1"), ["1"]);
        WAITED_FOR.request();
        WAITED_FOR.waited(Location::caller(), 3_000_000_000_000);
    }
    let (code, out, err) = outcome(&running.join().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    out.lines().map(str::to_owned).collect()
}

#[test]
fn once_shows_an_interval_sorted_by_lost_time() {
    let sockets = std::env::temp_dir().join(format!("clearway-top-sockets-{}", std::process::id()));
    std::fs::create_dir_all(&sockets).unwrap();
    let server = Fixture::with("top", |config| config.unix_socket = Some(sockets.clone()));
    let address = server.address().to_string();
    let shown = once(&server, &["--connect", &address, "--interval", "0.5", "--once"]);
    assert!(
        shown[0].starts_with(&format!("clearway {} at {address}, up ", env!("CARGO_PKG_VERSION"))),
        "{shown:?}"
    );
    assert!(shown[2].starts_with("throughput   commits "), "{shown:?}");
    assert!(shown[3].starts_with("statements   p50 "), "{shown:?}");
    let first: Vec<&str> = shown[10].split_whitespace().collect();
    assert_eq!(first[5], "test.top", "{shown:?}");
    assert!(first[6].starts_with("server::tests::protocol::top:"), "{shown:?}");
    // Without a terminal it shows one interval, even without --once.
    let shown = once(&server, &["--unix-socket", sockets.to_str().unwrap(), "--interval", "0.1"]);
    assert!(shown[10].contains("test.top"), "{shown:?}");
    drop(server);
    std::fs::remove_dir_all(&sockets).unwrap();
}

#[test]
fn waiting_sessions_are_below_their_blocker() {
    let server = Fixture::new("top-blocked");
    let (mut holder, mut first, mut second) =
        (server.connect(), server.connect(), server.connect());
    holder.query("create table t (a int primary key, n int)");
    holder.query("insert into t values (1, 0), (2, 0)");
    holder.query("begin; update t set n = 1 where a = 1");
    first.query("begin; update t set n = 1 where a = 2");
    first.send(&query("update t set n = 2\n where a = 1"));
    second.send(&query("update t set n = 3 where a = 2"));
    let tree = [
        "2 sessions wait for a lock, below the blocking session:".to_owned(),
        format!("{} idle in transaction: begin; update t set n = 1 where a = 1", holder.pid),
        format!("  {} waits T ms, no key update t (1): update t set n = 2 where a = 1", first.pid),
        format!(
            "    {} waits T ms, no key update t (2): update t set n = 3 where a = 2",
            second.pid
        ),
    ];
    let began = Instant::now();
    // Replaces the time, which varies: one word and its unit.
    let without_time = |line: &String| match line.split_once(" waits ") {
        Some((who, what)) => match what.split_once(',') {
            Some((_, what)) => format!("{who} waits T ms,{what}"),
            None => line.clone(),
        },
        None => line.clone(),
    };
    let address = server.address().to_string();
    loop {
        let (code, out, err) = outcome(
            &top(&["--connect", &address, "--interval", "0.1", "--once"]).output().unwrap(),
        );
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let shown: Vec<String> = out.lines().map(str::to_owned).collect();
        let found: Vec<String> = shown[9..].iter().take(4).map(without_time).collect();
        if found == tree {
            assert!(shown[13].is_empty() && shown[14].ends_with("CALLER"), "{shown:?}");
            break;
        }
        assert!(began.elapsed() < LIMIT, "{shown:#?}");
    }
    holder.query("commit");
    first.until_ready();
    first.query("commit");
    second.until_ready();
}

#[test]
fn screen_is_restored_when_left() {
    let server = Fixture::new("screen");
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits() as i32);
    let terminal = options.open(OsStr::from_bytes(name.to_bytes())).unwrap();
    let modes = || tcgetattr(&terminal).unwrap().local_modes;
    let before = modes();
    assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
    let mut child = top(&["--connect", &server.address().to_string(), "--interval", "0.1"])
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut controller = File::from(controller);
    let mut reader = controller.try_clone().unwrap();
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(n) = reader.read(&mut chunk)
            && sender.send(chunk[..n].to_vec()).is_ok()
        {}
    });
    let mut screen = String::new();
    let mut until = |text: &str| {
        while !screen.contains(text) {
            let more = received.recv_timeout(LIMIT).unwrap_or_else(|e| panic!("{e}: {screen:?}"));
            screen.push_str(&String::from_utf8_lossy(&more));
        }
    };
    until("throughput");
    assert!(!modes().intersects(LocalModes::ICANON | LocalModes::ECHO));
    controller.write_all(b"?").unwrap();
    until("clearway top: help");
    controller.write_all(b"x").unwrap();
    until("throughput");
    controller.write_all(b"q").unwrap();
    until("\x1b[?25h\x1b[?1049l");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(modes(), before);
}

#[test]
fn unreachable_server_is_reported() {
    // The port is bound by a socket that does not listen, so that no other process can use it.
    let taken = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&taken, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let free = SocketAddrV4::try_from(getsockname(&taken).unwrap()).unwrap().to_string();
    let nowhere = std::env::temp_dir().join(format!("clearway-top-nowhere-{}", std::process::id()));
    for args in [["--connect", &free], ["--unix-socket", nowhere.to_str().unwrap()]] {
        let (code, out, err) = outcome(&top(&args).output().unwrap());
        assert_eq!((code, out.as_str()), (Some(1), ""));
        let lines: Vec<&str> = err.lines().collect();
        assert!(
            lines[0].starts_with(&format!("clearway: no server answers at {}: ", args[1])),
            "{err}"
        );
        assert!(lines[1].starts_with("hint: Is the server running?") && lines.len() == 2, "{err}");
    }
    let (code, _, err) = outcome(&top(&["--interval", "0"]).output().unwrap());
    assert!(code == Some(2) && err.contains("from 0.1 to 3600"), "{err}");
}

#[test]
fn long_statements_are_cut() {
    let server = Fixture::new("top-long");
    let [mut holder, mut waiter, mut observer] = [(); 3].map(|()| server.connect());
    holder.query("create table t (a int primary key, n int)");
    holder.query("insert into t values (1, 0)");
    // Longer than the longest message that the client of `top` accepts.
    let padding = "x".repeat(2 << 20);
    holder.query("begin");
    holder.query(&format!("update t set n = 1 where a = 1 /* {padding} */"));
    waiter.send(&query(&format!("update t set n = 2 where a = 1 /* {padding} */")));
    observer.repeat_until("select count(*) from clearway.locks", &["1"]);
    let address = server.address().to_string();
    let mut top = top(&["--connect", &address, "--interval", "0.1", "--once"]);
    let (code, out, err) = outcome(&top.output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for statement in
        ["update t set n = 1 where a = 1 /* xxx", "update t set n = 2 where a = 1 /* xxx"]
    {
        assert!(out.contains(statement), "{out}");
    }
    holder.query("rollback");
    waiter.until_ready();
}

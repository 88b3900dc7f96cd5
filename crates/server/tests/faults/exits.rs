//! Starts that fail: one clear line, a hint, and an exit code for each kind of failure.

use crate::place::{LIMIT, Place, binary, is_root, run};
use clearway_harness::process::Running;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub fn serve(data: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--log-filter",
        "off",
        "--buffer-pool",
        "8MiB",
    ]);
    command
        .args(["--log-segment", "1MiB", "--partitions", "2", "--workers", "1", "--data"])
        .arg(data);
    command
}

/// Starts a server and waits until it listens.
pub fn started(data: &Path) -> Running {
    let mut running = Running::start(&mut serve(data), "").unwrap();
    until_ready(&mut running);
    running
}

/// Waits until a server listens; returns its port.
pub fn until_ready(running: &mut Running) -> u16 {
    loop {
        if let Some((_, rest)) = running.output().split_once("listens on 127.0.0.") {
            return rest.split([':', ' ']).nth(1).unwrap().parse().unwrap();
        }
        assert!(running.line(LIMIT).unwrap().is_some(), "no start:\n{}", running.output());
    }
}

/// Creates a data directory with a server that is then stopped.
fn make(data: &Path) {
    let running = started(data);
    running.signal("TERM").unwrap();
    let done = running.finish(LIMIT).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", done.output);
}

#[track_caller]
pub fn refused(command: &mut Command, code: i32, says: &str) {
    let done = run(command);
    assert_eq!(done.status.code(), Some(code), "{}", done.output);
    let lines: Vec<&str> = done.output.lines().collect();
    assert!(lines[0].starts_with("clearway: ") && lines[0].contains(says), "{}", done.output);
    let hints = lines.iter().filter(|line| line.starts_with("hint: ")).count();
    assert_eq!((lines.len(), hints), (2, 1), "{}", done.output);
}

/// Writes a format version into both slots of a control file, with valid checksums.
fn set_version(data: &Path, version: u32) {
    use std::os::unix::fs::FileExt;
    let file =
        std::fs::OpenOptions::new().read(true).write(true).open(data.join("control")).unwrap();
    for at in [0, 4096] {
        let mut slot = [0; 64];
        file.read_exact_at(&mut slot, at).unwrap();
        slot[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c(&slot[..60]);
        slot[60..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&slot, at).unwrap();
    }
}

#[test]
fn directory_in_use_is_refused() {
    let place = Place::new("in-use");
    let running = started(&place.data());
    refused(&mut serve(&place.data()), 4, "in use by another server");
    running.signal("INT").unwrap();
    assert_eq!(running.finish(LIMIT).unwrap().status.code(), Some(0));
}

#[test]
fn unsuitable_directory_is_refused() {
    let place = Place::new("kind");
    make(&place.data());
    let mut three = Command::new(binary());
    three
        .args(["serve", "--listen", "127.0.0.1:0", "--partitions", "3", "--data"])
        .arg(place.data());
    refused(&mut three, 5, "made with 2 partitions, not 3");
    set_version(&place.data(), u32::MAX);
    refused(&mut serve(&place.data()), 5, "made by a newer release");
    set_version(&place.data(), 1);
    make(&place.data());
    // A file.
    std::fs::write(place.path().join("file"), "x").unwrap();
    refused(&mut serve(&place.path().join("file")), 5, "file");
    // Another program's directory.
    let other = place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("control"), "Source: something").unwrap();
    refused(&mut serve(&other), 9, "not a Clearway control file");
    assert_eq!(std::fs::read(other.join("control")).unwrap(), b"Source: something");
}

#[test]
fn damage_found_at_start_is_refused() {
    let place = Place::new("damage");
    make(&place.data());
    // Every start reads the directory's root page, and repairs it if the double-write file has a
    // copy.
    for (name, offset) in [("data/p0000.data", 8192 + 100), ("data/double-write.data", 100)] {
        let file = std::fs::OpenOptions::new().write(true).open(place.data().join(name)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 64], offset).unwrap();
    }
    refused(&mut serve(&place.data()), 9, "partition 0 page 1 in");
}

#[test]
fn read_only_file_system_is_refused() {
    let Some(place) = Place::mount("read-only", "ro,size=1m") else { return };
    refused(&mut serve(&place.data()), 6, "Read-only file system");
}

#[test]
fn full_file_system_at_start_is_refused() {
    let Some(place) = Place::mount("too-small", "size=1m") else { return };
    refused(&mut serve(&place.data()), 7, "No space left on device");
    let free =
        Command::new("mount").args(["-o", "remount,size=32m"]).arg(place.path()).status().unwrap();
    assert!(free.success());
    make(&place.data());
}

#[test]
fn missing_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("permissions");
    make(&place.data());
    let close = |mode| {
        std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(mode)).unwrap()
    };
    close(0o555);
    let mut command = if is_root() {
        // Root ignores permissions, so run as another user, who must be able to reach the binary.
        let copy = place.path().join("clearway");
        std::fs::copy(binary(), &copy).unwrap();
        // While another test forks, its child has the copy open for writing until it executes
        // another program; meanwhile running the copy fails with "text file busy".
        let runs =
            || Command::new(&copy).arg("--help").output().is_ok_and(|done| done.status.success());
        let deadline = Instant::now() + LIMIT;
        while !runs() {
            assert!(Instant::now() < deadline, "the copy of the binary does not run");
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(copy);
        command.args(serve(&place.data()).get_args());
        command
    } else {
        std::fs::set_permissions(place.data().join("lock"), std::fs::Permissions::from_mode(0o444))
            .unwrap();
        serve(&place.data())
    };
    refused(&mut command, 6, "Permission denied");
    close(0o755);
}

#[test]
fn usage_errors_and_help_have_their_exit_codes() {
    let done = run(Command::new(binary()).args(["serve", "--partitions", "0"]));
    assert_eq!(done.status.code(), Some(2), "{}", done.output);
    let done = run(Command::new(binary()).args(["serve", "--no-such-flag"]));
    assert_eq!(done.status.code(), Some(2), "{}", done.output);
    let help = run(Command::new(binary()).args(["serve", "--help"])).output;
    for line in clearway_server::exit::TABLE.lines() {
        assert!(help.contains(line.trim()), "{line} is not in\n{help}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new("taken");
    let done = run(Command::new(binary())
        .args(["serve", "--listen", &taken.local_addr().unwrap().to_string(), "--data"])
        .arg(place.data()));
    assert_eq!(done.status.code(), Some(3), "{}", done.output);
}

/// An unusable second-level cache is reported at the start; a usable one belongs to one server.
#[test]
fn second_level_cache_is_checked_at_start() {
    let place = Place::new("second-level");
    let with = |data: &str, cache: &str| {
        let mut command = serve(&place.path().join(data));
        command.arg("--second-level").arg(place.path().join(cache));
        command
    };
    refused(&mut with("data", "none"), 5, "there is no directory");
    std::fs::write(place.path().join("file"), "x").unwrap();
    refused(&mut with("data", "file"), 5, "second-level cache");
    let done = run(with("data", "cache").args(["--second-level-size", "8KiB"]));
    assert_eq!(done.status.code(), Some(2), "{}", done.output);
    let done = run(serve(&place.data()).args(["--second-level-size", "8MiB"]));
    assert_eq!(done.status.code(), Some(2), "{}", done.output);
    std::fs::create_dir(place.path().join("cache")).unwrap();
    let file = place.path().join("cache/clearway-second-level.cache");
    std::fs::write(&file, "left by another server").unwrap();
    let mut running = Running::start(&mut with("data", "cache"), "").unwrap();
    while !running.output().contains("listens on") {
        assert!(running.line(LIMIT).unwrap().is_some(), "no start:\n{}", running.output());
    }
    assert!(!std::fs::read(&file).unwrap().starts_with(b"left"));
    refused(&mut with("other", "cache"), 4, "the second-level cache in");
    running.signal("TERM").unwrap();
    assert_eq!(running.finish(LIMIT).unwrap().status.code(), Some(0));
}

//! Other users cannot read what the server creates, and files that they can write to are not
//! trusted.

use crate::exits::{refused, serve, started};
use crate::place::{LIMIT, Place, binary, run};
use clearway_harness::process::Running;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command in a shell with umask 0.
fn generous(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "umask 0; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    shell
}

fn clearway(verb: &str, from: &Path, to: &Path) -> Command {
    let mut command = Command::new(binary());
    command.arg(verb).arg(from).arg(to);
    command
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// `dir` and everything below it.
fn everything(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(everything(&path)) } else { found.push(path) }
    }
    found
}

fn start(command: &mut Command) -> Running {
    let mut running = Running::start(command, "").unwrap();
    while !running.output().contains("listens on") {
        assert!(running.line(LIMIT).unwrap().is_some(), "no start:\n{}", running.output());
    }
    running
}

fn stop(running: Running) {
    running.signal("TERM").unwrap();
    let done = running.finish(LIMIT).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", done.output);
}

#[test]
fn created_files_are_private_whatever_the_umask() {
    let place = Place::new("private");
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("cache")).unwrap();
    let mut command = serve(&at("new/data"));
    command.arg("--second-level").arg(at("cache"));
    let running = start(&mut generous(&command));
    let copied = run(&mut generous(&clearway("backup", &at("new/data"), &at("online"))));
    assert!(copied.status.success(), "{}", copied.output);
    let private = |dir: &str, expected: &[&str]| {
        let all = everything(&at(dir));
        for path in &all {
            assert_eq!(mode(path) & 0o077, 0, "{}: {:o}", path.display(), mode(path));
        }
        for name in expected {
            assert!(all.iter().any(|path| path.ends_with(name)), "{name} is not in {all:?}");
        }
    };
    private("new", &["control", "lock", "data/p0000.data", "data/double-write.data", ".s.PGSQL.1"]);
    private("online", &["manifest", "log", "data/p0000.data"]);
    assert_eq!(mode(&at("cache/clearway-second-level.cache")), 0o600);
    stop(running);
    for (verb, from, to) in [("backup", "new/data", "offline"), ("restore", "online", "restored")] {
        let done = run(&mut generous(&clearway(verb, &at(from), &at(to))));
        assert!(done.status.success(), "{}", done.output);
        private(to, &["data/p0000.data"]);
    }
    stop(start(&mut generous(&serve(&at("restored")))));
    private("restored", &["control", "lock"]);
}

#[test]
fn directory_writable_by_others_is_refused() {
    let place = Place::new("shared");
    stop(started(&place.data()));
    let says = |path: &Path| format!("users other than its owner may write to {}", path.display());
    let segment =
        std::fs::read_dir(place.data().join("wal")).unwrap().next().unwrap().unwrap().path();
    let data = ["", "control", "lock", "wal", "data", "data/p0000.data"]
        .map(|name| place.data().join(name));
    for (path, shared) in data.iter().chain([&segment]).zip([0o720, 0o602].into_iter().cycle()) {
        let before = mode(path);
        set_mode(path, shared | before);
        refused(&mut serve(&place.data()), 6, says(path).trim_end_matches('/'));
        set_mode(path, before);
    }
    // Permissions as set by earlier releases.
    for path in everything(&place.data()) {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    stop(started(&place.data()));
    assert_eq!(mode(&place.data()), 0o755);
    let empty = place.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    set_mode(&empty, 0o1777);
    refused(&mut serve(&empty), 6, &says(&empty));
    refused(&mut clearway("backup", &place.data(), &empty), 6, &says(&empty));
    let backup = place.path().join("backup");
    assert!(run(&mut clearway("backup", &place.data(), &backup)).status.success());
    refused(&mut clearway("restore", &backup, &empty), 6, &says(&empty));
    // The same with a running server, which makes the copy.
    let running = started(&place.data());
    refused(&mut clearway("backup", &place.data(), &empty), 6, &says(&empty));
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    std::fs::write(place.path().join("file"), "x").unwrap();
    let below = run(&mut clearway("backup", &place.data(), &place.path().join("file/copy")));
    assert_eq!(below.status.code(), Some(5), "{}", below.output);
    stop(running);
}

/// The cache's directory may be shared by all users, like the root of a scratch disk.
#[test]
fn second_level_cache_empties_no_foreign_file() {
    let place = Place::new("planted");
    let (cache, precious) = (place.path().join("cache"), place.path().join("precious"));
    let file = cache.join("clearway-second-level.cache");
    std::fs::create_dir(&cache).unwrap();
    set_mode(&cache, 0o1777);
    let with_cache = || {
        let mut command = serve(&place.data());
        command.arg("--second-level").arg(&cache);
        command
    };
    symlink(&precious, &file).unwrap();
    refused(&mut with_cache(), 6, "it is a symbolic link");
    assert!(!precious.exists());
    std::fs::write(&precious, "precious").unwrap();
    refused(&mut with_cache(), 6, "it is a symbolic link");
    std::fs::remove_file(&file).unwrap();
    std::fs::hard_link(&precious, &file).unwrap();
    refused(&mut with_cache(), 6, "it has a second name");
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    std::fs::remove_file(&file).unwrap();
    // Left by an earlier release.
    std::fs::write(&file, "old").unwrap();
    set_mode(&file, 0o666);
    stop(start(&mut with_cache()));
    assert_eq!(mode(&file), 0o600);
}

//! What both disks promise, on both; and what the disk in memory loses at a crash.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Disk, File, MemDisk, Open, OsDisk};

/// A directory of its own on the real disk, gone at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("clearway-env-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the test's directory goes");
    }
}

fn on_both(test: &str, check: impl Fn(&dyn Disk, &Path)) {
    let scratch = Scratch::new(test);
    check(&OsDisk, &scratch.0);
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("data")).expect("made");
    check(&disk, Path::new("data"));
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut content = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut content, 0).expect("read");
    content
}

#[test]
fn files_read_back_what_was_written() {
    on_both("files", |disk, dir| {
        let file = disk.open(&dir.join("a"), Open::Create).expect("created");
        assert!(file.is_empty().expect("length"));
        file.write_all_at(b"world", 1000).expect("written");
        file.write_all_at(b"hello", 0).expect("written");
        file.sync_data().expect("synced");
        assert_eq!(file.len().expect("length"), 1005);
        let mut buf = [9; 10];
        assert_eq!(file.read_at(&mut buf, 998).expect("read"), 7);
        assert_eq!(&buf, b"\0\0world\x09\x09\x09");
        assert_eq!(file.read_at(&mut buf, 2000).expect("read"), 0);
        assert_eq!(kind(file.read_exact_at(&mut buf, 1000)), Some(ErrorKind::UnexpectedEof));
        file.set_len(3).expect("cut");
        file.set_len(6).expect("lengthened");
        assert_eq!(content(&*file), b"hel\0\0\0");
        let again = disk.open(&dir.join("a"), Open::Existing).expect("opened");
        assert_eq!(content(&*again), b"hel\0\0\0");
    });
}

#[test]
fn names_come_and_go() {
    on_both("names", |disk, dir| {
        let (a, b, deep) = (dir.join("a"), dir.join("b"), dir.join("x/y"));
        assert_eq!(kind(disk.open(&a, Open::Existing)), Some(ErrorKind::NotFound));
        disk.open(&a, Open::OpenOrCreate).expect("created").write_all_at(b"a", 0).expect("written");
        disk.open(&a, Open::OpenOrCreate).expect("opened");
        assert_eq!(kind(disk.open(&a, Open::Create)), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(disk.open(&deep.join("c"), Open::Create)), Some(ErrorKind::NotFound));
        disk.create_dir_all(&deep).expect("made");
        disk.create_dir_all(&deep).expect("is there");
        disk.open(&b, Open::Create).expect("created");
        assert_eq!(disk.list(dir).expect("listed"), ["a", "b", "x"]);
        assert_eq!(disk.list(&dir.join("x")).expect("listed"), ["y"]);
        assert_eq!(kind(disk.list(&dir.join("z"))), Some(ErrorKind::NotFound));
        disk.rename(&a, &b).expect("renamed");
        disk.sync_dir(dir).expect("synced");
        assert_eq!(content(&*disk.open(&b, Open::Existing).expect("opened")), b"a");
        assert!(!disk.exists(&a).expect("looked") && disk.exists(&deep).expect("looked"));
        assert_eq!(kind(disk.rename(&a, &b)), Some(ErrorKind::NotFound));
        disk.remove(&b).expect("removed");
        assert_eq!(kind(disk.remove(&b)), Some(ErrorKind::NotFound));
        assert_eq!(disk.list(dir).expect("listed"), ["x"]);
    });
}

#[test]
fn a_lock_has_one_holder() {
    on_both("lock", |disk, dir| {
        let path = dir.join("lock");
        let lock = disk.lock(&path).expect("locked");
        assert_eq!(kind(disk.lock(&path)), Some(ErrorKind::WouldBlock));
        drop(lock);
        disk.lock(&path).expect("locked again");
    });
}

#[test]
fn errors_name_the_file() {
    let error = OsDisk.open(Path::new("/nowhere/p0001.data"), Open::Existing).err().expect("an error");
    assert!(error.to_string().starts_with("open /nowhere/p0001.data: "), "{error}");
}

/// A disk with a synced file `f` of three sectors of 1.
fn synced() -> (MemDisk, Arc<dyn File>) {
    let disk = MemDisk::new();
    let file = disk.open(Path::new("f"), Open::Create).expect("created");
    file.write_all_at(&[1; 1536], 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir(Path::new("")).expect("synced");
    (disk, file)
}

fn after_crash(disk: &MemDisk, seed: u64) -> Vec<u8> {
    content(&*disk.crash(seed).open(Path::new("f"), Open::Existing).expect("a synced name survives"))
}

#[test]
fn what_was_synced_survives() {
    // Invariant 1 of the disk in memory.
    let (disk, file) = synced();
    file.write_all_at(&[2; 512], 0).expect("written");
    file.sync_data().expect("synced");
    file.write_all_at(&[3; 512], 1024).expect("written");
    for seed in 0..100 {
        assert!(after_crash(&disk, seed).starts_with(&[[2; 512], [1; 512]].concat()));
    }
}

#[test]
fn an_unsynced_sector_has_any_of_its_states() {
    // Invariants 2 and 4.
    let (disk, file) = synced();
    file.write_all_at(&[2; 1536], 0).expect("written");
    file.write_all_at(&[3; 600], 500).expect("written");
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..1000 {
        let bytes = after_crash(&disk, seed);
        assert_eq!(bytes, after_crash(&disk, seed), "a seed names one outcome");
        let sectors: Vec<_> = bytes.chunks(512).map(|sector| (sector[0], sector[511])).collect();
        seen.insert(sectors);
    }
    // States of each: (1,1), (2,2), (2,3) | (1,1), (2,2), (3,3) | (1,1), (2,2), (3,2).
    assert_eq!(seen.len(), 27);
    assert_eq!(content(&*file)[500], 3, "the disk that did not crash goes on");
}

#[test]
fn an_unsynced_length_may_be_lost() {
    let (disk, file) = synced();
    file.set_len(700).expect("cut");
    file.write_all_at(&[2; 100], 1600).expect("written");
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let bytes = after_crash(&disk, seed);
        lengths.insert(bytes.len());
        let expected = |(place, byte): (usize, &u8)| match place {
            0..700 => *byte == 1,
            700..1536 => *byte <= 1,
            _ => *byte == 0 || *byte == 2,
        };
        assert!(bytes.iter().enumerate().all(expected), "seed {seed}");
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [700, 1536, 1700]);
    file.sync_data().expect("synced");
    assert_eq!(after_crash(&disk, 0), content(&*file));
}

#[test]
fn unsynced_names_survive_as_a_prefix() {
    // Invariant 3.
    let (disk, _) = synced();
    disk.open(Path::new("a"), Open::Create).expect("created");
    disk.rename(Path::new("f"), Path::new("g")).expect("renamed");
    disk.remove(Path::new("a")).expect("removed");
    let left = |seed| disk.crash(seed).list(Path::new("")).expect("listed");
    let seen: std::collections::BTreeSet<_> = (0..100).map(left).collect();
    let prefixes: [&[&str]; 4] = [&["a", "f"], &["a", "g"], &["f"], &["g"]];
    assert!(seen.iter().eq(prefixes.iter()), "{seen:?}");
    disk.sync_dir(Path::new("")).expect("synced");
    assert!((0..20).all(|seed| disk.crash(seed).list(Path::new("")).expect("listed") == ["g"]));
}

#[test]
fn a_failing_disk_changes_nothing_more() {
    // Invariant 5.
    let (disk, file) = synced();
    let before = disk.operations();
    disk.fail_after(1);
    file.write_all_at(&[2; 512], 0).expect("granted");
    assert_eq!(kind(file.write_all_at(&[3; 512], 0)), Some(ErrorKind::Other));
    assert_eq!(kind(file.sync_data()), Some(ErrorKind::Other));
    assert_eq!(kind(file.set_len(0)), Some(ErrorKind::Other));
    assert_eq!(kind(disk.remove(Path::new("f"))), Some(ErrorKind::Other));
    assert_eq!(kind(disk.open(Path::new("new"), Open::Create)), Some(ErrorKind::Other));
    assert_eq!((disk.operations(), content(&*file)[0]), (before + 1, 2));
    let next = disk.crash(1).open(Path::new("f"), Open::Existing).expect("opened");
    next.write_all_at(&[4; 512], 0).expect("the disk after the crash does not fail");
}

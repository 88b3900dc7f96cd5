//! What the real disk and the disk in memory guarantee, tested on both.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clearway_env::{Disk, File, Open, OsDisk, is_full};
use clearway_testkit::MemDisk;

/// A separate directory on the real disk, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("clearway-disks-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the test's directory is removed");
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
fn names_are_created_renamed_and_removed() {
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
fn errors_name_the_operation_and_the_file() {
    on_both("errors", |disk, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        let says = |result: std::io::Result<()>, what: &str| {
            let error = result.expect_err("an error");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().starts_with(&format!("{what} {}", a.display())), "{error}");
        };
        says(disk.open(&a, Open::Existing).map(drop), "open");
        says(disk.remove(&a), "remove");
        says(disk.rename(&a, &b), "rename");
        says(disk.sync_dir(&a), "sync directory");
        says(disk.list(&a).map(drop), "list");
    });
}

#[test]
fn full_device_error_keeps_its_kind() {
    let full = Path::new("/dev/full");
    let error = OsDisk
        .open(full, Open::Existing)
        .expect("opened")
        .write_all_at(b"x", 0)
        .expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().starts_with("write /dev/full: "), "{error}");
    assert!(is_full(&error));
}

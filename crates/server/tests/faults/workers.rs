//! Worker threads do not touch the disk: each serves many sessions, and a disk may be slow.

use crate::world::{connect, start_on};
use clearway_env::{Disk, DiskLock, File, Open, OsClock};
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// What workers have done with the disk: operations and paths.
#[derive(Clone, Default)]
struct Blocking(Arc<Mutex<BTreeSet<String>>>);

impl Blocking {
    /// Notes an operation if the calling thread is a worker.
    fn note(&self, operation: &str, path: &Path) {
        if thread::current().name().is_some_and(|name| name.starts_with("worker-")) {
            self.0.lock().unwrap().insert(format!("{operation} {}", path.display()));
        }
    }
}

impl Intercept for Blocking {
    fn read_at(&self, to: &Opened, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.note("read", &to.path);
        to.file.read_at(buf, offset)
    }
    fn write_all_at(&self, to: &Opened, buf: &[u8], offset: u64) -> io::Result<()> {
        self.note("write", &to.path);
        to.file.write_all_at(buf, offset)
    }
    fn sync_data(&self, to: &Opened) -> io::Result<()> {
        self.note("sync", &to.path);
        to.file.sync_data()
    }
    fn set_len(&self, to: &Opened, len: u64) -> io::Result<()> {
        self.note("set the length of", &to.path);
        to.file.set_len(len)
    }
}

/// A disk that notes operations on names.
struct Names {
    disk: MemDisk,
    blocking: Blocking,
}

impl Disk for Names {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.blocking.note("open", path);
        self.disk.open(path, how)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.blocking.note("look for", path);
        self.disk.exists(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.blocking.note("create", path);
        self.disk.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.blocking.note("list", dir);
        self.disk.list(dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.blocking.note("remove", path);
        self.disk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.blocking.note("rename", from);
        self.disk.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.blocking.note("sync", dir);
        self.disk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.blocking.note("lock", path);
        self.disk.lock(path)
    }
}

#[test]
fn workers_do_not_touch_the_disk() {
    let blocking = Blocking::default();
    let names = Names { disk: MemDisk::new(), blocking: blocking.clone() };
    let disk = Intercepted::new(names, Arc::new(blocking.clone()));
    let server = start_on(Arc::new(disk), Arc::new(OsClock)).unwrap();
    let (mut client, mut reader) = (connect(&server), connect(&server));
    // Twice the pool, so pages are evicted and read again, and the log is recycled.
    let fill = "insert into t select i, repeat('x', 1500) from generate_series(1, 10000) i";
    client.query("create table t (a int primary key, b text)").unwrap();
    client.query(fill).unwrap();
    reader.query("begin isolation level repeatable read; select count(*) from t").unwrap();
    for sql in [
        "create index by_b on t (b)",
        "update t set b = 'y' where a % 2 = 0",
        "select count(b) from t",
        "begin; delete from t where a < 3000; rollback",
        "checkpoint",
        "drop index by_b",
        "create unique index by_a_b on t (a, b)",
    ] {
        client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(reader.number("select count(*) from t"), Ok(10_000), "{sql}");
    }
    reader.query("commit").unwrap();
    for view in [
        "activity",
        "cascades",
        "contention",
        "hot_rows",
        "latch_calibration",
        "latency",
        "locks",
        "partitions",
        "plans",
        "sessions",
        "snapshots",
    ] {
        client.query(&format!("select * from clearway.{view}")).unwrap();
    }
    assert!(client.number("select page_reads from clearway.activity").unwrap() > 100);
    assert!(client.number("select data_file_bytes from clearway.activity").unwrap() > 8 << 20);
    client.query("drop table t").unwrap();
    server.stop().unwrap();
    assert_eq!(*blocking.0.lock().unwrap(), BTreeSet::new());
}

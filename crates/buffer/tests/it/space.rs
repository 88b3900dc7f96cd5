//! Disk space is allocated before a page is created, so that no write needs any.

use clearway_buffer::{
    FileSpace, Files, MissingPage, PAGE_SIZE, PageError, PageIo, Pool, PoolConfig, seal,
};
use clearway_env::{Disk, IoPool, Open};
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{FakeWal, PARTITIONS, files, page};

/// Invariant 4 of `files`.
#[test]
fn pages_with_space_can_be_written_on_a_full_disk() {
    let disk = MemDisk::new();
    let files = files(&disk);
    disk.set_capacity(disk.used() + 60 * PAGE_SIZE as u64);
    let refused = (0..).find_map(|no| {
        files.make_space(page(1, no), FileSpace::Usual).err().map(|error| (no, error))
    });
    let (pages, error) = refused.unwrap();
    assert!(error.is_full(), "{error}");
    assert!(error.to_string().contains(&format!("cannot extend {}", page(1, pages))), "{error}");
    // Some pages are reserved for operations that must not fail.
    assert!((40..60).contains(&pages), "{pages}");
    assert!(
        !files.has_space(page(1, pages), FileSpace::Usual)
            && files.has_space(page(1, pages), FileSpace::WithReserve)
    );
    assert!(files.has_space(page(1, pages - 1), FileSpace::Usual));
    disk.set_capacity(0);
    let mut bytes = [7; PAGE_SIZE];
    for no in 0..=pages {
        seal(&mut bytes, page(1, no));
        files.write(&[(page(1, no), &bytes)]).unwrap();
    }
    files.sync().unwrap();
    // Space becomes available again.
    disk.set_capacity(u64::MAX);
    files.make_space(page(1, pages), FileSpace::Usual).unwrap();
    assert!(files.has_space(page(1, pages), FileSpace::Usual));
}

/// After a restart a file's space is determined again, and holes in it are filled.
#[test]
fn page_far_beyond_the_end_allocates_all_before_it() {
    let disk = MemDisk::new();
    assert!(!files(&disk).has_space(page(0, 0), FileSpace::WithReserve));
    files(&disk).make_space(page(0, 500), FileSpace::WithReserve).unwrap();
    let files = files(&disk);
    files.make_space(page(0, 3), FileSpace::Usual).unwrap();
    assert!(
        files.has_space(page(0, 3), FileSpace::Usual)
            && !files.has_space(page(0, 400), FileSpace::Usual)
    );
}

#[test]
fn page_creation_fails_without_space() {
    let disk = MemDisk::new();
    let config = PoolConfig { frames: 64, ..PoolConfig::default() };
    let threads = Arc::new(IoPool::new(1, "test-io").unwrap());
    let f =
        Pool::new(config, Arc::new(files(&disk)), Arc::new(FakeWal::default()), threads).unwrap();
    let id = page(2, 0);
    assert_eq!(
        f.create(id, FileSpace::Usual).err(),
        Some(MissingPage::Space { page: id, space: FileSpace::Usual })
    );
    drop(f.fetch_blocking(MissingPage::Space { page: id, space: FileSpace::Usual }).unwrap());
    assert!(f.create(id, FileSpace::Usual).is_ok());
    disk.set_capacity(0);
    let far = page(2, 900);
    let error = f
        .fetch_blocking(MissingPage::Space { page: far, space: FileSpace::WithReserve })
        .unwrap_err();
    assert!(
        matches!(&error, PageError::Io { page: Some(at), .. } if *at == far) && error.is_full(),
        "{error}"
    );
}

/// A file system without `fallocate`, where partition 1's file grows by zeros. Another thread
/// writes a page after the growth has determined the file's end.
#[derive(Default)]
struct GrowsByZeros {
    files: OnceLock<Arc<Files>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

const WRITTEN: u32 = 5;

fn written() -> [u8; PAGE_SIZE] {
    let mut bytes = [7; PAGE_SIZE];
    seal(&mut bytes, page(1, WRITTEN));
    bytes
}

impl Intercept for GrowsByZeros {
    fn allocate(&self, to: &Opened, offset: u64, len: u64) -> io::Result<()> {
        if !to.path.ends_with("p0001.data") {
            return Ok(());
        }
        let end = to.file.len()?;
        let (done, ended) = mpsc::channel();
        let files = self.files.get().expect("open").clone();
        let writer = thread::spawn(move || {
            files.write(&[(page(1, WRITTEN), &written())]).expect("a sound disk");
            _ = done.send(());
        });
        // If the write need not wait, it ends soon. Otherwise it cannot end before we do.
        let _may_wait = ended.recv_timeout(Duration::from_millis(300));
        to.file.write_all_at(&vec![0; (offset + len - end) as usize], end)?;
        *self.writer.lock().expect("no panic") = Some(writer);
        Ok(())
    }
}

/// At a start redo may have changed pages beyond the end of a file, which write-back writes.
#[test]
fn growth_by_zeros_keeps_written_pages() {
    let (disk, grows) = (MemDisk::new(), Arc::new(GrowsByZeros::default()));
    drop(files(&disk));
    let over = Intercepted::new(disk.clone(), grows.clone());
    let files = Arc::new(Files::open(&over, Path::new("/data"), PARTITIONS).unwrap());
    assert!(grows.files.set(files.clone()).is_ok());
    files.make_space(page(1, 9), FileSpace::WithReserve).unwrap();
    grows.writer.lock().unwrap().take().expect("the file has grown").join().unwrap();
    let mut found = [0; PAGE_SIZE];
    let file = disk.open(Path::new("/data/p0001.data"), Open::Existing).unwrap();
    file.read_exact_at(&mut found, u64::from(WRITTEN) * PAGE_SIZE as u64).unwrap();
    assert!(found == written(), "zeros were written over the page");
}

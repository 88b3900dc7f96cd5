//! Disk space is allocated before a page is created, so that no write needs any.

use clearway_buffer::{FileSpace, MissingPage, PAGE_SIZE, PageError, PageIo, Pool, PoolConfig};
use clearway_env::IoPool;
use clearway_testkit::MemDisk;
use std::sync::Arc;

use crate::common::{FakeWal, files, page};

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
        clearway_buffer::seal(&mut bytes, page(1, no));
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

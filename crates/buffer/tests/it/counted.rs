//! Every latch of the pool has a contention class, and waits are attributed to callers.

use crate::common::*;
use clearway_buffer::*;
use clearway_latch::lockstat::contention;
use clearway_replacement::{PolicyKind, ReplacementKind, WrapperKind};
use clearway_testkit::MemDisk;
use std::thread;
use std::time::Duration;

const CLASSES: [&str; 12] = [
    "buffer.scan_ring",
    "buffer.free_list",
    "buffer.free_frame",
    "buffer.page_table",
    "buffer.policy",
    "buffer.double_write",
    "buffer.file_growth",
    "buffer.write_back",
    "buffer.page_shared",
    "buffer.page_exclusive",
    "buffer.page_write_back",
    "env.io_queue",
];

fn requests(class: &str) -> u64 {
    contention().iter().find(|row| row.name == class).map_or(0, |row| row.requests)
}

#[test]
fn every_class_reports() {
    let before = CLASSES.map(requests);
    let fixture = pool_on(
        &MemDisk::new(),
        16,
        ReplacementKind::Wrapped(PolicyKind::Lru, WrapperKind::Locked),
    );
    for no in 0..64 {
        with(&fixture.pool, |pool| {
            pool.create(page(0, no), FileSpace::Usual).map(|mut p| stamp(&mut p, &fixture.wal, 1))
        });
    }
    assert_eq!(get(&fixture, page(0, 0)), 1);
    fixture.pool.flush_before(fixture.wal.append()).unwrap();
    drop(fixture);
    // The fixture's files have enough space.
    files(&MemDisk::new()).make_space(page(0, 0), FileSpace::Usual).unwrap();
    for (class, before) in CLASSES.into_iter().zip(before) {
        assert!(requests(class) > before, "{class}");
    }
    assert!(requests("buffer.cooler") > 0);
}

/// The caller is the code that called the pool, not the pool.
#[test]
fn waits_for_pages_name_class_and_caller() {
    let fixture = pool(16);
    let id = page(0, 0);
    put(&fixture, id, 1);
    let waited = |class: &str| {
        let rows = contention();
        let here = |row: &&clearway_latch::lockstat::Contention| {
            row.name == class && row.caller.is_some_and(|caller| caller.file == file!())
        };
        rows.iter().find(here).map_or(0, |row| row.contended)
    };
    for class in ["buffer.page_shared", "buffer.page_exclusive"] {
        // The other thread may arrive too late to wait.
        while waited(class) == 0 {
            let before = requests(class);
            thread::scope(|scope| {
                let held = fixture.pool.write(id).unwrap();
                scope.spawn(|| match class {
                    "buffer.page_shared" => drop(fixture.pool.read(id).unwrap()),
                    _ => drop(fixture.pool.write(id).unwrap()),
                });
                while requests(class) == before {
                    thread::yield_now();
                }
                thread::park_timeout(Duration::from_millis(1));
                drop(held);
            });
        }
    }
}

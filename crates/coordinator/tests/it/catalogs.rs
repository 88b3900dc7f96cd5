//! The committed catalog and its version, while other threads read them.

use crate::common::{Bank, Worker, open};
use clearway_testkit::MemDisk;
use std::sync::atomic::{AtomicBool, Ordering};

/// A plan with the committed catalog is not stale when it is made: a thread that gets a catalog
/// sees its version, or a later one.
#[test]
fn catalog_is_never_newer_than_its_version() {
    let engine = open(&MemDisk::new(), 1, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, 1, 0);
    let first = engine.catalog_version();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: it only signals when to end.
            while !ended.load(Ordering::Relaxed) {
                let catalog = engine.catalog();
                assert!(engine.catalog_version() >= catalog.version);
            }
        });
        (0..1000).for_each(|_| bank.truncate(&mut worker));
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.catalog_version(), first + 1000);
    engine.shutdown().unwrap();
}

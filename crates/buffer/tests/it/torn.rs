//! Crashes while pages are written: afterwards every page is old or new (`files`, invariants 1 to
//! 3).

use crate::common::*;
use clearway_buffer::*;
use clearway_testkit::MemDisk;

fn sealed(no: u32, stamp: u8) -> [u8; PAGE_SIZE] {
    let mut bytes = [stamp; PAGE_SIZE];
    seal(&mut bytes, page(0, no));
    bytes
}

fn write(files: &Files, numbers: std::ops::Range<u32>, stamp: u8) -> Result<(), PageError> {
    let pages: Vec<_> = numbers.map(|no| (page(0, no), sealed(no, stamp))).collect();
    files.write(&pages.iter().map(|(id, bytes)| (*id, bytes)).collect::<Vec<_>>())
}

#[test]
fn crash_at_any_operation_leaves_pages_old_or_new() {
    let (mut torn, mut old, mut new) = (0, 0, 0);
    for operations in 0..24 {
        for seed in 0..6 {
            let disk = MemDisk::new();
            let before = files(&disk);
            write(&before, 0..8, 1).unwrap();
            before.sync().unwrap();
            disk.fail_after(operations);
            // A large batch, a smaller one over it, and a sync: each operation may fail.
            let _may_fail = write(&before, 0..8, 2)
                .and_then(|()| write(&before, 2..5, 3))
                .and_then(|()| before.sync());
            let after = files(&disk.crash(seed));
            torn += after.restore_torn().unwrap();
            for no in 0..8 {
                let mut bytes = [0; PAGE_SIZE];
                after.read_run(page(0, no), &mut bytes).unwrap();
                match bytes[HEADER] {
                    1 => old += 1,
                    2 | 3 => new += 1,
                    other => panic!("page {no} has {other}"),
                }
                assert_eq!(check_content(&bytes).map(|w| w as u8), Ok(bytes[HEADER]));
            }
            assert_eq!(after.restore_torn().unwrap(), 0, "a second restore has nothing to do");
        }
    }
    assert!(
        torn > 0 && old > 0 && new > 0,
        "{torn} torn, {old} old, {new} new: all three must occur"
    );
}

#[test]
fn copies_of_an_older_batch_are_not_restored() {
    use clearway_env::{Disk, Open};
    let disk = MemDisk::new();
    let files = files(&disk);
    write(&files, 0..8, 1).unwrap();
    write(&files, 0..2, 2).unwrap();
    files.sync().unwrap();
    // Page 7's copy is still in the double-write file, but the header names only the second batch.
    disk.open("/data/p0000.data".as_ref(), Open::Existing)
        .unwrap()
        .write_all_at(&[9], 7 * 8192 + 100)
        .unwrap();
    assert_eq!(files.restore_torn().unwrap(), 0);
    assert!(matches!(
        files.read_run(page(0, 7), &mut [0; PAGE_SIZE]),
        Err(PageError::Damaged { .. })
    ));
}

#[test]
fn invalid_double_write_file_is_ignored() {
    use clearway_env::{Disk, Open};
    let disk = MemDisk::new();
    let files = files(&disk);
    let file = disk.open("/data/double-write.data".as_ref(), Open::Existing).unwrap();
    for fill in [0_u8, 1, 255] {
        file.write_all_at(&vec![fill; 3 * PAGE_SIZE], 0).unwrap();
        assert_eq!(files.restore_torn().unwrap(), 0);
    }
}

/// Returns the stamps of the first pages after a crash.
fn stamps_after(disk: &MemDisk, seed: u64, pages: u32) -> Vec<u8> {
    let after = files(&disk.crash(seed));
    after.restore_torn().unwrap();
    let stamp = |no| {
        let mut bytes = [0; PAGE_SIZE];
        after.read_run(page(0, no), &mut bytes).unwrap();
        bytes[HEADER]
    };
    (0..pages).map(stamp).collect()
}

/// Invariant 1 across processes: the last batch of a killed process is only in the system's cache.
#[test]
fn batch_of_a_killed_process_survives_a_crash() {
    for repair in [false, true] {
        for seed in 0..8 {
            let disk = MemDisk::new();
            write(&files(&disk), 0..4, 1).unwrap();
            let next = files(&disk);
            if repair {
                next.restore_torn().unwrap();
            } else {
                write(&next, 4..8, 1).unwrap();
            }
            assert_eq!(stamps_after(&disk, seed, 4), [1; 4]);
        }
    }
}

/// After a failed sync the system's cache may show data that the disk has lost, and no later sync
/// writes it.
#[test]
fn next_process_rewrites_a_batch_after_a_failed_sync() {
    use clearway_testkit::{Fault, FaultPlan, FaultZone, Role, When};
    use std::sync::Arc;
    use std::time::Duration;
    for (role, path) in
        [(Role::Pages, "/data/p0000.data"), (Role::Copies, "/data/double-write.data")]
    {
        for seed in 0..16 {
            let disk = MemDisk::new();
            let first = files(&disk);
            write(&first, 0..4, 1).unwrap();
            first.sync().unwrap();
            let zone =
                FaultZone::under(role, "hit", path).fault(Fault::FailedSync, When::After(0), 1);
            disk.set_faults(Some(Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![zone]))));
            write(&first, 0..4, 2).and_then(|()| first.sync()).unwrap_err();
            let next = files(&disk);
            next.restore_torn().unwrap();
            let stamp = |no| {
                let mut bytes = [0; PAGE_SIZE];
                next.read_run(page(0, no), &mut bytes).unwrap();
                bytes[HEADER]
            };
            let seen: Vec<u8> = (0..4).map(stamp).collect();
            write(&next, 4..8, 1).unwrap();
            assert_eq!(stamps_after(&disk, seed, 4), seen, "{path}, seed {seed}");
        }
    }
}

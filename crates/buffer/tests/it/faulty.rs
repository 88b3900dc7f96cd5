//! The pool on a disk with injected faults: an access to a page that cannot be read fails, and
//! everything else continues.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use clearway_buffer::*;
use clearway_env::{Disk, Open};
use clearway_replacement::ReplacementKind;
use clearway_testkit::{Duty, FOR_EVER, Fault, FaultPlan, FaultZone, MemDisk, Role, When};
use clearway_types::Lsn;

const PAGES: u32 = 64;

/// Creates a disk with a page for each stamp, and a fault plan for the page files only.
fn struck_by(seed: u64, fault: Fault, when: When, times: u64) -> (MemDisk, Arc<FaultPlan>) {
    let disk = MemDisk::new();
    let f = pool_on(&disk, 32, ReplacementKind::default());
    (0..PAGES).for_each(|no| put(&f, page(0, no), u64::from(no) + 1));
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    // So that the double-write file has no copies of these pages, from which a start would repair
    // them.
    put(&f, page(1, 0), 1);
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    let pages =
        FaultZone::under(Role::Pages, "pages", "/data/p0000.data").fault(fault, when, times);
    let plan = Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![pages]));
    (disk, plan)
}

/// A new pool on the disk, whose log continues after the changes of [`struck_by`].
fn again(disk: &MemDisk) -> Fixture {
    let f = pool_on(disk, 32, ReplacementKind::default());
    for _ in 0..=PAGES {
        f.wal.append();
    }
    f
}

/// Returns what a new pool finds in each page: the stamp or the error. The plan is active once the
/// pool is open.
fn look(disk: &MemDisk, plan: &Arc<FaultPlan>) -> Vec<Result<u64, PageError>> {
    disk.set_faults(None);
    let f = again(disk);
    disk.set_faults(Some(plan.clone()));
    let fetch =
        |no| f.pool.fetch_blocking(MissingPage::Page(page(0, no))).map(|_pin| get(&f, page(0, no)));
    (0..PAGES).map(fetch).collect()
}

#[test]
fn page_is_readable_after_a_failed_read() {
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::FailedRead, When::After(seed), 3);
        let found = look(&disk, &plan);
        let failed = found.iter().filter(|page| matches!(page, Err(PageError::Io { .. }))).count();
        assert_eq!((failed, plan.injected().len()), (3, 3), "seed {seed}");
        assert!(plan.injected().iter().all(|fault| fault.duty == Duty::Continues));
        for (no, page) in (1..).zip(found) {
            assert!(page.map_or(true, |stamp| stamp == no), "seed {seed}: never wrong contents");
        }
        assert!(
            (1..).zip(look(&disk, &plan)).all(|(no, page)| page.unwrap() == no),
            "seed {seed}: the plan has no faults left"
        );
    }
}

#[test]
fn short_reads_are_continued() {
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::ShortRead, When::OneIn(2), FOR_EVER);
        assert!((1..).zip(look(&disk, &plan)).all(|(no, page)| page.unwrap() == no), "seed {seed}");
        assert!(plan.injected().len() > 10);
    }
}

#[test]
fn bit_flips_and_bad_sectors_are_always_detected() {
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::FlippedBit, When::After(seed), 3);
        let damaged = |found: &[Result<u64, PageError>]| {
            let damaged =
                |page: &Result<u64, PageError>| matches!(page, Err(PageError::Damaged { .. }));
            found.iter().filter(|page| damaged(page)).count()
        };
        let (first, again) = (look(&disk, &plan), look(&disk, &plan));
        assert_eq!(
            (damaged(&first), damaged(&again)),
            (3, 3),
            "seed {seed}: damage at rest is permanent"
        );
        assert!((1..).zip(first).all(|(no, page)| page.map_or(true, |stamp| stamp == no)));
        let (disk, plan) = struck_by(seed, Fault::UnreadableSector, When::After(seed), 3);
        let failed =
            |found: Vec<Result<u64, PageError>>| found.iter().filter(|page| page.is_err()).count();
        assert_eq!((failed(look(&disk, &plan)), failed(look(&disk, &plan))), (3, 3), "seed {seed}");
    }
}

/// Reads other pages until the page is evicted. Checking for the page does not count as a use.
fn drive_out(pool: &Pool, no: u32) {
    for other in (10..PAGES).cycle().take(10_000) {
        if !pool.is_resident(page(0, no)) {
            return;
        }
        pool.fetch_blocking(MissingPage::Page(page(0, other))).unwrap();
    }
    panic!("page {no} stays");
}

/// Returns the first word of an evicted page, if the page can be read.
fn read_again(f: &Fixture, no: u32) -> Option<u64> {
    drive_out(&f.pool, no);
    let _kept = f.pool.fetch_blocking(MissingPage::Page(page(0, no))).ok()?;
    let read = f.pool.read(page(0, no)).unwrap();
    Some(u64::from_le_bytes(read[HEADER..HEADER + 8].try_into().unwrap()))
}

/// Changes only the page's first sector. A failed sync may lose all of that change, and then the
/// page is as before.
fn change_first_sector(f: &Fixture, no: u32, word: u64) {
    let change = |mut page: PageMut<'_>| {
        page.mark_dirty_begin();
        let lsn = f.wal.append();
        page[HEADER..HEADER + 8].copy_from_slice(&word.to_le_bytes());
        page.set_lsn(lsn);
    };
    with(&f.pool, |pool| pool.write(page(0, no)).map(change));
}

/// Invariant 1 of `unsynced`: a failing sync may restore a page's old contents some time before it
/// returns the error.
#[test]
fn pages_lost_by_a_failing_sync_are_not_read() {
    let mut lost = 0;
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::FailedSync, When::After(0), 1);
        let f = Arc::new(again(&disk));
        change_first_sector(&f, 3, 99);
        // The cooler writes it, and syncs it only with the next batch.
        drive_out(&f.pool, 3);
        put(&f, page(0, 4), 99);
        disk.set_faults(Some(plan));
        let (seen, of_pool) = (Arc::new(Mutex::new(None)), Arc::downgrade(&f));
        let see = seen.clone();
        let read = move || *see.lock().unwrap() = Some(read_again(&of_pool.upgrade().unwrap(), 3));
        *f.io.after_failure.lock().unwrap() = Some(Box::new(read));
        f.pool.flush_before(Lsn(u64::MAX)).unwrap_err();
        let seen = seen.lock().unwrap().take().expect("the sync has failed");
        assert!(seen.is_none_or(|stamp| stamp == 99), "seed {seed}: {seen:?}");
        lost += u32::from(seen.is_none());
        assert!(f.pool.failed().is_some());
    }
    assert!(lost > 3, "{lost}: the fault must lose something");
}

/// Why a failed sync is final: afterwards the disk reports success, but a crash shows that data is
/// lost.
#[test]
fn nothing_is_written_after_a_failed_sync() {
    let mut torn = 0;
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::FailedSync, When::After(0), 1);
        let f = again(&disk);
        put(&f, page(0, 3), 99);
        disk.set_faults(Some(plan));
        f.pool.flush_before(Lsn(u64::MAX)).unwrap_err();
        disk.open(Path::new("/data/p0000.data"), Open::Existing)
            .unwrap()
            .sync_data()
            .expect("the disk reports success");
        assert!(f.pool.flush_before(Lsn(u64::MAX)).is_err(), "seed {seed}: the pool stays failed");
        assert_eq!(get(&f, page(0, 5)), 6, "seed {seed}: an unwritten page is unchanged");
        assert!(
            read_again(&f, 3).is_none_or(|stamp| stamp == 99),
            "seed {seed}: a lost page is not read"
        );
        let after = files(&disk.crash(seed));
        let mut bytes = [0; PAGE_SIZE];
        torn += u32::from(after.read_run(page(0, 3), &mut bytes).is_err());
        after.restore_torn().unwrap();
        after.read_run(page(0, 3), &mut bytes).unwrap();
        assert!(
            matches!(check_content(&bytes), Ok(4 | 99)),
            "seed {seed}: old, or restored from the copy"
        );
    }
    assert!(torn > 10, "the fault must lose something");
}

//! The pool on a disk whose fault plan strikes: who needs a page that cannot be read gets an error,
//! and all else goes on.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use clearway_buffer::*;
use clearway_env::{Disk, Duty, FOR_EVER, Fault, FaultPlan, FaultZone, MemDisk, Open, Role, When};
use clearway_replacement::ReplacementKind;
use clearway_types::Lsn;

const PAGES: u32 = 64;

/// A disk with a page for each stamp, and a plan that hits the page files only.
fn struck_by(seed: u64, fault: Fault, when: When, times: u64) -> (MemDisk, Arc<FaultPlan>) {
    let disk = MemDisk::new();
    let f = pool_on(&disk, 32, ReplacementKind::default());
    (0..PAGES).for_each(|no| put(&f, page(0, no), u64::from(no) + 1));
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    // So that the double-write file has no copy any more from which a start would repair what is
    // hit.
    put(&f, page(1, 0), 1);
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    let pages =
        FaultZone::under(Role::Pages, "pages", "/data/p0000.data").fault(fault, when, times);
    let plan = Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![pages]));
    (disk, plan)
}

/// A fresh pool on the disk, whose log goes on behind the changes of [`struck_by`].
fn again(disk: &MemDisk) -> Fixture {
    let f = pool_on(disk, 32, ReplacementKind::default());
    for _ in 0..=PAGES {
        f.wal.append();
    }
    f
}

/// What a fresh pool finds in each page, under the plan once it is open: the stamp, or the error.
fn look(disk: &MemDisk, plan: &Arc<FaultPlan>) -> Vec<Result<u64, PageError>> {
    disk.set_faults(None);
    let f = again(disk);
    disk.set_faults(Some(plan.clone()));
    let fetch =
        |no| f.pool.fetch_blocking(MissingPage::Page(page(0, no))).map(|_pin| get(&f, page(0, no)));
    (0..PAGES).map(fetch).collect()
}

#[test]
fn a_failed_read_is_an_error_once_and_the_page_is_there_the_next_time() {
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::FailedRead, When::After(seed), 3);
        let found = look(&disk, &plan);
        let failed = found.iter().filter(|page| matches!(page, Err(PageError::Io { .. }))).count();
        assert_eq!((failed, plan.injected().len()), (3, 3), "seed {seed}");
        assert!(plan.injected().iter().all(|struck| struck.duty == Duty::Continues));
        for (no, page) in (1..).zip(found) {
            assert!(page.map_or(true, |stamp| stamp == no), "seed {seed}: never a wrong content");
        }
        assert!(
            (1..).zip(look(&disk, &plan)).all(|(no, page)| page.unwrap() == no),
            "seed {seed}: the budget is used up"
        );
    }
}

#[test]
fn short_reads_are_read_on() {
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::ShortRead, When::OneIn(2), FOR_EVER);
        assert!((1..).zip(look(&disk, &plan)).all(|(no, page)| page.unwrap() == no), "seed {seed}");
        assert!(plan.injected().len() > 10);
    }
}

#[test]
fn a_flipped_bit_and_an_unreadable_sector_are_found_each_time() {
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::FlippedBit, When::After(seed), 3);
        let damaged = |found: &[Result<u64, PageError>]| {
            let damaged =
                |page: &Result<u64, PageError>| matches!(page, Err(PageError::Damaged { .. }));
            found.iter().filter(|page| damaged(page)).count()
        };
        let (first, again) = (look(&disk, &plan), look(&disk, &plan));
        assert_eq!((damaged(&first), damaged(&again)), (3, 3), "seed {seed}: at rest it stays");
        assert!((1..).zip(first).all(|(no, page)| page.map_or(true, |stamp| stamp == no)));
        let (disk, plan) = struck_by(seed, Fault::UnreadableSector, When::After(seed), 3);
        let failed =
            |found: Vec<Result<u64, PageError>>| found.iter().filter(|page| page.is_err()).count();
        assert_eq!((failed(look(&disk, &plan)), failed(look(&disk, &plan))), (3, 3), "seed {seed}");
    }
}

/// Has other pages take the frames until the page is in none of them. To look for it is no use of
/// it.
fn drive_out(pool: &Pool, no: u32) {
    for other in (10..PAGES).cycle().take(10_000) {
        if !pool.is_resident(page(0, no)) {
            return;
        }
        pool.fetch_blocking(MissingPage::Page(page(0, other))).unwrap();
    }
    panic!("page {no} stays");
}

/// The first word of a page that has left the pool, if it can be read.
fn read_again(f: &Fixture, no: u32) -> Option<u64> {
    drive_out(&f.pool, no);
    let _kept = f.pool.fetch_blocking(MissingPage::Page(page(0, no))).ok()?;
    let read = f.pool.read(page(0, no)).unwrap();
    Some(u64::from_le_bytes(read[HEADER..HEADER + 8].try_into().unwrap()))
}

/// Changes a page's first sector only: what a sync may lose as a whole, so that the page is as it
/// was.
fn change_first_sector(f: &Fixture, no: u32, word: u64) {
    let change = |mut page: PageMut<'_>| {
        page.mark_dirty_begin();
        let lsn = f.wal.append();
        page[HEADER..HEADER + 8].copy_from_slice(&word.to_le_bytes());
        page.set_lsn(lsn);
    };
    with(&f.pool, |pool| pool.write(page(0, no)).map(change));
}

/// Invariant 1 of `unsynced`: a sync that fails may bring back what a page was, a while before
/// anyone is told that it has failed.
#[test]
fn what_a_sync_has_lost_is_not_read_before_the_sync_says_so() {
    let mut lost = 0;
    for seed in 0..20 {
        let (disk, plan) = struck_by(seed, Fault::FailedSync, When::After(0), 1);
        let f = Arc::new(again(&disk));
        change_first_sector(&f, 3, 99);
        // Written by the cooler, and not synced before the next batch.
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
    assert!(lost > 3, "{lost}: the fault must be one that loses something");
}

/// Why a failed sync is final: the disk says afterwards that all is well, and a crash shows that it
/// is not.
#[test]
fn after_a_failed_sync_nothing_is_written_although_the_disk_would_let_us() {
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
            .expect("as if nothing had been");
        assert!(
            f.pool.flush_before(Lsn(u64::MAX)).is_err(),
            "seed {seed}: the pool does not believe it"
        );
        assert_eq!(get(&f, page(0, 5)), 6, "seed {seed}: what was not written is as it was");
        assert!(
            read_again(&f, 3).is_none_or(|stamp| stamp == 99),
            "seed {seed}: what is lost is not read"
        );
        let after = files(&disk.crash(seed));
        let mut bytes = [0; PAGE_SIZE];
        torn += u32::from(after.read_run(page(0, 3), &mut bytes).is_err());
        after.restore_torn().unwrap();
        after.read_run(page(0, 3), &mut bytes).unwrap();
        assert!(
            matches!(check_content(&bytes), Ok(4 | 99)),
            "seed {seed}: old, or repaired from the copy"
        );
    }
    assert!(torn > 10, "the fault must be one that loses something");
}

//! The second level: a page found there has the newest version, whatever happens to the file.

use crate::common::*;
use crate::stress::{FRAMES, compare, work};
use clearway_buffer::*;
use clearway_env::{Disk, Open};
use clearway_replacement::ReplacementKind;
use clearway_testkit::{FOR_EVER, Fault, FaultPlan, FaultZone, MemDisk, OpKind, Role, When};
use clearway_types::{Lsn, PageId};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const PAGES: u32 = 256;

fn cache_file() -> PathBuf {
    Path::new("/ssd").join(SECOND_LEVEL_FILE)
}

/// A fault plan for the second level's file.
fn with_faults(disk: &MemDisk, seed: u64, faults: &[Fault], when: When) -> Arc<FaultPlan> {
    let zone = FaultZone::under(Role::Cache, "second level", "/ssd");
    let zone = faults.iter().fold(zone, |zone, fault| zone.fault(*fault, when, FOR_EVER));
    let plan = Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![zone]));
    disk.set_faults(Some(plan.clone()));
    plan
}

/// A pool of 32 frames. All pages are on disk, and their stamps are their numbers plus 1.
fn filled(slots: u64) -> Fixture {
    let f = pool_with_second_level(&MemDisk::new(), 32, slots);
    (0..PAGES).for_each(|no| put(&f, page(0, no), u64::from(no) + 1));
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
    f
}

fn second(f: &Fixture) -> SecondLevelStats {
    f.pool.stats().second_level
}

/// Reads every page.
fn pass(f: &Fixture) {
    (0..PAGES).for_each(|no| assert_eq!(get(f, page(0, no)), u64::from(no) + 1));
}

/// Reads other pages until `done`.
fn churn(f: &Fixture, done: impl Fn() -> bool) {
    for no in (128..PAGES).cycle().take(1_000_000) {
        if done() {
            return;
        }
        get(f, page(0, no));
    }
    panic!("not reached: {:?}", f.pool.stats());
}

fn is_out(f: &Fixture, no: u32) -> bool {
    !f.pool.is_resident(page(0, no))
}

/// Reads all pages repeatedly until every evicted page has a readable copy. Another pass then reads
/// few pages from the data file.
fn warm(f: &Fixture) {
    for _ in 0..10_000 {
        let before = f.pool.stats();
        pass(f);
        if f.pool.stats().reads - before.reads < u64::from(PAGES / 4) {
            return;
        }
    }
    panic!("it stays cold: {:?}", f.pool.stats());
}

#[test]
fn evicted_pages_are_written_to_the_second_level_once() {
    let f = filled(512);
    warm(&f);
    let before = second(&f);
    for _ in 0..20 {
        pass(&f);
    }
    let after = second(&f);
    assert!(after.hits - before.hits > u64::from(10 * PAGES), "{after:?}");
    assert!(
        after.writes - before.writes <= 64,
        "a page that is there is not written again: {before:?} {after:?}"
    );
    assert_eq!(after.dropped, 0);
    assert!(after.pages <= 512 && after.pages > u64::from(PAGES / 2), "{after:?}");
}

/// Invariant 1, one page at a time: after a change the old copy is never visible.
#[test]
fn old_copy_of_a_changed_page_is_never_found() {
    let f = filled(512);
    warm(&f);
    for round in 2..20_u64 {
        for no in (0..PAGES).step_by(5) {
            put(&f, page(0, no), round * 1_000);
        }
        for no in 0..PAGES {
            let expected = if no % 5 == 0 { round * 1_000 } else { u64::from(no) + 1 };
            assert_eq!(get(&f, page(0, no)), expected, "round {round} page {no}");
        }
    }
    assert!(second(&f).hits > 100 && second(&f).dropped == 0, "{:?}", second(&f));
}

/// A page that is dropped and whose number is reused, and one that is created and unpinned without
/// a change, so that the disk's version counts.
#[test]
fn old_copy_of_a_recreated_page_is_not_found() {
    let f = filled(512);
    warm(&f);
    for round in 0..20 {
        let (again, unmarked) = (page(0, round), page(0, 64 + round));
        with(&f.pool, |pool| {
            pool.create(again, FileSpace::Usual).map(|mut p| stamp(&mut p, &f.wal, 7))
        });
        with(&f.pool, |pool| pool.create(unmarked, FileSpace::Usual).map(drop));
        churn(&f, || is_out(&f, round) && is_out(&f, 64 + round));
        assert_eq!(get(&f, again), 7);
        assert_eq!(get(&f, unmarked), u64::from(64 + round) + 1);
    }
}

/// Invariant 2: while a copy is being read, the page is created, changed, written, and evicted.
#[test]
fn overtaken_read_of_a_copy_is_discarded() {
    let f = filled(512);
    warm(&f);
    churn(&f, || is_out(&f, 3));
    let (begun, begins) = mpsc::channel();
    let hold = Arc::new(AtomicBool::new(true));
    let held = hold.clone();
    f.disk.set_hook(Some(Arc::new(move |operation| {
        if operation.kind == OpKind::Read
            && operation.path.starts_with("/ssd")
            && held.swap(false, SeqCst)
        {
            let (go, wait) = mpsc::channel();
            begun.send(go).unwrap();
            wait.recv().unwrap();
        }
    })));
    let (sender, receiver) = mpsc::channel();
    f.pool
        .fetch(MissingPage::Page(page(0, 3)), Box::new(move |result| sender.send(result).unwrap()));
    let go = begins.recv().unwrap();
    with(&f.pool, |pool| {
        pool.create(page(0, 3), FileSpace::Usual).map(|mut p| stamp(&mut p, &f.wal, 99))
    });
    churn(&f, || is_out(&f, 3));
    go.send(()).unwrap();
    let _pin = receiver.recv().unwrap().unwrap();
    let found = f.pool.read(page(0, 3)).map(|p| check_content(&p).unwrap());
    assert_eq!(found, Ok(99));
    drop(_pin);
    f.disk.set_hook(None);
}

/// Returns how many pages were, or would have been, copied to the second level during a scan, when
/// other pages have already made room for it.
fn copied_of_a_scan(scanned: impl Fn(&Fixture, PageId)) -> u64 {
    let f = filled(64);
    let copied = || second(&f).writes + second(&f).skipped;
    (0..4).for_each(|_| (0..2_000).for_each(|no| scanned(&f, page(1, no))));
    let before = copied();
    (2_000..8_000).for_each(|no| scanned(&f, page(1, no)));
    copied() - before
}

#[test]
fn scans_do_not_fill_the_second_level() {
    let fetch = |f: &Fixture, id| f.pool.fetch_blocking(MissingPage::Scan(id)).unwrap();
    let read = copied_of_a_scan(|f, id| drop(fetch(f, id)));
    assert_eq!(read, 0);
    let changed = copied_of_a_scan(|f, id| {
        let _pin = fetch(f, id);
        stamp(&mut f.pool.write(id).unwrap(), &f.wal, 1);
    });
    assert_eq!(changed, 0, "pages that were written before they were evicted");
}

/// Invariant 3.
#[test]
fn contents_from_before_the_start_are_ignored() {
    let f = filled(512);
    warm(&f);
    let Fixture { disk, wal, pool, io, .. } = f;
    drop((pool, io));
    let f = pool_with_second_level(&disk, 32, 512);
    f.wal.continue_after(&wal);
    assert!(disk.open(&cache_file(), Open::Existing).unwrap().is_empty().unwrap());
    (0..16).for_each(|no| assert_eq!(get(&f, page(0, no)), u64::from(no) + 1));
    assert_eq!((second(&f).hits, second(&f).misses), (0, 16));
    assert!(
        second_level(&disk, Path::new("/ssd"), 64)
            .err()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    );
    assert!(second_level(&disk, Path::new("/none"), 64).is_err());
    assert!(second_level(&disk, Path::new("/data"), 15).is_err(), "too small");
    assert!(second_level(&disk, Path::new("/data"), 1 << 30).is_err(), "too large");
}

/// Invariant 4: each fault alone, frequent and rare, while data of eight times the pool's size is
/// changed.
#[test]
fn faults_of_its_file_do_not_affect_reads() {
    use Fault::{
        FailedRead, FailedWrite, FlippedBit, LostWrite, MisledWrite, ShortRead, UnreadableSector,
    };
    let all =
        [FailedRead, UnreadableSector, ShortRead, FlippedBit, LostWrite, MisledWrite, FailedWrite];
    for (seed, fault) in (0..).zip(all) {
        for when in [When::OneIn(2), When::OneIn(200), When::After(20)] {
            let disk = MemDisk::new();
            let f = pool_with_second_level(&disk, FRAMES, 320);
            let plan = with_faults(&disk, seed, &[fault], when);
            let models = work(&f, ReplacementKind::default(), 1_000);
            compare(&f, ReplacementKind::default(), &models);
            let rare = when == When::OneIn(200);
            assert!(rare || !plan.injected().is_empty(), "{fault:?} {when:?}: {:?}", second(&f));
            disk.set_faults(None);
            let after = pool_on(&disk.crash(7), FRAMES, ReplacementKind::default());
            after.wal.continue_after(&f.wal);
            compare(&after, ReplacementKind::default(), &models);
        }
    }
}

#[test]
fn contents_survive_changes_and_checkpoints() {
    for slots in [16, 40, 320, 4_000] {
        let f = pool_with_second_level(&MemDisk::new(), FRAMES, slots);
        let models = work(&f, ReplacementKind::default(), 3_000);
        compare(&f, ReplacementKind::default(), &models);
        let stats = second(&f);
        assert!(
            stats.writes > 0 && stats.dropped == 0 && stats.pages <= slots,
            "{slots}: {stats:?}"
        );
        assert!(slots < 320 || stats.hits > 100, "{slots}: {stats:?}");
    }
}

/// Invariant 4: reads that fail or return wrong data.
#[test]
fn second_level_is_disabled_after_many_bad_copies() {
    for fault in [Fault::FailedRead, Fault::UnreadableSector, Fault::FlippedBit] {
        let f = filled(512);
        warm(&f);
        with_faults(&f.disk, 1, &[fault], When::OneIn(1));
        for _ in 0..1_000 {
            pass(&f);
            if second(&f).pages == 0 {
                break;
            }
        }
        let ended = second(&f);
        assert!(
            ended.pages == 0 && ended.dropped > 16 && ended.dropped < 24,
            "{fault:?}: {ended:?}"
        );
        f.disk.set_faults(None);
        (0..4).for_each(|_| pass(&f));
        assert_eq!(second(&f), ended, "{fault:?}: it stays disabled");
    }
}

/// A write that was acknowledged but not done leaves an older version of this or another page, with
/// a correct checksum.
#[test]
fn second_level_is_disabled_after_failed_or_lost_writes() {
    for fault in [Fault::FailedWrite, Fault::LostWrite] {
        let f = filled(512);
        with_faults(&f.disk, 1, &[fault], When::OneIn(1));
        let mut value = 0;
        while second(&f).pages > 0 || value < 3 {
            value += 1;
            assert!(value < 1_000, "{fault:?}: {:?}", second(&f));
            (0..PAGES).for_each(|no| put(&f, page(0, no), value * 1_000 + u64::from(no)));
            (0..PAGES)
                .for_each(|no| assert_eq!(get(&f, page(0, no)), value * 1_000 + u64::from(no)));
        }
        let (ended, bad) = (second(&f), fault == Fault::LostWrite);
        assert!(if bad { ended.dropped > 16 } else { ended.dropped == 0 }, "{fault:?}: {ended:?}");
        assert!(f.pool.failed().is_none());
    }
}

#[test]
fn second_level_is_smaller_or_disabled_on_a_full_disk() {
    for (room, off) in [(200, false), (70, true)] {
        let f = filled(16);
        let Fixture { disk, wal, pool, io, .. } = f;
        drop((pool, io));
        disk.set_capacity(disk.used() + room * PAGE_SIZE as u64);
        let f = pool_with_second_level(&disk, 32, 512);
        f.wal.continue_after(&wal);
        let mut value = 0;
        while second(&f).writes < if off { 64 } else { 1_000 } || value < 20 {
            value += 1;
            (0..PAGES).for_each(|no| put(&f, page(0, no), value));
            (0..PAGES).for_each(|no| assert_eq!(get(&f, page(0, no)), value));
            assert!(value < 10_000, "{:?}", second(&f));
        }
        let stats = second(&f);
        assert!(
            if off { stats.pages == 0 } else { stats.pages > 0 && stats.pages <= 192 },
            "{room}: {stats:?}"
        );
        assert!(f.pool.failed().is_none());
    }
}

//! Segments: made ahead, recycled, removed, missing, damaged.

use std::path::Path;
use std::sync::Arc;

use clearway_env::{Disk, Open};
use clearway_testkit::MemDisk;
use clearway_types::Lsn;

use super::{open, payload, read, small};
use crate::wal::{Wal, WalConfig, WalError, WalReader};

fn names(disk: &MemDisk) -> Vec<String> {
    disk.list(Path::new("wal")).unwrap()
}

/// Appends the records and makes them durable; returns their ends.
fn fill(wal: &Wal, range: std::ops::Range<u64>) -> Vec<Lsn> {
    let ends = range.map(|n| wal.append(&[&payload(n, 200)])).collect::<Vec<_>>();
    wal.wait_durable(wal.appended()).unwrap();
    ends
}

/// Invariant 4: the earlier content of a recycled segment is never read as a record, however often
/// the segment is recycled; the number of files stays bounded.
#[test]
fn recycled_segments_expose_no_old_records() {
    let disk = MemDisk::new();
    let mut end = Lsn(0);
    let mut n = 0;
    for life in 0..5 {
        let wal = open(&disk, end);
        for _ in 0..6 {
            let before = wal.appended();
            fill(&wal, n..n + 120);
            n += 120;
            wal.remove_before(before).unwrap();
            assert!(names(&disk).len() <= 12, "{:?}", names(&disk));
            let (records, _) = read(&disk, before).unwrap();
            assert!(
                records
                    .iter()
                    .map(|(_, _, bytes)| bytes.clone())
                    .eq((n - 120..n).map(|n| payload(n, 200)))
            );
        }
        // Stop in the middle of a recycled segment.
        fill(&wal, n..n + 1 + life);
        n += 1 + life;
        wal.shutdown();
        let keep = Lsn(wal.durable().0 - 216 * 4);
        wal.remove_before(keep).unwrap();
        end = read(&disk, keep).unwrap().1;
        assert_eq!(end, wal.durable());
    }
}

/// A crash between any two steps of recycling and removing leaves a log that can be read from the
/// needed LSN on, and appended to.
#[test]
fn crash_while_recycling_loses_nothing() {
    for granted in 0..48 {
        for seed in 0..4 {
            let disk = MemDisk::new();
            let wal = open(&disk, Lsn(0));
            let from = *fill(&wal, 0..340).last().unwrap();
            fill(&wal, 1000..1030);
            wal.segments.make_ahead(0, &|| false).unwrap();
            disk.fail_after(granted);
            let removed = wal.remove_before(from);
            let disk_after = disk.crash(seed);
            let (records, end) = read(&disk_after, from).unwrap();
            assert_eq!((records.len(), end), (30, wal.durable()), "{granted} granted, {removed:?}");
            let again = open(&disk_after, end);
            fill(&again, 2000..2100);
            again.remove_before(end).unwrap();
            assert_eq!(read(&disk_after, end).unwrap().0.len(), 100);
        }
    }
}

/// Nothing at or after the given LSN is removed, nor is the current segment.
#[test]
fn remove_before_keeps_what_is_needed() {
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    let ends = fill(&wal, 0..400);
    for end in ends.iter().step_by(7) {
        wal.remove_before(*end).unwrap();
        assert_eq!(
            read(&disk, *end).unwrap().0.len(),
            ends.iter().filter(|other| *other > end).count()
        );
    }
    wal.remove_before(Lsn(u64::MAX)).unwrap();
    fill(&wal, 0..10);
    assert!(matches!(
        WalReader::open(Arc::new(disk.clone()), &small(), Lsn(0)),
        Err(WalError::Corrupt { .. })
    ));
}

/// A removed segment that a crash brought back before a gap is removed again at the next start;
/// needed ones stay.
#[test]
fn segment_before_a_gap_is_removed() {
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    let ends = fill(&wal, 0..200);
    wal.shutdown();
    disk.remove(&Path::new("wal").join(format!("{:016x}.wal", 8192))).unwrap();
    let from = *ends.iter().find(|end| end.0 > 2 * 8192).unwrap();
    let (records, end) = read(&disk, from).unwrap();
    assert_eq!(end, *ends.last().unwrap());
    open(&disk, end).shutdown();
    assert_eq!(names(&disk)[0], format!("{:016x}.wal", 2 * 8192));
    assert_eq!(read(&disk, from).unwrap(), (records, end));
}

/// A log keeps its original segment size.
#[test]
fn existing_log_keeps_its_segment_size() {
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    fill(&wal, 0..100);
    wal.shutdown();
    let config = WalConfig { segment_size: 1 << 20, ..small() };
    let reopened = Wal::open(Arc::new(disk.clone()), config, wal.durable()).unwrap();
    fill(&reopened, 100..200);
    reopened.shutdown();
    assert_eq!(read(&disk, Lsn(0)).unwrap().0.len(), 200);
}

/// Invalid bytes from the disk are an error with their place, not a panic: a missing segment, a
/// wrong header, a wrong start.
#[test]
fn missing_and_foreign_segments_are_refused() {
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    fill(&wal, 0..300);
    wal.shutdown();
    let end = wal.durable();
    assert!(Wal::open(Arc::new(disk.clone()), small(), Lsn(1 << 30)).is_err());
    assert!(matches!(read(&disk, Lsn(1 << 30)), Err(WalError::Corrupt { .. })));

    let second = Path::new("wal").join(format!("{:016x}.wal", 8192));
    let aside = Path::new("aside");
    disk.rename(&second, aside).unwrap();
    let error = read(&disk, Lsn(0)).unwrap_err();
    assert!(
        matches!(&error, WalError::Corrupt { .. })
            && error.to_string().contains("0000000000002000.wal"),
        "{error}"
    );
    disk.rename(aside, &second).unwrap();
    assert_eq!(read(&disk, Lsn(0)).unwrap().1, end);

    let file = disk.open(&second, Open::Existing).unwrap();
    for at in 0..32 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        let error = read(&disk, Lsn(0)).unwrap_err();
        assert!(error.to_string().contains("0000000000002000.wal"), "{error}");
        file.write_all_at(&byte, at).unwrap();
    }
    assert_eq!(read(&disk, Lsn(0)).unwrap().1, end);
}

/// A missing log is an empty one only if nothing was expected in it.
#[test]
fn missing_log_is_empty_unless_expected() {
    assert_eq!(read(&MemDisk::new(), Lsn(0)).unwrap().0.len(), 0);
    assert!(matches!(read(&MemDisk::new(), Lsn(64)), Err(WalError::Corrupt { .. })));
}

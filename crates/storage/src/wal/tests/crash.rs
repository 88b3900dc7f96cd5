//! What a crash leaves: torn tails, lost sectors, and damage that a crash cannot explain.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clearway_env::{Disk, File, Open};
use clearway_testkit::{Fault, FaultPlan, FaultZone, MemDisk, Role, When};
use clearway_types::Lsn;
use proptest::prelude::*;

use super::fake::controlled;
use super::{Record, open, payload, read, small};
use crate::wal::record::HEADER;
use crate::wal::segment::BLOCK;
use crate::wal::{LOG_START, Wal, WalConfig, WalError};

fn file_of(disk: &MemDisk, at: u64) -> (Arc<dyn File>, u64) {
    let size = small().segment_size;
    let path: PathBuf = Path::new("wal").join(format!("{:016x}.wal", at - at % size));
    (disk.open(&path, Open::Existing).unwrap(), BLOCK + at % size)
}

fn flip(disk: &MemDisk, at: u64) {
    let (file, offset) = file_of(disk, at);
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x81], offset).unwrap();
}

/// Removes the mark that a clean shutdown leaves behind the last record.
fn unmark(disk: &MemDisk, end: Lsn) {
    let (file, offset) = file_of(disk, end.0);
    file.write_all_at(&[0; HEADER], offset).unwrap();
}

/// Makes the next sync fail; the seed decides what it leaves of the data.
fn fail_a_sync(disk: &MemDisk, seed: u64) {
    let zone =
        FaultZone::under(Role::Log, "log", "wal").fault(Fault::FailedSync, When::After(0), 1);
    disk.set_faults(Some(Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![zone]))));
}

/// Invariant 3: the last record, cut at any byte and followed by zeros or by the bytes of an
/// earlier use, is the log's end. Everything before it is read, and appending continues in its
/// place.
#[test]
fn a_tail_torn_at_any_byte_ends_the_log() {
    for junk in [0u8, 0xff, 0x10] {
        let disk = MemDisk::new();
        let wal = open(&disk, Lsn(0));
        // Make the last record straddle the end of the first segment.
        let mut last = LOG_START;
        let mut n = 0;
        while last.0 + 120 < 8192 {
            last = wal.append(&[&payload(n, 96)]);
            wal.wait_durable(last).unwrap();
            n += 1;
        }
        let end = wal.append(&[&payload(n, 190)]);
        assert!(end.0 > 8192);
        wal.shutdown();
        unmark(&disk, end);
        let whole: Vec<u8> = (last.0..end.0)
            .map(|at| {
                let (file, offset) = file_of(&disk, at);
                let mut byte = [0];
                file.read_exact_at(&mut byte, offset).unwrap();
                byte[0]
            })
            .collect();
        for cut in (last.0..end.0).rev() {
            let (file, offset) = file_of(&disk, cut);
            file.write_all_at(&[junk], offset).unwrap();
            let same = whole[(cut - last.0) as usize..].iter().all(|&byte| byte == junk);
            let padding = end.0 - cut <= 2;
            let (records, found) = read(&disk, Lsn(0)).unwrap();
            let complete = same || padding;
            assert_eq!(
                (records.len() as u64, found),
                if complete { (n + 1, end) } else { (n, last) },
                "cut at {cut}"
            );
        }
        let again = Wal::open(Arc::new(disk.clone()), small(), last).unwrap();
        again.append(&[b"in its place"]);
        again.shutdown();
        let (records, _) = read(&disk, Lsn(0)).unwrap();
        assert_eq!(records.len() as u64, n + 1);
        assert_eq!(records.last().unwrap().2, b"in its place");
    }
}

/// Damage to log that was durable before a later record was created is reported, wherever it is,
/// with its place.
#[test]
fn damage_before_the_end_is_reported() {
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    let mut ends = vec![LOG_START];
    for n in 0..150 {
        ends.push(wal.append(&[&payload(n, 101)]));
        wal.wait_durable(*ends.last().unwrap()).unwrap();
    }
    wal.shutdown();
    // For the last record, the mark is the proof.
    for (n, start) in ends[..150].iter().enumerate() {
        for offset in [0, 5, 9, 13, 16, 60] {
            flip(&disk, start.0 + offset);
            match read(&disk, Lsn(0)) {
                Err(WalError::Corrupt { lsn, reason }) => {
                    assert!(
                        lsn == *start
                            && reason.contains(".wal offset ")
                            && reason.contains("expected"),
                        "record {n}: {reason}"
                    );
                }
                other => panic!("record {n}, byte {offset}: {other:?}"),
            }
            flip(&disk, start.0 + offset);
        }
    }
    assert_eq!(read(&disk, Lsn(0)).unwrap().0.len(), 150);
}

/// Invariant 4: complete records behind a torn one, all of one unsynced group, are a torn tail.
/// They do not reappear behind what is appended in place of the torn one, even if they are exactly
/// where the next record would be.
#[test]
fn records_after_a_torn_one_never_reappear() {
    let config = WalConfig { buffer_size: 1 << 16, ..small() };
    let disk = MemDisk::new();
    let wal = Wal::open(Arc::new(disk.clone()), config.clone(), Lsn(0)).unwrap();
    let kept = wal.append(&[&payload(0, 8)]);
    wal.wait_durable(kept).unwrap();
    assert_eq!(kept, Lsn(32));
    // Records of 32 bytes, so that they start at the beginning of every block and segment.
    for n in 1..600 {
        wal.append(&[&payload(n, 16)]);
    }
    wal.shutdown();
    unmark(&disk, wal.durable());
    flip(&disk, kept.0 + 20);
    for life in 1..=8 {
        let (records, end) = read(&disk, Lsn(0)).unwrap();
        assert!(records.iter().all(|(_, _, bytes)| bytes.len() == 8 || bytes[0] == 0xee));
        assert_eq!(end.0, if life == 1 { 32 } else { (life - 1) * 2048 });
        let again = Wal::open(Arc::new(disk.clone()), config.clone(), end).unwrap();
        while again.appended().0 < life * 2048 {
            again.append(&[&[0xee; 16]]);
        }
        again.shutdown();
    }
}

/// Invariant 2: the next process reads what a killed process had written but not synced, so it must
/// sync that before it counts as durable.
#[test]
fn log_read_after_a_kill_is_made_durable() {
    for seed in 0..8 {
        let disk = MemDisk::new();
        let (fake, control) = controlled(disk.clone());
        let wal = Wal::open(fake, small(), Lsn(0)).unwrap();
        wal.segments.make_ahead(0, &|| false).unwrap();
        control.fail(true);
        let appended = wal.append(&[&payload(1, 1500)]);
        assert!(wal.wait_durable(appended).is_err());
        drop(wal);
        let (records, end) = read(&disk, Lsn(0)).unwrap();
        assert_eq!((records.len(), end), (1, appended));
        let again = open(&disk, end);
        assert_eq!(again.durable(), end);
        assert_eq!(read(&disk.crash(seed), Lsn(0)).unwrap(), (records, end));
    }
}

/// Invariant 2 if the log's beginning has been removed: the remaining segments are still synced.
#[test]
fn tail_after_removed_segments_is_made_durable() {
    for seed in 0..8 {
        let disk = MemDisk::new();
        let (fake, control) = controlled(disk.clone());
        let wal = Wal::open(fake, small(), Lsn(0)).unwrap();
        while wal.appended().0 < 5 * 8192 {
            wal.wait_durable(wal.append(&[&payload(0, 200)])).unwrap();
        }
        let from = wal.appended();
        wal.remove_before(from).unwrap();
        control.fail(true);
        let appended = wal.append(&[&payload(1, 1500)]);
        assert!(wal.wait_durable(appended).is_err());
        drop(wal);
        let (records, end) = read(&disk, from).unwrap();
        assert_eq!((records.len(), end), (1, appended));
        assert_eq!(open(&disk, end).durable(), end);
        assert_eq!(read(&disk.crash(seed), from).unwrap(), (records, end));
    }
}

/// After a failed sync the cache may show data that the disk has lost, and no later sync writes it.
#[test]
fn tail_of_a_failed_sync_is_rewritten() {
    for seed in 0..32 {
        let disk = MemDisk::new();
        let wal = open(&disk, Lsn(0));
        // So that the segment maker has nothing left to sync.
        wal.segments.make_ahead(0, &|| false).unwrap();
        wal.wait_durable(wal.append(&[&payload(0, 300)])).unwrap();
        fail_a_sync(&disk, seed);
        let appended = wal.append(&[&payload(1, 1500)]);
        assert!(wal.wait_durable(appended).is_err());
        drop(wal);
        let (records, end) = read(&disk, Lsn(0)).unwrap();
        let again = open(&disk, end);
        let last = again.append(&[&payload(2, 100)]);
        again.wait_durable(last).unwrap();
        let (after, found) = read(&disk.crash(seed), Lsn(0)).unwrap();
        assert_eq!((&after[..records.len()], found), (&records[..], last), "seed {seed}");
        drop(again);
    }
}

/// Invariant 4: data that a start has wiped but could not sync does not reappear behind what the
/// next one appends.
#[test]
fn log_wiped_by_a_failed_start_never_reappears() {
    let config = WalConfig { buffer_size: 1 << 16, ..small() };
    for seed in 0..16 {
        let disk = MemDisk::new();
        let wal = Wal::open(Arc::new(disk.clone()), config.clone(), Lsn(0)).unwrap();
        let kept = wal.append(&[&payload(0, 8)]);
        wal.wait_durable(kept).unwrap();
        // Records of 32 bytes, so that one starts at the beginning of the second block.
        for n in 1..200 {
            wal.append(&[&payload(n, 16)]);
        }
        wal.shutdown();
        unmark(&disk, wal.durable());
        flip(&disk, kept.0 + 20);
        file_of(&disk, 0).0.sync_data().unwrap();
        fail_a_sync(&disk, seed);
        assert_eq!(read(&disk, Lsn(0)).unwrap().1, kept);
        assert!(Wal::open(Arc::new(disk.clone()), config.clone(), kept).is_err());
        let again = Wal::open(Arc::new(disk.clone()), config.clone(), kept).unwrap();
        while again.appended().0 < BLOCK {
            again.append(&[&payload(99, 16)]);
        }
        again.wait_durable(again.appended()).unwrap();
        assert_eq!(read(&disk.crash(seed), Lsn(0)).unwrap().1, Lsn(BLOCK), "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Invariants 3 and 4: over several crashes, each of which keeps any of the unsynced sectors,
    /// the log that is read is a prefix of what was appended. It contains everything durable, and
    /// what was once lost stays lost.
    #[test]
    fn a_crash_keeps_a_prefix(
        lives in prop::collection::vec((prop::collection::vec((8usize..700, 0u8..8), 1..80), any::<u64>()), 1..5)
    ) {
        let mut disk = MemDisk::new();
        let mut model: Vec<Record> = Vec::new();
        let (mut from, mut end) = (LOG_START, LOG_START);
        let mut n = 0;
        for (life, seed) in lives {
            let wal = open(&disk, end);
            for (len, what) in life {
                n += 1;
                let bytes = payload(n, len);
                let next = wal.append(&[&bytes]);
                model.push((end, next, bytes));
                end = next;
                match what {
                    0 => wal.wait_durable(end).unwrap(),
                    1 => wal.request_flush(end),
                    2 => {
                        // A checkpoint: durable log is no longer needed, and its segments are
                        // recycled.
                        let durable = wal.durable();
                        from = model.iter().map(|record| record.1).filter(|end| *end <= durable).max().unwrap_or(from);
                        wal.remove_before(from).unwrap();
                    }
                    _ => {}
                }
            }
            // The flusher may be anywhere. Log that was durable before the crash must be there.
            let durable = wal.durable();
            disk = disk.crash(seed);
            drop(wal);
            let (records, found) = read(&disk, from).unwrap();
            prop_assert!(found >= durable, "{} was durable, the log ends at {}", durable, found);
            model.retain(|record| record.1 <= found);
            let behind = model.iter().filter(|record| record.0 >= from);
            prop_assert!(behind.eq(records.iter()));
            prop_assert_eq!(model.last().map_or(LOG_START, |last| last.1), found);
            end = found;
        }
    }
}

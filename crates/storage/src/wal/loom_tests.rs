//! Interleavings of appenders and the flusher: in the ring alone, and in the whole log with its
//! real flusher on an in-memory disk that may fail.
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-storage --release --lib loom`
//!
//! The models of the whole log are bounded: a thread is preempted at most once or twice. A lost
//! wake-up shows as a deadlock, which loom reports.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use clearway_testkit::MemDisk;
use clearway_types::Lsn;
use loom::sync::Arc;
use loom::thread;

use super::flusher::{self, Pace};
use super::log::Log;
use super::record::{self, HEADER, Header};
use super::ring::Ring;
use super::room::SpaceWaits;
use super::segments::{Segments, Tail};
use super::{LOG_START, Wal, WalConfig, WalReader, record_size};

const SEGMENT: u64 = 4096;

/// Appends a record of 8 bytes, all of them `n`.
fn append(ring: &Ring, n: u8) -> u64 {
    let payload = [n; 8];
    let size = record_size(payload.len());
    let start = ring.reserve(size);
    while ring.filled_to(start + size) > ring.capacity() {
        thread::yield_now();
    }
    let crc = record::payload_crc(&[&payload]);
    ring.fill(
        start,
        record::seal(crc, HEADER + payload.len(), start, start),
        &[&payload[..3], &payload[3..]],
    );
    start + size
}

/// Drains until `end`; returns the records' contents in order.
fn drain(ring: &Ring, mut at: u64, end: u64) -> Vec<u8> {
    let mut seen = Vec::new();
    while at < end {
        let mut bytes = Vec::new();
        let next = ring.drain(at, 1 << 10, &mut bytes);
        if next == at {
            thread::yield_now();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = Header::parse(rest, at).expect("a drained record has its header");
            assert!(header.verify(&rest[..header.len()]), "a drained record is whole");
            assert!(rest[HEADER..HEADER + 8].iter().all(|byte| *byte == rest[HEADER]));
            seen.push(rest[HEADER]);
            rest = &rest[(header.end() - at) as usize..];
            at = header.end();
        }
        assert_eq!(at, next);
    }
    seen
}

/// The table of a word's states: two appenders fill concurrently; the flusher takes only complete
/// records, each once.
#[test]
fn loom_two_fill_while_one_drains() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(64, 8));
        let threads: Vec<_> = [1, 2]
            .map(|n| {
                let ring = ring.clone();
                thread::spawn(move || append(&ring, n))
            })
            .into();
        let mut seen = drain(&ring, 8, 8 + 2 * record_size(8));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
        for thread in threads {
            thread.join().expect("the appender did not panic");
        }
    });
}

/// Invariant 2: a record that reuses words is filled only after they were drained and zeroed. So
/// the flusher never takes the old record's words for the new one's.
#[test]
fn loom_a_lap_of_the_ring() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(64, 8));
        let appender = {
            let ring = ring.clone();
            thread::spawn(move || {
                for n in 1..=3 {
                    append(&ring, n);
                }
            })
        };
        assert_eq!(drain(&ring, 8, 8 + 3 * record_size(8)), [1, 2, 3]);
        appender.join().expect("the appender did not panic");
    });
}

/// Returns a log with a ring of `capacity` bytes and its flusher, without a segment maker.
fn log(capacity: usize) -> (MemDisk, std::sync::Arc<Wal>) {
    let disk = MemDisk::new();
    let shared_disk = std::sync::Arc::new(disk.clone());
    // Nothing was ever written, so there is nothing to wipe; wiping would slow down each of many
    // executions.
    let tail = Tail { durable: LOG_START.0, end: LOG_START.0, unsynced: 0 };
    let segments =
        Segments::open(shared_disk, "wal".into(), SEGMENT, tail, 4).expect("a disk in order");
    let file = segments.enter(0).expect("the first segment");
    let log = Log::new(capacity, LOG_START.0, segments, SpaceWaits::default(), 4096);
    let log = std::sync::Arc::new(log);
    let flusher =
        flusher::spawn(log.clone(), file, Pace::new(usize::MAX, u64::MAX)).expect("a thread");
    (disk, std::sync::Arc::new(Wal::of(log, vec![flusher])))
}

/// Returns what is certain to survive a crash now: the first bytes of the log's records, in order.
fn surely_there(disk: &MemDisk) -> Vec<u8> {
    let after = |seed| {
        let config = WalConfig {
            dir: Path::new("wal").into(),
            segment_size: SEGMENT,
            buffer_size: 4096,
            ..WalConfig::default()
        };
        let disk = std::sync::Arc::new(disk.crash(seed));
        let mut reader = WalReader::open(disk, &config, Lsn(0)).expect("a log");
        let mut seen = Vec::new();
        while let Some(entry) = reader.next().expect("no damage") {
            seen.push(entry.payload[0]);
        }
        seen
    };
    // At least one of these crashes keeps nothing that was not synced.
    (0..2).map(after).min_by_key(Vec::len).unwrap_or_default()
}

/// Appends a record and waits for it. An acknowledged record is on disk, and everything before it,
/// because the reader stops at a gap.
fn commit(disk: &MemDisk, wal: &Wal, n: u8) -> bool {
    let end = wal.append(&[&[n; 8]]);
    let acknowledged = wal.wait_durable(end).is_ok();
    if acknowledged {
        assert!(wal.durable() >= end);
        assert!(surely_there(disk).contains(&n), "record {n} was acknowledged and is lost");
    }
    acknowledged
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Two concurrent commits: both are acknowledged, neither before it is on disk, and nobody sleeps
/// forever. One preemption: most of the interleavings are in the checks of the disk.
#[test]
fn loom_a_group_commits() {
    check(1, || {
        let (disk, wal) = log(128);
        let other = {
            let (disk, wal) = (disk.clone(), wal.clone());
            thread::spawn(move || commit(&disk, &wal, 1))
        };
        assert!(commit(&disk, &wal, 2));
        assert!(other.join().expect("the committer did not panic"));
        assert!(wal.syncs() <= 2);
        wal.shutdown();
    });
}

/// One thread commits twice, with one more preemption: a wake-up is between one committer and the
/// flusher. An acknowledged record is durable, and nobody sleeps forever.
#[test]
fn loom_a_committer_is_woken() {
    check(2, || {
        let (_disk, wal) = log(128);
        for n in 1..=2 {
            let end = wal.append(&[&[n; 8]]);
            assert!(wal.wait_durable(end).is_ok() && wal.durable() >= end);
        }
        assert_eq!(wal.syncs(), 2);
        wal.shutdown();
    });
}

/// The disk fails at the first write, the first sync, or the second write or sync. An acknowledged
/// record is on disk; nothing is acknowledged after the failure; nobody waits forever; the failure
/// is reported once.
#[test]
fn loom_a_failed_disk_acknowledges_nothing() {
    for granted in 0..4 {
        check(1, move || {
            let (disk, wal) = log(128);
            let told = std::sync::Arc::new(AtomicU32::new(0));
            let count = told.clone();
            // Relaxed: a counter that orders nothing.
            wal.on_failed(Box::new(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            }));
            disk.fail_after(granted);
            let other = {
                let (disk, wal) = (disk.clone(), wal.clone());
                thread::spawn(move || commit(&disk, &wal, 1))
            };
            let mine = commit(&disk, &wal, 2);
            let both = other.join().expect("the committer did not panic") && mine;
            assert!(granted >= 2 || !mine, "acknowledged without a sync");
            if !both {
                let durable = wal.durable();
                assert!(wal.failed().is_some());
                assert!(!commit(&disk, &wal, 3), "acknowledged after the failure");
                assert_eq!(wal.durable(), durable);
            }
            wal.shutdown();
            // Both may have been acknowledged before a mark failed.
            assert_eq!(told.load(Ordering::Relaxed), u32::from(wal.failed().is_some()));
        });
    }
}

/// A shutdown makes earlier appends durable; remaining waiters get an answer, success or failure.
#[test]
fn loom_a_shutdown_leaves_nobody_waiting() {
    check(2, || {
        let (disk, wal) = log(128);
        wal.append(&[&[1; 8]]);
        let other = {
            let (disk, wal) = (disk.clone(), wal.clone());
            thread::spawn(move || commit(&disk, &wal, 2))
        };
        wal.shutdown();
        assert!(surely_there(&disk).contains(&1));
        other.join().expect("the committer did not panic");
    });
}

//! Appending and reading back, with one thread and with many.

use std::collections::BTreeMap;
use std::sync::Arc;

use clearway_env::Disk;
use clearway_testkit::MemDisk;
use clearway_types::Lsn;
use proptest::prelude::*;

use super::{Record, open, payload, read, small};
use crate::wal::segment::STRIDE;
use crate::wal::{LOG_START, Wal, WalConfig, WalReader, record_size};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Invariant 1, against a list: records of all sizes, in any parts, over many laps of the ring,
    /// many segments and several restarts of the log.
    #[test]
    fn records_round_trip(
        lives in prop::collection::vec(
            prop::collection::vec((prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6), any::<bool>()), 0..60),
            1..4,
        )
    ) {
        let disk = MemDisk::new();
        let mut model: Vec<Record> = Vec::new();
        let mut end = LOG_START;
        for life in lives {
            let wal = open(&disk, end);
            prop_assert_eq!(wal.appended(), end);
            for (parts, wait) in life {
                let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                let bytes = parts.concat();
                let next = wal.append(&slices);
                prop_assert_eq!(next.0 - end.0, record_size(bytes.len()));
                prop_assert_eq!(wal.appended(), next);
                model.push((end, next, bytes));
                end = next;
                if wait {
                    wal.wait_durable(end).unwrap();
                    prop_assert!(wal.durable() >= end);
                }
            }
            wal.shutdown();
            prop_assert_eq!(wal.durable(), end);
            let (records, found_end) = read(&disk, Lsn(0)).unwrap();
            prop_assert_eq!(&records, &model);
            prop_assert_eq!(found_end, end);
        }
        let mut reader = WalReader::open(Arc::new(disk.clone()), &small(), end).unwrap();
        prop_assert!(reader.next().unwrap().is_none());
        let wal = open(&disk, end);
        let mut back = wal.read_back(LOG_START);
        for (start, end, bytes) in model.iter().rev() {
            let entry = back.record(*start).unwrap();
            prop_assert_eq!((entry.end, entry.payload), (*end, bytes.as_slice()));
        }
    }
}

/// Invariant 1 of the log, and all invariants of the ring: no record is lost, duplicated or mixed
/// up when many threads fill a ring that is far too small.
#[test]
fn many_threads_share_a_small_ring() {
    const THREADS: u64 = 6;
    const EACH: u64 = 2000;
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    let mut appended = BTreeMap::new();
    std::thread::scope(|scope| {
        let append = |thread: u64| {
            let wal = &wal;
            move || {
                let mut mine = Vec::new();
                for n in 0..EACH {
                    let bytes = payload(thread * EACH + n, (n % 97) as usize);
                    let end = wal.append(&[&bytes[..3], &bytes[3..]]);
                    if n % 211 == 0 {
                        wal.wait_durable(end).unwrap();
                    }
                    mine.push((end, bytes));
                }
                mine
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(append(thread))).collect();
        for thread in threads {
            appended.extend(thread.join().unwrap());
        }
    });
    assert_eq!(appended.len() as u64, THREADS * EACH);
    wal.shutdown();
    let (records, end) = read(&disk, Lsn(0)).unwrap();
    assert_eq!(end, wal.durable());
    assert!(records.into_iter().map(|(_, end, bytes)| (end, bytes)).eq(appended));
}

/// The ring is written out without a request, and a record may use half of it.
#[test]
fn full_ring_is_written_without_a_request() {
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    assert_eq!(wal.max_payload(), 4096 / 2 - 16);
    let largest = payload(7, wal.max_payload());
    for _ in 0..100 {
        wal.append(&[&largest]);
    }
    wal.shutdown();
    let (records, _) = read(&disk, Lsn(0)).unwrap();
    assert!(records.len() == 100 && records.iter().all(|(_, _, bytes)| *bytes == largest));
}

/// Invariant 3: a record may be longer than the reader's unit of I/O, and its length need not be a
/// multiple of 8.
#[test]
fn records_around_the_read_unit_round_trip() {
    let disk = MemDisk::new();
    let config = WalConfig { dir: small().dir, segment_size: 4 << 20, ..WalConfig::default() };
    let wal = Wal::open(Arc::new(disk.clone()), config, Lsn(0)).unwrap();
    let mut model: Vec<Record> = Vec::new();
    let mut start = LOG_START;
    for len in (STRIDE - 34..STRIDE + 18).chain([2 * STRIDE + 3, wal.max_payload()]) {
        let bytes = payload(len as u64, len);
        let end = wal.append(&[&bytes]);
        model.push((start, end, bytes));
        start = end;
    }
    wal.shutdown();
    let (records, end) = read(&disk, Lsn(0)).unwrap();
    assert!(records == model, "{} records of {}", records.len(), model.len());
    assert_eq!(end, start);
    for (from, ..) in model.iter().rev().take(8) {
        let (records, _) = read(&disk, *from).unwrap();
        assert!(model.ends_with(&records), "from {from}");
    }
}

/// An append to a closed log is dropped; nobody waits forever.
#[test]
fn append_to_a_closed_log_does_not_block() {
    let disk = MemDisk::new();
    let wal = open(&disk, Lsn(0));
    let durable = wal.append(&[b"kept"]);
    wal.shutdown();
    for n in 0..1000 {
        wal.append(&[&payload(n, 100)]);
    }
    let end = wal.appended();
    assert!(wal.wait_durable(end).is_err() && wal.wait_durable(durable).is_ok());
    assert_eq!(wal.durable(), durable);
    let (records, _) = read(&disk, Lsn(0)).unwrap();
    assert_eq!(records.len(), 1);
}

/// A wait that could never end is refused.
#[test]
fn waiting_beyond_the_end_is_refused() {
    let wal = open(&MemDisk::new(), Lsn(0));
    let end = wal.append(&[b"one"]);
    let error = wal.wait_durable(Lsn(end.0 + 8)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    wal.request_flush(Lsn(u64::MAX));
    wal.wait_durable(end).unwrap();
}

/// The log may be dropped by its own hook, on the flusher's thread.
#[test]
fn the_last_owner_may_be_a_hook() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let wal = Wal::open(disk, small(), Lsn(0)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let owner = std::sync::Mutex::new(Some(wal.clone()));
    wal.on_durable(Box::new(move |lsn| {
        let owned = owner.lock().unwrap().take();
        let _ = sender.send(lsn);
        drop(owned);
    }));
    let end = wal.append(&[b"one"]);
    wal.request_flush(end);
    drop(wal);
    assert_eq!(receiver.recv().unwrap(), end);
}

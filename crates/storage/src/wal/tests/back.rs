//! Reading backwards, from later records to earlier ones.

use super::fake::controlled;
use super::*;
use crate::wal::LOG_START;

const RECORDS: u64 = 40_000;

/// Returns a log of many records, and the start of each.
fn log() -> (Arc<Wal>, super::fake::Control, Vec<Lsn>) {
    let (disk, control) = controlled(MemDisk::new());
    let config = WalConfig { segment_size: 1 << 20, buffer_size: 1 << 20, ..small() };
    let wal = Wal::open(disk, config, Lsn(0)).unwrap();
    let mut starts = Vec::new();
    for n in 0..RECORDS {
        starts.push(wal.appended());
        wal.append(&[&payload(n, (n % 90) as usize)]);
    }
    wal.wait_durable(wal.appended()).unwrap();
    (wal, control, starts)
}

/// Invariant 1 of `back`: the bytes read stay in proportion to the bytes requested, whether the
/// requested records are adjacent or far apart.
#[test]
fn bytes_read_are_proportional_to_the_request() {
    let (wal, control, starts) = log();
    for (step, per_record) in [(1, 100), (3, 300), (100, 8 << 10), (5000, 70 << 10)] {
        let before = control.bytes_read();
        let mut back = wal.read_back(LOG_START);
        let mut asked = 0;
        for n in (0..RECORDS).rev().step_by(step) {
            assert_eq!(
                back.record(starts[n as usize]).unwrap().payload,
                payload(n, (n % 90) as usize)
            );
            asked += 1;
        }
        let read = control.bytes_read() - before;
        assert!(
            read < asked * per_record + (2 << 20),
            "every {step}th: {read} bytes for {asked} records"
        );
    }
    wal.shutdown();
}

/// Invariant 2: nothing before `from` is read, and an LSN that is not a record's start is an error.
#[test]
fn reads_nothing_before_the_first_needed() {
    let (wal, _, starts) = log();
    let from = starts[30_000];
    wal.remove_before(from).unwrap();
    let mut back = wal.read_back(from);
    for n in (30_000..RECORDS).rev() {
        back.record(starts[n as usize]).unwrap();
    }
    for place in [starts[29_999], Lsn(from.0 + 8), Lsn(LOG_START.0)] {
        assert!(matches!(back.record(place), Err(WalError::Corrupt { lsn, .. }) if lsn == place));
    }
    wal.shutdown();
}

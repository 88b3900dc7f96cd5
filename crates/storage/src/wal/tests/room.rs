//! Space on the disk and in the ring: requested, waited for, refused, released.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clearway_testkit::MemDisk;
use clearway_types::Lsn;

use super::fake::controlled;
use super::*;
use crate::wal::{SpaceWaits, record_size};

const SEGMENT: u64 = 64 << 10;
const LIMIT: Duration = Duration::from_secs(60);

fn config() -> WalConfig {
    WalConfig { segment_size: SEGMENT, buffer_size: 64 << 10, ..small() }
}

fn ask(wal: &Wal, bytes: u64, must: bool) -> Receiver<io::Result<()>> {
    let (tell, answer) = channel();
    // The receiver is gone only when the test is over.
    wal.when_room(bytes, must, Box::new(move |result| drop(tell.send(result))));
    answer
}

/// Appends while there is space, waiting for it. Returns the refusal, and the number of appends.
fn until_refused(wal: &Wal) -> (io::Error, u64) {
    let bytes = vec![1; 1000];
    for n in 0..100_000 {
        if !wal.has_room(record_size(bytes.len()), false) {
            match ask(wal, record_size(bytes.len()), false).recv_timeout(LIMIT).unwrap() {
                Ok(()) => continue,
                Err(error) => return (error, n),
            }
        }
        wal.append(&[&bytes]);
    }
    panic!("it is never full");
}

/// Invariants 2 and 3 of `room`: a full log refuses, keeps its reserve, and recovers as far as
/// possible when there is space.
#[test]
fn full_log_refuses_and_recovers_with_space() {
    let disk = MemDisk::new();
    let wal = Wal::open(Arc::new(disk.clone()), config(), Lsn(0)).unwrap();
    wal.set_wait_for_space();
    disk.set_capacity(10 * SEGMENT);
    let (error, _) = until_refused(&wal);
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    // Everything appended becomes durable, and so does what must be appended.
    wal.append(&[&[2; 1000]]);
    wal.wait_durable(wal.appended()).unwrap();
    // While no hook takes checkpoints, all requests are refused at once.
    assert!(ask(&wal, SEGMENT, true).recv_timeout(LIMIT).unwrap().is_err());
    // With one, a request with `must` keeps waiting; one without is refused at once.
    wal.on_short(Box::new(|| {}));
    let must = ask(&wal, SEGMENT, true);
    assert!(ask(&wal, SEGMENT, false).recv_timeout(LIMIT).unwrap().is_err());
    assert!(must.try_recv().is_err());
    disk.set_capacity(20 * SEGMENT);
    must.recv_timeout(LIMIT).unwrap().unwrap();
    let (_, more) = until_refused(&wal);
    assert!(more > 8 * 60, "{more}");
    // Segments that are no longer needed are space, too, even without disk space.
    wal.remove_before(wal.appended()).unwrap();
    ask(&wal, SEGMENT, false).recv_timeout(LIMIT).unwrap().unwrap();
    wal.shutdown();
    assert_eq!(wal.failed(), None);
}

/// Invariant 3: checkpoints that free nothing do not follow each other without a pause.
#[test]
fn full_log_limits_its_checkpoint_requests() {
    const RETRY: Duration = Duration::from_millis(10);
    const ASKED: usize = 10;
    let disk = MemDisk::new();
    let config =
        WalConfig { space: SpaceWaits { retry: RETRY, ..SpaceWaits::default() }, ..config() };
    let wal = Arc::new(Wal::open(Arc::new(disk.clone()), config, Lsn(0)).unwrap());
    disk.set_capacity(10 * SEGMENT);
    let (tell, asked) = channel();
    let checkpointed = Arc::downgrade(&wal);
    wal.on_short(Box::new(move || {
        let Some(wal) = checkpointed.upgrade() else { return };
        wal.remove_before(Lsn(0)).unwrap();
        // The receiver is gone only when the test is over.
        tell.send(Instant::now()).ok();
    }));
    until_refused(&wal);
    let times: Vec<Instant> = (0..ASKED).map(|_| asked.recv_timeout(LIMIT).unwrap()).collect();
    // The maker's thread runs the hook, so the first time is before the second request, however
    // long the thread was delayed after the first one.
    assert!(times[ASKED - 1] - times[0] >= RETRY * (ASKED as u32 - 2), "{times:?}");
    wal.shutdown();
}

/// Invariant 2: the maker has computed how much is wanted, and before it has made that, more is
/// reserved.
#[test]
fn late_reservation_leaves_no_request_waiting() {
    let disk = MemDisk::new();
    let wal = Arc::new(Wal::open(Arc::new(disk.clone()), config(), Lsn(0)).unwrap());
    // The maker answers this, and then has nothing to do: the disk's next operation is for the next
    // request.
    ask(&wal, 8 * SEGMENT, false).recv_timeout(LIMIT).unwrap().unwrap();
    let (log, reserved) = (Arc::downgrade(&wal), AtomicBool::new(false));
    disk.set_hook(Some(Arc::new(move |_| {
        if let Some(wal) = log.upgrade().filter(|_| !reserved.swap(true, Ordering::Relaxed)) {
            wal.reserve_for_undo(0, 8 * SEGMENT);
        }
    })));
    ask(&wal, 16 * SEGMENT, false).recv_timeout(LIMIT).unwrap().unwrap();
    disk.set_hook(None);
    wal.shutdown();
}

/// Invariant 1: reserved space is available to its owners only.
#[test]
fn reserved_space_is_kept() {
    let disk = MemDisk::new();
    let wal = Wal::open(Arc::new(disk.clone()), config(), Lsn(0)).unwrap();
    wal.set_wait_for_space();
    // With two segments reserved for undo, two more are made ahead.
    wal.reserve_for_undo(0, 2 * SEGMENT);
    ask(&wal, SEGMENT / 2, false).recv_timeout(LIMIT).unwrap().unwrap();
    disk.set_capacity(disk.used());
    until_refused(&wal);
    let before = wal.appended();
    while wal.appended().0 < before.0 + 2 * SEGMENT {
        wal.append(&[&[3; 1000]]);
    }
    wal.wait_durable(wal.appended()).unwrap();
    wal.reserve_for_undo(2 * SEGMENT, 0);
    wal.shutdown();
    assert_eq!(wal.failed(), None);
}

/// A slow disk delays requests, but blocks no thread.
#[test]
fn waiting_for_the_ring_blocks_no_thread() {
    let (disk, control) = controlled(MemDisk::new());
    let wal = Wal::open(disk, config(), Lsn(0)).unwrap();
    // So that the ring is what has no space, not the disk before the next segment is made.
    ask(&wal, 2 * SEGMENT, false).recv_timeout(LIMIT).unwrap().unwrap();
    control.hold(true);
    let size = record_size(1000);
    wal.append(&[&[1; 1000]]);
    wal.request_flush(wal.appended());
    // From here on the flusher takes nothing out of the ring.
    control.wait_flushing();
    while wal.has_room(size, false) {
        wal.append(&[&[1; 1000]]);
    }
    let answer = ask(&wal, size, false);
    assert!(answer.try_recv().is_err());
    control.hold(false);
    answer.recv_timeout(LIMIT).unwrap().unwrap();
    wal.shutdown();
}

/// Invariant 2: nobody waits for a log that has failed or is closed.
#[test]
fn waiters_fail_when_the_log_fails_or_closes() {
    let (disk, control) = controlled(MemDisk::new());
    let wal = Wal::open(disk, config(), Lsn(0)).unwrap();
    let waiting = ask(&wal, 1 << 40, true);
    control.fail(true);
    wal.append(&[&[1; 1000]]);
    assert!(wal.wait_durable(wal.appended()).is_err());
    assert!(waiting.recv_timeout(LIMIT).unwrap().is_err());
    assert!(!wal.has_room(0, true));
    assert!(ask(&wal, 0, true).recv_timeout(LIMIT).unwrap().is_err());

    let disk = MemDisk::new();
    let wal = Wal::open(Arc::new(disk.clone()), config(), Lsn(0)).unwrap();
    disk.set_capacity(0);
    let waiting = ask(&wal, 1 << 40, true);
    wal.shutdown();
    assert!(waiting.recv_timeout(LIMIT).unwrap().is_err());
}

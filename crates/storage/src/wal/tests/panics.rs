//! Panics in the log's threads: the log fails with the reason, and nobody waits forever.

use std::sync::mpsc::channel;
use std::time::Duration;

use clearway_testkit::MemDisk;
use clearway_types::Lsn;

use super::fake::controlled;
use super::{Wal, payload, read, small};

const LIMIT: Duration = Duration::from_secs(60);

/// Invariant 5 of the flusher: a panic in the middle of a write.
#[test]
fn panic_while_writing_fails_the_log() {
    let disk = MemDisk::new();
    let (fake, control) = controlled(disk.clone());
    let wal = Wal::open(fake, small(), Lsn(0)).unwrap();
    let (tell, told) = channel();
    wal.on_failed(Box::new(move |reason| tell.send(reason.to_owned()).unwrap()));
    let durable = wal.append(&[&payload(1, 100)]);
    wal.wait_durable(durable).unwrap();
    control.panic_at(".wal");
    let lost = wal.append(&[&payload(2, 100)]);
    let error = wal.wait_durable(lost).unwrap_err();
    assert!(error.to_string().contains("writing the log: planted in .wal"), "{error}");
    assert_eq!(told.recv_timeout(LIMIT).unwrap(), wal.failed().unwrap());
    assert_eq!(wal.durable(), durable);
    assert!(!wal.has_room(0, true));
    // More than the ring holds: nobody waits for a thread that has ended.
    for n in 0..100 {
        wal.append(&[&payload(n, 100)]);
    }
    wal.shutdown();
    assert_eq!(read(&disk, Lsn(0)).unwrap().1, durable);
}

/// The same for a panic in a registered hook.
#[test]
fn a_panic_of_a_hook_fails_the_log() {
    let (fake, _) = controlled(MemDisk::new());
    let wal = Wal::open(fake, small(), Lsn(0)).unwrap();
    wal.on_durable(Box::new(|_| panic!("planted in a hook")));
    let (tell, told) = channel();
    wal.on_failed(Box::new(move |reason| tell.send(reason.to_owned()).unwrap()));
    let first = wal.append(&[&payload(1, 100)]);
    wal.wait_durable(first).unwrap();
    let reason = told.recv_timeout(LIMIT).unwrap();
    assert!(reason.contains("writing the log: planted in a hook"), "{reason}");
    assert!(wal.wait_durable(wal.append(&[&payload(2, 100)])).is_err());
}

/// Invariant 5 of the flusher, for the thread that makes segments: nobody waits for space that
/// nobody makes.
#[test]
fn a_panic_of_the_segment_maker_fails_the_log() {
    let (fake, control) = controlled(MemDisk::new());
    let wal = Wal::open(fake, small(), Lsn(0)).unwrap();
    control.panic_at("next.tmp");
    let (tell, told) = channel();
    wal.when_room(1 << 20, true, Box::new(move |result| tell.send(result).unwrap()));
    let error = told.recv_timeout(LIMIT).unwrap().unwrap_err();
    assert!(
        error.to_string().contains("making a segment of the log: planted in next.tmp"),
        "{error}"
    );
    assert!(wal.failed().is_some());
}

//! Group commit, hooks and failure, with syncs controlled by the test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use clearway_testkit::MemDisk;
use clearway_types::Lsn;

use super::fake::controlled;
use super::{payload, small};
use crate::wal::{Wal, WalConfig};

fn roomy() -> WalConfig {
    WalConfig { segment_size: 1 << 20, buffer_size: 1 << 16, ..small() }
}

/// Everything that gathers while one sync runs becomes durable with the next one.
#[test]
fn waiting_commits_share_a_sync() {
    const WAITERS: u64 = 32;
    let (disk, control) = controlled(MemDisk::new());
    let wal = Wal::open(disk, roomy(), Lsn(0)).unwrap();
    // The second segment is made ahead at some point. Wait for it, so that its sync is not counted
    // below.
    wal.segments.make_ahead(0, &|| false).unwrap();
    control.hold(true);
    let first = wal.append(&[b"first"]);
    wal.request_flush(first);
    control.wait_flushing();
    let before = control.ended();
    let appended = Barrier::new(WAITERS as usize + 1);
    std::thread::scope(|scope| {
        for n in 0..WAITERS {
            let (wal, appended) = (&wal, &appended);
            scope.spawn(move || {
                let end = wal.append(&[&payload(n, 50)]);
                appended.wait();
                wal.wait_durable(end).unwrap();
                assert!(wal.durable() >= end);
            });
        }
        appended.wait();
        assert!(wal.durable() < first);
        control.hold(false);
    });
    assert_eq!(control.ended() - before, 2, "one for the first, one for all who waited");
}

/// Nothing is synced without a request; a request for durable log causes no sync.
#[test]
fn only_requests_cause_syncs() {
    let (disk, control) = controlled(MemDisk::new());
    let wal = Wal::open(disk, roomy(), Lsn(0)).unwrap();
    wal.segments.make_ahead(0, &|| false).unwrap();
    let before = control.ended();
    let mut end = Lsn(0);
    for n in 0..100 {
        end = wal.append(&[&payload(n, 100)]);
    }
    assert_eq!(control.ended(), before);
    wal.wait_durable(end).unwrap();
    assert_eq!(control.ended(), before + 1);
    wal.request_flush(end);
    wal.wait_durable(end).unwrap();
    wal.shutdown();
    assert_eq!(control.ended(), before + 2, "the mark at the end is synced, too");
}

/// Invariant 2: hooks see `durable` grow, and eventually reach the requested LSN.
#[test]
fn hooks_see_every_durable_advance() {
    let (disk, _) = controlled(MemDisk::new());
    let wal = Wal::open(disk, roomy(), Lsn(0)).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = heard.clone();
    wal.on_durable(Box::new(move |lsn| hear.lock().unwrap().push(lsn)));
    let mut end = Lsn(0);
    for n in 0..50 {
        end = wal.append(&[&payload(n, 20)]);
        wal.wait_durable(end).unwrap();
    }
    wal.shutdown();
    let heard = heard.lock().unwrap();
    assert!(heard.is_sorted() && heard.last() == Some(&end) && heard.len() == 50);
}

/// Invariant 2: a failed sync is final, even if the next would succeed. Everyone gets the error,
/// and nobody blocks.
#[test]
fn a_failed_sync_is_final() {
    let (disk, control) = controlled(MemDisk::new());
    let wal = Wal::open(disk, small(), Lsn(0)).unwrap();
    wal.segments.make_ahead(0, &|| false).unwrap();
    let kept = wal.append(&[b"kept"]);
    wal.wait_durable(kept).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let count = |calls: &Arc<AtomicU64>| {
        let calls = calls.clone();
        Box::new(move |_: &str| {
            // SeqCst: pairs with the load below; a test counter, for which speed does not matter.
            calls.fetch_add(1, Ordering::SeqCst);
        })
    };
    wal.on_failed(count(&calls));
    control.fail(true);
    let lost = wal.append(&[b"lost"]);
    assert!(wal.wait_durable(lost).unwrap_err().to_string().contains("the disk is broken"));
    control.fail(false);
    wal.on_failed(count(&calls));
    // A segment that was being made is finished or abandoned now; no other one is started.
    wal.segments.make_ahead(0, &|| true).unwrap();
    let syncs = control.ended();
    for n in 0..1000 {
        let end = wal.append(&[&payload(n, 100)]);
        assert!(wal.wait_durable(end).is_err());
    }
    assert!(wal.failed().is_some_and(|reason| reason.contains("the disk is broken")));
    wal.shutdown();
    // SeqCst: pairs with the `fetch_add` in `count`.
    assert_eq!((wal.durable(), control.ended(), calls.load(Ordering::SeqCst)), (kept, syncs, 2));
    assert!(wal.wait_durable(kept).is_ok());
}

/// With slow syncs, commits from many threads take far fewer syncs than there are commits.
#[test]
fn many_committers_share_syncs() {
    const THREADS: u64 = 8;
    const EACH: u64 = 100;
    let (disk, control) = controlled(MemDisk::new());
    let wal = Wal::open(disk, roomy(), Lsn(0)).unwrap();
    let before = control.ended();
    // A round of commits is as large as possible: each thread appends, all meet, then all wait.
    let meet = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (wal, meet) = (&wal, &meet);
            scope.spawn(move || {
                for n in 0..EACH {
                    let end = wal.append(&[&payload(thread * EACH + n, 60)]);
                    meet.wait();
                    wal.wait_durable(end).unwrap();
                }
            });
        }
    });
    let syncs = control.ended() - before;
    assert!(syncs <= 2 * EACH + 2, "{syncs} syncs for {} commits", THREADS * EACH);
}

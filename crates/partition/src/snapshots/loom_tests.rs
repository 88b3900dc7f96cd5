//! Interleavings of who opens a snapshot and who commits.
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-partition --release --lib loom`

use super::*;
use loom::sync::atomic::AtomicU64 as Log;
use loom::thread;

/// Appends a record: where it ends.
fn append(log: &Log) -> u64 {
    log.fetch_add(8, Ordering::Relaxed) + 8
}

/// Opens a snapshot; true: without a message to the partitions.
fn open(snapshots: &Arc<Snapshots>, log: &Log) -> (Snapshot, bool) {
    let opening = snapshots.begin();
    let at_once = opening.generation().is_none();
    (opening.open(|| Lsn(log.load(Ordering::Relaxed))), at_once)
}

/// A node whose partitions keep images, and its log.
fn kept() -> (Arc<Snapshots>, Arc<Log>) {
    let (snapshots, log) = (Arc::new(Snapshots::default()), Arc::new(Log::new(8)));
    drop(open(&snapshots, &log));
    (snapshots, log)
}

/// Who has appended a commit record and sees no snapshot lets go of the image: every snapshot sees
/// the commit.
#[test]
fn loom_a_snapshot_that_a_commit_does_not_see_sees_the_commit() {
    loom::model(|| {
        let (snapshots, log) = kept();
        let writer = {
            let (snapshots, log) = (snapshots.clone(), log.clone());
            thread::spawn(move || (append(&log), snapshots.newest() == 0))
        };
        let (snapshot, at_once) = open(&snapshots, &log);
        let (commit, goes) = writer.join().unwrap();
        assert!(at_once && !(goes && snapshot.lsn().0 < commit));
    });
}

/// Where an earlier image was made after the newest snapshot, the next one's goes: no snapshot lies
/// between the two commits.
#[test]
fn loom_no_snapshot_lies_between_commits_of_which_one_has_no_image() {
    loom::model(|| {
        let (snapshots, log) = kept();
        let (oldest, _) = open(&snapshots, &log);
        let first = append(&log);
        let writer = {
            let (snapshots, log) = (snapshots.clone(), log.clone());
            thread::spawn(move || (append(&log), snapshots.newest() < first))
        };
        let (snapshot, _) = open(&snapshots, &log);
        let (second, goes) = writer.join().unwrap();
        assert!(!(goes && (first..second).contains(&snapshot.lsn().0)));
        assert!(snapshots.oldest() == oldest.lsn().0);
    });
}

/// Whoever ends the keeping of images does not end it under a snapshot that has sent no message.
#[test]
fn loom_images_are_kept_under_a_snapshot() {
    loom::model(|| {
        let (snapshots, log) = kept();
        let retiring = {
            let snapshots = snapshots.clone();
            thread::spawn(move || snapshots.retire())
        };
        let (snapshot, _) = open(&snapshots, &log);
        retiring.join().unwrap();
        // Also with a message: it comes to the partitions behind what ended their keeping.
        assert_eq!(snapshots.oldest(), snapshot.lsn().0);
        drop(snapshot);
        assert_eq!((snapshots.oldest(), snapshots.newest()), (0, 0));
    });
}

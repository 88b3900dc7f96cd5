//! Interleavings of opening snapshots and committing. `RUSTFLAGS="--cfg loom" cargo test -p
//! clearway-partition --release --lib loom`

use super::*;
use loom::sync::atomic::AtomicU64 as Log;
use loom::thread;

/// Appends a record; returns its end.
fn append(log: &Log) -> u64 {
    log.fetch_add(8, Ordering::Relaxed) + 8
}

/// Opens a snapshot; returns true if the partitions needed no message.
fn open(snapshots: &Arc<Snapshots>, log: &Log) -> (Snapshot, bool) {
    let opening = snapshots.begin();
    let without_message = opening.generation().is_none();
    (opening.open(|| Lsn(log.load(Ordering::Relaxed))), without_message)
}

/// Creates a node whose partitions keep images, and its log.
fn kept() -> (Arc<Snapshots>, Arc<Log>) {
    let (snapshots, log) = (Arc::new(Snapshots::default()), Arc::new(Log::new(8)));
    drop(open(&snapshots, &log));
    (snapshots, log)
}

/// A writer that sees no snapshot after appending its commit record drops the image: every snapshot
/// sees the commit.
#[test]
fn loom_unseen_snapshots_see_the_commit() {
    loom::model(|| {
        let (snapshots, log) = kept();
        let writer = {
            let (snapshots, log) = (snapshots.clone(), log.clone());
            thread::spawn(move || (append(&log), snapshots.newest() == 0))
        };
        let (snapshot, without_message) = open(&snapshots, &log);
        let (commit, goes) = writer.join().unwrap();
        assert!(without_message && !(goes && snapshot.lsn().0 < commit));
    });
}

/// If an earlier image was created after the newest snapshot, the next one is dropped: no snapshot
/// is between the two commits.
#[test]
fn loom_no_snapshot_between_commits_sharing_an_image() {
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

/// If the first snapshot to see one commit is the first to see a later one, too, the image of the
/// later one goes: no snapshot is between them, although others open and close meanwhile.
#[test]
fn loom_no_snapshot_between_commits_with_the_same_first_snapshot() {
    loom::model(|| {
        let (snapshots, log) = kept();
        let writer = {
            let (snapshots, log) = (snapshots.clone(), log.clone());
            thread::spawn(move || {
                let (first, second) = (append(&log), append(&log));
                let same = snapshots.first_from(Lsn(first)) == snapshots.first_from(Lsn(second));
                (first, second, same)
            })
        };
        let (early, _) = open(&snapshots, &log);
        let (late, _) = open(&snapshots, &log);
        drop(early);
        let (first, second, goes) = writer.join().unwrap();
        assert!(!(goes && (first..second).contains(&late.lsn().0)));
    });
}

/// Ending the keeping of images never affects a snapshot that sent no message.
#[test]
fn loom_images_are_kept_for_an_open_snapshot() {
    loom::model(|| {
        let (snapshots, log) = kept();
        let retiring = {
            let snapshots = snapshots.clone();
            thread::spawn(move || snapshots.retire())
        };
        let (snapshot, _) = open(&snapshots, &log);
        retiring.join().unwrap();
        // Also with a message: it arrives at the partitions after they stopped keeping images.
        assert_eq!(snapshots.oldest(), snapshot.lsn().0);
        drop(snapshot);
        assert_eq!((snapshots.oldest(), snapshots.newest()), (0, 0));
    });
}

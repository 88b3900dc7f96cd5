//! Backups taken while partitions work, and of directories that no process has open. A restore
//! contains exactly what was committed up to the backup's end.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::check::assert_sound;
use crate::common::{Model, Random, World, as_model, config};
use crate::concurrent::work;
use clearway_env::{Disk, Open};
use clearway_storage::backup::{self, BackupError, BackupProgress, BackupReport};
use clearway_storage::{Node, OpenError, Trees, TxnLog, TxnMode};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, SqlError, SqlState, TreeId};

pub const PARTITIONS: u16 = 3;
pub const FRAMES: u32 = 96;
const TREE: TreeId = TreeId(1);

pub fn continue_always(_: BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn arc(disk: &MemDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// Backs up `dir`, which no process has open, to `copy`.
pub fn take_offline(disk: &MemDisk, dir: &str) -> Result<BackupReport, BackupError> {
    let (dir, copy) = (Path::new(dir), Path::new("copy"));
    backup::take_offline(arc(disk), dir, copy, "test", &mut continue_always)
}

/// Restores into `db` on a new disk, and opens it.
fn restored(disk: &MemDisk, target: &Path) -> (MemDisk, BackupReport, World) {
    let fresh = MemDisk::new();
    copy_dir(disk, &fresh, target);
    let report =
        backup::restore(arc(&fresh), target, Path::new("db"), &mut continue_always).unwrap();
    // The restored data is durable.
    let fresh = fresh.crash(report.end.0);
    let world = World::open(&fresh, PARTITIONS, FRAMES).unwrap();
    (fresh, report, world)
}

/// Copies a backup to another disk.
pub fn copy_dir(from: &MemDisk, to: &MemDisk, dir: &Path) {
    to.create_dir_all(&dir.join("data")).unwrap();
    for part in [PathBuf::new(), PathBuf::from("data")] {
        for name in from.list(&dir.join(&part)).unwrap() {
            let path = dir.join(&part).join(name);
            let Ok(file) = from.open(&path, Open::Existing) else { continue };
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            to.open(&path, Open::Create).unwrap().write_all_at(&bytes, 0).unwrap();
        }
    }
}

/// Returns a node with some committed rows and one open transaction, and the rows.
pub fn filled(disk: &MemDisk, rows: u32) -> (World, Model, TxnLog) {
    let mut world = World::open(disk, PARTITIONS, FRAMES).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    let mut model = Model::new();
    for i in 0..rows {
        let (key, value) = (i.to_be_bytes().to_vec(), vec![i as u8; 100 + i as usize % 900]);
        world.run(0, |s| s.insert(&mut txn, TxnMode::Logged, TREE, &key, &value)).unwrap();
        model.insert(key, value);
    }
    let end = world.stores[0].commit_local(txn);
    world.node.wal().wait_durable(end).unwrap();
    let mut open = TxnLog::new(world.node.alloc_txn_id());
    world.run(0, |s| s.insert(&mut open, TxnMode::Logged, TREE, b"never committed", b"x")).unwrap();
    (world, model, open)
}

/// Invariants 1 and 2 of `backup`, and their purpose.
fn under_load(seed: u64) {
    let disk = MemDisk::new();
    let mut node = Node::open(arc(&disk), Path::new("db"), config(PARTITIONS, FRAMES)).unwrap();
    let stores = node.take_stores();
    let (node, disk, stop) = (&node, &disk, &AtomicBool::new(false));
    let (histories, targets) = std::thread::scope(|scope| {
        scope.spawn(move || {
            // Relaxed: only signals the end.
            while !stop.load(Ordering::Relaxed) {
                node.checkpoint().unwrap();
            }
        });
        let backups = scope.spawn(move || {
            let mut targets = Vec::new();
            while !stop.load(Ordering::Relaxed) || targets.is_empty() {
                let target = PathBuf::from(format!("backup-{}", targets.len()));
                let before = node.wal().durable();
                let report = node.backup(&target, "test", &mut continue_always).unwrap();
                assert!(before <= report.end && report.end <= node.wal().durable());
                // A finished backup survives a crash.
                let after = disk.crash(seed + targets.len() as u64);
                assert_eq!(
                    backup::verify(arc(&after), &target, &mut continue_always).unwrap(),
                    report
                );
                targets.push((target, report));
            }
            targets
        });
        let first = node.alloc_txn_ids(u64::from(PARTITIONS) * 1000).0;
        let workers: Vec<_> = stores
            .into_iter()
            .map(|mut store| {
                let p = u64::from(store.partition().0);
                scope.spawn(move || {
                    work(node, &mut store, &Random::new(seed * 10 + p), first + p * 1000)
                })
            })
            .collect();
        let histories: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        (histories, backups.join().unwrap())
    });
    for (target, report) in targets {
        let (fresh, again, mut world) = restored(disk, &target);
        assert_eq!(again, report);
        for (partition, history) in histories.iter().enumerate() {
            let Some(last) = history.iter().rposition(|(lsn, _)| *lsn <= report.end) else {
                continue;
            };
            let found = as_model(world.all(partition, TREE, false));
            assert!(
                found == history[last].1,
                "seed {seed}, {}, partition {partition}, end {}",
                target.display(),
                report.end
            );
        }
        world.node.checkpoint().unwrap();
        world.node.shutdown();
        drop(world);
        assert_sound(&fresh.crash(0));
    }
    node.shutdown();
}

#[test]
fn backup_under_load_is_consistent_at_its_end() {
    for seed in 0..6 {
        under_load(seed);
    }
}

#[test]
fn offline_backup_after_a_crash_recovers_correctly() {
    for seed in 0..8 {
        let disk = MemDisk::new();
        let (world, rows, open) = filled(&disk, 700);
        if seed % 2 == 0 {
            // The open transaction's change is in the files, too.
            world.node.checkpoint().unwrap();
        }
        // Read before the crash: the log may become durable further at any time.
        let durable = world.node.wal().durable();
        let after = disk.crash(seed);
        let report = take_offline(&after, "db").unwrap();
        assert!(report.end >= durable);
        let (_, _, mut found) = restored(&after, Path::new("copy"));
        assert!(as_model(found.all(0, TREE, false)) == rows, "seed {seed}");
        found.node.shutdown();
        // The source still starts normally.
        let mut source = World::open(&after, PARTITIONS, FRAMES).unwrap();
        assert!(as_model(source.all(0, TREE, false)) == rows, "seed {seed}");
        source.node.shutdown();
        world.node.shutdown();
        drop(open);
    }
}

#[test]
fn offline_backup_refuses_foreign_or_open_directories() {
    let disk = MemDisk::new();
    let (world, _, _open) = filled(&disk, 10);
    let take = |dir: &str| take_offline(&disk, dir).unwrap_err();
    assert!(matches!(take("db"), BackupError::Source(OpenError::InUse(_))));
    assert!(take("elsewhere").to_string().contains("no control file"));
    assert!(!disk.exists(Path::new("elsewhere")).unwrap(), "looking made a directory");
    world.node.shutdown();
}

#[test]
fn target_may_be_the_root_of_a_new_file_system() {
    let disk = MemDisk::new();
    let (world, ..) = filled(&disk, 10);
    world.node.shutdown();
    drop(world);
    for root in ["copy", "restored", "other"] {
        disk.create_dir_all(&Path::new(root).join("lost+found")).unwrap();
    }
    take_offline(&disk, "db").unwrap();
    let restore = |dir: &str| {
        backup::restore(arc(&disk), Path::new("copy"), Path::new(dir), &mut continue_always)
    };
    restore("restored").unwrap();
    Node::open(arc(&disk), Path::new("restored"), config(PARTITIONS, FRAMES)).unwrap().shutdown();
    // What a crashed start leaves is not a target: a copy must not be mixed with it.
    disk.create_dir_all("other/wal".as_ref()).unwrap();
    assert!(matches!(restore("other"), Err(BackupError::Occupied(_))));
}

/// Invariant 2: log that a backup needs is kept until the backup has ended.
#[test]
fn checkpoints_keep_the_log_that_a_backup_needs() {
    let disk = MemDisk::new();
    let (mut world, _, open) = filled(&disk, 50);
    // An open transaction would also keep the log.
    world.stores[0].commit_local(open);
    let segments = || disk.list(Path::new("db/wal")).unwrap().len();
    let oldest = || disk.list(Path::new("db/wal")).unwrap()[0].clone();
    world.run(1, |s| s.create_tree(TREE)).unwrap();
    let World { node, stores, .. } = &mut world;
    let (mut first, mut rounds) = (None, 0);
    let report = node.backup(Path::new("copy"), "test", &mut |_| {
        let kept = first.get_or_insert_with(oldest).clone();
        rounds += 1;
        for _ in 0..20 {
            let large = vec![b'x'; 30_000];
            let mut txn = TxnLog::new(node.alloc_txn_id());
            let key = rounds.to_string();
            crate::concurrent::run(node, &mut stores[1], |s| {
                s.insert(&mut txn, TxnMode::Logged, TREE, key.as_bytes(), &large)
            });
            crate::concurrent::run(node, &mut stores[1], |s| {
                s.delete(&mut txn, TxnMode::Logged, TREE, key.as_bytes())
            });
            stores[1].commit_local(txn);
            node.checkpoint().unwrap();
        }
        assert_eq!(oldest(), kept);
        ControlFlow::Continue(())
    });
    assert!(report.unwrap().bytes > 0);
    let held = segments();
    world.node.checkpoint().unwrap();
    assert!(segments() < held, "{held} segments during the backup, {} after it", segments());
    world.node.shutdown();
}

/// All new directories on the way to a backup, and to a restored database, have durable names.
#[test]
fn targets_in_new_directories_survive_a_crash() {
    let disk = MemDisk::new();
    let (world, rows, _open) = filled(&disk, 100);
    let (copy, dir) = (Path::new("new/backups/copy"), Path::new("new/data/dir"));
    world.node.backup(copy, "test", &mut continue_always).unwrap();
    world.node.shutdown();
    for seed in 0..20 {
        backup::verify(arc(&disk.crash(seed)), copy, &mut continue_always).unwrap();
    }
    backup::restore(arc(&disk), copy, dir, &mut continue_always).unwrap();
    for seed in 0..20 {
        let mut node = Node::open(arc(&disk.crash(seed)), dir, config(PARTITIONS, FRAMES)).unwrap();
        let stores = node.take_stores();
        let mut found = World { node, stores, retries: 0 };
        assert!(found.stores[0].has_tree(TREE), "seed {seed}: the database is a new one");
        assert!(as_model(found.all(0, TREE, false)) == rows, "seed {seed}");
        found.node.shutdown();
    }
}

#[test]
fn backups_are_exclusive_and_cancellable() {
    let disk = MemDisk::new();
    let (world, rows, _open) = filled(&disk, 300);
    let node = &world.node;
    let mut second = None;
    let cancelled = node.backup(Path::new("first"), "test", &mut |_| {
        second = node.backup(Path::new("second"), "test", &mut continue_always).err();
        ControlFlow::Break(())
    });
    assert!(matches!(cancelled, Err(BackupError::Cancelled)));
    assert_eq!(SqlError::from(second.unwrap()).state(), SqlState::OBJECT_IN_USE);
    assert!(!disk.exists(Path::new("second")).unwrap());
    let refused =
        backup::restore(arc(&disk), Path::new("first"), Path::new("new"), &mut continue_always)
            .unwrap_err();
    assert!(refused.to_string().contains("has no manifest"), "{refused}");
    let again =
        SqlError::from(node.backup(Path::new("first"), "test", &mut continue_always).unwrap_err());
    assert_eq!(again.state(), SqlState::DUPLICATE_FILE);
    disk.create_dir_all(Path::new("second")).unwrap();
    let report = node.backup(Path::new("second"), "test", &mut continue_always).unwrap();
    assert!(
        report.begin < report.end && report.end <= node.wal().durable() && report.begin > Lsn(0)
    );
    let (_, _, mut found) = restored(&disk, Path::new("second"));
    assert!(as_model(found.all(0, TREE, false)) == rows);
    found.node.shutdown();
    world.node.shutdown();
}

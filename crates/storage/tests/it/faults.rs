//! Disk faults: damaged or foreign control files, and failing reads, writes and syncs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clearway_env::{Disk, Open};
use clearway_storage::{OpenError, OpenErrorKind, Trees};
use clearway_testkit::{FOR_EVER, Fault, FaultPlan, FaultZone, MemDisk, Role, When};
use clearway_types::{SqlError, SqlState, TreeId};

use crate::common::World;

/// Returns a directory with one row.
fn made() -> MemDisk {
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 2, 48).unwrap();
    world.run(0, |s| s.create_tree(TreeId(1))).unwrap();
    world.run(0, |s| s.insert_autocommit(TreeId(1), b"key", b"value")).unwrap();
    world.node.checkpoint().unwrap();
    world.node.shutdown();
    disk
}

fn overwrite(disk: &MemDisk, offset: u64, bytes: &[u8]) {
    disk.open(Path::new("db/control"), Open::Existing)
        .unwrap()
        .write_all_at(bytes, offset)
        .unwrap();
}

fn refused(disk: &MemDisk) -> OpenError {
    World::open(disk, 2, 48).map(|_| ()).expect_err("the directory is refused")
}

fn row_is_there(disk: &MemDisk) {
    let mut world = World::open(disk, 2, 48).unwrap();
    assert_eq!(world.all(0, TreeId(1), false), [(b"key".to_vec(), b"value".to_vec())]);
    world.node.shutdown();
}

#[test]
fn damaged_control_file_is_reported_without_a_wipe() {
    for damage in [&b"no control file of ours"[..], &[0; 64], &[0xff; 64]] {
        let disk = made();
        let file = disk.open(Path::new("db/control"), Open::Existing).unwrap();
        let mut slots = [[0; 64]; 2];
        for (i, slot) in slots.iter_mut().enumerate() {
            file.read_exact_at(slot, 4096 * i as u64).unwrap();
            overwrite(&disk, 4096 * i as u64, damage);
        }
        let error = refused(&disk);
        assert_eq!(error.kind(), OpenErrorKind::Damaged, "{error}");
        for (i, slot) in slots.iter().enumerate() {
            overwrite(&disk, 4096 * i as u64, slot);
        }
        row_is_there(&disk);
    }
}

/// Writes about three log segments, and takes a checkpoint, which removes what it does not need.
fn fill_segments(world: &mut World, round: u32) {
    for i in 0..150u32 {
        let key = (round * 1000 + i).to_be_bytes();
        world.run(0, |s| s.insert_autocommit(TREE, &key, &[b'x'; 1200])).unwrap();
    }
    world.node.checkpoint().unwrap();
}

/// Invariant 2 of the node: the state in either slot finds its log, even if a checkpoint has
/// removed all that the one before it needed.
#[test]
fn damaged_control_slot_is_harmless_after_log_is_removed() {
    for slot in [0, 4096] {
        for rounds in 1..=3 {
            let disk = made();
            let mut world = World::open(&disk, 2, 48).unwrap();
            (0..rounds).for_each(|round| fill_segments(&mut world, round));
            assert!(!disk.exists(Path::new("db/wal/0000000000000000.wal")).unwrap());
            let crashed = disk.crash(u64::from(rounds));
            world.node.shutdown();
            drop(world);
            for disk in [disk, crashed] {
                overwrite(&disk, slot + 20, &[0xa5; 8]);
                let mut world = World::open(&disk, 2, 48).unwrap();
                assert_eq!(world.all(0, TREE, false).len() as u32, rounds * 150 + 1);
                world.node.shutdown();
            }
        }
    }
}

/// From the first start on both slots say that the directory is complete.
#[test]
fn one_damaged_control_slot_is_harmless() {
    for slot in [0, 4096] {
        let disk = made();
        overwrite(&disk, slot + 20, &[0xa5; 8]);
        row_is_there(&disk);
        let disk = MemDisk::new();
        World::open(&disk, 2, 48).unwrap().node.shutdown();
        overwrite(&disk, slot + 20, &[0xa5; 8]);
        World::open(&disk, 2, 48).unwrap().node.shutdown();
    }
}

#[test]
fn directory_of_a_newer_release_is_refused_untouched() {
    let disk = made();
    let file = disk.open(Path::new("db/control"), Open::Existing).unwrap();
    let mut before = Vec::new();
    for at in [0, 4096] {
        let mut slot = [0; 64];
        file.read_exact_at(&mut slot, at).unwrap();
        slot[8] = 4;
        let crc = crc32c::crc32c(&slot[..60]);
        slot[60..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&slot, at).unwrap();
        before.push(slot);
    }
    let error = refused(&disk);
    assert_eq!(error.kind(), OpenErrorKind::Refused);
    assert!(
        error.to_string().contains("db/control is of format version 4, made by a newer release"),
        "{error}"
    );
    for (at, slot) in [0, 4096].into_iter().zip(before) {
        let mut now = [0; 64];
        file.read_exact_at(&mut now, at).unwrap();
        assert_eq!(now, slot);
    }
}

const TREE: TreeId = TreeId(1);

/// Returns two partitions with rows in many pages, all of them on disk and few in the pool.
fn with_rows() -> (MemDisk, World) {
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 2, 48).unwrap();
    for partition in 0..2 {
        world.run(partition, |s| s.create_tree(TREE)).unwrap();
        for i in 0..1000u32 {
            world
                .run(partition, |s| s.insert_autocommit(TREE, &i.to_be_bytes(), &[b'x'; 500]))
                .unwrap();
        }
    }
    world.node.checkpoint().unwrap();
    world.node.shutdown();
    drop(world);
    let world = World::open(&disk, 2, 48).unwrap();
    (disk, world)
}

fn inject(disk: &MemDisk, role: Role, path: &str, fault: Fault, times: u64) -> Arc<FaultPlan> {
    let zone = FaultZone::under(role, "hit", path).fault(fault, When::After(0), times);
    let plan = Arc::new(FaultPlan::new(7, Duration::ZERO, vec![zone]));
    disk.set_faults(Some(plan.clone()));
    plan
}

fn get(world: &mut World, partition: usize, key: u32) -> Result<bool, SqlError> {
    Ok(world.run(partition, |s| s.get(TREE, &key.to_be_bytes(), &mut |_| {}))?)
}

#[test]
fn unreadable_page_is_named_and_the_rest_works() {
    let (disk, mut world) = with_rows();
    inject(&disk, Role::Pages, "db/data/p0000.data", Fault::FailedRead, FOR_EVER);
    let error = get(&mut world, 0, 500).unwrap_err();
    assert_eq!(error.state(), SqlState::IO, "{error}");
    assert!(
        error.message().contains("cannot read partition 0 page ")
            && error.message().contains("p0000.data"),
        "{error}"
    );
    assert!(error.get_hint().is_some());
    assert!(get(&mut world, 1, 500).unwrap());
    world.run(1, |s| s.insert_autocommit(TREE, b"new", b"row")).unwrap();
    world.node.checkpoint().unwrap();
    // The disk works again: nothing remembers the failure.
    disk.set_faults(None);
    assert!(get(&mut world, 0, 500).unwrap());
    assert_eq!(world.node.failed(), None);
}

#[test]
fn damaged_page_is_named_and_the_rest_works() {
    let (disk, mut world) = with_rows();
    let pages =
        disk.open(Path::new("db/data/p0000.data"), Open::Existing).unwrap().len().unwrap() / 8192;
    for page in 2..pages {
        disk.flip_bits(
            Path::new("db/data/p0000.data"),
            page * 8192 + 4..(page + 1) * 8192,
            1,
            page,
        )
        .unwrap();
    }
    let error = get(&mut world, 0, 500).unwrap_err();
    assert_eq!(error.state(), SqlState::DATA_CORRUPTED, "{error}");
    for part in ["partition 0 page ", "p0000.data is damaged", "expected", "found"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(get(&mut world, 1, 500).unwrap());
    assert_eq!(world.node.failed(), None);
}

/// Invariant 3 of the flusher, and the same for all other writes: a failed operation is not
/// retried, even if it would succeed. The node reports that it has failed, and durable data is
/// there at the next start.
#[test]
fn failed_write_or_sync_is_final() {
    let zones = [
        (Role::Log, "db/wal"),
        (Role::Pages, "db/data/p0000.data"),
        (Role::Copies, "db/data/double-write.data"),
        (Role::Root, "db/control"),
    ];
    for (at, (role, path)) in zones.into_iter().enumerate() {
        for fault in [Fault::FailedWrite, Fault::FailedSync] {
            let (disk, mut world) = with_rows();
            let plan = inject(&disk, role, path, fault, 1);
            let mut durable = 0;
            for i in 0..u32::MAX {
                let lsn =
                    world.run(0, |s| s.insert_autocommit(TREE, &(2000 + i).to_be_bytes(), b"more"));
                let synced = lsn.map(|lsn| world.node.wal().wait_durable(lsn.unwrap()));
                if !matches!(synced, Ok(Ok(()))) {
                    break;
                }
                durable = i + 1;
                if i % 8 == 7 && world.node.checkpoint().is_err() {
                    break;
                }
            }
            let why = world.node.failed().unwrap_or_default();
            let (dir, _) = path.rsplit_once('/').unwrap();
            assert!(why.contains(dir), "{path} {fault:?}: {why}");
            assert_eq!(plan.injected().len(), 1);
            assert!(world.node.checkpoint().is_err(), "{path} {fault:?}: it would succeed now");
            if role == Role::Log {
                assert!(!world.node.wal().has_room(0, true));
            }
            let after = disk.crash(at as u64);
            drop(world);
            let mut world = World::open(&after, 2, 48).unwrap();
            for i in 0..durable {
                assert!(
                    get(&mut world, 0, 2000 + i).unwrap(),
                    "{path} {fault:?}: row {i} of {durable}"
                );
            }
        }
    }
}

/// Invariant 4 of the node: after a failed sync the cache may show data that the disk has lost.
/// What a restart of the process shows is on disk nevertheless.
#[test]
fn restart_after_a_failed_sync_shows_durable_data() {
    let zones = [
        (Role::Log, "db/wal"),
        (Role::Pages, "db/data/p0000.data"),
        (Role::Copies, "db/data/double-write.data"),
        (Role::Root, "db/control"),
    ];
    for (role, path) in zones {
        for seed in 0..8 {
            let (disk, mut world) = with_rows();
            let zone = FaultZone::under(role, "hit", path).fault(
                Fault::FailedSync,
                When::After(seed % 3),
                1,
            );
            disk.set_faults(Some(Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![zone]))));
            let mut rows = 0u32;
            while world.node.failed().is_none() {
                let lsn = world
                    .run(0, |s| s.insert_autocommit(TREE, &(2000 + rows).to_be_bytes(), b"more"));
                let synced = lsn.map(|lsn| world.node.wal().wait_durable(lsn.unwrap()));
                rows += 1;
                // It fails the node, or there is nothing to see.
                let _checkpoint = (rows.is_multiple_of(8) && matches!(synced, Ok(Ok(()))))
                    .then(|| world.node.checkpoint());
            }
            drop(world);
            disk.set_faults(None);
            let mut world = World::open(&disk, 2, 48).unwrap();
            let shown: Vec<bool> =
                (0..rows).map(|i| get(&mut world, 0, 2000 + i).unwrap()).collect();
            for i in 0..100u32 {
                world
                    .run(1, |s| s.insert_autocommit(TREE, &(2000 + i).to_be_bytes(), b"more"))
                    .unwrap();
            }
            world.node.checkpoint().unwrap();
            let after = disk.crash(seed);
            drop(world);
            let mut world = World::open(&after, 2, 48).unwrap();
            let found: Vec<bool> =
                (0..rows).map(|i| get(&mut world, 0, 2000 + i).unwrap()).collect();
            assert_eq!(found, shown, "{path}, seed {seed}");
        }
    }
}

/// Only the last write to the control file says that a new directory is complete. If the process is
/// killed before that is synced, a start must not rely on it.
#[test]
fn directory_of_a_killed_creator_survives_a_crash() {
    for granted in 0.. {
        let disk = MemDisk::new();
        disk.fail_after(granted);
        let made = World::open(&disk, 1, 48).is_ok();
        disk.fail_after(u64::MAX);
        let mut world = World::open(&disk, 1, 48).unwrap();
        let lsn =
            world.run(0, |s| s.create_tree(TREE)).map(|()| world.node.wal().appended()).unwrap();
        world.node.wal().wait_durable(lsn).unwrap();
        for seed in 0..4 {
            let world = World::open(&disk.crash(seed), 1, 48).unwrap();
            assert!(world.stores[0].has_tree(TREE), "{granted} operations granted, seed {seed}");
        }
        if made {
            break;
        }
    }
}

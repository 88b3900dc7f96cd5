//! Pages with a valid checksum and invalid content: an operation that needs one gets an error that
//! names it; everything else continues.

use std::path::Path;
use std::sync::Arc;

use clearway_buffer::{PAGE_SIZE, seal};
use clearway_env::{Disk, File, Open};
use clearway_storage::{OpenErrorKind, StorageError, Trees, TxnLog, TxnMode};
use clearway_testkit::MemDisk;
use clearway_types::{PageId, PartitionId, SqlError, SqlState, TreeId};

use crate::common::{Random, World};

const TREE: TreeId = TreeId(1);
const ROWS: u32 = 300;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// Returns two partitions with a tree of two levels and a few long values, closed by a checkpoint.
fn made() -> MemDisk {
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 2, 64).unwrap();
    for partition in 0..2 {
        world.run(partition, |s| s.create_tree(TREE)).unwrap();
        for i in 0..ROWS {
            let len = if i % 50 == 0 { 9000 } else { 200 };
            world
                .run(partition, |s| s.insert_autocommit(TREE, &key(i), &vec![i as u8; len]))
                .unwrap();
        }
    }
    world.node.checkpoint().unwrap();
    world.node.shutdown();
    disk
}

fn file(disk: &MemDisk) -> Arc<dyn File> {
    disk.open(Path::new("db/data/p0000.data"), Open::Existing).unwrap()
}

/// Changes a page of partition 0 and fixes its checksum.
fn change(disk: &MemDisk, no: u32, f: impl FnOnce(&mut [u8; PAGE_SIZE])) {
    let (file, at) = (file(disk), u64::from(no) * PAGE_SIZE as u64);
    let mut page = [0; PAGE_SIZE];
    file.read_exact_at(&mut page, at).unwrap();
    f(&mut page);
    seal(&mut page, PageId::new(PartitionId(0), no));
    file.write_all_at(&page, at).unwrap();
}

/// Runs changes of every kind in partition 0 as a transaction that is rolled back; each on its own
/// if one fails. Returns the errors.
fn work(world: &mut World, random: &Random) -> Vec<StorageError> {
    let mut errors = Vec::new();
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    for _ in 0..20 {
        let key = key(random.below(u64::from(ROWS) + 20) as u32);
        let value = vec![7; random.pick(&[0, 200, 201, 1500, 9000])];
        let done = match random.below(3) {
            0 => {
                world.run(0, |s| s.insert(&mut txn, TxnMode::Logged, TREE, &key, &value)).map(drop)
            }
            1 => {
                world.run(0, |s| s.update(&mut txn, TxnMode::Logged, TREE, &key, &value)).map(drop)
            }
            _ => world.run(0, |s| s.delete(&mut txn, TxnMode::Logged, TREE, &key)).map(drop),
        };
        errors.extend(done.err());
    }
    errors.extend(world.run(0, |s| s.next_rowid(TREE)).err());
    match world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})) {
        Ok(()) => world.stores[0].aborted(txn),
        Err(error) => errors.push(error),
    }
    errors.extend(world.run(0, |s| s.create_tree(TreeId(2))).err());
    loop {
        match world.run(0, |s| s.drop_tree(TREE)) {
            Ok(false) => {}
            Ok(true) => break,
            Err(error) => {
                errors.push(error);
                break;
            }
        }
    }
    errors
}

/// Bytes of the pages' headers, slots and cells get arbitrary values. (Whether a change is detected
/// depends on the value.)
#[test]
fn invalid_pages_cause_no_panic() {
    let (made, mut noticed) = (made(), 0);
    let pages = file(&made).len().unwrap() / PAGE_SIZE as u64;
    for seed in 0..400 {
        let random = Random::new(seed);
        let disk = made.crash(0);
        for _ in 0..=random.below(2) {
            // Except page 0: a file with a page count of four billion requests that much disk
            // space.
            change(&disk, 1 + random.below(pages - 1) as u32, |page| {
                for _ in 0..=random.below(3) {
                    let at = random.pick(&[
                        5,
                        24,
                        26,
                        28,
                        30,
                        32,
                        48,
                        54,
                        PAGE_SIZE - 220,
                        PAGE_SIZE - 8,
                    ]) as u64;
                    page[(at + random.below(8)) as usize] = random.below(256) as u8;
                }
            });
        }
        let Ok(mut world) = World::open(&disk, 2, 64) else { continue };
        for error in work(&mut world, &random) {
            noticed += 1;
            if matches!(error, StorageError::NoTree(_) | StorageError::TreeExists(_)) {
                // A tree's id in the directory has become another tree's id.
                continue;
            }
            let error = SqlError::from(error);
            let named = error.message().contains("partition 0 page ")
                && error.message().contains("p0000.data");
            let limit = error.state() == SqlState::LIMIT_EXCEEDED;
            assert!(
                error.state() == SqlState::DATA_CORRUPTED && named || limit,
                "seed {seed}: {error}"
            );
        }
        assert_eq!(world.all(1, TREE, false).len(), ROWS as usize, "seed {seed}");
        world.run(1, |s| s.insert_autocommit(TREE, b"new", b"row")).unwrap();
        world.node.checkpoint().unwrap();
        assert_eq!(world.node.failed(), None);
        world.node.shutdown();
    }
    assert!(noticed > 400, "{noticed}");
}

/// A change that does not fit leaves its page unchanged, and is not logged.
#[test]
fn unfitting_change_is_neither_applied_nor_logged() {
    let disk = made();
    let leaf = leaf(&disk);
    // The page claims free space, but its first cell extends beyond the page.
    change(&disk, leaf, |page| {
        page[26..28].copy_from_slice(&60u16.to_le_bytes());
        page[28..30].copy_from_slice(&8000u16.to_le_bytes());
        page[48..50].copy_from_slice(&(PAGE_SIZE as u16 - 2).to_le_bytes());
    });
    let mut world = World::open(&disk, 2, 64).unwrap();
    let logged = world.node.wal().appended();
    let error = world
        .run(0, |s| s.insert_autocommit(TREE, &[key(0).as_slice(), &[1]].concat(), &[1; 100]))
        .unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { page, .. } if page.no() == leaf), "{error}");
    assert_eq!(world.node.wal().appended(), logged);
    assert_eq!(world.all(1, TREE, false).len(), ROWS as usize);
    world.node.checkpoint().unwrap();
}

/// Returns the first leaf of the tree in partition 0.
fn leaf(disk: &MemDisk) -> u32 {
    let (file, mut page) = (file(disk), [0; PAGE_SIZE]);
    let is_first_leaf = |page: &[u8; PAGE_SIZE]| {
        page[5] == 2 && page[30] == 0 && page.windows(4).any(|w| w == key(1))
    };
    let found = (2..).find(|no| {
        file.read_exact_at(&mut page, u64::from(*no) * PAGE_SIZE as u64).unwrap();
        is_first_leaf(&page)
    });
    found.unwrap()
}

/// A logged change that does not fit its page at a start is damage with its place, at every start.
#[test]
fn unfitting_redo_is_damage() {
    let disk = made();
    let mut world = World::open(&disk, 2, 64).unwrap();
    let lsn = world.run(0, |s| s.update_autocommit(TREE, &key(3), &[9; 200])).unwrap().unwrap();
    world.run(0, |s| s.delete_autocommit(TREE, &key(2))).unwrap();
    world.node.wal().wait_durable(lsn).unwrap();
    world.node.shutdown();
    drop(world);
    let leaf = leaf(&disk);
    change(&disk, leaf, |page| page[24..26].copy_from_slice(&3u16.to_le_bytes()));
    for _ in 0..3 {
        let error = World::open(&disk, 2, 64).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), OpenErrorKind::Damaged, "{error}");
        let says = format!(
            "partition 0 page {leaf} in p0000.data is damaged: a logged change does not fit it"
        );
        assert!(error.to_string().contains(&says), "{error}");
    }
}

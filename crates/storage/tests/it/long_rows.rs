//! Rows up to the longest, with the default log buffer: a log record may then have several MiB.
//! Crashes, kills and backups keep exactly the committed rows.

use std::path::Path;

use crate::backup::{arc, continue_always, take_offline};
use crate::check::assert_sound_with;
use crate::common::{Model, Random, World, as_model, config};
use clearway_storage::{Inserted, NodeConfig, OpenErrorKind, Trees, TxnLog, TxnMode, backup};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;

const TREE: TreeId = TreeId(1);
/// Enough for any row, and to restore it.
const FRAMES: u32 = 2048;
const LONGEST: usize = 1 << 20;
/// Records with one or two values of these lengths are shorter or longer than 1 MiB, the unit in
/// which the log is read.
const LENGTHS: [usize; 10] =
    [20, 2000, 8200, 262_100, 400_000, 524_200, 600_000, 1_048_000, LONGEST - 8, LONGEST];

/// The log buffer is the default one.
fn settings(seed: u64) -> NodeConfig {
    let settings = config(1, FRAMES);
    NodeConfig {
        wal_segment_size: if seed.is_multiple_of(2) { 1 << 20 } else { 8 << 20 },
        wal_buffer_size: NodeConfig::default().wal_buffer_size,
        undo_memory: [1 << 20, 0, 4 << 20][seed as usize % 3],
        ..settings
    }
}

fn value(random: &Random) -> Vec<u8> {
    // The low bits decide whether the record is padded.
    let len = (random.pick(&LENGTHS) + random.below(9) as usize).min(LONGEST);
    let salt = random.below(256) as u8;
    (0..len).map(|i| (i as u8).wrapping_mul(5) ^ salt ^ (i >> 8) as u8).collect()
}

/// Inserts, updates or deletes a row.
fn change(world: &mut World, txn: &mut TxnLog, random: &Random, model: &mut Model) {
    let key = random.below(6).to_be_bytes().to_vec();
    if model.contains_key(&key) && random.below(4) == 0 {
        assert!(world.run(0, |s| s.delete(txn, TxnMode::Logged, TREE, &key)).unwrap());
        model.remove(&key);
        return;
    }
    let value = value(random);
    if model.contains_key(&key) {
        assert!(world.run(0, |s| s.update(txn, TxnMode::Logged, TREE, &key, &value)).unwrap());
    } else {
        world.run(0, |s| s.insert(txn, TxnMode::Logged, TREE, &key, &value)).unwrap();
    }
    model.insert(key, value);
}

/// Runs a transaction. Returns it if it stays open; otherwise `model` has its effect.
fn transaction(world: &mut World, random: &Random, model: &mut Model) -> Option<TxnLog> {
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    let mut now = model.clone();
    for _ in 0..1 + random.below(3) {
        change(world, &mut txn, random, &mut now);
    }
    if random.below(3) == 0 {
        let (mark, saved) = (txn.mark(), now.clone());
        change(world, &mut txn, random, &mut now);
        world.run(0, |s| s.rollback(&mut txn, mark, &mut |_, _, _| {})).unwrap();
        now = saved;
    }
    match random.below(4) {
        0 => {
            world.run(0, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {})).unwrap();
            world.stores[0].aborted(txn);
        }
        1 => return Some(txn),
        _ => {
            world.stores[0].commit_local(txn);
            *model = now;
        }
    }
    None
}

/// Restores a backup, and checks its rows.
fn assert_restores(disk: &MemDisk, target: &Path, seed: u64, model: &Model) {
    let dir = Path::new("restored").join(target);
    backup::restore(arc(disk), target, &dir, &mut continue_always).unwrap();
    let mut node = clearway_storage::Node::open(arc(disk), &dir, settings(seed)).unwrap();
    let stores = node.take_stores();
    let mut world = World { node, stores, retries: 0 };
    assert!(as_model(world.all(0, TREE, false)) == *model, "seed {seed}: other rows restored");
    world.node.shutdown();
}

fn lives_of(seed: u64) {
    let random = Random::new(seed);
    let mut disk = MemDisk::new();
    let mut world = World::open_with(&disk, settings(seed)).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    let mut model = Model::new();
    for life in 0..3 {
        let mut open = None;
        for _ in 0..5 {
            open = transaction(&mut world, &random, &mut model);
            if open.is_some() {
                break;
            }
        }
        let end = world.node.wal().appended();
        world.node.wal().wait_durable(end).unwrap();
        if random.below(2) == 0 {
            let target = format!("online{life}");
            world.node.backup(Path::new(&target), "test", &mut continue_always).unwrap();
            assert_restores(&disk, Path::new(&target), seed, &model);
        }
        let after = if random.below(2) == 0 { disk.crash(seed + life) } else { disk.kill() };
        drop((open, world));
        disk = after;
        assert_sound_with(&disk, FRAMES);
        world = World::open_with(&disk, settings(seed + life)).unwrap();
        let found = as_model(world.all(0, TREE, false));
        assert!(found == model, "seed {seed}, life {life}: other rows after the start");
    }
    world.node.shutdown();
}

#[test]
fn long_rows_survive_crashes_and_kills() {
    for seed in 0..8 {
        lives_of(seed);
    }
}

/// Every reader of the log reads such a record: a start, a check, and a start from a backup that
/// was taken without a server.
#[test]
fn record_longer_than_the_read_unit_is_read_by_all() {
    for more in 0..4 {
        let mut model = Model::new();
        let disk = MemDisk::new();
        let mut world = World::open_with(&disk, settings(0)).unwrap();
        world.run(0, |s| s.create_tree(TREE)).unwrap();
        world.node.checkpoint().unwrap();
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        let (old, new) = (vec![7; 600_000 + more], vec![8; 600_000]);
        world.run(0, |s| s.insert(&mut txn, TxnMode::Logged, TREE, b"k", &old)).unwrap();
        world.run(0, |s| s.update(&mut txn, TxnMode::Logged, TREE, b"k", &new)).unwrap();
        model.insert(b"k".to_vec(), new);
        let end = world.stores[0].commit_local(txn);
        world.node.wal().wait_durable(end).unwrap();
        let killed = disk.kill();
        drop(world);
        assert_sound_with(&killed, FRAMES);
        take_offline(&killed, "db").unwrap();
        assert_restores(&killed, Path::new("copy"), 0, &model);
        let mut world = World::open_with(&killed, settings(0)).unwrap();
        assert!(as_model(world.all(0, TREE, false)) == model, "{more}: other rows");
    }
}

/// A start with a smaller pool than the change had is refused at once, or undoes the change. It
/// never waits for frames that cannot become free.
#[test]
fn start_with_a_pool_slightly_too_small_is_refused() {
    let (short, long, other) = (vec![1; 20], vec![2; 300_000], vec![3; 300_000]);
    let changes = [
        (None, Some(&long)),
        (Some(&long), None),
        (Some(&short), Some(&long)),
        (Some(&long), Some(&short)),
        (Some(&long), Some(&other)),
    ];
    for (old, new) in changes {
        let disk = MemDisk::new();
        let mut world = World::open_with(&disk, settings(0)).unwrap();
        world.run(0, |s| s.create_tree(TREE)).unwrap();
        // The tree has two levels, and the row has neighbours.
        for i in 0..100u32 {
            world.run(0, |s| s.insert_autocommit(TREE, &i.to_be_bytes(), &[5; 1000])).unwrap();
        }
        let key = &[&50u32.to_be_bytes()[..], b"long"].concat();
        if let Some(old) = old {
            world.run(0, |s| s.insert_autocommit(TREE, key, old)).unwrap();
        }
        let before = world.all(0, TREE, false);
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        let log = &mut txn;
        match (old, new) {
            (None, Some(new)) => {
                let done = world.run(0, |s| s.insert(log, TxnMode::Logged, TREE, key, new));
                assert_eq!(done.unwrap(), Inserted::Ok);
            }
            (_, Some(new)) => {
                assert!(world.run(0, |s| s.update(log, TxnMode::Logged, TREE, key, new)).unwrap())
            }
            _ => assert!(world.run(0, |s| s.delete(log, TxnMode::Logged, TREE, key)).unwrap()),
        }
        let end = world.node.wal().appended();
        world.node.wal().wait_durable(end).unwrap();
        let killed = disk.kill();
        drop(world);
        // A value of 300,000 bytes has 37 pages.
        let pages = 37 * [old, new].iter().filter(|v| v.is_some_and(|v| v.len() > 20)).count();
        let mut least = None;
        for frames in (pages as u32 - 1..pages as u32 + 11).step_by(2) {
            let disk = killed.kill();
            match World::open_with(&disk, NodeConfig { frames, ..settings(0) }) {
                Ok(mut world) => {
                    least.get_or_insert(frames);
                    assert!(world.all(0, TREE, false) == before, "{frames} frames: other rows");
                    world.node.shutdown();
                }
                Err(error) => {
                    assert_eq!(error.kind(), OpenErrorKind::Refused, "{error}");
                    assert!(error.to_string().contains("larger buffer_pool"), "{error}");
                    assert_eq!(least, None, "{frames} frames: {error}");
                }
            }
        }
        assert!(least.is_some_and(|least| least > pages as u32), "{least:?} of {pages}");
    }
}

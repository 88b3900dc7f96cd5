//! The tree compared with a `BTreeMap`: random operations, with a pool so small that most attempts
//! block at first.

use clearway_storage::Trees;
use std::ops::Bound;

use crate::check::assert_sound;
use crate::common::{Model, Random, World, as_model};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;

const TREE: TreeId = TreeId(7);

fn check_ranges(world: &mut World, model: &Model, random: &Random, space: u64) {
    for reverse in [false, true] {
        let bound = |kind: u64| match kind {
            0 => Bound::Unbounded,
            1 => Bound::Included(random.key(space)),
            _ => Bound::Excluded(random.key(space)),
        };
        let (from, to) = (bound(random.below(3)), bound(random.below(3)));
        let inside = |key: &Vec<u8>| {
            let above = match &from {
                Bound::Unbounded => true,
                Bound::Included(k) => key >= k,
                Bound::Excluded(k) => key > k,
            };
            let below = match &to {
                Bound::Unbounded => true,
                Bound::Included(k) => key <= k,
                Bound::Excluded(k) => key < k,
            };
            above && below
        };
        let mut expected: Vec<_> =
            model.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
        if reverse {
            expected.reverse();
        }
        let found = world.range(0, TREE, from.clone(), to.clone(), reverse);
        assert!(found == expected, "{from:?} to {to:?}, reverse {reverse}");
    }
}

fn step(world: &mut World, model: &mut Model, random: &Random, space: u64, deletes: u64) {
    let key = random.key(space);
    match random.below(10) {
        n if n < deletes => {
            let done = world.run(0, |s| s.delete_autocommit(TREE, &key)).unwrap();
            assert_eq!(done.is_some(), model.remove(&key).is_some());
        }
        n if n < 9 => {
            let value = random.value(20_000);
            if world.run(0, |s| s.insert_autocommit(TREE, &key, &value)).unwrap().is_none() {
                assert!(model.contains_key(&key));
                assert!(
                    world.run(0, |s| s.update_autocommit(TREE, &key, &value)).unwrap().is_some()
                );
            } else {
                assert!(!model.contains_key(&key));
            }
            model.insert(key, value);
        }
        _ => {
            let mut found = None;
            let there =
                world.run(0, |s| s.get(TREE, &key, &mut |v| found = Some(v.to_vec()))).unwrap();
            assert_eq!(there, found.is_some());
            assert_eq!(found.as_ref(), model.get(&key));
        }
    }
}

fn model_run(seed: u64, steps: u64, space: u64) {
    let disk = MemDisk::new();
    let random = Random::new(seed);
    let mut world = World::open(&disk, 1, 48).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    let mut model = Model::new();
    for i in 0..steps {
        // Phases of growth and of shrinking, so that nodes split and become empty.
        let deletes = if (i / (steps / 4)).is_multiple_of(2) { 2 } else { 7 };
        step(&mut world, &mut model, &random, space, deletes);
        if i % 97 == 0 {
            check_ranges(&mut world, &model, &random, space);
        }
        if i % 501 == 0 {
            world.node.checkpoint().unwrap();
        }
    }
    assert_eq!(as_model(world.all(0, TREE, false)), model);
    assert_eq!(as_model(world.all(0, TREE, true)), model);
    assert!(world.retries > steps / 20, "the pool was not small enough: {} retries", world.retries);

    world.node.checkpoint().unwrap();
    world.node.shutdown();
    drop(world);
    assert_sound(&disk.crash(0));
    let mut world = World::open(&disk, 1, 48).unwrap();
    assert_eq!(as_model(world.all(0, TREE, false)), model, "after a restart");
    while !world.run(0, |s| s.drop_tree(TREE)).unwrap() {}
    assert!(world.stores[0].trees().is_empty());
    world.node.checkpoint().unwrap();
    assert_sound(&disk.crash(0));
    world.node.shutdown();
}

#[test]
fn random_operations_match_a_map() {
    for seed in 0..8 {
        model_run(seed, 3000, 2000);
    }
}

#[test]
fn ordered_keys_fill_pages_and_deletes_free_them() {
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 1, 64).unwrap();
    let mut sizes = Vec::new();
    for round in 0..3 {
        let tree = TreeId(round + 1);
        world.run(0, |s| s.create_tree(tree)).unwrap();
        for i in 0..4000u64 {
            let key = clearway_storage::rowid_key(i);
            assert!(world.run(0, |s| s.insert_autocommit(tree, &key, &[5; 90])).unwrap().is_some());
        }
        assert_eq!(world.run(0, |s| s.next_rowid(tree)).unwrap(), 4000);
        assert_eq!(world.run(0, |s| s.next_rowid(tree)).unwrap(), 4001);
        assert_eq!(world.all(0, tree, false).len(), 4000);
        if round % 2 == 0 {
            for i in 0..4000u64 {
                let key = clearway_storage::rowid_key(i * 1237 % 4000);
                assert!(world.run(0, |s| s.delete_autocommit(tree, &key)).unwrap().is_some());
            }
            assert!(world.all(0, tree, true).is_empty());
        }
        while !world.run(0, |s| s.drop_tree(tree)).unwrap() {}
        assert!(!world.stores[0].has_tree(tree));
        world.node.checkpoint().unwrap();
        let file = clearway_env::Disk::open(
            &disk,
            "db/data/p0000.data".as_ref(),
            clearway_env::Open::Existing,
        );
        sizes.push(file.unwrap().len().unwrap());
    }
    // 4000 rows of 107 bytes: 54 full pages.
    assert!(sizes[0] < 75 * 8192, "{sizes:?}");
    assert!(sizes[2] <= sizes[0] + 8 * 8192, "freed pages are not used again: {sizes:?}");
    world.node.shutdown();
}

#[test]
fn too_long_keys_and_values_are_refused() {
    let mut world = World::open(&MemDisk::new(), 1, 64).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    assert!(world.run(0, |s| s.insert_autocommit(TREE, &[1; 1601], &[])).is_err());
    assert!(world.run(0, |s| s.insert_autocommit(TREE, &[1], &vec![0; 2 << 20])).is_err());
    assert!(world.run(0, |s| s.create_tree(TREE)).is_err());
    assert!(world.run(0, |s| s.get(TreeId(99), &[1], &mut |_| ())).is_err());
    assert!(world.all(0, TREE, false).is_empty());
    let key = [3; 1600];
    assert!(world.run(0, |s| s.insert_autocommit(TREE, &key, &[9; 5000])).unwrap().is_some());
    assert_eq!(world.all(0, TREE, false), [(key.to_vec(), vec![9; 5000])]);
    world.node.shutdown();
}

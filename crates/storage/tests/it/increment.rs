//! What is known of a transaction that has added to values: its images, and what it has replaced.

use crate::common::{World, config};
use clearway_env::MemDisk;
use clearway_storage::{Addend, Addends, Incremented, NodeConfig, Prior, Replaced, TxnLog, TxnMode};
use clearway_types::{TreeId, TxnId};

const TREE: TreeId = TreeId(1);

fn addends(all: &[(u16, i64)]) -> Addends {
    let mut addends = Addends::default();
    all.iter().for_each(|(offset, delta)| assert!(addends.push(Addend { offset: *offset, width: 4, delta: *delta })));
    addends
}

fn world(disk: &MemDisk, undo_memory: usize) -> World {
    let mut world = World::open_with(disk, NodeConfig { undo_memory, ..config(1, 64) }).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    for key in [b"a", b"b"] {
        world.run(0, |s| s.insert_autocommit(TREE, key, &[0; 8])).unwrap().unwrap();
    }
    world
}

fn add(world: &mut World, log: &mut TxnLog, key: &[u8], all: &[(u16, i64)]) {
    let done = world.run(0, |s| s.increment(log, TxnMode::Logged, TREE, key, &mut |_| Some(addends(all))));
    assert_eq!(done.unwrap(), Incremented::Done(addends(all)));
}

fn value(world: &mut World, key: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    world.run(0, |s| s.get(TREE, key, &mut |now| value = now.to_vec())).unwrap();
    value
}

/// Each addition of a key that was only added to, the value before everything of others.
#[test]
fn images_are_additions_where_nothing_was_replaced() {
    let mut world = world(&MemDisk::new(), 1 << 20);
    let (mut log, mut other) = (TxnLog::new(TxnId(1)), TxnLog::new(TxnId(2)));
    add(&mut world, &mut log, b"a", &[(0, 1), (4, -1)]);
    add(&mut world, &mut other, b"a", &[(0, 100)]);
    add(&mut world, &mut log, b"a", &[(0, 5)]);
    add(&mut world, &mut log, b"b", &[(0, 7)]);
    world.run(0, |s| s.update(&mut log, TxnMode::Logged, TREE, b"b", b"short")).unwrap();
    let mut seen = Vec::new();
    let shown = world.stores[0].images(&log, &mut |_, key, prior| {
        seen.push((
            key.to_vec(),
            match prior {
                Prior::Value(before) => Err(before.map(<[u8]>::to_vec)),
                Prior::Added(addends) => Ok(*addends),
            },
        ));
    });
    assert!(shown.unwrap());
    seen.sort_by_key(|(key, prior)| (key.clone(), prior.as_ref().map_or(0, |added| added.iter().count())));
    let expected = [
        (b"a".to_vec(), Ok(addends(&[(0, 5)]))),
        (b"a".to_vec(), Ok(addends(&[(0, 1), (4, -1)]))),
        (b"b".to_vec(), Err(Some(vec![0; 8]))),
    ];
    assert_eq!(seen, expected);
    let sums = |log: &TxnLog, key: &[u8]| world.stores[0].replaced(log, TREE, key).unwrap();
    let addend = |offset, delta| Addend { offset, width: 4, delta };
    let Replaced::Added(mut added) = sums(&log, b"a") else { panic!("it has only added") };
    added.sort_by_key(|addend| addend.offset);
    assert_eq!(added, [addend(0, 6), addend(4, -1)]);
    assert_eq!(sums(&other, b"a"), Replaced::Added(vec![addend(0, 100)]));
    assert_eq!(sums(&other, b"b"), Replaced::Nothing);
    assert_eq!(sums(&log, b"b"), Replaced::Value(Some(vec![0; 8].into())));
}

/// A rollback tells each addition that it takes back, the newest first, whether its undo is in memory or in the log.
#[test]
fn a_rollback_takes_off_its_own_additions_only() {
    for undo_memory in [1 << 20, 0] {
        let mut world = world(&MemDisk::new(), undo_memory);
        let (mut log, mut other) = (TxnLog::new(TxnId(1)), TxnLog::new(TxnId(2)));
        add(&mut world, &mut log, b"a", &[(0, 1)]);
        let mark = log.mark();
        add(&mut world, &mut other, b"a", &[(0, 100), (4, 3)]);
        add(&mut world, &mut log, b"a", &[(0, 2)]);
        add(&mut world, &mut log, b"b", &[(4, 9)]);
        let mut told = Vec::new();
        for to in [mark, 0] {
            world
                .run(0, |s| {
                    s.rollback(&mut log, to, &mut |tree, key, addends| told.push((tree, key.to_vec(), *addends)))
                })
                .unwrap();
        }
        let expected = [
            (TREE, b"b".to_vec(), addends(&[(4, 9)])),
            (TREE, b"a".to_vec(), addends(&[(0, 2)])),
            (TREE, b"a".to_vec(), addends(&[(0, 1)])),
        ];
        assert_eq!(told, expected, "{undo_memory}");
        assert_eq!((value(&mut world, b"a"), value(&mut world, b"b")), (vec![100, 0, 0, 0, 3, 0, 0, 0], vec![0; 8]));
        world.stores[0].aborted(log);
        world.stores[0].commit_local(other);
    }
}

#[test]
fn nothing_is_changed_where_nothing_can_be_added() {
    let mut world = world(&MemDisk::new(), 1 << 20);
    let mut log = TxnLog::new(TxnId(1));
    let mut outcome = |key: &[u8], all: Option<Addends>| {
        world.run(0, |s| s.increment(&mut log, TxnMode::Logged, TREE, key, &mut |_| all)).unwrap()
    };
    assert_eq!(outcome(b"none", Some(addends(&[(0, 1)]))), Incremented::Missing);
    assert_eq!(outcome(b"a", None), Incremented::Refused);
    assert_eq!(outcome(b"a", Some(addends(&[(0, 1), (5, 1)]))), Incremented::Refused);
    assert_eq!((log.mark(), value(&mut world, b"a")), (0, vec![0; 8]));
    world.stores[0].aborted(log);
}

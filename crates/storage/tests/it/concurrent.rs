//! Partitions run by their own threads while checkpoints are taken, and a crash in the middle.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Model, Random, World, as_model, config};
use clearway_storage::{Blocked, Node, Store, Trees, TxnLog, TxnMode};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, TreeId, TxnId};

const PARTITIONS: u16 = 3;
const TREE: TreeId = TreeId(1);

pub fn run<T>(
    node: &Node,
    store: &mut Store,
    mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>,
) -> T {
    let mut kept = Vec::new();
    loop {
        match attempt(store) {
            Ok(value) => return value,
            Err(Blocked::Log(read)) => read.run(),
            Err(Blocked::Failed(error)) => panic!("{error}"),
            Err(Blocked::MissingPage(wants)) => {
                let fetched: Vec<_> = wants
                    .into_iter()
                    .map(|want| node.pool().fetch_blocking(want).unwrap())
                    .collect();
                drop(std::mem::replace(&mut kept, fetched));
            }
        }
    }
}

/// Runs transactions of several changes each, some of them undone; returns all committed states in
/// order.
pub fn work(node: &Node, store: &mut Store, random: &Random, ids: u64) -> Vec<(Lsn, Model)> {
    run(node, store, |s| s.create_tree(TREE));
    let mut model = Model::new();
    let mut history = vec![(node.wal().appended(), model.clone())];
    for i in 0..300 {
        let mut txn = TxnLog::new(TxnId(ids + i));
        let mut changed = model.clone();
        for _ in 0..1 + random.below(5) {
            let (key, value) = (random.key(400), random.value(4000));
            if changed.insert(key.clone(), value.clone()).is_some() {
                assert!(run(node, store, |s| s.update(
                    &mut txn,
                    TxnMode::Logged,
                    TREE,
                    &key,
                    &value
                )));
            } else {
                run(node, store, |s| s.insert(&mut txn, TxnMode::Logged, TREE, &key, &value));
            }
        }
        if random.below(4) == 0 {
            run(node, store, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {}));
            store.aborted(txn);
        } else {
            model = changed;
            history.push((store.commit_local(txn), model.clone()));
        }
    }
    history
}

fn concurrent_run(seed: u64) {
    let disk = MemDisk::new();
    let mut node =
        Node::open(Arc::new(disk.clone()), Path::new("db"), config(PARTITIONS, 96)).unwrap();
    let stores = node.take_stores();
    let (node, stop) = (&node, &AtomicBool::new(false));
    let (histories, durable, after) = std::thread::scope(|scope| {
        scope.spawn(move || {
            // Relaxed: only signals the end.
            while !stop.load(Ordering::Relaxed) {
                node.checkpoint().unwrap();
            }
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
        let durable = node.wal().durable();
        let after = disk.crash(seed);
        stop.store(true, Ordering::Relaxed);
        (histories, durable, after)
    });
    let mut world = World::open(&after, PARTITIONS, 96).unwrap();
    for (partition, history) in histories.into_iter().enumerate() {
        let found = as_model(world.all(partition, TREE, false));
        let least = history.iter().rposition(|(lsn, _)| *lsn <= durable).unwrap();
        let good = history[least..].iter().any(|(_, model)| *model == found);
        assert!(
            good,
            "seed {seed}, partition {partition}: no committed state from {least} on of {}",
            history.len()
        );
    }
    world.node.shutdown();
}

#[test]
fn checkpoints_do_not_disturb_running_partitions() {
    for seed in 0..6 {
        concurrent_run(seed);
    }
}

#[test]
fn stores_may_move_between_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Store>();
    is_send::<TxnLog>();
    is_sync::<Node>();
}

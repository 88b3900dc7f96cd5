//! A checkpoint while transactions begin and end.

use std::cell::RefCell;

use clearway_testkit::MemDisk;
use clearway_types::TreeId;

use super::*;
use crate::attempt::retry_blocking;
use crate::wal::LOG_START;
use crate::{Trees, TxnLog, TxnMode};

const TREE: TreeId = TreeId(1);

fn open(disk: &MemDisk) -> (Node, Store) {
    let config =
        NodeConfig { partitions: Some(1), wal_segment_size: 64 << 10, ..NodeConfig::default() };
    let mut node =
        Node::open(Arc::new(disk.clone()), Path::new("db"), config).expect("a sound directory");
    let store = node.take_stores().pop().expect("a partition");
    (node, store)
}

/// Invariant 2: the checkpoint must not forget a transaction whose end is only in memory.
#[test]
fn checkpoint_makes_concurrent_commits_durable() {
    let disk = MemDisk::new();
    let (node, mut store) = open(&disk);
    retry_blocking(&node.pool, || store.create_tree(TREE)).expect("a new tree");
    let mut txn = TxnLog::new(node.alloc_txn_id());
    retry_blocking(&node.pool, || store.insert(&mut txn, TxnMode::Logged, TREE, b"key", b"value"))
        .expect("a row");
    node.wal.wait_durable(node.wal.appended()).expect("a sound disk");
    let ending = RefCell::new(Some((store, txn)));
    let commit =
        || ending.take().into_iter().for_each(|(mut store, txn)| _ = store.commit_local(txn));
    node.checkpoint_locked(&mut node.control.lock(), &commit).expect("a sound disk");
    let committed = node.wal.durable() >= node.wal.appended();
    let after = disk.crash(0);
    drop(node);
    let (node, store) = open(&after);
    let found =
        retry_blocking(&node.pool, || store.get(TREE, b"key", &mut |_| {})).expect("a tree");
    assert!(committed, "the control file forgets a transaction whose end is not on the disk");
    assert!(found);
}

/// Invariant 1: a transaction may publish an LSN that it has read before an earlier checkpoint. The
/// log there may be gone.
#[test]
fn checkpoint_ignores_positions_in_removed_log() {
    let disk = MemDisk::new();
    let (node, mut store) = open(&disk);
    retry_blocking(&node.pool, || store.create_tree(TREE)).expect("a new tree");
    for key in 0..400_u32 {
        let insert = || store.insert_autocommit(TREE, &key.to_be_bytes(), &[7; 1000]);
        retry_blocking(&node.pool, insert).expect("a row");
    }
    node.checkpoint().expect("a sound disk");
    let before = node.control.lock().state();
    assert!(!disk.exists(Path::new("db/wal/0000000000000000.wal")).expect("a sound disk"));
    // Relaxed: one thread.
    node.oldest[0].store(LOG_START.0, Ordering::Relaxed);
    node.checkpoint().expect("a sound disk");
    assert!(node.control.lock().state().scan_from >= before.scan_from);
    let after = disk.crash(0);
    drop(node);
    let (node, store) = open(&after);
    let found = retry_blocking(&node.pool, || store.get(TREE, &[0; 4], &mut |_| {}));
    assert!(found.expect("a tree"));
}

//! Counts the instructions of a logged change of one row, and of its rollback: additions compared
//! with updates that read the row first.
//!
//! `cargo bench -p clearway-storage --bench changes`
//!
//! It uses one partition on an in-memory disk, with rows of 100 bytes of which 4 change, and all
//! pages resident. It reports the median of the rounds, because the log changes its segment in some
//! of them. It counts only this thread's instructions, with the processor's trap flag. Without
//! traps it counts nothing.

#[path = "../../latch/benches/steps/mod.rs"]
mod steps;

use clearway_storage::{
    Addend, Addends, Incremented, Node, NodeConfig, Store, Trees, TxnLog, TxnMode, retry_blocking,
    rowid_key,
};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;

const TREE: TreeId = TreeId(1);
const ROWS: u64 = 10_000;
/// Number of changes of each kind, an odd number.
const ROUNDS: usize = 31;
/// Offset of the integer.
const OFFSET: usize = 20;

/// Reads a row, adds to an integer in a copy, and updates the row to the copy.
fn update(store: &mut Store, log: &mut TxnLog, key: &[u8]) {
    let mut row = [0; 100];
    let found = store.get(TREE, key, &mut |value| row.copy_from_slice(value));
    assert!(found.expect("it is resident"));
    let integer = &mut row[OFFSET..OFFSET + 4];
    let sum = integer.try_into().map_or(0, i32::from_le_bytes).wrapping_add(300);
    integer.copy_from_slice(&sum.to_le_bytes());
    assert!(store.update(log, TxnMode::Logged, TREE, key, &row).expect("it is resident"));
}

fn increment(store: &mut Store, log: &mut TxnLog, key: &[u8]) {
    let mut addends = Addends::default();
    assert!(addends.push(Addend { offset: OFFSET as u16, width: 4, delta: 300 }));
    let done = store.increment(log, TxnMode::Logged, TREE, key, &mut |_| Some(addends));
    assert_eq!(done.expect("it is resident"), Incremented::Done(addends));
}

fn rollback(store: &mut Store, log: &mut TxnLog) {
    assert!(store.rollback(log, 0, &mut |_, _, _| {}).is_ok(), "it is resident");
}

/// Returns the median number of instructions of `change`, over successive rows.
fn count(change: impl Fn(&[u8])) -> Option<u64> {
    let number = Cell::new(0);
    let next = || {
        number.set(number.get() + 1);
        rowid_key(number.get() * 37 % ROWS)
    };
    let counts = (0..ROUNDS).map(|_| next()).map(|key| steps::of(&|| change(&key)));
    let mut counts = counts.collect::<Option<Vec<u64>>>()?;
    counts.sort_unstable();
    Some(counts[ROUNDS / 2])
}

fn main() {
    let disk = Arc::new(MemDisk::new());
    let config = NodeConfig { partitions: Some(1), ..NodeConfig::default() };
    let mut node = Node::open(disk, Path::new("/changes"), config).expect("it opens");
    let mut store = node.take_stores().pop().expect("a partition");
    retry_blocking(node.pool(), || store.create_tree(TREE)).expect("a new tree");
    for n in 0..ROWS {
        retry_blocking(node.pool(), || store.insert_autocommit(TREE, &rowid_key(n), &[7; 100]))
            .expect("a row");
    }
    let state = RefCell::new((store, TxnLog::new(node.alloc_txn_id())));
    let tell = |what: &str, counted: Option<u64>| match counted {
        Some(count) => println!("{what}: {count} instructions"),
        None => println!("{what}: instructions are not counted here, no trap after each"),
    };
    type Change = fn(&mut Store, &mut TxnLog, &[u8]);
    for (what, change) in [("a read and an update", update as Change), ("an increment", increment)]
    {
        let run = |key: &[u8]| {
            let (store, log) = &mut *state.borrow_mut();
            change(store, log, key);
        };
        tell(what, count(run));
        let (store, log) = &mut *state.borrow_mut();
        rollback(store, log);
    }
    for (what, change) in [("a read, an update", update as Change), ("an increment", increment)] {
        let run = |key: &[u8]| {
            let (store, log) = &mut *state.borrow_mut();
            change(store, log, key);
            rollback(store, log);
        };
        tell(&format!("{what} and its rollback"), count(run));
    }
    let (mut store, log) = state.into_inner();
    store.aborted(log);
    drop(store);
    node.shutdown();
}

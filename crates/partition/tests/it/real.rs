//! The same histories with real trees, on a disk in memory, in a pool that holds everything and in
//! one that holds almost nothing.

use crate::driver::Driver;
use crate::history::{Seen, run};
use crate::sql::{BY_A, BY_B, Find, Model, ROWS, Stmt, as_expected, table};
use clearway_buffer::MissingPage;
use clearway_partition::Body;
use clearway_storage::{Node, NodeConfig};
use clearway_testkit::{MemDisk, Rng};
use clearway_types::{PageId, PartitionId, TxnId};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

fn node(frames: u32, undo_memory: usize) -> Node {
    let config = NodeConfig {
        undo_memory,
        partitions: Some(1),
        frames,
        io_threads: 1,
        wal_segment_size: 1 << 20,
        wal_buffer_size: 1 << 16,
        ..NodeConfig::default()
    };
    Node::open(Arc::new(MemDisk::new()), Path::new("/d"), config).expect("a node")
}

fn history(frames: u32, seed: u64, steps: usize) -> Seen {
    // In two of three runs, undo is read from the log.
    let mut node = node(frames, [1 << 20, 1000, 0][seed as usize % 3]);
    let store = node.take_stores().remove(0);
    let node = Arc::new(node);
    let seen = run(Driver::new(store, node.clone()), seed, 4, steps);
    node.shutdown();
    seen
}

#[test]
fn histories_on_real_trees_are_serializable() {
    for seed in 1..=12 {
        let seen = history(1024, seed, 400);
        assert!(seen.committed > 10, "{seen:?}");
    }
}

#[test]
fn histories_in_a_tiny_pool_are_serializable() {
    for seed in 1..=12 {
        let seen = history(24, seed, 400);
        assert!(seen.committed > 10, "{seen:?}");
    }
}

/// Evicts every page that is not pinned.
fn churn(node: &Node) {
    for no in 1..100 {
        drop(node.pool().fetch_blocking(MissingPage::Page(PageId::new(PartitionId(0), no))));
    }
}

/// A retry may wait in line for the partition: the fetched pages are still resident when it runs.
#[test]
fn fetched_pages_stay_resident_until_the_retry() {
    let mut node = node(24, 1 << 20);
    let store = node.take_stores().remove(0);
    let node = Arc::new(node);
    let mut d = Driver::new(store, node.clone());
    let t = d.txn();
    d.call(t, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).expect("trees");
    let lsn = node.commit(t);
    d.call(t, Body::Finish { commit: Some(lsn) }).expect("commit");
    for from in (0..6000).step_by(1000) {
        let rows: Vec<_> = (from..from + 1000).map(|i| (i, None, i)).collect();
        let fill = d.txn();
        d.call(fill, Stmt::Insert { rows, ignore: false }.one_shot(&table())).expect("rows");
    }
    let missed = (0..6000).step_by(100).find_map(|id| {
        let reader = d.txn();
        let s = d.send(
            reader,
            Stmt::Select { find: Find::Point(id), limit: None, lock: None }.one_shot(&table()),
        );
        (d.suspended.len() == 1).then_some((id, s))
    });
    let (id, s) = missed.expect("a row that is not in the pool");
    let mut retries = 0;
    while d.suspended.len() == 1 {
        retries += 1;
        assert!(retries < 10, "it misses the same pages again");
        let multi = d.txn();
        let given = d.send(multi, Body::Block { one_round: false });
        assert_eq!(d.take(given).expect("a reply").expect("the partition").count, 1);
        // The retry waits in line, and others use the pool.
        d.resume(0);
        assert!(d.suspended.is_empty() && d.waiting() == 1);
        churn(&node);
        let end = d.send(multi, Body::Finish { commit: None });
        d.take(end).expect("a reply").expect("the end");
    }
    assert_eq!(as_expected(&d.take(s).expect("a reply")), Ok(vec![(id, None, id)]));
    node.shutdown();
}

/// Others use all frames between two attempts: the pages for an attempt are fetched together,
/// although it discovers them one after the other.
#[test]
fn statements_complete_although_the_pool_is_churned() {
    let mut node = node(24, 1 << 20);
    let store = node.take_stores().remove(0);
    let node = Arc::new(node);
    let mut d = Driver::new(store, node.clone());
    let churns = Cell::new(false);
    let mut run = |txn: u64, body: Body| {
        let seq = d.send(TxnId(1000 + txn), body);
        let mut misses = 0;
        while !d.suspended.is_empty() {
            misses += 1;
            // Far more than the number of pages that the steps need.
            assert!(misses < 10_000, "it misses the same pages again: {:?}", d.suspended);
            if churns.get() {
                churn(&node);
            }
            d.resume(0);
        }
        d.take(seq).expect("a reply").expect("no error")
    };
    run(1, Body::CreateTrees(vec![ROWS, BY_A, BY_B]));
    run(1, Body::Finish { commit: Some(node.commit(TxnId(1001))) });
    // Enough pages for `churn`, in trees that the others do not use.
    for from in (0..6000).step_by(1000) {
        let rows = (from..from + 1000).map(|i| (i, Some(i), i)).collect();
        run(2, Stmt::Insert { rows, ignore: false }.one_shot(&table()));
    }
    churns.set(true);
    let find = Find::ByA { low: Some(3000), high: Some(3040), reverse: false };
    for stmt in [Stmt::Add { find: find.clone(), column: 2, by: 100_000 }, Stmt::Delete(find)] {
        run(3, stmt.statement(&table()));
    }
    run(3, Body::Finish { commit: None });
    run(4, Body::DropTreesAtCommit(vec![ROWS, BY_A, BY_B]));
    run(4, Body::Finish { commit: Some(node.commit(TxnId(1004))) });
    assert_eq!(d.partition.active(), 0);
    node.shutdown();
}

/// A table several times the size of the pool: every statement misses pages, transactions change
/// more than the pool holds, and aborts undo it.
#[test]
fn tables_can_be_larger_than_the_pool() {
    const ROW_COUNT: i32 = 6000;
    let mut node = node(32, 10_000);
    let store = node.take_stores().remove(0);
    let node = Arc::new(node);
    let mut d = Driver::new(store, node.clone());
    let mut rng = Rng::new(5);
    let mut model = Model::default();
    let t = d.txn();
    d.call(t, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).expect("trees");
    let lsn = node.commit(t);
    d.call(t, Body::Finish { commit: Some(lsn) }).expect("commit");
    for from in (0..ROW_COUNT).step_by(1000) {
        let rows: Vec<_> = (from..from + 1000)
            .map(|i| (i, Some(i * 7919 % ROW_COUNT), i * 31 % 100_003))
            .collect();
        model.0.extend(rows.iter().map(|r| (r.0, (r.1, r.2))));
        let t = d.txn();
        d.call(t, Stmt::Insert { rows, ignore: false }.one_shot(&table())).expect("rows");
    }
    for round in 0..40 {
        let t = d.txn();
        let mut after = model.clone();
        let commit = round % 2 == 0;
        for _ in 0..3 {
            let low = rng.below(ROW_COUNT as u64) as i32;
            let find = match rng.below(4) {
                0 => Find::Point(low),
                1 => Find::ByA { low: Some(low), high: Some(low + 40), reverse: rng.below(2) == 0 },
                2 => Find::Ids { low: Some(low), high: Some(low + 40), reverse: rng.below(2) == 0 },
                _ => Find::All { a_less: Some(20) },
            };
            let stmt = match rng.below(4) {
                0 => Stmt::Select { find, limit: None, lock: None },
                1 => Stmt::Add { find, column: 1, by: 50 },
                2 => Stmt::Add { find, column: 0, by: 20_000 },
                _ => Stmt::Delete(find),
            };
            let expected = after.run(&stmt);
            assert_eq!(as_expected(&d.call(t, stmt.statement(&table()))), expected, "{stmt:?}");
        }
        let lsn = commit.then(|| node.commit(t));
        d.call(t, Body::Finish { commit: lsn }).expect("the end");
        if commit {
            model = after;
        }
    }
    for find in [Find::All { a_less: None }, Find::ByA { low: None, high: None, reverse: true }] {
        let stmt = Stmt::Select { find, limit: None, lock: None };
        let answer =
            d.alone(
                |one_shot| {
                    if one_shot { stmt.one_shot(&table()) } else { stmt.statement(&table()) }
                },
            );
        assert_eq!(as_expected(&answer), model.run(&stmt));
    }
    assert!(d.suspensions > 100, "{}", d.suspensions);
    assert!(d.log_reads > 5, "{}", d.log_reads);
    node.shutdown();
}

/// Undo has no gaps after a savepoint is released, also in trees that no one else sees.
#[test]
fn rollback_after_a_released_savepoint_undoes_new_trees() {
    let mut node = node(64, 1 << 20);
    let store = node.take_stores().remove(0);
    let node = Arc::new(node);
    let mut d = Driver::new(store, node.clone());
    let t = d.txn();
    d.call(t, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).expect("trees");
    let fresh = |stmt: &Stmt| match stmt.statement(&table()) {
        Body::Statement { program, env, rows, batch, .. } => Body::Statement {
            program,
            env,
            rows,
            batch,
            fresh: true,
            learns: false,
            may_use_retired: false,
            may_add: false,
            optimistic: false,
        },
        body => body,
    };
    d.call(t, Body::Savepoint(1)).expect("a savepoint");
    let insert = Stmt::Insert { rows: vec![(1, Some(1), 1)], ignore: false };
    d.call(t, fresh(&insert)).expect("a row");
    d.send(t, Body::Release(1));
    d.call(t, fresh(&Stmt::Delete(Find::Point(1)))).expect("it is there");
    d.call(t, Body::Finish { commit: None }).expect("the rollback");
    assert!(d.nothing_pending() && d.partition.active() == 0);
    node.shutdown();
}

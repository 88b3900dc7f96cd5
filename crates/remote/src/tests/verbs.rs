//! Verbs and rounds of a transaction without conflicts.

use crate::{
    Buckets, LockKind, LogLayout, Mode, Owner, Phase, Protocol, RemoteStats, RowClient, RowId,
    RowWorker, Table, WorkerEvent, WorkerLimits,
};
use clearway_fabric::sim::{Network, SimConfig};
use clearway_fabric::{Fabric, Region, WorkerAddr};

/// Runs one transaction alone. It updates the first rows and reads the others.
fn count(mode: Mode, updates: u32, reads: u32) -> RemoteStats {
    let network = Network::new(1, SimConfig::default());
    let (owner, user) = (network.add_node(), network.add_node());
    let region = owner.register(Table::region_words(mode, 2, 20)).unwrap();
    let owners =
        vec![Owner { address: WorkerAddr { node: owner.node(), port: 0 }, region: region.key() }];
    let table = Table {
        mode,
        payload_words: 2,
        rows: 20,
        buckets: Buckets::default(),
        log: LogLayout::default(),
        owners,
    };
    let limits = WorkerLimits { transactions: 1, rows: 20 };
    let fabric = user.worker(0, limits.scratch_words(2)).unwrap();
    let mut worker = RowWorker::new(fabric, table, 1, limits, None).unwrap();
    let txn = worker.begin().unwrap();
    for index in 0..updates + reads {
        let row = RowId { owner: 0, index };
        worker.get(txn, row, index < updates).unwrap();
        let mut events = Vec::new();
        while events.is_empty() {
            network.advance().unwrap();
            worker.poll(&mut events).unwrap();
        }
        assert_eq!(events, [WorkerEvent::Locked(txn, row)]);
        if index < updates {
            worker.set(txn, row, &[1, 2]);
        }
    }
    worker.commit(txn).unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        network.advance().unwrap();
        worker.poll(&mut events).unwrap();
    }
    assert_eq!(events, [WorkerEvent::Committed(txn)]);
    *worker.stats()
}

fn sum(stats: &RemoteStats) -> (u64, u64) {
    let (lock, commit) = (stats.phase(Phase::Lock), stats.phase(Phase::Commit));
    assert_eq!(stats.phase(Phase::Abort), crate::PhaseCount::default());
    (lock.verbs + commit.verbs, lock.rounds + commit.rounds)
}

/// A transaction of 10 operations, half of them updates, has 7.5 remote rows on 4 nodes. The two
/// transactions here have 15.
#[test]
fn one_round_locks_keep_their_budget() {
    let (verbs, rounds) = sum(&count(Mode::ONE_ROUND, 8, 7));
    println!("one-round: {verbs} verbs and {rounds} rounds for 15 remote rows");
    assert!(rounds <= 2 * 15, "{rounds} rounds");
    assert!(verbs <= 2 * 27, "{verbs} verbs");
}

#[test]
fn verbs_of_each_mode_are_the_sources() {
    let [nw_m, nw_ms, wd_m, wd_ms] =
        Mode::PUBLISHED.map(|mode| (sum(&count(mode, 1, 0)), sum(&count(mode, 0, 1))));
    // (verbs, rounds) of an update, then of a read.
    assert_eq!(nw_m, ((4, 3), (3, 3)));
    assert_eq!(nw_ms, ((4, 3), (5, 5)));
    assert_eq!(wd_m, ((4, 3), (3, 3)));
    assert_eq!(wd_ms, ((6, 3), (7, 5)));
    // A reader without conflicts uses the verbs of M.
    for mode in Mode::ADAPTIVE {
        assert_eq!((sum(&count(mode, 1, 0)), sum(&count(mode, 0, 1))), wd_m);
    }
    let one_round = Mode { protocol: Protocol::NoWait, kind: LockKind::OneRound };
    assert_eq!((sum(&count(one_round, 1, 0)), sum(&count(one_round, 0, 1))), ((4, 2), (3, 2)));
}

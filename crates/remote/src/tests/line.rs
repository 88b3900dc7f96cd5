//! Lines: their order, and the cost of a wait.

use super::runner::{Setup, run};
use crate::{
    AbortCause, Buckets, LogLayout, Mailbox, Mode, Owner, RowClient, RowId, RowWorker, Table,
    WorkerEvent, WorkerLimits,
};
use clearway_fabric::sim::{Network, SimConfig, SimRegion, SimWorker};
use clearway_fabric::{Fabric, Region, WorkerAddr};

const ROW: RowId = RowId { owner: 0, index: 0 };
const LIMITS: WorkerLimits = WorkerLimits { transactions: 1, rows: 1 };

/// Advances time while all workers poll, and appends their events.
fn pass(
    network: &Network,
    workers: &mut [RowWorker<'_, SimWorker>],
    events: &mut Vec<(usize, WorkerEvent)>,
) {
    let until_ns = network.now_ns() + 50_000;
    let mut found = Vec::new();
    while network.now_ns() < until_ns {
        network.set_timer(0, network.now_ns() + 100);
        network.advance();
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.poll(&mut found).unwrap();
            events.extend(found.drain(..).map(|event| (number, event)));
        }
    }
}

/// Nobody overtakes the line, and attempts by others cost the waiters no verbs.
#[test]
fn a_lock_is_handed_over_in_line_order() {
    let network = Network::new(1, SimConfig::default());
    // The last node has the row, so that it is remote for each worker.
    let nodes: Vec<_> = (0..5).map(|_| network.add_node()).collect();
    let region = nodes[4].register(Table::region_words(Mode::LINE, 1, 1)).unwrap();
    let address = |node| WorkerAddr { node, port: 9 };
    let owners = vec![Owner { address: address(nodes[4].node()), region: region.key() }];
    let table = Table {
        mode: Mode::LINE,
        payload_words: 1,
        rows: 1,
        buckets: Buckets::default(),
        log: LogLayout::default(),
        owners,
    };
    let mailboxes: Vec<SimRegion> =
        nodes.iter().map(|node| node.register(LIMITS.mailbox_words()).unwrap()).collect();
    let all = nodes.iter().zip(&mailboxes);
    let all: Vec<Owner> =
        all.map(|(n, m)| Owner { address: address(n.node()), region: m.key() }).collect();
    let worker = |number: usize| {
        let fabric = nodes[number].worker(0, LIMITS.scratch_words(1)).unwrap();
        let worker = RowWorker::new(fabric, table.clone(), number as u16, LIMITS, None).unwrap();
        worker.with_mailbox(Mailbox { own: &mailboxes[number], all: all.clone() }).unwrap()
    };
    let mut workers: Vec<_> = (0..4).map(worker).collect();
    let txns: Vec<_> = workers.iter_mut().map(|worker| worker.begin().unwrap()).collect();
    // The youngest waiter queues first: 2 holds the lock, 1 is next, 0 is last.
    let mut events = Vec::new();
    for number in [2, 1, 0] {
        workers[number].get(txns[number], ROW, true).unwrap();
        pass(&network, &mut workers, &mut events);
    }
    assert_eq!(events, [(2, WorkerEvent::Locked(txns[2], ROW))]);
    events.clear();
    let before = [0, 1].map(|number| *workers[number].stats());
    let mut intruder = txns[3];
    for next in [1, 0] {
        for _ in 0..5 {
            workers[3].get(intruder, ROW, true).unwrap();
            pass(&network, &mut workers, &mut events);
            let [(3, WorkerEvent::Aborted(_, start, AbortCause::Older(_)))] = events[..] else {
                panic!("{events:?}")
            };
            intruder = workers[3].restart(start).unwrap();
            events.clear();
        }
        workers[next + 1].set(txns[next + 1], ROW, &[next as u64]);
        workers[next + 1].commit(txns[next + 1]).unwrap();
        pass(&network, &mut workers, &mut events);
        events.sort_by_key(|(number, _)| *number);
        assert_eq!(
            events,
            [
                (next, WorkerEvent::Locked(txns[next], ROW)),
                (next + 1, WorkerEvent::Committed(txns[next + 1]))
            ]
        );
        let mut payload = [9];
        workers[next].payload(txns[next], ROW, &mut payload);
        assert_eq!(payload, [next as u64]);
        events.clear();
    }
    for (number, before) in before.into_iter().enumerate() {
        let stats = workers[number].stats();
        assert_eq!(
            (before.remote_waits, before.remote_wait_verbs),
            (1, 2),
            "a CAS to join the line, a WRITE to the predecessor"
        );
        assert_eq!(
            (stats.remote_waits, stats.remote_wait_verbs),
            (1, 2),
            "no verb while it waited"
        );
    }
    workers[0].commit(txns[0]).unwrap();
    pass(&network, &mut workers, &mut events);
    assert_eq!((events.len(), region.load(0)), (1, 0));
}

/// YCSB's skew of 0.95 with 10 operations, half of them updates, on 4 nodes with 8 workers each.
#[test]
fn a_wait_in_line_takes_fewer_verbs_than_polling() {
    let verbs_a_wait = |mode| {
        let (nodes, workers, clients, rows, rows_per_txn) = (4, 8, 1, 500, 10);
        let setup = Setup::new(1, mode, 300);
        let setup =
            Setup { nodes, workers, clients, rows, rows_per_txn, theta: Some(0.95), ..setup };
        let found = run(setup);
        assert!(found.is_clean(), "{mode:?}: {:?}\n{}", found.broken, found.checked);
        let stats = found.stats;
        println!("{mode:?}: {stats:?}");
        assert!(stats.remote_waits > 100, "{stats:?}");
        stats.remote_wait_verbs as f64 / stats.remote_waits as f64
    };
    let (line, polling) = (verbs_a_wait(Mode::LINE), verbs_a_wait(Mode::PUBLISHED[2]));
    println!("remote verbs per wait: {line:.2} in line, {polling:.2} polling");
    assert!(line <= 2.0 && line * 2.0 < polling, "{line} {polling}");
}

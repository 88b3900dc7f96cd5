//! The baselines: the same modes and histories by messages, on the simulated network, shared memory
//! and TCP.

use super::runner::{Setup, message_worker, run, servers};
use super::{PAYLOAD, store_runner, threads};
use crate::{
    Buckets, FabricLink, Incoming, Link, LogLayout, MessageServer, MessageWorker, Mode, Owner,
    RemoteError, RemoteStats, RowClient, RowId, Table, TcpLink, WorkerEvent, WorkerLimits,
    message_words,
};
use clearway_env::SeededEntropy;
use clearway_fabric::shm::{ShmConfig, ShmSegment};
use clearway_fabric::sim::{Network, SimConfig};
use clearway_fabric::{Fabric, FabricNode, FabricWorker, RegionKey, WorkerAddr};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SEEDS: u64 = 16;
const LIMITS: WorkerLimits = WorkerLimits { transactions: 2, rows: threads::ROWS_PER_TXN };
const ROWS: u32 = 3;
const CLIENTS: usize = 3;

#[test]
fn messages_are_strictly_serializable_in_every_mode() {
    for mode in Mode::PUBLISHED {
        let mut sum = RemoteStats::default();
        for seed in 0..SEEDS {
            let setup = Setup { messages: true, ..Setup::new(seed, mode, 400) };
            let found = run(setup);
            assert!(
                found.is_clean(),
                "SEED={seed} {mode:?}: {:?}\n{}",
                found.broken,
                found.checked
            );
            assert!(found.checked.counts.committed > 400, "SEED={seed}: {}", found.checked);
            sum.add(&found.stats);
        }
        assert_eq!((sum.atomicity_retries, sum.rereads), (0, 0));
        assert_eq!(sum.wait_retries > 0, mode.protocol == crate::Protocol::WaitDie, "{sum:?}");
        println!("{mode:?}: {sum:?}");
    }
}

#[test]
fn stores_by_messages_are_strictly_serializable() {
    for mode in Mode::PUBLISHED {
        for seed in 0..SEEDS / 2 {
            let (found, _) =
                store_runner::run(Setup { messages: true, ..Setup::new(seed, mode, 300) });
            assert!(
                found.is_clean(),
                "SEED={seed} {mode:?}: {:?}\n{}",
                found.broken,
                found.checked
            );
        }
    }
}

/// Returns a table whose owners serve messages.
fn table(mode: Mode, owners: u32) -> Table {
    let region = RegionKey { key: 0, base: 0 };
    let owner = |node| Owner { address: WorkerAddr { node: FabricNode(node), port: 0 }, region };
    let buckets = Buckets::default();
    Table {
        mode,
        payload_words: PAYLOAD,
        rows: ROWS,
        buckets,
        log: LogLayout::default(),
        owners: (0..owners).map(owner).collect(),
    }
}

/// Runs clients and servers, each on its own thread, and checks the history.
fn run_threads<L: Link + Send>(
    mode: Mode,
    links: Vec<L>,
    connect: impl Fn(usize) -> L + Sync,
    wait: impl Fn(&mut L) -> Result<(), RemoteError> + Send + Sync + Copy,
) {
    let table = table(mode, links.len() as u32);
    let (shared, left) = (threads::Shared::new(), AtomicUsize::new(CLIENTS));
    let (records, payloads) = std::thread::scope(|scope| {
        let serve = |link: L| {
            let (table, left) = (table.clone(), &left);
            scope.spawn(move || {
                let mut server = MessageServer::new(link, table);
                // Acquire: pairs with the Release below. The last requests were answered before it.
                while left.load(Ordering::Acquire) > 0 {
                    server.poll().unwrap();
                    wait(server.link()).unwrap();
                }
                assert!(server.is_free() && server.bad_requests() == 0);
                (0..ROWS).map(|index| server.payload(index)[0]).collect::<Vec<u64>>()
            })
        };
        let servers: Vec<_> = links.into_iter().map(serve).collect();
        let client = |number: usize| {
            let (table, shared, left, connect) = (table.clone(), &shared, &left, &connect);
            scope.spawn(move || {
                let owners = table.owners.len() as u32;
                let mut client = MessageWorker::new(connect(number), table, number as u16, LIMITS);
                let wait = |client: &mut MessageWorker<L>| wait(client.link());
                let records =
                    threads::work(&mut client, number as u32, (owners, ROWS), 200, shared, wait)
                        .unwrap();
                // Release: pairs with the Acquire above.
                left.fetch_sub(1, Ordering::Release);
                records
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let records = clients.into_iter().flat_map(|client| client.join().unwrap());
        let records: Vec<threads::Record> = records.collect();
        let payloads = servers.into_iter().map(|server| server.join().unwrap());
        (records, payloads.collect::<Vec<_>>())
    });
    let left = (0..).zip(payloads).flat_map(|(owner, payloads)| {
        let value = move |(index, value)| (RowId { owner, index }, value);
        (0..).zip(payloads).map(value)
    });
    let report = threads::check(records, left);
    assert!(
        report.is_clean() && report.counts.committed == 200 * CLIENTS as u64 + 1,
        "{mode:?}: {report}"
    );
}

#[test]
fn tcp_is_strictly_serializable_in_every_mode() {
    for mode in Mode::PUBLISHED {
        let words = message_words(&table(mode, 2), LIMITS.rows);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let links: Vec<TcpLink> =
            (0..2).map(|_| TcpLink::listen(any, CLIENTS, words).unwrap()).collect();
        let addresses: Vec<SocketAddr> = links.iter().map(|link| link.address().unwrap()).collect();
        let connect = |_| {
            let mut link = TcpLink::new(words);
            addresses.iter().for_each(|address| link.connect(*address).unwrap());
            link
        };
        run_threads(mode, links, connect, |link| link.wait());
    }
}

#[test]
fn shared_memory_is_strictly_serializable_in_every_mode() {
    for mode in Mode::PUBLISHED {
        let config = ShmConfig {
            nodes: 3,
            workers: 8,
            regions: 1,
            queue_pairs: 32,
            ring_words: 256,
            heap_words: 1024,
        };
        let segment = ShmSegment::create(config).unwrap();
        let nodes = [0, 1, 2].map(|node| segment.node(FabricNode(node), Duration::ZERO).unwrap());
        let table = table(mode, 2);
        let words = message_words(&table, LIMITS.rows);
        let link = |node: usize, port, peers| {
            let scratch =
                FabricLink::<clearway_fabric::shm::ShmWorker>::scratch_words(peers, 2, words);
            FabricLink::new(nodes[node].worker(port, scratch).unwrap(), peers, 2, words)
        };
        let links = vec![link(0, 0, CLIENTS), link(1, 0, CLIENTS)];
        let connect = |number| {
            let mut link = link(2, number as u32, 2);
            table.owners.iter().for_each(|owner| link.connect(owner.address).unwrap());
            link
        };
        run_threads(mode, links, connect, |link| {
            link.fabric().wait();
            Ok(())
        });
    }
}

/// A link whose messages the test writes and reads.
#[derive(Default)]
struct Script {
    incoming: Vec<Incoming>,
    sent: Vec<(usize, Vec<u64>)>,
}

impl Link for Script {
    fn send(&mut self, peer: usize, words: &[u64]) -> Result<(), RemoteError> {
        self.sent.push((peer, words.to_vec()));
        Ok(())
    }

    fn poll(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), RemoteError> {
        incoming.append(&mut self.incoming);
        Ok(())
    }
}

fn ask(server: &mut MessageServer<Script>, peer: usize, words: &[u64]) -> Vec<(usize, Vec<u64>)> {
    server.link().incoming.push(Incoming::Message(peer, words.to_vec()));
    server.poll().unwrap();
    std::mem::take(&mut server.link().sent)
}

const LOCK: u64 = 1;
const END: u64 = 4;
const BAD: u64 = 5;

#[test]
fn bad_requests_get_a_reply_and_change_nothing() {
    let mut server = MessageServer::new(Script::default(), table(Mode::PUBLISHED[3], 1));
    assert_eq!(ask(&mut server, 0, &[LOCK, 7, 50, 1, 1])[0].1[..2], [1, 7]);
    let bad: [&[u64]; 12] = [
        &[],
        &[LOCK],
        &[9, 7, 50],
        &[LOCK, 7, 0, 1, 1],
        &[LOCK, 7, 51, 3, 1],
        &[LOCK, 7, 51, u64::MAX, 1],
        &[LOCK, 7, 51, 1, 2],
        &[3, 7, 51, 1],
        &[END, 7, 51, 1, 9, 9, 9],
        &[END, 7, 50, 1, 9, 9],
        &[END, 7, 50, 0, 9, 9, 9],
        &[END, 7, 50, 1, 9, 9, 9, 4],
    ];
    for words in bad {
        let tag = words.get(1).copied().unwrap_or(0);
        assert_eq!(ask(&mut server, 0, words), [(0, vec![BAD, tag])], "{words:?}");
    }
    // A transaction of another peer.
    assert_eq!(ask(&mut server, 1, &[END, 7, 50, 1, 9, 9, 9]), [(1, vec![BAD, 7])]);
    assert_eq!(
        (server.bad_requests(), server.payload(1), server.is_free()),
        (13, &[0; PAYLOAD][..], false)
    );
    let rng = SeededEntropy::new(1);
    for _ in 0..20_000 {
        let words: Vec<u64> = (0..rng.below(8)).map(|_| rng.below(6)).collect();
        ask(&mut server, rng.below(3) as usize, &words);
    }
    (0..3).for_each(|peer| server.link().incoming.push(Incoming::Gone(peer)));
    server.poll().unwrap();
    assert!(server.is_free());
}

/// Invariant 3 of the server.
#[test]
fn locks_of_a_disconnected_peer_are_released() {
    let mut server = MessageServer::new(Script::default(), table(Mode::PUBLISHED[2], 1));
    ask(&mut server, 0, &[LOCK, 0, 70, 1, 1]);
    assert_eq!(ask(&mut server, 1, &[LOCK, 3, 60, 1, 1]), [], "the older one waits");
    assert_eq!(
        ask(&mut server, 2, &[LOCK, 0, 80, 1, 1]),
        [(2, vec![2, 0, 70, 70])],
        "the younger one dies"
    );
    server.link().incoming.push(Incoming::Gone(0));
    server.poll().unwrap();
    assert_eq!(std::mem::take(&mut server.link().sent), [(1, vec![1, 3, 1, 0, 0, 0])]);
}

/// The client dies while it holds a lock and has no request in flight.
#[test]
fn locks_of_a_dead_client_without_requests_are_released() {
    let network = Network::new(1, SimConfig::default());
    let nodes = [network.add_node(), network.add_node()];
    let table = table(Mode::PUBLISHED[0], 1);
    let (_, mut server) = servers(&nodes[..1], &table, LIMITS, 1).remove(0);
    let mut client = message_worker(&nodes[1], 3, &table, 1, LIMITS);
    let txn = client.begin().unwrap();
    client.get(txn, RowId { owner: 0, index: 0 }, true).unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        network.advance().unwrap();
        server.poll().unwrap();
        client.poll(&mut events).unwrap();
    }
    while network.advance().is_some() {
        server.poll().unwrap();
    }
    assert!(!server.is_free(), "the client is alive and holds its lock");
    network.crash_worker(WorkerAddr { node: nodes[1].node(), port: 3 });
    while network.advance().is_some() {
        server.poll().unwrap();
    }
    assert!(server.is_free());
}

/// Invariant 2 of the lock table: after an upgrade, or a grant to an older waiter, younger waiters
/// are refused.
#[test]
fn a_waiter_younger_than_a_new_holder_is_refused() {
    let mut server = MessageServer::new(Script::default(), table(Mode::PUBLISHED[3], 1));
    ask(&mut server, 0, &[LOCK, 0, 90, 0, 0]);
    assert_eq!(ask(&mut server, 1, &[LOCK, 1, 80, 0, 1]), []);
    // An older reader shares the row. The waiting writer would now wait for an older transaction.
    let replies = ask(&mut server, 2, &[LOCK, 2, 70, 0, 0]);
    assert_eq!(replies, [(2, vec![1, 2, 0, 0, 0, 0]), (1, vec![2, 1, 70, 90])]);
}

/// A worker's limit is for the rows that a transaction holds at a time. Owners of rows that it has
/// released still learn that it has ended.
#[test]
fn another_row_takes_the_place_of_a_released_one() {
    let network = Network::new(1, SimConfig::default());
    let nodes = [network.add_node(), network.add_node(), network.add_node()];
    let limits = WorkerLimits { transactions: 1, rows: 1 };
    let table = table(Mode::PUBLISHED[0], 2);
    let mut servers = servers(&nodes[..2], &table, limits, 1);
    let mut client = message_worker(&nodes[2], 3, &table, 1, limits);
    let mut event = |client: &mut MessageWorker<_>| {
        let mut events = Vec::new();
        while events.is_empty() {
            network.advance().unwrap();
            servers.iter_mut().for_each(|(_, server)| server.poll().unwrap());
            client.poll(&mut events).unwrap();
        }
        events.remove(0)
    };
    let txn = client.begin().unwrap();
    for owner in [0, 1, 0] {
        let row = RowId { owner, index: owner };
        client.peek(txn, RowId { owner, index: 2 }).unwrap();
        assert_eq!(event(&mut client), WorkerEvent::Peeked(txn, RowId { owner, index: 2 }));
        client.get(txn, row, true).unwrap();
        assert_eq!(event(&mut client), WorkerEvent::Locked(txn, row));
        client.release(txn, row).unwrap();
        assert_eq!(event(&mut client), WorkerEvent::Released(txn, row));
    }
    client.commit(txn).unwrap();
    assert_eq!(event(&mut client), WorkerEvent::Committed(txn));
    assert!(servers.iter().all(|(_, server)| server.is_free() && server.bad_requests() == 0));
}

#[test]
fn clients_fail_when_their_server_is_gone() {
    let table = table(Mode::PUBLISHED[0], 1);
    let words = message_words(&table, 1);
    let server = TcpLink::listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1, words).unwrap();
    let mut link = TcpLink::new(words);
    link.connect(server.address().unwrap()).unwrap();
    let mut client = MessageWorker::new(link, table, 1, LIMITS);
    let txn = client.begin().unwrap();
    client.get(txn, RowId { owner: 0, index: 0 }, true).unwrap();
    drop(server);
    let mut events = Vec::new();
    let failed = loop {
        match client.poll(&mut events) {
            Ok(()) => client.link().wait().unwrap(),
            Err(why) => break why,
        }
    };
    assert!(matches!(failed, RemoteError::Verb(_)) && events.is_empty(), "{failed} {events:?}");
}

#[test]
fn a_message_too_long_closes_only_its_connection() {
    let mut server = TcpLink::listen(SocketAddr::from(([127, 0, 0, 1], 0)), 2, 4).unwrap();
    let connect = |words| {
        let mut link = TcpLink::new(words);
        link.connect(server.address().unwrap()).unwrap();
        link
    };
    let (mut long, mut good) = (connect(9), connect(4));
    long.send(0, &[1; 5]).unwrap();
    good.send(0, &[1; 4]).unwrap();
    let mut incoming = Vec::new();
    while incoming.len() < 2 {
        server.poll(&mut incoming).unwrap();
        server.wait().unwrap();
    }
    incoming.sort_by_key(|incoming| matches!(incoming, Incoming::Gone(_)));
    let [Incoming::Message(good_peer, words), Incoming::Gone(bad)] = &incoming[..] else {
        panic!("{incoming:?}")
    };
    assert_eq!((good_peer + bad, words), (1, &vec![1; 4]));
}

/// An upgrade of a shared lock conflicts with other readers, but not with itself.
#[test]
fn a_lone_reader_is_upgraded() {
    let mut server = MessageServer::new(Script::default(), table(Mode::PUBLISHED[1], 1));
    ask(&mut server, 0, &[LOCK, 0, 70, 0, 0]);
    assert_eq!(ask(&mut server, 0, &[LOCK, 0, 70, 0, 1])[0].1[0], 1);
    ask(&mut server, 0, &[LOCK, 0, 70, 1, 0]);
    ask(&mut server, 1, &[LOCK, 0, 80, 1, 0]);
    assert_eq!(
        ask(&mut server, 0, &[LOCK, 0, 70, 1, 1]),
        [(0, vec![2, 0, 0, 80])],
        "refused because of a conflict"
    );
}

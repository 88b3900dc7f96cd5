//! One-sided locks on real fabrics: shared memory and TCP, each client on its own thread.

use super::{PAYLOAD, threads};
use crate::{
    Buckets, LogLayout, Mailbox, Mode, Owner, RemoteStats, RowId, RowWorker, Table, WorkerLimits,
};
use clearway_fabric::shm::{ShmConfig, ShmSegment};
use clearway_fabric::tcp::{TcpConfig, TcpFabric};
use clearway_fabric::{Fabric, FabricNode, FabricWorker, Region, WorkerAddr};
use std::net::SocketAddr;
use std::time::Duration;

const LIMITS: WorkerLimits = WorkerLimits { transactions: 1, rows: threads::ROWS_PER_TXN };
const ROWS: u32 = 3;
const COMMITS: usize = 200;

/// Runs a client on each node, which also owns rows, and checks the history.
fn run<F: Fabric + Sync>(mode: Mode, nodes: &[F])
where
    F::Region: Sync,
{
    let register =
        |words: usize| nodes.iter().map(|node| node.register(words).unwrap()).collect::<Vec<_>>();
    let (regions, mailboxes) =
        (register(Table::region_words(mode, PAYLOAD, ROWS)), register(LIMITS.mailbox_words()));
    let places = |regions: &[F::Region]| {
        let owner = |(node, region): (&F, &F::Region)| Owner {
            address: WorkerAddr { node: node.node(), port: 9 },
            region: region.key(),
        };
        nodes.iter().zip(regions).map(owner).collect::<Vec<_>>()
    };
    let (owners, all) = (places(&regions), places(&mailboxes));
    let table = Table {
        mode,
        payload_words: PAYLOAD,
        rows: ROWS,
        buckets: Buckets::default(),
        log: LogLayout::default(),
        owners,
    };
    let shared = threads::Shared::new();
    let (records, stats) = std::thread::scope(|scope| {
        let client = |number: usize| {
            let (table, all, shared) = (table.clone(), all.clone(), &shared);
            let (node, region, own) = (&nodes[number], &regions[number], &mailboxes[number]);
            scope.spawn(move || {
                let fabric = node.worker(0, LIMITS.scratch_words(PAYLOAD)).unwrap();
                let worker =
                    RowWorker::new(fabric, table, number as u16, LIMITS, Some(region)).unwrap();
                let mut worker = worker.with_mailbox(Mailbox { own, all }).unwrap();
                let wait = |worker: &mut RowWorker<'_, F::Worker>| {
                    worker.fabric().wait();
                    Ok(())
                };
                let rows = (nodes.len() as u32, ROWS);
                let records =
                    threads::work(&mut worker, number as u32, rows, COMMITS, shared, wait).unwrap();
                (records, *crate::RowClient::stats(&worker))
            })
        };
        let clients: Vec<_> = (0..nodes.len()).map(client).collect();
        let (mut records, mut stats) = (Vec::new(), RemoteStats::default());
        for client in clients {
            let (found, counted) = client.join().unwrap();
            records.extend(found);
            stats.add(&counted);
        }
        (records, stats)
    });
    let left = (0..).zip(&regions).flat_map(|(owner, region)| {
        let value = |index| (RowId { owner, index }, table.read_row(region, index).1[0]);
        (0..ROWS).map(value).collect::<Vec<_>>()
    });
    let report = threads::check(records, left);
    assert!(
        report.is_clean() && report.counts.committed == (COMMITS * nodes.len() + 1) as u64,
        "{mode:?}: {report}"
    );
    assert!(stats.direct > 0, "local rows were not accessed directly: {stats:?}");
    let header = mode.header_words();
    let words =
        |row: u32| row as usize * (header + PAYLOAD)..row as usize * (header + PAYLOAD) + header;
    for region in &regions {
        assert!(
            (0..ROWS).flat_map(words).all(|word| region.load(word) == 0),
            "{mode:?}: a lock leaked"
        );
    }
}

fn modes() -> impl Iterator<Item = Mode> {
    Mode::PUBLISHED.into_iter().chain(Mode::ADAPTIVE).chain([Mode::ONE_ROUND, Mode::LINE])
}

#[test]
fn shared_memory_is_strictly_serializable_in_every_mode() {
    for mode in modes() {
        let config = ShmConfig {
            nodes: 3,
            workers: 3,
            regions: 6,
            queue_pairs: 32,
            ring_words: 4,
            heap_words: 256,
        };
        let segment = ShmSegment::create(config).unwrap();
        let nodes = [0, 1, 2].map(|node| segment.node(FabricNode(node), Duration::ZERO).unwrap());
        run(mode, &nodes);
    }
}

#[test]
fn tcp_is_strictly_serializable_in_every_mode() {
    for mode in modes() {
        let bind = |node| {
            let listen = SocketAddr::from(([127, 0, 0, 1], 0));
            TcpFabric::bind(TcpConfig { node: FabricNode(node), listen, secret: vec![7; 16] })
                .unwrap()
        };
        let nodes = [0, 1, 2].map(bind);
        for node in &nodes {
            nodes.iter().for_each(|peer| node.add_peer(peer.node(), peer.address()));
        }
        run(mode, &nodes);
    }
}

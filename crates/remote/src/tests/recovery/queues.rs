//! The queue pairs that recoveries replace.

use super::{LIMITS, PAYLOAD};
use crate::recovery::rebuild;
use crate::{Buckets, LogLayout, Mailbox, Mode, Owner, RowWorker, Table};
use clearway_fabric::tcp::{TcpConfig, TcpFabric, TcpRegion, TcpWorker};
use clearway_fabric::{
    Fabric, FabricNode, FabricWorker, Region, Request, ScratchRange, Verb, WorkerAddr,
};

const RECOVERIES: usize = 5;
/// The port to which the worker connects at either node.
const PORT: u32 = 9;

fn node(number: u32) -> TcpFabric {
    let (node, listen) = (FabricNode(number), "127.0.0.1:0".parse().unwrap());
    TcpFabric::bind(TcpConfig { node, listen, secret: b"sixteen bytes or more".into() }).unwrap()
}

fn owner(node: &TcpFabric, region: &TcpRegion) -> Owner {
    Owner { address: WorkerAddr { node: node.node(), port: PORT }, region: region.key() }
}

fn mailbox<'a>(node: &TcpFabric, own: &'a TcpRegion) -> Mailbox<'a> {
    Mailbox { own, all: vec![owner(node, own)] }
}

/// Accepts all queue pairs, and waits until only one has not ended.
fn wait_until_one_is_left(mut acceptor: TcpWorker) {
    let recv = Request::new(0, Verb::Recv { local: ScratchRange::new(0, 1) });
    let (mut accepted, mut ended) = (0, Vec::new());
    loop {
        while let Some((queue, _)) = acceptor.accept() {
            acceptor.post(queue, &[recv]).unwrap();
            accepted += 1;
        }
        acceptor.poll(&mut ended);
        if accepted - ended.len() == 1 {
            return;
        }
        acceptor.wait();
    }
}

/// A worker in recovery frees the queue pairs to the owners, and those to the other mailboxes.
#[test]
fn recoveries_free_the_old_queue_pairs() {
    let (rows, user) = (node(0), node(1));
    user.add_peer(rows.node(), rows.address());
    let acceptors = [&rows, &user].map(|node| node.worker(PORT, 1).unwrap());
    let (transactions, of_each) = (LIMITS.transactions as u32, LIMITS.rows as u32);
    let log = LogLayout { workers: 1, transactions, rows: of_each };
    let (mode, buckets) = (Mode::LINE, Buckets::default());
    let mut table =
        Table { mode, payload_words: PAYLOAD, rows: 1, buckets, log, owners: Vec::new() };
    let mut region = rows.register(table.words()).unwrap();
    table.owners = vec![owner(&rows, &region)];
    let mailboxes: Vec<TcpRegion> =
        (0..=RECOVERIES).map(|_| user.register(LIMITS.mailbox_words()).unwrap()).collect();
    let fabric = user.worker(0, LIMITS.scratch_words(PAYLOAD)).unwrap();
    let worker = RowWorker::new(fabric, table.clone(), 0, LIMITS, None).unwrap();
    let mut worker = worker.with_mailbox(mailbox(&user, &mailboxes[0])).unwrap();
    for own in &mailboxes[1..] {
        region.fence().unwrap();
        while !worker.drain() {
            worker.fabric().wait();
        }
        let locks = worker.pause();
        let outcomes = rebuild(&table, &[Some(&region as &dyn Region)], &locks);
        table.owners = vec![owner(&rows, &region)];
        worker.replace_mailbox(mailbox(&user, own));
        worker.resume(table.clone(), &outcomes).unwrap();
    }
    acceptors.into_iter().for_each(wait_until_one_is_left);
}

//! Clients of a store on a simulated cluster, recorded for the checker.

use super::runner::{Found, Setup, SimServer, advance, message_worker, servers};
use super::store_client::{OPERATIONS, StoreClient, layout, read_owner};
use crate::{Mailbox, Owner, RowId, StoreWorker, TxnHandle};
use crate::{RowClient, RowWorker, StartTimestamp, StoreEvent, StoreStats};
use clearway_env::SeededEntropy;
use clearway_fabric::sim::{Network, SimRegion};
use clearway_fabric::{Fabric, Region, WorkerAddr};
use clearway_history::{CheckerOptions, History, Txn, TxnOutcome};
use std::collections::BTreeMap;

struct Client {
    session: u32,
    begun_ns: u64,
    start: StartTimestamp,
    of_txn: StoreClient,
}

pub struct Run<R> {
    setup: Setup,
    pub rng: SeededEntropy,
    pub network: Network,
    pub workers: Vec<StoreWorker<R>>,
    pub addresses: Vec<WorkerAddr>,
    servers: Vec<(WorkerAddr, SimServer)>,
    clients: Vec<BTreeMap<TxnHandle, Client>>,
    history: History,
    values: u64,
    pub committed: u64,
    pub found: Found,
    /// By worker: it is not polled. A survivor that has noticed a fence waits for recovery.
    pub stopped: Vec<bool>,
    /// The regions are fenced, so verbs may be rejected.
    pub fenced: bool,
}

/// Runs the clients until enough transactions have committed, and checks the history.
pub fn run(setup: Setup) -> (Found, StoreStats) {
    let layout = layout(setup.mode);
    let network = Network::new(setup.seed, setup.config());
    let nodes: Vec<_> = (0..setup.nodes).map(|_| network.add_node()).collect();
    let regions: Vec<SimRegion> =
        nodes.iter().map(|node| node.register(layout.region_words()).unwrap()).collect();
    let address = |node| WorkerAddr { node, port: 100 };
    let owners = nodes
        .iter()
        .zip(&regions)
        .map(|(n, r)| Owner { address: address(n.node()), region: r.key() });
    let table = layout.table(owners.collect());
    let limits = layout.limits(setup.clients, OPERATIONS);
    let ports = (0..nodes.len()).flat_map(|node| (0..setup.workers).map(move |port| (node, port)));
    let ports: Vec<(usize, u32)> = ports.collect();
    let addresses = ports
        .iter()
        .map(|(node, port)| WorkerAddr { node: nodes[*node].node(), port: *port })
        .collect();
    if setup.messages {
        let servers = servers(&nodes, &table, limits, ports.len());
        let worker = |(number, (node, port)): (u16, &(usize, u32))| {
            message_worker(&nodes[*node], *port, &table, number, limits)
        };
        let workers = (0..).zip(&ports).map(worker).collect();
        return run_workers(setup, network, &regions, workers, addresses, servers);
    }
    let mailboxes: Vec<(WorkerAddr, SimRegion)> = ports
        .iter()
        .map(|(node, _)| {
            let region = nodes[*node].register(limits.mailbox_words()).unwrap();
            (address(nodes[*node].node()), region)
        })
        .collect();
    let all = mailboxes.iter().map(|(address, region)| {
        let (address, region) = (*address, region.key());
        Owner { address, region }
    });
    let all: Vec<Owner> = all.collect();
    let worker = |(number, (node, port)): (u16, &(usize, u32))| {
        let fabric =
            nodes[*node].worker(*port, limits.scratch_words(table.longest_payload())).unwrap();
        let local = Some(&regions[*node] as &dyn Region);
        let worker = RowWorker::new(fabric, table.clone(), number, limits, local).unwrap();
        if !setup.mode.has_line() {
            return worker;
        }
        let own = &mailboxes[usize::from(number)].1;
        worker.with_mailbox(Mailbox { own, all: all.clone() }).unwrap()
    };
    let workers = (0..).zip(&ports).map(worker).collect();
    run_workers(setup, network, &regions, workers, addresses, Vec::new())
}

fn run_workers<R: RowClient>(
    setup: Setup,
    network: Network,
    regions: &[SimRegion],
    workers: Vec<R>,
    addresses: Vec<WorkerAddr>,
    servers: Vec<(WorkerAddr, SimServer)>,
) -> (Found, StoreStats) {
    let store = |rows| {
        let mut store = StoreWorker::new(rows, layout(setup.mode), 4);
        setup.trap.into_iter().for_each(|trap| store.plant(trap));
        store
    };
    let workers: Vec<StoreWorker<R>> = workers.into_iter().map(store).collect();
    let mut run = Run::new(setup, network, workers, addresses, servers);
    run.run();
    let mut sum = StoreStats::default();
    for worker in &mut run.workers {
        run.found.stats.add(worker.rows().stats());
        let stats = worker.stats();
        sum.cached += stats.cached;
        sum.stale += stats.stale;
        sum.peeked += stats.peeked;
        sum.buckets_locked += stats.buckets_locked;
    }
    run.check(regions);
    (run.found, sum)
}

impl<R: RowClient> Run<R> {
    pub fn new(
        setup: Setup,
        network: Network,
        workers: Vec<StoreWorker<R>>,
        addresses: Vec<WorkerAddr>,
        servers: Vec<(WorkerAddr, SimServer)>,
    ) -> Self {
        Self {
            setup,
            rng: SeededEntropy::new(setup.seed),
            network,
            addresses,
            servers,
            clients: workers.iter().map(|_| BTreeMap::new()).collect(),
            stopped: vec![false; workers.len()],
            workers,
            history: History::new(),
            values: 0,
            committed: 0,
            found: Found::default(),
            fenced: false,
        }
    }

    fn run(&mut self) {
        self.begin_all();
        self.advance(|_| false);
    }

    pub fn begin_all(&mut self) {
        for worker in 0..self.workers.len() {
            for client in 0..self.setup.clients {
                let txn = self.workers[worker].begin().unwrap();
                self.begin(worker, txn, (worker * self.setup.clients + client) as u32);
            }
            self.poll(worker);
        }
    }

    /// Advances time until there is nothing to do, or `until` holds.
    pub fn advance(&mut self, mut until: impl FnMut(&Self) -> bool) {
        let mut steps = 0;
        // Far more than a run needs, because transactions without progress are a finding, too.
        let limit = 5_000 * (self.setup.commits + 100);
        while self.found.broken.is_empty()
            && !until(self)
            && let Some((_, worker)) =
                advance(&mut self.network, &self.addresses, &mut self.servers)
        {
            if let Some(worker) = worker {
                self.poll(worker);
            }
            steps += 1;
            if steps > limit {
                self.found.broken.push("no progress".into());
            }
        }
    }

    pub fn poll(&mut self, worker: usize) {
        if self.stopped[worker] {
            return;
        }
        let mut events = Vec::new();
        if let Err(why) = self.workers[worker].poll(&mut events) {
            if self.fenced {
                self.stopped[worker] = true;
                return;
            }
            return self.found.broken.push(why.to_string());
        }
        for event in events {
            self.handle(worker, event);
        }
        let waits = self.workers[worker].rows().watches_memory();
        if self.workers[worker].is_ready() || waits {
            // Rows that are held already are always ready: let time pass.
            self.network.set_timer(worker as u64, self.network.now_ns() + 100);
        }
    }

    fn handle(&mut self, worker: usize, event: StoreEvent) {
        match event {
            StoreEvent::Done(txn, key, answer) => {
                let client = &mut self.clients[worker].get_mut(&txn).unwrap().of_txn;
                let store = &mut self.workers[worker];
                if let Err(why) = client.record(store, txn, key, answer, &mut self.values) {
                    return self.found.broken.push(why);
                }
                self.go_on(worker, txn);
            }
            StoreEvent::Committed(txn) => {
                let client = self.clients[worker].remove(&txn).unwrap();
                let session = client.session;
                self.record(client, TxnOutcome::Committed);
                let running: usize = self.clients.iter().map(BTreeMap::len).sum();
                if self.committed + (running as u64) < self.setup.commits {
                    let txn = self.workers[worker].begin().unwrap();
                    self.begin(worker, txn, session);
                }
            }
            StoreEvent::Aborted(txn, start, _) => {
                let client = self.clients[worker].remove(&txn).unwrap();
                assert_eq!(start, client.start);
                let session = client.session;
                self.record(client, TxnOutcome::Aborted);
                let next = self.workers[worker].restart(start).unwrap();
                self.begin(worker, next, session);
            }
        }
    }

    fn begin(&mut self, worker: usize, txn: TxnHandle, session: u32) {
        let of_txn = StoreClient::new(&self.rng);
        let start = self.workers[worker].rows().start(txn);
        let begun_ns = self.network.now_ns();
        self.clients[worker].insert(txn, Client { session, begun_ns, start, of_txn });
        self.go_on(worker, txn);
    }

    /// Requests the next operation, or the end.
    fn go_on(&mut self, worker: usize, txn: TxnHandle) {
        let client = self.clients[worker].get_mut(&txn).unwrap();
        let store = &mut self.workers[worker];
        let result = client.of_txn.go_on(store, txn, &self.rng, &mut self.values, |_| ());
        if let Err(why) = result {
            self.found.broken.push(why.to_string());
        }
    }

    fn record(&mut self, client: Client, outcome: TxnOutcome) {
        self.committed += u64::from(outcome == TxnOutcome::Committed);
        let (session, start) = (client.session, client.begun_ns);
        let ops = client.of_txn.ops.iter().map(|op| op.recorded(&mut self.history)).collect();
        let end = (outcome != TxnOutcome::Unknown).then(|| self.network.now_ns());
        let txn = Txn { session, start, end, outcome, ops };
        self.history.push(txn).unwrap();
    }

    /// Returns true if a commit of a worker is in flight.
    pub fn commits(&self, worker: usize) -> bool {
        self.clients[worker].values().any(|client| client.of_txn.commits)
    }

    /// Records the running transactions of a dead worker.
    pub fn record_death(&mut self, worker: usize) {
        for (_, client) in std::mem::take(&mut self.clients[worker]) {
            let outcome =
                if client.of_txn.commits { TxnOutcome::Unknown } else { TxnOutcome::Aborted };
            self.record(client, outcome);
        }
    }

    /// Checks regions and history after the end.
    pub fn check(&mut self, regions: &[SimRegion]) {
        if self.found.broken.is_empty() {
            self.check_regions(regions);
        }
        self.found.checked = self.history.check(&CheckerOptions::default());
    }

    /// Verifies locks, index and rows after all transactions have ended. Records what is left.
    fn check_regions(&mut self, regions: &[SimRegion]) {
        let left: usize = self.clients.iter().map(BTreeMap::len).sum();
        if left > 0 {
            self.found.broken.push(format!("{left} transactions did not finish"));
        }
        if self.servers.iter().any(|(_, server)| !server.is_free() || server.bad_requests() > 0) {
            self.found.broken.push("a server's lock leaked, or it got an invalid request".into());
        }
        let (mut seen, mut ops) = (Vec::new(), Vec::new());
        let table = self.workers[0].rows().table().clone();
        let header = self.setup.mode.header_words();
        for (owner, region) in (0..).zip(regions) {
            let load = |row: RowId, word: usize| match self.servers.get(owner as usize) {
                Some((_, server)) if word >= header => server.payload(row.index)[word - header],
                Some(_) => 0,
                None => region.load(table.word(row, word).word as usize),
            };
            match read_owner(layout(self.setup.mode), owner, load, &mut seen) {
                Ok(of_owner) => ops.extend(of_owner),
                Err(why) => return self.found.broken.push(why),
            }
        }
        // What is left, as a last transaction sees it.
        let ops = ops.iter().map(|op| op.recorded(&mut self.history)).collect();
        let session = (self.workers.len() * self.setup.clients) as u32;
        let start = self.network.now_ns() + 1;
        let (end, outcome) = (Some(start + 1), TxnOutcome::Committed);
        self.history.push(Txn { session, start, end, outcome, ops }).unwrap();
    }
}

//! Clients of a store on a simulated cluster: gets, puts, inserts and deletes of few keys, recorded
//! for the checker.
//!
//! A read or written value is an operation on the key's register. An answer that a key is absent,
//! and a change of the index, is an operation on the register of each locked bucket, whose value is
//! the bucket's last change.

use super::runner::{Found, Setup, SimServer, advance, message_worker, servers};
use crate::{Owner, RowId, StoreWorker, TxnHandle};
use crate::{
    RowClient, RowWorker, StartTimestamp, StoreAnswer, StoreEvent, StoreKey, StoreLayout,
    StoreStats,
};
use clearway_env::SeededEntropy;
use clearway_fabric::sim::{Network, SimRegion};
use clearway_fabric::{Fabric, Region, WorkerAddr};
use clearway_history::{CheckerOptions, History, Op, Txn, TxnOutcome};
use std::collections::BTreeMap;

/// Words of a value. All of them are equal, so that a torn value is visible.
const VALUE: usize = 2;
const KEYS: u64 = 6;
pub const OPERATIONS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Wish {
    Get,
    Put,
    Insert { look_first: bool },
    Delete,
}

struct Client {
    session: u32,
    begun_ns: u64,
    start: StartTimestamp,
    /// Remaining operations; the next one is last.
    plan: Vec<(StoreKey, Wish)>,
    /// The current operation has already read its key.
    looked: bool,
    ops: Vec<Op>,
    commits: bool,
}

pub struct Run<R> {
    setup: Setup,
    layout: StoreLayout,
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

pub fn layout(setup: Setup) -> StoreLayout {
    StoreLayout { mode: setup.mode, value_words: VALUE, buckets: 2, entries: 2 }
}

/// Runs the clients until enough transactions have committed, and checks the history.
pub fn run(setup: Setup) -> (Found, StoreStats) {
    let layout = layout(setup);
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
    let worker = |(number, (node, port)): (u16, &(usize, u32))| {
        let fabric =
            nodes[*node].worker(*port, limits.scratch_words(table.longest_payload())).unwrap();
        RowWorker::new(fabric, table.clone(), number, limits, Some(&regions[*node])).unwrap()
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
        let mut store = StoreWorker::new(rows, layout(setup), 4);
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
            layout: layout(setup),
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
        if self.workers[worker].is_ready() {
            // Rows that are held already are always ready: let time pass.
            self.network.set_timer(worker as u64, self.network.now_ns() + 100);
        }
    }

    fn handle(&mut self, worker: usize, event: StoreEvent) {
        match event {
            StoreEvent::Done(txn, key, answer) => self.done(worker, txn, key, answer),
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
        let count = 1 + self.rng.below(OPERATIONS as u64);
        let plan = (0..count).map(|_| {
            let key = StoreKey::new(1 + self.rng.below(KEYS)).unwrap();
            let wish = match self.rng.below(8) {
                0..3 => Wish::Get,
                3..5 => Wish::Put,
                5..7 => Wish::Insert { look_first: self.rng.below(2) == 0 },
                _ => Wish::Delete,
            };
            (key, wish)
        });
        let plan = plan.collect();
        let start = self.workers[worker].rows().start(txn);
        let begun_ns = self.network.now_ns();
        let (looked, ops, commits) = (false, Vec::new(), false);
        self.clients[worker]
            .insert(txn, Client { session, begun_ns, start, plan, looked, ops, commits });
        self.go_on(worker, txn);
    }

    /// Requests the next operation, or the end.
    fn go_on(&mut self, worker: usize, txn: TxnHandle) {
        let client = self.clients[worker].get_mut(&txn).unwrap();
        let store = &mut self.workers[worker];
        let Some(&(key, wish)) = client.plan.last() else {
            client.commits = self.rng.below(20) > 0;
            let end = if client.commits { store.commit(txn) } else { store.abort(txn) };
            return end.unwrap();
        };
        self.values += 1;
        let value = [self.values; VALUE];
        let result = match (wish, client.looked) {
            (Wish::Get, _) | (Wish::Insert { look_first: true }, false) => {
                store.get(txn, key, false)
            }
            (Wish::Put | Wish::Delete, false) => store.get(txn, key, true),
            (Wish::Put, true) => store.put(txn, key, &value),
            (Wish::Insert { .. }, _) => store.insert(txn, key, &value),
            (Wish::Delete, true) => store.delete(txn, key),
        };
        if let Err(why) = result {
            self.found.broken.push(why.to_string());
        }
    }

    fn done(&mut self, worker: usize, txn: TxnHandle, key: StoreKey, answer: StoreAnswer) {
        let mut client = self.clients[worker].remove(&txn).unwrap();
        let &(planned, wish) = client.plan.last().unwrap();
        assert_eq!(planned, key);
        let register = self.history.key(&key.to_string());
        let (looks, changes) = match wish {
            Wish::Get => (true, false),
            Wish::Put | Wish::Delete => (!client.looked, client.looked),
            Wish::Insert { look_first } => {
                (look_first && !client.looked, !look_first || client.looked)
            }
        };
        let mut value = [0; VALUE];
        if looks && answer == StoreAnswer::Present {
            assert!(self.workers[worker].value(txn, key, &mut value));
            if value[0] != value[1] || value[0] == 0 {
                self.found.broken.push(format!("torn value of {key}: {value:?}"));
            }
            client.ops.push(Op::Read { key: register, value: Some(value[0]) });
        } else if changes
            && matches!(wish, Wish::Insert { .. }) == (answer == StoreAnswer::Absent)
            && answer != StoreAnswer::NoRoom
        {
            match wish {
                Wish::Delete => {
                    // A value that nobody can read.
                    self.values += 1;
                    client.ops.push(Op::Write { key: register, value: self.values });
                }
                _ => {
                    assert!(self.workers[worker].value(txn, key, &mut value));
                    client.ops.push(Op::Write { key: register, value: value[0] });
                }
            }
        }
        let changed_index = changes && !matches!(wish, Wish::Put);
        if answer != StoreAnswer::Present || changed_index {
            self.record_buckets(worker, txn, key, &mut client);
        }
        // A key is changed or deleted only if it was found, and inserted only if it was not.
        client.looked = looks
            && matches!(
                (wish, answer == StoreAnswer::Present),
                (Wish::Put | Wish::Delete, true) | (Wish::Insert { .. }, false)
            );
        if !client.looked {
            client.plan.pop();
        }
        self.clients[worker].insert(txn, client);
        self.go_on(worker, txn);
    }

    /// Records what the transaction knows of the buckets that it has locked for a key.
    fn record_buckets(
        &mut self,
        worker: usize,
        txn: TxnHandle,
        key: StoreKey,
        client: &mut Client,
    ) {
        for probe in 0..self.layout.probes() {
            let bucket = self.layout.bucket(key, probe, self.setup.nodes as usize);
            let rows = self.workers[worker].rows();
            if !rows.holds(txn, self.layout.bucket_row(bucket)) {
                if probe == 0 {
                    self.found
                        .broken
                        .push(format!("{key} was reported absent, but its bucket is not locked"));
                }
                return;
            }
            let mut word = [0];
            rows.payload(txn, self.layout.bucket_row(bucket), &mut word);
            let change = word[0] >> 1;
            let register = self.history.key(&format!("bucket {}.{}", bucket.owner, bucket.number));
            let write = Op::Write { key: register, value: change };
            if change != rows.attempt(txn) {
                client.ops.push(Op::Read { key: register, value: (change > 0).then_some(change) });
            } else if !client.ops.contains(&write) {
                client.ops.push(write);
            }
        }
    }

    fn record(&mut self, client: Client, outcome: TxnOutcome) {
        self.committed += u64::from(outcome == TxnOutcome::Committed);
        let (session, start, ops) = (client.session, client.begun_ns, client.ops);
        let end = (outcome != TxnOutcome::Unknown).then(|| self.network.now_ns());
        let txn = Txn { session, start, end, outcome, ops };
        self.history.push(txn).unwrap();
    }

    /// Returns true if a commit of a worker is in flight.
    pub fn commits(&self, worker: usize) -> bool {
        self.clients[worker].values().any(|client| client.commits)
    }

    /// Records the running transactions of a dead worker.
    pub fn record_death(&mut self, worker: usize) {
        for (_, client) in std::mem::take(&mut self.clients[worker]) {
            let outcome = if client.commits { TxnOutcome::Unknown } else { TxnOutcome::Aborted };
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

    /// Verifies after all transactions have ended that all locks are free and index and rows agree.
    fn check_regions(&mut self, regions: &[SimRegion]) {
        let left: usize = self.clients.iter().map(BTreeMap::len).sum();
        if left > 0 {
            self.found.broken.push(format!("{left} transactions did not finish"));
        }
        if self.servers.iter().any(|(_, server)| !server.is_free() || server.bad_requests() > 0) {
            self.found.broken.push("a server's lock leaked, or it got an invalid request".into());
        }
        let mut seen = Vec::new();
        let table = self.workers[0].rows().table().clone();
        let header = self.setup.mode.header_words();
        for (owner, region) in (0..).zip(regions) {
            let load = |row: RowId, word: usize| match self.servers.get(owner as usize) {
                Some((_, server)) if word >= header => server.payload(row.index)[word - header],
                Some(_) => 0,
                None => region.load(table.word(row, word).word as usize),
            };
            for number in 0..self.layout.buckets {
                let bucket = super::Bucket { owner, number };
                let index = self.layout.bucket_row(bucket);
                let rows =
                    (0..self.layout.entries as usize).map(|entry| self.layout.row(bucket, entry));
                for (entry, row) in rows.enumerate() {
                    let (named, key) = (load(index, header + 1 + entry), load(row, header));
                    if named != key || (key != 0 && seen.contains(&key)) {
                        self.found
                            .broken
                            .push(format!("the index has {named} for {key} in {row:?}"));
                    }
                    seen.push(key);
                    let held = |row| (0..header).any(|word| load(row, word) != 0);
                    if held(row) || held(index) {
                        self.found.broken.push(format!("a lock of {row:?} or its bucket leaked"));
                    }
                }
            }
        }
    }
}

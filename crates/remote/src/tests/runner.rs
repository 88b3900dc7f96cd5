//! Clients of a simulated cluster: transactions on few rows, recorded for the checker.

use super::PAYLOAD;
use crate::traps::Trap;
use crate::{
    AbortCause, Buckets, FabricLink, LogLayout, Mailbox, MessageServer, MessageWorker, Mode, Owner,
    RowClient, RowId, WorkerEvent,
};
use crate::{
    RemoteStats, RowWorker, StartTimestamp, Table, TxnHandle, WorkerLimits, message_words,
};
use clearway_env::SeededEntropy;
use clearway_fabric::sim::{Network, SimConfig, SimNode, SimRegion, SimStep, SimWorker};
use clearway_fabric::{Fabric, Region, WorkerAddr};
use clearway_history::{CheckerOptions, History, HistoryReport, Key, Op, Txn, TxnOutcome};
use std::collections::BTreeMap;

/// The default of [`Setup::rows_per_txn`].
const ROWS_PER_TXN: usize = 3;

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub mode: Mode,
    pub nodes: u32,
    pub workers: u32,
    /// Concurrent transactions of a worker.
    pub clients: usize,
    /// Rows of each node.
    pub rows: u32,
    /// Transactions to commit.
    pub commits: u64,
    pub trap: Option<Trap>,
    /// Maximum number of rows of one transaction.
    pub rows_per_txn: usize,
    /// Zipf skew of the row choice, as in YCSB. `None` chooses the smaller of two uniform draws,
    /// for each owner.
    pub theta: Option<f64>,
    /// Accesses rows by SEND and RECV instead of one-sided verbs.
    pub messages: bool,
}

impl Setup {
    pub fn new(seed: u64, mode: Mode, commits: u64) -> Self {
        Self {
            seed,
            mode,
            nodes: 2,
            workers: 2,
            clients: 2,
            rows: 3,
            commits,
            trap: None,
            rows_per_txn: ROWS_PER_TXN,
            theta: None,
            messages: false,
        }
    }

    /// Returns the network of this seed. Its delays, reordering, torn WRITEs and gaps in atomics
    /// are larger than on real networks.
    pub fn config(&self) -> SimConfig {
        let draw = SeededEntropy::new(self.seed ^ 0x5eed);
        let jitter_ns = [200, 2_000, 20_000][draw.below(3) as usize];
        let spread_ns = [150, 1_500, 6_000][draw.below(3) as usize];
        let atomic_ns = [100, 1_000, 3_000][draw.below(3) as usize];
        let reads_follow_atomics = draw.below(2) == 0;
        let queue_depth = [128, 6][draw.below(2) as usize];
        SimConfig {
            jitter_ns,
            spread_ns,
            atomic_ns,
            reads_follow_atomics,
            queue_depth,
            ..SimConfig::default()
        }
    }
}

/// The result of a run.
#[derive(Default)]
pub struct Found {
    pub stats: RemoteStats,
    pub checked: HistoryReport,
    /// Violations of properties other than serializability.
    pub broken: Vec<String>,
}

impl Found {
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.checked.is_clean()
    }
}

/// A client's transaction.
struct Client {
    txn: TxnHandle,
    session: u32,
    begun_ns: u64,
    start: StartTimestamp,
    /// Rows to get, each with whether it is for update; the next one is last.
    plan: Vec<(RowId, bool)>,
    ops: Vec<Op>,
}

pub type SimLink = FabricLink<SimWorker>;
pub type SimServer = MessageServer<SimLink>;

/// Creates a message server for each owner, at the address in the table.
pub fn servers(
    nodes: &[SimNode],
    table: &Table,
    limits: WorkerLimits,
    clients: usize,
) -> Vec<(WorkerAddr, SimServer)> {
    let words = message_words(table, limits.rows);
    let scratch = SimLink::scratch_words(clients, limits.transactions, words);
    let server = |(node, owner): (&SimNode, &Owner)| {
        let link = SimLink::new(
            node.worker(owner.address.port, scratch).unwrap(),
            clients,
            limits.transactions,
            words,
        );
        (owner.address, MessageServer::new(link, table.clone()))
    };
    nodes.iter().zip(&table.owners).map(server).collect()
}

/// Creates a client that connects to all message servers.
pub fn message_worker(
    node: &SimNode,
    port: u32,
    table: &Table,
    number: u16,
    limits: WorkerLimits,
) -> MessageWorker<SimLink> {
    let words = message_words(table, limits.rows);
    let scratch = SimLink::scratch_words(table.owners.len(), limits.transactions, words);
    let fabric = node.worker(port, scratch).unwrap();
    let mut link = SimLink::new(fabric, table.owners.len(), limits.transactions, words);
    table.owners.iter().for_each(|owner| link.connect(owner.address).unwrap());
    MessageWorker::new(link, table.clone(), number, limits)
}

struct Run<'a> {
    setup: Setup,
    rng: SeededEntropy,
    network: Network,
    workers: Vec<Box<dyn RowClient + 'a>>,
    addresses: Vec<WorkerAddr>,
    /// Prefix sums of the rows' weights, if the choice is skewed.
    zipf: Vec<f64>,
    /// Whether a worker's timer is set.
    timers: Vec<bool>,
    servers: Vec<(WorkerAddr, SimServer)>,
    clients: Vec<BTreeMap<TxnHandle, Client>>,
    history: History,
    keys: BTreeMap<RowId, Key>,
    values: u64,
    committed: u64,
    found: Found,
}

/// Runs the clients until enough transactions have committed, and checks the history.
pub fn run(setup: Setup) -> Found {
    let network = Network::new(setup.seed, setup.config());
    let nodes: Vec<_> = (0..setup.nodes).map(|_| network.add_node()).collect();
    let words = Table::region_words(setup.mode, PAYLOAD, setup.rows);
    let regions: Vec<SimRegion> = nodes.iter().map(|node| node.register(words).unwrap()).collect();
    let address = |node| WorkerAddr { node, port: 100 };
    let owners = nodes
        .iter()
        .zip(&regions)
        .map(|(n, r)| Owner { address: address(n.node()), region: r.key() });
    let (mode, rows, buckets, owners) =
        (setup.mode, setup.rows, Buckets::default(), owners.collect());
    let table =
        Table { mode, payload_words: PAYLOAD, rows, buckets, log: LogLayout::default(), owners };
    let limits = WorkerLimits { transactions: setup.clients, rows: setup.rows_per_txn };
    let mailbox = |node: &SimNode| (node.node(), node.register(limits.mailbox_words()).unwrap());
    let mailboxes: Vec<_> =
        nodes.iter().flat_map(|node| (0..setup.workers).map(move |_| mailbox(node))).collect();
    let mut workers: Vec<Box<dyn RowClient + '_>> = Vec::new();
    let mut addresses = Vec::new();
    let clients = (setup.nodes * setup.workers) as usize;
    let servers =
        if setup.messages { servers(&nodes, &table, limits, clients) } else { Vec::new() };
    for (node, region) in nodes.iter().zip(&regions) {
        for port in 0..setup.workers {
            let number = workers.len() as u16;
            addresses.push(WorkerAddr { node: node.node(), port });
            if setup.messages {
                workers.push(Box::new(message_worker(node, port, &table, number, limits)));
                continue;
            }
            let fabric = node.worker(port, limits.scratch_words(PAYLOAD)).unwrap();
            let mut worker =
                RowWorker::new(fabric, table.clone(), number, limits, Some(region)).unwrap();
            if setup.mode.has_line() {
                let all = mailboxes
                    .iter()
                    .map(|(node, region)| Owner { address: address(*node), region: region.key() });
                let own = &mailboxes[usize::from(number)].1;
                worker = worker.with_mailbox(Mailbox { own, all: all.collect() }).unwrap();
            }
            if let Some(trap) = setup.trap {
                worker.plant(trap, Some(region));
            }
            workers.push(Box::new(worker));
        }
    }
    let mut history = History::new();
    let rows =
        (0..setup.nodes).flat_map(|owner| (0..setup.rows).map(move |index| RowId { owner, index }));
    let keys =
        rows.map(|row| (row, history.key(&format!("{}.{}", row.owner, row.index)))).collect();
    let clients = workers.iter().map(|_| BTreeMap::new()).collect();
    let timers = vec![false; workers.len()];
    let weights = |theta: f64| {
        let weight = move |rank: u32| f64::from(rank).powf(-theta);
        let mut sum = 0.0;
        let sums = (1..=setup.nodes * setup.rows).map(|rank| {
            sum += weight(rank);
            sum
        });
        sums.collect()
    };
    let zipf: Vec<f64> = setup.theta.map_or(Vec::new(), weights);
    let rng = SeededEntropy::new(setup.seed);
    let (values, committed, found) = (0, 0, Found::default());
    let mut run = Run {
        setup,
        rng,
        network,
        workers,
        addresses,
        zipf,
        timers,
        servers,
        clients,
        history,
        keys,
        values,
        committed,
        found,
    };
    run.run();
    for worker in &run.workers {
        run.found.stats.add(worker.stats());
    }
    if run.found.broken.is_empty() {
        run.check_regions(&regions);
    }
    run.found.checked = run.history.check(&CheckerOptions::default());
    run.found
}

/// Advances the network. Returns the step and the worker that it concerns. Polls the server that it
/// concerns.
pub fn advance(
    network: &mut Network,
    addresses: &[WorkerAddr],
    servers: &mut [(WorkerAddr, SimServer)],
) -> Option<(SimStep, Option<usize>)> {
    let step = network.advance()?;
    let worker = match step {
        SimStep::Worker(address) => addresses.iter().position(|worker| *worker == address),
        SimStep::Timer(worker) => Some(worker as usize),
    };
    if let SimStep::Worker(address) = step {
        for (_, server) in servers.iter_mut().filter(|(of, _)| *of == address) {
            server.poll().unwrap();
        }
    }
    Some((step, worker))
}

impl Run<'_> {
    fn run(&mut self) {
        for worker in 0..self.workers.len() {
            for client in 0..self.setup.clients {
                let txn = self.workers[worker].begin().unwrap();
                self.begin(worker, txn, (worker * self.setup.clients + client) as u32);
            }
            self.poll(worker);
        }
        let mut steps = 0;
        // Far more than a run needs, because transactions without progress are a finding, too.
        let limit = 2_000 * (self.setup.commits + 100);
        while self.found.broken.is_empty()
            && let Some((step, worker)) =
                advance(&mut self.network, &self.addresses, &mut self.servers)
        {
            if let SimStep::Timer(worker) = step {
                self.timers[worker as usize] = false;
            }
            if let Some(worker) = worker {
                self.poll(worker);
            }
            steps += 1;
            if steps > limit {
                self.found.broken.push("no progress".into());
            }
        }
    }

    fn poll(&mut self, worker: usize) {
        let mut events = Vec::new();
        if let Err(why) = self.workers[worker].poll(&mut events) {
            return self.found.broken.push(why.to_string());
        }
        for event in events {
            self.handle(worker, event);
        }
        let waits = self.workers[worker].is_ready() || self.workers[worker].watches_memory();
        if waits && !std::mem::replace(&mut self.timers[worker], true) {
            // A waiting access to a local row may always be ready: let time pass.
            self.network.set_timer(worker as u64, self.network.now_ns() + 100);
        }
    }

    fn handle(&mut self, worker: usize, event: WorkerEvent) {
        match event {
            WorkerEvent::Locked(txn, row) => self.locked(worker, txn, row),
            WorkerEvent::Peeked(..) | WorkerEvent::Released(..) => {
                unreachable!("no client requests it")
            }
            WorkerEvent::Committed(txn) => {
                let client = self.clients[worker].remove(&txn).unwrap();
                let session = client.session;
                self.record(client, TxnOutcome::Committed);
                let running: usize = self.clients.iter().map(BTreeMap::len).sum();
                if self.committed + (running as u64) < self.setup.commits {
                    let txn = self.workers[worker].begin().unwrap();
                    self.begin(worker, txn, session);
                }
            }
            WorkerEvent::Aborted(txn, start, cause) => {
                let client = self.clients[worker].remove(&txn).unwrap();
                if start != client.start {
                    self.found.broken.push("an abort changed the start timestamp".into());
                }
                self.judge_abort(start, cause);
                let session = client.session;
                self.record(client, TxnOutcome::Aborted);
                // A client that requested the abort starts another transaction.
                let next = if cause == AbortCause::Requested {
                    self.workers[worker].begin()
                } else {
                    self.workers[worker].restart(start)
                };
                self.begin(worker, next.unwrap(), session);
            }
        }
    }

    fn judge_abort(&mut self, start: StartTimestamp, cause: AbortCause) {
        let allowed = match cause {
            AbortCause::Conflict => self.setup.mode.protocol == crate::Protocol::NoWait,
            AbortCause::Older(holder) => holder < start,
            AbortCause::TooManyReaders => self.setup.mode.has_array(),
            AbortCause::Requested => true,
        };
        if !allowed {
            self.found.broken.push(format!("{start:?} was aborted by {cause:?}"));
        }
    }

    fn begin(&mut self, worker: usize, txn: TxnHandle, session: u32) {
        let gets = 1 + self.rng.below(self.setup.rows_per_txn as u64);
        let plan = (0..gets).map(|_| (self.draw_row(), self.rng.below(2) == 0)).collect();
        let start = self.workers[worker].start(txn);
        let client =
            Client { txn, session, begun_ns: self.network.now_ns(), start, plan, ops: Vec::new() };
        self.go_on(worker, client);
    }

    fn draw_row(&self) -> RowId {
        let rows = u64::from(self.setup.rows);
        if let Some(total) = self.zipf.last() {
            let drawn = self.rng.below(1 << 53) as f64 / (1_u64 << 53) as f64 * total;
            let rank = self.zipf.partition_point(|sum| *sum <= drawn) as u64;
            let (owner, index) =
                (rank % u64::from(self.setup.nodes), rank / u64::from(self.setup.nodes));
            return RowId { owner: owner as u32, index: index.min(rows - 1) as u32 };
        }
        let owner = self.rng.below(u64::from(self.setup.nodes)) as u32;
        // The smaller of two draws: the first row is the hottest.
        let index = self.rng.below(rows).min(self.rng.below(rows));
        RowId { owner, index: index as u32 }
    }

    /// Requests the next row, or the end.
    fn go_on(&mut self, worker: usize, mut client: Client) {
        let next = client.plan.pop();
        let txn = client.txn;
        self.clients[worker].insert(txn, client);
        let result = match next {
            Some((row, update)) => self.workers[worker].get(txn, row, update),
            None if self.rng.below(20) == 0 => self.workers[worker].abort(txn),
            None => self.workers[worker].commit(txn),
        };
        if let Err(why) = result {
            self.found.broken.push(why.to_string());
        }
    }

    fn locked(&mut self, worker: usize, txn: TxnHandle, row: RowId) {
        let mut client = self.clients[worker].remove(&txn).unwrap();
        let mut payload = [0; PAYLOAD];
        self.workers[worker].payload(txn, row, &mut payload);
        if payload.iter().any(|word| *word != payload[0]) {
            self.found.broken.push(format!("torn read: {payload:?}"));
        }
        let key = self.keys[&row];
        client.ops.push(Op::Read { key, value: (payload[0] > 0).then_some(payload[0]) });
        if self.workers[worker].is_for_update(txn, row) {
            self.values += 1;
            self.workers[worker].set(txn, row, &[self.values; PAYLOAD]);
            client.ops.push(Op::Write { key, value: self.values });
        }
        self.go_on(worker, client);
    }

    fn record(&mut self, client: Client, outcome: TxnOutcome) {
        self.committed += u64::from(outcome == TxnOutcome::Committed);
        let (session, start, ops) = (client.session, client.begun_ns, client.ops);
        let txn = Txn { session, start, end: Some(self.network.now_ns()), outcome, ops };
        self.history.push(txn).unwrap();
    }

    /// Verifies that all locks are free after all transactions have ended. Records a last
    /// transaction that reads all rows.
    fn check_regions(&mut self, regions: &[SimRegion]) {
        let header = self.setup.mode.header_words();
        let mut ops = Vec::new();
        for (owner, region) in regions.iter().enumerate() {
            for index in 0..self.setup.rows as usize {
                let first = index * (header + PAYLOAD);
                let mut words: Vec<_> =
                    (0..header + PAYLOAD).map(|word| region.load(first + word)).collect();
                if let Some((_, server)) = self.servers.get(owner) {
                    words[header..].copy_from_slice(server.payload(index as u32));
                }
                if words[..header].iter().any(|word| *word != 0) {
                    self.found
                        .broken
                        .push(format!("row {owner}.{index}: the lock leaked: {words:?}"));
                }
                if words[header..].iter().any(|word| *word != words[header]) {
                    self.found
                        .broken
                        .push(format!("row {owner}.{index}: the payload is torn: {words:?}"));
                }
                let key = self.keys[&RowId { owner: owner as u32, index: index as u32 }];
                ops.push(Op::Read { key, value: (words[header] > 0).then_some(words[header]) });
            }
        }
        // After the ends of all others.
        let start = self.network.now_ns() + 1;
        let (session, end, outcome) = (u32::MAX, Some(start), TxnOutcome::Committed);
        self.history.push(Txn { session, start, end, outcome, ops }).unwrap();
        if self.servers.iter().any(|(_, server)| !server.is_free() || server.bad_requests() > 0) {
            self.found.broken.push("a server's lock leaked, or it got an invalid request".into());
        }
        let left: usize = self.clients.iter().map(BTreeMap::len).sum();
        if left > 0 {
            self.found.broken.push(format!("{left} transactions did not finish"));
        }
    }
}

//! The transactions of a run.

use super::model::{Action, Model, ModelLink};
use super::windows::Windows;
use super::{MAX_VIRTUAL_NS, MAX_WARM_UP_NS, PAYLOAD_WORDS, Plans, RunError, Setup, YcsbOutcome};
use crate::{MessageServer, RowClient, RowId, StartTimestamp, Table, TxnHandle, WorkerEvent};
use clearway_env::SeededEntropy;
use clearway_fabric::sim::{Network, SimRegion, SimStep};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

pub(super) type Server = MessageServer<ModelLink>;

/// Time between two polls of memory for which a worker waits.
const LOOK_NS: u64 = 100;

/// A transaction that is retried until it commits.
#[derive(Default)]
struct Client {
    /// The start timestamp of an earlier attempt.
    start: Option<StartTimestamp>,
    plan: Vec<(RowId, bool)>,
    /// Finished operations.
    done: usize,
    begun_ns: u64,
}

pub(super) struct Cluster<'a> {
    setup: &'a Setup,
    network: Network,
    model: Rc<RefCell<Model>>,
    workers: Vec<Box<dyn RowClient + 'a>>,
    servers: Vec<Server>,
    /// By worker, then by client number.
    clients: Vec<Vec<Client>>,
    /// By worker, then by transaction slot: the client, if a transaction runs.
    running: Vec<Vec<Option<(TxnHandle, usize)>>>,
    /// By worker: transactions that have started, or are about to.
    begun: Vec<usize>,
    /// Transactions that have started, or are about to, and have not committed.
    in_flight: u64,
    /// By worker: clients that may restart.
    again: Vec<VecDeque<usize>>,
    /// By queue: clients whose next transaction is a new one.
    fresh: Vec<Vec<(usize, usize)>>,
    /// By queue: whether a check for an idle processor is scheduled.
    idling: Vec<bool>,
    looking: Vec<bool>,
    rng: SeededEntropy,
    plans: Plans,
    /// Changes of each row by committed transactions.
    changes: HashMap<RowId, u64>,
    commits: u64,
    /// Commits of the warm-up, and the time when it ended.
    warmed_up: Option<(u64, u64)>,
    /// The time of the last measured commit.
    measured_ns: u64,
    latency_ns: u64,
    remote_rows: u64,
    windows: Windows,
}

impl<'a> Cluster<'a> {
    pub fn new(
        setup: &'a Setup,
        network: Network,
        model: Rc<RefCell<Model>>,
        workers: Vec<Box<dyn RowClient + 'a>>,
        servers: Vec<Server>,
    ) -> Self {
        let clients = || (0..setup.in_flight).map(|_| Client::default()).collect();
        let queues = model.borrow().queues();
        Self {
            setup,
            network,
            model,
            clients: workers.iter().map(|_| clients()).collect(),
            running: vec![vec![None; setup.transactions]; workers.len()],
            begun: vec![0; workers.len()],
            in_flight: 0,
            again: vec![VecDeque::new(); workers.len()],
            fresh: vec![Vec::new(); queues],
            idling: vec![false; queues],
            looking: vec![false; workers.len()],
            workers,
            servers,
            rng: SeededEntropy::new(setup.seed),
            plans: Plans::new(
                setup.nodes as u32,
                setup.rows,
                setup.operations,
                setup.theta,
                setup.writes,
            ),
            changes: HashMap::new(),
            commits: 0,
            warmed_up: None,
            measured_ns: 0,
            latency_ns: 0,
            remote_rows: 0,
            windows: Windows::default(),
        }
    }

    pub fn run(mut self, table: &Table, regions: &[SimRegion]) -> Result<YcsbOutcome, RunError> {
        for client in (0..self.setup.in_flight).rev() {
            (0..self.workers.len())
                .rev()
                .for_each(|worker| self.fresh_of(worker).push((worker, client)));
        }
        (0..self.fresh.len()).for_each(|queue| self.look_for_idle(queue));
        while let Some(step) = self.network.advance() {
            self.windows.advance(self.network.now_ns(), self.in_flight);
            match step {
                SimStep::Worker(address) => {
                    let worker =
                        address.node.0 as usize * self.setup.workers + address.port as usize;
                    let done_ns = self.model.borrow_mut().work(worker, self.setup.costs.verb_ns);
                    self.model.borrow_mut().at(done_ns, Action::Poll(worker));
                }
                SimStep::Timer(token) => self.act(token)?,
            }
        }
        self.verify(table, regions)?;
        let mut outcome = YcsbOutcome { remote_rows: self.remote_rows, ..YcsbOutcome::default() };
        self.workers.iter().for_each(|worker| outcome.stats.add(worker.stats()));
        let (before, from_ns) = self.warmed_up.unwrap_or((self.commits, 0));
        let measured = (self.commits - before).min(self.setup.commits);
        outcome.rate =
            measured as f64 * 1e9 / self.measured_ns.saturating_sub(from_ns).max(1) as f64;
        if self.setup.until_stationary {
            outcome.rate = self.windows.rate();
            outcome.windows = self.windows.rates();
            outcome.is_stationary = self.windows.is_stationary;
        }
        outcome.latency_ns = self.latency_ns as f64 / self.commits.max(1) as f64;
        Ok(outcome)
    }

    fn act(&mut self, token: u64) -> Result<(), RunError> {
        let action = self.model.borrow_mut().take(token);
        match action {
            Action::Idle(queue) => {
                self.idling[queue] = false;
                self.idle(queue);
            }
            Action::Again(worker, client) => {
                self.again[worker].push_back(client);
                self.begin_again(worker);
            }
            Action::Begin(worker, client) => {
                let of_worker = &mut self.workers[worker];
                let txn = match self.clients[worker][client].start {
                    Some(start) => of_worker.restart(start),
                    None => of_worker.begin(),
                };
                let txn = txn.expect("a worker has as many transactions as may begin");
                self.running[worker][txn.slot] = Some((txn, client));
                self.go_on(worker, txn)?;
            }
            Action::GoOn(worker, txn) => self.go_on(worker, txn)?,
            Action::Poll(worker) => self.poll(worker)?,
            Action::Look(worker) => {
                self.looking[worker] = false;
                self.poll(worker)?;
            }
            Action::Arrive(message) => self.model.borrow_mut().arrive(message),
            Action::Deliver(message) => {
                let to = message.to;
                self.model.borrow_mut().deliver(message);
                match to.checked_sub(self.workers.len()) {
                    Some(server) => self.servers[server].poll()?,
                    None => self.poll(to)?,
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        if self.setup.until_stationary {
            return self.windows.is_over();
        }
        let enough =
            self.warmed_up.is_some_and(|(before, _)| self.commits >= before + self.setup.commits);
        enough || self.network.now_ns() >= MAX_VIRTUAL_NS
    }

    fn fresh_of(&mut self, worker: usize) -> &mut Vec<(usize, usize)> {
        let queue = self.model.borrow().queue(worker);
        &mut self.fresh[queue]
    }

    /// Schedules a check for the time when a processor of the queue becomes idle.
    fn look_for_idle(&mut self, queue: usize) {
        if !self.fresh[queue].is_empty()
            && !self.is_over()
            && !std::mem::replace(&mut self.idling[queue], true)
        {
            let mut model = self.model.borrow_mut();
            let at_ns = model.idle_ns(queue);
            model.at(at_ns, Action::Idle(queue));
        }
    }

    /// Starts a new transaction on an idle processor.
    fn idle(&mut self, queue: usize) {
        let is_idle = self.model.borrow().idle_ns(queue) <= self.network.now_ns();
        if is_idle && !self.is_over() {
            let may_begin =
                |(worker, _): &(usize, usize)| self.begun[*worker] < self.setup.transactions;
            let Some(place) = self.fresh[queue].iter().rposition(may_begin) else { return };
            let (worker, client) = self.fresh[queue].remove(place);
            let plan = self.plans.draw(&self.rng);
            self.in_flight += 1;
            self.clients[worker][client] =
                Client { plan, begun_ns: self.network.now_ns(), ..Client::default() };
            self.begin(worker, client);
        }
        self.look_for_idle(queue);
    }

    /// Restarts aborted transactions whose back-off has passed, before new ones start.
    fn begin_again(&mut self, worker: usize) {
        while self.begun[worker] < self.setup.transactions
            && let Some(client) = self.again[worker].pop_front()
        {
            self.begin(worker, client);
        }
    }

    fn begin(&mut self, worker: usize, client: usize) {
        self.begun[worker] += 1;
        // Random, so that transactions do not abort one another in lockstep forever.
        let begin_ns = self.setup.costs.begin_ns;
        let begin_ns = begin_ns / 2 + self.rng.below(begin_ns + 1);
        let mut model = self.model.borrow_mut();
        let begun_ns = model.work(worker, begin_ns);
        model.at(begun_ns, Action::Begin(worker, client));
    }

    /// Records that a transaction has ended, so that another of the worker can start. Returns its
    /// client.
    fn ended(&mut self, worker: usize, txn: TxnHandle) -> usize {
        self.begun[worker] -= 1;
        self.begin_again(worker);
        let client = self.client(worker, txn);
        self.running[worker][txn.slot] = None;
        client
    }

    /// Returns the client of a running transaction.
    fn client(&self, worker: usize, txn: TxnHandle) -> usize {
        let running = self.running[worker][txn.slot].filter(|(of, _)| *of == txn);
        running.expect("the transaction is running").1
    }

    /// Starts the next operation, or the commit.
    fn go_on(&mut self, worker: usize, txn: TxnHandle) -> Result<(), RunError> {
        let client = &self.clients[worker][self.client(worker, txn)];
        let of_worker = &mut self.workers[worker];
        let next = client.plan.get(client.done);
        self.remote_rows += u64::from(
            next.is_some_and(|(row, _)| row.owner as usize != worker / self.setup.workers),
        );
        match next {
            None => of_worker.commit(txn)?,
            Some((row, _)) if self.setup.reads_index() => {
                of_worker.peek(txn, RowId { index: row.index + self.setup.rows, ..*row })?;
            }
            Some((row, update)) => of_worker.get(txn, *row, *update)?,
        }
        self.poll(worker)
    }

    fn poll(&mut self, worker: usize) -> Result<(), RunError> {
        let mut events = Vec::new();
        self.workers[worker].poll(&mut events)?;
        for event in events {
            self.handle(worker, event)?;
        }
        let waits = self.workers[worker].is_ready() || self.workers[worker].watches_memory();
        if waits && !std::mem::replace(&mut self.looking[worker], true) {
            let at_ns = self.network.now_ns() + LOOK_NS;
            self.model.borrow_mut().at(at_ns, Action::Look(worker));
        }
        Ok(())
    }

    fn handle(&mut self, worker: usize, event: WorkerEvent) -> Result<(), RunError> {
        match event {
            WorkerEvent::Peeked(txn, _) => {
                let client = &self.clients[worker][self.client(worker, txn)];
                let (row, update) = client.plan[client.done];
                self.workers[worker].get(txn, row, update)?;
            }
            WorkerEvent::Locked(txn, row) => self.locked(worker, txn, row),
            WorkerEvent::Released(..) => unreachable!("no client requests it"),
            WorkerEvent::Committed(txn) => {
                let client = self.ended(worker, txn);
                self.committed(worker, client);
                self.fresh_of(worker).push((worker, client));
                let queue = self.model.borrow().queue(worker);
                self.look_for_idle(queue);
            }
            WorkerEvent::Aborted(txn, start, _) => {
                let client = self.ended(worker, txn);
                let of_client = &mut self.clients[worker][client];
                (of_client.done, of_client.start) = (0, Some(start));
                if !self.is_over() {
                    let mut model = self.model.borrow_mut();
                    let at_ns = self.network.now_ns() + self.setup.costs.back_off_ns;
                    model.at(at_ns, Action::Again(worker, client));
                }
                let queue = self.model.borrow().queue(worker);
                self.look_for_idle(queue);
            }
        }
        Ok(())
    }

    fn locked(&mut self, worker: usize, txn: TxnHandle, row: RowId) {
        let client = self.client(worker, txn);
        let client = &mut self.clients[worker][client];
        let (_, update) = client.plan[client.done];
        client.done += 1;
        if update {
            let mut payload = [0; PAYLOAD_WORDS];
            self.workers[worker].payload(txn, row, &mut payload);
            payload.iter_mut().for_each(|word| *word += 1);
            self.workers[worker].set(txn, row, &payload);
        }
        let mut model = self.model.borrow_mut();
        let done_ns = model.work(worker, self.setup.costs.row_ns);
        model.at(done_ns, Action::GoOn(worker, txn));
    }

    fn committed(&mut self, worker: usize, client: usize) {
        let now_ns = self.network.now_ns();
        let client = &self.clients[worker][client];
        for (row, _) in client.plan.iter().filter(|(_, update)| *update) {
            *self.changes.entry(*row).or_default() += 1;
        }
        self.latency_ns += now_ns - client.begun_ns;
        if !self.is_over() {
            self.measured_ns = now_ns;
        }
        self.commits += 1;
        self.in_flight -= 1;
        self.windows.count_commit();
        let has_warmed_up = self.commits >= self.setup.warm_up || now_ns >= MAX_WARM_UP_NS;
        if has_warmed_up && self.warmed_up.is_none() {
            self.warmed_up = Some((self.commits, now_ns));
        }
    }

    /// Verifies that each changed row has all its changes and is unlocked.
    fn verify(&self, table: &Table, regions: &[SimRegion]) -> Result<(), RunError> {
        let running = self.running.iter().flatten().flatten().count();
        if running > 0 {
            return Err(RunError::WrongRows(format!("{running} transactions did not end")));
        }
        for (row, changes) in &self.changes {
            let (metadata, payload) = match self.servers.get(row.owner as usize) {
                Some(server) => (Vec::new(), server.payload(row.index).to_vec()),
                None => table.read_row(&regions[row.owner as usize], row.index),
            };
            if metadata.iter().any(|word| *word != 0) || payload.iter().any(|word| word != changes)
            {
                return Err(RunError::WrongRows(format!(
                    "{row:?} after {changes} changes: {metadata:?}, {payload:?}"
                )));
            }
        }
        match self.servers.iter().find(|server| !server.is_free() || server.bad_requests() > 0) {
            Some(_) => Err(RunError::WrongRows("a server's lock leaked".into())),
            None => Ok(()),
        }
    }
}

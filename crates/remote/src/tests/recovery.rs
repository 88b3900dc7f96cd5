//! Workers that die, or are considered dead, at random moments: the recovery of their locks and
//! rows.

mod owner;
mod queues;

use super::PAYLOAD;
use super::runner::Found;
use crate::recovery::rebuild_with;
use crate::traps::{Planted, Trap};
use crate::{
    Buckets, LeaseWatch, LogLayout, Mailbox, Mode, Owner, RemoteError, RowClient, RowId, RowWorker,
    Table, TxnHandle, WorkerEvent, WorkerLimits,
};
use clearway_env::SeededEntropy;
use clearway_fabric::sim::{Network, SimConfig, SimNode, SimRegion, SimStep, SimWorker};
use clearway_fabric::{Fabric, Region, VerbError, WorkerAddr};
use clearway_history::{CheckerOptions, History, Op, Txn, TxnOutcome};
use std::collections::BTreeMap;

const LIMITS: WorkerLimits = WorkerLimits { transactions: 2, rows: 3 };
const NODES: u32 = 2;
const WORKERS: u32 = 5;
const ROWS: u32 = 3;
const COMMITS: u64 = 250;
const DEATHS: u64 = 3;
const SEEDS: u64 = 25;

fn modes() -> impl Iterator<Item = Mode> {
    Mode::PUBLISHED.into_iter().chain(Mode::ADAPTIVE).chain([Mode::ONE_ROUND, Mode::LINE])
}

/// Interval at which workers renew their leases and owners check them.
const RENEWAL_NS: u64 = 10_000;
const LEASE_NS: u64 = 150_000;

struct Client {
    begun_ns: u64,
    plan: Vec<(RowId, bool)>,
    commits: bool,
    ops: Vec<Op>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Alive,
    /// Considered dead, but still running: it renews no lease and takes no part in recovery. Verbs
    /// that the fence rejects end it.
    Suspected,
    /// Never polled again, but its adapter still sends.
    Silent,
}

struct Run<'a> {
    rng: SeededEntropy,
    network: Network,
    table: Table,
    regions: Vec<SimRegion>,
    workers: Vec<RowWorker<'a, SimWorker>>,
    /// By recovery, then by worker; the first ones are those before any recovery.
    mailboxes: &'a [Vec<SimRegion>],
    recoveries: usize,
    addresses: Vec<WorkerAddr>,
    lives: Vec<Life>,
    /// A survivor that has noticed the fence waits for recovery.
    stopped: Vec<bool>,
    clients: Vec<BTreeMap<TxnHandle, Client>>,
    history: History,
    values: u64,
    trap: Option<Trap>,
    /// The timer is set.
    ticks: bool,
    /// The second owner's node is dead: workers that notice it stop.
    owner_lost: bool,
    /// One for each owner, and the time of the next check.
    watches: Vec<LeaseWatch>,
    look_ns: u64,
    /// The result of the last check.
    expired: Vec<u16>,
    committed: u64,
    completed: u64,
    freed: u64,
    found: Found,
}

fn run(seed: u64, mode: Mode, trap: Option<Trap>) -> (Found, u64, u64) {
    with_cluster(seed, mode, trap, |run, nodes| {
        run.run(nodes);
        run.check();
        (std::mem::take(&mut run.found), run.completed, run.freed)
    })
}

fn with_cluster<T>(
    seed: u64,
    mode: Mode,
    trap: Option<Trap>,
    act: impl FnOnce(&mut Run<'_>, &[SimNode]) -> T,
) -> T {
    let rng = SeededEntropy::new(seed ^ 0xdead);
    let (jitter_ns, spread_ns) =
        ([200, 5_000][rng.below(2) as usize], [150, 3_000][rng.below(2) as usize]);
    let queue_depth = [128, 3][rng.below(2) as usize];
    let reads_follow_atomics = rng.below(2) == 0;
    let config = SimConfig {
        jitter_ns,
        spread_ns,
        queue_depth,
        reads_follow_atomics,
        ..SimConfig::default()
    };
    let network = Network::new(seed, config);
    let nodes: Vec<SimNode> = (0..NODES + WORKERS).map(|_| network.add_node()).collect();
    let log = LogLayout {
        workers: WORKERS,
        transactions: LIMITS.transactions as u32,
        rows: LIMITS.rows as u32,
    };
    let buckets = Buckets::default();
    let mut table =
        Table { mode, payload_words: PAYLOAD, rows: ROWS, buckets, log, owners: Vec::new() };
    let regions: Vec<_> =
        nodes[..NODES as usize].iter().map(|node| node.register(table.words()).unwrap()).collect();
    table.owners = owners(&regions, &nodes);
    let mailboxes = |_| -> Vec<SimRegion> {
        nodes[NODES as usize..]
            .iter()
            .map(|node| node.register(LIMITS.mailbox_words()).unwrap())
            .collect()
    };
    let mailboxes: Vec<Vec<SimRegion>> = (0..=DEATHS).map(mailboxes).collect();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let node = &nodes[(NODES + number) as usize];
        let fabric = node.worker(0, LIMITS.scratch_words(PAYLOAD)).unwrap();
        let worker = RowWorker::new(fabric, table.clone(), number as u16, LIMITS, None).unwrap();
        let all = owners(&mailboxes[0], &nodes[NODES as usize..]);
        let mut worker =
            worker.with_mailbox(Mailbox { own: &mailboxes[0][number as usize], all }).unwrap();
        if let Some(trap) = trap {
            worker.plant(trap, None);
        }
        workers.push(worker);
    }
    let addresses = nodes[NODES as usize..]
        .iter()
        .map(|node| WorkerAddr { node: node.node(), port: 0 })
        .collect();
    let each = WORKERS as usize;
    let watches = regions.iter().map(|_| LeaseWatch::new(&table, LEASE_NS)).collect();
    let mut run = Run {
        rng,
        network,
        table,
        regions,
        workers,
        mailboxes: &mailboxes,
        recoveries: 0,
        addresses,
        lives: vec![Life::Alive; each],
        stopped: vec![false; each],
        clients: (0..each).map(|_| BTreeMap::new()).collect(),
        history: History::new(),
        values: 0,
        trap,
        ticks: false,
        owner_lost: false,
        watches,
        look_ns: 0,
        expired: Vec::new(),
        committed: 0,
        completed: 0,
        freed: 0,
        found: Found::default(),
    };
    act(&mut run, &nodes)
}

pub fn owners(regions: &[SimRegion], nodes: &[SimNode]) -> Vec<Owner> {
    let owner = |(region, node): (&SimRegion, &SimNode)| Owner {
        address: WorkerAddr { node: node.node(), port: 9 },
        region: region.key(),
    };
    regions.iter().zip(nodes).map(owner).collect()
}

impl Run<'_> {
    fn begin_all(&mut self) {
        for worker in 0..self.workers.len() {
            for _ in 0..LIMITS.transactions {
                let txn = self.workers[worker].begin().unwrap();
                self.begin(worker, txn);
            }
        }
        self.tick();
    }

    fn run(&mut self, nodes: &[SimNode]) {
        self.begin_all();
        for death in 1..=DEATHS {
            self.advance(|run| run.committed >= death * COMMITS / (DEATHS + 1));
            let victims: Vec<usize> =
                (0..self.lives.len()).filter(|w| self.lives[*w] == Life::Alive).collect();
            let victim = victims[self.rng.below(victims.len() as u64) as usize];
            // At a random event, not only after a commit.
            let mut events = self.rng.below(200);
            self.advance(|_| {
                events = events.saturating_sub(1);
                events == 0
            });
            self.lives[victim] = match self.rng.below(3) {
                0 => Life::Suspected,
                1 => Life::Silent,
                _ => {
                    self.network.crash_worker(self.addresses[victim]);
                    Life::Silent
                }
            };
            self.advance(|run| !run.expired.is_empty());
            if !self.found.broken.is_empty() {
                return;
            }
            if self.expired != [victim as u16] {
                return self.found.broken.push(format!(
                    "worker {victim} died, but the leases of {:?} expired",
                    self.expired
                ));
            }
            self.recover(nodes, victim as u16);
        }
        self.advance(|run| {
            let mut alive =
                run.clients.iter().zip(&run.lives).filter(|(_, life)| **life == Life::Alive);
            alive.all(|(clients, _)| clients.is_empty())
        });
    }

    fn recover(&mut self, nodes: &[SimNode], victim: u16) {
        for region in 0..self.regions.len() {
            if self.trap != Some(Trap::Unfenced) {
                self.regions[region].fence().unwrap();
            }
            // Owners do not act at the same moment, and neither do survivors.
            let until_ns = self.network.now_ns() + self.rng.below(10_000);
            self.stopped.fill(false);
            self.fencing(until_ns);
        }
        let alive: Vec<usize> =
            (0..self.lives.len()).filter(|w| self.lives[*w] == Life::Alive).collect();
        alive.iter().for_each(|worker| self.stopped[*worker] = true);
        while !alive.iter().all(|worker| self.workers[*worker].drain()) {
            if let SimStep::Timer(_) = self.network.advance().unwrap() {
                self.ticks = false;
            }
        }
        let locks: Vec<_> = alive.iter().flat_map(|worker| self.workers[*worker].pause()).collect();
        let regions: Vec<_> =
            self.regions.iter().map(|region| Some(region as &dyn Region)).collect();
        let outcomes = rebuild_with(&self.table, &regions, &locks, Planted(self.trap));
        self.completed += outcomes.rows_completed;
        self.freed += outcomes.exclusive_freed;
        for (watch, region) in self.watches.iter_mut().zip(&self.regions) {
            watch.clear(victim, region);
        }
        self.expired.clear();
        self.table.owners = owners(&self.regions, nodes);
        self.recoveries += 1;
        let kept = self.trap == Some(Trap::KeptMailbox);
        let mailboxes = &self.mailboxes[if kept { 0 } else { self.recoveries }];
        for worker in alive {
            let all = owners(mailboxes, &nodes[NODES as usize..]);
            self.workers[worker].replace_mailbox(Mailbox { own: &mailboxes[worker], all });
            self.workers[worker].resume(self.table.clone(), &outcomes).unwrap();
            self.stopped[worker] = false;
            self.poll(worker);
        }
    }

    /// Advances time while some regions are fenced: survivors notice that, and stop.
    fn fencing(&mut self, until_ns: u64) {
        let lives = self.lives.clone();
        self.lives
            .iter_mut()
            .filter(|life| **life == Life::Alive)
            .for_each(|life| *life = Life::Suspected);
        self.advance(|run| run.network.now_ns() >= until_ns);
        for (now, before) in self.lives.iter_mut().zip(lives) {
            if before == Life::Alive {
                *now = Life::Alive;
            }
        }
    }

    fn advance(&mut self, mut until: impl FnMut(&Self) -> bool) {
        let mut steps = 0;
        while self.found.broken.is_empty() && !until(self) {
            // Time must advance even if nobody has work.
            if !std::mem::replace(&mut self.ticks, true) {
                self.network.set_timer(0, self.network.now_ns() + 1_000);
            }
            match self.network.advance() {
                Some(SimStep::Worker(address)) => {
                    let worker = self.addresses.iter().position(|worker| *worker == address);
                    worker.into_iter().for_each(|worker| self.poll(worker));
                }
                _ => {
                    self.ticks = false;
                    self.tick();
                }
            }
            steps += 1;
            if steps > 200_000 {
                self.found.broken.push("no progress".into());
            }
        }
    }

    /// Workers renew their leases, and owners check them.
    fn tick(&mut self) {
        for worker in 0..self.workers.len() {
            if self.workers[worker].watches_memory() {
                self.poll(worker);
            }
        }
        let now_ns = self.network.now_ns();
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns + RENEWAL_NS;
        for worker in 0..self.workers.len() {
            if self.lives[worker] == Life::Alive && !self.stopped[worker] {
                self.workers[worker].renew_leases().unwrap();
            }
        }
        let looks = self
            .watches
            .iter_mut()
            .zip(&self.regions)
            .map(|(watch, region)| watch.look(now_ns, region));
        self.expired = looks.max_by_key(Vec::len).unwrap_or_default();
    }

    fn poll(&mut self, worker: usize) {
        loop {
            if self.stopped[worker] || self.lives[worker] == Life::Silent {
                return;
            }
            let mut events = Vec::new();
            if let Err(why) = self.workers[worker].poll(&mut events) {
                let noticed =
                    self.owner_lost && matches!(why, RemoteError::Verb(VerbError::PeerDead));
                if !noticed && self.lives[worker] == Life::Alive {
                    self.found.broken.push(format!("worker {worker}: {why}"));
                }
                self.stopped[worker] = true;
                return;
            }
            for event in events {
                self.handle(worker, event);
            }
            if !self.workers[worker].is_ready() {
                return;
            }
        }
    }

    fn handle(&mut self, worker: usize, event: WorkerEvent) {
        match event {
            WorkerEvent::Locked(txn, row) => self.locked(worker, txn, row),
            WorkerEvent::Committed(txn) => {
                self.end(worker, txn, TxnOutcome::Committed);
                if self.committed < COMMITS {
                    let txn = self.workers[worker].begin().unwrap();
                    self.begin(worker, txn);
                }
            }
            WorkerEvent::Aborted(txn, start, _) => {
                self.end(worker, txn, TxnOutcome::Aborted);
                let txn = self.workers[worker].restart(start).unwrap();
                self.begin(worker, txn);
            }
            WorkerEvent::Peeked(..) | WorkerEvent::Released(..) => {
                unreachable!("nobody requests it")
            }
        }
    }

    fn begin(&mut self, worker: usize, txn: TxnHandle) {
        let draw = |n: u32| self.rng.below(n.into()) as u32;
        let row = |_| (RowId { owner: draw(NODES), index: draw(ROWS) }, draw(3) > 0);
        let plan = (0..=draw(LIMITS.rows as u32 - 1)).map(row).collect();
        let begun_ns = self.network.now_ns();
        self.clients[worker]
            .insert(txn, Client { begun_ns, plan, commits: false, ops: Vec::new() });
        self.go_on(worker, txn);
    }

    fn go_on(&mut self, worker: usize, txn: TxnHandle) {
        let client = self.clients[worker].get_mut(&txn).unwrap();
        let result = match client.plan.pop() {
            Some((row, update)) => self.workers[worker].get(txn, row, update),
            None => {
                client.commits = true;
                self.workers[worker].commit(txn)
            }
        };
        result.unwrap();
    }

    fn locked(&mut self, worker: usize, txn: TxnHandle, row: RowId) {
        let mut payload = [0; PAYLOAD];
        self.workers[worker].payload(txn, row, &mut payload);
        if payload.iter().any(|word| *word != payload[0]) {
            self.found.broken.push(format!("torn read: {payload:?}"));
        }
        let key = self.history.key(&format!("{}.{}", row.owner, row.index));
        let ops = &mut self.clients[worker].get_mut(&txn).unwrap().ops;
        ops.push(Op::Read { key, value: (payload[0] > 0).then_some(payload[0]) });
        if self.workers[worker].is_for_update(txn, row) {
            self.values += 1;
            self.workers[worker].set(txn, row, &[self.values; PAYLOAD]);
            ops.push(Op::Write { key, value: self.values });
        }
        self.go_on(worker, txn);
    }

    fn end(&mut self, worker: usize, txn: TxnHandle, outcome: TxnOutcome) {
        let Client { begun_ns, ops, .. } = self.clients[worker].remove(&txn).unwrap();
        self.committed += u64::from(outcome == TxnOutcome::Committed);
        let end = (outcome != TxnOutcome::Unknown).then(|| self.network.now_ns());
        // Each slot of each worker is a session.
        let session = (worker * LIMITS.transactions + txn.slot) as u32;
        self.history.push(Txn { session, start: begun_ns, end, outcome, ops }).unwrap();
    }

    fn check(&mut self) {
        for worker in 0..self.workers.len() {
            let left: Vec<(TxnHandle, bool)> =
                self.clients[worker].iter().map(|(t, c)| (*t, c.commits)).collect();
            if self.lives[worker] == Life::Alive && !left.is_empty() {
                self.found
                    .broken
                    .push(format!("worker {worker}: {} transactions did not finish", left.len()));
            }
            for (txn, commits) in left {
                self.end(
                    worker,
                    txn,
                    if commits { TxnOutcome::Unknown } else { TxnOutcome::Aborted },
                );
            }
        }
        // A last transaction, after the ends of all others, reads all rows that are left.
        let mut ops = Vec::new();
        for (owner, region) in self.regions.iter().enumerate() {
            for index in 0..ROWS {
                let (metadata, payload) = self.table.read_row(region, index);
                let key = self.history.key(&format!("{owner}.{index}"));
                ops.push(Op::Read { key, value: (payload[0] > 0).then_some(payload[0]) });
                let torn = payload.iter().any(|word| *word != payload[0]);
                if torn || metadata.iter().any(|word| *word != 0) {
                    let found = format!("row {owner}.{index}: {metadata:?}, {payload:?}");
                    self.found.broken.push(found);
                }
            }
        }
        let start = self.network.now_ns() + 1;
        let (session, end, outcome) = (u32::MAX, Some(start), TxnOutcome::Committed);
        self.history.push(Txn { session, start, end, outcome, ops }).unwrap();
        self.found.checked = self.history.check(&CheckerOptions::default());
    }
}

#[test]
fn deaths_leave_no_lock_and_no_half_written_row() {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    for mode in modes() {
        let (mut completed, mut freed, mut unknown) = (0, 0, 0);
        for seed in given.map_or(0..SEEDS, |seed: u64| seed..seed + 1) {
            let (found, rows, locks) = run(seed, mode, None);
            let broken = &found.broken;
            assert!(found.is_clean(), "SEED={seed} {mode:?}: {broken:?}\n{}", found.checked);
            assert!(found.checked.counts.committed > COMMITS, "SEED={seed}: {}", found.checked);
            (completed, freed, unknown) =
                (completed + rows, freed + locks, unknown + found.checked.counts.unknown);
        }
        println!(
            "{mode:?}: {completed} rows completed, {freed} exclusive locks freed, {unknown} \
             unknown outcomes"
        );
        assert!(
            given.is_some() || (completed > 10 && freed > 10 && unknown > 5),
            "{completed} {freed} {unknown}"
        );
    }
}

/// The worker is alive but considered dead.
#[test]
fn recovery_without_a_fence_is_caught() {
    modes().for_each(|mode| assert_caught(Trap::Unfenced, mode));
}

/// Prints the seed that catches a trap. Without the trap the same seed is clean.
fn assert_caught(trap: Trap, mode: Mode) {
    let caught = (0..100).find(|seed| !run(*seed, mode, Some(trap)).0.is_clean());
    let seed = caught.unwrap_or_else(|| panic!("no seed below 100 catches {trap:?} in {mode:?}"));
    println!("{trap:?}, {mode:?}: SEED={seed}");
    assert!(run(seed, mode, None).0.is_clean());
}

/// A hand-over or a place in line dates from before the fence.
#[test]
fn mailboxes_kept_over_a_recovery_are_caught() {
    assert_caught(Trap::KeptMailbox, Mode::LINE);
}

/// Invariant 1 of recovery.
#[test]
fn rows_written_before_their_record_are_caught() {
    modes().for_each(|mode| assert_caught(Trap::EarlyWrite, mode));
}

/// Invariant 2 of recovery.
#[test]
fn records_applied_to_rows_of_others_are_caught() {
    modes().for_each(|mode| assert_caught(Trap::AnyHolder, mode));
}

/// A verb fails at a fenced owner while a renewal to another owner is in flight.
#[test]
fn leases_at_other_owners_are_renewed_after_a_failed_verb() {
    for seed in 0..50 {
        let network = Network::new(seed, SimConfig::default());
        let nodes: Vec<SimNode> = (0..3).map(|_| network.add_node()).collect();
        let log = LogLayout {
            workers: 1,
            transactions: LIMITS.transactions as u32,
            rows: LIMITS.rows as u32,
        };
        let (mode, buckets) = (Mode::PUBLISHED[0], Buckets::default());
        let mut table =
            Table { mode, payload_words: PAYLOAD, rows: ROWS, buckets, log, owners: Vec::new() };
        let mut regions: Vec<_> =
            nodes[..2].iter().map(|node| node.register(table.words()).unwrap()).collect();
        table.owners = owners(&regions, &nodes);
        let fabric = nodes[2].worker(0, LIMITS.scratch_words(PAYLOAD)).unwrap();
        let mut worker = RowWorker::new(fabric, table.clone(), 0, LIMITS, None).unwrap();
        let txn = worker.begin().unwrap();
        worker.get(txn, RowId { owner: 0, index: 0 }, true).unwrap();
        worker.renew_leases().unwrap();
        regions[0].fence().unwrap();
        let mut events = Vec::new();
        for _ in 0..3 {
            while network.advance().is_some() {}
            // The first calls report the verbs that have failed at the first owner.
            while worker.poll(&mut events).is_err() {}
            // The first owner rejects it, the second one gets it.
            let _rejected = worker.renew_leases();
        }
        while network.advance().is_some() {}
        assert_eq!(regions[1].load(table.lease(0)), 4, "seed {seed}");
    }
}

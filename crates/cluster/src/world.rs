//! The world: virtual time, CPUs, the network, crashes.

mod changes;
mod crashes;
mod ordered;
mod transactions;

use crate::bugs::PlantedBug;
use crate::config::{ClusterConfig, Durability, MICRO, Nanos};
use crate::judge::{self, Seen};
use crate::load::{self, Plan};
use crate::node::Node;
use crate::order::CentralOrder;
use crate::participant::{Answer, Command, Effect, Entry, Participant, SessionId};
use crate::report::ClusterReport;
use crate::session::{Outcome, Request, Rules, Running, Session};
use crate::table::Programs;
use clearway_testkit::Rng;
use clearway_types::{PartitionId, TxnId};
use hashbrown::HashSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// Events after which a run that makes no progress is a finding.
const EVENTS_PER_TRANSACTION: u64 = 20_000;

/// A message to a session.
#[derive(Clone, Debug)]
enum Notice {
    /// The client starts a transaction at several partitions, with this plan.
    Start(Rc<Plan>),
    Answer(u32, Answer),
    Stalled(TxnId),
    Undone(TxnId),
    /// The partition does not know what became of this transaction of the session.
    Inquiry(PartitionId, TxnId),
}

#[derive(Clone, Debug)]
enum Event {
    /// An entry arrives at a partition.
    Entry(PartitionId, Entry),
    /// A partition's CPU takes the next entry.
    Work(PartitionId),
    /// The log from an index to another arrives at a copy, in this epoch.
    Append {
        at: PartitionId,
        epoch: u32,
        copy: usize,
        from: usize,
        to: usize,
    },
    /// The primary learns what a copy has.
    Appended {
        at: PartitionId,
        epoch: u32,
        copy: usize,
        has: usize,
    },
    /// The primary reminds its copies.
    RemindCopies(PartitionId, u32),
    /// A notice arrives at the session's coordinator.
    Notice(SessionId, Notice),
    /// A coordinator's CPU has processed a notice.
    Noticed(SessionId, u32, Notice),
    /// The session starts its next transaction.
    Begin(SessionId),
    /// The session repeats its calls, if this transaction still runs.
    Remind(SessionId, TxnId),
    /// The coordinator's record of the decision is durable.
    Logged(SessionId, TxnId),
    /// The partition asks about a transaction, if it still waits for its end.
    Inquire(PartitionId, u32, TxnId),
    /// The scheme of a partition changes.
    ChangeScheme,
    CrashCoordinator,
    StartCoordinator(u32),
    CrashPrimary,
    StartPrimary(PartitionId),
    CrashBackup,
    StartBackup(PartitionId, usize),
}

/// A process that coordinates transactions.
#[derive(Default)]
struct Coordinator {
    is_down: bool,
    /// The number of its crashes.
    starts: u32,
    busy_until: Nanos,
    /// Committed transactions whose participants have not all acknowledged: durable.
    decisions: HashSet<TxnId>,
}

pub(crate) struct World {
    config: ClusterConfig,
    rules: Rules,
    programs: Programs,
    rng: Rng,
    /// For changes of schemes.
    changes: Rng,
    now: Nanos,
    /// By time, and then in the order of their causes.
    events: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    /// The events in the heap; free slots are listed in `free`.
    slots: Vec<Option<Event>>,
    free: Vec<usize>,
    scheduled: u64,
    nodes: Vec<Node>,
    /// With [`ClusterConfig::central`].
    order: Option<CentralOrder>,
    coordinators: Vec<Coordinator>,
    sessions: Vec<Session>,
    /// Transactions to repeat, by session.
    repeats: Vec<Option<Rc<Plan>>>,
    /// How many times in a row each session's transaction has failed because of locks.
    locked: Vec<u32>,
    started: u64,
    numbers: u64,
    seen: Vec<Seen>,
    report: ClusterReport,
}

impl World {
    /// Creates a world.
    ///
    /// # Panics
    /// If [`ClusterConfig::central`] is set without what it needs.
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        assert!(
            !config.central
                || config.coordinators == 1 && config.faults.is_none() && !config.load.uniform,
            "a central order needs one coordinator, no faults, and all partitions in round one"
        );
        let programs = Programs::new(config.load.keys);
        let costs = &config.costs;
        let round_trip = 4 * costs.network + 2 * costs.sync;
        let rules = Rules {
            schemes: vec![config.scheme; usize::from(config.partitions)],
            central: config.central,
            repeat_after: 10 * round_trip + 1_000 * MICRO,
            cancel_after: 20 * round_trip + 5_000 * MICRO,
            votes_ride: config.votes_ride,
            bug: config.bug,
        };
        let mut world = Self {
            config: config.clone(),
            rules,
            rng: Rng::new(config.seed),
            changes: Rng::new(config.seed.rotate_left(32)),
            now: 0,
            events: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            scheduled: 0,
            nodes: Vec::new(),
            order: config.central.then(|| CentralOrder::new(config.partitions)),
            coordinators: Vec::new(),
            sessions: (0..config.sessions).map(Session::new).collect(),
            repeats: vec![None; config.sessions as usize],
            locked: vec![0; config.sessions as usize],
            started: 0,
            numbers: 0,
            seen: Vec::new(),
            report: ClusterReport::default(),
            programs,
        };
        world.coordinators.resize_with(config.coordinators.max(1) as usize, Coordinator::default);
        for partition in 0..config.partitions {
            let participant = world.participant(PartitionId(partition));
            world.nodes.push(Node::new(participant, config.durability, config.bug));
        }
        for session in 0..config.sessions {
            world.at(u64::from(session), Event::Begin(session));
        }
        world.crashes();
        world.next_change();
        world
    }

    fn participant(&self, id: PartitionId) -> Participant {
        let keys = load::keys_of(&self.config, id);
        let ClusterConfig { scheme, turns, bug, .. } = self.config;
        Participant::new(id, scheme, turns, &self.programs, keys, bug)
    }

    /// Runs to the end, and judges.
    pub(crate) fn run(mut self) -> Result<ClusterReport, String> {
        let most = self.config.transactions.max(10) * EVENTS_PER_TRANSACTION;
        while let Some(Reverse((at, _, slot))) = self.events.pop() {
            self.now = at;
            self.report.events += 1;
            if self.report.events > most {
                return Err("no progress".into());
            }
            let event = self.slots[slot].take();
            self.free.push(slot);
            if let Some(event) = event {
                self.handle(event);
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Result<ClusterReport, String> {
        let mut last = Vec::new();
        for at in 0..self.nodes.len() {
            let id = PartitionId(at as u16);
            let mut copy = self.participant(id);
            let node = &mut self.nodes[at];
            let Some(participant) = &mut node.participant else {
                return Err(format!("partition {id} is down at the end"));
            };
            if !participant.is_idle() {
                return Err(format!("transactions are left at {id}: {:?}", participant.members()));
            }
            // A backup that executes the log ends in the same state.
            let mut dropped = Vec::new();
            for entry in &node.log {
                copy.apply(entry, &mut dropped);
                dropped.clear();
            }
            let contents = participant.contents(&self.programs);
            if copy.contents(&self.programs) != contents {
                return Err(format!("a backup of partition {id} differs from the primary"));
            }
            last.extend(contents);
        }
        self.report.virtual_ns = self.seen.iter().map(|seen| seen.ended).max().unwrap_or(0);
        let checked = judge::judge(&self.seen, &last)?;
        self.report.operations = checked.counts.operations;
        Ok(self.report)
    }

    fn at(&mut self, time: Nanos, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.scheduled += 1;
        self.events.push(Reverse((time, self.scheduled, slot)));
    }

    fn after(&mut self, delay: Nanos, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Sends a message through the network.
    fn send(&mut self, from: Nanos, event: Event) {
        let (faults, network) = (self.config.faults, self.config.costs.network);
        if self.rng.permille(faults.lost) {
            self.report.lost += 1;
            return;
        }
        let late = if self.rng.permille(faults.late) { self.rng.below(20 * network) } else { 0 };
        if self.rng.permille(faults.doubled) {
            let delay = network + self.rng.below(10 * network);
            self.report.doubled += 1;
            self.at(from + delay, event.clone());
        }
        self.at(from + network + late, event);
    }

    fn node(&mut self, at: PartitionId) -> &mut Node {
        &mut self.nodes[usize::from(at.0)]
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Entry(at, entry) => {
                if self.node(at).participant.is_some() {
                    self.node(at).inbox.push_back(entry);
                    self.schedule(at);
                }
            }
            Event::Work(at) => self.work(at),
            Event::Append { at, epoch, copy, from, to } => {
                let node = self.node(at);
                if node.log_epoch == epoch
                    && node.participant.is_some()
                    && let Some(has) = node.append(copy, from, to)
                {
                    self.answer_append(at, epoch, copy, has);
                }
            }
            Event::Appended { at, epoch, copy, has } => self.appended(at, epoch, copy, has),
            Event::RemindCopies(at, epoch) => {
                let node = self.node(at);
                if node.log_epoch == epoch {
                    node.reminds = false;
                    self.replicate(at, self.now);
                }
            }
            Event::Notice(session, notice) => self.notice(session, notice),
            Event::Noticed(session, starts, notice) => {
                if self.coordinator(session).starts == starts {
                    self.noticed(session, notice);
                }
            }
            Event::Begin(session) => self.begin(session),
            Event::Remind(session, txn) => self.remind(session, txn),
            Event::Logged(session, txn) => {
                if self.sessions[session as usize].logging() == Some(txn) {
                    self.coordinator(session).decisions.insert(txn);
                    self.with_session(session, |session, now, cx, out| {
                        session.logged(now, cx, out);
                    });
                }
            }
            Event::Inquire(at, epoch, txn) => self.inquire(at, epoch, txn),
            Event::ChangeScheme => self.change_scheme(),
            Event::CrashCoordinator => self.crash_coordinator(),
            Event::StartCoordinator(number) => self.start_coordinator(number),
            Event::CrashPrimary => self.crash_primary(),
            Event::StartPrimary(at) => self.start_primary(at),
            Event::CrashBackup => self.crash_backup(),
            Event::StartBackup(at, copy) => {
                let lost = &mut self.node(at).copies[copy];
                lost.is_down = false;
                self.replicate(at, self.now);
            }
        }
    }

    // Partitions.

    fn schedule(&mut self, at: PartitionId) {
        let now = self.now;
        let node = self.node(at);
        if node.participant.is_some() && !node.inbox.is_empty() && !node.is_scheduled {
            node.is_scheduled = true;
            let start = node.busy_until.max(now);
            self.at(start, Event::Work(at));
        }
    }

    fn work(&mut self, at: PartitionId) {
        let costs = self.config.costs;
        let now = self.now;
        let node = self.node(at);
        node.is_scheduled = false;
        let Some(entry) = node.inbox.pop_front() else { return };
        let (before, txn) = (node.log.len(), entry.txn);
        let was_member = node.participant.as_ref().is_some_and(|p| p.members().contains_key(&txn));
        node.execute(entry);
        let done = node.participant.as_mut().map(Participant::take_done).unwrap_or_default();
        let cost = done.cost(&costs);
        node.busy_until = now + cost;
        let is_member = node.participant.as_ref().is_some_and(|p| p.members().contains_key(&txn));
        let (epoch, grown) = (node.epoch, node.log.len() > before);
        if is_member && !was_member {
            self.watch(at, epoch, txn);
        }
        if grown {
            self.replicate(at, now + cost);
        }
        self.release(at, now + cost);
        self.schedule(at);
    }

    /// Has the partition ask about the transaction if it does not end soon.
    fn watch(&mut self, at: PartitionId, epoch: u32, txn: TxnId) {
        if !self.config.faults.is_none() {
            self.after(self.rules.cancel_after / 4, Event::Inquire(at, epoch, txn));
        }
    }

    fn inquire(&mut self, at: PartitionId, epoch: u32, txn: TxnId) {
        let node = self.node(at);
        let member = node.participant.as_ref().and_then(|p| p.members().get(&txn)).copied();
        if let Some(member) = member.filter(|_| node.epoch == epoch) {
            let abandon = Entry { txn, session: u32::MAX, seq: 0, command: Command::Abandon };
            if !member.prepared
                && !member.abandoned
                && self.rng.permille(self.config.faults.abandoned)
            {
                self.node(at).inbox.push_back(abandon);
                self.schedule(at);
            }
            self.report.inquiries += 1;
            self.send(self.now, Event::Notice(member.session, Notice::Inquiry(at, txn)));
            self.watch(at, epoch, txn);
        }
    }

    /// Sends the copies what they lack, at this time.
    fn replicate(&mut self, at: PartitionId, time: Nanos) {
        let (durability, sync) = (self.config.durability, self.config.costs.sync);
        let repeat_after = self.rules.repeat_after;
        let node = self.node(at);
        if node.participant.is_none() || !node.is_behind() {
            return;
        }
        let (epoch, to) = (node.log_epoch, node.log.len());
        if durability == Durability::Disk {
            if !std::mem::replace(&mut node.syncs, true) {
                let from = node.copies[0].has;
                self.at(time + sync, Event::Append { at, epoch, copy: 0, from, to });
            }
            return;
        }
        if !std::mem::replace(&mut node.reminds, true) {
            self.at(time + repeat_after, Event::RemindCopies(at, epoch));
        }
        for copy in 0..self.node(at).copies.len() {
            let from = self.node(at).copies[copy].acknowledged;
            if from < to {
                self.send(time, Event::Append { at, epoch, copy, from, to });
            }
        }
    }

    fn answer_append(&mut self, at: PartitionId, epoch: u32, copy: usize, has: usize) {
        if self.config.durability == Durability::Disk {
            self.node(at).syncs = false;
            self.appended(at, epoch, copy, has);
            self.replicate(at, self.now);
        } else {
            self.send(self.now, Event::Appended { at, epoch, copy, has });
        }
    }

    fn appended(&mut self, at: PartitionId, epoch: u32, copy: usize, has: usize) {
        let node = self.node(at);
        if node.log_epoch != epoch || node.participant.is_none() {
            return;
        }
        let known = &mut node.copies[copy].acknowledged;
        *known = (*known).max(has);
        self.release(at, self.now);
    }

    /// Sends what may leave the partition.
    fn release(&mut self, at: PartitionId, time: Nanos) {
        for effect in self.node(at).release() {
            let (session, notice) = match effect {
                Effect::Answer(session, seq, answer) => (session, Notice::Answer(seq, answer)),
                Effect::Stalled(session, txn) => (session, Notice::Stalled(txn)),
                Effect::Undone(session, txn) => (session, Notice::Undone(txn)),
                Effect::Scheme(scheme) => {
                    self.rules.schemes[usize::from(at.0)] = scheme;
                    self.report.scheme_changes += 1;
                    continue;
                }
                Effect::Yield(_) | Effect::GiveUp(..) => continue,
            };
            self.send(time, Event::Notice(session, notice));
        }
    }

    // Coordinators and sessions.

    fn coordinator(&mut self, session: SessionId) -> &mut Coordinator {
        let number = session as usize % self.coordinators.len();
        &mut self.coordinators[number]
    }

    fn notice(&mut self, session: SessionId, notice: Notice) {
        let (cost, now) = (self.config.costs.coordinator, self.now);
        if session as usize >= self.sessions.len() {
            return;
        }
        let by_client = self.order.is_some() && self.sessions[session as usize].is_one_shot();
        let coordinator = self.coordinator(session);
        if coordinator.is_down {
            return;
        }
        if cost == 0 || by_client {
            return self.noticed(session, notice);
        }
        coordinator.busy_until = coordinator.busy_until.max(now) + cost;
        let (at, starts) = (coordinator.busy_until, coordinator.starts);
        self.at(at, Event::Noticed(session, starts, notice));
    }

    fn noticed(&mut self, session: SessionId, notice: Notice) {
        match notice {
            Notice::Start(plan) => self.start(session, plan),
            Notice::Answer(seq, answer) => self.with_session(session, |session, now, cx, out| {
                session.answered(seq, &answer, now, cx, out);
            }),
            Notice::Stalled(txn) => self.with_session(session, |session, _, _, out| {
                session.stalled(txn, out);
            }),
            Notice::Undone(txn) => self.with_session(session, |session, _, _, out| {
                session.undone(txn, out);
            }),
            Notice::Inquiry(from, txn) => self.inquired(session, from, txn),
        }
    }

    /// Presumed abort: a transaction that neither runs nor has committed has aborted.
    fn inquired(&mut self, session: SessionId, from: PartitionId, txn: TxnId) {
        if self.sessions[session as usize].runs(txn) {
            return;
        }
        let commits = self.coordinator(session).decisions.contains(&txn)
            || self.config.bug == Some(PlantedBug::PresumedCommit);
        let command = Command::Verdict(commits);
        let entry = Entry { txn, session: u32::MAX, seq: 0, command };
        self.send(self.now, Event::Entry(from, entry));
    }

    fn with_session(
        &mut self,
        id: SessionId,
        act: impl FnOnce(&mut Session, Nanos, (&Rules, &Programs), &mut Vec<Request>),
    ) {
        let mut requests = Vec::new();
        let session = &mut self.sessions[id as usize];
        act(session, self.now, (&self.rules, &self.programs), &mut requests);
        for request in requests {
            match request {
                Request::Send(to, entry) if self.order.is_some() => self.send_in_order(to, entry),
                Request::Send(to, entry) => self.send(self.now, Event::Entry(to, entry)),
                Request::Log(txn) => self.after(self.config.costs.sync, Event::Logged(id, txn)),
                Request::Tell(outcome) => self.tell(id, outcome),
                Request::Over { txn, repeat } => self.over(id, txn, repeat),
            }
        }
    }

    fn tell(&mut self, id: SessionId, outcome: Outcome) {
        if let Some(running) = &self.sessions[id as usize].running {
            let seen = self.seen(id, running, outcome);
            self.record(seen);
        }
        if outcome == Outcome::Committed && self.config.bug == Some(PlantedBug::ForgottenCommit) {
            self.coordinator(id).decisions.clear();
        }
    }

    fn record(&mut self, seen: Seen) {
        match seen.outcome {
            Outcome::Committed => {
                self.report.committed += 1;
                self.report.latency_ns += seen.ended - seen.began;
            }
            Outcome::Aborted => self.report.aborted += 1,
            Outcome::Unknown => self.report.unknown += 1,
        }
        self.seen.push(seen);
    }

    fn seen(&self, id: SessionId, running: &Running, outcome: Outcome) -> Seen {
        // After a crash, what was unanswered may still take effect: the order of a session does not
        // include that.
        let coordinator = &self.coordinators[id as usize % self.coordinators.len()];
        Seen {
            session: id + coordinator.starts * self.config.sessions,
            number: running.number,
            began: running.began,
            ended: self.now,
            outcome,
            keys: running.plan.keys().collect(),
            found: running.found.clone(),
        }
    }
}

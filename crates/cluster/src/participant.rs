//! A partition of the cluster as a state machine that is replicated: entries of its log in, effects
//! out.
//!
//! It wraps the engine's [`Partition`] and adds what a single node does not need: calls that arrive
//! more than once, PREPARE and the promise to await the decision, and local deadlocks. The same
//! entries have the same effects on every copy, so a copy that has the log can take over.
//!
//! Invariants
//! 1. A call of a session is executed once. A repeated one gets the first answer again; one that is
//!    older than the session's last call is dropped.
//! 2. A prepared transaction ends only by the coordinator's decision. One that is not prepared may
//!    be abandoned: it is undone here at once, and every later call of it fails, so that it cannot
//!    commit.
//! 3. A transaction is in `members` from its first message until it has ended here.
//!
//! A crash leaves the log.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 3 (replication of fragments and decisions).

use crate::bugs::PlantedBug;
use crate::config::{ClusterCosts, Nanos};
use crate::table::{Programs, TREE};
use clearway_coordinator::protocol::Control;
use clearway_ir::Program;
use clearway_ir::program::Env;
use clearway_memtrees::{MemoryTree, MemoryTrees, TreeWork};
use clearway_partition::{
    Batch, Body, Failure, FragmentOrigin, Limits, Message, Out, Outbox, Partition, Reply,
    SchemeKind, Snapshots, Stake,
};
use clearway_types::{Lsn, PartitionId, SqlError, SqlState, TxnId};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A client's session, with which it makes one call at a time at each partition.
pub(crate) type SessionId = u32;

/// No session: the answer is dropped.
const NO_SESSION: SessionId = u32::MAX;

/// An entry of a partition's log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub txn: TxnId,
    pub session: SessionId,
    /// The number of the session's call; it increases with each call. 0: not a call.
    pub seq: u32,
    pub command: Command,
}

/// What a partition is to do.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Run a whole transaction.
    OneShot(Arc<Program>, Arc<Env>),
    /// Run a fragment. If it is the `last` of its transaction here, its answer is also the vote.
    /// With `access`, the fragment first waits for exclusive access to the partition.
    Fragment {
        program: Arc<Program>,
        env: Arc<Env>,
        last: bool,
        optimistic: bool,
        access: Option<FirstFragment>,
    },
    Control(Control),
    /// Promise to await the decision.
    Prepare,
    /// End the running call of the transaction with this error.
    Cancel(SqlError),
    /// End this wait: it is part of a deadlock.
    GiveUp(u64),
    /// Abandon the transaction, if it is idle and not prepared.
    Abandon,
    /// Change the scheme.
    SetScheme(SchemeKind),
    /// The coordinator's answer to an inquiry: whether the transaction has committed.
    Verdict(bool),
    /// Continue what has yielded.
    Resume,
}

/// The first fragment of a transaction that has been ordered by its coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstFragment {
    /// It is the only one at the partition.
    pub one_round: bool,
}

/// What a partition's CPU has done for an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub trees: TreeWork,
    /// Answered fragments.
    pub fragments: u64,
    /// Requests for locks of rows.
    pub locks: u64,
}

impl Done {
    /// Returns its CPU time.
    pub(crate) fn cost(&self, costs: &ClusterCosts) -> Nanos {
        let Self { trees, fragments, locks } = *self;
        // A transaction that has taken locks may have to wait for the next one, so it keeps undo.
        let kept = if locks > 0 { trees.changes } else { trees.kept };
        let work = costs.run * trees.runs
            + costs.fragment * fragments
            + costs.row * trees.changes
            + costs.undo * (kept + trees.undone);
        let locking = if locks > 0 { work * costs.locking / 1000 } else { 0 };
        costs.control + work + locking
    }
}

/// A partition's answer to a call.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub result: Result<Reply, Failure>,
    /// It is a vote to commit.
    pub votes: bool,
}

/// What an entry has caused.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Send the session this answer to its call.
    Answer(SessionId, u32, Answer),
    /// Tell the session that its transaction has lost exclusive access.
    Stalled(SessionId, TxnId),
    /// Tell the session that its transaction was undone.
    Undone(SessionId, TxnId),
    /// Tell coordinators that the partition has this scheme from now on.
    Scheme(SchemeKind),
    /// Append an entry: the transaction continues after others have had a turn.
    Yield(TxnId),
    /// Append an entry: the transaction gives up this wait.
    GiveUp(TxnId, u64),
}

/// A transaction that has been here and has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub session: SessionId,
    pub prepared: bool,
    /// It has been undone here, and can only end.
    pub abandoned: bool,
}

/// A session's last call here.
struct Call {
    seq: u32,
    txn: TxnId,
    last: bool,
    fragment: bool,
    answer: Option<Answer>,
}

/// A wait for a lock.
struct LockWait {
    wait: u64,
    stake: Stake,
    line: u64,
}

/// A copy of a partition's state.
pub(crate) struct Participant {
    partition: Partition<MemoryTrees>,
    members: BTreeMap<TxnId, Member>,
    calls: HashMap<SessionId, Call>,
    waits: BTreeMap<TxnId, LockWait>,
    /// The transactions that block each line.
    lines: HashMap<u64, Vec<TxnId>>,
    /// Fragments that wait for exclusive access.
    riders: HashMap<TxnId, (Arc<Program>, Arc<Env>)>,
    /// Fragments that may run now: the sessions, the numbers of their calls, the transactions.
    admitted: Vec<(SessionId, u32, TxnId)>,
    done: Done,
    /// The partition's count of requests for locks when [`Participant::take_done`] was called.
    locks: u64,
    /// Entries for the partition itself that have not been appended yet.
    yielded: Vec<TxnId>,
    out: Outbox,
    bug: Option<PlantedBug>,
}

impl Participant {
    /// Creates a partition with these keys.
    pub(crate) fn new(
        id: PartitionId,
        scheme: SchemeKind,
        turns: usize,
        programs: &Programs,
        keys: impl Iterator<Item = u32>,
        bug: Option<PlantedBug>,
    ) -> Self {
        let mut trees = MemoryTrees::new(id);
        trees.trees.insert(TREE, MemoryTree::new());
        let limits = Limits { scheme, turns, ..Limits::default() };
        let mut participant = Self {
            partition: Partition::new(trees, limits, Arc::new(Snapshots::default())),
            members: BTreeMap::new(),
            calls: HashMap::new(),
            waits: BTreeMap::new(),
            lines: HashMap::new(),
            riders: HashMap::new(),
            admitted: Vec::new(),
            done: Done::default(),
            locks: 0,
            yielded: Vec::new(),
            out: Outbox::new(),
            bug,
        };
        let (program, rows) = programs.insert(keys);
        let env = Arc::new(Env::default());
        let body = Body::OneShot { program, env, rows: Some(rows) };
        participant.send(TxnId(1), NO_SESSION, 0, body);
        while !participant.out.is_empty() {
            let out = std::mem::take(&mut participant.out);
            for out in out {
                match out {
                    Out::Yield { txn, .. } => {
                        participant.send(txn, NO_SESSION, 0, Body::Resume(Vec::new()));
                    }
                    Out::Reply { reply, .. } => assert!(reply.is_ok(), "the first rows: {reply:?}"),
                    _ => {}
                }
            }
        }
        participant.take_done();
        participant
    }

    /// Returns what was done since the last call.
    pub(crate) fn take_done(&mut self) -> Done {
        let (trees, locks) =
            (self.partition.trees().take_work(), self.partition.row_lock_requests());
        let locks = locks - std::mem::replace(&mut self.locks, locks);
        Done { trees, locks, ..std::mem::take(&mut self.done) }
    }

    /// Returns the transactions that have not ended here.
    pub(crate) fn members(&self) -> &BTreeMap<TxnId, Member> {
        &self.members
    }

    /// Returns true if nothing is left of any transaction.
    pub(crate) fn is_idle(&self) -> bool {
        self.partition.active() == 0 && self.members.is_empty() && self.waits.is_empty()
    }

    /// Returns what must be appended to the log because of earlier entries, after a copy has taken
    /// over.
    pub(crate) fn pending(&mut self) -> Vec<Effect> {
        let mut effects: Vec<Effect> = self.yielded.iter().map(|txn| Effect::Yield(*txn)).collect();
        let waiting: Vec<TxnId> = self.waits.keys().copied().collect();
        waiting.into_iter().for_each(|txn| self.break_cycle(txn, &mut effects));
        effects
    }

    /// Reads all rows.
    pub(crate) fn contents(&mut self, programs: &Programs) -> Vec<crate::table::Found> {
        let body =
            Body::OneShot { program: programs.scan(), env: Arc::new(Env::default()), rows: None };
        self.send(TxnId(2), NO_SESSION, 0, body);
        let mut rows = Vec::new();
        while !self.out.is_empty() {
            for out in std::mem::take(&mut self.out) {
                match out {
                    Out::Yield { txn, .. } => {
                        self.send(txn, NO_SESSION, 0, Body::Resume(Vec::new()));
                    }
                    Out::Reply { reply: Ok(reply), .. } => {
                        rows.extend(crate::table::found(&reply.rows));
                    }
                    _ => {}
                }
            }
        }
        rows
    }

    fn send(&mut self, txn: TxnId, session: SessionId, seq: u32, body: Body) {
        let stake = match body {
            Body::OneShot { .. } => Stake::Retry(0),
            _ => Stake::Rows(0),
        };
        let origin = FragmentOrigin { worker: 0, session, seq };
        self.partition.on_message(Message { txn, stake, origin, body }, &mut self.out);
    }

    /// Returns true if the entry is a call that has been executed, or is older than one that was:
    /// it changes nothing. Then `effects` has its answer, if it has one.
    pub(crate) fn is_repeated(&self, entry: &Entry, effects: &mut Vec<Effect>) -> bool {
        if entry.seq == 0 || self.bug == Some(PlantedBug::RepeatedCall) {
            return false;
        }
        let Some(call) = self.calls.get(&entry.session) else { return false };
        if call.seq == entry.seq
            && let Some(answer) = &call.answer
        {
            effects.push(Effect::Answer(entry.session, entry.seq, answer.clone()));
        }
        entry.seq <= call.seq
    }

    /// Executes an entry that is not [repeated](Self::is_repeated).
    pub(crate) fn apply(&mut self, entry: &Entry, effects: &mut Vec<Effect>) {
        let Entry { txn, session, seq, ref command } = *entry;
        if seq > 0 {
            let last = matches!(command, Command::Fragment { last: true, .. });
            let fragment = matches!(command, Command::Fragment { .. });
            self.calls.insert(session, Call { seq, txn, last, fragment, answer: None });
        }
        let joins = matches!(
            command,
            Command::Fragment { .. }
                | Command::Control(Control::Block { .. } | Control::AwaitQuiet | Control::Settle)
        );
        if joins {
            self.members.entry(txn).or_insert(Member {
                session,
                prepared: false,
                abandoned: false,
            });
        }
        let member = self.members.get(&txn).copied();
        if joins && member.is_some_and(|member| member.abandoned) {
            return self.answer(session, seq, refusal(), effects);
        }
        let body = match command.clone() {
            Command::OneShot(program, env) => Body::OneShot { program, env, rows: None },
            Command::Fragment { program, env, access: None, optimistic, .. } => {
                self.statement(txn, program, env, optimistic)
            }
            Command::Fragment { program, env, access: Some(first), .. } => {
                self.riders.insert(txn, (program, env));
                Body::Block { one_round: first.one_round }
            }
            Command::Control(Control::Finish { commit }) => self.decided(commit.is_some()),
            Command::Verdict(commit) => {
                if !self.members.contains_key(&txn) {
                    return;
                }
                self.decided(commit)
            }
            Command::Control(control) => Body::from(control),
            Command::Prepare => return self.prepare(entry, effects),
            Command::Abandon => {
                let Some(member) = member.filter(|member| self.may_abandon(txn, member)) else {
                    return;
                };
                self.members.insert(txn, Member { abandoned: true, ..member });
                self.decided(false)
            }
            Command::SetScheme(scheme) => Body::SetScheme(scheme),
            Command::Cancel(error) => Body::Cancel(error),
            Command::GiveUp(wait) => {
                Body::GiveUp { wait, error: SqlError::new(SqlState::DEADLOCK, "deadlock detected") }
            }
            Command::Resume => {
                self.yielded.retain(|yielded| *yielded != txn);
                Body::Resume(Vec::new())
            }
        };
        let ends = matches!(body, Body::Finish { .. }) && !matches!(command, Command::Abandon);
        self.send(txn, session, seq, body);
        self.drain(effects);
        if ends {
            self.members.remove(&txn);
        }
    }

    fn statement(
        &self,
        txn: TxnId,
        program: Arc<Program>,
        env: Arc<Env>,
        optimistic: bool,
    ) -> Body {
        Body::Statement {
            program,
            env,
            rows: None,
            batch: Batch::ALL,
            fresh: self.bug == Some(PlantedBug::ReleasedUndo) && txn.0 % 8 == 3,
            learns: false,
            may_use_retired: false,
            may_add: false,
            optimistic,
        }
    }

    /// Returns the decision as the partition's message.
    fn decided(&mut self, commits: bool) -> Body {
        Body::Finish { commit: commits.then(|| self.partition.trees().append()) }
    }

    fn prepare(&mut self, entry: &Entry, effects: &mut Vec<Effect>) {
        let member = self.members.get_mut(&entry.txn).filter(|member| !member.abandoned);
        let answer = match member {
            Some(member) => {
                member.prepared = true;
                Answer { result: Ok(Reply::default()), votes: true }
            }
            None => refusal(),
        };
        self.answer(entry.session, entry.seq, answer, effects);
    }

    /// Returns true if the transaction may be abandoned: it has no vote and no running call here.
    fn may_abandon(&self, txn: TxnId, member: &Member) -> bool {
        let calls = |call: &Call| call.txn == txn && call.answer.is_none();
        !member.prepared && !member.abandoned && !self.calls.get(&member.session).is_some_and(calls)
    }

    fn answer(&mut self, session: SessionId, seq: u32, answer: Answer, effects: &mut Vec<Effect>) {
        if session == NO_SESSION || seq == 0 {
            return;
        }
        if let Some(call) = self.calls.get_mut(&session)
            && call.seq == seq
        {
            call.answer = Some(answer.clone());
        }
        effects.push(Effect::Answer(session, seq, answer));
    }

    fn drain(&mut self, effects: &mut Vec<Effect>) {
        let mut out = std::mem::take(&mut self.out);
        for out in out.drain(..) {
            match out {
                Out::Reply { to, reply, .. } => {
                    let call = self.calls.get(&to.session).filter(|call| call.seq == to.seq);
                    let rider = call.filter(|call| self.riders.contains_key(&call.txn));
                    if let Some(txn) = rider.map(|call| call.txn) {
                        if reply.is_ok() {
                            // If it was refused the partition, its fragment takes locks.
                            self.admitted.push((to.session, to.seq, txn));
                            continue;
                        }
                        self.riders.remove(&txn);
                    }
                    self.done.fragments += u64::from(call.is_some_and(|call| call.fragment));
                    let votes = reply.is_ok() && call.is_some_and(|call| call.last);
                    if votes
                        && let Some(txn) = call.map(|call| call.txn)
                        && let Some(member) = self.members.get_mut(&txn)
                    {
                        member.prepared = true;
                    }
                    let answer = Answer { result: reply, votes };
                    self.answer(to.session, to.seq, answer, effects);
                }
                Out::Stalled { to } => {
                    let call = self.calls.get(&to.session).filter(|call| call.seq == to.seq);
                    effects.extend(call.map(|call| Effect::Stalled(to.session, call.txn)));
                }
                Out::Scheme { scheme, .. } => effects.push(Effect::Scheme(scheme)),
                Out::Undone { to, txn } => {
                    let session = self.members.get(&txn).map(|member| member.session);
                    assert!(session.is_none_or(|own| own == to.session), "{txn} hears of its undo");
                    effects.push(Effect::Undone(to.session, txn));
                }
                Out::Yield { txn, .. } => {
                    self.yielded.push(txn);
                    effects.push(Effect::Yield(txn));
                }
                Out::Waits { txn, wait, stake, line: Some(line), .. } => {
                    self.waits.insert(txn, LockWait { wait, stake, line });
                    self.break_cycle(txn, effects);
                }
                Out::Line { line, on, .. } if on.is_empty() => {
                    self.lines.remove(&line);
                }
                Out::Line { line, on, .. } => {
                    self.lines.insert(line, on);
                    let waiting: Vec<TxnId> = self
                        .waits
                        .iter()
                        .filter(|(_, wait)| wait.line == line)
                        .map(|(txn, _)| *txn)
                        .collect();
                    waiting.into_iter().for_each(|txn| self.break_cycle(txn, effects));
                }
                Out::Over { txn, wait, .. } => {
                    if self.waits.get(&txn).is_some_and(|waiting| waiting.wait == wait) {
                        self.waits.remove(&txn);
                    }
                }
                // Without a line it waits for the partition, which is not part of a deadlock.
                Out::Waits { .. }
                | Out::HotRows { .. }
                | Out::Report { .. }
                | Out::WriteSpill { .. } => {}
                Out::Fetch { .. } | Out::ReadLog { .. } | Out::ReadSpill { .. } => {
                    unreachable!("everything is in memory")
                }
            }
        }
        self.out = out;
        while let Some((session, seq, txn)) = self.admitted.pop() {
            if let Some((program, env)) = self.riders.remove(&txn) {
                let body = self.statement(txn, program, env, false);
                self.send(txn, session, seq, body);
                self.drain(effects);
            }
        }
    }

    /// If the waiting transaction is in a cycle of waits here, one in it gives up: the one with the
    /// smallest stake, so preferably a one-shot.
    fn break_cycle(&mut self, txn: TxnId, effects: &mut Vec<Effect>) {
        let (mut path, mut seen) = (vec![(txn, 0)], vec![txn]);
        while let Some((at, next)) = path.last_mut() {
            let on = self
                .waits
                .get(at)
                .and_then(|wait| self.lines.get(&wait.line))
                .and_then(|on| on.get(*next))
                .copied();
            *next += 1;
            match on {
                None => {
                    path.pop();
                }
                Some(on) if on == txn => {
                    let cycle =
                        path.iter().filter_map(|(txn, _)| Some((txn, self.waits.get(txn)?)));
                    let victim = cycle.min_by_key(|(txn, wait)| (wait.stake, **txn));
                    effects.extend(victim.map(|(txn, wait)| Effect::GiveUp(*txn, wait.wait)));
                    return;
                }
                Some(on) if !seen.contains(&on) => {
                    seen.push(on);
                    path.push((on, 0));
                }
                Some(_) => {}
            }
        }
    }
}

/// The answer to a call of a transaction that cannot commit here any more.
fn refusal() -> Answer {
    let text = "the transaction was abandoned because its coordinator did not continue it";
    let error = SqlError::new(SqlState::DEADLOCK, text);
    Answer { result: Err(Failure::Sql(error)), votes: false }
}

/// The LSN that a coordinator's commit has in messages: each partition has a log of its own.
pub(crate) const COMMITTED: Lsn = Lsn(1);

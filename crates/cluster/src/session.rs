//! A session: runs one transaction at a time with the coordinator's protocol, as a state machine.
//!
//! It repeats calls until they are answered. A fragment that is not answered for a long time may be
//! in a deadlock across partitions: the transaction is aborted and repeated later.
//!
//! A crash of its coordinator leaves the decisions that are in the coordinator's log.

use crate::bugs::PlantedBug;
use crate::config::Nanos;
use crate::load::{Abort, Plan};
use crate::participant::{Answer, COMMITTED, Command, Entry, FirstFragment, SessionId};
use crate::table::{Found, Programs, found};
use clearway_coordinator::protocol::{
    AccessRequest, Control, Coordination, FragmentRound, Outgoing, ROUNDS,
};
use clearway_partition::{ExclusiveAccess, Failure, SchemeKind};
use clearway_types::{PartitionId, SqlError, SqlState, TxnId};
use std::rc::Rc;

/// What a session asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Send this entry to the partition.
    Send(PartitionId, Entry),
    /// Append the decision to the coordinator's log, then call [`Session::logged`].
    Log(TxnId),
    /// The client is told this outcome.
    Tell(Outcome),
    /// The transaction is over. If it was prevented by another one, it may be repeated.
    Over { txn: TxnId, repeat: bool },
}

/// How a transaction ended, as its client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed,
    Aborted,
    /// The coordinator has crashed.
    Unknown,
}

/// The purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    OneShot,
    Fragment,
    /// A message of the protocol: a control message or a request for a vote.
    Protocol,
}

struct Call {
    to: PartitionId,
    entry: Entry,
    purpose: Purpose,
    first_sent: Nanos,
    last_sent: Nanos,
}

/// What follows the protocol's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No step runs: fragments do.
    None,
    Acquire,
    Settle,
    Prepare,
    /// The decision is being logged.
    Log,
    Commit,
    Abort {
        repeat: bool,
    },
}

/// A running transaction.
pub(crate) struct Running {
    pub plan: Rc<Plan>,
    /// Its number: what it writes.
    pub number: u64,
    pub began: Nanos,
    pub found: Vec<Found>,
    txn: TxnId,
    protocol: Coordination,
    step: Step,
    calls: Vec<Call>,
    /// The next round.
    round: usize,
    fragments: FragmentRound,
    told: bool,
}

impl Running {
    /// Returns true if it was undone because a transaction ahead of it was.
    pub(crate) fn is_undone(&self) -> bool {
        self.protocol.is_undone()
    }
}

/// How sessions run transactions.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The partitions' schemes, as far as coordinators know.
    pub schemes: Vec<SchemeKind>,
    /// Time after which an unanswered call is repeated.
    pub repeat_after: Nanos,
    /// Time after which an unanswered fragment is cancelled.
    pub cancel_after: Nanos,
    /// Same as [`crate::ClusterConfig::central`].
    pub central: bool,
    /// Same as [`crate::ClusterConfig::votes_ride`].
    pub votes_ride: bool,
    pub bug: Option<PlantedBug>,
}

impl Rules {
    /// Returns how a transaction gets exclusive access to these partitions: as the least of their
    /// schemes says.
    fn exclusive(&self, partitions: &[PartitionId]) -> ExclusiveAccess {
        let of = |at: &PartitionId| self.schemes[usize::from(at.0)].exclusive();
        partitions.iter().map(of).min().unwrap_or(ExclusiveAccess::Never)
    }
}

/// A session.
pub(crate) struct Session {
    pub id: SessionId,
    /// The number of its last call. A crash does not reset it: it stands for a number that contains
    /// the coordinator's starts.
    seq: u32,
    /// The transaction that it repeats was undone because one ahead of it was. As in the server, it
    /// is repeated without speculation. Otherwise two transactions could discard each other
    /// forever. The same applies to one whose optimistic run was invalid.
    discarded: bool,
    pub running: Option<Running>,
}

impl Session {
    pub(crate) fn new(id: SessionId) -> Self {
        Self { id, seq: 0, discarded: false, running: None }
    }

    /// Starts a transaction.
    pub(crate) fn begin(
        &mut self,
        txn: TxnId,
        number: u64,
        plan: Rc<Plan>,
        now: Nanos,
        cx: (&Rules, &Programs),
        out: &mut Vec<Request>,
    ) {
        let mut protocol = Coordination::default();
        protocol.begin(txn);
        protocol.write(true);
        self.running = Some(Running {
            plan: plan.clone(),
            number,
            began: now,
            found: Vec::new(),
            txn,
            protocol,
            step: Step::None,
            calls: Vec::new(),
            round: 0,
            fragments: FragmentRound::new(0),
            told: false,
        });
        if let Some(fragment) = plan.one_shot() {
            let fails = plan.abort != Abort::No;
            let (program, env) = cx.1.update(&fragment.keys, number, fails);
            let command = Command::OneShot(program, env);
            return self.call(fragment.at, command, Purpose::OneShot, now, out);
        }
        let one_round = plan.rounds.len() == 1 && !self.discarded;
        let awaits_quiet = match cx.0.exclusive(&plan.partitions()) {
            ExclusiveAccess::Never => return self.next_round(now, cx, out),
            ExclusiveAccess::IfUnlocked => false,
            ExclusiveAccess::AfterConflict if one_round => {
                if let Some(running) = &mut self.running {
                    running.protocol.run_optimistically(&plan.partitions());
                }
                return self.next_round(now, cx, out);
            }
            ExclusiveAccess::WhenUnlocked | ExclusiveAccess::AfterConflict => ROUNDS > 0,
        };
        if cx.0.central {
            return self.next_round(now, cx, out);
        }
        self.step(Step::Acquire, now, cx, out, |protocol, outgoing| {
            let partitions = &plan.partitions();
            protocol.acquire(AccessRequest { partitions, awaits_quiet, one_round }, outgoing);
        });
    }

    /// Returns true if this transaction runs.
    pub(crate) fn runs(&self, txn: TxnId) -> bool {
        self.running.as_ref().is_some_and(|running| running.txn == txn)
    }

    /// Returns true if it runs a transaction at one partition.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.plan.is_one_shot())
    }

    /// Returns the running transaction if its decision is being logged.
    pub(crate) fn logging(&self) -> Option<TxnId> {
        self.running.as_ref().filter(|r| r.step == Step::Log).map(|running| running.txn)
    }

    /// Loses everything. Returns the running transaction, with its outcome as far as its client
    /// knows.
    pub(crate) fn crash(&mut self) -> Option<(Running, Outcome)> {
        let running = self.running.take().filter(|running| !running.told)?;
        let one_shot = running.calls.iter().any(|call| call.purpose == Purpose::OneShot);
        let may_commit = one_shot || running.step == Step::Log;
        Some((running, if may_commit { Outcome::Unknown } else { Outcome::Aborted }))
    }

    fn call(
        &mut self,
        to: PartitionId,
        command: Command,
        purpose: Purpose,
        now: Nanos,
        out: &mut Vec<Request>,
    ) {
        let Some(running) = &mut self.running else { return };
        self.seq += 1;
        let entry = Entry { txn: running.txn, session: self.id, seq: self.seq, command };
        out.push(Request::Send(to, entry.clone()));
        let (first_sent, last_sent) = (now, now);
        running.calls.push(Call { to, entry, purpose, first_sent, last_sent });
    }

    fn tell(&self, to: PartitionId, command: Command, out: &mut Vec<Request>) {
        let Some(running) = &self.running else { return };
        let entry = Entry { txn: running.txn, session: self.id, seq: 0, command };
        out.push(Request::Send(to, entry));
    }

    /// Starts a step of the protocol.
    fn step(
        &mut self,
        step: Step,
        now: Nanos,
        cx: (&Rules, &Programs),
        out: &mut Vec<Request>,
        start: impl FnOnce(&mut Coordination, &mut Vec<Outgoing>),
    ) {
        let Some(running) = &mut self.running else { return };
        running.step = step;
        let mut outgoing = Vec::new();
        start(&mut running.protocol, &mut outgoing);
        self.carry_out(outgoing, now, cx, out);
    }

    fn carry_out(
        &mut self,
        outgoing: Vec<Outgoing>,
        now: Nanos,
        cx: (&Rules, &Programs),
        out: &mut Vec<Request>,
    ) {
        for outgoing in outgoing {
            match outgoing {
                Outgoing::Send(to, control) => {
                    let control = self.planted(to, control, cx.0);
                    match control.is_answered() {
                        true => {
                            let command = Command::Control(control);
                            self.call(to, command, Purpose::Protocol, now, out);
                        }
                        false => self.tell(to, Command::Control(control), out),
                    }
                }
                Outgoing::Prepare(to) => {
                    self.call(to, Command::Prepare, Purpose::Protocol, now, out);
                }
                Outgoing::Log => self.log(now, cx, out),
                Outgoing::Done(result) => self.step_done(result, now, cx, out),
            }
        }
    }

    fn planted(&self, to: PartitionId, control: Control, rules: &Rules) -> Control {
        let first = self.running.as_ref().and_then(|r| r.protocol.participants().first().copied());
        match control {
            Control::Finish { commit: None }
                if rules.bug == Some(PlantedBug::HalfAbort) && first == Some(to) =>
            {
                Control::Finish { commit: Some(COMMITTED) }
            }
            control => control,
        }
    }

    fn log(&mut self, now: Nanos, cx: (&Rules, &Programs), out: &mut Vec<Request>) {
        let Some(running) = &mut self.running else { return };
        running.step = Step::Log;
        if cx.0.bug == Some(PlantedBug::UnloggedDecision) {
            return self.logged(now, cx, out);
        }
        out.push(Request::Log(running.txn));
    }

    /// Continues after the decision is durable: the transaction has committed.
    pub(crate) fn logged(&mut self, now: Nanos, cx: (&Rules, &Programs), out: &mut Vec<Request>) {
        let Some(running) = &mut self.running else { return };
        running.told = true;
        out.push(Request::Tell(Outcome::Committed));
        self.step(Step::Commit, now, cx, out, |protocol, outgoing| {
            protocol.logged(COMMITTED, outgoing);
        });
    }

    fn step_done(
        &mut self,
        result: Result<bool, Failure>,
        now: Nanos,
        cx: (&Rules, &Programs),
        out: &mut Vec<Request>,
    ) {
        let Some(running) = &mut self.running else { return };
        match (std::mem::replace(&mut running.step, Step::None), result) {
            (Step::Acquire, Ok(_)) => self.next_round(now, cx, out),
            (Step::Settle, Ok(_)) => self.prepare(now, cx, out),
            (Step::Acquire | Step::Settle | Step::Prepare, Err(failure)) => {
                self.abort(is_temporary(&failure), now, cx, out);
            }
            (Step::Commit, _) => {
                self.discarded = false;
                out.push(Request::Over { txn: running.txn, repeat: false });
            }
            (Step::Abort { repeat }, _) => {
                self.discarded = repeat && (self.discarded || running.protocol.is_undone());
                running.told = true;
                out.push(Request::Tell(Outcome::Aborted));
                out.push(Request::Over { txn: running.txn, repeat });
            }
            (Step::None | Step::Prepare | Step::Log, _) => {}
        }
    }

    /// Sends the next round of fragments, or ends the transaction after the last.
    fn next_round(&mut self, now: Nanos, cx: (&Rules, &Programs), out: &mut Vec<Request>) {
        let Some(running) = &mut self.running else { return };
        let (plan, at, number) = (running.plan.clone(), running.round, running.number);
        let Some(round) = plan.rounds.get(at) else { return self.end(now, cx, out) };
        running.round += 1;
        let one_round = plan.rounds.len() == 1 && !self.discarded;
        let requests = match cx.0.exclusive(&plan.partitions()) {
            ExclusiveAccess::Never => false,
            ExclusiveAccess::AfterConflict => !one_round,
            ExclusiveAccess::IfUnlocked | ExclusiveAccess::WhenUnlocked => true,
        };
        let access = (cx.0.central && requests && at == 0).then_some(FirstFragment { one_round });
        running.fragments = FragmentRound::new(round.len());
        for fragment in round {
            if let Some(running) = &mut self.running {
                running.protocol.join(fragment.at);
            }
            let last = cx.0.votes_ride
                && !plan.rounds[at + 1..].iter().flatten().any(|later| later.at == fragment.at);
            let fails = plan.abort == Abort::Fragment(at, fragment.at);
            let (program, env) = cx.1.update(&fragment.keys, number, fails);
            let optimistic =
                self.running.as_ref().is_some_and(|running| running.protocol.is_optimistic());
            let command = Command::Fragment { program, env, last, access, optimistic };
            self.call(fragment.at, command, Purpose::Fragment, now, out);
        }
    }

    fn end(&mut self, now: Nanos, cx: (&Rules, &Programs), out: &mut Vec<Request>) {
        let Some(running) = &self.running else { return };
        if running.plan.abort == Abort::AtEnd {
            self.abort(false, now, cx, out);
        } else if running.protocol.is_settled() {
            self.prepare(now, cx, out);
        } else {
            self.step(Step::Settle, now, cx, out, Coordination::settle);
        }
    }

    fn prepare(&mut self, now: Nanos, cx: (&Rules, &Programs), out: &mut Vec<Request>) {
        let start = match cx.0.bug {
            Some(PlantedBug::SkippedVote) => Coordination::commit,
            _ => Coordination::prepare,
        };
        self.step(Step::Prepare, now, cx, out, start);
    }

    fn abort(&mut self, repeat: bool, now: Nanos, cx: (&Rules, &Programs), out: &mut Vec<Request>) {
        if let Some(running) = &mut self.running {
            // What is unanswered is superseded.
            running.calls.clear();
        }
        self.step(Step::Abort { repeat }, now, cx, out, Coordination::abort);
    }

    /// Continues with an answer. Answers to other calls than the unanswered ones are dropped.
    pub(crate) fn answered(
        &mut self,
        seq: u32,
        answer: &Answer,
        now: Nanos,
        cx: (&Rules, &Programs),
        out: &mut Vec<Request>,
    ) {
        let Some(running) = &mut self.running else { return };
        let Some(at) = running.calls.iter().position(|call| call.entry.seq == seq) else { return };
        let call = running.calls.swap_remove(at);
        running.protocol.note(&answer.result);
        match call.purpose {
            Purpose::OneShot => {
                let outcome = match &answer.result {
                    Ok(reply) => {
                        running.found.extend(found(&reply.rows));
                        Outcome::Committed
                    }
                    Err(_) => Outcome::Aborted,
                };
                running.told = true;
                out.push(Request::Tell(outcome));
                let repeat = answer.result.as_ref().is_err_and(is_temporary);
                out.push(Request::Over { txn: running.txn, repeat });
            }
            Purpose::Protocol => {
                let mut outgoing = Vec::new();
                running.protocol.answered(call.to, &answer.result, &mut outgoing);
                self.carry_out(outgoing, now, cx, out);
            }
            Purpose::Fragment => {
                if answer.votes {
                    running.protocol.voted(call.to);
                }
                if let Ok(reply) = &answer.result {
                    running.found.extend(found(&reply.rows));
                }
                let failure = answer.result.as_ref().err().cloned();
                if let Some(error) = running.fragments.answered(failure) {
                    self.cancel(&error, out);
                }
                self.continue_round(now, cx, out);
            }
        }
    }

    fn continue_round(&mut self, now: Nanos, cx: (&Rules, &Programs), out: &mut Vec<Request>) {
        let Some(running) = &mut self.running else { return };
        if !running.fragments.is_over() {
            return;
        }
        let fragments = std::mem::replace(&mut running.fragments, FragmentRound::new(0));
        match fragments.failed() {
            Some(failure) => self.abort(is_temporary(&failure), now, cx, out),
            None => self.next_round(now, cx, out),
        }
    }

    /// Ends the unanswered fragments with this error.
    fn cancel(&self, error: &SqlError, out: &mut Vec<Request>) {
        let Some(running) = &self.running else { return };
        for call in running.calls.iter().filter(|call| call.purpose == Purpose::Fragment) {
            self.tell(call.to, Command::Cancel(error.clone()), out);
        }
    }

    /// A partition to which it had exclusive access could not continue at once.
    pub(crate) fn stalled(&mut self, txn: TxnId, out: &mut Vec<Request>) {
        let Some(running) = self.running.as_mut().filter(|running| running.txn == txn) else {
            return;
        };
        let mut outgoing = Vec::new();
        running.protocol.stalled(&mut outgoing);
        for outgoing in outgoing {
            if let Outgoing::Send(to, control) = outgoing {
                self.tell(to, Command::Control(control), out);
            }
        }
    }

    /// The transaction was undone because one ahead of it was.
    pub(crate) fn undone(&mut self, txn: TxnId, out: &mut Vec<Request>) {
        if let Some(running) = &mut self.running
            && running.protocol.undo(txn)
        {
            self.cancel(&Failure::undone(), out);
        }
    }

    /// Repeats unanswered calls, and cancels fragments that have waited for too long.
    pub(crate) fn remind(&mut self, now: Nanos, rules: &Rules, out: &mut Vec<Request>) {
        let Some(running) = &mut self.running else { return };
        let mut late = false;
        for call in &mut running.calls {
            late |= call.purpose == Purpose::Fragment
                && now.saturating_sub(call.first_sent) >= rules.cancel_after;
            if now.saturating_sub(call.last_sent) >= rules.repeat_after {
                call.last_sent = now;
                out.push(Request::Send(call.to, call.entry.clone()));
            }
        }
        if late {
            let text = "canceling statement due to lock timeout";
            self.cancel(&SqlError::new(SqlState::DEADLOCK, text), out);
        }
    }
}

/// Returns true if the transaction may succeed when it is repeated: others have prevented it.
fn is_temporary(failure: &Failure) -> bool {
    match failure {
        Failure::Sql(error) => error.state() == SqlState::DEADLOCK,
        Failure::StalePlan | Failure::NeedsSnapshot | Failure::Undone => true,
    }
}

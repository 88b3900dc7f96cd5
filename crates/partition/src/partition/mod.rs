//! The partition: receives messages, runs tasks, suspends and resumes them.
//!
//! Invariants
//! 1. Every message gets exactly one reply, because a task holds its origin. Exceptions: `Resume`,
//!    `Unavailable`, `Unblock`, `AwaitsClient`, `Forget`, `Release`, `Cancel`, `GiveUp`, `HotRows`
//!    and `Report`.
//! 2. A one-shot that is not in `txns` has no changes, no locks and no pending reply.
//! 3. Whenever `on_message` returns, every uncommitted change is protected by locks of its
//!    transaction, or is in trees that no one else can see. A run without locks either ends before
//!    that or takes the table's lock first.
//! 4. A transaction is in `txns` while it holds a lock, waits for one, or blocks the partition.
//! 5. While there is work left (a ready transaction, a stranded one to retry, or a message in line
//!    that could be processed), a message is being handled or an [`Out::Yield`] of [`NOBODY`] is
//!    pending.
//!
//! Locking: none; one thread at a time has the partition. After a crash the log remains: recovery
//! undoes transactions without a commit.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, sections 3 and 4 (fragments, schemes).

mod blocking;
mod committed;
mod context;
mod fence;
mod finish;
mod general;
mod hot;
mod increments;
mod interrupt;
mod one_shot;
mod optimistic;
mod quiet;
mod report;
mod retire;
mod snapshot;
mod speculation;
mod spill;
mod stranded;
mod tables;

pub use self::report::{CascadeCounts, Cascades, PartitionReport, PartitionTimes};

use self::blocking::Blocking;
use self::fence::Fence;
use self::report::Measured;
use self::stranded::Stranded;
use self::tables::Tables;
use crate::exec::{AccessSets, Scratch, Stop};
use crate::limits::Limits;
use crate::lock::{Event, InLine, LockTable, PARTITION, Wait};
use crate::message::{Body, Failure, FragmentOrigin, Message, NOBODY, Out, Outbox, Reply};
use crate::reads::Gathering;
use crate::scheme::{Scheme, SchemeKind};
use crate::snapshots::Snapshots;
use crate::txn::{Job, Task, Then, Txn, Waiting};
use crate::versioned::Versioned;
use crate::versions::Versions;
use clearway_storage::{Store, Trees, UndoLog};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PartitionId, SqlError, TxnId};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// A partition: its trees, its locks, its transactions.
pub struct Partition<T: Trees = Store> {
    id: PartitionId,
    trees: Versioned<T>,
    scheme_kind: SchemeKind,
    scheme: &'static dyn Scheme,
    locks: LockTable,
    blocking: Blocking,
    fence: Fence,
    stranded: Stranded,
    limits: Limits,
    txns: HashMap<TxnId, Box<Txn<T::Log>>>,
    /// One that has ended, for the next to use its memory.
    spare: Option<Box<Txn<T::Log>>>,
    /// Transactions whose wait for a lock is over and has been reported; they continue in this
    /// order.
    ready: VecDeque<TxnId>,
    /// Whether an [`Out::Yield`] of the partition itself is pending.
    behind: bool,
    /// The end of the last commit record of a transaction that changed anything here.
    last_commit: Lsn,
    /// Number of waits so far, for locks and in line.
    waits: u64,
    /// Number of wait and line events reported so far.
    reports: u64,
    tables: Tables,
    /// The transactions that wait for the outcome of each of these transactions.
    undecided: HashMap<TxnId, Vec<TxnId>>,
    scratch: Scratch,
    /// What the optimistic run in progress reads and changes.
    sets: AccessSets,
    /// What became of rows that were read.
    gathering: Gathering,
    measured: Measured,
}

/// What happens to a transaction after its task has run.
enum After {
    /// It continues to exist.
    Keep,
    /// It is over.
    End,
}

impl<T: Trees> Partition<T> {
    /// Creates a partition of these trees.
    pub fn new(trees: T, limits: Limits, snapshots: Arc<Snapshots>) -> Self {
        let limits = limits.sane();
        let trees = Versioned {
            current: trees,
            versions: Versions::new(snapshots, limits.version_memory, limits.version_linger),
        };
        Self {
            id: trees.partition(),
            trees,
            scheme_kind: limits.scheme,
            scheme: limits.scheme.scheme(),
            locks: LockTable::new(limits.many_locks),
            blocking: Blocking::default(),
            fence: Fence::default(),
            stranded: Stranded::default(),
            limits,
            txns: HashMap::new(),
            spare: None,
            ready: VecDeque::new(),
            behind: false,
            last_commit: Lsn(0),
            waits: 0,
            reports: 0,
            tables: Tables::default(),
            undecided: HashMap::new(),
            scratch: Scratch::default(),
            sets: AccessSets::default(),
            gathering: Gathering::new(limits.learn_after),
            measured: Measured::default(),
        }
    }

    /// Returns the partition's number.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Returns its trees, for startup and shutdown.
    pub fn trees(&mut self) -> &mut T {
        &mut self.trees.current
    }

    /// Processes a message and then up to [`Limits::turns`] resumed calls. Leaves in `out` what the
    /// environment must do.
    pub fn on_message(&mut self, message: Message, out: &mut Outbox) {
        self.trees.versions.tidy();
        self.handle(message, out);
        if !self.blocking.quiet.is_empty() {
            self.end_quiet_waits(out);
        }
        self.issue_writes(out);
    }

    #[inline]
    fn handle(&mut self, message: Message, out: &mut Outbox) {
        if message.txn == NOBODY {
            self.behind = false;
        } else {
            self.accept(message, out);
        }
        if self.is_quiet() {
            return;
        }
        for _ in 0..self.limits.turns {
            self.report_events(out);
            if let Some(txn) = self.ready.pop_front() {
                self.resume(txn, out);
            } else if let Some((wait, message)) = self.blocking.next() {
                self.report_granted(message.txn, wait, out);
                self.dispatch(message, out);
            } else if !self.run_stranded(out) {
                return;
            }
        }
        self.report_events(out);
        self.yield_if_more(out);
    }

    /// Enforces invariant 5.
    fn yield_if_more(&mut self, out: &mut Outbox) {
        let more = !self.ready.is_empty() || self.blocking.has_next() || self.has_stranded_work();
        if more && !std::mem::replace(&mut self.behind, true) {
            out.push(Out::Yield { partition: self.id, txn: NOBODY });
        }
    }

    /// Returns true if the message has left no further work, which is the usual case.
    #[inline]
    fn is_quiet(&self) -> bool {
        let waits = self.locks.has_events() || self.blocking.has_next();
        !waits && self.ready.is_empty() && !self.has_stranded_work()
    }

    #[inline]
    fn accept(&mut self, message: Message, out: &mut Outbox) {
        if blocking::may_wait(&message.body) {
            PARTITION.request();
            if self.blocking.stops(&message) {
                // The task of one that ends continues by its resumption, and no other will come.
                let is_resumption = matches!(message.body, Body::Resume(_));
                if self.is_undone(message.txn) && !is_resumption {
                    return self.reply(message.origin, Err(Failure::Undone), out);
                }
                return self.wait_in_line(message, out);
            }
            if !self.blocking.quiet.is_empty() && self.waits_behind_quiet(&message.body) {
                return self.wait_behind_quiet(message, out);
            }
        }
        self.dispatch(message, out);
    }

    fn dispatch(&mut self, message: Message, out: &mut Outbox) {
        let Message { txn, stake, origin, body } = message;
        match body {
            Body::OneShot { program, env, rows } if self.blocking.is_taken() => {
                self.speculate(txn, origin, program, env, rows, out)
            }
            Body::OneShot { program, env, rows } => {
                self.one_shot(txn, origin, program, env, rows, out)
            }
            Body::Resume(held) => {
                self.resume(txn, out);
                drop(held);
            }
            Body::Cancel(error) => self.cancel(txn, error, out),
            Body::GiveUp { wait, error } => {
                if self.waiting(txn) == Waiting::Lock(wait) {
                    self.cancel(txn, error, out);
                }
            }
            Body::Unavailable { request, error } => self.unavailable(txn, request, error, out),
            Body::Finish { commit } => {
                self.stranded.retry_for_space();
                self.finish(txn, origin, commit, out);
            }
            Body::Block { one_round } => self.block(txn, origin, one_round, out),
            Body::Unblock => self.unblock(txn, out),
            Body::AwaitQuiet => self.await_quiet(Message { txn, stake, origin, body }, out),
            Body::AwaitsClient => self.awaits_client(txn, out),
            Body::Forget(statement) => self.forget(txn, statement),
            Body::Release(savepoint) => self.release_savepoint(txn, savepoint),
            Body::HotRows(take) => self.report_hot_rows(take, out),
            Body::Report(take) => self.report(take, out),
            Body::SetScheme(_) => self.set_scheme(Message { txn, stake, origin, body }, out),
            body => self.general(txn, stake, origin, body, out),
        }
    }

    /// Returns what the transaction's task waits for.
    fn waiting(&self, id: TxnId) -> Waiting {
        self.txns
            .get(&id)
            .and_then(|txn| txn.task.as_ref())
            .map_or(Waiting::No, |task| task.waiting)
    }

    fn resume(&mut self, id: TxnId, out: &mut Outbox) {
        if let Waiting::Resume | Waiting::Pages(_) = self.waiting(id) {
            self.run(id, out);
        }
    }

    /// Reports all wait events immediately, so that a transaction whose wait is over does not
    /// appear to be in a cycle. Tasks that got their locks only wait for their turn.
    fn report_events(&mut self, out: &mut Outbox) {
        while let Some(event) = self.locks.next_event() {
            match event {
                Event::Granted(id) => {
                    if let Some(task) = self.txns.get_mut(&id).and_then(|txn| txn.task.as_mut())
                        && let Waiting::Lock(wait) = task.waiting
                    {
                        task.waiting = Waiting::Resume;
                        self.report_granted(id, wait, out);
                        self.ready.push_back(id);
                    }
                }
                Event::Line(InLine { line, on }) => {
                    self.reject_line(line, &on);
                    out.push(Out::Line { partition: self.id, order: self.next_order(), line, on });
                }
            }
        }
    }

    fn report_granted(&mut self, txn: TxnId, wait: u64, out: &mut Outbox) {
        let (partition, order) = (self.id, self.next_order());
        out.push(Out::Over { txn, partition, order, wait, granted: true });
    }

    fn report_given_up(&mut self, txn: TxnId, wait: u64, out: &mut Outbox) {
        let (partition, order) = (self.id, self.next_order());
        out.push(Out::Over { txn, partition, order, wait, granted: false });
    }

    /// Runs the transaction's task until it replies or is suspended.
    fn run(&mut self, id: TxnId, out: &mut Outbox) {
        let Some(mut txn) = self.txns.remove(&id) else { return };
        if let Some(mut task) = txn.task.take() {
            task.waiting = Waiting::No;
            if let After::End = self.run_task(id, &mut txn, task, out) {
                return;
            }
        }
        self.txns.insert(id, txn);
    }

    fn run_task(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        mut task: Task,
        out: &mut Outbox,
    ) -> After {
        loop {
            self.trees.versions.lend(task.loaded.take());
            let stop = match &mut task.job {
                Job::OneShot(_) => match self.run_one_shot(id, txn, &mut task) {
                    Ok(reply) => {
                        self.reply(task.origin, Ok(reply), out);
                        return After::End;
                    }
                    Err(stop) => stop,
                },
                Job::Speculate(exec) => match self.run_speculated(id, txn, exec) {
                    Ok(()) => {
                        if let Job::Speculate(exec) = task.job {
                            self.hold(id, exec, Ok(()));
                        }
                        return After::Keep;
                    }
                    Err(stop) => stop,
                },
                Job::Finish { commit } => match self.run_finish(id, txn, *commit, out) {
                    Ok(()) => {
                        self.ended(id, &task, out);
                        return After::End;
                    }
                    Err(stop) => stop,
                },
                Job::Undo { to, .. } => {
                    match self.trees.rollback(&mut txn.log, *to, &mut |_, _, _| {}) {
                        Ok(()) => return self.undone(id, txn, task, out),
                        Err(blocked) => blocked.into(),
                    }
                }
                _ => match self.run_general(id, txn, &mut task.job, out) {
                    Ok(reply) => {
                        self.reply(task.origin, Ok(reply), out);
                        if let Job::Statement(statement) = &mut task.job {
                            self.scratch.buffers = statement.exec.take_buffers();
                        }
                        return After::Keep;
                    }
                    Err(stop) => stop,
                },
            };
            if let Some(after) = self.stopped(id, txn, &mut task, stop, out) {
                if task.waiting != Waiting::No {
                    txn.task = Some(task);
                }
                return after;
            }
        }
    }

    /// Suspends or fails a task. Returns `None` to run it again immediately.
    fn stopped(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        task: &mut Task,
        stop: Stop,
        out: &mut Outbox,
    ) -> Option<After> {
        let partition = self.id;
        if matches!(task.job, Job::Speculate(_)) {
            return self.speculation_stopped(id, txn, task, stop, out);
        }
        if self.sets.is_open() && self.discards_run(id, txn, task, &stop) {
            return None;
        }
        let stop = self.resolve_behind(id, txn, stop, out)?;
        if matches!(stop, Stop::MissingPage(_) | Stop::Log(_) | Stop::Spilled(_) | Stop::Slice) {
            if self.blocking.is_by(id) {
                self.unblock(id, out);
                out.push(Out::Stalled { to: task.origin });
            } else if matches!(task.job, Job::Statement(_)) && self.blocking.chain.is_behind(id) {
                txn.doomed = true;
                return self.fail(id, txn, task, Failure::Undone, out);
            }
        }
        let stop = match &mut task.job {
            Job::OneShot(_) => self.one_shot_stopped(id, txn, task, stop)?,
            _ => stop,
        };
        if task.sees_snapshot() {
            task.loaded = self.trees.versions.spill.set_aside();
        }
        match stop {
            Stop::MissingPage(wants) => {
                let request = self.next_wait();
                task.waiting = Waiting::Pages(request);
                let wants = task.recall(wants, txn.log.mark());
                out.push(Out::Fetch { partition, txn: id, request, wants });
            }
            Stop::Log(read) => {
                task.waiting = Waiting::Resume;
                out.push(Out::ReadLog { partition, txn: id, read });
            }
            Stop::Spilled(missing) => {
                task.waiting = Waiting::Resume;
                out.push(self.read_spilled(id, task, missing));
            }
            Stop::Slice => {
                task.waiting = Waiting::Resume;
                out.push(Out::Yield { partition, txn: id });
            }
            Stop::Wait(Wait { line: InLine { line, on }, class, caller }) => {
                if let Some(error) = self.stranded.among(&on) {
                    self.locks.stop_waiting(id);
                    return self.fail(id, txn, task, Failure::Sql(error), out);
                }
                self.report_events(out);
                self.waits_for_lock(txn, task, out);
                let (wait, order) = (self.next_wait(), self.next_order());
                task.waiting = Waiting::Lock(wait);
                let (stake, requester) = (task.job.stake(txn.stake), task.job.requester());
                let (wanted, line) = (self.locks.wanted(line), Some(line));
                out.push(Out::Waits {
                    txn: id,
                    partition,
                    order,
                    wait,
                    stake,
                    requester,
                    line,
                    wanted,
                    class,
                    caller,
                });
            }
            Stop::Ahead => task.waiting = Waiting::Resume,
            Stop::Commit(writer) => {
                task.waiting = Waiting::Resume;
                self.undecided.entry(writer).or_default().push(id);
            }
            Stop::Conflict | Stop::Reclaim(..) => {
                let error = SqlError::internal("a locking transaction met a conflict");
                return self.fail(id, txn, task, Failure::Sql(error), out);
            }
            Stop::Fail(failure) => return self.fail(id, txn, task, failure, out),
        }
        Some(After::Keep)
    }

    /// Turns a failed task into the undo of its changes. If an undo fails, the caller gets a reply
    /// and the transaction remains.
    fn fail(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        task: &mut Task,
        failure: Failure,
        out: &mut Outbox,
    ) -> Option<After> {
        if task.job.must_continue() {
            txn.short = false;
            self.strand(id, task, failure, out);
            task.waiting = Waiting::No;
            return Some(After::Keep);
        }
        let (to, then) = match &task.job {
            Job::OneShot(_) => {
                self.cover(id, txn, task);
                (0, Then::End(failure))
            }
            Job::Statement(s) => {
                txn.reads.forget();
                (s.mark, self.after_failure(id, failure))
            }
            _ => (txn.log.mark(), Then::Fail(failure)),
        };
        task.job = Job::Undo { to, then };
        None
    }

    /// Completes an undo.
    fn undone(&mut self, id: TxnId, txn: &mut Txn<T::Log>, task: Task, out: &mut Outbox) -> After {
        let Job::Undo { then, .. } = task.job else { return After::Keep };
        self.sets.end();
        match then {
            Then::Fail(failure) => self.reply(task.origin, Err(failure), out),
            Then::Settle(failure) => {
                return self.run_task(
                    id,
                    txn,
                    Task::new(task.origin, Job::Settle(Some(failure))),
                    out,
                );
            }
            Then::Done => self.reply(task.origin, Ok(Reply::default()), out),
            Then::Speculated { exec, failure, cancelled } => {
                let call = (task.origin, exec);
                return self.speculation_undone(id, txn, call, failure, cancelled, out);
            }
            Then::Discarded(shot) => {
                return self.run_discarded(id, txn, (task.origin, shot), out);
            }
            Then::End(failure) => {
                self.end_log(id, txn);
                self.locks.release(id);
                self.reply(task.origin, Err(failure), out);
                return After::End;
            }
        }
        After::Keep
    }

    fn reply(&self, to: FragmentOrigin, reply: Result<Reply, Failure>, out: &mut Outbox) {
        let shows_nothing = canary::on(Bug::UnheldError) && reply.is_err();
        let depends_on = if shows_nothing { Lsn(0) } else { self.last_commit };
        out.push(Out::Reply { to, partition: self.id, reply, depends_on });
    }
}

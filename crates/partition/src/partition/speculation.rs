//! Speculation: one-shots run behind a multi-partition one-shot that has finished here and waits
//! for its decision only.
//!
//! The transaction that has the partition and those behind it are the *chain*, in the order of
//! their changes. The first one is decided by its coordinator alone. Each member depends on all
//! before it.
//!
//! Invariants
//! 1. Only the last member changes anything, except for undo. A transaction joins when all others
//!    have finished: a multi-partition member has run its only statement here, a single-partition
//!    one has run completely.
//! 2. A member commits after all before it, and is undone after all behind it.
//! 3. The reply of a single-partition member is held until all before it have committed. That of a
//!    multi-partition member is sent at once and marked with this partition ([`Reply::behind`]):
//!    its coordinator commits once [`Body::Settle`] has been answered. An error can reveal what is
//!    undone later, so errors of both are held.
//! 4. Only members see the chain's changes. While there is one, nobody holds a lock here, and the
//!    messages of others wait in line. A first member that gives up the partition takes locks on
//!    the tables that the chain has used. Members that cannot be undone at once are then *detached*
//!    and protected by these locks until it ends.
//! 5. A member does not wait for the disk, does not exceed a slice, and waits for no lock. If it
//!    would, it is undone. A single-partition member then runs when the first one has ended; a
//!    multi-partition one is told ([`Failure::Undone`]), and its session runs it again.
//! 6. If a member aborts, those behind it are undone. Single-partition ones return to the front of
//!    the line in their order. Multi-partition ones are *doomed*: their sessions end them, which
//!    undoes their changes and discards those behind them elsewhere, too.
//! 7. A wait in the chain is not an edge of the waits-for graph, because it is in no cycle. A
//!    multi-partition member has been granted all its partitions before it runs, so the order of
//!    two members is the same at all partitions. One that waits for anything else is not waited
//!    for: by (4) and (5) it leaves the chain, or nothing is behind it.
//! 8. A chain has at most [`MOST`] members.
//! 9. Nothing joins while a change of the scheme waits (`fence.rs`).
//!
//! Locking: none. A crash leaves losers that have changed each other's rows. Recovery undoes the
//! newest change first, whichever transaction made it, so this restores what was committed.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.2. There, one coordinator orders all
//! multi-partition transactions. Here their order is that in which they get their partitions.

mod planted;

use super::{After, Partition};
use crate::exec::{Exec, Locking, Stop, only_reads, table_of};
use crate::lock::{Acquired, Mode, Target};
use crate::message::{Body, Failure, FragmentOrigin, Message, Out, Outbox, Reply, Stake};
use crate::scheme::SchemeCounts;
use crate::txn::{Job, Task, Then, Txn};
use clearway_ir::Program;
use clearway_ir::program::Env;
use clearway_storage::{Trees, TxnMode, UndoLog};
use clearway_sync::canary::{self, Bug};
use clearway_types::{RowBatch, SqlError, TableId, TxnId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of transactions in a chain. Further ones wait in line.
pub(super) const MOST: usize = 256;

/// A table that a transaction has used, and whether it may have changed it.
pub(super) type Used = (TableId, bool);

/// The transactions behind the one that has the partition.
#[derive(Default)]
pub(super) struct Chain {
    /// The first member sends one statement.
    one_round: bool,
    /// The first member has finished here.
    finished: bool,
    /// Whether a transaction may join.
    open: bool,
    /// A transaction could not run behind the present first member.
    stalled: bool,
    /// A change of the scheme waits for the end of the chain.
    closed: bool,
    behind: VecDeque<Member>,
    /// Members to undo that are protected by the locks of this transaction.
    detached: Vec<(TxnId, VecDeque<Member>)>,
    pub counts: SchemeCounts,
}

struct Member {
    txn: TxnId,
    used: Option<Used>,
    kind: Kind,
}

enum Kind {
    Single(Single),
    Multi { finished: bool },
}

/// A single-partition member.
struct Single {
    origin: FragmentOrigin,
    /// Its execution and result. `None` while it runs or is being undone.
    done: Option<(Box<Exec>, Result<(), Failure>)>,
    /// It was cancelled after it had run. This counts only if it is undone.
    cancelled: Option<SqlError>,
}

impl Chain {
    /// Begins a chain with one member.
    pub(super) fn begin(&mut self, one_round: bool) {
        (self.one_round, self.finished, self.open, self.stalled) = (one_round, false, false, false);
    }

    /// Returns true if the message can run behind the chain now.
    #[inline]
    pub(super) fn admits(&self, body: &Body) -> bool {
        self.open && matches!(body, Body::OneShot { .. } | Body::Block { one_round: true })
    }

    /// Returns true if the transaction is a member other than the first.
    #[inline]
    pub(super) fn is_behind(&self, txn: TxnId) -> bool {
        !self.behind.is_empty() && self.behind.iter().any(|member| member.txn == txn)
    }

    /// Returns true if members are detached.
    #[inline]
    pub(super) fn has_detached(&self) -> bool {
        !self.detached.is_empty()
    }

    /// Returns true if members are detached and protected by this transaction's locks.
    #[inline]
    pub(super) fn is_owner(&self, txn: TxnId) -> bool {
        self.detached.iter().any(|(owner, _)| *owner == txn)
    }

    /// Returns the place of the members behind this one: a detached chain or, if `None`, the
    /// partition's, and the index of the first.
    fn place_behind(&self, txn: TxnId, is_first: bool) -> Option<(Option<usize>, usize)> {
        let find = |members: &VecDeque<Member>| members.iter().position(|m| m.txn == txn);
        if is_first {
            return Some((None, 0));
        }
        if let Some(at) = find(&self.behind) {
            return Some((None, at + 1));
        }
        self.detached.iter().enumerate().find_map(|(list, (owner, members))| {
            let at = if *owner == txn { Some(0) } else { find(members).map(|at| at + 1) };
            Some((Some(list), at?))
        })
    }

    fn members(&mut self, list: Option<usize>) -> &mut VecDeque<Member> {
        match list {
            None => &mut self.behind,
            Some(list) => &mut self.detached[list].1,
        }
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.behind.iter_mut().chain(self.detached.iter_mut().flat_map(|(_, members)| members))
    }

    fn member(&mut self, txn: TxnId) -> Option<&mut Member> {
        self.all_mut().find(|member| member.txn == txn)
    }

    /// Records that nothing may join behind this member any more.
    fn close_behind(&mut self, txn: TxnId, is_first: bool) {
        self.open = false;
        if is_first {
            self.finished = false;
        } else if let Some(Member { kind: Kind::Multi { finished }, .. }) = self.member(txn) {
            *finished = false;
        }
    }

    /// Enforces invariants 1, 8 and 9 after a change.
    fn reopen(&mut self) {
        let mut last = self.finished;
        for member in self.behind.iter().rev() {
            match &member.kind {
                Kind::Single(Single { done: Some(_), .. }) => continue,
                Kind::Single(_) => last = false,
                Kind::Multi { finished } => last = *finished,
            }
            break;
        }
        self.open = last && !self.stalled && !self.closed && self.behind.len() < MOST;
    }

    /// Sets whether the chain is closed to new members.
    pub(super) fn close(&mut self, yes: bool) {
        self.closed = yes;
        self.reopen();
    }
}

impl<T: Trees> Partition<T> {
    /// Adds a multi-partition transaction to the chain.
    pub(super) fn block_behind(&mut self, id: TxnId, origin: FragmentOrigin, out: &mut Outbox) {
        self.join(id, None, Kind::Multi { finished: false });
        let txn = self.txns.entry(id).or_insert_with(|| Box::new(Txn::of_one_shot(id)));
        // It may be undone before its first statement arrives.
        (txn.short, txn.origin) = (true, origin);
        self.reply(origin, Ok(Reply { count: 1, ..Reply::default() }), out);
    }

    fn join(&mut self, txn: TxnId, used: Option<Used>, kind: Kind) {
        let chain = &mut self.blocking.chain;
        chain.behind.push_back(Member { txn, used, kind });
        chain.open = false;
        chain.counts.speculated += 1;
    }

    /// Runs a one-shot behind the chain.
    pub(super) fn speculate(
        &mut self,
        id: TxnId,
        origin: FragmentOrigin,
        program: Arc<Program>,
        env: Arc<Env>,
        rows: Option<RowBatch>,
        out: &mut Outbox,
    ) {
        let used = (table_of(&program).id, !only_reads(&program));
        self.join(id, Some(used), Kind::Single(Single { origin, done: None, cancelled: None }));
        let most_bytes = self.limits.one_shot_bytes;
        let exec = Box::new(Exec::of_one_shot(program, env, rows, most_bytes));
        let mut txn = Box::new(Txn::of_one_shot(id));
        let task = Task::new(origin, Job::Speculate(exec));
        if let After::Keep = self.run_task(id, &mut txn, task, out) {
            self.txns.insert(id, txn);
            if canary::on(Bug::EarlySpeculated) {
                self.release_early(id, out);
            }
        }
    }

    pub(super) fn run_speculated(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        exec: &mut Exec,
    ) -> Result<(), Stop> {
        self.check_plan(&exec.program, None)?;
        let (mut cx, _) = self.cx(id, &mut txn.log, Locking::None, TxnMode::Logged, None);
        cx.moved = Some(&mut txn.moved);
        match exec.run(&mut cx)? {
            true => Err(Stop::Fail(Failure::NeedsSnapshot)),
            false => Ok(()),
        }
    }

    /// Holds the result of a single-partition member.
    pub(super) fn hold(&mut self, id: TxnId, exec: Box<Exec>, result: Result<(), Failure>) {
        if let Some(Member { kind: Kind::Single(single), .. }) = self.blocking.chain.member(id) {
            single.done = Some((exec, result));
        }
        self.blocking.chain.reopen();
    }

    /// Undoes a single-partition member that has failed or cannot continue (invariant 5). Returns
    /// `None` if the task continues with the undo.
    pub(super) fn speculation_stopped(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        task: &mut Task,
        stop: Stop,
        out: &mut Outbox,
    ) -> Option<After> {
        let failure = match stop {
            // They reveal nothing, and precede every change.
            Stop::Fail(failure @ (Failure::StalePlan | Failure::NeedsSnapshot)) => {
                self.end_log(id, txn);
                self.blocking.chain.behind.pop_back();
                self.blocking.chain.reopen();
                self.reply(task.origin, Err(failure), out);
                return Some(After::End);
            }
            Stop::Fail(failure) => Some(failure),
            _ => {
                self.blocking.chain.stalled = true;
                None
            }
        };
        if let Job::Speculate(exec) = std::mem::replace(&mut task.job, Job::Settle(None)) {
            let then = Then::Speculated { exec, failure, cancelled: None };
            task.job = Job::Undo { to: 0, then };
        }
        None
    }

    /// Completes the undo of a single-partition member: holds its error, or lets it run again.
    pub(super) fn speculation_undone(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        (origin, mut exec): (FragmentOrigin, Box<Exec>),
        failure: Option<Failure>,
        cancelled: Option<SqlError>,
        out: &mut Outbox,
    ) -> After {
        exec.reset();
        let is_member = self.blocking.chain.is_behind(id);
        if let Some(failure) = failure.filter(|_| is_member) {
            self.hold(id, exec, Err(failure));
            if let Some(Member { kind: Kind::Single(single), .. }) = self.blocking.chain.member(id)
            {
                single.cancelled = cancelled;
            }
            return After::Keep;
        }
        self.end_log(id, txn);
        self.locks.release(id);
        self.leave_chain(id);
        self.run_later(id, origin, exec, cancelled, out);
        After::End
    }

    /// Puts a discarded one-shot at the front of the line, or ends it if it was cancelled.
    fn run_later(
        &mut self,
        txn: TxnId,
        origin: FragmentOrigin,
        mut exec: Box<Exec>,
        cancelled: Option<SqlError>,
        out: &mut Outbox,
    ) {
        self.blocking.chain.counts.discarded += 1;
        exec.reset();
        if let Some(error) = cancelled {
            return self.reply(origin, Err(Failure::Sql(error)), out);
        }
        let (program, env, rows) = exec.into_call();
        let body = Body::OneShot { program, env, rows };
        let message = Message { txn, stake: Stake::Retry(0), origin, body };
        self.blocking.chain.counts.retried += 1;
        self.put_first_in_line(message, out);
    }

    /// Records that the only statement of a transaction with the partition has ended. Returns true
    /// if the transaction is behind others.
    pub(super) fn statement_ended(&mut self, id: TxnId) -> bool {
        let is_first = self.blocking.is_by(id);
        let chain = &mut self.blocking.chain;
        if is_first {
            chain.finished = chain.one_round && self.scheme.speculates();
            chain.reopen();
            return false;
        }
        let Some(member) = chain.behind.back_mut().filter(|member| member.txn == id) else {
            return false;
        };
        member.kind = Kind::Multi { finished: true };
        chain.reopen();
        true
    }

    /// Records the table that a multi-partition member uses, and how. Returns false if the
    /// transaction is not such a member.
    pub(super) fn note_behind(&mut self, id: TxnId, used: Used) -> bool {
        if !self.blocking.chain.is_behind(id) {
            return false;
        }
        if let Some(member) = self.blocking.chain.member(id) {
            member.used = Some(used);
        }
        true
    }

    /// Records the cancellation of a single-partition member that has run. Returns false if the
    /// transaction is none.
    pub(super) fn cancel_behind(&mut self, id: TxnId, error: &SqlError) -> bool {
        let member = self.blocking.chain.member(id);
        let Some(Member { kind: Kind::Single(single @ Single { done: Some(_), .. }), .. }) = member
        else {
            return false;
        };
        single.cancelled = Some(error.clone());
        true
    }

    /// Ends a transaction's part in the chain, after all behind it have been undone if it aborts.
    #[inline]
    pub(super) fn leave_partition(&mut self, id: TxnId, out: &mut Outbox) {
        if self.blocking.is_by(id) {
            self.advance(out);
        } else {
            self.leave_chain(id);
        }
    }

    fn leave_chain(&mut self, id: TxnId) {
        let chain = &mut self.blocking.chain;
        if chain.behind.is_empty() && chain.detached.is_empty() {
            return;
        }
        let others = |member: &Member| member.txn != id;
        chain.behind.retain(others);
        chain.detached.iter_mut().for_each(|(_, members)| members.retain(others));
        chain.detached.retain(|(owner, members)| *owner != id || !members.is_empty());
        chain.reopen();
    }

    /// The first member has ended: commits the single-partition members that follow, and gives the
    /// partition to the next multi-partition one.
    fn advance(&mut self, out: &mut Outbox) {
        self.blocking.clear();
        while let Some(Member { txn: id, used, kind }) = self.blocking.chain.behind.pop_front() {
            let single = match kind {
                Kind::Single(single) => single,
                Kind::Multi { finished } => {
                    self.blocking.give(id, used);
                    (self.blocking.chain.one_round, self.blocking.chain.finished) =
                        (true, finished);
                    self.blocking.chain.reopen();
                    self.wake_settling(id);
                    if let Some(error) = self.stranded.error_of(id) {
                        self.unblock(id, out);
                        self.fail_detached(id, &error, out);
                    }
                    return;
                }
            };
            match single.done {
                Some((exec, result)) => self.end_single(id, single.origin, exec, result, out),
                // It is being undone, and is the last.
                None => self.lock_used(id, used),
            }
        }
        self.pass_fence(out);
    }

    /// Commits a single-partition member, and sends its reply.
    fn end_single(
        &mut self,
        id: TxnId,
        origin: FragmentOrigin,
        mut exec: Box<Exec>,
        result: Result<(), Failure>,
        out: &mut Outbox,
    ) {
        let Some(mut txn) = self.txns.remove(&id) else { return };
        let commit = self.commit_one_shot(id, &mut txn);
        let reply = result.map(|()| {
            let (rows, count) = exec.take_output();
            Reply { commit, ..super::general::answer(rows, count) }
        });
        self.reply(origin, reply, out);
    }

    /// Continues a multi-partition member that waits for those before it: it is the first now.
    fn wake_settling(&mut self, id: TxnId) {
        let task = self.txns.get(&id).and_then(|txn| txn.task.as_ref());
        if task.is_some_and(|task| matches!(task.job, Job::Settle(_))) {
            self.ready.push_back(id);
        }
    }

    /// Locks a table for a transaction that gives up the partition.
    pub(super) fn lock_used(&mut self, id: TxnId, used: impl IntoIterator<Item = Used>) {
        for (table, changes) in used {
            let mode = if changes { Mode::Exclusive } else { Mode::Shared };
            let acquired = self.locks.acquire(id, Target::Table(table), mode);
            assert_eq!(acquired, Acquired::Granted, "no other transaction has a lock");
        }
    }

    /// Undoes the members behind a transaction that gives up the partition. Detaches those that
    /// cannot be undone now, and returns their tables.
    pub(super) fn detach_behind(&mut self, id: TxnId, out: &mut Outbox) -> Vec<Used> {
        if self.blocking.chain.behind.is_empty() {
            return Vec::new();
        }
        // What the undo lacks, it will request when the transaction ends.
        drop(self.discard_behind(id, out));
        let members = std::mem::take(&mut self.blocking.chain.behind);
        let used = members.iter().filter_map(|member| member.used).collect();
        if !members.is_empty() {
            self.blocking.chain.detached.push((id, members));
        }
        used
    }

    /// Fails the one-shots that are detached and protected by the locks of this transaction, which
    /// cannot be undone.
    pub(super) fn fail_detached(&mut self, id: TxnId, error: &SqlError, out: &mut Outbox) {
        let all = self.blocking.chain.detached.iter_mut().filter(|(owner, _)| *owner == id);
        let mut failed = Vec::new();
        for Member { kind, .. } in all.flat_map(|(_, members)| members) {
            if let Kind::Single(single @ Single { done: Some(_), .. }) = kind {
                single.done = None;
                failed.push(single.origin);
            }
        }
        for origin in failed {
            self.reply(origin, Err(Failure::Sql(error.clone())), out);
        }
    }

    /// Enforces invariant 6 before a transaction is undone here. Call it again after a stop.
    pub(super) fn discard_behind(&mut self, id: TxnId, out: &mut Outbox) -> Result<(), Stop> {
        let is_first = self.blocking.is_by(id);
        let Some((list, from)) = self.blocking.chain.place_behind(id, is_first) else {
            return Ok(());
        };
        self.blocking.chain.close_behind(id, is_first);
        let members = self.blocking.chain.members(list).iter().skip(from);
        let multi: Vec<TxnId> = members
            .filter(|member| matches!(member.kind, Kind::Multi { .. }))
            .map(|member| member.txn)
            .collect();
        for txn in multi {
            self.doom(txn, out);
        }
        if canary::on(Bug::DependentsById) {
            planted::sort_by_id(self.blocking.chain.members(list), from);
        }
        while self.blocking.chain.members(list).len() > from {
            self.discard_last(list, out)?;
        }
        Ok(())
    }

    /// Undoes a multi-partition member that cannot stay in the chain, and those behind it. Its
    /// session ends it.
    #[cold]
    pub(super) fn discard(&mut self, id: TxnId, out: &mut Outbox) {
        self.doom(id, out);
        // What the undo lacks, it will request when the transaction ends.
        if self.discard_behind(id, out).is_ok() {
            drop(self.discard_last(None, out));
        }
    }

    /// Returns true if the transaction was undone here and has not ended yet.
    #[cold]
    pub(super) fn is_undone(&self, id: TxnId) -> bool {
        self.txns.get(&id).is_some_and(|txn| txn.doomed)
    }

    /// Tells a multi-partition member that it is undone.
    fn doom(&mut self, id: TxnId, out: &mut Outbox) {
        let Some(mut txn) = self.txns.remove(&id) else { return };
        let first = !std::mem::replace(&mut txn.doomed, true);
        match txn.task.take() {
            // Its own end, which finds less to undo.
            Some(task) if matches!(task.job, Job::Finish { .. }) => txn.task = Some(task),
            Some(task) => self.reply(task.origin, Err(Failure::Undone), out),
            None if first => out.push(Out::Undone { to: txn.origin, txn: id }),
            None => {}
        }
        self.txns.insert(id, txn);
        self.blocking.chain.counts.discarded += u64::from(first);
    }

    /// Undoes the last member of a chain.
    fn discard_last(&mut self, list: Option<usize>, out: &mut Outbox) -> Result<(), Stop> {
        let Some(id) = self.blocking.chain.members(list).back().map(|member| member.txn) else {
            return Ok(());
        };
        let Some(mut txn) = self.txns.remove(&id) else {
            self.blocking.chain.members(list).pop_back();
            return Ok(());
        };
        let undone = if canary::on(Bug::ReleasedUndo) {
            self.trees.current.committed(std::mem::replace(&mut txn.log, T::Log::new(id)));
            Ok(())
        } else {
            self.trees.rollback(&mut txn.log, 0, &mut |_, _, _| {})
        };
        if let Err(blocked) = undone {
            self.txns.insert(id, txn);
            return Err(blocked.into());
        }
        self.end_log(id, &mut txn);
        let member = self.blocking.chain.members(list).pop_back();
        let Some(Member { kind: Kind::Single(single), .. }) = member else {
            self.txns.insert(id, txn);
            return Ok(());
        };
        if self.stranded.forget(id) {
            // It was answered when it was stranded.
            return Ok(());
        }
        let undoing = txn.task.map(|task| task.job);
        let (exec, cancelled) = match (single.done, undoing) {
            (Some((exec, _)), _) => (exec, single.cancelled),
            (None, Some(Job::Undo { then: Then::Speculated { exec, cancelled, .. }, .. })) => {
                (exec, cancelled)
            }
            (None, _) => return Ok(()),
        };
        self.run_later(id, single.origin, exec, cancelled, out);
        Ok(())
    }
}

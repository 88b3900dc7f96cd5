//! One-shot transactions: one statement at one partition, committed here.

use super::Partition;
use super::general::answer;
use crate::exec::{
    Exec, Locking, Stop, changes_rows, is_atomic, is_point, only_reads, reads_freely, run_atomic,
    table_of,
};
use crate::lock::{Mode, Target};
use crate::message::COMMITTED;
use crate::message::{Failure, FragmentOrigin, Outbox, Reply};
use crate::scheme::{Admission, Load};
use crate::txn::{Job, OneShot, Task, Txn};
use crate::versions::AsOf;
use clearway_ir::Program;
use clearway_ir::program::Env;
use clearway_storage::{Trees, TxnMode, UndoLog};
use clearway_types::{Lsn, RowBatch, TxnId};
use std::sync::Arc;

impl<T: Trees> Partition<T> {
    fn admit(&self, program: &Program, rows: Option<&RowBatch>, misses: u32) -> Locking {
        let load = Load {
            unlocked: self.locks.is_empty(),
            may_restart: misses <= self.limits.misses,
            atomic: is_atomic(program, rows),
            reads: only_reads(program),
        };
        match self.scheme.admit(load) {
            // Invariant 3: without locks it could miss another transaction's lock.
            Admission::Alone if load.unlocked => Locking::None,
            Admission::Checked | Admission::Alone if load.atomic || load.reads => Locking::Check,
            Admission::Recorded if changes_rows(program) => Locking::Record,
            _ => Locking::Take,
        }
    }

    /// Starts a one-shot. If it completes immediately, nothing is kept of it.
    pub(super) fn one_shot(
        &mut self,
        id: TxnId,
        origin: FragmentOrigin,
        program: Arc<Program>,
        env: Arc<Env>,
        rows: Option<RowBatch>,
        out: &mut Outbox,
    ) {
        let locking = self.admit(&program, rows.as_ref(), 0);
        let mut log = T::Log::new(id);
        let mut first_stop = None;
        if locking != Locking::Take && is_atomic(&program, rows.as_ref()) {
            match self.attempt(id, &mut log, &program, &env, rows.as_ref(), locking) {
                Ok(reply) => return self.reply(origin, Ok(reply), out),
                Err(Stop::Fail(failure)) => return self.reply(origin, Err(failure), out),
                Err(stop) => first_stop = Some(stop),
            }
        }
        let most_bytes = self.limits.one_shot_bytes;
        let exec = Box::new(Exec::of_one_shot(program, env, rows, most_bytes));
        let mut txn = Box::new(Txn::of_one_shot(id));
        let mut task = Task::new(origin, Job::OneShot(OneShot { exec, locking, misses: 0 }));
        let after =
            match first_stop.and_then(|stop| self.stopped(id, &mut txn, &mut task, stop, out)) {
                Some(after) => {
                    txn.task = Some(task);
                    after
                }
                None => self.run_task(id, &mut txn, task, out),
            };
        if let super::After::Keep = after {
            self.txns.insert(id, txn);
        }
    }

    /// Makes one attempt at an atomic program; it leaves nothing behind if it stops.
    fn attempt(
        &mut self,
        id: TxnId,
        log: &mut T::Log,
        program: &Program,
        env: &Env,
        rows: Option<&RowBatch>,
        locking: Locking,
    ) -> Result<Reply, Stop> {
        self.check_plan(program, None)?;
        let (mut cx, scratch) = self.cx(id, log, locking, TxnMode::Logged, None);
        let (rows, count, commit) = run_atomic(&mut cx, program, env, rows, scratch)?;
        if let Some(lsn) = commit {
            self.last_commit = self.last_commit.max(lsn);
        }
        Ok(Reply { commit, ..answer(rows, count) })
    }

    pub(super) fn run_one_shot(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        task: &mut Task,
    ) -> Result<Reply, Stop> {
        let Job::OneShot(shot) = &mut task.job else {
            return Err(clearway_types::SqlError::internal("not a one-shot").into());
        };
        if shot.locking != Locking::Take && txn.log.mark() == 0 {
            // Others may have run since it was admitted.
            shot.locking = self.admit(&shot.exec.program, shot.exec.rows(), shot.misses);
            if shot.locking != Locking::Take && is_atomic(&shot.exec.program, shot.exec.rows()) {
                let (program, env) = (shot.exec.program.clone(), shot.exec.env.clone());
                return self.attempt(
                    id,
                    &mut txn.log,
                    &program,
                    &env,
                    shot.exec.rows(),
                    shot.locking,
                );
            }
        }
        // A read waits for no one.
        let as_of = (shot.locking == Locking::Take && reads_freely(&shot.exec.program))
            .then_some(AsOf { at: COMMITTED, me: id, repeatable: false });
        if as_of.is_some() && !is_point(&shot.exec.program) {
            return Err(Stop::Fail(Failure::NeedsSnapshot));
        }
        match as_of {
            // A point lookup uses no index.
            Some(as_of) => self.check_table(id, &shot.exec.program, as_of).map(drop)?,
            None => self.check_plan(&shot.exec.program, None)?,
        }
        let replaced = self.replaced(id, &shot.exec, as_of)?;
        let locking = if as_of.is_some() { Locking::None } else { shot.locking };
        if locking == Locking::Record {
            self.sets.begin();
        }
        let (mut cx, _) = self.cx(id, &mut txn.log, locking, TxnMode::Logged, None);
        cx.set_snapshot(as_of, replaced, false);
        cx.moved = Some(&mut txn.moved);
        if shot.exec.run(&mut cx)? {
            return Err(Stop::Fail(Failure::NeedsSnapshot));
        }
        if locking == Locking::Record {
            self.validate(id, false)?;
        }
        let (rows, count) = shot.exec.take_output();
        let mut reply = answer(rows, count);
        reply.commit = self.commit_one_shot(id, txn);
        self.locks.release(id);
        Ok(reply)
    }

    /// Commits a one-shot that is not atomic. Returns the end of its commit record if it has
    /// changed something.
    pub(super) fn commit_one_shot(&mut self, id: TxnId, txn: &mut Txn<T::Log>) -> Option<Lsn> {
        if txn.log.mark() == 0 {
            // The store may list it as active, because it tried to change something.
            self.end_log(id, txn);
            return None;
        }
        let lsn = self.trees.commit_local(std::mem::replace(&mut txn.log, T::Log::new(id)));
        self.last_commit = self.last_commit.max(lsn);
        Some(lsn)
    }

    /// Handles a stopped one-shot. If nothing is done yet it restarts; otherwise it becomes a
    /// locking transaction that keeps its progress (if it only reads, one that sees what is
    /// committed). Returns `None` to run it again immediately.
    pub(super) fn one_shot_stopped(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        task: &mut Task,
        stop: Stop,
    ) -> Option<Stop> {
        let Job::OneShot(shot) = &mut task.job else { return Some(stop) };
        if shot.locking == Locking::Take || matches!(stop, Stop::Fail(_)) {
            return Some(stop);
        }
        if txn.log.mark() > 0 {
            self.cover(id, txn, task);
            return Some(stop);
        }
        shot.exec.reset();
        match stop {
            Stop::MissingPage(_) => {
                shot.misses += 1;
                Some(stop)
            }
            _ => {
                shot.locking = Locking::Take;
                None
            }
        }
    }

    /// Invariant 3: protects changes made without locks by the table's lock. That lock is free,
    /// because such changes are made only if there are no locks at all.
    pub(super) fn cover(&mut self, id: TxnId, txn: &Txn<T::Log>, task: &mut Task) {
        let Job::OneShot(shot) = &mut task.job else { return };
        if shot.locking == Locking::Take || txn.log.mark() == 0 {
            return;
        }
        let table = table_of(&shot.exec.program).id;
        let acquired = self.locks.acquire(id, Target::Table(table), Mode::Exclusive);
        assert_eq!(
            acquired,
            crate::lock::Acquired::Granted,
            "invariant 3: there was no lock at all"
        );
        shot.locking = Locking::Take;
    }
}

//! Early retirement: a row's lock passes to the next transaction before the one that has changed
//! the row has ended (`lock/retired.rs`).
//!
//! Only blind UPDATEs by key take part: their reply does not depend on the row. They must run below
//! REPEATABLE READ, and without an older savepoint. Their count is 1, and they return no rows.
//!
//! Invariants
//! 1. No reply depends on changes that may be undone. A transaction that is behind others executes
//!    only such UPDATEs and INSERTs here until those have ended. An error of such an UPDATE is
//!    returned when they have ended, or replaced by 40001 if they are undone.
//! 2. A transaction commits here after all transactions that it is behind.
//! 3. Before a transaction is undone here, all that are behind it are undone, each one only when
//!    none is behind it any more. They are *doomed*: their sessions are informed, and each further
//!    call fails with [`Failure::Undone`] until they end, which undoes their changes elsewhere. An
//!    undo that needs pages continues as part of the transaction end that requires it.
//! 4. No wait begins for a transaction that is behind the waiter here: that one is undone. A line
//!    that the waiter has joined may pass to one behind it later, and it may wait for one at
//!    another partition. Deadlock detection ends these waits.
//!
//! A crash leaves nothing of this. Recovery undoes the newest change of all losers first, and a
//! commit record follows those of all transactions that its transaction was behind.

use super::Partition;
use crate::exec::{Exec, Stop, is_blind, push_blind};
use crate::lock::{Mode, Target, Wait, class};
use crate::message::{Failure, Out, Outbox};
use crate::txn::{Job, Statement, Then, Txn};
use clearway_ir::Program;
use clearway_storage::Trees;
use clearway_sync::canary::{self, Bug};
use clearway_types::{SqlState, TxnId};
use std::panic::Location;

impl<T: Trees> Partition<T> {
    /// Returns true if the rows that the statement changes may be retired, and if it may change
    /// retired rows.
    #[inline]
    pub(super) fn retires(&self, txn: &Txn<T::Log>, statement: &Statement) -> bool {
        self.limits.retire
            && statement.may_use_retired
            && !statement.fresh
            && txn.savepoints.is_empty()
            && txn.created.is_empty()
            && is_blind(&statement.exec.program, self.limits.increments)
    }

    /// Retires the lock of the row that the statement has changed, if the row is contended.
    pub(super) fn retire(&mut self, id: TxnId, exec: &Exec) -> Result<(), Stop> {
        let key = &mut self.scratch.key;
        key.clear();
        if push_blind(&exec.program, &exec.env, self.limits.increments, key)? {
            self.locks.retire(
                id,
                crate::exec::table_of(&exec.program).tree,
                key,
                self.limits.retire_cold,
            );
        }
        Ok(())
    }

    /// Enforces invariant 1.
    pub(super) fn settle_before(&mut self, id: TxnId, job: &Job) -> Result<(), Stop> {
        if self.blocking.is_taken()
            && self.blocking.chain.is_behind(id)
            && matches!(job, Job::Settle(_))
            && !canary::on(Bug::SkippedSpeculation)
        {
            return Err(Stop::Ahead);
        }
        if !self.locks.has_retired() {
            return Ok(());
        }
        let independent = match job {
            Job::Statement(s) => {
                matches!(&*s.exec.program, Program::Insert { .. })
                    || is_blind(&s.exec.program, self.limits.increments)
            }
            Job::KeepVersions { .. } | Job::AwaitLarge { .. } => true,
            _ => false,
        };
        if independent {
            return Ok(());
        }
        let Some((line, tree, key)) = self.locks.settle(id) else { return Ok(()) };
        let class = class(Target::Key(tree, &key), Mode::Settled);
        class.request();
        Err(Stop::Wait(Wait { line, class, caller: Location::caller() }))
    }

    /// Returns what follows the undo of a failed statement.
    pub(super) fn after_failure(&self, id: TxnId, failure: Failure) -> Then {
        let answered = match &failure {
            Failure::Sql(error) => {
                matches!(
                    error.state(),
                    SqlState::DEADLOCK
                        | SqlState::SERIALIZATION_FAILURE
                        // Cancellations: by the user or a time-out, of a wait for a lock, because
                        // the server stops, and because the client has gone.
                        | SqlState::QUERY_CANCELED
                        | SqlState::LOCK_NOT_AVAILABLE
                        | SqlState::ADMIN_SHUTDOWN
                        | SqlState::CONNECTION_FAILURE
                )
            }
            Failure::StalePlan | Failure::NeedsSnapshot | Failure::Undone => true,
        };
        let behind = self.locks.is_behind_others(id) || self.blocking.chain.is_behind(id);
        if answered || !behind || canary::on(Bug::UnsettledError) {
            return Then::Fail(failure);
        }
        Then::Settle(failure)
    }

    /// Resolves a stop that is caused by the transactions behind this one. Returns what remains of
    /// the stop; `None` means that the task continues.
    pub(super) fn resolve_behind(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        stop: Stop,
        out: &mut Outbox,
    ) -> Option<Stop> {
        match stop {
            Stop::Reclaim(tree, key) => match self.undo_behind(id, txn, out) {
                Ok(()) => {
                    self.locks.reclaim(id, tree, &key);
                    self.end_cascade(id, txn);
                    None
                }
                Err(stop) => Some(stop),
            },
            Stop::Wait(wait) if self.locks.is_ahead_of(id, &wait.line.on) => {
                self.locks.stop_waiting(id);
                let undone = self.undo_behind(id, txn, out);
                if undone.is_ok() {
                    self.end_cascade(id, txn);
                }
                undone.err()
            }
            stop => Some(stop),
        }
    }

    /// Lets a transaction continue after all behind it have been undone.
    fn end_cascade(&mut self, id: TxnId, txn: &mut Txn<T::Log>) {
        self.locks.unbar(id);
        txn.undone_behind = 0;
    }

    /// Enforces invariant 3. Nobody goes behind the transaction until it has ended, or
    /// [`LockTable::unbar`] allows it.
    ///
    /// [`LockTable::unbar`]: crate::lock::LockTable::unbar
    pub(super) fn undo_behind(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        out: &mut Outbox,
    ) -> Result<(), Stop> {
        if !self.locks.has_retired() {
            return Ok(());
        }
        self.locks.bar(id);
        while let Some(last) = self.locks.last_behind(id) {
            self.cascade(last, &mut txn.undone_behind, out)?;
        }
        Ok(())
    }

    /// Undoes a transaction that has none behind it, and releases its locks. It remains until its
    /// session ends it. It adds to the cascade's size, unless its own rollback has begun.
    fn cascade(&mut self, id: TxnId, size: &mut usize, out: &mut Outbox) -> Result<(), Stop> {
        // A wait that is over is reported as granted, not as given up.
        self.report_events(out);
        let Some(mut txn) = self.txns.remove(&id) else {
            self.locks.release(id);
            return Ok(());
        };
        if !txn.doomed {
            tracing::debug!(
                partition = %self.id, txn = %id,
                "a transaction that it was behind is being undone"
            );
            self.locks.cool(id);
        }
        let first = !std::mem::replace(&mut txn.doomed, true);
        let ends = txn.task.as_ref().is_some_and(|task| matches!(task.job, Job::Finish { .. }));
        if first && !ends {
            self.measured.cascades.add(size);
        }
        txn.paused.clear();
        txn.reads.forget();
        match txn.task.take() {
            // Its own end, which finds less to undo.
            Some(task) if ends => txn.task = Some(task),
            Some(task) => {
                self.stop_waiting(id, &task, out);
                self.reply(task.origin, Err(Failure::Undone), out);
            }
            None if first => out.push(Out::Undone { to: txn.origin, txn: id }),
            None => {}
        }
        let undone = self.trees.rollback(&mut txn.log, 0, &mut |_, _, _| {});
        if undone.is_ok() {
            self.end_log(id, &mut txn);
            self.locks.release(id);
            if txn.task.is_none() && self.stranded.forget(id) {
                // Its session was told when it was stranded, and does not end it again.
                return Ok(());
            }
        }
        self.txns.insert(id, txn);
        Ok(undone?)
    }
}

//! Rows that are given to the next transaction before the one that has changed them has ended
//! (`lock/retired.rs`).
//!
//! Only UPDATEs by key that answer the same whatever is in the row take part, below REPEATABLE READ
//! and where no savepoint is older: their count is 1, and they show nothing.
//!
//! Invariants
//! 1. No answer rests on what may be undone. A transaction that is behind others does nothing here
//!    but such UPDATEs and INSERTs before those have ended. An error of such an UPDATE is answered
//!    when they have, and 40001 if they are undone.
//! 2. A transaction is committed here after all that it is behind.
//! 3. Before a transaction is undone here, all that are behind it are, those first that nobody is
//!    behind. They are *doomed*: their sessions are told, and each further call is answered with
//!    [`Failure::Undone`] until their end, which undoes what they have done elsewhere. An undo that
//!    wants pages goes on as part of the end that it is needed for.
//! 4. A transaction never waits for one that is behind it: that one is undone.
//!
//! A crash leaves nothing of this: recovery undoes the newest change of all losers first, and a
//! commit record is behind those of all that its transaction was behind.

use super::Partition;
use crate::exec::{Exec, Stop, is_blind, push_blind};
use crate::lock::{Mode, Target, Wait, class};
use crate::message::{Failure, Out, Outbox};
use crate::trees::Trees;
use crate::txn::{Job, Statement, Then, Txn};
use clearway_ir::Program;
use clearway_types::{SqlState, TxnId};
use std::panic::Location;

impl<T: Trees> Partition<T> {
    /// Whether rows that the statement changes may be given away, and it may change rows that were.
    #[inline]
    pub(super) fn retires(&self, txn: &Txn<T::Log>, statement: &Statement) -> bool {
        self.limits.retire
            && statement.goes_behind
            && !statement.fresh
            && txn.savepoints.is_empty()
            && txn.created.is_empty()
            && is_blind(&statement.exec.program, self.limits.increments)
    }

    /// The statement has changed one row: gives it to the next transaction if many want it.
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

    /// Invariant 1.
    pub(super) fn settle_before(&mut self, id: TxnId, job: &Job) -> Result<(), Stop> {
        if !self.locks.has_retired() {
            return Ok(());
        }
        let independent = match job {
            Job::Statement(s) => {
                matches!(&*s.exec.program, Program::Insert { .. })
                    || is_blind(&s.exec.program, self.limits.increments)
            }
            Job::KeepVersions { .. } => true,
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

    /// What follows the undo of a statement that has failed.
    pub(super) fn after_failure(&self, id: TxnId, failure: Failure) -> Then {
        let answered = match &failure {
            Failure::Sql(error) => {
                matches!(
                    error.state(),
                    SqlState::QUERY_CANCELED | SqlState::DEADLOCK | SqlState::SERIALIZATION_FAILURE
                )
            }
            Failure::StalePlan | Failure::NeedsSnapshot | Failure::Undone => true,
        };
        if answered || !self.locks.rests(id) {
            return Then::Fail(failure);
        }
        Then::Settle(failure)
    }

    /// What is left of a stop that those behind the transaction are the reason of; `None`: nothing,
    /// it goes on.
    pub(super) fn without_those_behind(
        &mut self,
        id: TxnId,
        stop: Stop,
        out: &mut Outbox,
    ) -> Option<Stop> {
        match stop {
            Stop::Reclaim(tree, key) => match self.undo_those_behind(id, out) {
                Ok(()) => {
                    self.locks.reclaim(id, tree, &key);
                    None
                }
                Err(stop) => Some(stop),
            },
            Stop::Wait(wait) if self.locks.is_ahead_of(id, &wait.line.on) => {
                self.locks.stop_waiting(id);
                self.undo_those_behind(id, out).err()
            }
            stop => Some(stop),
        }
    }

    /// Invariant 3.
    pub(super) fn undo_those_behind(&mut self, id: TxnId, out: &mut Outbox) -> Result<(), Stop> {
        if !self.locks.has_retired() {
            return Ok(());
        }
        while let Some(last) = self.locks.last_behind(id) {
            self.cascade(last, out)?;
        }
        Ok(())
    }

    /// Undoes a transaction that nobody is behind, and lets go of its locks. It stays until its
    /// session ends it.
    fn cascade(&mut self, id: TxnId, out: &mut Outbox) -> Result<(), Stop> {
        // Whose wait is over is told so, and not that it has given up.
        self.tell_events(out);
        let Some(mut txn) = self.txns.remove(&id) else {
            self.locks.release(id);
            return Ok(());
        };
        if !txn.doomed {
            tracing::debug!(partition = %self.id, txn = %id, "one that it was behind is undone");
            self.locks.cool(id);
        }
        let first = !std::mem::replace(&mut txn.doomed, true);
        txn.paused.clear();
        txn.reads.forget();
        match txn.task.take() {
            // Its own end, which finds less to undo.
            Some(task) if matches!(task.job, Job::Finish { .. }) => txn.task = Some(task),
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
        }
        self.txns.insert(id, txn);
        Ok(undone?)
    }
}

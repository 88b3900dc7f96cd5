//! Interruptions of a transaction's task: cancellation, and pages that cannot be provided.

use super::{After, Partition};
use crate::message::{Failure, Outbox, Reply};
use crate::txn::{Job, Task, Txn, Waiting};
use clearway_storage::Trees;
use clearway_types::{SqlError, TxnId};

impl<T: Trees> Partition<T> {
    /// Cancels what the transaction runs or waits for.
    pub(super) fn cancel(&mut self, id: TxnId, error: SqlError, out: &mut Outbox) {
        let was_waiting = self.leave_fence(id, &error, out) || self.leave_line(id, &error, out);
        if was_waiting || self.cancel_behind(id, &error) {
            return;
        }
        let Some(mut txn) = self.txns.remove(&id) else { return };
        let after = match txn.task.take() {
            None => After::Keep,
            Some(mut task) if task.job.must_continue() => {
                task.job.cancel_after_undo(error);
                txn.task = Some(task);
                After::Keep
            }
            Some(mut task) => {
                self.stop_waiting(id, &task, out);
                task.waiting = Waiting::No;
                self.fail_and_run(id, &mut txn, task, error, out)
            }
        };
        if let After::Keep = after {
            self.txns.insert(id, txn);
        }
    }

    /// Handles pages that the transaction's task needs but that cannot be provided. Ignores a
    /// request that the task no longer waits for: it was cancelled, or resumed by another.
    pub(super) fn unavailable(
        &mut self,
        id: TxnId,
        request: u64,
        error: SqlError,
        out: &mut Outbox,
    ) {
        let Some(mut txn) = self.txns.remove(&id) else { return };
        let after = match txn.task.take() {
            Some(mut task) if task.waiting == Waiting::Pages(request) => {
                task.waiting = Waiting::No;
                if let Job::KeepVersions { .. } = task.job {
                    // Refused: only those who need the page may fail.
                    self.reply(task.origin, Ok(Reply::default()), out);
                    After::Keep
                } else if task.job.must_continue()
                    && (txn.may_retry(self.limits.retries)
                        || self.leave_tree(id, &mut txn, &task.job, &error))
                {
                    self.run_task(id, &mut txn, task, out)
                } else {
                    self.fail_and_run(id, &mut txn, task, error, out)
                }
            }
            task => {
                txn.task = task;
                After::Keep
            }
        };
        if let After::Keep = after {
            self.txns.insert(id, txn);
        }
    }

    /// Fails the task, and runs what it must do before it can end.
    fn fail_and_run(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        mut task: Task,
        error: SqlError,
        out: &mut Outbox,
    ) -> After {
        match self.fail(id, txn, &mut task, Failure::Sql(error), out) {
            Some(after) => after,
            None => self.run_task(id, txn, task, out),
        }
    }

    pub(super) fn stop_waiting(&mut self, id: TxnId, task: &Task, out: &mut Outbox) {
        if let Waiting::Lock(wait) = task.waiting
            && self.locks.waits(id)
        {
            // Before the line that it blocked is reported again: it does not wait any more.
            self.report_given_up(id, wait, out);
            self.locks.stop_waiting(id);
        }
    }
}

//! The end of a transaction: commit and abort.

use super::{After, Partition};
use crate::exec::Stop;
use crate::message::{Failure, FragmentOrigin, Outbox, Reply};
use crate::txn::{Job, Task, Txn};
use clearway_storage::{Blocked, StorageError, Trees, UndoLog};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, SqlError, SqlState, TreeId, TxnId};
use std::fmt::Display;

fn over() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to the end of its transaction")
}

impl<T: Trees> Partition<T> {
    pub(super) fn finish(
        &mut self,
        id: TxnId,
        origin: FragmentOrigin,
        commit: Option<Lsn>,
        out: &mut Outbox,
    ) {
        if self.blocking.has_waiters() {
            self.leave_line(id, &over(), out);
        }
        let Some(mut txn) = self.txns.remove(&id) else {
            self.reply(origin, Ok(Reply::default()), out);
            return;
        };
        // Before its locks are released: readers of its changes depend on this commit.
        if let Some(lsn) = commit.filter(|_| txn.leaves_something()) {
            self.last_commit = self.last_commit.max(lsn);
        }
        txn.paused.clear();
        if let Some(task) = txn.task.take() {
            if commit.is_some() || task.job.must_continue() {
                let busy = SqlError::internal("the last call of the transaction is still running");
                self.reply(origin, Err(Failure::Sql(busy)), out);
                txn.task = Some(task);
                self.txns.insert(id, txn);
                return;
            }
            self.stop_waiting(id, &task, out);
            self.reply(task.origin, Err(Failure::Sql(over())), out);
        }
        let task = Task::new(origin, Job::Finish { commit });
        match self.run_task(id, &mut txn, task, out) {
            After::Keep => drop(self.txns.insert(id, txn)),
            After::End => {
                txn.shed();
                self.spare = Some(txn);
            }
        }
    }

    /// Executes a decision completely; it can stop anywhere and resume later.
    pub(super) fn run_finish(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        commit: Option<Lsn>,
        out: &mut Outbox,
    ) -> Result<(), Stop> {
        if let Some(commit) = commit {
            let skipped = canary::on(Bug::SkippedDependency)
                || canary::on(Bug::KeptSuccessor)
                || canary::on(Bug::SkippedSpeculation);
            let behind = self.locks.is_behind_others(id) || self.blocking.chain.is_behind(id);
            assert!(
                skipped || !txn.doomed && !behind,
                "{id} commits before a transaction that it is behind"
            );
            // First what may not fail: snapshots see the commit, whatever becomes of those behind.
            self.committed(id, commit);
            self.tables.end(txn.changed.drain(..), Some(commit), self.trees.versions.floor());
            if self.blocking.chain.is_owner(id) {
                self.discard_behind(id, out)?;
            }
            self.drop_trees(id, &mut txn.drops)?;
            let log = std::mem::replace(&mut txn.log, T::Log::new(id));
            self.trees.current.committed(log);
        } else {
            if canary::on(Bug::HalfWhole) && self.blocking.is_by(id) {
                self.trees.current.committed(std::mem::replace(&mut txn.log, T::Log::new(id)));
            }
            self.discard_behind(id, out)?;
            if !canary::on(Bug::KeptSuccessor) {
                self.undo_behind(id, txn, out)?;
            }
            self.trees.rollback(&mut txn.log, 0, &mut |_, _, _| {})?;
            self.tables.end(txn.changed.drain(..), None, Lsn(0));
            self.drop_trees(id, &mut txn.created)?;
            self.end_log(id, txn);
        }
        self.gathering.ended(&mut txn.reads);
        self.locks.release(id);
        self.leave_partition(id, out);
        Ok(())
    }

    /// Drops trees from the end of the list. Skips those that no longer exist, and leaves those
    /// with an unreadable page.
    fn drop_trees(&mut self, id: TxnId, trees: &mut Vec<TreeId>) -> Result<(), Stop> {
        let mut slices = 0;
        while let Some(tree) = trees.last() {
            slices += 1;
            if slices > self.limits.drop_slices {
                return Err(Stop::Slice);
            }
            match self.trees.current.drop_tree(*tree) {
                Ok(true) | Err(Blocked::Failed(StorageError::NoTree(_))) => {
                    trees.pop();
                }
                Ok(false) => {}
                Err(Blocked::Failed(error)) => {
                    self.leave(id, *tree, &error);
                    trees.pop();
                }
                Err(blocked) => return Err(blocked.into()),
            }
        }
        Ok(())
    }

    /// Leaves a tree that cannot be dropped because one of its pages is unreadable. The next start
    /// drops all trees that belong to no table. Returns false if the transaction's end is not
    /// dropping a tree.
    pub(super) fn leave_tree(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        job: &Job,
        why: &SqlError,
    ) -> bool {
        let left = match job {
            Job::Finish { commit: Some(_) } => txn.drops.pop(),
            Job::Finish { commit: None } if txn.log.mark() == 0 => txn.created.pop(),
            _ => None,
        };
        if let Some(tree) = left {
            self.leave(id, tree, &why.message());
        }
        left.is_some()
    }

    fn leave(&self, txn: TxnId, tree: TreeId, why: &dyn Display) {
        tracing::error!(
            partition = %self.id, %txn, %tree,
            "a dropped tree cannot be freed before the next start: {why}"
        );
    }

    /// Ends a transaction that has been rolled back.
    pub(super) fn end_log(&mut self, id: TxnId, txn: &mut Txn<T::Log>) {
        let log = std::mem::replace(&mut txn.log, T::Log::new(id));
        self.trees.aborted(log);
    }
}

//! The end of a transaction: commit, abort.

use super::{After, Partition};
use crate::exec::Stop;
use crate::message::{Failure, Origin, Outbox, Reply};
use crate::trees::{Trees, UndoLog};
use crate::txn::{Job, Task, Txn, Waiting};
use clearway_storage::{Blocked, StorageError};
use clearway_types::{Lsn, SqlError, SqlState, TreeId, TxnId};

/// Slices of dropped trees that are freed in one turn.
const DROP_SLICES: usize = 8;

impl<T: Trees> Partition<T> {
    pub(super) fn finish(&mut self, id: TxnId, origin: Origin, commit: Option<Lsn>, out: &mut Outbox) {
        if let Some(lsn) = commit {
            self.last_commit = self.last_commit.max(lsn);
        }
        let Some(mut txn) = self.txns.remove(&id) else {
            self.reply(origin, Ok(Reply::default()), out);
            return;
        };
        txn.paused = None;
        if let Some(task) = txn.task.take() {
            if commit.is_some() || task.job.must_go_on() {
                let busy = SqlError::internal("the transaction has not answered its last call");
                self.reply(origin, Err(Failure::Sql(busy)), out);
                txn.task = Some(task);
                self.txns.insert(id, txn);
                return;
            }
            self.stop_waiting(id, &task, out);
            let over = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to the end of its transaction");
            self.reply(task.origin, Err(Failure::Sql(over)), out);
        }
        let task = Task { origin, job: Job::Finish { commit }, waiting: Waiting::No };
        if let After::Keep = self.run_task(id, &mut txn, task, out) {
            self.txns.insert(id, txn);
        }
    }

    /// Everything that a decision brings with it; it can be left off anywhere and taken up again.
    pub(super) fn run_finish(&mut self, id: TxnId, txn: &mut Txn<T::Log>, commit: Option<Lsn>) -> Result<(), Stop> {
        if commit.is_some() {
            for (table, version) in txn.changed.drain(..) {
                let least = self.versions.entry(table).or_default();
                *least = (*least).max(version);
            }
            self.drop_trees(&mut txn.drops)?;
            let log = std::mem::replace(&mut txn.log, T::Log::new(id));
            self.trees.committed(log);
        } else {
            self.trees.rollback(&mut txn.log, 0)?;
            self.drop_trees(&mut txn.created)?;
            self.end_log(id, txn);
        }
        self.locks.release(id, &mut self.granted);
        Ok(())
    }

    /// Drops trees from the list's end; those that are gone already are skipped.
    fn drop_trees(&mut self, trees: &mut Vec<TreeId>) -> Result<(), Stop> {
        let mut slices = 0;
        while let Some(tree) = trees.last() {
            slices += 1;
            if slices > DROP_SLICES {
                return Err(Stop::Slice);
            }
            match self.trees.drop_tree(*tree) {
                Ok(true) | Err(Blocked::Failed(StorageError::NoTree(_))) => {
                    trees.pop();
                }
                Ok(false) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Ends a transaction that has been rolled back.
    pub(super) fn end_log(&mut self, id: TxnId, txn: &mut Txn<T::Log>) {
        let log = std::mem::replace(&mut txn.log, T::Log::new(id));
        self.trees.aborted(log);
    }
}

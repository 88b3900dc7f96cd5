//! Transactions that cannot be rolled back: the undo needs a page or a part of the log that is
//! unreadable or invalid, or space for a page or the log on a full disk, or a frame of the pool.
//!
//! Invariants
//! 1. A stranded transaction keeps its locks until it is rolled back, because no one may see its
//!    changes. If it lacks space or frames, this process retries; otherwise the next start undoes
//!    it, or reports which page prevents that.
//! 2. No transaction waits for it indefinitely: those that wait when it is stranded, and those that
//!    would have to wait later, fail with an error that explains why. So do one-shots behind it
//!    (`speculation.rs`).
//! 3. Its last call gets one reply, when it is first stranded.
//! 4. Such a rollback is retried when a transaction wants its locks, and when another transaction
//!    ends, which may have freed what it lacks. At most one attempt per transaction is in
//!    progress.
//! 5. A commit is stranded if the one-shots behind it cannot be undone. It stands; its locks
//!    protect what they have changed.
//!
//! For (2) it is sufficient to reject the lines that name it: those that do when it is stranded,
//! each line that does when it is reported again, and each request that joins such a line. A line
//! that does not name it watches another transaction, which waits in another line or holds a lock.
//! When that one is rejected or ends, the line is examined again. So every line whose chain ends at
//! a stranded transaction eventually names it.

use super::{After, Partition};
use crate::message::{Failure, Outbox, Reply};
use crate::txn::{Job, Task, Then};
use clearway_storage::Trees;
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, SqlError, SqlState, TxnId};

/// The stranded transactions; see the module.
#[derive(Default)]
pub(super) struct Stranded {
    txns: Vec<Entry>,
    /// Transactions that wait for a stranded one and have not been told yet, each with the one it
    /// waits for.
    waiters: Vec<(TxnId, TxnId)>,
}

struct Entry {
    txn: TxnId,
    /// The error for transactions that its locks block.
    error: SqlError,
    retry: Retry,
    /// Its commit, which stands: only those behind it remain to be undone.
    commit: Option<Lsn>,
}

/// Whether a rollback is retried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// Not before the next start.
    Never,
    /// Once there is a reason.
    Idle,
    /// As soon as possible.
    Due,
    UnderWay,
}

/// Returns true if the job is the last one of its transaction: what it leaves behind stays.
fn is_last(job: &Job) -> bool {
    matches!(
        job,
        Job::Finish { .. }
            | Job::Undo {
                then: Then::End(_) | Then::Discarded(Some(_)) | Then::Speculated { .. },
                ..
            }
    )
}

/// Returns true if a later attempt may find what this one lacked: space on the disk, or frames.
fn lacks_room(failure: &Failure) -> bool {
    let Failure::Sql(cause) = failure else { return false };
    [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(&cause.state())
}

/// The error for transactions that its locks block.
fn in_the_way(failure: &Failure) -> SqlError {
    let hint = if lacks_room(failure) {
        "Its changes stay locked until there is space on the disk, and in the pool, to roll it \
         back. All other rows are unaffected."
    } else {
        "Its changes stay locked until the next start, which rolls it back. \
         All other rows are unaffected."
    };
    match failure {
        Failure::Sql(cause) => {
            let text =
                format!("a blocking transaction could not be rolled back: {}", cause.message());
            SqlError::new(cause.state(), text).hint(hint)
        }
        Failure::StalePlan | Failure::NeedsSnapshot | Failure::Undone => {
            SqlError::internal("an undo has no plan").hint(hint)
        }
    }
}

impl Stranded {
    /// Returns the error for a transaction that would wait for these, if one of them is stranded.
    /// Its rollback is retried soon.
    #[inline]
    pub(super) fn among(&mut self, txns: &[TxnId]) -> Option<SqlError> {
        if canary::on(Bug::UnnamedStranded) {
            return None;
        }
        let entry = self.txns.iter_mut().find(|entry| txns.contains(&entry.txn))?;
        entry.want();
        Some(entry.error.clone())
    }

    /// Returns the error for transactions that this one blocks, if it is stranded.
    pub(super) fn error_of(&self, txn: TxnId) -> Option<SqlError> {
        let entry = self.txns.iter().find(|entry| entry.txn == txn)?;
        Some(entry.error.clone())
    }

    /// Removes a transaction that has been rolled back as part of another one's end. Returns false
    /// if it is not stranded.
    pub(super) fn forget(&mut self, txn: TxnId) -> bool {
        let before = self.txns.len();
        self.txns.retain(|entry| entry.txn != txn);
        self.txns.len() < before
    }

    /// Schedules retries, because a transaction ends that may free space.
    pub(super) fn retry_for_space(&mut self) {
        self.txns.iter_mut().for_each(Entry::want);
    }
}

impl Entry {
    fn want(&mut self) {
        if self.retry == Retry::Idle {
            self.retry = Retry::Due;
        }
    }
}

impl<T: Trees> Partition<T> {
    /// Handles the end or undo of a transaction that has failed. If it was the transaction's last
    /// job, its locks stay, and the transactions that wait for them will get an error.
    pub(super) fn strand(&mut self, id: TxnId, task: &Task, failure: Failure, out: &mut Outbox) {
        let retry = if lacks_room(&failure) { Retry::Idle } else { Retry::Never };
        if let Some(entry) = self.stranded.txns.iter_mut().find(|entry| entry.txn == id) {
            tracing::debug!(
                partition = %self.id, txn = %id, ?failure,
                "a transaction still cannot be ended"
            );
            entry.error = in_the_way(&failure);
            entry.retry = retry;
            return;
        }
        tracing::error!(partition = %self.id, txn = %id, ?failure, "a transaction cannot be ended");
        if is_last(&task.job) {
            // No one would own the partition that it has to itself; its locks are enough.
            if self.blocking.is_by(id) {
                self.unblock(id, out);
            }
            self.fail_detached(id, &in_the_way(&failure), out);
            self.locks.stop_awaiting(id);
            self.stranded
                .waiters
                .extend(self.locks.waiters_of(id).into_iter().map(|waiter| (waiter, id)));
            let commit = if let Job::Finish { commit } = task.job { commit } else { None };
            self.stranded.txns.push(Entry { txn: id, error: in_the_way(&failure), retry, commit });
        }
        self.reply(task.origin, Err(failure), out);
    }

    /// Rejects all members of the line if one of the transactions that block it is stranded.
    #[inline]
    pub(super) fn reject_line(&mut self, line: u64, on: &[TxnId]) {
        if self.stranded.among(on).is_some() {
            let stranded = self
                .stranded
                .txns
                .iter()
                .find(|entry| on.contains(&entry.txn))
                .map(|entry| entry.txn);
            let rejected = stranded
                .into_iter()
                .flat_map(|on| self.locks.members(line).map(move |waiter| (waiter, on)));
            self.stranded.waiters.extend(rejected);
        }
    }

    /// Completes a transaction: replies to its last call, unless it got its reply when the
    /// transaction was stranded.
    pub(super) fn ended(&mut self, id: TxnId, task: &Task, out: &mut Outbox) {
        let Some(at) = self.stranded.txns.iter().position(|entry| entry.txn == id) else {
            return self.reply(task.origin, Ok(Reply::default()), out);
        };
        self.stranded.txns.swap_remove(at);
        tracing::info!(
            partition = %self.id, txn = %id,
            "a stranded transaction has ended"
        );
    }

    /// Returns true if a waiter must still be told, or a rollback retried.
    #[inline]
    pub(super) fn has_stranded_work(&self) -> bool {
        !self.stranded.waiters.is_empty()
            || self.stranded.txns.iter().any(|entry| entry.retry == Retry::Due)
    }

    /// Fails one of the transactions that wait for a stranded one, or retries a rollback. Returns
    /// false if there is nothing to do.
    pub(super) fn run_stranded(&mut self, out: &mut Outbox) -> bool {
        if let Some((waiter, on)) = self.stranded.waiters.pop() {
            let error = self
                .stranded
                .txns
                .iter()
                .find(|entry| entry.txn == on)
                .map(|entry| entry.error.clone());
            if let Some(error) = error.filter(|_| self.locks.waits(waiter)) {
                self.cancel(waiter, error, out);
            }
            return true;
        }
        let Some(entry) = self.stranded.txns.iter_mut().find(|entry| entry.retry == Retry::Due)
        else {
            return false;
        };
        entry.retry = Retry::UnderWay;
        let (id, commit) = (entry.txn, entry.commit);
        if let Some(mut txn) = self.txns.remove(&id) {
            txn.retries = 0;
            // No reply is sent; see invariant 3.
            let task = Task::new(Default::default(), Job::Finish { commit });
            if let After::Keep = self.run_task(id, &mut txn, task, out) {
                self.txns.insert(id, txn);
            }
        }
        true
    }
}

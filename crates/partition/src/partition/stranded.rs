//! Transactions that cannot be rolled back: the undo needs a page, or a piece of the log, that is
//! unreadable or makes no sense, or it needs a new page on a full disk.
//!
//! Invariants
//! 1. A stranded transaction keeps its locks until it is rolled back: its effects are there, and
//!    nobody may see them. If it lacks space, this process tries again; otherwise the next start
//!    undoes it, or says which page is in the way.
//! 2. Nobody waits for it alone: who waits when it is stranded, and who would have to wait later,
//!    gets an error that says why.
//! 3. Its last call is answered once, when it is stranded first.
//! 4. A rollback that lacks space is tried again when somebody wants its locks, and when another
//!    transaction ends, which may have given pages back. At most one attempt of a transaction is
//!    under way.
//!
//! For (2) it is enough to turn away the lines that name it: those that do when it is stranded,
//! each that does when it is told anew, and whoever joins such a line. A line that does not name it
//! watches somebody else, who waits in another line or holds a lock. When that one is turned away,
//! or ends, the line looks again; so each line whose chain ends at a stranded transaction comes to
//! name it.

use super::{After, Partition};
use crate::message::{Failure, Outbox, Reply};
use crate::trees::Trees;
use crate::txn::{Job, Task, Then};
use clearway_sync::canary::{self, Bug};
use clearway_types::{SqlError, SqlState, TxnId};

/// See the module's text.
#[derive(Default)]
pub(super) struct Stranded {
    txns: Vec<Entry>,
    /// Who waits for one of them, until he has been told; and for which.
    waiters: Vec<(TxnId, TxnId)>,
}

struct Entry {
    txn: TxnId,
    /// What those are told in whose way its locks are.
    error: SqlError,
    retry: Retry,
}

/// Whether a rollback is tried again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// Not before the next start.
    Never,
    /// When there is a reason.
    Idle,
    /// There is a reason.
    Due,
    UnderWay,
}

/// Whether the job is the last that its transaction is asked for: what it leaves, stays.
fn is_last(job: &Job) -> bool {
    matches!(job, Job::Finish { commit: None } | Job::Undo { then: Then::End(_), .. })
}

fn lacks_space(failure: &Failure) -> bool {
    matches!(failure, Failure::Sql(cause) if cause.state() == SqlState::DISK_FULL)
}

fn in_the_way(failure: &Failure) -> SqlError {
    let hint = if lacks_space(failure) {
        "Its changes stay locked until there is space on the disk to roll it back. All other rows are unaffected."
    } else {
        "Its changes stay locked until the next start, which rolls it back. All other rows are unaffected."
    };
    match failure {
        Failure::Sql(cause) => {
            let text = format!(
                "a transaction that is in the way could not be rolled back: {}",
                cause.message()
            );
            SqlError::new(cause.state(), text).hint(hint)
        }
        Failure::StalePlan | Failure::NeedsSnapshot | Failure::Undone => {
            SqlError::internal("an undo has no plan").hint(hint)
        }
    }
}

impl Stranded {
    /// Why none of these can be waited for, if one of them is stranded. Its rollback is tried again
    /// soon.
    #[inline]
    pub(super) fn among(&mut self, txns: &[TxnId]) -> Option<SqlError> {
        if canary::on(Bug::UnnamedStranded) {
            return None;
        }
        let entry = self.txns.iter_mut().find(|entry| txns.contains(&entry.txn))?;
        entry.want();
        Some(entry.error.clone())
    }

    /// A transaction ends, and may give space back.
    pub(super) fn space_may_be_back(&mut self) {
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
    /// The end or undo of a transaction cannot go on. If it was the transaction's last job, its
    /// locks stay, and who waits for them is to be told.
    pub(super) fn strand(&mut self, id: TxnId, task: &Task, failure: Failure, out: &mut Outbox) {
        let retry = if lacks_space(&failure) { Retry::Idle } else { Retry::Never };
        if let Some(entry) = self.stranded.txns.iter_mut().find(|entry| entry.txn == id) {
            tracing::debug!(partition = %self.id, txn = %id, ?failure, "a transaction still cannot be ended");
            entry.error = in_the_way(&failure);
            entry.retry = retry;
            return;
        }
        tracing::error!(partition = %self.id, txn = %id, ?failure, "a transaction cannot be ended");
        if is_last(&task.job) {
            // A partition that it has to itself would be nobody's any more; its locks are enough.
            self.unblock(id);
            self.stranded
                .waiters
                .extend(self.locks.waiters_of(id).into_iter().map(|waiter| (waiter, id)));
            self.stranded.txns.push(Entry { txn: id, error: in_the_way(&failure), retry });
        }
        self.reply(task.origin, Err(failure), out);
    }

    /// These are in the line's way: if one of them is stranded, all of the line are to be told.
    #[inline]
    pub(super) fn turn_away_line(&mut self, line: u64, on: &[TxnId]) {
        if self.stranded.among(on).is_some() {
            let stranded = self
                .stranded
                .txns
                .iter()
                .find(|entry| on.contains(&entry.txn))
                .map(|entry| entry.txn);
            let told = stranded
                .into_iter()
                .flat_map(|on| self.locks.members(line).map(move |waiter| (waiter, on)));
            self.stranded.waiters.extend(told);
        }
    }

    /// A transaction has ended: answers its last call, unless that was answered when it was
    /// stranded.
    pub(super) fn ended(&mut self, id: TxnId, task: &Task, out: &mut Outbox) {
        let Some(at) = self.stranded.txns.iter().position(|entry| entry.txn == id) else {
            return self.reply(task.origin, Ok(Reply::default()), out);
        };
        self.stranded.txns.swap_remove(at);
        tracing::info!(partition = %self.id, txn = %id, "a transaction is rolled back that could not be before");
    }

    /// Whether somebody is still to be told, or a rollback to be tried again.
    #[inline]
    pub(super) fn has_stranded_work(&self) -> bool {
        !self.stranded.waiters.is_empty()
            || self.stranded.txns.iter().any(|entry| entry.retry == Retry::Due)
    }

    /// Tells one of those who wait for a stranded transaction, or tries a rollback again; false if
    /// there is nothing to do.
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
        let id = entry.txn;
        if let Some(mut txn) = self.txns.remove(&id) {
            txn.retries = 0;
            // Nobody gets an answer: see invariant 3.
            let task = Task::new(Default::default(), Job::Finish { commit: None });
            if let After::Pin = self.run_task(id, &mut txn, task, out) {
                self.txns.insert(id, txn);
            }
        }
        true
    }
}

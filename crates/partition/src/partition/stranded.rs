//! Transactions that cannot be rolled back: a page, or a piece of the log, that the undo needs does not come back or makes no sense.
//!
//! Invariants
//! 1. A stranded transaction keeps its locks, as long as the process lives: its effects are there, and nobody may see them. The next start
//!    undoes it, or says which page is in the way.
//! 2. Nobody waits for it: who waits when it is stranded, and who would have to wait later, gets an error that says why.

use super::Partition;
use crate::message::{Failure, Outbox};
use crate::trees::Trees;
use crate::txn::{Job, Then};
use clearway_types::{SqlError, TxnId};

/// See the module's text.
#[derive(Default)]
pub(super) struct Stranded {
    txns: Vec<(TxnId, SqlError)>,
    /// Who waits for one of them, until he has been told.
    waiters: Vec<(TxnId, SqlError)>,
}

/// Whether the job is the last that its transaction is asked for: what it leaves, stays.
fn is_last(job: &Job) -> bool {
    matches!(job, Job::Finish { commit: None } | Job::Undo { then: Then::End(_), .. })
}

/// What those are told in whose way its locks are.
fn in_the_way(failure: &Failure) -> SqlError {
    const HINT: &str =
        "Its changes stay locked until the next start, which rolls it back. All other rows are unaffected.";
    match failure {
        Failure::Sql(cause) => {
            let text = format!("a transaction that is in the way could not be rolled back: {}", cause.message());
            SqlError::new(cause.state(), text).hint(HINT)
        }
        Failure::StalePlan => SqlError::internal("an undo has no plan").hint(HINT),
    }
}

impl Stranded {
    /// Why none of these can be waited for, if one of them is stranded.
    pub(super) fn among(&self, txns: &[TxnId]) -> Option<SqlError> {
        self.txns.iter().find(|(txn, _)| txns.contains(txn)).map(|(_, error)| error.clone())
    }
}

impl<T: Trees> Partition<T> {
    /// The transaction's job cannot go on. If it was the last one, its locks stay, and who waits for them is to be told.
    pub(super) fn strand(&mut self, id: TxnId, job: &Job, failure: &Failure) {
        if !is_last(job) {
            return;
        }
        // A partition that it has to itself would be nobody's any more; its locks are enough.
        self.unblock(id);
        let error = in_the_way(failure);
        let waiters = self.locks.waiters_of(id).into_iter().map(|txn| (txn, error.clone()));
        self.stranded.waiters.extend(waiters);
        self.stranded.txns.push((id, error));
    }

    /// Whether somebody is still to be told.
    pub(super) fn has_waiters(&self) -> bool {
        !self.stranded.waiters.is_empty()
    }

    /// Tells one of those who wait for a stranded transaction; false if there is none.
    pub(super) fn turn_away_one(&mut self, out: &mut Outbox) -> bool {
        let Some((txn, error)) = self.stranded.waiters.pop() else { return false };
        if self.locks.waits(txn) {
            self.cancel(txn, error, out);
        }
        true
    }
}

//! What a partition keeps of a transaction between messages.

use crate::exec::{Exec, Locking, only_reads};
use crate::message::{Failure, FragmentOrigin, RawOp, Stake};
use crate::reads::Reads;
use crate::versions::{AsOf, Loaded};
use clearway_buffer::MissingPage;
use clearway_ir::Requester;
use clearway_storage::{Missed, UndoLog};
use clearway_types::{Lsn, SqlError, TableId, TreeId, TxnId};

/// A transaction that has been here and is not over.
pub(crate) struct Txn<L> {
    pub log: L,
    /// Its last call.
    pub origin: FragmentOrigin,
    /// Its stake before its last call.
    pub stake: Stake,
    /// The savepoints that have not been released, in ascending order of their IDs.
    pub savepoints: Vec<Savepoint>,
    /// From the first savepoint on, changes of the transaction's own trees need undo. Also after
    /// the savepoint has been released: a rollback must not find gaps between the changes.
    pub has_had_savepoint: bool,
    /// Trees to drop if it aborts.
    pub created: Vec<TreeId>,
    /// Trees to drop when it commits.
    pub drops: Vec<TreeId>,
    /// Tables whose older plans are stale when it commits.
    pub changed: Vec<(TableId, u64)>,
    /// The task that runs or waits.
    pub task: Option<Task>,
    /// Statements whose batch is full.
    pub paused: Vec<Statement>,
    pub reads: Reads,
    /// It may hold increment locks, or exclusive ones in place of them.
    pub adds: bool,
    /// Rows that it has deleted here and reinserted under other keys or at other partitions.
    /// ROLLBACK TO does not remove any of them.
    pub moved: Vec<RowKey>,
    /// Number of times that its end has been retried because pages could not be provided.
    pub retries: u32,
    /// Whether its end depends neither on another transaction's lock nor on a client.
    pub short: bool,
    /// A transaction that it was behind has been undone, and so has this one: it can only end.
    pub doomed: bool,
    /// Number of transactions behind it that have been undone here, by the cascade in progress.
    pub undone_behind: usize,
}

/// A row, by its tree and key.
pub(crate) type RowKey = (TreeId, Box<[u8]>);

/// The state that ROLLBACK TO restores.
pub(crate) struct Savepoint {
    pub id: u32,
    pub mark: usize,
    pub drops: usize,
    pub changed: usize,
}

/// A call without a reply yet.
pub(crate) struct Task {
    pub origin: FragmentOrigin,
    pub job: Job,
    pub waiting: Waiting,
    pub missed: Missed,
    /// Blocks of the temporary file for its next attempt.
    pub loaded: Option<Box<Loaded>>,
}

impl Task {
    pub(crate) fn new(origin: FragmentOrigin, job: Job) -> Self {
        Self { origin, job, waiting: Waiting::No, missed: Missed::default(), loaded: None }
    }

    /// Returns true if it reads as of a snapshot.
    pub(crate) fn sees_snapshot(&self) -> bool {
        matches!(&self.job, Job::Statement(Statement { as_of: Some(_), .. }))
    }

    /// Returns the pages that the next attempt needs, after an attempt that missed `pages`. `mark`
    /// is the number of changes that the transaction has made. Reads descend one tree at a time,
    /// and request their path themselves.
    #[cold]
    pub(crate) fn recall(&mut self, pages: Vec<MissingPage>, mark: usize) -> Vec<MissingPage> {
        let program = match &self.job {
            Job::OneShot(shot) => Some(&shot.exec.program),
            Job::Speculate(exec) => Some(&exec.program),
            Job::Statement(statement) => Some(&statement.exec.program),
            _ => None,
        };
        if program.is_some_and(|program| only_reads(program)) {
            return pages;
        }
        self.missed.recall(pages, mark)
    }
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Nothing: it runs.
    No,
    /// The end of the lock wait with this number.
    Lock(u64),
    /// [`crate::Body::Resume`], or its turn.
    Resume,
    /// [`crate::Body::Resume`], or [`crate::Body::Unavailable`] for this request of pages. The
    /// partition numbers its requests and lock waits together.
    Pages(u64),
}

/// A statement of a general transaction.
pub(crate) struct Statement {
    pub exec: Box<Exec>,
    /// The number of changes before its own.
    pub mark: usize,
    /// Whether it works on trees that no one else can see.
    pub fresh: bool,
    /// Same as [`crate::Body::Statement::learns`].
    pub learns: bool,
    /// Same as [`crate::Body::Statement::may_use_retired`].
    pub may_use_retired: bool,
    /// Same as [`crate::Body::Statement::may_add`].
    pub may_add: bool,
    /// Same as [`crate::Body::Statement::optimistic`], until it is valid.
    pub optimistic: bool,
    /// The snapshot that it sees; `None` for the current state.
    pub as_of: Option<AsOf>,
}

/// A one-shot transaction.
pub(crate) struct OneShot {
    pub exec: Box<Exec>,
    pub locking: Locking,
    pub misses: u32,
}

pub(crate) enum Job {
    OneShot(OneShot),
    /// A one-shot behind an undecided transaction.
    Speculate(Box<Exec>),
    Statement(Statement),
    KeepVersions {
        generation: u64,
        /// Number of page misses.
        misses: u32,
    },
    AwaitLarge {
        table: TableId,
        /// Whether it has waited.
        waited: bool,
    },
    LockTable {
        table: TableId,
        requester: Option<Requester>,
    },
    CreateTrees {
        trees: Vec<TreeId>,
        at: usize,
    },
    Raw(RawOp),
    /// Waits for the transactions that it is behind, then fails if there is a failure.
    Settle(Option<Failure>),
    /// See [`crate::Body::ConvertIncrements`].
    ConvertIncrements,
    /// Undoes down to a mark, then replies.
    Undo {
        to: usize,
        then: Then,
    },
    Finish {
        commit: Option<Lsn>,
    },
}

/// What follows an undo.
pub(crate) enum Then {
    /// The statement fails.
    Fail(Failure),
    /// The statement fails, possibly because of changes by the transactions that it is behind.
    Settle(Failure),
    /// The one-shot fails and is over.
    End(Failure),
    /// ROLLBACK TO is complete.
    Done,
    /// The optimistic run was invalid: the one-shot runs again with locks; a fragment, if it is
    /// none, fails.
    Discarded(Option<OneShot>),
    /// The speculative one-shot has failed, or runs again later if there is no failure.
    Speculated { exec: Box<Exec>, failure: Option<Failure>, cancelled: Option<SqlError> },
}

impl Job {
    /// Returns true if only an unavailable page may end the job early.
    pub(crate) fn must_continue(&self) -> bool {
        matches!(self, Self::Undo { .. } | Self::Finish { .. })
    }

    /// Records the cancellation of a call that would go on after its undo: a one-shot that would
    /// run again, or a statement whose failure would wait for the transactions that it is behind.
    pub(crate) fn cancel_after_undo(&mut self, error: SqlError) {
        let Self::Undo { then, .. } = self else { return };
        match then {
            Then::Speculated { cancelled, .. } => *cancelled = Some(error),
            Then::Settle(_) => *then = Then::Fail(Failure::Sql(error)),
            Then::Discarded(Some(_)) => *then = Then::End(Failure::Sql(error)),
            _ => {}
        }
    }

    /// Returns the session and statement of the job.
    pub(crate) fn requester(&self) -> Option<Requester> {
        match self {
            Self::OneShot(o) => o.exec.env.requester(),
            Self::Speculate(exec) => exec.env.requester(),
            Self::Statement(s) => s.exec.env.requester(),
            Self::LockTable { requester, .. } => requester.clone(),
            Self::KeepVersions { .. }
            | Self::AwaitLarge { .. }
            | Self::CreateTrees { .. }
            | Self::Raw(_)
            | Self::Settle(_)
            | Self::ConvertIncrements
            | Self::Undo { .. }
            | Self::Finish { .. } => None,
        }
    }

    /// Returns the transaction's stake with this job; `before` is its stake without it.
    pub(crate) fn stake(&self, before: Stake) -> Stake {
        match (self, before) {
            (Self::Statement(s), Stake::Rows(rows)) => {
                Stake::Rows(rows.saturating_add(s.exec.count()))
            }
            _ => before,
        }
    }
}

impl<L: UndoLog> Txn<L> {
    pub(crate) fn new(id: TxnId, stake: Stake) -> Self {
        Self {
            log: L::new(id),
            origin: FragmentOrigin::default(),
            stake,
            savepoints: Vec::new(),
            has_had_savepoint: false,
            created: Vec::new(),
            drops: Vec::new(),
            changed: Vec::new(),
            task: None,
            paused: Vec::new(),
            reads: Reads::default(),
            adds: false,
            moved: Vec::new(),
            retries: 0,
            short: false,
            doomed: false,
            undone_behind: 0,
        }
    }

    /// Frees everything of a transaction that has ended but a little memory for
    /// [`Txn::renew`]: the list of reads, which is short.
    pub(crate) fn shed(&mut self) {
        let mut reads = std::mem::take(&mut self.reads);
        reads.forget();
        *self = Self { reads, ..Self::new(self.log.txn(), self.stake) };
    }

    /// Turns a transaction that has been [`Txn::shed`] into a new one.
    pub(crate) fn renew(&mut self, id: TxnId, stake: Stake) {
        (self.log, self.stake) = (L::new(id), stake);
    }

    /// Creates the transaction of a single statement, which ends soon.
    pub(crate) fn of_one_shot(id: TxnId) -> Self {
        Self { short: true, ..Self::new(id, Stake::Retry(0)) }
    }

    /// Returns true if the transaction has changed anything here. No later transaction depends on
    /// the end of one that has only read.
    pub(crate) fn leaves_something(&self) -> bool {
        self.log.mark() > 0
            || !(self.created.is_empty() && self.drops.is_empty() && self.changed.is_empty())
    }

    /// Counts a retry of the transaction's end; returns false after `limit` retries.
    pub(crate) fn may_retry(&mut self, limit: u32) -> bool {
        self.retries = self.retries.saturating_add(1);
        self.retries <= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_storage::TxnLog;

    /// Returns the memory that lists of the transaction occupy, in elements.
    fn listed(txn: &Txn<TxnLog>) -> usize {
        let lists = [
            txn.savepoints.capacity(),
            txn.created.capacity(),
            txn.drops.capacity(),
            txn.changed.capacity(),
            txn.paused.capacity(),
            txn.moved.capacity(),
        ];
        lists.into_iter().sum()
    }

    #[test]
    fn a_transaction_that_has_ended_leaves_nothing_to_the_next() {
        let mut txn = Txn::<TxnLog>::new(TxnId(1), Stake::Rows(7));
        txn.savepoints =
            (0..100).map(|id| Savepoint { id, mark: 0, drops: 0, changed: 0 }).collect();
        txn.created = vec![TreeId(5); 100];
        txn.drops = vec![TreeId(6); 100];
        txn.changed = vec![(TableId(3), 4); 100];
        txn.moved = vec![(TreeId(5), Box::default()); 100];
        (txn.has_had_savepoint, txn.adds, txn.short, txn.doomed) = (true, true, true, true);
        (txn.retries, txn.undone_behind) = (2, 3);
        assert!(listed(&txn) >= 500);

        txn.shed();
        assert_eq!(listed(&txn), 0);
        txn.renew(TxnId(2), Stake::Retry(1));
        assert_eq!((txn.log.txn(), txn.stake), (TxnId(2), Stake::Retry(1)));
        assert!(!txn.leaves_something() && txn.task.is_none());
        assert!(!(txn.has_had_savepoint || txn.adds || txn.short || txn.doomed));
        assert_eq!((txn.retries, txn.undone_behind), (0, 0));
    }
}

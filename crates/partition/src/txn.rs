//! What a partition keeps of a transaction between messages.

use crate::exec::{Exec, Locking, only_reads};
use crate::message::{Failure, Origin, RawOp, Stake};
use crate::reads::Reads;
use crate::trees::UndoLog;
use crate::versions::{AsOf, Loaded};
use clearway_buffer::MissingPage;
use clearway_ir::Asker;
use clearway_storage::Missed;
use clearway_types::{Lsn, TableId, TreeId, TxnId};

/// A transaction that has been here and is not over.
pub(crate) struct Txn<L> {
    pub log: L,
    /// Its last call.
    pub origin: Origin,
    /// What it had at stake before its last call.
    pub stake: Stake,
    pub savepoints: Vec<Savepoint>,
    /// Trees to drop if it aborts.
    pub created: Vec<TreeId>,
    /// Trees to drop when it commits.
    pub drops: Vec<TreeId>,
    /// Tables whose older plans are stale when it commits.
    pub changed: Vec<(TableId, u64)>,
    /// What runs or waits.
    pub task: Option<Task>,
    /// Statements whose batch is full.
    pub paused: Vec<Statement>,
    pub reads: Reads,
    /// Rows that it has taken out here, and put in under other keys or at other partitions. Not
    /// undone.
    pub moved: Vec<RowKey>,
    /// How often its end has been tried again although what it wanted could not be had.
    pub retries: u32,
    /// Its end waits for nobody's lock, and for no client.
    pub short: bool,
    /// One that it was behind has been undone, and so has this one: it can only end.
    pub doomed: bool,
}

/// A row, by its tree and key.
pub(crate) type RowKey = (TreeId, Box<[u8]>);

/// What ROLLBACK TO goes back to.
pub(crate) struct Savepoint {
    pub id: u32,
    pub mark: usize,
    pub drops: usize,
    pub changed: usize,
}

/// A call that has not been answered.
pub(crate) struct Task {
    pub origin: Origin,
    pub job: Job,
    pub waiting: Waiting,
    pub missed: Missed,
    /// What its next attempt finds of the temporary file.
    pub loaded: Option<Box<Loaded>>,
}

impl Task {
    pub(crate) fn new(origin: Origin, job: Job) -> Self {
        Self { origin, job, waiting: Waiting::No, missed: Missed::default(), loaded: None }
    }

    /// Whether it reads as of a snapshot.
    pub(crate) fn sees_snapshot(&self) -> bool {
        matches!(&self.job, Job::Statement(Statement { as_of: Some(_), .. }))
    }

    /// What the next attempt is to find, after one that has missed this; `mark`: how many changes
    /// the transaction has made. Reads go down one tree at a time, and ask for their way
    /// themselves.
    #[cold]
    pub(crate) fn recall(&mut self, wants: Vec<MissingPage>, mark: usize) -> Vec<MissingPage> {
        let program = match &self.job {
            Job::OneShot(shot) => Some(&shot.exec.program),
            Job::Statement(statement) => Some(&statement.exec.program),
            _ => None,
        };
        if program.is_some_and(|program| only_reads(program)) {
            return wants;
        }
        self.missed.recall(wants, mark)
    }
}

/// What lets a task go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Nothing: it runs.
    No,
    /// The grant that ends this wait, as numbered by the partition.
    Lock(u64),
    /// [`crate::Body::Resume`], or its turn.
    Resume,
}

/// A statement of a general transaction.
pub(crate) struct Statement {
    pub exec: Box<Exec>,
    /// Where its own effects begin.
    pub mark: usize,
    /// It works on trees that nobody else can see.
    pub fresh: bool,
    /// As [`crate::Body::Statement::learns`].
    pub learns: bool,
    /// As [`crate::Body::Statement::goes_behind`].
    pub goes_behind: bool,
    /// What it sees; `None`: what is newest.
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
    Statement(Statement),
    KeepVersions {
        generation: u64,
        /// How often it has wanted pages.
        misses: u32,
    },
    LockTable {
        table: TableId,
        asker: Option<Asker>,
    },
    CreateTrees {
        trees: Vec<TreeId>,
        at: usize,
    },
    Raw(RawOp),
    /// Waits for those that it is behind, and then fails if there is a failure.
    Settle(Option<Failure>),
    /// Undoes down to a mark, then answers.
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
    /// The statement has failed.
    Fail(Failure),
    /// The statement has failed, perhaps for what those have written that its transaction is
    /// behind.
    Settle(Failure),
    /// The one-shot has failed and is over.
    End(Failure),
    /// ROLLBACK TO is done.
    Done,
}

impl Job {
    /// Whether nothing but a page that cannot be had may end it early.
    pub(crate) fn must_go_on(&self) -> bool {
        matches!(self, Self::Undo { .. } | Self::Finish { .. })
    }

    /// Whose statement it is.
    pub(crate) fn asker(&self) -> Option<Asker> {
        match self {
            Self::OneShot(o) => o.exec.env.asker(),
            Self::Statement(s) => s.exec.env.asker(),
            Self::LockTable { asker, .. } => asker.clone(),
            Self::KeepVersions { .. }
            | Self::CreateTrees { .. }
            | Self::Raw(_)
            | Self::Settle(_)
            | Self::Undo { .. }
            | Self::Finish { .. } => None,
        }
    }

    /// What the transaction has at stake with this job, and without it `before`.
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
            origin: Origin::default(),
            stake,
            savepoints: Vec::new(),
            created: Vec::new(),
            drops: Vec::new(),
            changed: Vec::new(),
            task: None,
            paused: Vec::new(),
            reads: Reads::default(),
            moved: Vec::new(),
            retries: 0,
            short: false,
            doomed: false,
        }
    }

    /// Whether anything here is not as it was before: nobody who comes after a transaction that has
    /// only read depends on its end.
    pub(crate) fn leaves_something(&self) -> bool {
        self.log.mark() > 0
            || !(self.created.is_empty() && self.drops.is_empty() && self.changed.is_empty())
    }

    /// Whether its end may be tried again, which it may be so often.
    pub(crate) fn try_again(&mut self, limit: u32) -> bool {
        self.retries = self.retries.saturating_add(1);
        self.retries <= limit
    }
}

//! What a partition is told and what it answers.

use crate::lock::{HotRow, Wanted};
use clearway_buffer::{MissingPage, Pin};
use clearway_ir::program::Env;
use clearway_ir::{Asker, Program};
use clearway_latch::lockstat::Class;
use clearway_storage::{LogRead, SpillRead, SpillWrite};
use clearway_types::{Lsn, PartitionId, RowBatch, SqlError, SqlState, TableId, TreeId, TxnId};
use std::fmt::{self, Debug, Formatter};
use std::panic::Location;
use std::sync::Arc;

/// Where a reply goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The worker that runs the session.
    pub worker: u16,
    /// The session, as its worker numbers it.
    pub session: u32,
    /// The call: lets the session drop a reply that it no longer waits for.
    pub seq: u32,
}

/// What a transaction loses if it gives up. Of the transactions in a deadlock the one with the
/// least gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stake {
    /// Nothing: it is one statement, which the engine runs again. How often it has given up
    /// already.
    Retry(u32),
    /// The rows that it has read and changed.
    Rows(u64),
}

/// A message to a partition. Every message but [`Body::Resume`], [`Body::Unavailable`],
/// [`Body::Unblock`], [`Body::AwaitsClient`], [`Body::Forget`], [`Body::Cancel`], [`Body::GiveUp`]
/// and [`Body::HotRows`] has exactly one [`Out::Reply`].
#[derive(Debug)]
pub struct Message {
    /// The transaction, unique; a one-shot has one too.
    pub txn: TxnId,
    /// What the transaction has at stake without this call. Only calls that may wait for locks need
    /// it.
    pub stake: Stake,
    /// Where the reply goes.
    pub origin: Origin,
    /// What is to be done.
    pub body: Body,
}

/// Instead of a snapshot: all that is committed when the statement runs, of one row that it reads
/// by its key at one partition.
pub const COMMITTED: Lsn = Lsn(u64::MAX);

/// How much of its output a statement answers with before it pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Names the statement among those of its transaction that have paused.
    pub id: u32,
    /// At most this number of rows; at least 1.
    pub rows: u32,
    /// No further row after this number of bytes.
    pub bytes: u32,
}

impl Batch {
    /// All of the output at once.
    pub const ALL: Self = Self { id: 0, rows: u32::MAX, bytes: u32::MAX };
}

/// What is to be done.
#[derive(Debug)]
pub enum Body {
    /// A single-partition transaction: runs and commits here.
    OneShot {
        /// What to run.
        program: Arc<Program>,
        /// What its expressions see.
        env: Arc<Env>,
        /// The rows of an INSERT.
        rows: Option<RowBatch>,
    },
    /// A statement of a general transaction.
    Statement {
        /// What to run.
        program: Arc<Program>,
        /// What its expressions see.
        env: Arc<Env>,
        /// The rows of an INSERT.
        rows: Option<RowBatch>,
        /// Pause when a batch of output rows is full ([`Reply::more`]); [`Body::Next`] goes on.
        batch: Batch,
        /// The table's trees were made by this transaction: no row locks, and no undo unless there
        /// is a savepoint.
        fresh: bool,
        /// It is part of a block that may change rows: its reads of single rows take the lock that
        /// is learned for their plan, and are evidence.
        learns: bool,
        /// It is an UPDATE in a block below REPEATABLE READ: it may change a row whose last change
        /// is not committed ([`crate::Limits::retire`]).
        goes_behind: bool,
    },
    /// A statement of a general transaction that sees an open snapshot and its transaction's own
    /// changes. If it only reads, it takes no lock and waits for none. If it changes rows or locks
    /// them, it locks the rows alone, and takes the newest version of each if that satisfies its
    /// condition, too.
    StatementAt {
        /// The snapshot, or [`COMMITTED`].
        at: Lsn,
        /// It fails (40001) where others have changed a row since the snapshot that it is to change
        /// or to lock.
        repeatable: bool,
        /// What to run.
        program: Arc<Program>,
        /// What its expressions see.
        env: Arc<Env>,
        /// The keys of a global index.
        rows: Option<RowBatch>,
        /// As in [`Body::Statement`].
        batch: Batch,
    },
    /// Goes on with the paused statement of this [`Batch::id`].
    Next(u32),
    /// Waits until the transactions that this one is behind here have been committed: see
    /// [`Reply::behind`].
    Settle,
    /// Drops the paused statement of this [`Batch::id`], if there is one. Not answered.
    Forget(u32),
    /// Sets a savepoint; ids grow.
    Savepoint(u32),
    /// Undoes what was done since the savepoint; it stays.
    RollbackTo(u32),
    /// Asks for the whole partition, for a transaction that is one round of fragments: all other
    /// work waits until it is finished. [`Reply::count`] is 1 if it is given, 0 if not: then its
    /// statements lock as those of any general transaction.
    Block,
    /// The transaction keeps locks on the tables that it has used here, and the rest of the
    /// partition is free again. Not answered.
    Unblock,
    /// Waits until no lock is held here, for a transaction that has been refused the partition and
    /// has neither locks nor a partition to itself. [`Reply::count`] is 1 then, and 0 as soon as
    /// one is here that may wait for its client: nobody knows how long.
    AwaitQuiet,
    /// As [`Body::Unblock`], and the transaction's client decides from now on when it ends: nobody
    /// should wait for that. Not answered.
    AwaitsClient,
    /// Keeps what changes replace from now on, for a snapshot that is being opened: see
    /// [`crate::Opening::generation`]. [`Reply::count`] is 1 if it does, 0 if it cannot.
    KeepVersions(u64),
    /// Locks a table, to change or to drop it.
    LockTable {
        /// Which.
        table: TableId,
        /// Who asks for it.
        asker: Option<Asker>,
    },
    /// Makes trees; an abort drops them again.
    CreateTrees(Vec<TreeId>),
    /// Drops trees when the transaction commits.
    DropTreesAtCommit(Vec<TreeId>),
    /// When the transaction commits, plans of this table with a lower `TableDef::version` become
    /// stale here, except for reads of snapshots that do not see the commit. Every partition must
    /// have answered before the transaction commits.
    TableChanged {
        /// The table.
        table: TableId,
        /// The least version that is still good.
        version: u64,
    },
    /// The decision. A transaction that this partition has never seen is finished at once.
    Finish {
        /// The commit record's LSN: lock release. `None`: undo first.
        commit: Option<Lsn>,
    },
    /// Ends what the transaction runs or waits for here: that call is answered with this error.
    /// Locks stay until [`Body::Finish`] (a one-shot ends altogether). Ignored if nothing runs, or
    /// if what runs is the end of the transaction or an undo.
    Cancel(SqlError),
    /// As [`Body::Cancel`] if the transaction is still in this wait for a lock, otherwise ignored.
    GiveUp {
        /// As [`Out::Waits::wait`].
        wait: u64,
        /// The answer.
        error: SqlError,
    },
    /// The wanted pages have come, or others have had a turn. What came stays in its frames until
    /// the task has run, however long this message waits for that: an attempt that wants no more
    /// pages than the pool can hold makes progress.
    Resume(Vec<Pin>),
    /// What it wants cannot be had: the call is answered with this error. The end of a transaction,
    /// which cannot fail, is tried again.
    Unavailable(SqlError),
    /// Rows by their bytes, locked and undone as any others: the catalog's.
    Raw(RawOp),
    /// Asks which rows are hot now, whoever has the partition: see [`Out::HotRows`]. Not answered.
    HotRows(TakeHotRows),
}

/// Takes the hot rows of a partition.
pub struct TakeHotRows(pub Box<dyn FnOnce(PartitionId, Vec<HotRow>) + Send>);

impl Debug for TakeHotRows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("TakeHotRows")
    }
}

impl Body {
    /// Whose statement asks.
    pub(crate) fn asker(&self) -> Option<Asker> {
        match self {
            Self::OneShot { env, .. }
            | Self::Statement { env, .. }
            | Self::StatementAt { env, .. } => env.asker(),
            Self::LockTable { asker, .. } => asker.clone(),
            _ => None,
        }
    }
}

/// An operation on a tree's raw rows. Values come back as the bytes of `Reply::rows`' rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawOp {
    /// The value of a key, or no row.
    Get {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
    },
    /// Inserts or replaces.
    Put {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Deletes; `Reply::count` says whether it was there.
    Delete {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
    },
    /// All values in key order.
    Scan {
        /// The tree.
        tree: TreeId,
    },
}

/// What a call brings back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Output rows.
    pub rows: RowBatch,
    /// Rows changed, or found by a scan (since the statement's last reply).
    pub count: u64,
    /// The statement has paused: [`Body::Next`] brings more.
    pub more: bool,
    /// The commit record of a one-shot that changed something.
    pub commit: Option<Lsn>,
    /// The transaction has changed a row at this partition whose last change is not committed:
    /// before it commits, [`Body::Settle`] must be answered there.
    pub behind: Option<PartitionId>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The client's to see.
    Sql(SqlError),
    /// A tree of the plan is not here any more, or the table's definition has changed: plan again.
    StalePlan,
    /// A one-shot that only reads cannot do so at once: its rows exceed
    /// [`crate::Limits::one_shot_bytes`], it takes more than a turn, or others have locked what it
    /// reads. It is to be run again as a statement with a snapshot.
    NeedsSnapshot,
    /// A transaction that the caller's was behind has been undone, and the caller's before it: all
    /// that it has done here is gone, and each further call is answered like this until its end.
    Undone,
}

impl Failure {
    /// What the client of an [undone](Self::Undone) transaction is told: 40001.
    #[cold]
    pub fn undone() -> SqlError {
        let text = "could not serialize access because a transaction that changed the same row before was rolled back";
        SqlError::new(SqlState::SERIALIZATION_FAILURE, text).hint("Run the transaction again.")
    }
}

impl From<SqlError> for Failure {
    fn from(e: SqlError) -> Self {
        Self::Sql(e)
    }
}

/// What a partition wants its surroundings to do.
#[derive(Debug)]
pub enum Out {
    /// Answer a call.
    Reply {
        /// Whose.
        to: Origin,
        /// By whom.
        partition: PartitionId,
        /// The answer.
        reply: Result<Reply, Failure>,
        /// The last commit at this partition: what the answer shows is durable when this is. An
        /// error shows something, too: a key that is there, say.
        depends_on: Lsn,
    },
    /// Fetch these and then send [`Body::Resume`], or [`Body::Unavailable`] if they cannot be had.
    Fetch {
        /// Where.
        partition: PartitionId,
        /// Who is suspended.
        txn: TxnId,
        /// What it needs in the pool at once.
        wants: Vec<MissingPage>,
    },
    /// Have this read where one may wait for the disk ([`LogRead::run`]), and then send
    /// [`Body::Resume`].
    ReadLog {
        /// Where.
        partition: PartitionId,
        /// Who is suspended.
        txn: TxnId,
        /// What it needs to undo its changes.
        read: LogRead,
    },
    /// Have this read where one may wait for the disk ([`SpillRead::run`]), then send
    /// [`Body::Resume`].
    ReadSpill {
        /// Where.
        partition: PartitionId,
        /// Who is suspended.
        txn: TxnId,
        /// The old versions of rows that it needs.
        read: SpillRead,
    },
    /// Give these to who has asked for them.
    HotRows {
        /// Where.
        partition: PartitionId,
        /// Those with the most holders and waiters, first and at most [`HotRow::MOST`].
        rows: Vec<HotRow>,
        /// Who has asked.
        take: TakeHotRows,
    },
    /// Have this written where one may wait for the disk ([`SpillWrite::run`]). Nobody waits for
    /// it.
    WriteSpill {
        /// Old versions of rows.
        write: SpillWrite,
    },
    /// Send [`Body::Resume`] when others have had a turn.
    Yield {
        /// Where.
        partition: PartitionId,
        /// Who; [`NOBODY`]: the partition itself, which has more to take up than one message may
        /// bring with it.
        txn: TxnId,
    },
    /// The call of a transaction that had the partition to itself cannot go on at once: it has
    /// locks now, and should let go of the other partitions that it has to itself
    /// ([`Body::Unblock`]).
    Stalled {
        /// The call.
        to: Origin,
    },
    /// The transaction, of which no call is unanswered here, has been undone: [`Failure::Undone`].
    /// Its session should end it at once, as it may have locks elsewhere.
    Undone {
        /// Its last call.
        to: Origin,
        /// Which.
        txn: TxnId,
    },
    /// The transaction waits for a lock, or for a partition that another has to itself.
    ///
    /// This, [`Out::Line`] and [`Out::Over`] change the waits-for graph, and two threads that had
    /// the partition one after the other may carry theirs out in any order: `order` says in which
    /// they count. A partition's start with 1 and leave no number out.
    Waits {
        /// Who.
        txn: TxnId,
        /// Where.
        partition: PartitionId,
        /// See above.
        order: u64,
        /// Which wait of this partition: never used again.
        wait: u64,
        /// What the transaction has at stake.
        stake: Stake,
        /// Its session and statement, if it says so: the engine's own transactions do not.
        asker: Option<Asker>,
        /// The line in which it waits for a lock, as numbered by the partition. None: it waits for
        /// the partition.
        line: Option<u64>,
        /// The lock, for who looks at the waits.
        wanted: Option<Arc<Wanted>>,
        /// What the wait is counted under, by who has a clock; the request has been counted.
        class: &'static Class,
        /// Where a statement asked for it.
        caller: &'static Location<'static>,
    },
    /// From now on these are in the way of everyone in the line. Nobody: the line is gone, and its
    /// number is never used again.
    Line {
        /// Where.
        partition: PartitionId,
        /// As [`Out::Waits::order`].
        order: u64,
        /// Which line of this partition.
        line: u64,
        /// Some of those that hold locks in conflict, or wait for such ones further ahead. The
        /// first is in the way until the line is told anew.
        on: Vec<TxnId>,
    },
    /// It no longer waits.
    Over {
        /// Who.
        txn: TxnId,
        /// Where.
        partition: PartitionId,
        /// As [`Out::Waits::order`].
        order: u64,
        /// Which wait.
        wait: u64,
        /// It has what it waited for; else the wait was given up.
        granted: bool,
    },
}

/// No transaction: what is told to it is told to the partition.
pub const NOBODY: TxnId = TxnId(0);

/// What [`crate::Partition::on_message`] fills.
pub type Outbox = Vec<Out>;

#[cfg(test)]
mod tests {
    use super::Message;

    /// A message is passed on by value several times on its way. Up to 128 bytes that takes no call
    /// of `memcpy` on x86-64.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_message_is_moved_without_a_call() {
        assert!(size_of::<Message>() <= 128, "{}", size_of::<Message>());
    }
}

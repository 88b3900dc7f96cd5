//! A partition's messages and replies.

use crate::lock::{HotRow, Wanted};
use crate::partition::PartitionReport;
use crate::scheme::SchemeKind;
use clearway_buffer::{MissingPage, Pin};
use clearway_ir::program::Env;
use clearway_ir::{Program, Requester};
use clearway_latch::lockstat::Class;
use clearway_storage::{LogRead, SpillRead, SpillWrite};
use clearway_types::{Lsn, PartitionId, RowBatch, SqlError, SqlState, TableId, TreeId, TxnId};
use std::fmt::{self, Debug, Formatter};
use std::panic::Location;
use std::sync::Arc;

/// Where a reply goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentOrigin {
    /// The worker that runs the session.
    pub worker: u16,
    /// The session, as its worker numbers it.
    pub session: u32,
    /// The call's number: the session drops replies that it no longer waits for.
    pub seq: u32,
}

/// What a transaction loses if it gives up. In a deadlock the transaction with the smallest stake
/// gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stake {
    /// Nothing: it is one statement, or a block, that the engine runs again. The value is the
    /// number of times it has given up already.
    Retry(u32),
    /// The number of rows that it has read and changed.
    Rows(u64),
}

/// A message to a partition. Every message gets exactly one [`Out::Reply`], except
/// [`Body::Resume`], [`Body::Unavailable`], [`Body::Unblock`], [`Body::AwaitsClient`],
/// [`Body::Forget`], [`Body::Release`], [`Body::Cancel`], [`Body::GiveUp`], [`Body::HotRows`] and
/// [`Body::Report`].
#[derive(Debug)]
pub struct Message {
    /// The transaction's unique id; a one-shot has one, too.
    pub txn: TxnId,
    /// What the transaction has at stake without this call. Only calls that may wait for locks need
    /// it.
    pub stake: Stake,
    /// Where the reply goes.
    pub origin: FragmentOrigin,
    /// The request.
    pub body: Body,
}

/// Used in place of a snapshot by a statement that reads one row by its key at one partition: it
/// sees everything committed when it runs.
pub const COMMITTED: Lsn = Lsn(u64::MAX);

/// How much output a statement returns before it pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Identifies the statement among the paused ones of its transaction.
    pub id: u32,
    /// Maximum number of rows; at least 1.
    pub rows: u32,
    /// No row is added after this number of bytes.
    pub bytes: u32,
}

impl Batch {
    /// All of the output at once.
    pub const ALL: Self = Self { id: 0, rows: u32::MAX, bytes: u32::MAX };
}

/// The request in a message.
#[derive(Debug)]
pub enum Body {
    /// A single-partition transaction, which runs and commits here.
    OneShot {
        /// The program to run.
        program: Arc<Program>,
        /// The environment of its expressions.
        env: Arc<Env>,
        /// The rows of an INSERT.
        rows: Option<RowBatch>,
    },
    /// A statement of a general transaction.
    Statement {
        /// The program to run.
        program: Arc<Program>,
        /// The environment of its expressions.
        env: Arc<Env>,
        /// The rows of an INSERT, or the entries of a global index.
        rows: Option<RowBatch>,
        /// Pause when a batch of output rows is full ([`Reply::more`]); [`Body::Next`] resumes.
        batch: Batch,
        /// Whether this transaction created the table's trees. Then there are no row locks, and no
        /// undo unless there is a savepoint.
        fresh: bool,
        /// Whether it is part of a block that may change rows. Then its reads of single rows take
        /// the lock learned for their plan, and count as evidence.
        learns: bool,
        /// Whether it is an UPDATE in a block below REPEATABLE READ. Then it may change a row whose
        /// last change is not committed ([`crate::Limits::retire`]).
        may_use_retired: bool,
        /// Whether an UPDATE that only adds may do so concurrently with others. Not at REPEATABLE
        /// READ: there, two concurrent changes of a row must not both commit.
        may_add: bool,
        /// Whether the transaction is this round of statements, which change rows, and has not
        /// requested its partitions. Then it runs without locks, is validated at its end, and has
        /// locks on what it has read and changed from then on. If it is invalid, it fails with
        /// [`Failure::Undone`].
        optimistic: bool,
    },
    /// A statement of a general transaction that sees an open snapshot and its transaction's own
    /// changes. If it only reads, it takes no locks and waits for none. If it changes or locks
    /// rows, it locks only the rows. It takes the newest version of each, provided that this
    /// version satisfies its condition, too.
    StatementAt {
        /// The snapshot, or [`COMMITTED`].
        at: Lsn,
        /// Whether it fails (40001) if others have changed a row since the snapshot that it must
        /// change or lock.
        repeatable: bool,
        /// The program to run.
        program: Arc<Program>,
        /// The environment of its expressions.
        env: Arc<Env>,
        /// The rows of an INSERT, or the entries of a global index.
        rows: Option<RowBatch>,
        /// Same as in [`Body::Statement`].
        batch: Batch,
    },
    /// Resumes the paused statement with this [`Batch::id`].
    Next(u32),
    /// Waits until the transactions that this one is behind here have committed; see
    /// [`Reply::behind`].
    Settle,
    /// Locks exclusively the rows to which the transaction has added here, and waits for others
    /// that add to them; see [`Reply::increments`].
    ConvertIncrements,
    /// Drops the paused statement with this [`Batch::id`], if there is one. No reply.
    Forget(u32),
    /// Sets a savepoint; ids increase.
    Savepoint(u32),
    /// Undoes what was done since the savepoint, which remains.
    RollbackTo(u32),
    /// Discards the savepoint and all later ones, and keeps what was done since. No reply.
    Release(u32),
    /// Requests the whole partition: all other work waits until the transaction is finished.
    /// [`Reply::count`] is 1 if granted, else 0: then its statements lock like those of any general
    /// transaction.
    Block {
        /// The transaction is one round of fragments: it sends exactly one statement to each of its
        /// partitions, once it has been granted all of them. Then others may run behind it while it
        /// is undecided, and it may run behind others ([`Reply::behind`]).
        one_round: bool,
    },
    /// The transaction keeps locks on the tables that it has used here, and releases the rest of
    /// the partition. No reply.
    Unblock,
    /// Waits until no lock is held here, for a transaction that was refused the partition and holds
    /// neither locks nor a partition. [`Reply::count`] is then 1. It is 0 as soon as a transaction
    /// has locks here that may wait for its client, for an unknown time, or if the scheme never
    /// grants the partition.
    AwaitQuiet,
    /// Like [`Body::Unblock`]; in addition, from now on the transaction's client decides when it
    /// ends, and others should not wait for that. No reply.
    AwaitsClient,
    /// Starts keeping what changes replace, for a snapshot that is being opened; see
    /// [`crate::Opening::generation`]. [`Reply::count`] is 1 on success, 0 if it cannot, even
    /// because of an unreadable page. Only a cancellation fails it.
    KeepVersions(u64),
    /// Waits for the end of other transactions that use this table and whose undo is only in the
    /// log, which makes [`Body::KeepVersions`] impossible. [`Reply::count`] is 1 if it has waited,
    /// and no transaction of that kind is left.
    AwaitLarge(TableId),
    /// Locks a table in order to change or drop it.
    LockTable {
        /// The table.
        table: TableId,
        /// The session and statement that request it.
        requester: Option<Requester>,
    },
    /// Creates trees; an abort drops them again.
    CreateTrees(Vec<TreeId>),
    /// Drops trees when the transaction commits.
    DropTreesAtCommit(Vec<TreeId>),
    /// When the transaction commits, plans of this table with a lower `TableDef::version` become
    /// stale here, except for reads of snapshots that do not see the commit. Every partition must
    /// have replied before the transaction commits.
    TableChanged {
        /// The table.
        table: TableId,
        /// The lowest version that is still valid.
        version: u64,
    },
    /// The decision. A transaction unknown to this partition is finished immediately.
    Finish {
        /// The commit record's LSN: release the locks. `None`: undo first.
        commit: Option<Lsn>,
    },
    /// Cancels what the transaction runs or waits for here: that call fails with this error. Its
    /// locks stay until [`Body::Finish`]; a one-shot ends completely. Ignored if nothing runs, or
    /// if what runs is the end of the transaction or an undo.
    Cancel(SqlError),
    /// Like [`Body::Cancel`] if the transaction is still in this wait for a lock, otherwise
    /// ignored.
    GiveUp {
        /// Same as [`Out::Waits::wait`].
        wait: u64,
        /// The reply.
        error: SqlError,
    },
    /// The requested pages are resident, or others have had a turn. The pins keep the pages in
    /// their frames until the task has run, however long this message waits for that. So an attempt
    /// makes progress if it needs no more pages than the pool can hold.
    Resume(Vec<Pin>),
    /// The requested pages cannot be provided: the call fails with this error. The end of a
    /// transaction, which cannot fail, is retried. [`Body::KeepVersions`] is refused.
    Unavailable {
        /// The number of the request: [`Out::Fetch::request`].
        request: u64,
        /// The reason.
        error: SqlError,
    },
    /// An operation on raw rows, those of the catalog, with locks and undo like any other.
    Raw(RawOp),
    /// Requests the rows that are hot now, even if the partition is blocked; see [`Out::HotRows`].
    /// No reply.
    HotRows(TakeHotRows),
    /// Changes the partition's scheme. Takes effect, and is answered, when no transaction has the
    /// partition to itself; until then new work waits in line. The message's transaction does
    /// nothing else and is not finished.
    SetScheme(SchemeKind),
    /// Requests the partition's state and counts, even if it is blocked; see [`Out::Report`]. No
    /// reply.
    Report(TakeReport),
}

/// Receives the hot rows of a partition.
pub struct TakeHotRows(pub Box<dyn FnOnce(PartitionId, Vec<HotRow>) + Send>);

impl Debug for TakeHotRows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("TakeHotRows")
    }
}

/// Receives the state and the counts of a partition.
pub struct TakeReport(pub Box<dyn FnOnce(PartitionId, PartitionReport) + Send>);

impl Debug for TakeReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("TakeReport")
    }
}

impl Body {
    /// Returns the session and statement of the request.
    pub(crate) fn requester(&self) -> Option<Requester> {
        match self {
            Self::OneShot { env, .. }
            | Self::Statement { env, .. }
            | Self::StatementAt { env, .. } => env.requester(),
            Self::LockTable { requester, .. } => requester.clone(),
            _ => None,
        }
    }
}

/// An operation on a tree's raw rows. Values are returned as the bytes of the rows in
/// `Reply::rows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawOp {
    /// Returns the value of a key, or no row.
    Get {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
    },
    /// Inserts or replaces a value.
    Put {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Deletes a key; `Reply::count` is 1 if it existed.
    Delete {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
    },
    /// Returns all values in key order.
    Scan {
        /// The tree.
        tree: TreeId,
    },
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Output rows.
    pub rows: RowBatch,
    /// Rows changed, or found by a scan, since the statement's last reply.
    pub count: u64,
    /// Whether the statement has paused: [`Body::Next`] returns more.
    pub more: bool,
    /// The commit record's LSN of a one-shot that changed something.
    pub commit: Option<Lsn>,
    /// Set if the transaction has changed a row at this partition whose last change is not
    /// committed, or has run there behind an undecided transaction. Before it commits,
    /// [`Body::Settle`] must have been answered there.
    pub behind: Option<PartitionId>,
    /// Set if the transaction may have added to a row at this partition concurrently with others.
    /// Before it reads without locks, [`Body::ConvertIncrements`] must have been answered there. A
    /// [`Body::StatementAt`] to the same partition includes that.
    pub increments: Option<PartitionId>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error for the client.
    Sql(SqlError),
    /// A tree of the plan no longer exists, or the table's definition has changed: plan again.
    StalePlan,
    /// A read-only one-shot cannot complete immediately: its rows exceed
    /// [`crate::Limits::one_shot_bytes`], it needs more than one turn, or others have locked what
    /// it reads. It must run again as a statement with a snapshot.
    NeedsSnapshot,
    /// A transaction that this one was behind has been undone, and this one before it; or it ran
    /// optimistically, and its run was invalid. All its changes here are gone, and each further
    /// call fails with this until it ends.
    Undone,
}

impl Failure {
    /// Returns the client's error for an [undone](Self::Undone) transaction: 40001.
    #[cold]
    pub fn undone() -> SqlError {
        let text =
            "could not serialize access because an earlier change of the same row was rolled back";
        SqlError::new(SqlState::SERIALIZATION_FAILURE, text).hint("Run the transaction again.")
    }
}

impl From<SqlError> for Failure {
    fn from(e: SqlError) -> Self {
        Self::Sql(e)
    }
}

/// A request from a partition to its environment.
#[derive(Debug)]
pub enum Out {
    /// Reply to a call.
    Reply {
        /// The caller.
        to: FragmentOrigin,
        /// The replying partition.
        partition: PartitionId,
        /// The reply.
        reply: Result<Reply, Failure>,
        /// The last commit at this partition: the reply is durable when this commit is. An error
        /// may reveal data, too, for example an existing key.
        depends_on: Lsn,
    },
    /// Fetch these pages, then send [`Body::Resume`], or [`Body::Unavailable`] if they cannot be
    /// read.
    Fetch {
        /// The partition.
        partition: PartitionId,
        /// The suspended transaction.
        txn: TxnId,
        /// The number of this request. An answer to an earlier one cannot fail the transaction.
        request: u64,
        /// The pages that it needs in the pool at once.
        wants: Vec<MissingPage>,
    },
    /// Run this read on a thread that may wait for the disk ([`LogRead::run`]), then send
    /// [`Body::Resume`].
    ReadLog {
        /// The partition.
        partition: PartitionId,
        /// The suspended transaction.
        txn: TxnId,
        /// The log that it needs to undo its changes.
        read: LogRead,
    },
    /// Run this read on a thread that may wait for the disk ([`SpillRead::run`]), then send
    /// [`Body::Resume`].
    ReadSpill {
        /// The partition.
        partition: PartitionId,
        /// The suspended transaction.
        txn: TxnId,
        /// The old row versions that it needs.
        read: SpillRead,
    },
    /// Pass these rows to the requester.
    HotRows {
        /// The partition.
        partition: PartitionId,
        /// At most [`HotRow::MOST`] rows, those with the most holders and waiters first.
        rows: Vec<HotRow>,
        /// The requester.
        take: TakeHotRows,
    },
    /// From now on the partition has this scheme. Two threads that ran the partition one after the
    /// other may deliver theirs in any order; the largest `order` is the last one.
    Scheme {
        /// The partition.
        partition: PartitionId,
        /// The number of the change, from 1.
        order: u64,
        /// The scheme.
        scheme: SchemeKind,
    },
    /// Pass this report to the requester.
    Report {
        /// The partition.
        partition: PartitionId,
        /// Its state and counts.
        report: PartitionReport,
        /// The requester.
        take: TakeReport,
    },
    /// Run this write on a thread that may wait for the disk ([`SpillWrite::run`]). Nothing waits
    /// for it.
    WriteSpill {
        /// Old row versions.
        write: SpillWrite,
    },
    /// Send [`Body::Resume`] after others have had a turn.
    Yield {
        /// The partition.
        partition: PartitionId,
        /// The transaction. [`NOBODY`] means the partition itself, which has more calls to resume
        /// than one message may resume.
        txn: TxnId,
    },
    /// A call of a transaction that had the partition to itself cannot continue immediately. The
    /// transaction now has locks, and should release the other partitions that it has to itself
    /// ([`Body::Unblock`]).
    Stalled {
        /// The call.
        to: FragmentOrigin,
    },
    /// The transaction has been undone while no call of it was unanswered here; see
    /// [`Failure::Undone`]. Its session should end it soon, because it may have locks elsewhere.
    Undone {
        /// Its last call.
        to: FragmentOrigin,
        /// The transaction.
        txn: TxnId,
    },
    /// The transaction waits for a lock, or for a partition that another has to itself.
    ///
    /// This, [`Out::Line`] and [`Out::Over`] change the waits-for graph. Two threads that ran the
    /// partition one after the other may deliver theirs in any order; `order` is the order in which
    /// they apply. A partition numbers them from 1 without gaps.
    Waits {
        /// The transaction.
        txn: TxnId,
        /// The partition.
        partition: PartitionId,
        /// See above.
        order: u64,
        /// The wait's number at this partition, never reused.
        wait: u64,
        /// What the transaction has at stake.
        stake: Stake,
        /// Its session and statement; none for the engine's own transactions.
        requester: Option<Requester>,
        /// The line in which it waits for a lock, as numbered by the partition. `None` if it waits
        /// for the partition.
        line: Option<u64>,
        /// The lock, for the views.
        wanted: Option<Arc<Wanted>>,
        /// The class under which the code that has a clock counts the wait; the request has already
        /// been counted.
        class: &'static Class,
        /// Where the statement made the request.
        caller: &'static Location<'static>,
    },
    /// From now on these transactions block every member of the line. If there are none, the line
    /// is closed and its number is never reused.
    Line {
        /// The partition.
        partition: PartitionId,
        /// Same as [`Out::Waits::order`].
        order: u64,
        /// The line's number at this partition.
        line: u64,
        /// Some of the transactions that hold conflicting locks, or wait for conflicting ones
        /// further ahead. The first one blocks the line until the line is reported again.
        on: Vec<TxnId>,
    },
    /// The wait is over.
    Over {
        /// The transaction.
        txn: TxnId,
        /// The partition.
        partition: PartitionId,
        /// Same as [`Out::Waits::order`].
        order: u64,
        /// The wait's number.
        wait: u64,
        /// Whether it was granted; otherwise the wait was given up.
        granted: bool,
    },
}

/// No transaction: messages to it are for the partition itself.
pub const NOBODY: TxnId = TxnId(0);

/// The requests that [`crate::Partition::on_message`] appends.
pub type Outbox = Vec<Out>;

#[cfg(test)]
mod tests {
    use super::Message;

    /// A message is passed by value several times. Up to 128 bytes, x86-64 copies it without a call
    /// of `memcpy`.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn messages_are_small_enough_to_move_inline() {
        assert!(size_of::<Message>() <= 128, "{}", size_of::<Message>());
    }
}

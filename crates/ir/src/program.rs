//! Programs: what one fragment does at one partition.

use crate::search_path::SearchPath;
use crate::{Expr, GlobalIndexOp, LearnedSlot, MemoryAccount, TableDef, UniqueKey};
use clearway_types::{Datum, SqlError, SqlState};
use std::sync::Arc;
// Plain std: a mark that decides nothing between threads.
use std::sync::atomic::{AtomicBool, Ordering};

/// What an expression may see besides its row: fixed for one execution of a statement.
#[derive(Clone, Debug, Default)]
pub struct Env {
    /// The statement's parameters, converted to their types.
    pub params: Vec<Datum>,
    /// The transaction's start, microseconds since 2000-01-01 UTC.
    pub now: i64,
    /// The arrival of the client's message that asked for the statement, likewise.
    pub statement_now: i64,
    /// What the session contributes.
    pub session: Option<Arc<SessionEnv>>,
    /// Seed of random() for this execution.
    pub seed: u64,
    /// What the execution may take of memory.
    pub memory: MemoryAccount,
    /// The statement, for who wants to know who waits.
    pub text: StatementText,
    /// Whether it has told another session something.
    pub acted: Acted,
}

/// Whether an execution has done what no rollback undoes.
#[derive(Debug, Default)]
pub struct Acted(AtomicBool);

impl Acted {
    pub(crate) fn set(&self) {
        // Relaxed: looked at when the execution is over, by who has its answer.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clone for Acted {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Ordering::Relaxed)))
    }
}

/// What a client has sent as its statement, with the other statements of the same message.
#[derive(Clone, Debug, Default)]
pub enum StatementText {
    /// None: it is the engine's own.
    #[default]
    Unknown,
    /// The text of a parsed statement.
    Parsed(Arc<str>),
    /// A text whose room the session uses again when nobody else has it.
    Reused(Arc<String>),
}

impl AsRef<str> for StatementText {
    fn as_ref(&self) -> &str {
        match self {
            Self::Unknown => "",
            Self::Parsed(text) => text,
            Self::Reused(text) => text,
        }
    }
}

/// Whose statement asks for a lock.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The session's backend id.
    pub pid: i32,
    /// The statement.
    pub text: StatementText,
}

impl Env {
    /// The session's time zone, UTC without a session.
    pub fn zone(&self) -> &crate::value::Zone {
        static UTC: crate::value::Zone = crate::value::Zone(jiff::tz::TimeZone::UTC);
        self.session.as_ref().map_or(&UTC, |s| &s.zone)
    }

    /// Whether the execution has done what no rollback undoes: it has told another session
    /// something.
    pub fn has_acted(&self) -> bool {
        // Relaxed: see `Acted::set`.
        self.acted.0.load(Ordering::Relaxed)
    }

    /// Whose statement it is; `None` without a session.
    pub fn asker(&self) -> Option<Asker> {
        Some(Asker { pid: self.session.as_ref()?.pid, text: self.text.clone() })
    }
}

/// What a session may be told by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// To end what it runs.
    Cancel,
    /// To end altogether.
    Terminate,
}

impl Signal {
    /// What the session's client is told.
    pub fn error(self) -> SqlError {
        match self {
            Self::Cancel => {
                SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
            }
            Self::Terminate => SqlError::new(
                SqlState::ADMIN_SHUTDOWN,
                "terminating connection due to administrator command",
            ),
        }
    }
}

/// The server's sessions, as the expressions of another one act on them.
pub trait Backends: std::fmt::Debug + Send + Sync {
    /// Signals the session with this backend id; true if there is one. Waits for nothing.
    fn signal(&self, pid: i32, signal: Signal) -> bool;
}

/// The session's part of [`Env`]; replaced as a whole when a setting changes.
#[derive(Clone, Debug, Default)]
pub struct SessionEnv {
    /// The connected user.
    pub user: String,
    /// The connected database.
    pub database: String,
    /// The backend id that cancel requests name.
    pub pid: i32,
    /// Offset rules for timestamptz text; UTC by default. SHOW's text for it is in `settings`.
    pub zone: crate::value::Zone,
    /// What `search_path` comes to.
    pub path: SearchPath,
    /// Settings as SHOW prints them.
    pub settings: Vec<(String, String)>,
    /// The sessions of its server, if it has one.
    pub backends: Option<Arc<dyn Backends>>,
}

/// Which rows of a table, found how.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The table.
    pub table: Arc<TableDef>,
    /// How they are found.
    pub path: Path,
    /// What they must also satisfy; input: the table's row.
    pub filter: Option<Expr>,
    /// How the rows are locked. `None`: a query's FOR SHARE, others' FOR UPDATE.
    pub lock: Option<RowLocking>,
    /// Of a plan that reads: which lock it takes where the query names none.
    pub learned: LearnedSlot,
}

impl Access {
    /// How a query locks the rows that it finds.
    #[inline]
    pub fn read_lock(&self) -> RowLock {
        self.lock.map_or(RowLock::Share, |lock| lock.taken)
    }
    /// How UPDATE and DELETE lock them.
    #[inline]
    pub fn write_lock(&self) -> RowLock {
        self.lock.map_or(RowLock::Update, |lock| lock.taken)
    }
    /// What becomes of rows that others have locked.
    #[inline]
    pub fn lock_wait(&self) -> LockWait {
        self.lock.map_or(LockWait::Wait, |lock| lock.wait)
    }
}

/// PostgreSQL's modes of row locks, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowLock {
    /// FOR KEY SHARE: the row stays, and so do its columns in unique keys.
    KeyShare,
    /// FOR SHARE: the row stays as it is. Any read does that.
    Share,
    /// FOR NO KEY UPDATE: nobody else reads or changes more than the key.
    NoKeyUpdate,
    /// FOR UPDATE: nobody else reads or changes anything.
    Update,
}

/// What becomes of a statement that finds a row locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockWait {
    /// It waits.
    Wait,
    /// SKIP LOCKED: it goes on as if the row were not there. Then it locks the rows that it
    /// returns, and no ranges of keys: what it has left out may be seen later, so it is not
    /// serialisable.
    Skip,
    /// NOWAIT: 55P03.
    Fail,
}

/// How a statement locks the rows that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLocking {
    /// What the statement asks for.
    pub asked: RowLock,
    /// What it takes: FOR KEY SHARE of other columns than those of keys is a read, and reads lock
    /// FOR SHARE.
    pub taken: RowLock,
    /// What becomes of rows that others have locked.
    pub wait: LockWait,
}

impl RowLocking {
    /// One that takes what it asks for, and waits.
    pub const fn of(lock: RowLock) -> Self {
        Self { asked: lock, taken: lock, wait: LockWait::Wait }
    }
}

/// The access path. Expressions here have no columns, and the key column's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// At most one row: the whole primary key, by equality. A NULL finds nothing.
    Point(Vec<Expr>),
    /// `pk IN (...)` for a primary key of one column; duplicates and NULLs find nothing twice.
    Points(Vec<Expr>),
    /// A range of the primary key's tree (`index: None`) or of a secondary index's. A NULL among
    /// its expressions finds nothing, and a bounded column is never NULL: the range is the whole of
    /// the conditions it stands for.
    Range {
        /// Position in `TableDef::indexes`.
        index: Option<usize>,
        /// Equalities on the index's first columns.
        prefix: Vec<Expr>,
        /// Bound on the next column: the expression and whether it is inclusive.
        low: Option<(Expr, bool)>,
        /// Likewise.
        high: Option<(Expr, bool)>,
        /// From the upper end down.
        reverse: bool,
    },
    /// All rows, in primary-key order.
    Full,
}

/// What a fragment does with the rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// Reads: filter, then group or project, in this order.
    Scan {
        /// Which rows.
        access: Access,
        /// Partial aggregation at the partition: output is the group keys, then the partial states.
        group: Option<Group>,
        /// Output columns, if there is no `group`; input: the table's row.
        project: Vec<Expr>,
        /// Stop after so many output rows; input: none.
        limit: Option<Expr>,
    },
    /// Inserts the rows that the message brings (encoded, complete, checked), each into the table
    /// and its indexes.
    Insert {
        /// The table.
        table: Arc<TableDef>,
        /// Output columns; input: the row as inserted. Empty: only counted.
        returning: Vec<Expr>,
        /// What becomes of a row with a key that is there already.
        on_conflict: OnConflict,
    },
    /// Updates in place, or out of this partition.
    Update {
        /// Which rows.
        access: Access,
        /// Column and new value; input: the old row.
        set: Vec<(usize, Expr)>,
        /// Output columns; input: the new row.
        returning: Vec<Expr>,
        /// A distribution column changes, or one of a key with a global index: delete the old row
        /// here, and output the whole new row, which the coordinator inserts where it belongs. If
        /// the table has global indexes, each new row comes behind the whole old one.
        moves: bool,
        /// It only adds to integers of one row: see [`crate::increment`]. [`Program::update`] finds
        /// that out.
        adds: bool,
    },
    /// Deletes.
    Delete {
        /// Which rows.
        access: Access,
        /// Output columns; input: the old row. The last ones are the table's guarded columns.
        returning: Vec<Expr>,
    },
    /// Works on a global index, at the partition that the keys' hash says. The rows that the
    /// message brings have the key's columns, none of them NULL, and for [`GlobalIndexOp::Insert`]
    /// the home of the key's row as an int4 behind them.
    GlobalIndex {
        /// The table.
        table: Arc<TableDef>,
        /// The key, which has a global index.
        key: UniqueKey,
        /// What is to be done.
        op: GlobalIndexOp,
    },
    /// Fills the tree of index `index` of `table` (a new definition) from the table's rows here.
    BuildIndex {
        /// The table, with the new index in it.
        table: Arc<TableDef>,
        /// Its position.
        index: usize,
    },
}

/// What an INSERT does with a row that has a unique key which is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// It is an error.
    Fail,
    /// ON CONFLICT DO NOTHING.
    Ignore,
    /// ON CONFLICT (columns) DO NOTHING: another key's violation is an error all the same.
    IgnoreKey(UniqueKey),
}

impl OnConflict {
    /// Whether a row with this key is left out if the key is there.
    pub fn ignores(self, key: UniqueKey) -> bool {
        match self {
            Self::Fail => false,
            Self::Ignore => true,
            Self::IgnoreKey(k) => k == key,
        }
    }
}

/// Partial aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Group keys; input: the table's row. Empty: one group, present even without rows.
    pub keys: Vec<Expr>,
    /// The aggregates.
    pub aggregates: Vec<Aggregate>,
}

/// One aggregate call.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// Which.
    pub func: AggFunc,
    /// Its argument; `None` for count(*).
    pub arg: Option<Expr>,
    /// DISTINCT: values are collected, not states. Then the partition sends ungrouped rows and the
    /// coordinator does it all.
    pub distinct: bool,
    /// The result's type: sum(int2|int4) is Int8, sum(int8) and avg(int) Numeric, of float8 Float8.
    pub ty: clearway_types::SqlType,
}

/// Aggregate functions. The partial state is: count 1 column (int8), sum 1 (NULL if no rows),
/// min/max 1, avg 2 (sum as numeric or float8, count).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AggFunc {
    Count,
    Sum,
    Min,
    Max,
    Avg,
}

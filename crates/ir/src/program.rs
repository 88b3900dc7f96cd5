//! Programs: what one fragment does at one partition.

use crate::bounds::Bounds;
use crate::search_path::SearchPath;
use crate::{Expr, GlobalIndexOp, LearnedSlot, MemoryAccount, TableDef, UniqueKey};
use clearway_types::{Datum, SqlError, SqlState};
use std::sync::Arc;
// Plain std: they order nothing between threads.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The values that an expression may read besides its row; fixed for one execution of a statement.
#[derive(Clone, Debug, Default)]
pub struct Env {
    /// The statement's parameters, converted to their types.
    pub params: Vec<Datum>,
    /// The transaction's start, microseconds since 2000-01-01 UTC.
    pub now: i64,
    /// When the client's message with the statement arrived, in the same unit.
    pub statement_now: i64,
    /// The session's part.
    pub session: Option<Arc<SessionEnv>>,
    /// Seed of random() for this execution.
    pub seed: u64,
    /// The execution's memory account.
    pub memory: MemoryAccount,
    /// The statement's text, for views that show who waits.
    pub text: StatementText,
    /// Whether the execution has signalled another session.
    pub acted: Acted,
    /// Numbers the evaluations of random() that the row does not distinguish.
    pub draws: Draws,
}

/// Whether an execution has done something that rollback cannot undo.
#[derive(Debug, Default)]
pub struct Acted(AtomicBool);

impl Acted {
    pub(crate) fn set(&self) {
        // Relaxed: read after the execution is over, by the thread that received its answer.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clone for Acted {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Ordering::Relaxed)))
    }
}

/// A count of evaluations.
#[derive(Debug, Default)]
pub struct Draws(AtomicU64);

impl Draws {
    /// Starts over, so that a statement that is executed again has the same values.
    pub fn restart(&self) {
        // Relaxed: only the thread of the statement's session counts.
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn next(&self) -> u64 {
        // Relaxed: see `restart`.
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Clone for Draws {
    fn clone(&self) -> Self {
        // Relaxed: see `restart`.
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// The text that a client sent as its statement, including other statements in the same message.
#[derive(Clone, Debug, Default)]
pub enum StatementText {
    /// None: the engine itself created the statement.
    #[default]
    Unknown,
    /// The text of a parsed statement.
    Parsed(Arc<str>),
    /// A text whose buffer the session reuses once no one else holds it.
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

/// The session and statement that request a lock.
#[derive(Clone, Debug)]
pub struct Requester {
    /// The session's backend id.
    pub pid: i32,
    /// The statement's text.
    pub text: StatementText,
}

impl Env {
    /// Returns the session's time zone; UTC without a session.
    pub fn zone(&self) -> &crate::value::Zone {
        static UTC: crate::value::Zone = crate::value::Zone(jiff::tz::TimeZone::UTC);
        self.session.as_ref().map_or(&UTC, |s| &s.zone)
    }

    /// Returns true if the execution has done something that rollback cannot undo: it has signalled
    /// another session.
    pub fn has_acted(&self) -> bool {
        // Relaxed: see `Acted::set`.
        self.acted.0.load(Ordering::Relaxed)
    }

    /// Returns the session and statement; `None` without a session.
    pub fn requester(&self) -> Option<Requester> {
        Some(Requester { pid: self.session.as_ref()?.pid, text: self.text.clone() })
    }
}

/// A signal from one session to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Cancel the current statement.
    Cancel,
    /// Terminate the session.
    Terminate,
}

impl Signal {
    /// Returns the error that the session's client receives.
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

/// The server's sessions, which expressions of other sessions can signal.
pub trait Backends: std::fmt::Debug + Send + Sync {
    /// Signals the session with this backend id; returns true if it exists. Does not block.
    fn signal(&self, pid: i32, signal: Signal) -> bool;
}

/// The session's part of [`Env`]; replaced as a whole when a setting changes.
#[derive(Clone, Debug, Default)]
pub struct SessionEnv {
    /// The connected user.
    pub user: String,
    /// The connected database.
    pub database: String,
    /// The backend id, as used in cancel requests.
    pub pid: i32,
    /// The time zone for timestamptz text; UTC by default. `settings` has its text for SHOW.
    pub zone: crate::value::Zone,
    /// The resolved `search_path`.
    pub path: SearchPath,
    /// Settings as SHOW prints them.
    pub settings: Vec<(String, String)>,
    /// The sessions of its server, if it has one.
    pub backends: Option<Arc<dyn Backends>>,
}

/// Selects rows of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The table.
    pub table: Arc<TableDef>,
    /// How the rows are found.
    pub path: Path,
    /// The condition that rows must also satisfy; input: the table's row.
    pub filter: Option<Expr>,
    /// How the rows are locked. `None`: FOR SHARE in a query, FOR UPDATE in other statements.
    pub lock: Option<RowLocking>,
    /// For a plan that reads: the lock to take if the query names none.
    pub learned: LearnedSlot,
}

impl Access {
    /// Returns the lock that a query takes on the rows it finds.
    #[inline]
    pub fn read_lock(&self) -> RowLock {
        self.lock.map_or(RowLock::Share, |lock| lock.taken)
    }
    /// Returns the lock that UPDATE and DELETE take.
    #[inline]
    pub fn write_lock(&self) -> RowLock {
        self.lock.map_or(RowLock::Update, |lock| lock.taken)
    }
    /// Returns what to do with rows that others have locked.
    #[inline]
    pub fn lock_wait(&self) -> LockWait {
        self.lock.map_or(LockWait::Wait, |lock| lock.wait)
    }
}

/// PostgreSQL's row lock modes, from weakest to strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowLock {
    /// FOR KEY SHARE: the row is not deleted, and its columns in unique keys do not change.
    KeyShare,
    /// FOR SHARE: the row does not change. Plain reads take this lock, too.
    Share,
    /// FOR NO KEY UPDATE: others can read the key only.
    NoKeyUpdate,
    /// FOR UPDATE: others can neither read nor change anything.
    Update,
}

/// What a statement does when it finds a row locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockWait {
    /// Waits.
    Wait,
    /// SKIP LOCKED: continues as if the row did not exist. It then locks the rows that it returns,
    /// but no key ranges. Since later statements may see what it skipped, it is not serializable.
    Skip,
    /// NOWAIT: fails with 55P03.
    Fail,
}

/// How a statement locks the rows that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLocking {
    /// The mode that the statement requests.
    pub asked: RowLock,
    /// The mode that it takes. FOR KEY SHARE that reads other columns than key columns is a read,
    /// which locks FOR SHARE.
    pub taken: RowLock,
    /// What to do with rows that others have locked.
    pub wait: LockWait,
}

impl RowLocking {
    /// Creates the locking that takes the requested mode, and waits.
    pub const fn of(lock: RowLock) -> Self {
        Self { asked: lock, taken: lock, wait: LockWait::Wait }
    }
}

/// The access path. Its expressions reference no columns, and have the key column's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// At most one row: the whole primary key, by equality. A NULL finds nothing.
    Point(Vec<Expr>),
    /// `pk IN (...)` for a primary key of one column. A duplicate finds its row once, a NULL finds
    /// nothing.
    Points(Vec<Expr>),
    /// A range of the primary key's tree (`index: None`) or of a secondary index. A NULL among its
    /// expressions finds nothing, and a bounded column is never NULL: the range covers its
    /// conditions completely.
    Range {
        /// Position in `TableDef::indexes`.
        index: Option<usize>,
        /// Equalities on the index's first columns.
        prefix: Vec<Expr>,
        /// Lower bound on the next column: the expression, and whether it is inclusive.
        low: Option<(Expr, bool)>,
        /// Upper bound on the next column, likewise.
        high: Option<(Expr, bool)>,
        /// Whether to scan from the upper end.
        reverse: bool,
    },
    /// All rows, in primary-key order.
    Full,
}

/// What a fragment does.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// Reads rows: filters, then groups or projects.
    Scan {
        /// Which rows.
        access: Access,
        /// Partial aggregation at the partition: output is the group keys, then the partial states.
        group: Option<Group>,
        /// Output columns if there is no `group`; input: the table's row.
        project: Vec<Expr>,
        /// Maximum number of output rows; the expression has no columns.
        limit: Option<Expr>,
    },
    /// Inserts the message's rows (encoded, complete, checked) into the table and its indexes.
    Insert {
        /// The table.
        table: Arc<TableDef>,
        /// Output columns; input: the inserted row. Empty: rows are only counted.
        returning: Vec<Expr>,
        /// What to do with a row whose key already exists.
        on_conflict: OnConflict,
    },
    /// Updates in place, or moves rows out of this partition.
    Update {
        /// Which rows.
        access: Access,
        /// Columns and their new values; input: the old row.
        set: Vec<(usize, Expr)>,
        /// Output columns; input: the new row.
        returning: Vec<Expr>,
        /// The CHECK constraints that the new row may violate: positions in `TableDef::checks`.
        checks: Vec<usize>,
        /// Set if a distribution column changes, or a column of a key with a global index. The old
        /// row is deleted here. The output is the whole new row, which the coordinator inserts
        /// where it belongs. If the table has global indexes, each new row follows the whole old
        /// one.
        moves: bool,
        /// If it only adds to integers of one row: the bounds of these, in the order of `set`. See
        /// [`crate::increment`]. [`Program::update`] determines this.
        adds: Option<Vec<Bounds>>,
    },
    /// Deletes rows.
    Delete {
        /// Which rows.
        access: Access,
        /// Output columns; input: the old row. The last ones are the columns of the table's global
        /// indexes.
        returning: Vec<Expr>,
    },
    /// Works on a global index, at the partition that the keys' hash determines. The message's rows
    /// have the key's columns, none of them NULL. For [`GlobalIndexOp::Insert`], the home of the
    /// key's row follows as an int4.
    GlobalIndex {
        /// The table.
        table: Arc<TableDef>,
        /// The key, which has a global index.
        key: UniqueKey,
        /// The operation.
        op: GlobalIndexOp,
    },
    /// Fills the tree of index `index` of `table` (a new definition) from the table's rows here.
    BuildIndex {
        /// The table, with the new index in it.
        table: Arc<TableDef>,
        /// The new index's position.
        index: usize,
    },
}

impl Program {
    /// Returns how it finds rows of its table; `None` if it finds none.
    pub fn access(&self) -> Option<&Access> {
        match self {
            Self::Scan { access, .. }
            | Self::Update { access, .. }
            | Self::Delete { access, .. } => Some(access),
            Self::Insert { .. } | Self::BuildIndex { .. } | Self::GlobalIndex { .. } => None,
        }
    }
}

/// What an INSERT does with a row whose unique key already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Fails.
    Fail,
    /// ON CONFLICT DO NOTHING.
    Ignore,
    /// ON CONFLICT (columns) DO NOTHING: a violation of another key is still an error.
    IgnoreKey(UniqueKey),
}

impl OnConflict {
    /// Returns true if a row is skipped when this key already exists.
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
    /// The function.
    pub func: AggFunc,
    /// Its argument; `None` for count(*).
    pub arg: Option<Expr>,
    /// For DISTINCT: a partial state would have to hold all values. The partition therefore sends
    /// ungrouped rows, and the coordinator aggregates.
    pub distinct: bool,
    /// The result's type: sum(int2|int4) is Int8; sum(int8) and avg(int) are Numeric; of float8
    /// they are Float8.
    pub ty: clearway_types::SqlType,
}

/// Aggregate functions. Partial states: count has 1 column (int8), sum 1 (NULL without rows), min
/// and max 1, avg 2 (the sum as numeric or float8, and the count).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggFunc {
    /// count(\*) or count(value).
    Count,
    /// sum(value).
    Sum,
    /// min(value).
    Min,
    /// max(value).
    Max,
    /// avg(value).
    Avg,
}

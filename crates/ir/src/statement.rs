//! Whole statements: the planner returns them and the coordinator executes them.

use crate::catalog::object_name;
use crate::program::{Aggregate, Group};
use crate::system::SystemView;
use crate::{CheckConstraint, Column, Distribution, Expr, Program, TableDef, UniqueKey};
use clearway_types::{SqlType, TableId};
use std::sync::Arc;

/// A planned statement. It is immutable and shared by the caches of texts, names and portals.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The type of each parameter.
    pub params: Vec<SqlType>,
    /// The result's columns; empty for statements that return no rows.
    pub columns: Vec<OutColumn>,
    /// The statement to execute.
    pub statement: Statement,
    /// The catalog version that it was planned against; `None` if it names no table.
    pub catalog: Option<u64>,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// The table column that it shows unchanged, if any.
    pub origin: Option<Origin>,
}

impl OutColumn {
    /// Creates a column that belongs to no table.
    pub fn computed(name: impl Into<String>, ty: SqlType) -> Self {
        Self { name: name.into(), ty, origin: None }
    }
    /// Returns true if the columns have the same name and type, so that a client can read one as
    /// the other. Their origins may differ.
    pub fn reads_as(&self, other: &Self) -> bool {
        self.name == other.name && self.ty == other.ty
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The table.
    pub table: TableId,
    /// The column's position, from 0.
    pub column: usize,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// SELECT, VALUES.
    Query(Query),
    /// INSERT.
    Insert(Insert),
    /// UPDATE or DELETE: one program at every partition of `route`.
    Modify {
        /// `Program::Update` or `Program::Delete`.
        program: Arc<Program>,
        /// The partitions.
        route: Route,
    },
    /// CREATE TABLE.
    CreateTable {
        /// The definition with ids 0; the coordinator assigns the ids.
        table: TableDef,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP TABLE.
    DropTable {
        /// Names.
        names: Vec<String>,
        /// IF EXISTS.
        if_exists: bool,
        /// Notices, emitted first, about names that cannot exist.
        skipped: Vec<String>,
    },
    /// TRUNCATE.
    Truncate {
        /// Names.
        names: Vec<String>,
    },
    /// IF EXISTS of something that cannot exist: emits this notice and this tag.
    Skip {
        /// The command tag.
        tag: &'static str,
        /// The notice.
        notice: String,
    },
    /// ALTER TABLE ... ADD PRIMARY KEY.
    AddPrimaryKey {
        /// The table.
        table: String,
        /// Its constraint name, if given.
        name: Option<String>,
        /// Key columns.
        columns: Vec<usize>,
    },
    /// ALTER TABLE ... ADD CHECK.
    AddCheck {
        /// The table.
        table: Arc<TableDef>,
        /// The constraint.
        check: CheckConstraint,
    },
    /// CREATE INDEX.
    CreateIndex {
        /// The table.
        table: String,
        /// The index's name.
        name: String,
        /// Columns.
        columns: Vec<usize>,
        /// UNIQUE.
        unique: bool,
        /// IF NOT EXISTS.
        if_not_exists: bool,
        /// CONCURRENTLY: not in a transaction block.
        concurrently: bool,
    },
    /// DROP INDEX.
    DropIndex {
        /// Names.
        names: Vec<String>,
        /// IF EXISTS.
        if_exists: bool,
        /// CONCURRENTLY: not in a transaction block.
        concurrently: bool,
        /// Notices, emitted first, about names that cannot exist.
        skipped: Vec<String>,
    },
    /// VACUUM, ANALYZE, CHECKPOINT.
    Maintain {
        /// The command.
        kind: Maintain,
        /// Warnings about names that are not tables.
        skipped: Vec<String>,
    },
    /// BACKUP.
    Backup(Backup),
    /// BEGIN, START TRANSACTION.
    Begin(TxnOptions),
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// SAVEPOINT name.
    Savepoint(String),
    /// ROLLBACK TO name.
    RollbackTo(String),
    /// RELEASE name.
    Release(String),
    /// SET TRANSACTION; `session` for SET SESSION CHARACTERISTICS.
    SetTransaction {
        /// The options.
        options: TxnOptions,
        /// Whether it applies to all later transactions of the session.
        session: bool,
    },
    /// SET TRANSACTION SNAPSHOT, with an id returned by pg_export_snapshot.
    SetSnapshot(String),
    /// SET name = value; `None` sets the default.
    Set {
        /// Lower-case name.
        name: String,
        /// The value as text.
        value: Option<String>,
        /// SET LOCAL.
        local: bool,
    },
    /// RESET name (lower case, or `all`).
    Reset(String),
    /// SHOW name (lower case, or `all`).
    Show(String),
    /// EXPLAIN; the planner has already produced the lines.
    Explain(Vec<String>),
    /// PREPARE name AS ...
    Prepare {
        /// The statement's name.
        name: String,
        /// The plan.
        plan: Arc<Plan>,
    },
    /// EXECUTE name (arguments, without columns).
    Execute {
        /// The statement's name.
        name: String,
        /// Arguments.
        args: Vec<Argument>,
    },
    /// DEALLOCATE name, or ALL.
    Deallocate(Option<String>),
    /// DECLARE name CURSOR FOR query.
    Declare {
        /// The cursor's name.
        name: String,
        /// The query.
        plan: Arc<Plan>,
        /// BINARY.
        binary: bool,
        /// NO SCROLL.
        no_scroll: bool,
    },
    /// FETCH, MOVE.
    Fetch(Fetch),
    /// CLOSE name, or ALL.
    Close(Option<String>),
    /// COPY.
    Copy(Copy),
    /// DISCARD ALL, UNLISTEN *: does nothing except return this tag.
    Noop(&'static str),
    /// An empty query.
    Empty,
}

/// An argument of EXECUTE.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Its value: an expression without columns.
    pub expr: Expr,
    /// Its type; [`SqlType::Unknown`] if the parameter's type decides.
    pub ty: SqlType,
    /// Its position in the text, in characters from 1.
    pub position: Option<u32>,
}

/// A query: rows from a source, then the final steps at the coordinator, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// A condition without columns. Unless it is true, the query reads nothing and the source is
    /// empty.
    pub once: Option<Expr>,
    /// The source of the rows.
    pub source: Source,
    /// The final steps.
    pub finish: Vec<Finish>,
}

/// The source of a query's rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// No FROM: these rows of expressions (SELECT 1, VALUES).
    Rows(Vec<Vec<Expr>>),
    /// generate_series(start, stop, step): one column.
    Series {
        /// First.
        start: Expr,
        /// Last, inclusive.
        stop: Expr,
        /// Step; not zero.
        step: Expr,
        /// int4 or int8.
        ty: SqlType,
    },
    /// A system view; its rows are produced when the statement runs.
    View(SystemView),
    /// `clearway.reset_contention()`: resets the counters to 0 and returns one row with the empty
    /// text.
    ResetContention,
    /// `clearway.set_scheme(partition, scheme)`: changes the scheme of a partition or, without the
    /// first argument, of all, and returns one row with the empty text.
    SetScheme {
        /// int4.
        partition: Option<Expr>,
        /// text.
        scheme: Expr,
    },
    /// `pg_export_snapshot()`: one row with the id.
    ExportSnapshot,
    /// A table, read by a program at partitions.
    Table {
        /// `Program::Scan`.
        program: Arc<Program>,
        /// The partitions.
        route: Route,
    },
}

/// A step at the coordinator. Its input is the output of the previous step.
#[derive(Clone, Debug, PartialEq)]
pub enum Finish {
    /// Keeps rows that satisfy the condition.
    Filter(Expr),
    /// Merges partial aggregates (input: keys, then states) into keys, then results.
    Merge(Group),
    /// Groups plain rows into keys, then results.
    Aggregate {
        /// Keys; input: the row.
        keys: Vec<Expr>,
        /// Aggregates.
        aggregates: Vec<Aggregate>,
    },
    /// Computes columns.
    Project(Vec<Expr>),
    /// SELECT DISTINCT: keeps the first of equal rows.
    Distinct,
    /// ORDER BY.
    Sort(Vec<SortKey>),
    /// LIMIT, OFFSET.
    Limit {
        /// LIMIT; NULL means no limit.
        limit: Option<Expr>,
        /// OFFSET.
        offset: Option<Expr>,
    },
}

/// One sort key.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// Input: the row.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST (the default when descending).
    pub nulls_first: bool,
}

/// Which partitions a program runs at.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    /// The partition given by the hash of these expressions: the values of the distribution
    /// columns, in their types.
    Hash(Vec<Expr>),
    /// The home of the row with this key, found through the key's global index.
    GlobalIndex {
        /// The table.
        table: Arc<TableDef>,
        /// Its key, which has a global index.
        key: UniqueKey,
        /// The values of the key's columns, in their types.
        values: Vec<Expr>,
    },
    /// All partitions.
    All,
}

/// INSERT.
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// The table.
    pub table: Arc<TableDef>,
    /// The source of the rows. Its output has exactly the table's columns, in order, in their
    /// types, with defaults filled in.
    pub source: Query,
    /// `Program::Insert`.
    pub program: Arc<Program>,
}

/// BACKUP TO 'directory' [ RATE bytes ].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The directory to create, on the server.
    pub target: String,
    /// Maximum rate in bytes per second, greater than 0.
    pub bytes_a_second: Option<u64>,
}

/// FETCH or MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The cursor's name.
    pub cursor: String,
    /// Which rows.
    pub rows: FetchRows,
    /// Whether it is MOVE, which skips the rows.
    pub moves: bool,
}

/// The rows that FETCH requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchRows {
    /// The next n rows, the previous -n rows if negative, or the current row again if 0.
    By(i64),
    /// All remaining rows.
    AllForward,
    /// All rows before the current one, backward.
    AllBackward,
    /// The nth row, or the nth from the end if negative.
    Absolute(i64),
    /// The nth row after the current one, or before it if negative.
    Relative(i64),
}

/// A maintenance command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintain {
    /// VACUUM.
    Vacuum,
    /// ANALYZE.
    Analyze,
    /// CHECKPOINT.
    Checkpoint,
}

/// Options of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnOptions {
    /// READ ONLY or READ WRITE, if specified.
    pub read_only: Option<bool>,
    /// The isolation level, if specified.
    pub isolation: Option<Isolation>,
    /// DEFERRABLE or NOT DEFERRABLE, if specified.
    pub deferrable: Option<bool>,
    /// Whether it was written as START TRANSACTION; the command tag repeats it.
    pub start: bool,
}

/// Isolation levels by their SQL names, ordered from weakest to strongest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// READ UNCOMMITTED.
    ReadUncommitted,
    /// READ COMMITTED.
    #[default]
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl Isolation {
    /// All levels, from weakest to strongest.
    pub const ALL: [Self; 4] =
        [Self::ReadUncommitted, Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// Returns the SQL name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// Returns the level with this SQL name in lower case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// COPY.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// From or to the client.
    pub direction: CopyDirection,
    /// The row format.
    pub format: CopyFormat,
    /// The types of the columns on the wire, in order.
    pub types: Vec<SqlType>,
    /// Their names, for CSV HEADER.
    pub names: Vec<String>,
}

/// The direction of a COPY.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyDirection {
    /// FROM STDIN. The incoming values (of `types`) are the input of `row`, which computes the
    /// table's row.
    From {
        /// The table.
        table: Arc<TableDef>,
        /// One expression per table column.
        row: Vec<Expr>,
        /// `Program::Insert`.
        program: Arc<Program>,
    },
    /// TO STDOUT: a query's rows.
    To(Query),
}

/// The text formats of COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// Whether it is CSV rather than text.
    pub csv: bool,
    /// The delimiter, one byte.
    pub delimiter: u8,
    /// The NULL string.
    pub null: String,
    /// Whether there is a header line.
    pub header: bool,
    /// The quote character of CSV.
    pub quote: u8,
    /// The escape character of CSV.
    pub escape: u8,
}

/// Creates a definition without ids, for the planner of CREATE TABLE and for tests.
pub fn unnumbered_table(
    name: &str,
    columns: Vec<Column>,
    primary_key: Vec<usize>,
    distribution: Distribution,
) -> TableDef {
    TableDef {
        id: Default::default(),
        version: 0,
        name: name.to_owned(),
        columns,
        tree: Default::default(),
        primary_key_name: if primary_key.is_empty() {
            String::new()
        } else {
            object_name(name, None, "pkey")
        },
        primary_key,
        primary_key_global_index: None,
        indexes: Vec::new(),
        checks: Vec::new(),
        distribution,
    }
}

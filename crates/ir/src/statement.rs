//! Whole statements: what the planner returns and the coordinator carries out.

use crate::program::{Aggregate, Group};
use crate::system::SystemView;
use crate::{Column, Distribution, Expr, Program, TableDef, UniqueKey};
use clearway_types::{SqlType, TableId};
use std::sync::Arc;

/// A planned statement, immutable and shared: cached by text, by name, by portal.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The type of each parameter.
    pub params: Vec<SqlType>,
    /// What the client sees; empty for statements that return no rows.
    pub columns: Vec<OutColumn>,
    /// What is to be done.
    pub statement: Statement,
    /// The catalog version it was bound to; `None` if it names no table.
    pub catalog: Option<u64>,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// The table's column that it shows, unchanged.
    pub origin: Option<Origin>,
}

impl OutColumn {
    /// A column that no table has.
    pub fn computed(name: impl Into<String>, ty: SqlType) -> Self {
        Self { name: name.into(), ty, origin: None }
    }
    /// Whether a client that knows one column can read the other: what the columns show may differ.
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
    /// UPDATE, DELETE: one program everywhere that `route` says.
    Modify {
        /// `Program::Update` or `Program::Delete`.
        program: Arc<Program>,
        /// Where.
        route: Route,
    },
    /// CREATE TABLE.
    CreateTable {
        /// The definition with ids 0; the coordinator gives ids.
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
        /// What it says, before all else, of names that cannot be there.
        skipped: Vec<String>,
    },
    /// TRUNCATE.
    Truncate {
        /// Names.
        names: Vec<String>,
    },
    /// IF EXISTS of something that cannot be there: says this notice and this tag.
    Skip {
        /// The command tag.
        tag: &'static str,
        /// What is missing.
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
        /// What it says, before all else, of names that cannot be there.
        skipped: Vec<String>,
    },
    /// VACUUM, ANALYZE, CHECKPOINT.
    Maintain {
        /// Which.
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
        /// For all later transactions.
        session: bool,
    },
    /// SET TRANSACTION SNAPSHOT: the id that pg_export_snapshot gave.
    SetSnapshot(String),
    /// SET name = value; `None`: to its default.
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
    /// EXPLAIN: the lines are made already.
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
    /// DISCARD ALL, UNLISTEN *: nothing to do but say this tag.
    Noop(&'static str),
    /// An empty query.
    Empty,
}

/// An argument of EXECUTE.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Its value: an expression without columns.
    pub expr: Expr,
    /// Its type; [`SqlType::Unknown`] where the parameter's decides.
    pub ty: SqlType,
    /// Its place in the text, in characters from 1.
    pub position: Option<u32>,
}

/// A query: rows from somewhere, then the finishing steps at the coordinator, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// A condition without columns: unless it is true, the source gives no rows and is not asked
    /// for any.
    pub once: Option<Expr>,
    /// Where rows come from.
    pub source: Source,
    /// What happens to them.
    pub finish: Vec<Finish>,
}

/// Where a query's rows come from.
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
    /// A system view: the rows are made when the statement runs.
    View(SystemView),
    /// `clearway.reset_contention()`: one row with the empty text, when the counts are 0.
    ResetContention,
    /// `pg_export_snapshot()`: one row with the id.
    ExportSnapshot,
    /// A table, by a program at partitions.
    Table {
        /// `Program::Scan`.
        program: Arc<Program>,
        /// Where.
        route: Route,
    },
}

/// Steps at the coordinator. Input of each is the output of the one before.
#[derive(Clone, Debug, PartialEq)]
pub enum Finish {
    /// Keeps rows that satisfy it.
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
        /// LIMIT; NULL is none.
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
    /// The one that the hash of these expressions (the distribution columns' values, in their
    /// types) names.
    Hash(Vec<Expr>),
    /// The home of the row with this key, which its global index knows.
    GlobalIndex {
        /// The table.
        table: Arc<TableDef>,
        /// Its key, which has a global index.
        key: UniqueKey,
        /// The values of the key's columns, in their types.
        values: Vec<Expr>,
    },
    /// All.
    All,
}

/// INSERT.
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// The table.
    pub table: Arc<TableDef>,
    /// The rows' source: its output has exactly the table's columns, in order, in their types,
    /// defaults filled in.
    pub source: Query,
    /// `Program::Insert`.
    pub program: Arc<Program>,
}

/// BACKUP TO 'directory' [ RATE bytes ].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The directory that is to be made, at the server.
    pub target: String,
    /// At most so many bytes a second, more than 0.
    pub bytes_a_second: Option<u64>,
}

/// FETCH or MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The cursor's name.
    pub cursor: String,
    /// Which rows.
    pub rows: FetchRows,
    /// MOVE: the rows are passed over.
    pub moves: bool,
}

/// Which rows FETCH asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchRows {
    /// The next n, the last -n backward, or the current one again if 0.
    By(i64),
    /// All that are left.
    AllForward,
    /// All before the current one, backward.
    AllBackward,
    /// The nth of all, or the nth from the end if negative.
    Absolute(i64),
    /// The nth behind the current one, or before it if negative.
    Relative(i64),
}

/// What maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Maintain {
    Vacuum,
    Analyze,
    Checkpoint,
}

/// Options of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnOptions {
    /// READ ONLY or READ WRITE, if said.
    pub read_only: Option<bool>,
    /// The isolation level asked for, if said.
    pub isolation: Option<Isolation>,
    /// DEFERRABLE or NOT DEFERRABLE, if said.
    pub deferrable: Option<bool>,
    /// Said as START TRANSACTION: the command tag repeats it.
    pub start: bool,
}

/// Isolation levels, by their SQL names: the weakest is the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Isolation {
    ReadUncommitted,
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    /// All levels, the weakest first.
    pub const ALL: [Self; 4] =
        [Self::ReadUncommitted, Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// The SQL name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// The level with this SQL name in lower case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// COPY.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// From or to the client.
    pub direction: CopyDirection,
    /// How rows are written.
    pub format: CopyFormat,
    /// The columns on the wire, as types in order.
    pub types: Vec<SqlType>,
    /// Their names, for CSV HEADER.
    pub names: Vec<String>,
}

/// The direction of a COPY.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyDirection {
    /// FROM STDIN. The incoming values (in `types`) are the input row of `row`, which makes the
    /// table's row.
    From {
        /// The table.
        table: Arc<TableDef>,
        /// One expression a table column.
        row: Vec<Expr>,
        /// `Program::Insert`.
        program: Arc<Program>,
    },
    /// TO STDOUT of a query's rows.
    To(Query),
}

/// The text formats of COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// CSV rather than text.
    pub csv: bool,
    /// One byte.
    pub delimiter: u8,
    /// The NULL string.
    pub null: String,
    /// CSV (or text) with a header line.
    pub header: bool,
    /// CSV's quote.
    pub quote: u8,
    /// CSV's escape.
    pub escape: u8,
}

/// Used by CREATE TABLE's planner and by the catalog's tests: a definition with no ids yet.
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
            format!("{name}_pkey")
        },
        primary_key,
        primary_key_global_index: None,
        indexes: Vec::new(),
        distribution,
    }
}

//! Statements as the generator makes them, as SQL text for the engine, and as the model executes
//! them.

mod cursors;

pub use cursors::CursorStmt;

use clearway_coordinator::SchemeKind;
use clearway_ir::{LockWait, RowLock};
use std::fmt::{self, Write};
use std::sync::Arc;

/// The integer columns of every table, in the order of [`Row::n`]; the text column `v` follows
/// them.
pub const COLUMNS: [&str; 4] = ["d", "k", "a", "u"];
/// `d`: the distribution column of some tables.
pub const D: usize = 0;
/// `k`: the key.
pub const K: usize = 1;
/// `a`: not unique, may be NULL, indexed.
pub const A: usize = 2;
/// `u`: unique in some tables, may be NULL.
pub const U: usize = 3;

/// A row of any table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The integers, see [`COLUMNS`].
    pub n: [Option<i32>; 4],
    /// The text.
    pub v: Arc<str>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n: Vec<String> =
            self.n.iter().map(|n| n.map_or("NULL".into(), |n| n.to_string())).collect();
        write!(
            f,
            "({}, {} bytes of '{}')",
            n.join(", "),
            self.v.len(),
            self.v.chars().next().unwrap_or(' ')
        )
    }
}

/// The bound of `a` in tables with a CHECK constraint.
pub const MOST: i32 = 12;

/// The constraints of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PRIMARY KEY (k).
    Keyed,
    /// PRIMARY KEY (k), UNIQUE (u), distributed by k: u is unique by a global index.
    Guarded,
    /// PRIMARY KEY (k), UNIQUE (u), distributed by d: both are unique by global indexes.
    Apart,
    /// PRIMARY KEY (d, k), UNIQUE (d, u), distributed by d.
    Spread,
    /// PRIMARY KEY (k), CHECK (a >= 0 AND a <= [`MOST`]).
    Checked,
    /// UNIQUE (u), and so distributed by u; no primary key.
    Unique,
    /// No key at all.
    Heap,
}

impl Kind {
    /// All kinds except [`Kind::Checked`], which only some seeds draw.
    pub const ALL: [Self; 6] =
        [Self::Keyed, Self::Guarded, Self::Apart, Self::Spread, Self::Unique, Self::Heap];

    /// Returns the columns of the primary key.
    pub fn key(self) -> &'static [usize] {
        match self {
            Self::Keyed | Self::Checked | Self::Guarded | Self::Apart => &[K],
            Self::Spread => &[D, K],
            Self::Unique | Self::Heap => &[],
        }
    }

    /// Returns the columns that an UPDATE of one row, found by its primary key, changes in addition
    /// to those in no key.
    pub fn moves(self) -> &'static [usize] {
        match self {
            Self::Guarded => &[K, U],
            Self::Apart => &[D, K, U],
            other => other.key(),
        }
    }

    /// Returns all unique keys.
    pub fn uniques(self) -> &'static [&'static [usize]] {
        match self {
            Self::Keyed | Self::Checked => &[&[K]],
            Self::Guarded | Self::Apart => &[&[K], &[U]],
            Self::Spread => &[&[D, K], &[D, U]],
            Self::Unique => &[&[U]],
            Self::Heap => &[],
        }
    }

    /// Returns the kind after ADD PRIMARY KEY (k); `None` if it has a primary key.
    pub fn with_key(self) -> Option<Self> {
        match self {
            Self::Heap => Some(Self::Keyed),
            // It is distributed by `u`, not by `d`, but that is invisible.
            Self::Unique => Some(Self::Apart),
            Self::Keyed | Self::Checked | Self::Guarded | Self::Apart | Self::Spread => None,
        }
    }

    /// Returns true if a unique key contains the column.
    pub fn is_in_key(self, column: usize) -> bool {
        self.uniques().iter().any(|key| key.contains(&column))
    }

    /// Returns true if the row satisfies the CHECK constraint, if there is one.
    pub fn permits(self, row: &Row) -> bool {
        self != Self::Checked || row.n[A].is_none_or(|a| (0..=MOST).contains(&a))
    }

    fn constraints(self) -> &'static str {
        match self {
            Self::Keyed => ", PRIMARY KEY (k))",
            Self::Checked => ", PRIMARY KEY (k), CHECK (a >= 0 AND a <= 12))",
            Self::Guarded => ", PRIMARY KEY (k), UNIQUE (u)) DISTRIBUTED BY (k)",
            Self::Apart => ", PRIMARY KEY (k), UNIQUE (u)) DISTRIBUTED BY (d)",
            Self::Spread => ", PRIMARY KEY (d, k), UNIQUE (d, u)) DISTRIBUTED BY (d)",
            Self::Unique => ", UNIQUE (u))",
            Self::Heap => ")",
        }
    }
}

/// Selects rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Pred {
    /// All.
    All,
    /// Rows whose columns have these values.
    Equal(Vec<(usize, i32)>),
    /// Rows whose column is between the bounds, inclusive.
    Between(usize, i32, i32),
    /// Rows whose column is NULL.
    IsNull(usize),
}

impl Pred {
    /// Returns true if the row satisfies it.
    pub fn holds(&self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Equal(columns) => columns.iter().all(|(c, value)| row.n[*c] == Some(*value)),
            Self::Between(c, from, to) => row.n[*c].is_some_and(|n| (*from..=*to).contains(&n)),
            Self::IsNull(c) => row.n[*c].is_none(),
        }
    }
}

impl fmt::Display for Pred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Equal(columns) => {
                let parts: Vec<String> =
                    columns.iter().map(|(c, value)| format!("{} = {value}", COLUMNS[*c])).collect();
                write!(f, " WHERE {}", parts.join(" AND "))
            }
            Self::Between(c, from, to) => {
                write!(f, " WHERE {0} >= {from} AND {0} <= {to}", COLUMNS[*c])
            }
            Self::IsNull(c) => write!(f, " WHERE {} IS NULL", COLUMNS[*c]),
        }
    }
}

/// An UPDATE's change of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Set {
    /// Sets the column.
    To(usize, Option<i32>),
    /// Adds to the column.
    Add(usize, i32),
    /// Sets `v`.
    Text(Arc<str>),
    /// Appends to `v`.
    Append(Arc<str>),
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(c, Some(n)) => write!(f, "{} = {n}", COLUMNS[*c]),
            Self::To(c, None) => write!(f, "{} = NULL", COLUMNS[*c]),
            Self::Add(c, n) => write!(f, "{0} = {0} + {n}", COLUMNS[*c]),
            Self::Text(v) => write!(f, "v = '{v}'"),
            Self::Append(v) => write!(f, "v = v || '{v}'"),
        }
    }
}

/// A locking clause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lock {
    /// The mode.
    pub mode: RowLock,
    /// How the statement handles locked rows.
    pub wait: LockWait,
}

impl Lock {
    /// FOR UPDATE
    pub const UPDATE: Self = Self { mode: RowLock::Update, wait: LockWait::Wait };
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.mode {
            RowLock::KeyShare => " FOR KEY SHARE",
            RowLock::Share => " FOR SHARE",
            RowLock::NoKeyUpdate => " FOR NO KEY UPDATE",
            RowLock::Update => " FOR UPDATE",
        })?;
        f.write_str(match self.wait {
            LockWait::Wait => "",
            LockWait::Skip => " SKIP LOCKED",
            LockWait::Fail => " NOWAIT",
        })
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// BEGIN
    Begin,
    /// BEGIN at READ COMMITTED or REPEATABLE READ.
    BeginAt {
        /// True for REPEATABLE READ.
        repeatable: bool,
    },
    /// BEGIN ... READ ONLY: one snapshot for the whole transaction, or one for each statement.
    BeginReadOnly {
        /// True for one snapshot for each statement.
        each: bool,
    },
    /// COMMIT
    Commit,
    /// ROLLBACK
    Rollback,
    /// SAVEPOINT
    Savepoint(u8),
    /// ROLLBACK TO SAVEPOINT
    RollbackTo(u8),
    /// RELEASE SAVEPOINT
    Release(u8),
    /// INSERT of some rows.
    Insert {
        /// The table.
        table: String,
        /// The rows.
        rows: Vec<Row>,
    },
    /// INSERT ... ON CONFLICT DO NOTHING
    InsertFree {
        /// The table.
        table: String,
        /// The rows.
        rows: Vec<Row>,
    },
    /// INSERT ... SELECT of rows with `k` increased by `up` and the same `u`.
    InsertSelect {
        /// The target.
        table: String,
        /// The source.
        from: String,
        /// The rows to select.
        pred: Pred,
        /// The increase of `k`.
        up: i32,
    },
    /// UPDATE
    Update {
        /// The table.
        table: String,
        /// The change.
        set: Set,
        /// The rows.
        pred: Pred,
    },
    /// DELETE
    Delete {
        /// The table.
        table: String,
        /// The rows.
        pred: Pred,
    },
    /// SELECT of whole rows, with or without a locking clause.
    Select {
        /// The table.
        table: String,
        /// The rows.
        pred: Pred,
        /// The locking clause.
        lock: Option<Lock>,
    },
    /// SELECT of the columns of unique keys, FOR KEY SHARE.
    Keys {
        /// The table.
        table: String,
        /// Its constraints.
        kind: Kind,
        /// The rows.
        pred: Pred,
        /// How it handles locked rows.
        wait: LockWait,
    },
    /// SELECT count(*), count(a), sum(a).
    Sum {
        /// The table.
        table: String,
        /// The rows.
        pred: Pred,
    },
    /// CREATE TABLE
    CreateTable {
        /// Its name.
        table: String,
        /// Its constraints.
        kind: Kind,
    },
    /// DROP TABLE
    DropTable(String),
    /// TRUNCATE
    Truncate(String),
    /// ALTER TABLE ... ADD PRIMARY KEY (k), for a table without one.
    AddKey(String),
    /// CREATE INDEX, not unique.
    CreateIndex {
        /// Its name.
        name: String,
        /// The table.
        table: String,
        /// The columns.
        columns: Vec<usize>,
    },
    /// DROP INDEX
    DropIndex(String),
    /// BACKUP TO this directory.
    Backup(String),
    /// SELECT pg_export_snapshot()
    Export,
    /// SET TRANSACTION SNAPSHOT with this id.
    Import(String),
    /// DECLARE, FETCH or CLOSE.
    Cursor(CursorStmt),
    /// SELECT pg_cancel_backend() or pg_terminate_backend() of another session.
    Signal {
        /// Its backend id.
        pid: i32,
        /// True for pg_terminate_backend.
        terminate: bool,
    },
    /// SELECT clearway.set_scheme() of this partition, or of all.
    SetScheme {
        /// The partition.
        partition: Option<u16>,
        /// The scheme.
        scheme: SchemeKind,
    },
}

impl Stmt {
    /// Returns true if it may change something.
    pub fn writes(&self) -> bool {
        !matches!(
            self,
            Self::Begin
                | Self::BeginAt { .. }
                | Self::BeginReadOnly { .. }
                | Self::Commit
                | Self::Rollback
                | Self::Savepoint(_)
                | Self::RollbackTo(_)
                | Self::Release(_)
                | Self::Select { .. }
                | Self::Keys { .. }
                | Self::Sum { .. }
                | Self::Backup(_)
                | Self::Export
                | Self::Import(_)
                | Self::Cursor(_)
                | Self::Signal { .. }
                | Self::SetScheme { .. }
        )
    }

    /// Returns true if it begins a block.
    pub fn begins(&self) -> bool {
        matches!(self, Self::Begin | Self::BeginAt { .. } | Self::BeginReadOnly { .. })
    }

    /// Returns true if it skips locked rows.
    pub fn skips(&self) -> bool {
        match self {
            Self::Select { lock, .. } => lock.is_some_and(|lock| lock.wait == LockWait::Skip),
            Self::Keys { wait, .. } => *wait == LockWait::Skip,
            _ => false,
        }
    }

    /// Returns true if it fails instead of waiting for a lock.
    pub fn is_nowait(&self) -> bool {
        match self {
            Self::Select { lock, .. } => lock.is_some_and(|lock| lock.wait == LockWait::Fail),
            Self::Keys { wait, .. } => *wait == LockWait::Fail,
            _ => false,
        }
    }

    /// Returns true if it changes the catalog.
    pub fn is_ddl(&self) -> bool {
        matches!(
            self,
            Self::CreateTable { .. }
                | Self::DropTable(_)
                | Self::Truncate(_)
                | Self::AddKey(_)
                | Self::CreateIndex { .. }
                | Self::DropIndex(_)
        )
    }

    /// Returns its text, with long values cut.
    pub fn short(&self) -> String {
        let text = self.to_string();
        match text.char_indices().nth(160) {
            Some((at, _)) => format!("{}... ({} bytes)", &text[..at], text.len()),
            None => text,
        }
    }
}

fn literal(n: Option<i32>, out: &mut String) {
    match n {
        Some(n) => drop(write!(out, "{n}")),
        None => out.push_str("NULL"),
    }
}

impl fmt::Display for Stmt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("BEGIN ISOLATION LEVEL SERIALIZABLE"),
            Self::BeginAt { repeatable: false } => {
                f.write_str("BEGIN ISOLATION LEVEL READ COMMITTED")
            }
            Self::BeginAt { repeatable: true } => {
                f.write_str("BEGIN ISOLATION LEVEL REPEATABLE READ")
            }
            Self::BeginReadOnly { each: true } => {
                f.write_str("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
            }
            Self::BeginReadOnly { each: false } => {
                f.write_str("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            }
            Self::Commit => f.write_str("COMMIT"),
            Self::Rollback => f.write_str("ROLLBACK"),
            Self::Savepoint(n) => write!(f, "SAVEPOINT s{n}"),
            Self::RollbackTo(n) => write!(f, "ROLLBACK TO SAVEPOINT s{n}"),
            Self::Release(n) => write!(f, "RELEASE SAVEPOINT s{n}"),
            Self::Insert { table, rows } | Self::InsertFree { table, rows } => {
                let mut text = String::new();
                for row in rows {
                    text.push_str(if text.is_empty() { "(" } else { ", (" });
                    for n in row.n {
                        literal(n, &mut text);
                        text.push_str(", ");
                    }
                    write!(text, "'{}')", row.v)?;
                }
                let end = if matches!(self, Self::InsertFree { .. }) {
                    " ON CONFLICT DO NOTHING"
                } else {
                    ""
                };
                write!(f, "INSERT INTO {table} (d, k, a, u, v) VALUES {text}{end}")
            }
            Self::InsertSelect { table, from, pred, up } => {
                write!(
                    f,
                    "INSERT INTO {table} (d, k, a, u, v) SELECT d, k + {up}, a, k + {up}, v FROM {from}{pred}"
                )
            }
            Self::Update { table, set, pred } => write!(f, "UPDATE {table} SET {set}{pred}"),
            Self::Delete { table, pred } => write!(f, "DELETE FROM {table}{pred}"),
            Self::Select { table, pred, lock } => {
                write!(f, "SELECT d, k, a, u, v FROM {table}{pred}")?;
                lock.map_or(Ok(()), |lock| write!(f, "{lock}"))
            }
            Self::Keys { table, kind, pred, wait } => {
                let column = |(c, name): (usize, &&str)| {
                    if kind.is_in_key(c) { (*name).into() } else { format!("NULL::int {name}") }
                };
                let columns: Vec<String> = COLUMNS.iter().enumerate().map(column).collect();
                let lock = Lock { mode: RowLock::KeyShare, wait: *wait };
                write!(f, "SELECT {}, '' v FROM {table}{pred}{lock}", columns.join(", "))
            }
            Self::Sum { table, pred } => {
                write!(f, "SELECT count(*), count(a), sum(a) FROM {table}{pred}")
            }
            Self::CreateTable { table, kind } => {
                let constraints = kind.constraints();
                write!(
                    f,
                    "CREATE TABLE {table} (d int NOT NULL, k int NOT NULL, a int, u int, v text{constraints}"
                )
            }
            Self::DropTable(table) => write!(f, "DROP TABLE {table}"),
            Self::Truncate(table) => write!(f, "TRUNCATE {table}"),
            Self::AddKey(table) => write!(f, "ALTER TABLE {table} ADD PRIMARY KEY (k)"),
            Self::CreateIndex { name, table, columns } => {
                let columns: Vec<&str> = columns.iter().map(|c| COLUMNS[*c]).collect();
                write!(f, "CREATE INDEX {name} ON {table} ({})", columns.join(", "))
            }
            Self::DropIndex(name) => write!(f, "DROP INDEX {name}"),
            Self::Backup(target) => write!(f, "BACKUP TO '{target}'"),
            Self::Export => f.write_str("SELECT pg_export_snapshot()"),
            Self::Import(id) => write!(f, "SET TRANSACTION SNAPSHOT '{id}'"),
            Self::Cursor(stmt) => stmt.fmt(f),
            Self::Signal { pid, terminate: false } => write!(f, "SELECT pg_cancel_backend({pid})"),
            Self::Signal { pid, terminate: true } => {
                write!(f, "SELECT pg_terminate_backend({pid})")
            }
            Self::SetScheme { partition: Some(partition), scheme } => {
                write!(f, "SELECT clearway.set_scheme({partition}, '{scheme}')")
            }
            Self::SetScheme { partition: None, scheme } => {
                write!(f, "SELECT clearway.set_scheme('{scheme}')")
            }
        }
    }
}

//! Generates a session's next statement: random statements over few keys, so that sessions
//! conflict.

mod copies;
pub mod counters;
mod cursors;
mod ddl;
mod exports;
mod hot;
mod schemes;
mod signals;
pub mod unique;
mod whole;

use crate::rng::Rng;
use crate::sql::{A, D, K, Kind, Lock, MOST, Pred, Row, Set, Stmt, U};
use clearway_ir::{Catalog, LockWait, RowLock, TableDef};
use counters::Additions;
use std::collections::VecDeque;
use std::sync::Arc;

/// The mix of work of a seed's sessions, in percent unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    /// Keys are below this.
    pub keys: i32,
    /// Statements outside of a block.
    pub alone: u64,
    /// Statements that change the catalog.
    pub ddl: u64,
    /// Reads among the rest.
    pub reads: u64,
    /// Statements over many rows.
    pub wide: u64,
    /// Long values; their longest in bytes.
    pub long: (u64, usize),
    /// Maximum number of rows of one INSERT.
    pub rows: i32,
    /// Maximum number of statements of a block.
    pub block: u64,
    /// Blocks that end with ROLLBACK.
    pub rollbacks: u64,
    /// Statements that are cancelled.
    pub cancels: u64,
    /// BACKUP instead of another statement outside of a block.
    pub backups: u64,
    /// Changes of one row that pick the row inserted last.
    pub newest: u64,
    /// Statements over tables of lists, registers and counters: see [`unique`].
    pub unique: u64,
    /// Those over tables of counters, among them: see [`counters`].
    pub counters: u64,
    /// Statements over counters that read the one to which the session has just added.
    pub sums: u64,
    /// Reads by equality in a block that are followed by an update of the same rows.
    pub updates_read: u64,
    /// Blocks that are READ ONLY.
    pub read_only: u64,
    /// Reads of whole tables.
    pub scans: u64,
    /// Blocks below SERIALIZABLE.
    pub levels: u64,
    /// REPEATABLE READ blocks, among those below SERIALIZABLE.
    pub repeatable: u64,
    /// Updates that find rows by a value and change that value.
    pub by_value: u64,
    /// FOR KEY SHARE that waits for locks.
    pub key_shares: u64,
    /// CREATE TABLE and TRUNCATE in a block that are followed by an INSERT into the table. If this
    /// is not 0, there may be more tables.
    pub fills: u64,
    /// Connections that end in a block, before or during a statement.
    pub hang_ups: u64,
    /// Blocks with one snapshot that import an exported one, if there is any. Half as often, a
    /// block exports its snapshot instead of another statement.
    pub imports: u64,
    /// INSERTs outside of a block that insert what they select.
    pub copies: u64,
    /// Statements in blocks that use a cursor.
    pub cursors: u64,
    /// Statements that cancel another session's statement, or terminate its connection.
    pub signals: u64,
    /// Changes of a table without a primary key that add one; also the share of such tables among
    /// new ones.
    pub keys_added: u64,
    /// INSERTs that skip rows with conflicting keys.
    pub free: u64,
    /// Statements that add to one of a few rows, or set it, sometimes near the bounds of the type.
    pub adds: u64,
    /// New tables that have a CHECK constraint. Statements that add or set mostly keep near its
    /// bounds.
    pub checks: u64,
    /// Blocks that arrive whole: the engine gets all statements at once.
    pub whole: u64,
    /// Statements outside of a block that change the scheme of a partition or of all.
    pub schemes: u64,
    /// The number of partitions, if they do.
    pub partitions: u16,
    /// Whether all values that they set are near the bounds.
    pub near: bool,
    /// Whether blocks only read and change rows, mostly a few, without savepoints and cursors.
    pub plain: bool,
}

/// The random choices of one session.
pub struct Script {
    rng: Rng,
    mix: Mix,
    /// Statements left in the block.
    left: u64,
    savepoints: Vec<u8>,
    next_savepoint: u8,
    /// A prefix for names that no other session uses.
    name: String,
    made: u32,
    /// The row inserted last.
    newest: Option<Row>,
    /// The last value written to a list or a register.
    values: u64,
    /// The additions to counters, of all sessions.
    additions: Arc<Additions>,
    /// The counter to which the session has just added.
    added: Option<(String, Pred)>,
    /// The rows that the block has just read, if the next statement may update them.
    read: Option<(String, Pred)>,
    /// Whether the block is READ ONLY.
    only_reads: bool,
    /// Whether the block may import a snapshot: it has one snapshot and has run no statement.
    imports: bool,
    /// Whether the block may export snapshots.
    exports: bool,
    /// The table that the block has just created or truncated.
    empty: Option<(String, Kind)>,
    /// Statements of a whole block that have not run yet.
    ahead: VecDeque<Stmt>,
    /// The cursors of the session.
    cursors: Vec<u8>,
    /// The backend ids of the other sessions.
    others: Vec<i32>,
}

/// State of the session's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Outside of a block.
    None,
    /// In a block.
    Open,
    /// In a block, after an error.
    Failed,
}

impl Script {
    /// Creates the script of the session called `name`. All sessions of a seed share `additions`.
    pub fn new(seed: u64, name: &str, mix: Mix, additions: Arc<Additions>) -> Self {
        let rng = Rng::new(seed, name);
        let values = unique::first_value(name);
        let (savepoints, name) = (Vec::new(), name.into());
        Self {
            rng,
            mix,
            left: 0,
            savepoints,
            next_savepoint: 0,
            name,
            made: 0,
            newest: None,
            values,
            additions,
            added: None,
            read: None,
            only_reads: false,
            imports: false,
            exports: false,
            empty: None,
            ahead: VecDeque::new(),
            cursors: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Decides whether to cancel the statement that has just been started.
    pub fn cancels(&mut self) -> bool {
        self.rng.percent(self.mix.cancels)
    }

    /// Decides whether the connection ends now, because its client is gone or the session was
    /// terminated.
    pub fn hangs_up(&mut self) -> bool {
        self.mix.hang_ups > 0 && self.rng.percent(self.mix.hang_ups)
    }

    /// Draws for how many turns of its event loop the client leaves the rest of a result unread.
    pub fn leaves_unread(&mut self) -> u64 {
        if self.rng.percent(20) { self.rng.below(30) } else { 0 }
    }

    /// Draws for how many turns of its event loop the client waits after the statement.
    pub fn thinks(&mut self, after: &Stmt) -> u64 {
        let percent = if matches!(after, Stmt::RollbackTo(_)) { 60 } else { 5 };
        if self.rng.percent(percent) { self.rng.below(150) } else { 0 }
    }

    /// Generates the next statement. `catalog` is the session's view, `exported` the ids of
    /// snapshots that can still be imported.
    pub fn next(&mut self, block: Block, catalog: &Catalog, exported: &[String]) -> Stmt {
        if let Some(stmt) = self.next_of_whole(block) {
            return stmt;
        }
        match block {
            Block::None => {
                self.savepoints.clear();
                self.read = None;
                self.empty = None;
                if self.mix.backups > 0 && self.rng.percent(self.mix.backups) {
                    return Stmt::Backup(format!("/{}", self.fresh_name("backup")));
                }
                if let Some(stmt) = self.signal().or_else(|| self.change_of_scheme()) {
                    return stmt;
                }
                if self.rng.percent(self.mix.alone) {
                    let alone = self.work(catalog);
                    return self.copying(alone, catalog);
                }
                self.left = 1 + self.rng.below(self.mix.block);
                self.only_reads = self.mix.read_only > 0 && self.rng.percent(self.mix.read_only);
                let begin = if self.only_reads {
                    Stmt::BeginReadOnly { each: self.rng.percent(30) }
                } else if self.mix.levels > 0 && self.rng.percent(self.mix.levels) {
                    Stmt::BeginAt { repeatable: self.rng.percent(self.mix.repeatable) }
                } else {
                    Stmt::Begin
                };
                self.imports = matches!(
                    begin,
                    Stmt::BeginReadOnly { each: false } | Stmt::BeginAt { repeatable: true }
                );
                self.exports = begin != Stmt::Begin;
                self.make_whole(&begin, catalog);
                begin
            }
            Block::Failed => match self.savepoints.last() {
                Some(savepoint) if self.rng.percent(70) => Stmt::RollbackTo(*savepoint),
                _ => Stmt::Rollback,
            },
            Block::Open if self.left == 0 => {
                if self.rng.percent(self.mix.rollbacks) {
                    Stmt::Rollback
                } else {
                    Stmt::Commit
                }
            }
            Block::Open => {
                self.left -= 1;
                if let Some(stmt) = self
                    .share(exported)
                    .or_else(|| self.with_cursor(catalog))
                    .or_else(|| self.signal())
                {
                    return stmt;
                }
                if !self.mix.plain && self.rng.percent(15) {
                    self.savepoint()
                } else {
                    self.work_in_block(catalog)
                }
            }
        }
    }

    fn savepoint(&mut self) -> Stmt {
        if self.savepoints.is_empty() || self.rng.percent(50) {
            // As in SQL, a savepoint hides an earlier one of the same name.
            let name = self.next_savepoint % 4;
            self.next_savepoint += 1;
            self.savepoints.push(name);
            return Stmt::Savepoint(name);
        }
        let at = self.rng.below(self.savepoints.len() as u64) as usize;
        let name = self.savepoints[at];
        let at = self.savepoints.iter().rposition(|n| *n == name).unwrap_or(at);
        if self.rng.percent(70) {
            self.savepoints.truncate(at + 1);
            Stmt::RollbackTo(name)
        } else {
            self.savepoints.truncate(at);
            Stmt::Release(name)
        }
    }

    /// Generates work like [`Script::work`]; an update of the same rows follows some reads.
    fn work_in_block(&mut self, catalog: &Catalog) -> Stmt {
        if let Some((table, pred)) = self.read.take()
            && let Some(table) = catalog.table(&table)
            && self.rng.percent(self.mix.updates_read)
            && let Some(set) = self.set_of_read(&table.name, &pred)
        {
            return Stmt::Update { table: table.name.clone(), set, pred };
        }
        if self.only_reads {
            return self.reading(catalog);
        }
        if let Some((table, kind)) = self.empty.take()
            && catalog.table(&table).is_some()
            && self.mix.fills > 0
            && self.rng.percent(self.mix.fills)
        {
            return self.insert(table, kind);
        }
        let next = self.work(catalog);
        // One row at a time for lists, registers and counters: no value may be written twice.
        if let Stmt::Select { table, pred: pred @ Pred::Equal(by), lock: None } = &next
            && self.mix.updates_read > 0
            && !(unique::is_unique(table) && by.iter().any(|(column, _)| *column == A))
        {
            self.read = Some((table.clone(), pred.clone()));
        }
        next
    }

    /// Returns a change of the rows that the block has just read.
    fn set_of_read(&mut self, table: &str, pred: &Pred) -> Option<Set> {
        if counters::is_counters(table) {
            return self.addition(table, pred);
        }
        Some(if unique::is_unique(table) { self.unique_set(table) } else { Set::Add(A, 1) })
    }

    /// Generates a read without locks, or a savepoint if there is no table.
    fn reading(&mut self, catalog: &Catalog) -> Stmt {
        let mut tables: Vec<&Arc<TableDef>> = catalog.tables.values().collect();
        tables.sort_unstable_by_key(|t| &t.name);
        if tables.is_empty() {
            return self.savepoint();
        }
        let table = tables[self.rng.below(tables.len() as u64) as usize];
        let (name, pred) = (table.name.clone(), self.pred(kind_of(table)));
        if self.rng.percent(30) && !unique::is_unique(&name) {
            return Stmt::Sum { table: name, pred };
        }
        Stmt::Select { table: name, pred, lock: None }
    }

    fn fresh_name(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}_{}_{}", self.name, self.made)
    }

    fn work(&mut self, catalog: &Catalog) -> Stmt {
        let mut tables: Vec<&Arc<TableDef>> = catalog.tables.values().collect();
        tables.sort_unstable_by_key(|t| &t.name);
        if self.mix.unique > 0 && self.rng.percent(self.mix.unique) {
            return self.unique_work(&tables);
        }
        tables.retain(|t| !unique::is_unique(&t.name));
        if let Some(stmt) = self.of_hot_row(&tables) {
            return stmt;
        }
        let most = if self.mix.fills > 0 { 12 } else { 5 };
        if tables.is_empty() || (tables.len() < most && self.rng.percent(self.mix.ddl)) {
            if self.mix.checks > 0 && self.rng.percent(self.mix.checks) {
                let (table, kind) = (self.fresh_name("t"), Kind::Checked);
                self.empty = Some((table.clone(), kind));
                return Stmt::CreateTable { table, kind };
            }
            let keyless = self.mix.keys_added > 0 && self.rng.percent(self.mix.keys_added);
            let kinds = if keyless { &[Kind::Heap, Kind::Unique][..] } else { &Kind::ALL };
            let kind = self.rng.pick(kinds);
            let table = self.fresh_name("t");
            self.empty = Some((table.clone(), kind));
            return Stmt::CreateTable { table, kind };
        }
        let table = tables[self.rng.below(tables.len() as u64) as usize];
        if self.rng.percent(self.mix.ddl) {
            return self.ddl(table);
        }
        let kind = kind_of(table);
        let table = table.name.clone();
        if self.mix.adds > 0 && !kind.key().is_empty() && self.rng.percent(self.mix.adds) {
            return self.add(table, kind);
        }
        if self.mix.scans > 0 && self.rng.percent(self.mix.scans) {
            return Stmt::Select { table, pred: Pred::All, lock: None };
        }
        if self.mix.key_shares > 0
            && !kind.uniques().is_empty()
            && self.rng.percent(self.mix.key_shares)
        {
            let pred = self.pred(kind);
            return Stmt::Keys { table, kind, pred, wait: LockWait::Wait };
        }
        if self.rng.percent(self.mix.reads) {
            let pred = self.pred(kind);
            return match self.rng.below(10) {
                0 | 1 => Stmt::Sum { table, pred },
                2..=4 => Stmt::Select { table, pred, lock: Some(self.lock()) },
                5 if !kind.uniques().is_empty() => {
                    Stmt::Keys { table, kind, pred, wait: self.lock().wait }
                }
                _ => Stmt::Select { table, pred, lock: None },
            };
        }
        match self.rng.below(10) {
            0..=4 => self.insert(table, kind),
            5..=7 => self.update(table, kind),
            _ => Stmt::Delete {
                table,
                pred: self.newest_row(kind).unwrap_or_else(|| self.pred(kind)),
            },
        }
    }

    fn lock(&mut self) -> Lock {
        let modes = [
            RowLock::KeyShare,
            RowLock::Share,
            RowLock::NoKeyUpdate,
            RowLock::Update,
            RowLock::Update,
        ];
        let waits = [
            LockWait::Wait,
            LockWait::Wait,
            LockWait::Wait,
            LockWait::Wait,
            LockWait::Skip,
            LockWait::Fail,
        ];
        Lock { mode: self.rng.pick(&modes), wait: self.rng.pick(&waits) }
    }

    fn key(&mut self) -> i32 {
        self.rng.below(self.mix.keys as u64) as i32
    }

    fn text(&mut self) -> Arc<str> {
        let (percent, longest) = self.mix.long;
        let letter = char::from(b'a' + self.rng.below(26) as u8);
        let len = if self.rng.percent(percent) {
            self.rng.below(longest as u64)
        } else {
            self.rng.below(24)
        };
        std::iter::repeat_n(letter, len as usize).collect::<String>().into()
    }

    fn row(&mut self) -> Row {
        let a = (!self.rng.percent(15)).then(|| self.rng.within(0..=9));
        let u = (!self.rng.percent(15)).then(|| self.key());
        Row { n: [Some(self.rng.within(0..=5)), Some(self.key()), a, u], v: self.text() }
    }

    fn insert(&mut self, table: String, kind: Kind) -> Stmt {
        let rows = if self.rng.percent(self.mix.wide) {
            1 + self.rng.below(self.mix.rows as u64)
        } else {
            1
        };
        let first = self.key();
        let mut rows: Vec<Row> = (0..rows).map(|_| self.row()).collect();
        if rows.len() > 1 && !matches!(kind, Kind::Heap) {
            // Consecutive keys: otherwise almost every INSERT of many rows would have a duplicate.
            for (at, row) in rows.iter_mut().enumerate() {
                row.n[K] = Some(first + at as i32);
                row.n[U] = row.n[U].map(|_| first + at as i32);
            }
        }
        // An INSERT of several rows may meet a duplicate before such a row.
        if let ([row], Kind::Checked) = (&mut rows[..], kind)
            && self.rng.percent(20)
        {
            row.n[A] = Some(self.rng.pick(&[-1, 0, MOST, MOST + 1]));
        }
        self.newest = rows.last().cloned();
        if self.mix.free > 0 && !kind.uniques().is_empty() && self.rng.percent(self.mix.free) {
            return Stmt::InsertFree { table, rows };
        }
        Stmt::Insert { table, rows }
    }

    fn update(&mut self, table: String, kind: Kind) -> Stmt {
        if self.mix.by_value > 0 && self.rng.percent(self.mix.by_value) {
            let from = self.rng.within(0..=9);
            let pred = Pred::Between(A, from, from + self.rng.within(0..=4));
            return Stmt::Update { table, set: Set::To(A, Some(self.rng.within(0..=9))), pred };
        }
        // Updates a unique column in one row at a time: the order in which several rows change is
        // not defined.
        if !kind.key().is_empty() && self.rng.percent(20) {
            let pred = self.point(kind.key());
            let column = self.rng.pick(kind.moves());
            let to = if column == D { self.rng.within(0..=5) } else { self.key() };
            return Stmt::Update { table, set: Set::To(column, Some(to)), pred };
        }
        let pred = self.pred(kind);
        let set = match self.rng.below(4) {
            0 => Set::To(A, (!self.rng.percent(20)).then(|| self.rng.within(0..=9))),
            1 | 2 => Set::Add(A, self.rng.within(-2..=2)),
            _ => Set::Text(self.text()),
        };
        Stmt::Update { table, set, pred }
    }

    /// Generates a statement on one of the first rows, mostly an addition.
    fn add(&mut self, table: String, kind: Kind) -> Stmt {
        let pred = Pred::Equal(kind.key().iter().map(|c| (*c, self.rng.within(0..=1))).collect());
        let set = match self.rng.below(20) {
            0..=2 if kind == Kind::Checked => {
                Set::To(A, Some(self.rng.pick(&[-1, 0, 1, MOST - 1, MOST, MOST + 1])))
            }
            0..=2 if self.mix.near => {
                Set::To(A, Some(self.rng.pick(&[i32::MAX - 1, i32::MAX - 2, i32::MIN + 1])))
            }
            0 => Set::To(A, Some(self.rng.pick(&[0, i32::MAX - 4, i32::MIN + 4]))),
            1 => Set::To(A, None),
            2 => Set::Add(A, self.rng.pick(&[1 << 30, -(1 << 30)])),
            3 => return Stmt::Select { table, pred, lock: Some(self.lock()) },
            4..=7 => return Stmt::Select { table, pred, lock: None },
            _ => Set::Add(A, self.rng.within(-3..=3)),
        };
        Stmt::Update { table, set, pred }
    }

    fn point(&mut self, columns: &[usize]) -> Pred {
        let value = |s: &mut Self, c| match c {
            D => s.rng.within(0..=5),
            A => s.rng.within(0..=9),
            _ => s.key(),
        };
        Pred::Equal(columns.iter().map(|c| (*c, value(self, *c))).collect())
    }

    /// Returns a predicate for the row that was inserted last, by a unique key. In a table without
    /// a primary key this row has the last key of its tree.
    fn newest_row(&mut self, kind: Kind) -> Option<Pred> {
        if self.mix.newest == 0 || !self.rng.percent(self.mix.newest) {
            return None;
        }
        let row = self.newest.as_ref()?;
        let key = kind.uniques().last()?;
        key.iter().map(|c| row.n[*c].map(|n| (*c, n))).collect::<Option<Vec<_>>>().map(Pred::Equal)
    }

    fn pred(&mut self, kind: Kind) -> Pred {
        if !self.rng.percent(self.mix.wide) {
            let keys = kind.uniques();
            if !keys.is_empty() && self.rng.percent(90) {
                let key = self.rng.pick(keys);
                return self.point(key);
            }
            return self.point(&[K]);
        }
        match self.rng.below(6) {
            0 => Pred::All,
            1 | 2 => self.point(&[A]),
            3 => Pred::IsNull(A),
            4 => {
                let from = self.key();
                let column = self.rng.pick(&[K, U]);
                Pred::Between(column, from, from + self.rng.within(0..=10))
            }
            _ => self.point(&[D]),
        }
    }
}

/// Returns the kind of a table from its definition.
pub fn kind_of(table: &TableDef) -> Kind {
    let guarded_key = table.primary_key_global_index.is_some();
    match (table.primary_key.len(), table.indexes.iter().any(|i| i.unique)) {
        (1, _) if guarded_key => Kind::Apart,
        (1, true) => Kind::Guarded,
        (1, false) if !table.checks.is_empty() => Kind::Checked,
        (1, false) => Kind::Keyed,
        (2, _) => Kind::Spread,
        (_, true) => Kind::Unique,
        _ => Kind::Heap,
    }
}

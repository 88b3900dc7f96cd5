//! The table on which transactions work, and their programs.
//!
//! A row is a register: `id` names it, `now` is the number of the transaction that wrote it last,
//! `before` is the one before that. An update returns both, so each write is also a read, and the
//! writes of a key form a chain.

use clearway_ir::expr::BinaryOp;
use clearway_ir::program::{Access, Env, Path};
use clearway_ir::{Column, Distribution, Expr, OnConflict, Program, RowLock, RowLocking, TableDef};
use clearway_types::{Datum, DatumRef, RowBatch, SqlType, TableId, TreeId};
use std::sync::Arc;

/// The table's tree.
pub(crate) const TREE: TreeId = TreeId(20);

/// The column with the last writer.
const NOW: usize = 1;
/// The column with the writer before that.
const BEFORE: usize = 2;

/// A key's value as a transaction found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub key: u32,
    /// The number of the transaction that wrote it; 0: none.
    pub writer: u64,
}

/// The programs of a world.
pub(crate) struct Programs {
    table: Arc<TableDef>,
    /// Updates by their number of keys, from 0.
    updates: Vec<Arc<Program>>,
    scan: Arc<Program>,
}

impl Programs {
    /// Creates the programs for up to this number of keys in a fragment.
    pub(crate) fn new(most: usize) -> Self {
        let column =
            |name: &str, ty| Column { name: name.to_owned(), ty, not_null: true, default: None };
        let table = Arc::new(TableDef {
            id: TableId(5),
            version: 1,
            name: "registers".to_owned(),
            columns: vec![
                column("id", SqlType::Int4),
                column("now", SqlType::Int8),
                column("before", SqlType::Int8),
            ],
            tree: TREE,
            primary_key: vec![0],
            primary_key_name: "registers_pkey".to_owned(),
            primary_key_global_index: None,
            indexes: Vec::new(),
            checks: Vec::new(),
            distribution: Distribution::Hash(vec![0]),
        });
        let updates = (0..=most).map(|keys| Arc::new(update(&table, keys))).collect();
        let access = access(&table, Path::Full, None);
        let project = vec![Expr::Column(0), Expr::Column(NOW)];
        let scan = Arc::new(Program::Scan { access, group: None, project, limit: None });
        Self { table, updates, scan }
    }

    /// Returns the program and environment that write `writer` to these keys. If it `fails`, it
    /// divides by zero.
    pub(crate) fn update(
        &self,
        keys: &[u32],
        writer: u64,
        fails: bool,
    ) -> (Arc<Program>, Arc<Env>) {
        let mut params = vec![Datum::Int8(writer as i64), Datum::Int8(i64::from(!fails))];
        params.extend(keys.iter().map(|key| Datum::Int4(*key as i32)));
        (self.updates[keys.len()].clone(), Arc::new(Env { params, ..Env::default() }))
    }

    /// Returns the program that inserts rows, and the rows of these keys without a writer.
    pub(crate) fn insert(&self, keys: impl Iterator<Item = u32>) -> (Arc<Program>, RowBatch) {
        let mut rows = RowBatch::new();
        for key in keys {
            rows.push_with(|row| {
                row.push(DatumRef::Int4(key as i32));
                row.push(DatumRef::Int8(0));
                row.push(DatumRef::Int8(0));
            });
        }
        let (table, returning) = (self.table.clone(), Vec::new());
        (Arc::new(Program::Insert { table, returning, on_conflict: OnConflict::Fail }), rows)
    }

    /// Returns the program that returns all rows.
    pub(crate) fn scan(&self) -> Arc<Program> {
        self.scan.clone()
    }
}

fn access(table: &Arc<TableDef>, path: Path, lock: Option<RowLock>) -> Access {
    let lock = lock.map(RowLocking::of);
    Access { table: table.clone(), path, filter: None, lock, learned: Default::default() }
}

fn update(table: &Arc<TableDef>, keys: usize) -> Program {
    let writer = Expr::Binary(BinaryOp::Div, Box::new(Expr::Param(0)), Box::new(Expr::Param(1)));
    Program::update(
        access(
            table,
            Path::Points((0..keys).map(|key| Expr::Param(2 + key)).collect()),
            Some(RowLock::NoKeyUpdate),
        ),
        vec![(NOW, writer), (BEFORE, Expr::Column(NOW))],
        vec![Expr::Column(0), Expr::Column(BEFORE)],
        false,
    )
}

/// Returns the rows of an update or a scan: keys with the writers that they had.
pub(crate) fn found(rows: &RowBatch) -> Vec<Found> {
    let found = |row: clearway_types::RowView<'_>| match (row.get(0), row.get(1)) {
        (Ok(DatumRef::Int4(key)), Ok(DatumRef::Int8(writer))) => {
            Some(Found { key: key as u32, writer: writer as u64 })
        }
        _ => None,
    };
    rows.iter().filter_map(found).collect()
}

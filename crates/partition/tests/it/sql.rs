//! A small table, statements on it, and a model that predicts each reply.
//!
//! `t(id integer primary key, a integer, b integer not null)`, index on (a), unique index on (b).

use clearway_ir::expr::BinaryOp;
use clearway_ir::program::{Access, Env, Path};
use clearway_ir::{
    Column, Distribution, Expr, IndexDef, OnConflict, Program, RowLock, RowLocking, TableDef,
};
use clearway_partition::{Batch, Body, Failure, Reply};
use clearway_types::{Datum, RowBatch, SqlType, TableId, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const ROWS: TreeId = TreeId(20);
pub const BY_A: TreeId = TreeId(21);
pub const BY_B: TreeId = TreeId(22);

pub fn plain_table() -> TableDef {
    let column = |name: &str, not_null| Column {
        name: name.to_owned(),
        ty: SqlType::Int4,
        not_null,
        default: None,
    };
    TableDef {
        id: TableId(5),
        version: 1,
        name: "t".to_owned(),
        columns: vec![column("id", true), column("a", false), column("b", true)],
        tree: ROWS,
        primary_key: vec![0],
        primary_key_name: "t_pkey".to_owned(),
        primary_key_global_index: None,
        indexes: Vec::new(),
        checks: Vec::new(),
        distribution: Distribution::Hash(vec![0]),
    }
}

pub fn table() -> Arc<TableDef> {
    let index = |name: &str, tree, column, unique| IndexDef {
        name: name.to_owned(),
        tree,
        columns: vec![column],
        unique,
        constraint: Some(unique),
        global_index: None,
    };
    let indexes = vec![index("t_a", BY_A, 1, false), index("t_b_key", BY_B, 2, true)];
    Arc::new(TableDef { indexes, ..plain_table() })
}

pub fn int(v: i32) -> Expr {
    Expr::Literal(Datum::Int4(v))
}

pub type Row = (i32, Option<i32>, i32);

pub fn row_of(datums: &[Datum]) -> Row {
    let get = |d: &Datum| d.as_i64().map(|v| v as i32);
    (get(&datums[0]).unwrap(), get(&datums[1]), get(&datums[2]).unwrap())
}

pub fn rows_of(reply: &Reply) -> Vec<Row> {
    reply.rows.iter().map(|r| row_of(&r.to_datums().unwrap())).collect()
}

/// How rows are found. Bounds are inclusive.
#[derive(Clone, Debug)]
pub enum Find {
    Point(i32),
    Points(Vec<i32>),
    Ids { low: Option<i32>, high: Option<i32>, reverse: bool },
    ByA { low: Option<i32>, high: Option<i32>, reverse: bool },
    ByB(i32),
    All { a_less: Option<i32> },
}

#[derive(Clone, Debug)]
pub enum Stmt {
    Select {
        find: Find,
        limit: Option<i32>,
        lock: Option<RowLock>,
    },
    /// `SET column = column + by`.
    Add {
        find: Find,
        column: usize,
        by: i32,
    },
    /// The same for the row with this id, without RETURNING: the statement only adds.
    Bump {
        id: i32,
        column: usize,
        by: i32,
    },
    Delete(Find),
    Insert {
        rows: Vec<Row>,
        ignore: bool,
    },
}

impl Find {
    fn access(&self, table: &Arc<TableDef>, lock: Option<RowLock>) -> Access {
        let bound = |v: &Option<i32>| v.map(|v| (int(v), true));
        let mut filter = None;
        let path = match self {
            Self::Point(id) => Path::Point(vec![int(*id)]),
            Self::Points(ids) => Path::Points(ids.iter().map(|i| int(*i)).collect()),
            Self::Ids { low, high, reverse } => Path::Range {
                index: None,
                prefix: vec![],
                low: bound(low),
                high: bound(high),
                reverse: *reverse,
            },
            Self::ByA { low, high, reverse } => Path::Range {
                index: Some(0),
                prefix: vec![],
                low: bound(low),
                high: bound(high),
                reverse: *reverse,
            },
            Self::ByB(b) => Path::Range {
                index: Some(1),
                prefix: vec![int(*b)],
                low: None,
                high: None,
                reverse: false,
            },
            Self::All { a_less } => {
                filter = a_less.map(|v| {
                    Expr::Binary(BinaryOp::Lt, Box::new(Expr::Column(1)), Box::new(int(v)))
                });
                Path::Full
            }
        };
        Access {
            table: table.clone(),
            path,
            filter,
            lock: lock.map(RowLocking::of),
            learned: Default::default(),
        }
    }
}

pub fn all_columns() -> Vec<Expr> {
    (0..3).map(Expr::Column).collect()
}

pub fn batch(rows: &[Row]) -> RowBatch {
    let mut batch = RowBatch::new();
    for (id, a, b) in rows {
        batch.push_with(|r| {
            for v in [Some(*id), *a, Some(*b)] {
                r.push(v.map_or(Datum::Null, Datum::Int4).as_ref());
            }
        });
    }
    batch
}

impl Stmt {
    pub fn program(&self, table: &Arc<TableDef>) -> Program {
        match self {
            Self::Select { find, limit, lock } => Program::Scan {
                access: find.access(table, *lock),
                group: None,
                project: all_columns(),
                limit: limit.map(int),
            },
            Self::Add { find, column, by } => Program::update(
                // `a` is in no unique key.
                find.access(
                    table,
                    Some(if *column == 1 { RowLock::NoKeyUpdate } else { RowLock::Update }),
                ),
                vec![(
                    *column,
                    Expr::Binary(
                        BinaryOp::Add,
                        Box::new(Expr::Column(*column)),
                        Box::new(int(*by)),
                    ),
                )],
                all_columns(),
                false,
            ),
            Self::Bump { id, column, by } => Program::update(
                Find::Point(*id).access(table, Some(RowLock::NoKeyUpdate)),
                vec![(
                    *column,
                    Expr::Binary(
                        BinaryOp::Add,
                        Box::new(Expr::Column(*column)),
                        Box::new(int(*by)),
                    ),
                )],
                vec![],
                false,
            ),
            Self::Delete(find) => {
                Program::Delete { access: find.access(table, None), returning: all_columns() }
            }
            Self::Insert { ignore, .. } => Program::Insert {
                table: table.clone(),
                returning: all_columns(),
                on_conflict: if *ignore { OnConflict::Ignore } else { OnConflict::Fail },
            },
        }
    }

    fn rows(&self) -> Option<RowBatch> {
        match self {
            Self::Insert { rows, .. } => Some(batch(rows)),
            _ => None,
        }
    }

    pub fn one_shot(&self, table: &Arc<TableDef>) -> Body {
        Body::OneShot {
            program: Arc::new(self.program(table)),
            env: Arc::new(Env::default()),
            rows: self.rows(),
        }
    }

    /// Returns the statement as a fragment that runs optimistically.
    pub fn optimistic(&self, table: &Arc<TableDef>) -> Body {
        let mut body = self.statement(table);
        if let Body::Statement { optimistic, .. } = &mut body {
            *optimistic = true;
        }
        body
    }

    pub fn statement(&self, table: &Arc<TableDef>) -> Body {
        statement(Arc::new(self.program(table)), self.rows())
    }
}

/// Returns a statement of a general transaction, with its reply in one piece.
pub fn statement(program: Arc<Program>, rows: Option<RowBatch>) -> Body {
    let env = Arc::new(Env::default());
    Body::Statement {
        program,
        env,
        rows,
        batch: Batch::ALL,
        fresh: false,
        learns: false,
        may_use_retired: false,
        may_add: true,
        optimistic: false,
    }
}

/// Stands for a row changed by a statement without RETURNING.
pub const ONLY_COUNTED: Row = (-1, None, -1);

/// The expected reply of a statement: rows, or the violated constraint.
pub type Expected = Result<Vec<Row>, &'static str>;

pub fn as_expected(answer: &Result<Reply, Failure>) -> Expected {
    match answer {
        Ok(reply) => {
            let rows = rows_of(reply);
            if rows.is_empty() && reply.count > 0 {
                return Ok(vec![ONLY_COUNTED; reply.count as usize]);
            }
            assert_eq!(reply.count, rows.len() as u64);
            Ok(rows)
        }
        Err(Failure::Sql(e)) if e.message().ends_with("\"t_pkey\"") => Err("t_pkey"),
        Err(Failure::Sql(e)) if e.message().ends_with("\"t_b_key\"") => Err("t_b_key"),
        Err(e) => panic!("{e:?}"),
    }
}

/// The table's rows by id, and whether it is the table without indexes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model(pub BTreeMap<i32, (Option<i32>, i32)>, pub bool);

impl Model {
    fn find(&self, find: &Find) -> Vec<Row> {
        let within = |v: i32, low: &Option<i32>, high: &Option<i32>| {
            low.is_none_or(|l| v >= l) && high.is_none_or(|h| v <= h)
        };
        let all = self.0.iter().map(|(id, (a, b))| (*id, *a, *b));
        let (mut rows, reverse): (Vec<Row>, bool) = match find {
            Find::Point(id) => (all.filter(|r| r.0 == *id).collect(), false),
            Find::Points(ids) => (all.filter(|r| ids.contains(&r.0)).collect(), false),
            Find::Ids { low, high, reverse } => {
                (all.filter(|r| within(r.0, low, high)).collect(), *reverse)
            }
            Find::ByA { low, high, reverse } => {
                let mut rows: Vec<Row> = all
                    .filter(|r| match r.1 {
                        Some(a) => within(a, low, high),
                        None => low.is_none() && high.is_none(),
                    })
                    .collect();
                rows.sort_by_key(|r| (r.1.is_none(), r.1, r.0));
                (rows, *reverse)
            }
            Find::ByB(b) => (all.filter(|r| r.2 == *b).collect(), false),
            Find::All { a_less } => {
                (all.filter(|r| a_less.is_none_or(|v| r.1.is_some_and(|a| a < v))).collect(), false)
            }
        };
        if reverse {
            rows.reverse();
        }
        rows
    }

    fn insert(&mut self, (id, a, b): Row) -> Result<(), &'static str> {
        if self.0.contains_key(&id) {
            return Err("t_pkey");
        }
        if !self.1 && self.0.values().any(|r| r.1 == b) {
            return Err("t_b_key");
        }
        self.0.insert(id, (a, b));
        Ok(())
    }

    fn change(&mut self, stmt: &Stmt) -> Expected {
        let mut out = Vec::new();
        match stmt {
            Stmt::Select { find, limit, .. } => {
                out = self.find(find);
                out.truncate(limit.map_or(usize::MAX, |l| l as usize));
            }
            Stmt::Add { find, column, by } => {
                for (id, a, b) in self.find(find) {
                    let new = match column {
                        0 => (id + by, a, b),
                        1 => (id, a.map(|a| a + by), b),
                        _ => (id, a, b + by),
                    };
                    self.0.remove(&id);
                    self.insert(new)?;
                    out.push(new);
                }
            }
            Stmt::Bump { id, column, by } => {
                if let Some((a, b)) = self.0.get_mut(id) {
                    match column {
                        1 => *a = a.map(|a| a + by),
                        _ => *b += by,
                    }
                    out.push(ONLY_COUNTED);
                }
            }
            Stmt::Delete(find) => {
                out = self.find(find);
                out.iter().for_each(|r| _ = self.0.remove(&r.0));
            }
            Stmt::Insert { rows, ignore } => {
                for row in rows {
                    match self.insert(*row) {
                        Ok(()) => out.push(*row),
                        Err(_) if *ignore => {}
                        Err(e) => return Err(e),
                    }
                }
            }
        }
        Ok(out)
    }

    /// Runs a statement; it changes nothing if it fails.
    pub fn run(&mut self, stmt: &Stmt) -> Expected {
        let before = self.clone();
        let result = self.change(stmt);
        if result.is_err() {
            *self = before;
        }
        result
    }
}

//! A table of users whose key has a global index, and the statements on it that the planner would
//! produce.

use crate::common::{Worker, int, plan};
use clearway_ir::expr::BinaryOp;
use clearway_ir::statement::{Finish, Insert, Query, Route, Source, unnumbered_table};
use clearway_ir::{
    Access, Catalog, Column, Distribution, Expr, IndexDef, OnConflict, Path, Plan, Program,
    Statement, TableDef, UniqueKey,
};
use clearway_types::{Datum, SqlType};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `users(id int primary key, email int unique, n int)`. An int stands for an e-mail address, since
/// it is easier to shift.
pub struct Users {
    pub table: Arc<TableDef>,
}

/// id, email, n.
pub type User = (i32, Option<i32>, i32);

/// Rows by id.
pub type Rows = BTreeMap<i32, (Option<i32>, i32)>;

const ID: usize = 0;
const EMAIL: usize = 1;
pub const N: usize = 2;
/// The index on the e-mail address.
const KEY: usize = 0;

/// A selection of rows.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    Id(i32),
    Email(i32),
    All,
}

fn datum(v: Option<i32>) -> Expr {
    Expr::Literal(v.map_or(Datum::Null, Datum::Int4))
}

fn equals(column: usize, v: i32) -> Expr {
    Expr::Binary(BinaryOp::Eq, Box::new(Expr::Column(column)), Box::new(int(v)))
}

impl Users {
    /// Creates the table, distributed by these columns. By the id, only the e-mail address has a
    /// global index; by `N`, both keys have one.
    pub fn create(worker: &mut Worker, distribution: Distribution) -> Self {
        let column = |name: &str| Column {
            name: name.into(),
            ty: SqlType::Int4,
            not_null: name != "email",
            default: None,
        };
        let columns = vec![column("id"), column("email"), column("n")];
        let mut table = unnumbered_table("users", columns, vec![ID], distribution);
        table.indexes.push(IndexDef {
            name: "users_email_key".into(),
            tree: Default::default(),
            columns: vec![EMAIL],
            unique: true,
            constraint: Some(true),
            global_index: None,
        });
        worker.plain(Statement::CreateTable { table, if_not_exists: false }).unwrap();
        Self::find(&worker.client().catalog())
    }

    pub fn find(catalog: &Catalog) -> Self {
        let table = catalog.table("users").unwrap().clone();
        assert!(table.indexes[KEY].global_index.is_some());
        Self { table }
    }

    fn route(&self, column: usize, v: i32) -> Route {
        if self.table.distribution == Distribution::Hash(vec![column]) {
            return Route::Hash(vec![int(v)]);
        }
        let key = if column == ID { UniqueKey::Primary } else { UniqueKey::Index(KEY) };
        assert!(self.table.global_index(key).is_some());
        Route::GlobalIndex { table: self.table.clone(), key, values: vec![int(v)] }
    }

    fn access(&self, who: Who) -> (Access, Route) {
        let (path, route) = match who {
            Who::Id(id) => (Path::Point(vec![int(id)]), self.route(ID, id)),
            Who::Email(email) => {
                let prefix = vec![int(email)];
                (
                    Path::Range { index: Some(KEY), prefix, low: None, high: None, reverse: false },
                    self.route(EMAIL, email),
                )
            }
            Who::All => (Path::Full, Route::All),
        };
        (
            Access {
                table: self.table.clone(),
                path,
                filter: None,
                lock: None,
                learned: Default::default(),
            },
            route,
        )
    }

    fn scan(&self, access: Access, route: Route) -> Arc<Plan> {
        let project = (0..self.table.columns.len()).map(Expr::Column).collect();
        let program = Arc::new(Program::Scan { access, group: None, project, limit: None });
        plan(Statement::Query(Query {
            once: None,
            source: Source::Table { program, route },
            finish: Vec::new(),
        }))
    }

    pub fn select(&self, who: Who) -> Arc<Plan> {
        let (access, route) = self.access(who);
        self.scan(access, route)
    }

    /// Selects by a scan of all partitions, without any index.
    pub fn select_without_index(&self, email: i32) -> Arc<Plan> {
        let (access, route) = self.access(Who::All);
        self.scan(Access { filter: Some(equals(EMAIL, email)), ..access }, route)
    }

    pub fn insert(&self, users: &[User], ignore_conflicts: bool) -> Arc<Plan> {
        let table = self.table.clone();
        let rows =
            users.iter().map(|(id, email, n)| vec![int(*id), datum(*email), int(*n)]).collect();
        let on_conflict = if ignore_conflicts { OnConflict::Ignore } else { OnConflict::Fail };
        let program =
            Arc::new(Program::Insert { table: table.clone(), returning: Vec::new(), on_conflict });
        let source = Query { once: None, source: Source::Rows(rows), finish: Vec::new() };
        plan(Statement::Insert(Insert { table, source, program }))
    }

    /// Inserts `count` users from id `first` on, with addresses from `email` on.
    pub fn insert_series(&self, first: i32, count: i32, email: i32) -> Arc<Plan> {
        let table = self.table.clone();
        let program = Arc::new(Program::Insert {
            table: table.clone(),
            returning: Vec::new(),
            on_conflict: OnConflict::Fail,
        });
        let source = Source::Series {
            start: int(first),
            stop: int(first + count - 1),
            step: int(1),
            ty: SqlType::Int4,
        };
        let address = plus(Expr::Column(0), email - first);
        let finish = vec![Finish::Project(vec![Expr::Column(0), address, Expr::Column(0)])];
        plan(Statement::Insert(Insert {
            table,
            source: Query { once: None, source, finish },
            program,
        }))
    }

    fn update(&self, who: Who, column: usize, value: Expr) -> Arc<Plan> {
        let (access, route) = self.access(who);
        let moves = self.table.distribution == Distribution::Hash(vec![column])
            || self.table.global_indexes().any(|g| g.columns.contains(&column));
        let program = Arc::new(Program::update(access, vec![(column, value)], Vec::new(), moves));
        plan(Statement::Modify { program, route })
    }

    pub fn set_email(&self, who: Who, email: Option<i32>) -> Arc<Plan> {
        self.update(who, EMAIL, datum(email))
    }
    pub fn set_id(&self, who: Who, id: i32) -> Arc<Plan> {
        self.update(who, ID, int(id))
    }
    pub fn add_to_n(&self, who: Who, by: i32) -> Arc<Plan> {
        self.update(who, N, plus(Expr::Column(N), by))
    }
    pub fn add_to_email(&self, who: Who, by: i32) -> Arc<Plan> {
        self.update(who, EMAIL, plus(Expr::Column(EMAIL), by))
    }

    pub fn delete(&self, who: Who) -> Arc<Plan> {
        let (access, route) = self.access(who);
        let returning = self.table.global_index_columns().map(Expr::Column).collect();
        plan(Statement::Modify { program: Arc::new(Program::Delete { access, returning }), route })
    }
}

fn plus(e: Expr, by: i32) -> Expr {
    Expr::Binary(BinaryOp::Add, Box::new(e), Box::new(int(by)))
}

/// Returns a result's rows. Panics if two have the same id.
pub fn rows_of(rows: &clearway_types::RowBatch) -> Rows {
    let value = |d: &Datum| d.as_i64().map(|v| v as i32);
    let mut all = Rows::new();
    for row in rows.iter() {
        let row = row.to_datums().unwrap();
        let id = value(&row[0]).unwrap();
        assert!(
            all.insert(id, (value(&row[1]), value(&row[2]).unwrap())).is_none(),
            "two rows with id {id}"
        );
    }
    all
}

/// Panics if two rows have the same address.
pub fn no_duplicates(rows: &Rows) {
    let mut seen = BTreeMap::new();
    for (id, (email, _)) in rows {
        if let Some(email) = email
            && let Some(other) = seen.insert(email, id)
        {
            panic!("users {other} and {id} have address {email}");
        }
    }
}

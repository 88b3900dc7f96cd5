//! Changes of the catalog, as parts of ordinary transactions.
//!
//! TRUNCATE, ALTER TABLE and CREATE INDEX create new trees and keep the old ones until the
//! transaction commits. Rolling back just discards the new trees. Older snapshots keep reading the
//! old trees (`past`). Rows inserted into a tree created by the same transaction need no locks, and
//! no undo unless there is a savepoint.
//!
//! Invariants
//! 1. One transaction at a time changes the catalog: it holds the exclusive lock on the catalog's
//!    table at partition 0.
//! 2. A table's definition changes only under the exclusive lock on the table at every partition.
//! 3. A definition's `version` is that of the catalog in which it first appears.
//!
//! A crash before the end leaves trees that no table owns; the next start drops them.

use crate::catalog_rows::{self, CATALOG_TABLE, CATALOG_TREE};
use crate::core::Core;
use crate::global_indexes::{Entries, Keys};
use crate::insert::{self, Done, Inserter, Rounds};
use crate::outcome::{Outcome, Stop};
use crate::query;
use crate::snapshot::Work;
use crate::statement::skipping;
use crate::txn::everywhere;
use clearway_ir::catalog::object_name;
use clearway_ir::expr::BinaryOp;
use clearway_ir::program::Env;
use clearway_ir::{
    Access, Catalog, CheckConstraint, Column, Distribution, Expr, IndexDef, OnConflict, Path, Plan,
    Program, Statement, TableDef, UniqueKey, cast,
};
use clearway_partition::{Body, RawOp};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Datum, PartitionId, SqlError, SqlResult, SqlState, SqlType, TableId, TreeId};
use std::sync::Arc;

/// The partition of the catalog.
const HOME: PartitionId = PartitionId(0);

/// Executes the plan of a DDL statement.
pub(crate) async fn run(core: &Core, plan: &Plan, env: &Env) -> Result<Outcome, Stop> {
    // The plan's columns are positions in this catalog's tables. Others may change them until the
    // lock is granted.
    let planned = core.catalog();
    if plan.catalog.is_some_and(|version| version != planned.version) {
        return Err(Stop::Replan);
    }
    let version_of = |name: &str| planned.table(name).map(|table| table.version);
    core.txn().protocol.write(true);
    core.requester.replace(env.requester());
    everywhere(core, [HOME], |_| lock_table(core, CATALOG_TABLE)).await?;
    match &plan.statement {
        Statement::CreateTable { table, if_not_exists } => {
            create_table(core, table, *if_not_exists, env).await
        }
        Statement::DropTable { names, if_exists, skipped } => {
            drop_tables(core, names, *if_exists, skipped).await
        }
        Statement::Truncate { names } => truncate(core, names).await,
        Statement::AddPrimaryKey { table, name, columns } => {
            let table = as_planned(core, table, version_of(table))?;
            add_primary_key(core, table, name.as_deref(), columns).await
        }
        Statement::AddCheck { table, check } => add_check(core, table, check, env).await,
        Statement::CreateIndex { table, name, columns, unique, if_not_exists, .. } => {
            let index = IndexDef {
                name: name.clone(),
                tree: TreeId(0),
                columns: columns.clone(),
                unique: *unique,
                constraint: Some(false),
                global_index: None,
            };
            create_index(core, table, version_of(table), index, *if_not_exists).await
        }
        Statement::DropIndex { names, if_exists, skipped, .. } => {
            drop_indexes(core, names, *if_exists, skipped).await
        }
        _ => Err(SqlError::internal("not a DDL statement").into()),
    }
}

fn exists(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

async fn create_table(
    core: &Core,
    planned: &TableDef,
    if_not_exists: bool,
    env: &Env,
) -> Result<Outcome, Stop> {
    if core.catalog().has_relation(&planned.name) {
        let text = format!("relation \"{}\" already exists", planned.name);
        if if_not_exists {
            return Ok(Outcome::plain("CREATE TABLE")
                .warn(SqlState::DUPLICATE_TABLE, format!("{text}, skipping")));
        }
        return Err(exists(&planned.name).into());
    }
    let key = (!planned.primary_key.is_empty()).then_some(&planned.primary_key_name);
    let mut names = vec![&planned.name];
    for name in key.into_iter().chain(planned.indexes.iter().map(|i| &i.name)) {
        if names.contains(&name) || core.catalog().has_relation(name) {
            return Err(exists(name).into());
        }
        names.push(name);
    }
    let mut table = planned.clone();
    let defaults = table.columns.iter_mut().filter_map(|column| column.default.as_mut());
    for expr in defaults.chain(table.checks.iter_mut().map(|check| &mut check.condition)) {
        fix_literals(expr, env)?;
    }
    table.id = TableId(core.engine().next_id());
    // A session that finds the table in the published catalog waits for this lock at each partition
    // until the transaction's end arrives there. So what it sees is committed, and is durable
    // before its answer.
    lock(core, table.id).await?;
    set_global_indexes(core, &mut table);
    renew_trees(core, &mut table).await?;
    put(core, table).await?;
    Ok(Outcome::plain("CREATE TABLE"))
}

/// Parses the timestamptz literals in the session's time zone. A stored expression is evaluated by
/// other sessions, for which they must mean the same moments.
fn fix_literals(expr: &mut Expr, env: &Env) -> SqlResult<()> {
    *expr = expr.rewrite(&mut |e| {
        let Expr::Cast { expr, to: SqlType::Timestamptz, explicit: false } = e else {
            return Ok(None);
        };
        let Expr::Literal(text @ Datum::Text(_)) = &**expr else { return Ok(None) };
        let moment = cast::cast(text.as_ref(), SqlType::Timestamptz, false, env.zone())?;
        Ok(Some(Expr::Literal(moment)))
    })?;
    Ok(())
}

async fn drop_tables(
    core: &Core,
    names: &[String],
    if_exists: bool,
    skipped: &[String],
) -> Result<Outcome, Stop> {
    let mut outcome = skipping("DROP TABLE", skipped);
    let before = core.catalog();
    for name in names {
        let Some(table) = core.catalog().table(name).cloned() else {
            if before.table(name).is_some() {
                // Named twice.
                continue;
            }
            if before.has_relation(name) {
                return Err(wrong_kind(name, "a table")
                    .hint("Use DROP INDEX to remove an index.")
                    .into());
            }
            let text = format!("table \"{name}\" does not exist");
            if !if_exists {
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, text).into());
            }
            outcome = outcome.warn(SqlState(*b"00000"), format!("{text}, skipping"));
            continue;
        };
        lock(core, table.id).await?;
        raw(core, RawOp::Delete { tree: CATALOG_TREE, key: catalog_rows::key(table.id) }).await?;
        core.txn().drops.extend(table.trees());
        change(core, table.id, |catalog| {
            catalog.tables.remove(&table.name);
        });
    }
    Ok(outcome)
}

/// Returns the error for DROP of the wrong kind of relation (42809).
fn wrong_kind(name: &str, kind: &str) -> SqlError {
    SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not {kind}"))
}

/// Returns why DROP INDEX cannot remove this relation, if it exists but is not an index, or if a
/// constraint needs it.
fn not_droppable(catalog: &Catalog, name: &str) -> SqlResult<()> {
    if catalog.table(name).is_some() {
        return Err(wrong_kind(name, "an index").hint("Use DROP TABLE to remove a table."));
    }
    let unique = catalog.index(name).filter(|(t, at)| t.indexes[*at].constraint == Some(true));
    let Some(table) = catalog.keyed_by(name).or(unique.map(|(table, _)| table)) else {
        return Ok(());
    };
    let text = format!(
        "cannot drop index {name} because constraint {name} on table {} requires it",
        table.name
    );
    Err(SqlError::new(SqlState(*b"2BP01"), text))
}

async fn truncate(core: &Core, names: &[String]) -> Result<Outcome, Stop> {
    for name in names {
        let mut table = locked(core, name).await?;
        core.txn().drops.extend(table.trees());
        renew_trees(core, &mut table).await?;
        put(core, table).await?;
    }
    Ok(Outcome::plain("TRUNCATE TABLE"))
}

async fn add_primary_key(
    core: &Core,
    old: Arc<TableDef>,
    constraint: Option<&str>,
    columns: &[usize],
) -> Result<Outcome, Stop> {
    let name = &old.name;
    if !canary::on(Bug::UnlockedKey) {
        lock(core, old.id).await?;
    }
    if !old.primary_key.is_empty() {
        let text = format!("multiple primary keys for table \"{name}\" are not allowed");
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, text).into());
    }
    let key_name = constraint.map_or_else(|| object_name(name, None, "pkey"), str::to_owned);
    if core.catalog().has_relation(&key_name) {
        // The planner has chosen a default name that was free.
        let taken_since = constraint.is_none();
        return Err(if taken_since { Stop::Replan } else { exists(&key_name).into() });
    }
    let mut new = (*old).clone();
    new.primary_key = columns.to_vec();
    new.primary_key_name = key_name;
    for column in columns {
        new.columns[*column].not_null = true;
    }
    if new.distribution == Distribution::Random {
        new.distribution = Distribution::Hash(vec![columns[0]]);
    }
    set_global_indexes(core, &mut new);
    core.txn().drops.extend(old.trees());
    renew_trees(core, &mut new).await?;
    let new = Arc::new(new);
    move_rows(core, &old, &new).await?;
    put(core, (*new).clone()).await?;
    Ok(Outcome::plain("ALTER TABLE"))
}

/// Adds a CHECK constraint, which the planner has bound for this definition of the table, if no row
/// violates it.
async fn add_check(
    core: &Core,
    planned: &TableDef,
    check: &CheckConstraint,
    env: &Env,
) -> Result<Outcome, Stop> {
    let mut table = locked_as_planned(core, &planned.name, Some(planned.version)).await?;
    let mut check = check.clone();
    fix_literals(&mut check.condition, env)?;
    let condition = Box::new(check.condition.clone());
    let fails = Box::new(Expr::Literal(Datum::Bool(false)));
    let scan = Arc::new(Program::Scan {
        access: Access {
            table: Arc::new(table.clone()),
            path: Path::Full,
            filter: Some(Expr::Binary(BinaryOp::NotDistinct, condition, fails)),
            lock: None,
            learned: Default::default(),
        },
        group: None,
        project: vec![Expr::Literal(Datum::Bool(true))],
        limit: Some(Expr::Literal(Datum::Int8(1))),
    });
    let env = Arc::new(env.clone());
    for partition in core.engine().all() {
        query::pull(core, partition, &scan, &env, &mut async |rows| match rows.is_empty() {
            true => Ok(()),
            false => Err(violated(&table, &check.name).into()),
        })
        .await?;
    }
    table.checks.push(check);
    table.checks.sort_by(|a, b| a.name.cmp(&b.name));
    put(core, table).await?;
    Ok(Outcome::plain("ALTER TABLE"))
}

/// Returns 23514: an existing row violates a new CHECK constraint.
fn violated(table: &TableDef, check: &str) -> SqlError {
    let text = format!(
        "check constraint \"{check}\" of relation \"{}\" is violated by some row",
        table.name
    );
    SqlError::new(SqlState::CHECK_VIOLATION, text).table(&table.name).constraint(check)
}

/// Copies all rows of `old` into the empty trees of `new`, in batches.
async fn move_rows(core: &Core, old: &Arc<TableDef>, new: &Arc<TableDef>) -> Result<(), Stop> {
    let env = Arc::new(Env::default());
    let scan = Arc::new(Program::Scan {
        access: Access {
            table: old.clone(),
            path: Path::Full,
            filter: None,
            lock: None,
            learned: Default::default(),
        },
        group: None,
        project: (0..old.columns.len()).map(Expr::Column).collect(),
        limit: None,
    });
    let fill = Arc::new(Program::Insert {
        table: new.clone(),
        returning: Vec::new(),
        on_conflict: OnConflict::Fail,
    });
    for partition in core.engine().all() {
        query::pull(core, partition, &scan, &env, &mut async |rows| {
            for i in 0..rows.len() {
                no_nulls(new, rows.get(i))?;
            }
            Inserter { core, table: new, program: &fill, env: &env, new: false }
                .rows(&rows, Rounds::Several, &mut Done::default())
                .await
                .map_err(|stop| not_unique(new, &new.primary_key_name, stop))
        })
        .await?;
    }
    Ok(())
}

/// Reports a duplicate among existing rows as an error of the new key, not of a row.
fn not_unique(table: &TableDef, name: &str, stop: Stop) -> Stop {
    match stop {
        Stop::Error(e) if e.state() == SqlState::UNIQUE_VIOLATION => {
            let text = format!("could not create unique index \"{name}\"");
            let detail = e
                .get_detail()
                .map(|d| d.replace("already exists", "is duplicated"))
                .unwrap_or_default();
            let error = SqlError::new(SqlState::UNIQUE_VIOLATION, text).detail(detail);
            Stop::Error(error.table(&table.name).constraint(name))
        }
        other => other,
    }
}

fn no_nulls(table: &TableDef, row: clearway_types::RowView<'_>) -> SqlResult<()> {
    for column in &table.primary_key {
        if row.get(*column).map_err(insert::bad_row)?.is_null() {
            let Column { name, .. } = &table.columns[*column];
            let text =
                format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
            return Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, text)
                .table(&table.name)
                .column(name));
        }
    }
    Ok(())
}

async fn create_index(
    core: &Core,
    name: &str,
    version: Option<u64>,
    mut index: IndexDef,
    if_not_exists: bool,
) -> Result<Outcome, Stop> {
    if core.catalog().has_relation(&index.name) {
        let text = format!("relation \"{}\" already exists", index.name);
        if if_not_exists {
            return Ok(Outcome::plain("CREATE INDEX")
                .warn(SqlState::DUPLICATE_TABLE, format!("{text}, skipping")));
        }
        return Err(exists(&index.name).into());
    }
    let mut table = locked_as_planned(core, name, version).await?;
    index.tree = TreeId(core.engine().next_id());
    if index.unique && needs_global_index(core, &table, &index.columns) {
        index.global_index = Some(TreeId(core.engine().next_id()));
    }
    let trees = std::iter::once(index.tree).chain(index.global_index).collect();
    table.indexes.push(index);
    create_trees(core, trees).await?;
    let at = table.indexes.len() - 1;
    let table = Arc::new(table);
    let program = Arc::new(Program::BuildIndex { table: table.clone(), index: at });
    let env = Arc::new(Env::default());
    let body = |_| Work { fresh: true, ..Work::plain(&program, &env) }.body(None);
    everywhere(core, core.engine().all(), body).await?;
    fill_global_index(core, &table, at, &env).await?;
    put(core, (*table).clone()).await?;
    Ok(Outcome::plain("CREATE INDEX"))
}

/// Fills the index's global index, if it has one, from the table's rows.
async fn fill_global_index(
    core: &Core,
    table: &Arc<TableDef>,
    index: usize,
    env: &Arc<Env>,
) -> Result<(), Stop> {
    let key = UniqueKey::Index(index);
    let Some(global_index) = table.global_index(key) else { return Ok(()) };
    let scan = Arc::new(Program::Scan {
        access: Access {
            table: table.clone(),
            path: Path::Full,
            filter: None,
            lock: None,
            learned: Default::default(),
        },
        group: None,
        project: global_index.columns.iter().map(|c| Expr::Column(*c)).collect(),
        limit: None,
    });
    for partition in core.engine().all() {
        query::pull(core, partition, &scan, env, &mut async |rows| {
            let mut entries = Entries::new(table);
            for row in rows.iter() {
                entries.add_key(core, key, row, partition)?;
            }
            entries
                .insert(core, Keys::Secondary, env)
                .await
                .map_err(|stop| not_unique(table, global_index.name, stop))
        })
        .await?;
    }
    Ok(())
}

async fn drop_indexes(
    core: &Core,
    names: &[String],
    if_exists: bool,
    skipped: &[String],
) -> Result<Outcome, Stop> {
    let mut outcome = skipping("DROP INDEX", skipped);
    let before = core.catalog();
    for name in names {
        not_droppable(&core.catalog(), name)?;
        let Some(owner) = core.catalog().index(name).map(|(t, _)| t.name.clone()) else {
            if before.index(name).is_some() {
                // Named twice.
                continue;
            }
            let text = format!("index \"{name}\" does not exist");
            if !if_exists {
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, text).into());
            }
            outcome = outcome.warn(SqlState(*b"00000"), format!("{text}, skipping"));
            continue;
        };
        let mut table = locked(core, &owner).await?;
        let gone =
            table.indexes.iter().position(|i| &i.name == name).map(|i| table.indexes.remove(i));
        core.txn()
            .drops
            .extend(gone.into_iter().flat_map(|i| std::iter::once(i.tree).chain(i.global_index)));
        put(core, table).await?;
    }
    Ok(outcome)
}

/// Returns true if single partitions cannot ensure that a key of these columns is unique.
fn needs_global_index(core: &Core, table: &TableDef, columns: &[usize]) -> bool {
    core.engine().partitions() > 1 && !table.meets_in(columns)
}

/// Adds a global index to the unique keys that need one, and removes it from the others.
/// [`renew_trees`] creates the trees.
fn set_global_indexes(core: &Core, table: &mut TableDef) {
    let global_index = |needed: bool| needed.then_some(TreeId(0));
    table.primary_key_global_index = global_index(
        !table.primary_key.is_empty() && needs_global_index(core, table, &table.primary_key),
    );
    let needed: Vec<bool> = table
        .indexes
        .iter()
        .map(|i| i.unique && needs_global_index(core, table, &i.columns))
        .collect();
    for (index, needed) in table.indexes.iter_mut().zip(needed) {
        index.global_index = global_index(needed);
    }
}

/// Gives the table new trees, created at every partition.
async fn renew_trees(core: &Core, table: &mut TableDef) -> Result<(), Stop> {
    table.tree = TreeId(core.engine().next_id());
    for index in &mut table.indexes {
        index.tree = TreeId(core.engine().next_id());
    }
    for global_index in table
        .indexes
        .iter_mut()
        .map(|i| &mut i.global_index)
        .chain([&mut table.primary_key_global_index])
        .flatten()
    {
        *global_index = TreeId(core.engine().next_id());
    }
    create_trees(core, table.trees().collect()).await
}

async fn create_trees(core: &Core, trees: Vec<TreeId>) -> Result<(), Stop> {
    core.txn().created.extend(&trees);
    everywhere(core, core.engine().all(), |_| Body::CreateTrees(trees.clone())).await?;
    Ok(())
}

/// Locks the table exclusively everywhere and returns its definition.
async fn locked(core: &Core, name: &str) -> Result<TableDef, Stop> {
    let table = defined(core, name)?;
    lock(core, table.id).await?;
    Ok((*table).clone())
}

fn defined(core: &Core, name: &str) -> SqlResult<Arc<TableDef>> {
    let table = core.catalog().table(name).cloned();
    table.ok_or_else(|| {
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    })
}

/// Returns a table's definition if it still has the planned version. Otherwise the statement, which
/// has changed nothing, must be planned again.
fn as_planned(core: &Core, name: &str, version: Option<u64>) -> Result<Arc<TableDef>, Stop> {
    let table = defined(core, name)?;
    if version == Some(table.version) { Ok(table) } else { Err(Stop::Replan) }
}

/// Like [`locked`], if the definition still has the planned version.
async fn locked_as_planned(
    core: &Core,
    name: &str,
    version: Option<u64>,
) -> Result<TableDef, Stop> {
    let table = as_planned(core, name, version)?;
    lock(core, table.id).await?;
    Ok((*table).clone())
}

async fn lock(core: &Core, table: TableId) -> Result<(), Stop> {
    everywhere(core, core.engine().all(), |_| lock_table(core, table)).await?;
    Ok(())
}

fn lock_table(core: &Core, table: TableId) -> Body {
    Body::LockTable { table, requester: core.requester.borrow().clone() }
}

async fn raw(core: &Core, op: RawOp) -> Result<(), Stop> {
    everywhere(core, [HOME], |_| Body::Raw(op.clone())).await?;
    Ok(())
}

/// Writes the definition to the catalog's tree and to this transaction's catalog.
async fn put(core: &Core, mut table: TableDef) -> Result<(), Stop> {
    table.version = core.engine().next_catalog_version();
    let value = catalog_rows::encode(&table)?;
    raw(core, RawOp::Put { tree: CATALOG_TREE, key: catalog_rows::key(table.id), value }).await?;
    let version = table.version;
    change_to(core, table.id, version, |catalog| {
        catalog.tables.insert(table.name.clone(), Arc::new(table));
    });
    Ok(())
}

fn change(core: &Core, id: TableId, f: impl FnOnce(&mut Catalog)) {
    let version = core.engine().next_catalog_version();
    change_to(core, id, version, f);
}

fn change_to(core: &Core, id: TableId, version: u64, f: impl FnOnce(&mut Catalog)) {
    let mut catalog = (*core.catalog()).clone();
    catalog.version = version;
    f(&mut catalog);
    let mut txn = core.txn();
    txn.overlay = Some(Arc::new(catalog));
    txn.changed.push((id, version));
}

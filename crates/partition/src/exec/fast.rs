//! The fast path: programs that read or change at most one row and no index.
//!
//! An attempt does everything or nothing, and a change is a transaction by itself with one log
//! record. This path must take about a microsecond: no lock unless others are active, no undo, no
//! allocation except for the reply.

use super::buffers::Buffers;
use super::increment::{addends, integer};
use super::modify::set_columns;
use super::path::push_exprs;
use super::{Cx, Locking, Output, Stop};
use crate::lock::{Mode, Target};
use clearway_ir::program::{Access, Env, Path};
use clearway_ir::{Bounds, Expr, OnConflict, Program, TableDef, UniqueKey};
use clearway_storage::Trees;
use clearway_types::{Lsn, RowBatch, RowView, SqlResult};

/// Reusable buffers.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) key: Vec<u8>,
    new: Vec<u8>,
    /// Those of the last statement of a general transaction that has ended.
    pub(crate) buffers: Option<Box<Buffers>>,
}

/// Returns true if a program qualifies for the fast path.
#[inline]
pub(crate) fn is_atomic(program: &Program, rows: Option<&RowBatch>) -> bool {
    let point = |access: &Access| matches!(access.path, Path::Point(_));
    match program {
        Program::Scan { access, group, limit, .. } => {
            point(access) && group.is_none() && limit.is_none()
        }
        Program::Update { access, set, moves, .. } => {
            let table = &access.table;
            point(access)
                && !moves
                && set.iter().all(|(c, _)| {
                    !table.primary_key.contains(c)
                        && !table.indexes.iter().any(|i| i.columns.contains(c))
                })
        }
        Program::Delete { access, .. } => point(access) && access.table.indexes.is_empty(),
        Program::Insert { table, .. } => {
            table.indexes.is_empty() && rows.is_some_and(|r| r.len() == 1)
        }
        Program::BuildIndex { .. } | Program::GlobalIndex { .. } => false,
    }
}

/// Runs such a program. Returns the output rows, the count, and the LSN of the change's commit.
pub(crate) fn run_atomic<T: Trees>(
    cx: &mut Cx<'_, T>,
    program: &Program,
    env: &Env,
    rows: Option<&RowBatch>,
    scratch: &mut Scratch,
) -> Result<(RowBatch, u64, Option<Lsn>), Stop> {
    let mut out = Output::default();
    scratch.key.clear();
    let commit = match program {
        Program::Scan { access, project, .. } => {
            let mode = Mode::of_row(access.read_lock());
            if find(cx, access, env, mode, &mut scratch.key)? {
                let mut result = Ok(());
                cx.trees.get(access.table.tree, &scratch.key, &mut |value| {
                    result = filtered(access, value, env, |row| {
                        out.count = 1;
                        out.project(project, row, env)
                    });
                })?;
                result?;
            }
            None
        }
        Program::Update { access, set, returning, checks, adds, .. } => {
            let table = &*access.table;
            let adds = adds.as_deref().filter(|_| cx.limits.increments);
            // It changes no key column.
            let mode = if adds.is_some() { Mode::Increment } else { Mode::NoKeyExclusive };
            if !find(cx, access, env, mode, &mut scratch.key)? {
                return Ok((out.rows, 0, None));
            }
            if let Some(bounds) = adds
                && (cx.locking != Locking::None || cx.trees.versions.keeps())
            {
                return add(cx, table, (set, checks, bounds), env, scratch);
            }
            let mut result = Ok(());
            let new = &mut scratch.new;
            cx.trees.get(table.tree, &scratch.key, &mut |value| {
                result = filtered(access, value, env, |row| {
                    out.count = 1;
                    set_columns(table, (set, checks), row, env, new)
                });
            })?;
            result?;
            if out.count == 0 {
                return Ok((out.rows, 0, None));
            }
            if !returning.is_empty() {
                out.project(returning, RowView::new(new), env)?;
            }
            cx.trees.update_autocommit(table.tree, &scratch.key, new)?
        }
        Program::Delete { access, returning } => {
            if !find(cx, access, env, Mode::Exclusive, &mut scratch.key)? {
                return Ok((out.rows, 0, None));
            }
            let mut result = Ok(());
            cx.trees.get(access.table.tree, &scratch.key, &mut |value| {
                result = filtered(access, value, env, |row| {
                    out.count = 1;
                    if returning.is_empty() { Ok(()) } else { out.project(returning, row, env) }
                });
            })?;
            result?;
            if out.count == 0 {
                return Ok((out.rows, 0, None));
            }
            cx.trees.delete_autocommit(access.table.tree, &scratch.key)?
        }
        Program::Insert { table, returning, on_conflict } => {
            let Some(row) = rows.filter(|r| r.len() == 1).map(|r| r.get(0)) else {
                return Err(clearway_types::SqlError::internal("an insert without rows").into());
            };
            return insert(cx, table, row, returning, *on_conflict, env, scratch);
        }
        Program::BuildIndex { .. } | Program::GlobalIndex { .. } => None,
    };
    Ok((out.rows, out.count, commit))
}

/// Adds to a row concurrently with active transactions that have added to it.
fn add<T: Trees>(
    cx: &mut Cx<'_, T>,
    table: &TableDef,
    (set, checks, bounds): (&[(usize, Expr)], &[usize], &[Bounds]),
    env: &Env,
    scratch: &mut Scratch,
) -> Result<(RowBatch, u64, Option<Lsn>), Stop> {
    let Scratch { key, new, .. } = scratch;
    let open = cx.locks.open_spread(table.tree, key);
    let (mut result, mut added) = (Ok(()), None);
    let found = cx.trees.get(table.tree, key, &mut |value| {
        let row = RowView::new(value);
        result = set_columns(table, (set, checks), row, env, new);
        if result.is_ok() {
            let new = RowView::new(new);
            added =
                addends((set, bounds), row, (open.unwrap_or_default(), false), |(column, _)| {
                    integer(new.get(*column).ok()?)
                });
        }
    })?;
    let commit = match added {
        _ if !found => return Ok((RowBatch::new(), 0, None)),
        None if open.is_some() => return Err(Stop::Conflict),
        None => {
            result?;
            cx.trees.update_autocommit(table.tree, key, new)?
        }
        Some(added) => {
            result?;
            cx.trees.add_autocommit(table.tree, key, new, &added.addends)?
        }
    };
    Ok((RowBatch::new(), 1, commit))
}

fn filtered(
    access: &Access,
    value: &[u8],
    env: &Env,
    then: impl FnOnce(RowView<'_>) -> SqlResult<()>,
) -> SqlResult<()> {
    let row = RowView::new(value);
    match &access.filter {
        Some(f) if !f.eval_bool(row, env)? => Ok(()),
        _ => then(row),
    }
}

/// Builds the point's key and checks or takes its lock. Returns false if a NULL in the key means
/// that nothing can match.
#[inline]
fn find<T: Trees>(
    cx: &mut Cx<'_, T>,
    access: &Access,
    env: &Env,
    mode: Mode,
    key: &mut Vec<u8>,
) -> Result<bool, Stop> {
    let Path::Point(exprs) = &access.path else { return Ok(false) };
    if !push_exprs(exprs, env, key)? {
        return Ok(false);
    }
    if cx.locking != Locking::None {
        cx.lock(Target::Table(access.table.id), mode.intent())?;
        cx.lock(Target::Key(access.table.tree, key), mode)?;
    }
    Ok(true)
}

fn insert<T: Trees>(
    cx: &mut Cx<'_, T>,
    table: &TableDef,
    row: RowView<'_>,
    returning: &[clearway_ir::Expr],
    on_conflict: OnConflict,
    env: &Env,
    scratch: &mut Scratch,
) -> Result<(RowBatch, u64, Option<Lsn>), Stop> {
    let mut out = Output::default();
    super::insert::key_of(cx, table, row, &mut scratch.key)?;
    if cx.locking != Locking::None {
        cx.lock(Target::Table(table.id), Mode::IntentExclusive)?;
        cx.lock(Target::Key(table.tree, &scratch.key), Mode::Exclusive)?;
    }
    if !returning.is_empty() {
        out.project(returning, row, env)?;
    }
    match cx.trees.insert_autocommit(table.tree, &scratch.key, row.bytes())? {
        Some(lsn) => Ok((out.rows, 1, Some(lsn))),
        None if on_conflict.ignores(UniqueKey::Primary) => Ok((RowBatch::new(), 0, None)),
        None => Err(super::change::duplicate(table, UniqueKey::Primary, row, env)?.into()),
    }
}

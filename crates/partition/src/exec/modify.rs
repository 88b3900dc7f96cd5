//! `Program::Update` and `Program::Delete`: collect a few keys, change their rows, continue.

use super::buffers::Buffers;
use super::change::{Kind, Steps, damaged, index_steps};
use super::path::{Keys, Range};
use super::recheck::Wanted;
use super::scan::{break_if, missing_row, read_ahead, scan_in_turn};
use super::violation::{not_null_violation, satisfies_checks};
use super::{Cx, Output, Stop, newer};
use crate::lock::Mode;
use crate::message::Batch;
use crate::versions::AsOf;
use clearway_ir::program::{Access, Env, Path};
use clearway_ir::{Bounds, Expr, LockWait, Program, TableDef, UniqueKey};
use clearway_storage::Trees;
use clearway_types::row::RowBuilder;
use clearway_types::{RowView, SqlResult};

#[derive(Default)]
pub(super) struct Modify {
    path: Option<Keys>,
    locked: bool,
    /// How many of the rows whose keys are in [`Buffers::keys`] have been processed, and whether
    /// the collection of these keys is in progress.
    at: usize,
    collecting: bool,
    /// Whether the statement, which only adds, must change the row under the exclusive lock.
    exclusive: bool,
    /// Whether the transaction held nothing on the row before this statement, which only adds.
    pub(super) first: bool,
}

/// The parts of the program.
struct Plan<'a> {
    access: &'a Access,
    /// `None` for a DELETE.
    set: Option<&'a [(usize, Expr)]>,
    returning: &'a [Expr],
    checks: &'a [usize],
    moves: bool,
    adds: Option<&'a [Bounds]>,
    mode: Mode,
    env: &'a Env,
}

impl<'a> Plan<'a> {
    fn of(program: &'a Program, env: &'a Env, may_use_retired: bool) -> Option<Self> {
        let (access, set, returning, checks, moves, adds) = match program {
            Program::Update { access, set, returning, checks, moves, adds } => (
                access,
                Some(set.as_slice()),
                returning,
                checks.as_slice(),
                *moves,
                adds.as_deref(),
            ),
            Program::Delete { access, returning } => {
                (access, None, returning, [].as_slice(), false, None)
            }
            _ => return None,
        };
        let mode = if may_use_retired { Mode::Behind } else { Mode::of_row(access.write_lock()) };
        Some(Self { access, set, returning, checks, moves, adds, mode, env })
    }
    /// Returns true if a changed row could reappear later in the path: then all keys are collected
    /// first.
    fn may_meet_itself(&self) -> bool {
        let Some(set) = self.set else { return false };
        let sets = |columns: &[usize]| set.iter().any(|(c, _)| columns.contains(c));
        let table = &self.access.table;
        let sets_index = match &self.access.path {
            Path::Range { index: Some(i), .. } => sets(&table.indexes[*i].columns),
            _ => false,
        };
        !self.moves && (sets(&table.primary_key) || sets_index)
    }
    fn filter(&self, row: &[u8]) -> SqlResult<bool> {
        self.access.filter.as_ref().map_or(Ok(true), |f| f.eval_bool(RowView::new(row), self.env))
    }
}

/// Writes the row that results from applying `set` to `old`, and tests NOT NULL and these CHECK
/// constraints.
pub(super) fn set_columns(
    table: &TableDef,
    (set, checks): (&[(usize, Expr)], &[usize]),
    old: RowView<'_>,
    env: &Env,
    new: &mut Vec<u8>,
) -> SqlResult<()> {
    new.clear();
    let mut row = RowBuilder::new(new);
    let mut columns = old.iter();
    let mut violated = None;
    for (i, column) in table.columns.iter().enumerate() {
        let before = columns.next().transpose().map_err(|_| damaged(table))?;
        match set.iter().find(|(c, _)| *c == i) {
            Some((_, e)) => {
                let value = e.eval_ref(old, env)?;
                if column.not_null && value.is_null() {
                    violated = violated.or(Some(i));
                }
                row.push(value.as_ref());
            }
            None => row.push(before.unwrap_or(clearway_types::DatumRef::Null)),
        }
    }
    row.finish();
    match violated {
        Some(column) => Err(not_null_violation(table, column, RowView::new(new), env)?),
        None => satisfies_checks(table, checks.iter().copied(), RowView::new(new), env),
    }
}

impl Modify {
    pub(super) fn run<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        program: &Program,
        env: &Env,
        (out, buffers): (&mut Output, &mut Buffers),
        batch: &Batch,
    ) -> Result<bool, Stop> {
        let Some(plan) = Plan::of(program, env, cx.may_use_retired) else {
            return Err(clearway_types::SqlError::internal("not an update").into());
        };
        if self.path.is_none() {
            let keys = self.path.insert(Keys::of(plan.access, env, buffers)?);
            if cx.as_of.is_some() {
                keys.keep_bounds();
            }
            if cx.by_table {
                keys.search_table(plan.access.table.tree);
            }
        }
        self.lock_path(cx, &plan)?;
        let all_first = plan.may_meet_itself();
        loop {
            buffers.steps.take(cx, &plan.access.table, &buffers.new, env)?;
            if out.is_full(batch) {
                return Ok(true);
            }
            if self.at < buffers.keys.len() && !self.collecting {
                cx.spend()?;
                self.prepare(cx, &plan, out, buffers)?;
            } else if !self.collect(cx, &plan, all_first, out, &mut buffers.keys)? {
                return Ok(false);
            }
        }
    }

    #[track_caller]
    fn lock_path<T: Trees>(&mut self, cx: &mut Cx<'_, T>, plan: &Plan<'_>) -> Result<(), Stop> {
        if let (false, Some(keys)) = (self.locked, &self.path) {
            keys.lock(cx, plan.access, plan.mode)?;
            self.locked = true;
        }
        Ok(())
    }

    /// Collects the next keys; returns false if there are no more.
    fn collect<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        plan: &Plan<'_>,
        all: bool,
        out: &mut Output,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<bool, Stop> {
        let Some(path) = &mut self.path else { return Ok(false) };
        if !self.collecting {
            if matches!(path, Keys::Points { keys, next } if *next == keys.len()) {
                return Ok(false);
            }
            found.clear();
            self.at = 0;
            self.collecting = true;
        }
        match path {
            Keys::Points { keys, next } if all && cx.as_of.is_none() => {
                let table = &plan.access.table;
                while let Some(key) = keys.get(*next) {
                    cx.lock_change(table.id, table.tree, key, plan.mode)?;
                    if cx.trees.get(table.tree, key, &mut |_| {})? {
                        found.push(key.clone());
                    }
                    *next += 1;
                }
            }
            Keys::Points { keys, .. } => std::mem::swap(found, keys),
            Keys::Range(r) => {
                while !r.done && (all || found.is_empty()) {
                    if r.search.is_some() {
                        newer::find(cx, r, &plan.access.table, plan.env, out, found)?;
                    } else if r.by_index {
                        cx.spend()?;
                        read_ahead(cx, r, cx.limits.collect, found)?;
                    } else {
                        collect_rows(cx, r, plan, found)?;
                    }
                    out.account(memory_of(found), plan.env)?;
                }
            }
        }
        self.collecting = false;
        Ok(!found.is_empty())
    }

    /// Reads the next row and notes the steps of its change, without changing anything yet.
    fn prepare<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        plan: &Plan<'_>,
        out: &mut Output,
        buffers: &mut Buffers,
    ) -> Result<(), Stop> {
        if let Some(as_of) = cx.as_of {
            return self.prepare_as_of(cx, as_of, plan, out, buffers);
        }
        let table = &*plan.access.table;
        if let (Some(set), Some(bounds)) = (plan.set, plan.adds)
            && !self.exclusive
            && cx.adds_concurrently()
        {
            let key = &buffers.keys[self.at];
            if self.add(cx, plan.access, key, (set, bounds), plan.env, out)? {
                self.at += 1;
                return Ok(());
            }
            self.exclusive = true;
        }
        let Buffers { keys, old, .. } = &mut *buffers;
        let key = &keys[self.at];
        if self.exclusive {
            // Earlier uses of the row are already recorded: this statement's own lock is not a
            // change after an addition.
            cx.lock_row(table.id, table.tree, key, plan.mode)?;
            cx.note_learned(plan.access, key);
        } else {
            cx.lock_change(table.id, table.tree, key, plan.mode)?;
        }
        let found = cx.trees.get(table.tree, key, &mut |value| {
            old.clear();
            old.extend_from_slice(value);
        })?;
        let by_index = matches!(&self.path, Some(Keys::Range(r)) if r.by_index);
        if !found && by_index {
            return Err(missing_row(&table.name).into());
        }
        // A range of the table itself was filtered when its rows were found.
        let filtered = matches!(&self.path, Some(Keys::Range(r)) if !r.by_index);
        if !found || !(filtered || plan.filter(old)?) {
            self.at += 1;
            return Ok(());
        }
        self.note(plan, out, buffers)
    }

    /// Like [`Modify::prepare`], for a row of a snapshot.
    fn prepare_as_of<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        as_of: AsOf,
        plan: &Plan<'_>,
        out: &mut Output,
        buffers: &mut Buffers,
    ) -> Result<(), Stop> {
        let Some(keys) = &self.path else { return Ok(()) };
        let wanted = Wanted {
            access: plan.access,
            keys,
            env: plan.env,
            mode: plan.mode,
            wait: LockWait::Wait,
        };
        let Buffers { keys, old, .. } = &mut *buffers;
        if !wanted.take(cx, as_of, &keys[self.at], old)? {
            self.at += 1;
            return Ok(());
        }
        self.note(plan, out, buffers)
    }

    /// Notes the steps of the next row's change; its newest version has been read.
    fn note(
        &mut self,
        plan: &Plan<'_>,
        out: &mut Output,
        buffers: &mut Buffers,
    ) -> Result<(), Stop> {
        let Buffers { keys, steps, old, new, .. } = buffers;
        steps.clear();
        let result = note_steps(plan, &keys[self.at], old, new, steps, out);
        if result.is_err() {
            steps.clear();
        }
        result?;
        out.count += 1;
        self.at += 1;
        Ok(())
    }
}

fn note_steps(
    plan: &Plan<'_>,
    key: &[u8],
    old: &[u8],
    new: &mut Vec<u8>,
    steps: &mut Steps,
    out: &mut Output,
) -> SqlResult<()> {
    let (table, env) = (&*plan.access.table, plan.env);
    let tree = table.tree;
    let Some(set) = plan.set else {
        steps.push(Kind::Delete { moves: false }, tree, key, &[]);
        index_steps(table, Some((old, key)), None, steps)?;
        return project_returning(plan, old, out);
    };
    set_columns(table, (set, plan.checks), RowView::new(old), env, new)?;
    if plan.moves {
        steps.push(Kind::Delete { moves: true }, tree, key, &[]);
        index_steps(table, Some((old, key)), None, steps)?;
        if table.has_global_index() {
            out.rows.push_encoded(old);
        }
        out.rows.push_encoded(new);
        return out.account(0, env);
    }
    let mut moved = Vec::new();
    let new_key = if set.iter().any(|(c, _)| table.primary_key.contains(c)) {
        table.push_primary_key(RowView::new(new), &mut moved)?;
        &moved
    } else {
        key
    };
    if new_key == key {
        steps.push(Kind::Update, tree, key, new);
    } else {
        steps.push(Kind::Delete { moves: true }, tree, key, &[]);
        steps.push(Kind::Insert(UniqueKey::Primary), tree, new_key, new);
    }
    index_steps(table, Some((old, key)), Some((new, new_key)), steps)?;
    project_returning(plan, new, out)
}

fn project_returning(plan: &Plan<'_>, row: &[u8], out: &mut Output) -> SqlResult<()> {
    if plan.returning.is_empty() {
        return Ok(());
    }
    out.project(plan.returning, RowView::new(row), plan.env)
}

/// Collects the keys of rows that satisfy the filter.
fn collect_rows<T: Trees>(
    cx: &mut Cx<'_, T>,
    r: &mut Range,
    plan: &Plan<'_>,
    found: &mut Vec<Vec<u8>>,
) -> Result<(), Stop> {
    let target = found.len().saturating_add(cx.limits.collect);
    scan_in_turn(cx, r, |key, value| {
        if plan.filter(value)? {
            found.push(key.to_vec());
        }
        Ok(break_if(found.len() >= target))
    })
}

/// Returns the approximate size of collected keys in bytes: keys of one tree have similar lengths.
fn memory_of(keys: &[Vec<u8>]) -> usize {
    keys.last().map_or(0, |key| keys.len() * (size_of::<Vec<u8>>() + key.len()))
}

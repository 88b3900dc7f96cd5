//! `Program::Scan`.

use super::buffers::Buffers;
use super::path::{Keys, Range};
use super::recheck::Wanted;
use super::{Cx, Output, Stop, newer, unavailable};
use crate::lock::{Mode, Target};
use crate::message::Batch;
use clearway_ir::agg::Groups;
use clearway_ir::program::{Access, Env, Group};
use clearway_ir::{Expr, LockWait, Program};
use clearway_storage::Trees;
use clearway_types::{RowView, SqlError, SqlResult, SqlState};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Bytes of a row that cost as much of a turn as one more row.
const ROW_BYTES: usize = 128;

#[derive(Default)]
pub(super) struct Scan {
    state: Option<State>,
}

struct State {
    keys: Keys,
    locked: bool,
    /// Decided once, before the first lock.
    row_mode: Mode,
    /// Keys of rows that index entries led to, or that may be skipped, and how many of them have
    /// been processed.
    ahead: Vec<Vec<u8>>,
    ahead_at: usize,
    returned: Returned,
    /// The newest version of a row of a snapshot.
    row: Vec<u8>,
    groups: Option<Groups>,
    /// Number of groups already output.
    emitted: usize,
    /// Number of rows that may still be output.
    left: u64,
}

/// Rows that SKIP LOCKED has returned through an index. The index's range is not locked, so a row
/// whose entry moves ahead is found again.
#[derive(Default)]
struct Returned {
    keys: BTreeSet<Vec<u8>>,
    /// The size of the keys in bytes.
    memory: usize,
}

impl Returned {
    fn insert(&mut self, key: &[u8]) {
        if self.keys.insert(key.to_vec()) {
            self.memory += size_of::<Vec<u8>>() + key.len();
        }
    }
}

/// The parts of the program.
struct Plan<'a> {
    access: &'a Access,
    group: Option<&'a Group>,
    project: &'a [Expr],
    env: &'a Env,
    mode: Mode,
    wait: LockWait,
    batch: &'a Batch,
}

/// Returns the error for an index entry or a key without its row.
pub(super) fn missing_row(table: &str) -> SqlError {
    SqlError::new(
        SqlState::DATA_CORRUPTED,
        format!("an index of table \"{table}\" has an entry without its row"),
    )
}

impl Scan {
    /// Returns the memory of the keys.
    pub(super) fn return_keys(&mut self, buffers: &mut Buffers) {
        if let Some(State { keys: Keys::Points { keys, .. }, .. }) = &mut self.state {
            buffers.keys = std::mem::take(keys);
        }
    }

    pub(super) fn run<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        program: &Program,
        env: &Env,
        (out, buffers): (&mut Output, &mut Buffers),
        batch: &Batch,
    ) -> Result<bool, Stop> {
        let Program::Scan { access, group, project, limit } = program else {
            return Err(SqlError::internal("not a scan").into());
        };
        let (mode, wait) = (Mode::of_row(access.read_lock()), access.lock_wait());
        let plan = Plan { access, group: group.as_ref(), project, env, mode, wait, batch };
        let state = match &mut self.state {
            Some(state) => state,
            empty => {
                let state = empty.insert(State::new(&plan, limit.as_ref(), buffers)?);
                if access.lock.is_some() && cx.as_of.is_some() {
                    state.keys.keep_bounds();
                }
                if cx.by_table {
                    state.keys.search_table(access.table.tree);
                }
                state.row_mode = cx.row_mode(access, mode);
                state
            }
        };
        state.run(cx, &plan, out)
    }
}

impl State {
    fn new(plan: &Plan<'_>, limit: Option<&Expr>, buffers: &mut Buffers) -> SqlResult<Self> {
        let left = match limit.map(|e| e.eval_const(plan.env)).transpose()? {
            None => u64::MAX,
            Some(d) if d.is_null() => u64::MAX,
            Some(d) => u64::try_from(d.as_i64().unwrap_or(0)).unwrap_or(0),
        };
        Ok(Self {
            keys: Keys::of(plan.access, plan.env, buffers)?,
            locked: false,
            row_mode: plan.mode,
            ahead: Vec::new(),
            ahead_at: 0,
            returned: Returned::default(),
            row: Vec::new(),
            groups: plan.group.map(Groups::new),
            emitted: 0,
            left,
        })
    }

    fn run<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        plan: &Plan<'_>,
        out: &mut Output,
    ) -> Result<bool, Stop> {
        if !self.locked {
            if self.row_mode != plan.mode {
                cx.lock(Target::Table(plan.access.table.id), self.row_mode.intent())?;
            }
            if !self.keys.try_lock(cx, plan.access, plan.mode, plan.wait)? {
                self.left = 0;
            }
            self.locked = true;
        }
        while self.left > 0 {
            if out.is_full(plan.batch) {
                return Ok(true);
            }
            if self.ahead_at < self.ahead.len() {
                self.visit_ahead(cx, plan, out)?;
            } else if !self.advance(cx, plan, out)? {
                break;
            }
        }
        if let (Some(groups), Some(group)) = (&self.groups, plan.group) {
            while self.emitted < groups.len() {
                let end = groups.len().min(self.emitted + cx.budget);
                if end == self.emitted {
                    return Err(Stop::Slice);
                }
                groups.push_partial(group, self.emitted..end, &mut out.rows)?;
                out.account(groups.memory(), plan.env)?;
                cx.budget -= end - self.emitted;
                self.emitted = end;
            }
        }
        Ok(false)
    }

    /// Follows the path by one step; returns false at its end.
    fn advance<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        plan: &Plan<'_>,
        out: &mut Output,
    ) -> Result<bool, Stop> {
        let takes = cx.as_of.filter(|_| plan.access.lock.is_some());
        match &mut self.keys {
            Keys::Points { keys, next } if takes.is_some() => {
                self.ahead = std::mem::take(keys);
                (self.ahead_at, *next) = (0, 0);
                Ok(!self.ahead.is_empty())
            }
            Keys::Points { keys, next } => {
                let Some(key) = keys.get_mut(*next) else { return Ok(false) };
                cx.spend()?;
                if may_take(cx, plan, key, self.row_mode)? {
                    let mut rows =
                        Rows { plan, out, groups: &mut self.groups, left: &mut self.left };
                    let mut result = Ok(());
                    cx.get(plan.access.table.tree, key, &mut |value| {
                        result = rows.take(RowView::new(value))
                    })?;
                    result?;
                }
                *next += 1;
                Ok(true)
            }
            Keys::Range(r) if r.done => Ok(false),
            Keys::Range(r) if r.search.is_some() => {
                self.ahead.clear();
                self.ahead_at = 0;
                newer::find(cx, r, &plan.access.table, plan.env, out, &mut self.ahead)?;
                Ok(true)
            }
            Keys::Range(r) if r.by_index || plan.wait == LockWait::Skip || takes.is_some() => {
                self.ahead.clear();
                self.ahead_at = 0;
                read_ahead(cx, r, cx.limits.index_ahead, &mut self.ahead)?;
                Ok(true)
            }
            Keys::Range(r) => {
                let mut rows = Rows { plan, out, groups: &mut self.groups, left: &mut self.left };
                scan_rows(cx, r, &mut rows)?;
                Ok(true)
            }
        }
    }

    fn visit_ahead<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        plan: &Plan<'_>,
        out: &mut Output,
    ) -> Result<(), Stop> {
        let key = &self.ahead[self.ahead_at];
        cx.spend()?;
        let table = &plan.access.table;
        if let Some(as_of) = cx.as_of.filter(|_| plan.access.lock.is_some()) {
            let Plan { access, env, mode, wait, .. } = *plan;
            let wanted = Wanted { access, keys: &self.keys, env, mode, wait };
            if wanted.take(cx, as_of, key, &mut self.row)? {
                let mut rows = Rows { plan, out, groups: &mut self.groups, left: &mut self.left };
                rows.take(RowView::new(&self.row))?;
            }
            self.ahead_at += 1;
            return Ok(());
        }
        if !self.returned.keys.contains(key) && may_take(cx, plan, key, self.row_mode)? {
            let mut rows = Rows { plan, out, groups: &mut self.groups, left: &mut self.left };
            let (mut result, mut cost_of_row) = (Ok(()), 0);
            let mut take = |value: &[u8]| {
                cost_of_row = cost(value);
                result = rows.take(RowView::new(value));
            };
            if !cx.get(table.tree, key, &mut take)? {
                return Err(missing_row(&table.name).into());
            }
            result?;
            cx.budget = (cx.budget + 1).saturating_sub(cost_of_row);
            let by_index = matches!(&self.keys, Keys::Range(r) if r.by_index);
            if by_index && plan.wait == LockWait::Skip {
                self.returned.insert(key);
                out.account(self.returned.memory, plan.env)?;
            }
        }
        self.ahead_at += 1;
        Ok(())
    }
}

/// Locks a row; returns false if it is skipped.
///
/// SKIP LOCKED has locked no range, so the row may have been deleted or changed since its key was
/// found. It locks the row only if the row exists and satisfies the filter, which in that case
/// includes all conditions of the path. It does not read a row that others have locked: its
/// contents may not be committed.
#[track_caller]
fn may_take<T: Trees>(
    cx: &mut Cx<'_, T>,
    plan: &Plan<'_>,
    key: &[u8],
    mode: Mode,
) -> Result<bool, Stop> {
    let table = &*plan.access.table;
    if plan.wait != LockWait::Wait && !cx.is_free_in(table, Target::Key(table.tree, key), mode) {
        return unavailable(table, plan.wait);
    }
    if plan.wait == LockWait::Skip {
        let mut wanted = Ok(false);
        let filter = |value: &[u8]| match &plan.access.filter {
            Some(filter) => filter.eval_bool(RowView::new(value), plan.env),
            None => Ok(true),
        };
        cx.trees.get(table.tree, key, &mut |value| wanted = filter(value))?;
        if !wanted? {
            return Ok(false);
        }
    }
    cx.lock_read(plan.access, key, mode).map(|()| true)
}

/// Scans the range key by key, until `visit` breaks or fails, or the range is complete.
fn scan_range<T: Trees>(
    cx: &mut Cx<'_, T>,
    r: &mut Range,
    mut visit: impl FnMut(&[u8], &[u8]) -> SqlResult<ControlFlow<()>>,
) -> Result<(), Stop> {
    let mut last = Vec::new();
    let mut flow = Ok(ControlFlow::Continue(()));
    // Keys that the snapshot does not see consume the turn, too.
    let mut absent = cx.limits.slice_rows;
    let mut each = |key: &[u8], value: Option<&[u8]>| {
        last.clear();
        last.extend_from_slice(key);
        match value {
            Some(value) => flow = visit(key, value),
            None => absent -= 1,
        }
        let continues = matches!(flow, Ok(ControlFlow::Continue(()))) && absent > 0;
        if continues { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let (from, to) = r.bounds();
    let result = match cx.as_of {
        None => cx
            .trees
            .scan(r.tree, from, to, r.reverse, &mut |key, value| each(key, Some(value)))
            .map_err(Stop::from),
        Some(as_of) => cx.trees.scan_at(r.tree, (from, to), r.reverse, as_of, &mut each),
    };
    if !last.is_empty() {
        r.advance(last);
    }
    let flow = flow?;
    result?;
    r.done = flow.is_continue() && absent > 0;
    if absent == 0 { Err(Stop::Slice) } else { Ok(()) }
}

/// Returns the cost of visiting a row, in units of a turn.
const fn cost(row: &[u8]) -> usize {
    1 + row.len() / ROW_BYTES
}

/// Like [`scan_range`], but also ends with the turn.
pub(super) fn scan_in_turn<T: Trees>(
    cx: &mut Cx<'_, T>,
    r: &mut Range,
    mut visit: impl FnMut(&[u8], &[u8]) -> SqlResult<ControlFlow<()>>,
) -> Result<(), Stop> {
    if cx.budget == 0 {
        return Err(Stop::Slice);
    }
    let given = cx.budget;
    let mut budget = given;
    let result = scan_range(cx, r, |key, value| {
        budget = budget.saturating_sub(cost(value));
        let flow = visit(key, value)?;
        Ok(if budget == 0 { ControlFlow::Break(()) } else { flow })
    });
    cx.budget -= given - budget;
    result
}

/// Breaks if `enough`.
pub(super) fn break_if(enough: bool) -> ControlFlow<()> {
    if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Reads up to `most` entries of an index, or rows, and appends the rows' keys to `into`.
pub(super) fn read_ahead<T: Trees>(
    cx: &mut Cx<'_, T>,
    r: &mut Range,
    most: usize,
    into: &mut Vec<Vec<u8>>,
) -> Result<(), Stop> {
    let target = into.len().saturating_add(most);
    let by_index = r.by_index;
    scan_range(cx, r, |key, value| {
        into.push(if by_index { value } else { key }.to_vec());
        Ok(break_if(into.len() >= target))
    })
}

/// Processes rows directly from the table's tree, until the batch, the limit or the turn ends.
fn scan_rows<T: Trees>(cx: &mut Cx<'_, T>, r: &mut Range, rows: &mut Rows<'_>) -> Result<(), Stop> {
    scan_in_turn(cx, r, |_, value| {
        rows.take(RowView::new(value))?;
        Ok(break_if(*rows.left == 0 || rows.out.is_full(rows.plan.batch)))
    })
}

/// The destination of the rows found.
struct Rows<'a> {
    plan: &'a Plan<'a>,
    out: &'a mut Output,
    groups: &'a mut Option<Groups>,
    left: &'a mut u64,
}

impl Rows<'_> {
    fn take(&mut self, row: RowView<'_>) -> SqlResult<()> {
        let Plan { access, env, .. } = self.plan;
        if let Some(filter) = &access.filter
            && !filter.eval_bool(row, env)?
        {
            return Ok(());
        }
        match (self.groups.as_mut(), self.plan.group) {
            (Some(groups), Some(group)) => {
                groups.accumulate(group, row, env)?;
                self.out.account(groups.memory(), env)?;
            }
            _ => {
                self.out.project(self.plan.project, row, env)?;
                *self.left -= 1;
            }
        }
        self.out.count += 1;
        Ok(())
    }
}

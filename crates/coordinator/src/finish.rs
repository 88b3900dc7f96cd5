//! A query's finishing steps: the work after its rows have been gathered.
//!
//! The worker's other sessions run after each chunk of rows (`EngineConfig::chunk_rows`). A step's
//! memory is charged to the statement; between two steps that is the rows alone.

use crate::core::Core;
use clearway_ir::agg::Groups;
use clearway_ir::program::{Env, Group};
use clearway_ir::sort::{Distinct, Sorter};
use clearway_ir::statement::Finish;
use clearway_ir::{Charge, Expr};
use clearway_types::{Datum, RowBatch, RowView, SqlError, SqlResult, SqlState};
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Evaluates rows of expressions without input.
pub(crate) fn values(rows: &[Vec<Expr>], env: &Env) -> SqlResult<RowBatch> {
    let mut out = RowBatch::new();
    for exprs in rows {
        project_row(exprs, RowView::new(&[]), env, &mut out)?;
    }
    Ok(out)
}

/// Applies the steps in order.
pub(crate) async fn apply(
    core: &Core,
    steps: &[Finish],
    mut rows: RowBatch,
    env: &Env,
) -> SqlResult<RowBatch> {
    env.memory.settle(rows.memory() as u64)?;
    for step in steps {
        rows = apply_one(core, step, rows, env).await?;
        env.memory.settle(rows.memory() as u64)?;
    }
    Ok(rows)
}

/// Like [`apply`], for so few rows that no step takes more than one turn.
pub(crate) fn apply_at_once(
    core: &Core,
    steps: &[Finish],
    rows: RowBatch,
    env: &Env,
) -> SqlResult<RowBatch> {
    if steps.is_empty() {
        return Ok(rows);
    }
    match pin!(apply(core, steps, rows, env)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(SqlError::internal("one chunk of rows takes one turn")),
    }
}

/// Applies steps that handle each row separately to one chunk of rows.
pub(crate) fn per_row(steps: &[Finish], mut rows: RowBatch, env: &Env) -> SqlResult<RowBatch> {
    for step in steps {
        let mut out = RowBatch::new();
        match step {
            Finish::Filter(condition) => filter(condition, &rows, 0..rows.len(), env, &mut out)?,
            Finish::Project(exprs) => project(exprs, &rows, 0..rows.len(), env, &mut out)?,
            _ => return Err(SqlError::internal("a step that needs all rows")),
        }
        rows = out;
    }
    Ok(rows)
}

/// Calls `take` with each chunk of the `len` rows in order. Other sessions run between chunks.
async fn in_turns(
    core: &Core,
    len: usize,
    mut take: impl FnMut(Range<usize>) -> SqlResult<()>,
) -> SqlResult<()> {
    let chunk = core.engine().chunk_rows();
    for from in (0..len).step_by(chunk) {
        if from > 0 {
            core.yield_turn().await?;
        }
        take(from..len.min(from + chunk))?;
    }
    Ok(())
}

async fn apply_one(core: &Core, step: &Finish, rows: RowBatch, env: &Env) -> SqlResult<RowBatch> {
    let (mut out, mut charge) = (RowBatch::new(), Charge::default());
    match step {
        Finish::Filter(condition) => {
            let take = |range| {
                filter(condition, &rows, range, env, &mut out)?;
                charge.grow(&env.memory, out.memory())
            };
            in_turns(core, rows.len(), take).await?;
        }
        Finish::Merge(group) => {
            return grouped(core, group, &rows, env, |groups, row| groups.merge(group, row)).await;
        }
        Finish::Aggregate { keys, aggregates } => {
            let group = Group { keys: keys.clone(), aggregates: aggregates.clone() };
            return grouped(core, &group, &rows, env, |groups, row| {
                groups.accumulate(&group, row, env)
            })
            .await;
        }
        Finish::Project(exprs) => {
            let take = |range| {
                project(exprs, &rows, range, env, &mut out)?;
                charge.grow(&env.memory, out.memory())
            };
            in_turns(core, rows.len(), take).await?;
        }
        Finish::Distinct => {
            let mut distinct = Distinct::default();
            let take = |range| {
                distinct.push(&rows, range, &mut out)?;
                charge.grow(&env.memory, out.memory() + distinct.memory())
            };
            in_turns(core, rows.len(), take).await?;
        }
        Finish::Sort(keys) => {
            let mut sorter = Sorter::new(keys, &rows, env);
            let take = |range| {
                sorter.push_run(range)?;
                charge.grow(&env.memory, sorter.memory())
            };
            in_turns(core, rows.len(), take).await?;
            let take = |range: Range<usize>| {
                sorter.merge(range.len(), &mut out);
                charge.grow(&env.memory, sorter.memory() + out.memory())
            };
            in_turns(core, rows.len(), take).await?;
        }
        Finish::Limit { limit, offset } => {
            return limited(core, rows, limit.as_ref(), offset.as_ref(), env).await;
        }
    }
    Ok(out)
}

/// Feeds each row to the groups and returns the groups' rows.
async fn grouped(
    core: &Core,
    group: &Group,
    rows: &RowBatch,
    env: &Env,
    mut take: impl FnMut(&mut Groups, RowView<'_>) -> SqlResult<()>,
) -> SqlResult<RowBatch> {
    let (mut groups, mut out, mut charge) =
        (Groups::new(group), RowBatch::new(), Charge::default());
    let fill = |range: Range<usize>| {
        range.map(|i| rows.get(i)).try_for_each(|row| take(&mut groups, row))?;
        charge.grow(&env.memory, groups.memory())
    };
    in_turns(core, rows.len(), fill).await?;
    let emit = |range| {
        groups.push_final(group, range, &mut out)?;
        charge.grow(&env.memory, groups.memory() + out.memory())
    };
    in_turns(core, groups.len(), emit).await?;
    Ok(out)
}

fn project_row(exprs: &[Expr], row: RowView<'_>, env: &Env, out: &mut RowBatch) -> SqlResult<()> {
    out.try_push_with(|out| exprs.iter().try_for_each(|expr| expr.push_to(out, row, env)))
}

fn project(
    exprs: &[Expr],
    rows: &RowBatch,
    range: Range<usize>,
    env: &Env,
    out: &mut RowBatch,
) -> SqlResult<()> {
    range.map(|i| rows.get(i)).try_for_each(|row| project_row(exprs, row, env, out))
}

fn filter(
    condition: &Expr,
    rows: &RowBatch,
    range: Range<usize>,
    env: &Env,
    out: &mut RowBatch,
) -> SqlResult<()> {
    for row in range.map(|i| rows.get(i)) {
        if condition.eval_bool(row, env)? {
            out.push_encoded(row.bytes());
        }
    }
    Ok(())
}

async fn limited(
    core: &Core,
    mut rows: RowBatch,
    limit: Option<&Expr>,
    offset: Option<&Expr>,
    env: &Env,
) -> SqlResult<RowBatch> {
    let skip = count(offset, OFFSET, env)?.unwrap_or(0);
    let take = count(limit, LIMIT, env)?.unwrap_or(usize::MAX);
    if skip == 0 {
        rows.truncate(take);
        return Ok(rows);
    }
    let (mut out, mut charge) = (RowBatch::new(), Charge::default());
    let skip = skip.min(rows.len());
    let copy = |range: Range<usize>| {
        range.for_each(|i| out.push_encoded(rows.get(skip + i).bytes()));
        charge.grow(&env.memory, out.memory())
    };
    in_turns(core, take.min(rows.len() - skip), copy).await?;
    Ok(out)
}

pub(crate) const LIMIT: (&str, SqlState) = ("LIMIT", SqlState::INVALID_LIMIT);
pub(crate) const OFFSET: (&str, SqlState) = ("OFFSET", SqlState::INVALID_OFFSET);

pub(crate) fn count(
    expr: Option<&Expr>,
    (clause, negative): (&str, SqlState),
    env: &Env,
) -> SqlResult<Option<usize>> {
    match expr.map(|e| e.eval_const(env)).transpose()? {
        None | Some(Datum::Null) => Ok(None),
        Some(value) => match value.as_i64().map(usize::try_from) {
            Some(Ok(n)) => Ok(Some(n)),
            _ => Err(SqlError::new(negative, format!("{clause} must not be negative"))),
        },
    }
}

//! A query's finishing steps: the work after its rows have been gathered.
//!
//! Consecutive steps that handle each row separately run together ([`RowSteps`]): a row passes all
//! of them before the next one is computed, and none is computed beyond a LIMIT.
//!
//! The worker's other sessions run after each chunk of rows (`EngineConfig::chunk_rows`). A step's
//! memory is charged to the statement; between two steps that is the rows alone.

use crate::core::Core;
use crate::insert::bad_row;
use clearway_ir::agg::Groups;
use clearway_ir::program::{Env, Group};
use clearway_ir::sort::{Distinct, Sorter};
use clearway_ir::statement::Finish;
use clearway_ir::{Charge, Expr};
use clearway_types::{Datum, DatumRef, RowBatch, RowView, SqlError, SqlResult, SqlState};
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Maximum size of a computed row, in bytes. One value more may exist when this is exceeded.
const MAX_ROW: usize = 256 << 20;

/// Evaluates rows of expressions without input. The rows are charged while they are built.
pub(crate) fn values(rows: &[Vec<Expr>], env: &Env) -> SqlResult<RowBatch> {
    let (mut out, mut charge) = (RowBatch::new(), Charge::default());
    for exprs in rows {
        project_row(exprs, RowView::new(&[]), env, &mut out)?;
        charge.grow(&env.memory, out.memory())?;
    }
    charge.release(&env.memory);
    Ok(out)
}

/// Evaluates rows of expressions without input and applies the steps.
pub(crate) async fn apply_to_values(
    core: &Core,
    rows: &[Vec<Expr>],
    steps: &[Finish],
    env: &Env,
) -> SqlResult<RowBatch> {
    if steps.is_empty() {
        return values(rows, env);
    }
    let (mut first, rest) = RowSteps::split(steps, env)?;
    let mut out = RowBatch::new();
    for exprs in rows {
        if first.is_full() {
            break;
        }
        let mut row = RowBatch::new();
        project_row(exprs, RowView::new(&[]), env, &mut row)?;
        first.push(row.get(0), &mut out)?;
    }
    apply(core, rest, out, env).await
}

/// Applies the steps in order.
pub(crate) async fn apply(
    core: &Core,
    mut steps: &[Finish],
    mut rows: RowBatch,
    env: &Env,
) -> SqlResult<RowBatch> {
    env.memory.settle(rows.memory() as u64)?;
    while let [step, rest @ ..] = steps {
        (rows, steps) = if is_row_wise(step) {
            let (first, rest) = RowSteps::split(steps, env)?;
            (row_by_row(core, first, rows).await?, rest)
        } else {
            (apply_one(core, step, rows, env).await?, rest)
        };
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

/// Returns true if the step handles each row separately.
pub(crate) fn is_row_wise(step: &Finish) -> bool {
    matches!(step, Finish::Filter(_) | Finish::Project(_) | Finish::Limit { .. })
}

enum RowStep<'a> {
    Filter(&'a Expr),
    Project(&'a [Expr]),
    Limit { skip: usize, left: usize },
}

/// Steps that handle each row separately. Their output is charged to the statement.
pub(crate) struct RowSteps<'a> {
    steps: Vec<RowStep<'a>>,
    env: &'a Env,
    charge: Charge,
}

impl<'a> RowSteps<'a> {
    /// Splits off the leading steps that handle each row separately.
    pub(crate) fn split(steps: &'a [Finish], env: &'a Env) -> SqlResult<(Self, &'a [Finish])> {
        let n = steps.iter().take_while(|step| is_row_wise(step)).count();
        let (first, rest) = steps.split_at(n);
        let mut steps = Vec::with_capacity(n);
        for step in first {
            steps.push(match step {
                Finish::Filter(condition) => RowStep::Filter(condition),
                Finish::Project(exprs) => RowStep::Project(exprs),
                Finish::Limit { limit, offset } => RowStep::Limit {
                    skip: count(offset.as_ref(), OFFSET, env)?.unwrap_or(0),
                    left: count(limit.as_ref(), LIMIT, env)?.unwrap_or(usize::MAX),
                },
                _ => return Err(SqlError::internal("a step that needs all rows")),
            });
        }
        Ok((Self { steps, env, charge: Charge::default() }, rest))
    }

    /// Returns true if rows pass unchanged.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns true if a limit has been reached: no further row passes.
    pub(crate) fn is_full(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, RowStep::Limit { left: 0, .. }))
    }

    /// Applies the steps to the rows of this range, until a limit is reached or `out` has `most`
    /// bytes. Returns the number of the next row.
    pub(crate) fn feed(
        &mut self,
        rows: &RowBatch,
        range: Range<usize>,
        most: usize,
        out: &mut RowBatch,
    ) -> SqlResult<usize> {
        for i in range.clone() {
            if self.is_full() || !out.is_empty() && out.memory() >= most {
                return Ok(i);
            }
            self.push(rows.get(i), out)?;
        }
        Ok(range.end)
    }

    /// Applies the steps to one row. Its output is the last row of `out`.
    fn push(&mut self, row: RowView<'_>, out: &mut RowBatch) -> SqlResult<()> {
        let n = out.len();
        let mut is_projected = false;
        for step in &mut self.steps {
            let current = if is_projected { out.get(n) } else { row };
            let passes = match step {
                RowStep::Filter(condition) => condition.eval_bool(current, self.env)?,
                RowStep::Limit { skip, .. } if *skip > 0 => {
                    *skip -= 1;
                    false
                }
                RowStep::Limit { left, .. } => {
                    let is_left = *left > 0;
                    *left -= usize::from(is_left);
                    is_left
                }
                RowStep::Project(exprs) if is_projected => {
                    let mut input = RowBatch::new();
                    input.push_encoded(current.bytes());
                    out.truncate(n);
                    project_row(exprs, input.get(0), self.env, out)?;
                    true
                }
                RowStep::Project(exprs) => {
                    project_row(exprs, row, self.env, out)?;
                    is_projected = true;
                    true
                }
            };
            if !passes {
                out.truncate(n);
                return Ok(());
            }
        }
        if !is_projected {
            out.push_encoded(row.bytes());
        }
        self.charge.grow(&self.env.memory, out.memory())
    }

    /// Releases the charge for the output, which has been passed on.
    pub(crate) fn release(&mut self) {
        self.charge.release(&self.env.memory);
    }
}

async fn row_by_row(
    core: &Core,
    mut steps: RowSteps<'_>,
    mut rows: RowBatch,
) -> SqlResult<RowBatch> {
    if let [RowStep::Limit { skip: 0, left }] = steps.steps[..] {
        rows.truncate(left);
        return Ok(rows);
    }
    let (chunk, mut out, mut at) = (core.engine().chunk_rows(), RowBatch::new(), 0);
    while at < rows.len() && !steps.is_full() {
        if at > 0 {
            core.yield_turn().await?;
        }
        at = steps.feed(&rows, at..rows.len().min(at + chunk), usize::MAX, &mut out)?;
    }
    Ok(out)
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
        Finish::Filter(_) | Finish::Project(_) | Finish::Limit { .. } => {
            return Err(SqlError::internal("a step that handles each row separately"));
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

/// Appends a row of expressions. 54000 if it has more than [`MAX_ROW`] bytes.
fn project_row(exprs: &[Expr], row: RowView<'_>, env: &Env, out: &mut RowBatch) -> SqlResult<()> {
    let mut size = 0;
    out.try_push_with(|out| {
        for expr in exprs {
            if let Expr::Column(n) = expr {
                let column = row.column(*n).map_err(bad_row)?;
                size = fits(size + column.len())?;
                out.push_encoded(column);
            } else {
                let value = expr.eval_ref(row, env)?;
                size = fits(size + encoded_size(value.as_ref()))?;
                out.push(value.as_ref());
            }
        }
        Ok(())
    })
}

/// Returns about the size of an encoded value in bytes.
fn encoded_size(value: DatumRef<'_>) -> usize {
    match value {
        DatumRef::Text(text) => text.len(),
        _ => size_of::<Datum>(),
    }
}

fn fits(size: usize) -> SqlResult<usize> {
    if size <= MAX_ROW {
        return Ok(size);
    }
    Err(SqlError::new(SqlState::LIMIT_EXCEEDED, "row is too big")
        .detail(format!("A row that a query computes can have at most {} MiB.", MAX_ROW >> 20)))
}

const LIMIT: (&str, SqlState) = ("LIMIT", SqlState::INVALID_LIMIT);
const OFFSET: (&str, SqlState) = ("OFFSET", SqlState::INVALID_OFFSET);

fn count(
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

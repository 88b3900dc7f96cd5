//! pg_sleep: the session waits for a deadline of its worker; no thread blocks.
//!
//! It sleeps in calls that are columns of a query without FROM, as often as the query computes
//! them, before the query runs.

use clearway_ir::expr::Func;
use clearway_ir::statement::{Finish, Query, Source};
use clearway_ir::{Env, Expr, Plan, Statement};
use clearway_types::{Datum, RowView, SqlResult};
use std::time::Duration;

/// The longest sleep.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Returns how long a statement sleeps before it runs; `None` if it has no call.
pub(super) fn duration(plan: &Plan, env: &Env) -> Option<SqlResult<Duration>> {
    let Statement::Query(Query { source: Source::Rows(rows), finish, .. }) = &plan.statement else {
        return None;
    };
    let projected = finish.iter().filter_map(projection).flatten();
    rows.iter().flatten().chain(projected).any(is_call).then(|| total(rows, finish, env))
}

fn is_call(e: &Expr) -> bool {
    matches!(e, Expr::Func(Func::PgSleep, _)) && !has_columns(e)
}

fn has_columns(e: &Expr) -> bool {
    e.any(&mut |e| matches!(e, Expr::Column(_)))
}

fn projection(step: &Finish) -> Option<&Vec<Expr>> {
    if let Finish::Project(exprs) = step { Some(exprs) } else { None }
}

/// Returns the sum of all calls.
fn total(rows: &[Vec<Expr>], finish: &[Finish], env: &Env) -> SqlResult<Duration> {
    let computed = computed(rows.len(), finish, env)?;
    let mut total = Duration::ZERO;
    for row in &rows[..computed] {
        total += of_calls(row, env)?;
    }
    // With WHERE or aggregates, the columns are in a later step. WHERE has no columns here.
    let mut is_empty = computed == 0;
    for step in finish {
        match step {
            Finish::Filter(e) if !has_columns(e) => {
                is_empty |= !e.eval_bool(RowView::new(&[]), env)?;
            }
            Finish::Aggregate { keys, .. } => is_empty &= !keys.is_empty(),
            Finish::Project(exprs) if !is_empty => total += of_calls(exprs, env)?,
            _ => {}
        }
    }
    Ok(total.min(LONGEST))
}

/// Returns how many of the rows are computed: not more than LIMIT and OFFSET need.
fn computed(rows: usize, finish: &[Finish], env: &Env) -> SqlResult<usize> {
    let before = |step: &&Finish| matches!(step, Finish::Filter(_) | Finish::Project(_));
    let Some(Finish::Limit { limit, offset }) = finish.iter().find(|step| !before(step)) else {
        return Ok(rows);
    };
    let number = |e: &Option<Expr>| -> SqlResult<Option<i64>> {
        Ok(e.as_ref().map(|e| e.eval_const(env)).transpose()?.and_then(|n| n.as_i64()))
    };
    let (limit, offset) = (number(limit)?, number(offset)?.unwrap_or(0));
    Ok(match limit {
        None => rows,
        Some(..=0) => 0,
        Some(limit) => rows.min(usize::try_from(limit.saturating_add(offset)).unwrap_or(0)),
    })
}

fn of_calls(exprs: &[Expr], env: &Env) -> SqlResult<Duration> {
    let mut total = Duration::ZERO;
    for e in exprs.iter().filter(|e| is_call(e)) {
        if let Expr::Func(_, args) = e {
            for seconds in args {
                total += length(&seconds.eval_const(env)?);
            }
        }
    }
    Ok(total)
}

fn length(seconds: &Datum) -> Duration {
    let seconds = match seconds {
        Datum::Float8(v) => *v,
        Datum::Numeric(v) => v.to_string().parse().unwrap_or(0.0),
        other => other.as_i64().unwrap_or(0) as f64,
    };
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
}

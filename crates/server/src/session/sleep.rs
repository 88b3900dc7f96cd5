//! pg_sleep: the session waits for a deadline of its worker; no thread blocks.
//!
//! It sleeps in calls that are columns of a query without FROM, as often as the query computes
//! them, before the query runs. Each call is then replaced by its value. Elsewhere the function
//! fails, because an expression cannot wait.

use super::run::Run;
use clearway_ir::expr::Func;
use clearway_ir::statement::{Finish, Query, Source};
use clearway_ir::{Env, Expr, Plan, Statement};
use clearway_types::{Datum, RowView, SqlResult};
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Returns how long a statement sleeps before it runs, and replaces its calls; `None` if it has
/// none.
pub(super) fn duration(run: &mut Run) -> Option<SqlResult<Duration>> {
    let Statement::Query(Query { source: Source::Rows(rows), finish, .. }) = &run.plan.statement
    else {
        return None;
    };
    let projected = finish.iter().filter_map(projection).flatten();
    rows.iter().flatten().chain(projected).any(is_call).then(|| total(run))
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

/// Returns the sum of all calls, and replaces them.
fn total(run: &mut Run) -> SqlResult<Duration> {
    let mut plan = Plan::clone(&run.plan);
    let Statement::Query(Query { source: Source::Rows(rows), finish, .. }) = &mut plan.statement
    else {
        return Ok(Duration::ZERO);
    };
    let computed = computed(rows.len(), finish, &run.env)?;
    let mut total = Duration::ZERO;
    for row in &mut rows[..computed] {
        total += make_calls(row, &run.env)?;
    }
    // With WHERE or aggregates, the columns are in a later step. WHERE has no columns here.
    let mut is_empty = computed == 0;
    for step in finish.iter_mut().filter(|_| rows.len() == 1) {
        match step {
            Finish::Filter(e) if !has_columns(e) => {
                let passes = e.eval_bool(RowView::new(&[]), &run.env)?;
                *e = Expr::Literal(Datum::Bool(passes));
                is_empty |= !passes;
            }
            Finish::Aggregate { keys, .. } => is_empty &= !keys.is_empty(),
            Finish::Project(exprs) if !is_empty => total += make_calls(exprs, &run.env)?,
            _ => {}
        }
    }
    // It reads no table, and must not be planned again: the calls have been made.
    plan.catalog = None;
    run.plan = Arc::new(plan);
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

/// Returns the sum of the calls among these columns, and replaces them by their values.
fn make_calls(exprs: &mut [Expr], env: &Env) -> SqlResult<Duration> {
    let mut total = Duration::ZERO;
    for e in exprs.iter_mut().filter(|e| is_call(e)) {
        let Expr::Func(_, args) = e else { continue };
        let Some(seconds) = args.first() else { continue };
        let seconds = seconds.eval_const(env)?;
        total += length(&seconds);
        *e = Expr::Literal(if seconds.is_null() { Datum::Null } else { Datum::from("") });
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

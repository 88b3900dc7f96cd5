//! The finishing steps of a query: what is left to do when its rows have been gathered.

use clearway_plan::agg::Groups;
use clearway_plan::program::{Env, Group};
use clearway_plan::statement::Finish;
use clearway_plan::{Expr, sort};
use clearway_types::{Datum, RowBatch, RowView, SqlError, SqlResult, SqlState};

/// Rows of expressions without input.
pub(crate) fn values(rows: &[Vec<Expr>], env: &Env) -> SqlResult<RowBatch> {
    let mut out = RowBatch::new();
    for exprs in rows {
        project_row(exprs, RowView::new(&[]), env, &mut out)?;
    }
    Ok(out)
}

/// Applies the steps in order.
pub(crate) fn apply(steps: &[Finish], mut rows: RowBatch, env: &Env) -> SqlResult<RowBatch> {
    for step in steps {
        rows = apply_one(step, rows, env)?;
    }
    Ok(rows)
}

fn apply_one(step: &Finish, rows: RowBatch, env: &Env) -> SqlResult<RowBatch> {
    match step {
        Finish::Filter(condition) => filter(condition, &rows, env),
        Finish::Merge(group) => grouped(group, &rows, |groups, row| groups.merge(group, row)),
        Finish::Aggregate { keys, aggregates } => {
            let group = Group { keys: keys.clone(), aggregates: aggregates.clone() };
            grouped(&group, &rows, |groups, row| groups.accumulate(&group, row, env))
        }
        Finish::Project(exprs) => {
            let mut out = RowBatch::new();
            for row in rows.iter() {
                project_row(exprs, row, env, &mut out)?;
            }
            Ok(out)
        }
        Finish::Distinct => sort::distinct(&rows),
        Finish::Sort(keys) => sort::sort(&rows, keys, env),
        Finish::Limit { limit, offset } => limited(rows, limit.as_ref(), offset.as_ref(), env),
    }
}

fn project_row(exprs: &[Expr], row: RowView<'_>, env: &Env, out: &mut RowBatch) -> SqlResult<()> {
    out.try_push_with(|builder| {
        for expr in exprs {
            builder.push(expr.eval_ref(row, env)?.as_ref());
        }
        Ok(())
    })
}

fn filter(condition: &Expr, rows: &RowBatch, env: &Env) -> SqlResult<RowBatch> {
    let mut out = RowBatch::new();
    for row in rows.iter() {
        if condition.eval_bool(row, env)? {
            out.push_encoded(row.bytes());
        }
    }
    Ok(out)
}

fn grouped(
    group: &Group,
    rows: &RowBatch,
    mut take: impl FnMut(&mut Groups, RowView<'_>) -> SqlResult<()>,
) -> SqlResult<RowBatch> {
    let mut groups = Groups::new(group);
    for row in rows.iter() {
        take(&mut groups, row)?;
    }
    let mut out = RowBatch::new();
    groups.push_final(group, &mut out)?;
    Ok(out)
}

fn limited(rows: RowBatch, limit: Option<&Expr>, offset: Option<&Expr>, env: &Env) -> SqlResult<RowBatch> {
    let skip = count(offset, "OFFSET", env)?.unwrap_or(0);
    let take = count(limit, "LIMIT", env)?.unwrap_or(usize::MAX);
    if skip == 0 {
        let mut rows = rows;
        rows.truncate(take);
        return Ok(rows);
    }
    let mut out = RowBatch::new();
    for i in skip..rows.len().min(skip.saturating_add(take)) {
        out.push_encoded(rows.get(i).bytes());
    }
    Ok(out)
}

fn count(expr: Option<&Expr>, what: &str, env: &Env) -> SqlResult<Option<usize>> {
    match expr.map(|e| e.eval_const(env)).transpose()? {
        None | Some(Datum::Null) => Ok(None),
        Some(value) => match value.as_i64().map(usize::try_from) {
            Some(Ok(n)) => Ok(Some(n)),
            _ => Err(SqlError::new(SqlState::INVALID_LIMIT, format!("{what} must not be negative"))),
        },
    }
}

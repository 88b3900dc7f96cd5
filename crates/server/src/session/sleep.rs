//! pg_sleep: the session waits for a deadline of its worker; no thread blocks.

use clearway_ir::expr::Func;
use clearway_ir::statement::Source;
use clearway_ir::{Env, Expr, Plan, Statement};
use clearway_types::{Datum, SqlResult};
use std::time::Duration;

/// The longest sleep.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Returns how long a statement sleeps before it runs: `SELECT pg_sleep(n)`, alone or beside other
/// columns.
pub(super) fn duration(plan: &Plan, env: &Env) -> Option<SqlResult<Duration>> {
    let Statement::Query(query) = &plan.statement else { return None };
    let Source::Rows(rows) = &query.source else { return None };
    let mut calls = rows.iter().flatten().filter_map(|e| match e {
        Expr::Func(Func::PgSleep, args) => args.first(),
        _ => None,
    });
    calls.next().map(|argument| argument.eval_const(env).map(|seconds| length(&seconds)))
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

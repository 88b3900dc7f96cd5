//! pg_terminate_backend with a timeout: the session waits until the other one has ended; no thread
//! blocks.
//!
//! The calls in the select list of a query without FROM are made here, one after the other, before
//! the query runs; each is replaced by its value. Elsewhere the function accepts only timeout 0,
//! because an expression cannot wait.
//!
//! Invariant: while a session waits, either the other session's registry entry lists it as a
//! watcher, or a note that the other session has ended is in this worker's inbox.
//!
//! Locking: none. A crash leaves nothing.
//!
//! Source: PostgreSQL 15, `pg_terminate_backend` and `pg_wait_until_termination` in signalfuncs.c.

use super::run::Run;
use super::{Context, Phase, Session};
use crate::shared::Watcher;
use clearway_ir::expr::Func;
use clearway_ir::statement::{Query, Source};
use clearway_ir::{Backends, Expr, Plan, Signal, Statement};
use clearway_types::{Datum, SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// The longest wait.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// A wait for another session to end.
pub(super) struct Ending {
    run: Run,
    /// The other session.
    pid: i32,
    timeout_ms: i64,
    /// Ticket of the timeout's deadline.
    ticket: u64,
}

/// Returns the rows of expressions of a query without FROM.
fn rows(plan: &mut Plan) -> Option<&mut Vec<Vec<Expr>>> {
    match &mut plan.statement {
        Statement::Query(Query { source: Source::Rows(rows), .. }) => Some(rows),
        _ => None,
    }
}

fn is_call(e: &Expr) -> bool {
    matches!(e, Expr::Func(Func::PgTerminateBackend, args) if args.len() == 2)
}

/// Returns the arguments of the first call with a timeout.
pub(super) fn first_call(plan: &Plan) -> Option<&[Expr]> {
    let Statement::Query(Query { source: Source::Rows(rows), .. }) = &plan.statement else {
        return None;
    };
    rows.iter().flatten().find_map(|e| match e {
        Expr::Func(Func::PgTerminateBackend, args) if args.len() == 2 => Some(args.as_slice()),
        _ => None,
    })
}

/// Returns the backend id and the timeout in milliseconds; `None` if one of them is NULL.
fn arguments(run: &Run) -> SqlResult<Option<(i32, i64)>> {
    let Some([pid, timeout]) = first_call(&run.plan) else { return Ok(None) };
    let (pid, timeout) = (pid.eval_const(&run.env)?, timeout.eval_const(&run.env)?);
    let (Datum::Int4(pid), Datum::Int8(timeout)) = (pid, timeout) else { return Ok(None) };
    if timeout < 0 {
        let text = "\"timeout\" must not be negative";
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, text));
    }
    Ok(Some((pid, timeout)))
}

/// Replaces the first call with a value.
fn with_value(mut run: Run, value: Datum) -> Run {
    let mut plan = Plan::clone(&run.plan);
    if let Some(call) = rows(&mut plan).into_iter().flatten().flatten().find(|e| is_call(e)) {
        *call = Expr::Literal(value);
    }
    // It reads no table, and must not be planned again: the call has been made.
    plan.catalog = None;
    run.plan = Arc::new(plan);
    run
}

impl Session {
    /// Makes the statement's calls, then runs the statement.
    pub(super) fn end_backends(&mut self, cx: &mut Context<'_>, mut run: Run) {
        while first_call(&run.plan).is_some() {
            let (pid, timeout_ms) = match arguments(&run) {
                Err(e) => return self.complete(cx, run, Err(e)),
                Ok(None) => {
                    run = with_value(run, Datum::Null);
                    continue;
                }
                Ok(Some(arguments)) => arguments,
            };
            if pid == self.login.pid {
                return self.complete(cx, run, Err(Signal::Terminate.error()));
            }
            let sent = self.signals.signal(pid, Signal::Terminate);
            let watcher =
                Watcher { worker: cx.worker, slot: self.schedule.slot, pid: self.login.pid };
            if sent && timeout_ms > 0 && cx.shared.watch(pid, watcher) {
                let timeout = Duration::from_millis(timeout_ms.unsigned_abs()).min(LONGEST);
                let ticket = cx.timers.set(cx.now() + timeout, self.schedule.slot);
                self.limit_wait(cx);
                self.phase = Phase::Ending(Box::new(Ending { run, pid, timeout_ms, ticket }));
                return;
            }
            run = with_value(run, Datum::Bool(sent));
        }
        self.carry_out(cx, run);
    }

    /// Continues after the session that this one waited for has ended.
    pub fn backend_has_ended(&mut self, cx: &mut Context<'_>, pid: i32) {
        if let Some(ending) = self.take_ending(|ending| ending.pid == pid) {
            cx.timers.cancel(ending.ticket);
            self.end_backends(cx, with_value(ending.run, Datum::Bool(true)));
        }
    }

    /// Handles the timeout with this ticket.
    pub(super) fn ending_is_due(&mut self, cx: &mut Context<'_>, ticket: u64) {
        let Some(Ending { run, pid, timeout_ms, .. }) =
            self.take_ending(|ending| ending.ticket == ticket)
        else {
            return;
        };
        let unit = if timeout_ms == 1 { "millisecond" } else { "milliseconds" };
        let text = format!("backend with PID {pid} did not terminate within {timeout_ms} {unit}");
        self.notices(&[(SqlState::WARNING, text)]);
        self.end_backends(cx, with_value(run, Datum::Bool(false)));
    }

    fn take_ending(&mut self, is_wanted: impl Fn(&Ending) -> bool) -> Option<Ending> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Ending(ending) if is_wanted(&ending) => Some(*ending),
            other => {
                self.phase = other;
                None
            }
        }
    }
}

impl Ending {
    /// Returns the ticket of the timeout's deadline.
    pub(super) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the statement.
    pub(super) fn into_run(self) -> Run {
        self.run
    }
}

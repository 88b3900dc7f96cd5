//! Running one statement: start, wait, plan again if the catalog moved, and say what came of it.

use super::cursor::CursorUse;
use super::prepared::{Portal, PortalState, Prepared, Rest, ResultFormats};
use super::rest::Drain;
use super::{Context, Phase, Session, sleep, terminate};
use clearway_coordinator::{Client, Outcome, Refusal, RunOptions, Step, Tag, TxnStatus};
use clearway_ir::statement::{Copy, CopyDirection, Maintain};
use clearway_ir::{Env, Plan, Statement};
use clearway_types::{Lsn, SqlError, SqlResult, SqlState};
use clearway_wire::{backend, row};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// A statement is planned anew this often before the session gives up.
const MAX_REPLANS: u8 = 20;

/// Who asked for a statement, and so what follows its end.
#[derive(Debug)]
pub(super) enum Origin {
    /// A simple query.
    Simple,
    /// An Execute message.
    Portal {
        /// The portal; `None` is the unnamed one.
        name: Option<Box<str>>,
        /// At most so many rows now; 0: all.
        max_rows: u32,
    },
}

/// A statement under way.
pub(super) struct Run {
    /// What it is planned from again; `None`: the text of the simple query, through the plan cache.
    pub(super) statement: Option<Rc<Prepared>>,
    pub(super) plan: Arc<Plan>,
    pub(super) env: Arc<Env>,
    pub(super) origin: Origin,
    pub(super) implicit_block: bool,
    pub(super) replans: u8,
    /// It has not been refused by a failed block.
    pub(super) began: bool,
    /// The client has been told what rows look like.
    pub(super) headed: bool,
    /// Rows that have gone out since it was asked for.
    pub(super) sent: usize,
    /// What it does with a cursor.
    pub(super) cursor: Option<CursorUse>,
    /// As a simple query its rows go out in binary: they are of a BINARY cursor.
    pub(super) binary: bool,
}

/// What is to be done when the engine has done its part.
pub(super) enum Task {
    /// A statement.
    Statement(Run),
    /// The rest of a portal, before a statement.
    Drain(Box<Drain>),
    /// The end of an implicit transaction.
    EndImplicit {
        /// By a commit.
        commit: bool,
    },
    /// A batch of COPY's rows.
    CopyRows,
    /// The end of a COPY.
    CopyEnd,
    /// The undo of a block, before its error is told.
    Fail {
        /// The error is of a message of the extended protocol.
        extended: bool,
    },
}

impl Session {
    /// Starts a statement.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, mut run: Run) {
        if self.status() == TxnStatus::Failed && !ends_failed_block(&run.plan.statement) {
            return self.complete(cx, run, Err(failed_block()));
        }
        run.began = true;
        if matches!(run.origin, Origin::Simple) && !matches!(run.plan.statement, Statement::Empty) {
            // A simple query runs in it.
            self.unnamed_portal = None;
        }
        self.statement_begins(cx);
        self.last.clone_from(&run.statement);
        if let Some(command) = alone(&run.plan.statement).filter(|_| self.is_in_block(&run)) {
            let text = format!("{command} cannot run inside a transaction block");
            return self.complete(cx, run, Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, text)));
        }
        if !matches!(run.plan.statement, Statement::Execute { .. }) {
            cx.counters().statement();
        }
        self.carry_out(cx, run);
    }

    /// Carries a statement out that has begun.
    pub(super) fn carry_out(&mut self, cx: &mut Context<'_>, run: Run) {
        if let Statement::RollbackTo(name) = &run.plan.statement {
            self.portals_follow_savepoint(name, true);
        }
        let Some(run) = self.drain(cx, run) else { return };
        match &run.plan.statement {
            Statement::Set { .. }
            | Statement::SetTransaction { session: true, .. }
            | Statement::Reset(_)
            | Statement::Show(_)
            | Statement::Prepare { .. }
            | Statement::Deallocate(_)
            | Statement::Close(_)
            | Statement::Empty => {
                let result = self.run_local(cx, &run);
                self.complete(cx, run, result);
            }
            Statement::Execute { .. } => self.run_execute(cx, run),
            Statement::Declare { .. } => self.run_declare(cx, run),
            Statement::Fetch(_) => self.run_fetch(cx, run),
            Statement::Backup(_) if !self.control => {
                let e = SqlError::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "BACKUP is for the data directory's own socket",
                )
                .hint("Use `clearway backup`, or psql -h /absolute/path/of/the/directory -p 1.");
                self.complete(cx, run, Err(e));
            }
            Statement::Backup(b)
                if crate::backup::is_inside(&cx.shared.config.data, Path::new(&b.target)) =>
            {
                let text = format!("\"{}\" is inside the data directory", b.target);
                self.complete(cx, run, Err(SqlError::new(SqlState::INVALID_PARAMETER, text)));
            }
            Statement::Copy(Copy { direction: CopyDirection::From { .. }, .. }) => {
                self.start_copy_in(cx, run)
            }
            _ if terminate::first_call(&run.plan).is_some() => self.end_backends(cx, run),
            _ => match sleep::duration(&run.plan, &run.env) {
                None => self.start_in_engine(cx, run),
                Some(Err(e)) => self.complete(cx, run, Err(e)),
                Some(Ok(how_long)) => {
                    let ticket = cx.timers.set(cx.now() + how_long, self.slot);
                    self.limit_wait(cx);
                    self.phase = Phase::Sleeping { run, ticket };
                }
            },
        }
    }

    /// Whether the statement is one of several of a transaction.
    fn is_in_block(&self, run: &Run) -> bool {
        let several = match run.origin {
            Origin::Simple => run.implicit_block,
            // One that comes before its Sync has come looks the same as one of several: only what
            // has been done counts.
            Origin::Portal { .. } => self.implicit_open,
        };
        several || self.status() != TxnStatus::Idle
    }

    pub(super) fn start_in_engine(&mut self, cx: &mut Context<'_>, run: Run) {
        let Some(client) = &mut self.client else { return };
        let options = RunOptions {
            implicit_block: run.implicit_block,
            characteristics: self.characteristics,
        };
        self.implicit_open |= run.implicit_block;
        let step = client.start(cx.port, &run.plan, &run.env, options);
        self.after_statement_step(cx, run, step);
    }

    fn after_statement_step(&mut self, cx: &mut Context<'_>, mut run: Run, step: Step) {
        match step {
            Step::Pending => self.wait(cx, Task::Statement(run)),
            Step::Rows(part) if run.declares() => {
                self.hold(cx, part.wait);
                let Some(suspended) = self.client.as_mut().and_then(Client::suspend) else {
                    return;
                };
                self.declared(cx, run, part.rows, Rest::Suspended(suspended));
            }
            Step::Rows(part) => self.deliver_part(cx, run, part),
            Step::Done(result) => match self.answered(cx, result) {
                Ok(outcome) if run.declares() => {
                    self.notices(&outcome.notices);
                    self.declared(cx, run, outcome.rows, Rest::End(outcome.tag));
                }
                result => self.complete(cx, run, result),
            },
            Step::Replan => {
                run.replans += 1;
                if run.replans > MAX_REPLANS {
                    let e = SqlError::new(
                        SqlState::SERIALIZATION_FAILURE,
                        "the tables of this statement keep changing",
                    );
                    return self.complete(cx, run, Err(e));
                }
                match self.replan(cx, &mut run) {
                    Ok(()) => self.start_in_engine(cx, run),
                    Err(e) => self.complete(cx, run, Err(e)),
                }
            }
        }
    }

    fn replan(&mut self, cx: &mut Context<'_>, run: &mut Run) -> SqlResult<()> {
        let catalog = self.catalog(cx);
        if run.statement.is_none() {
            if let Some((plan, params)) = cx.plans.simple(&self.simple_text, &catalog, &self.env) {
                run.plan = plan;
                run.env = self.simple_env(params);
                return Ok(());
            }
            // What can no longer be planned without its literals, because a table is gone say, is
            // planned with them.
            run.statement = Some(self.parse_simple_text(&catalog)?);
            run.env = self.simple_env(Vec::new());
        }
        if let Some(statement) = &run.statement {
            let fixed = matches!(run.origin, Origin::Portal { .. });
            statement.replan(&catalog, &self.env, fixed)?;
            run.plan = statement.plan();
        }
        Ok(())
    }

    /// Waits for the engine.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>, task: Task) {
        self.limit_wait(cx);
        self.phase = Phase::Running { task };
    }

    /// The engine says that the session may go on.
    pub fn resume(&mut self, cx: &mut Context<'_>) {
        // A wake-up may come late, when something else has begun, or because the transaction has
        // been undone.
        if !matches!(self.phase, Phase::Running { .. }) {
            if let Some(client) = &mut self.client
                && !client.is_running()
            {
                drop(client.resume(cx.port));
            }
            return;
        }
        let Phase::Running { task } = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let Some(client) = &mut self.client else { return };
        match client.resume(cx.port) {
            Step::Pending => {
                let notices = client.take_notices();
                self.phase = Phase::Running { task };
                self.tell(&notices);
            }
            step => self.after_step(cx, task, step),
        }
    }

    pub(super) fn after_step(&mut self, cx: &mut Context<'_>, task: Task, step: Step) {
        match (task, step) {
            (task, Step::Pending) => self.wait(cx, task),
            (Task::Statement(run), step) => self.after_statement_step(cx, run, step),
            (Task::Drain(drain), step) => self.drained(cx, *drain, step),
            (Task::EndImplicit { commit }, Step::Done(result)) => {
                let result = self.answered(cx, result);
                self.implicit_ended(cx, commit, result);
            }
            (Task::CopyRows, Step::Done(result)) => {
                let result = self.answered(cx, result);
                self.copy_rows_done(cx, result);
            }
            (Task::CopyEnd, Step::Done(result)) => {
                let result = self.answered(cx, result);
                self.copy_ended(cx, result);
            }
            (Task::Fail { extended }, Step::Done(result)) => {
                let result = self.answered(cx, result);
                self.failed(cx, extended, result);
            }
            (Task::Fail { extended }, Step::Replan | Step::Rows(_)) => {
                self.failed(cx, extended, Err(unplanned()))
            }
            (Task::EndImplicit { .. }, Step::Replan | Step::Rows(_)) => {
                self.implicit_ended(cx, false, Err(unplanned()))
            }
            (Task::CopyRows | Task::CopyEnd, Step::Replan | Step::Rows(_)) => {
                self.copy_ended(cx, Err(unplanned()))
            }
        }
    }

    /// A statement is over: says so.
    pub(super) fn complete(&mut self, cx: &mut Context<'_>, run: Run, result: SqlResult<Outcome>) {
        self.statement_ended();
        self.warn_of_unknown();
        match result {
            Err(e) => {
                let notices = self.client.as_ref().map(Client::take_notices).unwrap_or_default();
                self.notices(&notices);
                self.settle_settings(false);
                if run.began && matches!(run.origin, Origin::Simple) {
                    self.leave_portal(run.plan, run.env);
                }
                self.fail(cx, &run.origin, &e);
            }
            Ok(outcome) => {
                self.notices(&outcome.notices);
                self.follow_savepoint(&run.plan.statement);
                if matches!(run.plan.statement, Statement::Commit | Statement::Rollback) {
                    self.drop_portals();
                }
                self.settle_settings(outcome.tag != Tag::Plain("ROLLBACK"));
                if let Statement::Noop(tag) = &run.plan.statement {
                    self.discard(tag);
                }
                self.deliver(cx, run, outcome);
            }
        }
    }

    /// A simple query has failed: in a block the unnamed portal, in which it ran, is there until
    /// the block ends.
    pub(super) fn leave_portal(&mut self, plan: Arc<Plan>, env: Arc<Env>) {
        let (formats, state) =
            (ResultFormats::All(row::Format::Text), PortalState::Done { tag: None });
        let depth = self.settings.savepoints();
        self.unnamed_portal =
            Some(Portal { statement: None, plan, env, formats, state, depth, declared: None });
    }

    /// Holds what follows until what the engine's answer shows is durable.
    #[track_caller]
    pub(super) fn answered(
        &mut self,
        cx: &Context<'_>,
        result: Result<Outcome, Refusal>,
    ) -> SqlResult<Outcome> {
        self.hold(cx, result.as_ref().map_or_else(|refusal| refusal.wait, |outcome| outcome.wait));
        result.map_err(SqlError::from)
    }

    /// Holds what has not been released yet, and what follows, until the log is durable up to
    /// there.
    #[track_caller]
    pub(super) fn hold(&mut self, cx: &Context<'_>, wait: Lsn) {
        if wait.0 != 0 && self.synchronous_commit {
            self.io.hold(wait, cx.durable);
        }
    }

    /// Passes on what a statement says while it goes on.
    fn tell(&mut self, notices: &[(SqlState, String)]) {
        if !notices.is_empty() {
            self.notices(notices);
            self.io.release();
        }
    }

    pub(super) fn notices(&mut self, notices: &[(SqlState, String)]) {
        for (state, text) in notices {
            let severity = if matches!(&state.0, [b'2', b'5', ..] | [b'0', b'1', ..]) {
                "WARNING"
            } else {
                "NOTICE"
            };
            backend::notice(&mut self.io.out, severity, &SqlError::new(*state, text.as_str()));
        }
    }

    /// An error of a statement, or before one: fails the block, says so, and does what the protocol
    /// wants after it.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>, origin: &Origin, error: &SqlError) {
        if error.state() == SqlState::ADMIN_SHUTDOWN {
            return self.fatal(cx, error);
        }
        let Some(client) = &mut self.client else { return };
        let step = client.fail(cx.port, error.clone());
        self.after_step(cx, Task::Fail { extended: matches!(origin, Origin::Portal { .. }) }, step);
    }

    /// The block has failed, if there is one.
    fn failed(&mut self, cx: &mut Context<'_>, extended: bool, result: SqlResult<Outcome>) {
        if let Err(error) = result {
            self.say_error(cx, &error);
        }
        self.phase = Phase::Idle;
        self.abandon_portals();
        if extended {
            self.skip_to_sync = true;
            // A client that has sent Flush, and no Sync yet, waits for this error; the Flush itself
            // is skipped.
            self.io.release();
        } else {
            self.simple = None;
            self.end_implicit(cx, false);
        }
    }

    fn say_error(&mut self, cx: &Context<'_>, error: &SqlError) {
        cx.counters().error(error.state());
        backend::error(&mut self.io.out, backend::Severity::Error, error);
    }

    /// An error after which nobody knows where the client's next message begins.
    pub(super) fn fail_and_end(&mut self, cx: &mut Context<'_>, error: &SqlError) {
        if let Some(client) = &mut self.client
            && let Step::Done(result) = client.fail(cx.port, error.clone())
        {
            self.hold(cx, result.map_or_else(|refusal| refusal.wait, |outcome| outcome.wait));
        }
        self.say_error(cx, error);
        let text = "terminating connection because protocol synchronization was lost";
        self.fatal(cx, &SqlError::new(SqlState::PROTOCOL_VIOLATION, text));
    }

    /// Ends the implicit transaction, if there is one, and then says ReadyForQuery.
    pub(super) fn end_implicit(&mut self, cx: &mut Context<'_>, commit: bool) {
        if !std::mem::take(&mut self.implicit_open) {
            return self.ready(cx);
        }
        let Some(client) = &mut self.client else { return };
        let step = client.end_implicit(cx.port, commit);
        self.after_step(cx, Task::EndImplicit { commit }, step);
    }

    fn implicit_ended(&mut self, cx: &mut Context<'_>, commit: bool, result: SqlResult<Outcome>) {
        match result {
            Ok(outcome) => {
                self.notices(&outcome.notices);
                self.settle_settings(commit);
            }
            Err(e) => {
                cx.counters().error(e.state());
                backend::error(&mut self.io.out, backend::Severity::Error, &e);
                self.settle_settings(false);
            }
        }
        self.ready(cx);
    }
}

/// What a statement is called that cannot be part of a transaction block.
fn alone(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::Maintain { kind: Maintain::Vacuum, .. } => Some("VACUUM"),
        Statement::Noop(tag @ "DISCARD ALL") => Some(tag),
        Statement::CreateIndex { concurrently: true, .. } => Some("CREATE INDEX CONCURRENTLY"),
        Statement::DropIndex { concurrently: true, .. } => Some("DROP INDEX CONCURRENTLY"),
        _ => None,
    }
}

fn unplanned() -> SqlError {
    SqlError::internal("the end of a transaction cannot be planned again")
}

/// Whether a failed block lets the statement through.
pub(super) fn ends_failed_block(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Commit | Statement::Rollback | Statement::RollbackTo(_) | Statement::Empty
    )
}

/// What a failed block answers to everything but its end.
pub(super) fn failed_block() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

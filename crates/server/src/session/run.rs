//! Runs one statement: starts it, waits for it, plans it again if the catalog has changed, and
//! reports the result.

use super::cursor::CursorUse;
use super::prepared::{Portal, PortalState, Prepared, Rest, ResultColumns, ResultFormats};
use super::rest::Drain;
use super::{Context, Phase, Session, sleep, terminate};
use clearway_coordinator::{Client, Outcome, Refusal, RunOptions, Step, Tag, TxnStatus};
use clearway_ir::statement::Maintain;
use clearway_ir::{Env, Plan, Statement};
use clearway_types::{Lsn, SqlError, SqlResult, SqlState};
use clearway_wire::{backend, row};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of times that a statement is planned again.
const MAX_REPLANS: u8 = 20;

/// What requested a statement; determines what follows its end.
#[derive(Debug)]
pub(super) enum Origin {
    /// A simple query.
    Simple,
    /// An Execute message.
    Portal {
        /// The portal; `None` is the unnamed one.
        name: Option<Box<str>>,
        /// Maximum number of rows to return now; 0 means all.
        max_rows: u32,
    },
}

/// A statement in progress.
pub(super) struct Run {
    /// What to plan again; `None` means the text of the simple query, through the plan cache.
    pub(super) statement: Option<Rc<Prepared>>,
    pub(super) plan: Arc<Plan>,
    pub(super) env: Arc<Env>,
    pub(super) origin: Origin,
    /// Whether its columns may change when it is planned again. They may not if it runs a prepared
    /// statement: sessions share those, and their clients know the columns.
    pub(super) columns: ResultColumns,
    pub(super) implicit_block: bool,
    pub(super) replans: u8,
    /// It was not refused by a failed block.
    pub(super) began: bool,
    /// RowDescription has been sent, or is not needed.
    pub(super) header_sent: bool,
    /// Rows sent since the current Execute or query.
    pub(super) sent: usize,
    /// How it uses a cursor, if it does.
    pub(super) cursor: Option<CursorUse>,
    /// A simple query sends its rows in binary: they come from a BINARY cursor.
    pub(super) binary: bool,
}

/// What to do when the engine answers.
pub(super) enum Task {
    /// Continue a statement.
    Statement(Run),
    /// Continue to read the rest of a portal, before a statement.
    Drain(Box<Drain>),
    /// End an implicit transaction.
    EndImplicit {
        /// Commit, not roll back.
        commit: bool,
    },
    /// Continue after a batch of COPY's rows.
    CopyRows,
    /// End a COPY.
    CopyEnd,
    /// Report an error after its block has been undone.
    Fail {
        /// The error belongs to a message of the extended protocol.
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
            // A simple query replaces the unnamed portal.
            self.portals.unnamed = None;
        }
        self.statement_begins(cx);
        // Not the statement itself: the syntax tree of a long INSERT is much larger than its text.
        self.statements.last = run.statement.as_ref().map(|statement| statement.text().clone());
        if let Some(command) = alone(&run.plan.statement).filter(|_| self.is_in_block(&run)) {
            let text = format!("{command} cannot run inside a transaction block");
            return self.complete(cx, run, Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, text)));
        }
        if !matches!(run.plan.statement, Statement::Execute { .. }) {
            cx.counters().statement();
        }
        self.carry_out(cx, run);
    }

    /// Runs a statement that has begun.
    pub(super) fn carry_out(&mut self, cx: &mut Context<'_>, run: Run) {
        match &run.plan.statement {
            Statement::RollbackTo(name) => self.end_portals_after(name),
            // Before the end, as in PostgreSQL: it drops the trees that no open snapshot sees, and
            // a suspended portal keeps its snapshot open.
            Statement::Commit | Statement::Rollback => self.portals.clear(),
            _ => {}
        }
        let Some(mut run) = self.drain(cx, run) else { return };
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
            Statement::Backup(_) if !self.login.control => {
                let e = SqlError::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "BACKUP is allowed only on the control socket",
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
            _ if terminate::first_call(&run.plan).is_some() => self.end_backends(cx, run),
            _ => match sleep::duration(&mut run) {
                None => self.start_in_engine(cx, run),
                Some(Err(e)) => self.complete(cx, run, Err(e)),
                Some(Ok(how_long)) => {
                    let ticket = cx.timers.set(cx.now() + how_long, self.schedule.slot);
                    self.limit_wait(cx);
                    self.phase = Phase::Sleeping { run, ticket };
                }
            },
        }
    }

    /// Returns true if the statement is one of several of a transaction.
    fn is_in_block(&self, run: &Run) -> bool {
        let several = match run.origin {
            Origin::Simple => run.implicit_block || self.exchange.implicit_open,
            // Before its Sync arrives, a single statement looks like the first of several: only
            // earlier statements count.
            Origin::Portal { .. } => self.exchange.implicit_open,
        };
        several || self.status() != TxnStatus::Idle
    }

    pub(super) fn start_in_engine(&mut self, cx: &mut Context<'_>, run: Run) {
        let Some(client) = &mut self.client else { return };
        let options = RunOptions {
            implicit_block: run.implicit_block,
            characteristics: self.config.characteristics,
        };
        self.exchange.implicit_open |= run.implicit_block;
        let step = client.start(&run.plan, &run.env, options);
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
                Ok(_) if run.copies_in() => self.start_copy_in(cx, run),
                result => self.complete(cx, run, result),
            },
            Step::Replan => {
                run.replans += 1;
                if run.replans > MAX_REPLANS {
                    let e = SqlError::new(
                        SqlState::SERIALIZATION_FAILURE,
                        "the statement's tables changed too often while it was planned",
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
            if let Some((plan, params)) =
                cx.plans.simple(&self.statements.simple_text, &catalog, &self.config.env)
            {
                run.plan = plan;
                run.env = self.simple_env(params);
                return Ok(());
            }
            // If it cannot be planned without its literals any more, for example because a table is
            // gone, it is planned with them.
            run.statement = Some(self.parse_simple_text(&catalog)?);
            run.env = self.simple_env(Vec::new());
        }
        if let Some(statement) = &run.statement {
            statement.replan(&catalog, &self.config.env, run.columns)?;
            run.plan = statement.plan();
        }
        Ok(())
    }

    /// Waits for the engine.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>, task: Task) {
        self.limit_wait(cx);
        self.phase = Phase::Running { task };
    }

    /// Continues when the engine reports progress.
    pub fn resume(&mut self, cx: &mut Context<'_>) {
        // A wake-up may come late, after something else has begun or the transaction has been
        // undone.
        if !matches!(self.phase, Phase::Running { .. }) {
            if let Some(client) = &mut self.client
                && !client.is_running()
            {
                drop(client.resume());
            }
            return;
        }
        let Phase::Running { task } = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let Some(client) = &mut self.client else { return };
        match client.resume() {
            Step::Pending => {
                let notices = client.take_notices();
                self.phase = Phase::Running { task };
                self.send_notices(&notices);
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

    /// Reports the end of a statement.
    pub(super) fn complete(&mut self, cx: &mut Context<'_>, run: Run, result: SqlResult<Outcome>) {
        self.warn_about_unknown_pids();
        match result {
            Err(e) => {
                self.statement_ended(cx);
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
                let committed = outcome.tag != Tag::Plain("ROLLBACK");
                if matches!(run.plan.statement, Statement::Commit | Statement::Rollback) {
                    self.transaction_ended(committed);
                } else {
                    self.settle_settings(committed);
                }
                if let Statement::Noop(tag) = &run.plan.statement {
                    self.discard(tag);
                }
                self.deliver(cx, run, outcome);
            }
        }
    }

    /// Follows the end of a transaction by COMMIT or ROLLBACK. The query or the group of messages
    /// around it may go on: what follows belongs to the next transaction.
    fn transaction_ended(&mut self, committed: bool) {
        self.times.transaction_ended = true;
        self.end_settings(committed);
    }

    /// Leaves the unnamed portal after a failed simple query. In a block it exists until the block
    /// ends.
    pub(super) fn leave_portal(&mut self, plan: Arc<Plan>, env: Arc<Env>) {
        let (formats, state) =
            (ResultFormats::All(row::Format::Text), PortalState::Done { tag: None });
        let depth = self.config.settings.savepoints();
        self.portals.unnamed =
            Some(Portal { statement: None, plan, env, formats, state, depth, declared: None });
    }

    /// Holds the replies until everything that the engine's answer shows is durable.
    #[track_caller]
    pub(super) fn answered(
        &mut self,
        cx: &Context<'_>,
        result: Result<Outcome, Refusal>,
    ) -> SqlResult<Outcome> {
        self.hold(cx, result.as_ref().map_or_else(|refusal| refusal.wait, |outcome| outcome.wait));
        result.map_err(SqlError::from)
    }

    /// Holds unreleased and later replies until the log is durable up to `wait`.
    #[track_caller]
    pub(super) fn hold(&mut self, cx: &Context<'_>, wait: Lsn) {
        if wait.0 != 0 && self.config.synchronous_commit {
            self.io.hold(wait, cx.durable, self.times.began);
        }
    }

    /// Sends the notices of a running statement at once.
    fn send_notices(&mut self, notices: &[(SqlState, String)]) {
        if !notices.is_empty() {
            self.notices(notices);
            self.io.release();
        }
    }

    pub(super) fn notices(&mut self, notices: &[(SqlState, String)]) {
        for (state, text) in notices {
            let is_warning = matches!(&state.0, [b'2', b'5', ..] | [b'0', b'1', ..]);
            if self.config.settings.shows_notice(is_warning) {
                let severity = if is_warning { "WARNING" } else { "NOTICE" };
                backend::notice(&mut self.io.out, severity, &SqlError::new(*state, text.as_str()));
            }
        }
    }

    /// Handles an error of a statement or before one: fails the block, reports the error, and
    /// follows the protocol.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>, origin: &Origin, error: &SqlError) {
        if error.state() == SqlState::ADMIN_SHUTDOWN {
            return self.fatal(cx, error);
        }
        let Some(client) = &mut self.client else { return };
        let step = client.fail(error.clone());
        self.after_step(cx, Task::Fail { extended: matches!(origin, Origin::Portal { .. }) }, step);
    }

    /// Reports the error after its block has failed, if there is one.
    fn failed(&mut self, cx: &mut Context<'_>, extended: bool, result: SqlResult<Outcome>) {
        if let Err(error) = result {
            self.send_error(cx, &error);
        }
        self.phase = Phase::Idle;
        self.abandon_portals();
        if extended {
            self.exchange.skip_to_sync = true;
            // A client that sent Flush, but no Sync yet, waits for this error; the Flush itself is
            // skipped.
            self.io.release();
        } else {
            self.exchange.simple = None;
            self.end_implicit(cx, false);
        }
    }

    fn send_error(&mut self, cx: &Context<'_>, error: &SqlError) {
        cx.counters().error(error.state());
        backend::error(&mut self.io.out, backend::Severity::Error, error);
    }

    /// Fails and ends the session: the start of the client's next message is unknown.
    pub(super) fn fail_and_end(&mut self, cx: &mut Context<'_>, error: &SqlError) {
        if let Some(client) = &mut self.client
            && let Step::Done(result) = client.fail(error.clone())
        {
            self.hold(cx, result.map_or_else(|refusal| refusal.wait, |outcome| outcome.wait));
        }
        self.send_error(cx, error);
        let text = "terminating connection because protocol synchronization was lost";
        self.fatal(cx, &SqlError::new(SqlState::PROTOCOL_VIOLATION, text));
    }

    /// Ends the implicit transaction, if there is one, and sends ReadyForQuery.
    pub(super) fn end_implicit(&mut self, cx: &mut Context<'_>, commit: bool) {
        self.exchange.cancelled = false;
        if !std::mem::take(&mut self.exchange.implicit_open) {
            return self.ready(cx);
        }
        // A failed transaction has no suspended portal, and a block opened by BEGIN goes on.
        if self.status() == TxnStatus::Idle {
            self.portals.clear();
        }
        let Some(client) = &mut self.client else { return };
        let step = client.end_implicit(commit);
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

/// Names a statement that must not run in a transaction block.
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

/// Returns true if the statement is allowed in a failed block.
pub(super) fn ends_failed_block(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Commit | Statement::Rollback | Statement::RollbackTo(_) | Statement::Empty
    )
}

/// Returns the error for all other statements in a failed block.
pub(super) fn failed_block() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

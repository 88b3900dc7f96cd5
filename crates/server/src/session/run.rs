//! Running one statement: start, wait, plan again if the catalog moved, and say what came of it.

use super::prepared::{Portal, PortalState, Prepared, ResultFormats};
use super::{Context, Phase, Session, sleep};
use clearway_coordinator::{Client, Outcome, Refusal, RunOptions, Step, Tag, TxnStatus};
use clearway_plan::statement::{Copy, CopyDirection, Maintain};
use clearway_plan::{Env, Plan, Statement};
use clearway_types::{Lsn, RowBatch, SqlError, SqlResult, SqlState};
use clearway_wire::{backend, copy, row};
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
}

/// What is to be done when the engine has done its part.
pub(super) enum Task {
    /// A statement.
    Statement(Run),
    /// The end of an implicit transaction.
    EndImplicit {
        /// By a commit.
        commit: bool,
    },
    /// A batch of COPY's rows.
    CopyRows,
    /// The end of a COPY.
    CopyEnd,
}

/// Rows on their way out.
pub(super) struct Emit {
    rows: RowBatch,
    /// Rows `start..end` go out now; those before `pos` have.
    start: usize,
    pos: usize,
    end: usize,
    plan: Arc<Plan>,
    env: Arc<Env>,
    formats: ResultFormats,
    tag: Tag,
    origin: Origin,
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
        match &run.plan.statement {
            Statement::Set { .. }
            | Statement::SetTransaction { session: true, .. }
            | Statement::Reset(_)
            | Statement::Show(_)
            | Statement::Prepare { .. }
            | Statement::Deallocate(_)
            | Statement::Empty => {
                let result = self.run_local(cx, &run);
                self.complete(cx, run, result);
            }
            Statement::Execute { .. } => self.run_execute(cx, run),
            Statement::Backup(_) if !self.control => {
                let e =
                    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "BACKUP is for the data directory's own socket")
                        .hint("Use `clearway backup`, or psql -h /absolute/path/of/the/directory -p 1.");
                self.complete(cx, run, Err(e));
            }
            Statement::Backup(b) if crate::backup::is_inside(&cx.shared.config.data, Path::new(&b.target)) => {
                let text = format!("\"{}\" is inside the data directory", b.target);
                self.complete(cx, run, Err(SqlError::new(SqlState::INVALID_PARAMETER, text)));
            }
            Statement::Copy(Copy { direction: CopyDirection::From { .. }, .. }) => self.start_copy_in(cx, run),
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
            // One that comes before its Sync has come looks the same as one of several: only what has been done counts.
            Origin::Portal { .. } => self.implicit_open,
        };
        several || self.status() != TxnStatus::Idle
    }

    pub(super) fn start_in_engine(&mut self, cx: &mut Context<'_>, run: Run) {
        let Some(client) = &mut self.client else { return };
        let options = RunOptions { implicit_block: run.implicit_block, characteristics: self.characteristics };
        self.implicit_open |= run.implicit_block;
        let step = client.start(cx.port, &run.plan, &run.env, options);
        self.after_statement_step(cx, run, step);
    }

    fn after_statement_step(&mut self, cx: &mut Context<'_>, mut run: Run, step: Step) {
        match step {
            Step::Pending => self.wait(cx, Task::Statement(run)),
            Step::Done(result) => {
                let result = self.answered(cx, result);
                self.complete(cx, run, result);
            }
            Step::Replan => {
                run.replans += 1;
                if run.replans > MAX_REPLANS {
                    let e =
                        SqlError::new(SqlState::SERIALIZATION_FAILURE, "the tables of this statement keep changing");
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
            // What can no longer be planned without its literals, because a table is gone say, is planned with them.
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
        // A wake-up may come late, when something else has begun.
        if !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        let Phase::Running { task } = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
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
            (Task::EndImplicit { .. }, Step::Replan) => self.implicit_ended(cx, false, Err(unplanned())),
            (Task::CopyRows | Task::CopyEnd, Step::Replan) => self.copy_ended(cx, Err(unplanned())),
        }
    }

    /// A statement is over: says so.
    pub(super) fn complete(&mut self, cx: &mut Context<'_>, run: Run, result: SqlResult<Outcome>) {
        let Run { plan, env, origin, began, .. } = run;
        self.statement_ended();
        self.warn_of_unknown();
        match result {
            Err(e) => {
                let notices = self.client.as_ref().map(Client::take_notices).unwrap_or_default();
                self.notices(&notices);
                self.settle_settings(false);
                if began && matches!(origin, Origin::Simple) {
                    self.leave_portal(plan, env);
                }
                self.fail(cx, &origin, &e);
            }
            Ok(outcome) => {
                self.notices(&outcome.notices);
                self.follow_savepoint(&plan.statement);
                if matches!(plan.statement, Statement::Commit | Statement::Rollback) {
                    self.drop_portals();
                }
                self.settle_settings(outcome.tag != Tag::Plain("ROLLBACK"));
                if let Statement::Noop(tag) = &plan.statement {
                    self.discard(tag);
                }
                self.deliver(cx, plan, env, origin, outcome);
            }
        }
    }

    /// A simple query has failed: in a block the unnamed portal, in which it ran, is there until the block ends.
    pub(super) fn leave_portal(&mut self, plan: Arc<Plan>, env: Arc<Env>) {
        let (formats, state) = (ResultFormats::All(row::Format::Text), PortalState::Done { tag: None });
        self.unnamed_portal = Some(Portal { statement: None, plan, env, formats, state });
    }

    /// Holds what follows until what the engine's answer shows is durable.
    #[track_caller]
    fn answered(&mut self, cx: &Context<'_>, result: Result<Outcome, Refusal>) -> SqlResult<Outcome> {
        self.hold(cx, result.as_ref().map_or_else(|refusal| refusal.wait, |outcome| outcome.wait));
        result.map_err(SqlError::from)
    }

    /// Holds what has not been released yet, and what follows, until the log is durable up to there.
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
            let severity = if matches!(&state.0, [b'2', b'5', ..] | [b'0', b'1', ..]) { "WARNING" } else { "NOTICE" };
            backend::notice(&mut self.io.out, severity, &SqlError::new(*state, text.as_str()));
        }
    }

    fn deliver(&mut self, cx: &mut Context<'_>, plan: Arc<Plan>, env: Arc<Env>, origin: Origin, outcome: Outcome) {
        let Outcome { rows, tag, .. } = outcome;
        let (formats, max_rows) = match &origin {
            Origin::Simple => (ResultFormats::All(row::Format::Text), 0),
            Origin::Portal { name, max_rows } => {
                let formats = self.portal(name.as_deref()).map(|p| p.formats.clone());
                (formats.unwrap_or(ResultFormats::All(row::Format::Text)), *max_rows as usize)
            }
        };
        if let Statement::Copy(copy) = &plan.statement {
            backend::copy_response(&mut self.io.out, false, copy.types.len());
            if copy.format.header {
                copy::header_line(&mut self.io.out, &copy.names, &copy.format);
            }
        } else if matches!(origin, Origin::Simple) && !plan.columns.is_empty() {
            row::row_description(&mut self.io.out, formats.apply(&plan.columns));
        }
        let end = if max_rows == 0 { rows.len() } else { rows.len().min(max_rows) };
        self.emit(cx, Emit { rows, start: 0, pos: 0, end, plan, env, formats, tag, origin });
    }

    /// Hands out the next part of a portal that has run.
    pub(super) fn emit_portal(&mut self, cx: &mut Context<'_>, name: Option<Box<str>>, max_rows: u32) {
        let Some(portal) = self.portal_mut(name.as_deref()) else { return };
        let (plan, env, formats) = (portal.plan.clone(), portal.env.clone(), portal.formats.clone());
        let state = std::mem::replace(&mut portal.state, PortalState::Done { tag: None });
        let (rows, pos, tag) = match state {
            PortalState::Rows { rows, pos, tag } => (rows, pos, tag),
            PortalState::Done { tag: Some(tag) } => (RowBatch::new(), 0, tag),
            _ => {
                let shown = name.as_deref().unwrap_or("");
                let e = SqlError::new(SqlState(*b"55000"), format!("portal \"{shown}\" cannot be run"));
                return self.fail(cx, &Origin::Portal { name, max_rows }, &e);
            }
        };
        let left = rows.len() - pos;
        let n = if max_rows == 0 { left } else { left.min(max_rows as usize) };
        let end = pos + n;
        self.emit(
            cx,
            Emit { rows, start: pos, pos, end, plan, env, formats, tag, origin: Origin::Portal { name, max_rows } },
        );
    }

    /// Writes rows until there are no more, or the buffer is full.
    pub(super) fn emit(&mut self, cx: &mut Context<'_>, mut emit: Emit) {
        let zone = emit.env.zone();
        let out = &mut self.io.out;
        let mut scratch = Vec::new();
        let limit = out.len() + crate::io::HIGH_WATER;
        while emit.pos < emit.end && out.len() < limit {
            let values = emit.rows.get(emit.pos);
            let written = match &emit.plan.statement {
                Statement::Copy(c) => copy::data_line(out, values, &c.types, &c.format, zone, &mut scratch),
                _ => row::data_row(out, values, emit.formats.apply(&emit.plan.columns).map(|(_, c)| c), zone),
            };
            if written.is_err() {
                let e = SqlError::new(SqlState::DATA_CORRUPTED, "a row read from a table is damaged");
                return self.fail(cx, &emit.origin, &e);
            }
            emit.pos += 1;
        }
        if emit.pos < emit.end {
            self.has_waited = true;
            self.phase = Phase::Emitting(Box::new(emit));
            return;
        }
        self.emitted(cx, emit);
    }

    fn emitted(&mut self, cx: &mut Context<'_>, emit: Emit) {
        let Emit { rows, start, pos, plan, mut tag, origin, .. } = emit;
        if matches!(plan.statement, Statement::Copy(_)) {
            backend::copy_done(&mut self.io.out);
        }
        let mut suspended = false;
        if let Origin::Portal { name, max_rows } = &origin {
            let n = pos - start;
            // Suspended also when the limit was reached exactly: whether there are more, only the next Execute says.
            suspended = *max_rows > 0 && n == *max_rows as usize && !plan.columns.is_empty();
            if !plan.columns.is_empty() {
                tag = tag.with_count(n as u64);
            }
            let again = (!plan.columns.is_empty() || matches!(plan.statement, Statement::Empty)).then_some(tag);
            if let Some(portal) = self.portal_mut(name.as_deref()) {
                portal.state =
                    if suspended { PortalState::Rows { rows, pos, tag } } else { PortalState::Done { tag: again } };
            }
        }
        if suspended {
            backend::portal_suspended(&mut self.io.out);
        } else if matches!(plan.statement, Statement::Empty) {
            backend::empty_query(&mut self.io.out);
        } else {
            command_complete(&mut self.io.out, tag);
        }
        self.phase = Phase::Idle;
        if matches!(origin, Origin::Simple) {
            self.after_simple(cx);
        }
    }

    /// An error of a statement, or before one: says so, and does what the protocol wants after it.
    pub(super) fn fail(&mut self, cx: &mut Context<'_>, origin: &Origin, error: &SqlError) {
        if error.state() == SqlState::ADMIN_SHUTDOWN {
            return self.fatal(cx, error);
        }
        self.say_error(cx, error);
        self.phase = Phase::Idle;
        match origin {
            Origin::Simple => {
                self.simple = None;
                self.end_implicit(cx, false);
            }
            Origin::Portal { .. } => {
                self.skip_to_sync = true;
                // A client that has sent Flush, and no Sync yet, waits for this error; the Flush itself is skipped.
                self.io.release();
            }
        }
    }

    fn say_error(&mut self, cx: &mut Context<'_>, error: &SqlError) {
        cx.counters().error(error.state());
        if let Some(client) = &mut self.client {
            let wait = client.fail(error);
            self.hold(cx, wait);
        }
        backend::error(&mut self.io.out, backend::Severity::Error, error);
    }

    /// An error after which nobody knows where the client's next message begins.
    pub(super) fn fail_and_end(&mut self, cx: &mut Context<'_>, error: &SqlError) {
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

fn command_complete(out: &mut Vec<u8>, tag: Tag) {
    match tag {
        Tag::Select(n) => backend::command_complete_count(out, "SELECT", n),
        Tag::Insert(n) => backend::command_complete_count(out, "INSERT 0", n),
        Tag::Update(n) => backend::command_complete_count(out, "UPDATE", n),
        Tag::Delete(n) => backend::command_complete_count(out, "DELETE", n),
        Tag::Copy(n) => backend::command_complete_count(out, "COPY", n),
        Tag::Plain(s) => backend::command_complete(out, s),
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
    matches!(statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_) | Statement::Empty)
}

/// What a failed block answers to everything but its end.
pub(super) fn failed_block() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

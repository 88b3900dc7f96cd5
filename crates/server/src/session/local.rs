//! Statements that concern only the session: SET, SHOW, PREPARE, EXECUTE, DEALLOCATE.

use super::prepared::{ResultColumns, check_columns};
use super::run::{Origin, Run};
use super::{Context, Session};
use crate::settings::SetScope;
use clearway_coordinator::{Outcome, RunOptions, Tag, TxnStatus};
use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_ir::{SessionEnv, Statement, cast};
use clearway_types::{DatumRef, Lsn, RowBatch, SqlError, SqlResult, SqlState, SqlType};
use clearway_wire::backend;
use std::rc::Rc;
use std::sync::Arc;

fn outcome(tag: Tag, rows: RowBatch) -> Outcome {
    Outcome { rows, tag, wait: Lsn(0), notices: Vec::new() }
}

impl Session {
    pub(super) fn run_local(&mut self, cx: &mut Context<'_>, run: &Run) -> SqlResult<Outcome> {
        let done = |word| Ok(outcome(Tag::Plain(word), RowBatch::new()));
        match &run.plan.statement {
            Statement::Set { name, value, local } => {
                let scope = if *local { SetScope::Transaction } else { SetScope::Session };
                self.set(name, value.as_deref(), scope, run.implicit_block)?;
                done("SET")
            }
            Statement::Reset(name) => {
                self.set(name, None, SetScope::Session, run.implicit_block)?;
                done("RESET")
            }
            Statement::SetTransaction { options, .. } => {
                self.set_characteristics(*options, run.implicit_block)
            }
            Statement::Show(name) => self.show(name),
            Statement::Prepare { name, plan } => {
                if self.statements.named.contains_key(name.as_str()) {
                    let text = format!("prepared statement \"{name}\" already exists");
                    return Err(SqlError::new(SqlState::DUPLICATE_STATEMENT, text));
                }
                self.hold_for_catalog(cx, plan);
                let outer = run
                    .statement
                    .as_ref()
                    .ok_or_else(|| SqlError::internal("PREPARE has no statement text"))?;
                let statement = Rc::new(outer.inner(plan.clone()));
                self.statements.named.insert(name.as_str().into(), statement);
                done("PREPARE")
            }
            Statement::Close(name) => done(self.close_cursor(name.as_deref(), &run.origin)?),
            Statement::Deallocate(None) => {
                self.statements.named.clear();
                done("DEALLOCATE ALL")
            }
            Statement::Deallocate(Some(name)) => {
                match self.statements.named.remove(name.as_str()) {
                    Some(_) => done("DEALLOCATE"),
                    None => {
                        let text = format!("prepared statement \"{name}\" does not exist");
                        Err(SqlError::new(SqlState::UNDEFINED_STATEMENT, text))
                    }
                }
            }
            _ => done(""),
        }
    }

    /// Executes EXECUTE: replaces the run's statement with the prepared one.
    pub(super) fn run_execute(&mut self, cx: &mut Context<'_>, mut run: Run) {
        match self.bind_execute(cx, &mut run) {
            Ok(()) => self.start(cx, run),
            Err(e) => self.complete(cx, run, Err(e)),
        }
    }

    fn bind_execute(&mut self, cx: &mut Context<'_>, run: &mut Run) -> SqlResult<()> {
        let Statement::Execute { name, args } = &run.plan.statement else { return Ok(()) };
        let statement = self.statement(name)?.clone();
        self.freshen(cx, &statement)?;
        let plan = statement.plan();
        if matches!(plan.statement, Statement::Execute { .. }) {
            return Err(SqlError::unsupported("EXECUTE of an EXECUTE"));
        }
        if matches!(run.origin, Origin::Portal { .. }) {
            // The name may belong to another statement since Bind.
            check_columns(&run.plan.columns, &self.with_columns(plan.clone()).columns)?;
        }
        if args.len() != plan.params.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!(
                "Expected {} parameters but got {}.",
                plan.params.len(),
                args.len()
            )));
        }
        let mut params = Vec::with_capacity(args.len());
        for (arg, ty) in args.iter().zip(&plan.params) {
            let at = |e: SqlError| if let Some(at) = arg.position { e.at(at) } else { e };
            if arg.ty != SqlType::Unknown && !clearway_planner::is_assignable(arg.ty, *ty) {
                let text = format!(
                    "parameter ${} of type {} cannot be coerced to the expected type {ty}",
                    params.len() + 1,
                    arg.ty
                );
                let error = SqlError::new(SqlState::DATATYPE_MISMATCH, text);
                return Err(at(error.hint("You will need to rewrite or cast the expression.")));
            }
            let value = arg.expr.eval_const(&run.env)?;
            let value = cast::cast(value.as_ref(), *ty, false, run.env.zone());
            params.push(if arg.ty == SqlType::Unknown { value.map_err(at)? } else { value? });
        }
        run.env = Arc::new(self.make_env(run.env.text.clone(), params));
        run.statement = Some(statement);
        run.columns = ResultColumns::Fixed;
        run.plan = plan;
        Ok(())
    }

    fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        scope: SetScope,
        implicit_block: bool,
    ) -> SqlResult<()> {
        let in_block = implicit_block || self.status() == TxnStatus::InBlock;
        if scope == SetScope::Transaction && !in_block {
            let text = "SET LOCAL can only be used in transaction blocks".to_owned();
            self.notices(&[(SqlState::NO_ACTIVE_TRANSACTION, text)]);
            // Only checks: the setting would not outlive the statement.
            return self.config.settings.check(name, value).map(drop);
        }
        if in_block {
            self.enter(implicit_block);
            self.config.settings.enter_txn();
        }
        if let Some(options) = self.config.settings.characteristic(name, value)? {
            self.client.as_mut().map_or(Ok(()), |client| client.set_characteristics(options))?;
        } else if name == "all" && value.is_none() {
            self.config.settings.reset_all();
        } else {
            self.config.settings.set(name, value, scope)?;
        }
        self.report_settings();
        Ok(())
    }

    /// Adds a statement that the session runs itself to the implicit transaction, which keeps the
    /// characteristics it began with.
    fn enter(&mut self, implicit_block: bool) {
        self.exchange.implicit_open |= implicit_block;
        let options = RunOptions { implicit_block, characteristics: self.config.characteristics };
        if let Some(client) = self.client.as_mut().filter(|_| implicit_block) {
            client.enter(options);
        }
    }

    /// Executes SET SESSION CHARACTERISTICS: sets the defaults of later transactions.
    fn set_characteristics(
        &mut self,
        options: TxnOptions,
        implicit_block: bool,
    ) -> SqlResult<Outcome> {
        let switch = |on| if on { "on" } else { "off" };
        for (name, value) in [
            ("default_transaction_isolation", options.isolation.map(Isolation::name)),
            ("default_transaction_read_only", options.read_only.map(switch)),
            ("default_transaction_deferrable", options.deferrable.map(switch)),
        ] {
            if value.is_some() {
                self.set(name, value, SetScope::Session, implicit_block)?;
            }
        }
        Ok(outcome(Tag::Plain("SET"), RowBatch::new()))
    }

    /// Copies the transaction's characteristics to the settings that show them.
    pub(super) fn follow_transaction(&mut self) {
        let default = self.config.characteristics;
        let now = self.client.as_ref().map_or(default, |client| client.characteristics(default));
        if std::mem::replace(&mut self.config.shown_characteristics, now) != now {
            self.config.settings.put_characteristics(now);
            self.settings_changed();
        }
    }

    fn show(&mut self, name: &str) -> SqlResult<Outcome> {
        self.follow_transaction();
        let mut rows = RowBatch::new();
        if name == "all" {
            for (name, value) in self.config.settings.all() {
                rows.push_with(|r| {
                    [name.as_str(), value, ""].iter().for_each(|s| r.push(DatumRef::Text(s)))
                });
            }
        } else {
            let value = self.config.settings.get(name)?;
            rows.push_with(|r| r.push(DatumRef::Text(value)));
        }
        Ok(outcome(Tag::Plain("SHOW"), rows))
    }

    /// Executes DISCARD ALL or a part of it, after the engine has accepted it.
    pub(super) fn discard(&mut self, tag: &str) {
        if tag == "DISCARD ALL" {
            self.statements.named.clear();
            self.portals.named.clear();
            self.config.settings.reset_all();
            self.report_settings();
        }
    }

    /// Applies a savepoint statement to the settings and portals.
    pub(super) fn follow_savepoint(&mut self, statement: &Statement) {
        if let Statement::Release(name) = statement {
            self.release_portals(name);
        }
        let changed = match statement {
            Statement::Savepoint(name) => {
                self.config.settings.savepoint(name);
                false
            }
            Statement::Release(name) => {
                self.config.settings.release(name);
                false
            }
            Statement::RollbackTo(name) => self.config.settings.rollback_to(name),
            _ => false,
        };
        if changed {
            self.report_settings();
        }
    }

    /// Restores settings if a transaction has ended without COMMIT or ROLLBACK.
    pub(super) fn settle_settings(&mut self, committed: bool) {
        if !self.exchange.implicit_open && self.status() == TxnStatus::Idle {
            self.end_settings(committed);
        }
    }

    /// Restores settings at the end of a transaction: its SET LOCALs, and if it was aborted all of
    /// its SETs.
    pub(super) fn end_settings(&mut self, committed: bool) {
        if self.config.settings.end_txn(committed) {
            self.report_settings();
        }
    }

    /// Reports changed settings to the client, and rebuilds the session's part of the expression
    /// environment.
    fn report_settings(&mut self) {
        for (name, value) in self.config.settings.reported() {
            let known =
                self.config.env.settings.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
            if known != Some(value) {
                backend::parameter_status(&mut self.io.out, name, value);
            }
        }
        self.settings_changed();
    }

    /// Applies the settings to the session.
    pub(super) fn settings_changed(&mut self) {
        self.config.synchronous_commit = self.config.settings.synchronous_commit();
        self.config.characteristics = self.config.settings.default_characteristics();
        self.deadlines.follow(&self.config.settings);
        let env = self.config.settings.env(&self.login.user, &self.login.database, self.login.pid);
        self.config.env = Arc::new(SessionEnv { backends: Some(self.signals.clone()), ..env });
    }
}

//! The extended query protocol: Parse, Bind, Describe, Execute, Close.

use super::prepared::{Portal, PortalState, Prepared, ResultColumns, ResultFormats};
use super::run::{Origin, Run, ends_failed_block, failed_block};
use super::{Context, Session};
use clearway_coordinator::TxnStatus;
use clearway_ir::{OutColumn, Plan, Signal, Statement, StatementText, Zone};
use clearway_types::{Datum, SqlError, SqlResult, SqlState};
use clearway_wire::backend;
use clearway_wire::frontend::{Bind, Formats, Frontend, Oids};
use clearway_wire::row::{self, Format};
use std::rc::Rc;
use std::sync::Arc;

fn no_statement(name: &str) -> SqlError {
    let text = if name.is_empty() {
        "unnamed prepared statement does not exist".to_owned()
    } else {
        format!("prepared statement \"{name}\" does not exist")
    };
    SqlError::new(SqlState::UNDEFINED_STATEMENT, text)
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_CURSOR, format!("portal \"{name}\" does not exist"))
}

impl Session {
    /// Handles the messages of the extended protocol except Execute, Sync and Flush.
    pub(super) fn extended(
        &mut self,
        cx: &mut Context<'_>,
        message: Frontend<'_>,
    ) -> SqlResult<()> {
        match message {
            Frontend::Parse { name, sql, types } => self.parse(cx, name, sql, types),
            Frontend::Bind(bind) => self.bind(cx, bind),
            Frontend::DescribeStatement(name) => self.describe_statement(cx, name),
            Frontend::DescribePortal(name) => self.describe_portal(name),
            Frontend::CloseStatement(name) => {
                if name.is_empty() {
                    self.statements.unnamed = None;
                } else {
                    self.statements.named.remove(name);
                }
                backend::close_complete(&mut self.io.out);
                Ok(())
            }
            Frontend::ClosePortal(name) => {
                if name.is_empty() {
                    self.portals.unnamed = None;
                } else {
                    self.portals.named.remove(name);
                }
                backend::close_complete(&mut self.io.out);
                Ok(())
            }
            _ => Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "unexpected message")),
        }
    }

    fn parse(
        &mut self,
        cx: &mut Context<'_>,
        name: &str,
        sql: &str,
        types: Oids<'_>,
    ) -> SqlResult<()> {
        if name.is_empty() {
            // Even if this Parse fails.
            self.statements.unnamed = None;
        }
        let catalog = self.catalog(cx);
        let statement = cx.plans.prepared(sql, types, &catalog, &self.config.env);
        let statement = match statement {
            Err(e) if self.status() == TxnStatus::Failed && e.state() != SqlState::SYNTAX => {
                return Err(failed_block());
            }
            other => other?,
        };
        self.notices(statement.notices());
        self.refuse_in_failed_block(&statement.plan())?;
        if !name.is_empty() && self.statements.named.contains_key(name) {
            let text = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_STATEMENT, text));
        }
        self.hold_for_catalog(cx, &statement.plan());
        if name.is_empty() {
            self.statements.unnamed = Some(statement);
        } else {
            self.statements.named.insert(name.into(), statement);
        }
        backend::parse_complete(&mut self.io.out);
        Ok(())
    }

    pub(super) fn statement(&self, name: &str) -> SqlResult<&Rc<Prepared>> {
        let found = if name.is_empty() {
            self.statements.unnamed.as_ref()
        } else {
            self.statements.named.get(name)
        };
        found.ok_or_else(|| no_statement(name))
    }

    fn refuse_in_failed_block(&self, plan: &Plan) -> SqlResult<()> {
        if self.status() == TxnStatus::Failed && !ends_failed_block(&plan.statement) {
            return Err(failed_block());
        }
        Ok(())
    }

    /// Refuses to describe a statement with columns in a failed block.
    fn refuse_rows_in_failed_block(&self, columns: &[OutColumn]) -> SqlResult<()> {
        if self.status() == TxnStatus::Failed && !columns.is_empty() {
            Err(failed_block())
        } else {
            Ok(())
        }
    }

    /// Checks in PostgreSQL's order: the first failed check determines the error.
    fn bind(&mut self, cx: &mut Context<'_>, mut bind: Bind<'_>) -> SqlResult<()> {
        let statement = self.statement(bind.statement)?.clone();
        let (formats, count) = (bind.formats()?, bind.count()?);
        if formats.len() > 1 && formats.len() != count {
            let text = format!(
                "bind message has {} parameter formats but {count} parameters",
                formats.len()
            );
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, text));
        }
        self.freshen(cx, &statement)?;
        let plan = statement.plan();
        if count != plan.params.len() {
            return Err(SqlError::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {count} parameters, but prepared statement \"{}\" requires {}",
                    bind.statement,
                    plan.params.len()
                ),
            ));
        }
        if self.status() == TxnStatus::Failed && matches!(plan.statement, Statement::Empty) {
            // As in PostgreSQL, although Parse and Execute allow it.
            return Err(failed_block());
        }
        self.refuse_in_failed_block(&plan)?;
        let plan = self.with_columns(plan);
        if self.portals.named.contains_key(bind.portal) {
            let text = format!("cursor \"{}\" already exists", bind.portal);
            return Err(SqlError::new(SqlState(*b"42P03"), text));
        }
        let name = bind.portal;
        // Nothing else uses the environment of a portal that has run: its memory is reused.
        let old = self.portals.unnamed.take_if(|_| name.is_empty());
        let mut env = old.map(|portal| portal.env).unwrap_or_default();
        let mut reused = Arc::get_mut(&mut env);
        let mut params =
            reused.as_mut().map(|env| std::mem::take(&mut env.params)).unwrap_or_default();
        let codes = values(bind, formats, &plan, &self.config.env.zone, &mut params);
        let state = if codes.is_ok() { PortalState::New } else { PortalState::Undefined };
        let new = self.make_env(StatementText::Parsed(statement.text().clone()), params);
        match reused {
            Some(place) => *place = new,
            None => env = Arc::new(new),
        }
        let formats = codes.and_then(|codes| ResultFormats::new(codes, plan.columns.len()));
        let (formats, result) = match formats {
            Ok(formats) => (formats, Ok(())),
            Err(e) => (ResultFormats::All(Format::Text), Err(e)),
        };
        let depth = self.config.settings.savepoints();
        let portal =
            Portal { statement: Some(statement), plan, env, formats, state, depth, declared: None };
        // Even if Bind fails: in a block the portal exists until the block ends.
        if name.is_empty() {
            self.portals.unnamed = Some(portal);
        } else {
            self.portals.named.insert(name.into(), portal);
        }
        result?;
        backend::bind_complete(&mut self.io.out);
        Ok(())
    }

    fn describe_statement(&mut self, cx: &mut Context<'_>, name: &str) -> SqlResult<()> {
        let statement = self.statement(name)?.clone();
        self.freshen(cx, &statement)?;
        let plan = self.with_columns(statement.plan());
        self.refuse_rows_in_failed_block(&plan.columns)?;
        self.hold_for_catalog(cx, &plan);
        let out = &mut self.io.out;
        backend::parameter_description(out, plan.params.iter().map(|ty| ty.oid()));
        if plan.columns.is_empty() {
            backend::no_data(out);
        } else {
            row::row_description(out, ResultFormats::All(Format::Text).apply(&plan.columns));
        }
        Ok(())
    }

    fn describe_portal(&mut self, name: &str) -> SqlResult<()> {
        let portal = if name.is_empty() {
            self.portals.unnamed.as_ref()
        } else {
            self.portals.named.get(name)
        };
        let portal = portal.ok_or_else(|| no_portal(name))?;
        self.refuse_rows_in_failed_block(portal.columns())?;
        let out = &mut self.io.out;
        if portal.columns().is_empty() {
            backend::no_data(out);
        } else {
            row::row_description(out, portal.formats.apply(portal.columns()));
        }
        Ok(())
    }

    /// Handles Execute. `implicit_block` means that the coming Sync commits it, not the Execute
    /// itself.
    pub(super) fn execute(
        &mut self,
        cx: &mut Context<'_>,
        name: &str,
        max_rows: u32,
        implicit_block: bool,
    ) {
        let key: Option<Box<str>> = (!name.is_empty()).then(|| name.into());
        if std::mem::take(&mut self.exchange.cancelled) {
            let origin = Origin::Portal { name: key, max_rows };
            return self.fail(cx, &origin, &Signal::Cancel.error());
        }
        let Some(portal) = self.portals.get_mut(key.as_deref()) else {
            return self.fail(cx, &Origin::Portal { name: key, max_rows }, &no_portal(name));
        };
        if !matches!(portal.state, PortalState::New) {
            let refused = !ends_failed_block(&portal.plan.statement);
            if refused && self.status() == TxnStatus::Failed {
                return self.fail(cx, &Origin::Portal { name: key, max_rows }, &failed_block());
            }
            return self.emit_portal(cx, key, max_rows);
        }
        portal.state = PortalState::Done { tag: None };
        let run = Run {
            statement: portal.statement.clone(),
            plan: portal.plan.clone(),
            env: portal.env.clone(),
            origin: Origin::Portal { name: key, max_rows },
            columns: ResultColumns::Fixed,
            implicit_block,
            replans: 0,
            began: false,
            header_sent: false,
            sent: 0,
            cursor: None,
            binary: false,
        };
        self.start(cx, run);
    }
}

/// Decodes the parameters into `params`. Returns the formats of the result's columns.
pub(super) fn values<'a>(
    mut bind: Bind<'a>,
    formats: Formats<'_>,
    plan: &Plan,
    zone: &Zone,
    params: &mut Vec<Datum>,
) -> SqlResult<Formats<'a>> {
    params.clear();
    params.reserve(plan.params.len());
    for (i, ty) in plan.params.iter().enumerate() {
        let mut is_text = false;
        let value = bind.value().and_then(|bytes| {
            let format = formats.get(i)?;
            is_text = format == Format::Text;
            row::parameter(*ty, format, bytes, zone, i + 1)
        });
        params.push(value.map_err(|e| in_parameter(bind.portal, i + 1, is_text, e))?);
    }
    let results = bind.formats()?;
    bind.end()?;
    Ok(results)
}

/// Adds the parameter to an error's context. PostgreSQL hides the value, once it has one.
fn in_parameter(portal: &str, number: usize, is_text: bool, error: SqlError) -> SqlError {
    let portal = if portal.is_empty() {
        "unnamed portal".to_owned()
    } else {
        format!("portal \"{portal}\"")
    };
    let value =
        if is_text && error.state() != SqlState::NOT_IN_REPERTOIRE { " = '...'" } else { "" };
    error.context(format!("{portal} parameter ${number}{value}"))
}

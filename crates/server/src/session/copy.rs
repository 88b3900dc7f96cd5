//! COPY FROM STDIN: decodes data and passes rows to the engine in batches.

use super::run::{Origin, Run, Task};
use super::{Context, Phase, Session};
use clearway_coordinator::{Outcome, Step, Tag};
use clearway_ir::statement::{Copy, CopyDirection};
use clearway_ir::{Env, Expr, Plan, Statement};
use clearway_types::{RowBatch, RowView, SqlError, SqlResult, SqlState};
use clearway_wire::backend;
use clearway_wire::copy_read::CopyReader;
use clearway_wire::frontend::Frontend;
use std::sync::Arc;

/// Rows per batch.
const BATCH_ROWS: usize = 1000;
/// Bytes after which a batch ends early.
const BATCH_BYTES: usize = 512 << 10;

/// A COPY FROM STDIN in progress.
pub(super) struct CopyIn {
    reader: CopyReader,
    incoming: RowBatch,
    plan: Arc<Plan>,
    env: Arc<Env>,
    origin: Origin,
    /// The client has sent all of the data.
    all: bool,
    /// The client sent an unexpected message, so the start of its next message is unknown.
    lost_sync: bool,
}

/// Returns true for message types that are allowed while COPY waits for data. After any other type
/// PostgreSQL stops reading and ends the session.
pub(super) fn is_expected(tag: u8) -> bool {
    matches!(tag, b'd' | b'c' | b'f' | b'H' | b'S')
}

/// Returns true for a COPY FROM STDIN.
fn copies_in(plan: &Plan) -> bool {
    let Statement::Copy(copy) = &plan.statement else { return false };
    matches!(copy.direction, CopyDirection::From { .. })
}

impl Run {
    /// Returns true for a COPY FROM STDIN.
    pub(super) fn copies_in(&self) -> bool {
        copies_in(&self.plan)
    }
}

impl Session {
    /// Returns true if the portal runs a COPY FROM STDIN, itself or by EXECUTE.
    pub(super) fn is_copy_in(&self, portal: &str) -> bool {
        let portal = self.portals.get((!portal.is_empty()).then_some(portal));
        portal.is_some_and(|portal| match &portal.plan.statement {
            Statement::Execute { name, .. } => {
                self.statement(name).is_ok_and(|statement| copies_in(&statement.plan()))
            }
            _ => copies_in(&portal.plan),
        })
    }

    /// Requests the data of a COPY that the engine has started.
    pub(super) fn start_copy_in(&mut self, cx: &mut Context<'_>, run: Run) {
        let plan = run.plan.clone();
        let Statement::Copy(copy) = &plan.statement else { return };
        let CopyDirection::From { table, program, .. } = &copy.direction else { return };
        let Some(client) = &mut self.client else { return };
        client.copy_in_start(table, program, &run.env);
        let reader =
            CopyReader::new(copy.format.clone(), copy.types.clone(), self.config.env.zone.clone())
                .of(&table.name, &copy.names);
        self.hold_for_catalog(cx, &plan);
        let Run { env, origin, plan, .. } = run;
        backend::copy_response(&mut self.io.out, true, copy.types.len());
        self.exchange.copy = Some(CopyIn {
            reader,
            incoming: RowBatch::new(),
            plan,
            env,
            origin,
            all: false,
            lost_sync: false,
        });
        self.io.release();
        self.limit_wait(cx);
        self.phase = Phase::CopyIn;
    }

    pub(super) fn copy_message(&mut self, cx: &mut Context<'_>, message: Frontend<'_>) {
        let Some(copy) = &mut self.exchange.copy else { return };
        match message {
            Frontend::CopyData(data) => {
                copy.reader.feed(data);
                self.continue_copy(cx);
            }
            Frontend::CopyDone => {
                copy.all = true;
                self.continue_copy(cx);
            }
            Frontend::CopyFail(why) => {
                let text = format!("COPY from stdin failed: {why}");
                self.fail_copy(cx, SqlError::new(SqlState::QUERY_CANCELED, text));
            }
            // Sync and Flush, sent before the client learnt that it has started a COPY.
            _ => {}
        }
    }

    /// Fails the COPY: the client sent a message that is not allowed here.
    pub(super) fn unexpected_in_copy(&mut self, cx: &mut Context<'_>, tag: u8) {
        let text = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
        self.fail_copy_out_of_sync(cx, SqlError::new(SqlState::PROTOCOL_VIOLATION, text));
    }

    /// Fails the COPY: the stream ended before the data did.
    pub(super) fn end_of_input_in_copy(&mut self, cx: &mut Context<'_>) {
        let text = "unexpected EOF on client connection with an open transaction";
        self.fail_copy_out_of_sync(cx, SqlError::new(SqlState::CONNECTION_FAILURE, text));
    }

    fn fail_copy_out_of_sync(&mut self, cx: &mut Context<'_>, error: SqlError) {
        if let Some(copy) = &mut self.exchange.copy {
            copy.lost_sync = true;
        }
        self.fail_copy(cx, error);
    }

    /// Decodes the received data and passes it to the engine batch by batch.
    fn continue_copy(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::CopyIn;
        loop {
            let rows = match self.next_batch() {
                Ok(Some(rows)) => rows,
                Ok(None) if self.exchange.copy.as_ref().is_some_and(|c| c.all) => {
                    return self.end_copy(cx, None);
                }
                Ok(None) => return,
                Err(e) => return self.abort_copy(cx, e),
            };
            let Some(client) = &mut self.client else { return };
            match client.copy_in_rows(rows) {
                Step::Done(Ok(_)) => {}
                step => return self.after_step(cx, Task::CopyRows, step),
            }
        }
    }

    /// Returns a batch of rows for the table if it is full or the data has ended.
    fn next_batch(&mut self) -> SqlResult<Option<RowBatch>> {
        let Some(copy) = &mut self.exchange.copy else { return Ok(None) };
        let room = BATCH_ROWS.saturating_sub(copy.incoming.len());
        copy.reader.rows(copy.all, room, &mut copy.incoming)?;
        let full = copy.incoming.len() >= BATCH_ROWS || copy.incoming.size() >= BATCH_BYTES;
        if !full && (!copy.all || copy.incoming.is_empty()) {
            return Ok(None);
        }
        let incoming = std::mem::take(&mut copy.incoming);
        table_rows(&copy.plan, incoming, &copy.env).map(Some)
    }

    pub(super) fn copy_rows_done(&mut self, cx: &mut Context<'_>, result: SqlResult<Outcome>) {
        match result {
            Err(e) => self.abort_copy(cx, e),
            Ok(_) => self.continue_copy(cx),
        }
    }

    /// Fails the COPY with an error that is not about its data.
    pub(super) fn fail_copy(&mut self, cx: &mut Context<'_>, error: SqlError) {
        let Some(copy) = &self.exchange.copy else { return };
        let error = copy.reader.in_next_line(error);
        self.abort_copy(cx, error);
    }

    /// Ends the COPY with an error.
    fn abort_copy(&mut self, cx: &mut Context<'_>, error: SqlError) {
        self.end_copy(cx, Some(error));
    }

    fn end_copy(&mut self, cx: &mut Context<'_>, abort: Option<SqlError>) {
        let Some(client) = &mut self.client else { return };
        let step = client.copy_in_end(abort);
        self.after_step(cx, Task::CopyEnd, step);
    }

    pub(super) fn copy_ended(&mut self, cx: &mut Context<'_>, result: SqlResult<Outcome>) {
        let Some(copy) = self.exchange.copy.take() else { return };
        self.statement_ended(cx);
        self.phase = Phase::Idle;
        match result {
            Err(e) => {
                self.settle_settings(false);
                if matches!(copy.origin, Origin::Simple) {
                    self.leave_portal(copy.plan.clone(), copy.env.clone());
                }
                if copy.lost_sync {
                    return self.fail_and_end(cx, &e);
                }
                self.fail(cx, &copy.origin, &e);
            }
            Ok(outcome) => {
                self.notices(&outcome.notices);
                self.settle_settings(true);
                let n = if let Tag::Copy(n) = outcome.tag { n } else { 0 };
                backend::command_complete_count(&mut self.io.out, "COPY", n);
                if matches!(copy.origin, Origin::Simple) {
                    self.after_simple(cx);
                }
            }
        }
    }
}

/// Converts decoded values to rows of the table.
fn table_rows(plan: &Plan, incoming: RowBatch, env: &Env) -> SqlResult<RowBatch> {
    let Statement::Copy(Copy { direction: CopyDirection::From { row, .. }, types, .. }) =
        &plan.statement
    else {
        return Err(SqlError::internal("COPY TO has no input"));
    };
    let same =
        row.len() == types.len() && row.iter().enumerate().all(|(i, e)| *e == Expr::Column(i));
    if same {
        return Ok(incoming);
    }
    let mut rows = RowBatch::new();
    for values in incoming.iter() {
        push_row(&mut rows, values, row, env)?;
    }
    Ok(rows)
}

fn push_row(rows: &mut RowBatch, values: RowView<'_>, row: &[Expr], env: &Env) -> SqlResult<()> {
    rows.try_push_with(|out| {
        for expr in row {
            out.push(expr.eval_ref(values, env)?.as_ref());
        }
        Ok(())
    })
}

//! Sends rows to the client, as fast as the client takes them.
//!
//! Invariants
//! 1. Rows are encoded until the connection's buffer is full ([`crate::io::HIGH_WATER`]), and again
//!    when the client has taken some of it.
//! 2. The engine is asked for the next part of a large result when the previous part is completely
//!    encoded and the buffer is not full. So a slow client costs the buffer and one part.
//! 3. A portal that reaches its row limit keeps the rest of the part and the suspended statement
//!    ([`Rest::Suspended`]).
//! 4. A statement can be cancelled, and its timeout counts, until its last row is encoded.
//!    Exception: a change that has committed without waiting for the client to take its rows.
//!
//! Locking: none. A crash leaves nothing.

use super::prepared::{PortalState, Rest, ResultColumns, ResultFormats};
use super::run::{Origin, Run, Task};
use super::{Context, Phase, Session};
use clearway_coordinator::{Outcome, Part, Suspended, Tag, TxnStatus};
use clearway_ir::Statement;
use clearway_types::{RowBatch, SqlError, SqlState};
use clearway_wire::{backend, copy, row};

/// What follows a part of a result.
pub(super) enum Next {
    /// More rows of the running statement.
    GoOn,
    /// More rows of a suspended statement.
    WakeUp(Suspended),
    /// Nothing: this was the last part.
    End(Tag),
}

/// A part of a result that is being sent.
pub(super) struct Emit {
    run: Run,
    rows: RowBatch,
    /// Rows before this index have been sent.
    pos: usize,
    /// Rows before this index are to be sent now.
    end: usize,
    formats: ResultFormats,
    next: Next,
}

impl Emit {
    /// Returns true if the statement is still running and waits for the client to take its rows.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.next, Next::GoOn)
    }
}

impl Session {
    /// Sends the last part of a result.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, run: Run, outcome: Outcome) {
        if outcome.rows.is_empty() && run.returns_nothing() {
            self.statement_ended(cx);
            return self.ended(cx, &run, outcome.tag);
        }
        let emit = self.prepare(run, outcome.rows, 0, Next::End(outcome.tag));
        self.emit(cx, emit);
    }

    /// Queues a part of a result whose statement continues. It is sent by the session's main loop,
    /// because the parts of a result must not nest recursively.
    pub(super) fn deliver_part(&mut self, cx: &mut Context<'_>, run: Run, part: Part) {
        self.hold(cx, part.wait);
        self.limit_wait(cx);
        let emit = self.prepare(run, part.rows, 0, Next::GoOn);
        self.phase = Phase::Emitting(Box::new(emit));
    }

    /// Sends the next rows of a portal that has run. Rows before `pos` have been sent.
    pub(super) fn hand_out(
        &mut self,
        cx: &mut Context<'_>,
        run: Run,
        rows: RowBatch,
        pos: usize,
        rest: Rest,
    ) {
        let next = match rest {
            Rest::End(tag) => Next::End(tag),
            Rest::Suspended(suspended) => Next::WakeUp(suspended),
        };
        let emit = self.prepare(run, rows, pos, next);
        self.emit(cx, emit);
    }

    fn prepare(&mut self, mut run: Run, rows: RowBatch, pos: usize, next: Next) -> Emit {
        let formats = match &run.origin {
            Origin::Simple if run.binary => ResultFormats::All(row::Format::Binary),
            Origin::Simple => ResultFormats::All(row::Format::Text),
            Origin::Portal { name, .. } => {
                let formats = self.portals.get(name.as_deref()).map(|p| p.formats.clone());
                formats.unwrap_or(ResultFormats::All(row::Format::Text))
            }
        };
        if !std::mem::replace(&mut run.header_sent, true) {
            self.head(&run, &formats);
        }
        let (pos, end) = run.window(rows.len(), pos);
        Emit { run, rows, pos, end, formats, next }
    }

    /// Encodes what precedes the first row.
    fn head(&mut self, run: &Run, formats: &ResultFormats) {
        if let Statement::Copy(copy) = &run.plan.statement {
            backend::copy_response(&mut self.io.out, false, copy.types.len());
            if copy.format.header {
                copy::header_line(&mut self.io.out, &copy.names, &copy.format);
            }
        } else if matches!(run.origin, Origin::Simple) && run.shows_rows() {
            row::row_description(&mut self.io.out, formats.apply(&run.plan.columns));
        }
    }

    /// Sends the next rows of a portal that has run.
    pub(super) fn emit_portal(
        &mut self,
        cx: &mut Context<'_>,
        name: Option<Box<str>>,
        max_rows: u32,
    ) {
        let Some(portal) = self.portals.get_mut(name.as_deref()) else { return };
        let (plan, env, statement) =
            (portal.plan.clone(), portal.env.clone(), portal.statement.clone());
        let state = std::mem::replace(&mut portal.state, PortalState::Done { tag: None });
        let (rows, pos, rest) = match state {
            PortalState::Rows { rows, pos, rest } => (rows, pos, rest),
            PortalState::Done { tag: Some(tag) } => (RowBatch::new(), 0, Rest::End(tag)),
            _ => {
                let shown = name.as_deref().unwrap_or("");
                let e =
                    SqlError::new(SqlState(*b"55000"), format!("portal \"{shown}\" cannot be run"));
                return self.fail(cx, &Origin::Portal { name, max_rows }, &e);
            }
        };
        self.statement_begins(cx);
        let run = Run {
            statement,
            plan,
            env,
            origin: Origin::Portal { name, max_rows },
            columns: ResultColumns::Fixed,
            implicit_block: self.exchange.implicit_open,
            replans: 0,
            began: true,
            header_sent: true,
            sent: 0,
            cursor: None,
            binary: false,
        };
        self.hand_out(cx, run, rows, pos, rest);
    }

    /// Encodes rows until there are no more or the buffer is full.
    pub(super) fn emit(&mut self, cx: &mut Context<'_>, mut emit: Emit) {
        let taken = emit.run.takes(&emit.rows, emit.pos..emit.end);
        let mut pos = match taken {
            Ok(true) => emit.end,
            Ok(false) => emit.pos,
            Err(e) => return self.abort_emit(cx, emit, e),
        };
        let Emit { run, rows, formats, .. } = &emit;
        let (plan, zone) = (&*run.plan, run.env.zone());
        let out = &mut self.io.out;
        let mut scratch = Vec::new();
        let limit = out.len() + crate::io::HIGH_WATER;
        while pos < emit.end && out.len() < limit {
            let values = rows.get(pos);
            let written = match &plan.statement {
                Statement::Copy(c) => {
                    copy::data_line(out, values, &c.types, &c.format, zone, &mut scratch)
                }
                _ => row::data_row(out, values, formats.apply(&plan.columns).map(|(_, c)| c), zone),
            };
            if written.is_err() {
                let e =
                    SqlError::new(SqlState::DATA_CORRUPTED, "a row read from a table is corrupt");
                return self.abort_emit(cx, emit, e);
            }
            pos += 1;
        }
        emit.run.sent += pos - emit.pos;
        emit.pos = pos;
        let out_of_room = out.len() >= limit && emit.is_running();
        if emit.pos < emit.end || out_of_room {
            self.limit_wait(cx);
            self.phase = Phase::Emitting(Box::new(emit));
            return;
        }
        self.emitted(cx, emit);
    }

    /// Returns true if the statement is a change that has committed: it must not be reported as
    /// failed.
    pub(super) fn has_committed(&self, emit: &Emit) -> bool {
        let changes =
            matches!(emit.run.plan.statement, Statement::Insert(_) | Statement::Modify { .. });
        let in_transaction = self.exchange.implicit_open || self.status() != TxnStatus::Idle;
        changes && !in_transaction && !emit.is_running()
    }

    /// Ends a statement with an error while its rows are being sent.
    pub(super) fn abort_emit(&mut self, cx: &mut Context<'_>, emit: Emit, error: SqlError) {
        if !emit.is_running() {
            self.statement_ended(cx);
            return self.fail(cx, &emit.run.origin, &error);
        }
        let Some(client) = &mut self.client else { return };
        client.cancel(&error);
        let step = client.resume();
        self.after_step(cx, Task::Statement(emit.run), step);
    }

    /// Continues after all rows of this window have been encoded.
    fn emitted(&mut self, cx: &mut Context<'_>, emit: Emit) {
        let Emit { run, rows, pos, next, .. } = emit;
        let is_full = run.is_full();
        let ends = is_full || matches!(next, Next::End(_));
        if ends && !run.keeps_rows() {
            self.statement_ended(cx);
        }
        let Some(client) = &mut self.client else { return };
        match next {
            // Suspended also if the limit was reached exactly: only the next Execute finds out
            // whether there are more rows.
            Next::End(tag) if is_full || run.fetches() => {
                self.keep_rest(cx, run, rows, pos, Rest::End(tag), !is_full);
            }
            Next::WakeUp(suspended) if is_full => {
                self.keep_rest(cx, run, rows, pos, Rest::Suspended(suspended), false)
            }
            Next::GoOn if is_full => {
                let Some(suspended) = client.suspend() else { return };
                // The coming Sync ends its transaction.
                self.exchange.implicit_open |= self.status() == TxnStatus::Idle;
                self.keep_rest(cx, run, rows, pos, Rest::Suspended(suspended), false);
            }
            Next::GoOn => {
                let step = client.resume();
                self.after_step(cx, Task::Statement(run), step);
            }
            Next::WakeUp(suspended) => {
                let step = client.resume_suspended(suspended);
                self.after_step(cx, Task::Statement(run), step);
            }
            Next::End(tag) => self.ended(cx, &run, tag),
        }
    }

    /// Keeps unsent rows for the next Execute or FETCH. `at_end` means that there are none and this
    /// one asked for more.
    fn keep_rest(
        &mut self,
        cx: &mut Context<'_>,
        run: Run,
        rows: RowBatch,
        pos: usize,
        rest: Rest,
        at_end: bool,
    ) {
        let last =
            pos.checked_sub(1).filter(|_| run.fetches()).map(|last| rows.get(last).bytes().into());
        let state = PortalState::Rows { rows, pos, rest };
        if run.fetches() {
            return self.fetched(cx, run, state, last, at_end);
        }
        self.suspend(&run, state);
        if let Origin::Portal { name, .. } = &run.origin
            && let Some(portal) = self.portals.get_mut(name.as_deref())
        {
            // What has run is not always what was bound: an EXECUTE runs another plan, and a change
            // of the catalog makes a new one.
            (portal.statement, portal.plan, portal.env) = (run.statement, run.plan, run.env);
        }
    }

    /// Suspends a portal that has more rows than its Execute asked for.
    pub(super) fn suspend(&mut self, run: &Run, state: PortalState) {
        if let Origin::Portal { name, .. } = &run.origin
            && let Some(portal) = self.portals.get_mut(name.as_deref())
        {
            portal.state = state;
        }
        backend::portal_suspended(&mut self.io.out);
        self.phase = Phase::Idle;
    }

    /// Completes a command whose whole result has been encoded.
    pub(super) fn ended(&mut self, cx: &mut Context<'_>, run: &Run, mut tag: Tag) {
        if matches!(run.plan.statement, Statement::Copy(_)) {
            backend::copy_done(&mut self.io.out);
        }
        let has_columns = run.shows_rows();
        if matches!(run.origin, Origin::Portal { .. }) && has_columns {
            tag = tag.with_count(run.sent as u64);
        }
        let is_empty = matches!(run.plan.statement, Statement::Empty);
        if is_empty {
            backend::empty_query(&mut self.io.out);
        } else {
            command_complete(&mut self.io.out, tag);
        }
        self.after_command(cx, &run.origin, (has_columns || is_empty).then_some(tag));
    }

    /// Completes a command without rows.
    pub(super) fn send_completion(&mut self, cx: &mut Context<'_>, origin: &Origin, tag: Tag) {
        command_complete(&mut self.io.out, tag);
        self.after_command(cx, origin, None);
    }

    /// Continues after CommandComplete. `again` is the tag for a repeated Execute, if it can be
    /// repeated.
    fn after_command(&mut self, cx: &mut Context<'_>, origin: &Origin, again: Option<Tag>) {
        self.phase = Phase::Idle;
        match origin {
            Origin::Simple => self.after_simple(cx),
            Origin::Portal { name, .. } => {
                if let Some(portal) = self.portals.get_mut(name.as_deref()) {
                    portal.state = PortalState::Done { tag: again };
                }
            }
        }
    }
}

fn command_complete(out: &mut Vec<u8>, tag: Tag) {
    match tag {
        Tag::Select(n) => backend::command_complete_count(out, "SELECT", n),
        Tag::Insert(n) => backend::command_complete_count(out, "INSERT 0", n),
        Tag::Update(n) => backend::command_complete_count(out, "UPDATE", n),
        Tag::Delete(n) => backend::command_complete_count(out, "DELETE", n),
        Tag::Fetch(n) => backend::command_complete_count(out, "FETCH", n),
        Tag::Move(n) => backend::command_complete_count(out, "MOVE", n),
        Tag::Copy(n) => backend::command_complete_count(out, "COPY", n),
        Tag::Plain(s) => backend::command_complete(out, s),
    }
}

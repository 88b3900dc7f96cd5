//! Reads messages from the input: frames them, checks whether they are allowed now, and dispatches
//! them.
//!
//! Malformed and misplaced messages get PostgreSQL's answers; `tests/protocol/matrix` compares them
//! all.

use super::run::{self, Origin};
use super::{Context, Phase, Session, copy, whole};
use crate::io::MAX_MESSAGE;
use clearway_coordinator::TxnStatus;
use clearway_types::{SqlError, SqlResult, SqlState};
use clearway_wire::frame;
use clearway_wire::frontend::{self, Frontend};

impl Session {
    /// Returns true if a complete message has been read from the socket.
    pub(super) fn has_message(&self) -> bool {
        matches!(frame(self.input.bytes(), MAX_MESSAGE), Ok(Some(_)))
    }

    /// Returns true if the client has sent nothing else to do.
    pub(super) fn waits_for_a_message(&mut self) -> bool {
        if !matches!(self.phase, Phase::Idle) {
            return false;
        }
        // The socket may hold a message that this busy thread has not read yet.
        self.io.readable = true;
        self.io.read(&mut self.input, 0).is_ok()
            && matches!(frame(self.input.bytes(), MAX_MESSAGE), Ok(None))
    }

    /// Handles the next message of the input. Returns its length, 0 if it is incomplete. An error
    /// ends the session.
    pub(super) fn take_message(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> SqlResult<usize> {
        if matches!(self.phase, Phase::Startup) {
            return self.startup(cx, bytes);
        }
        let Some(&tag) = bytes.first() else { return Ok(0) };
        let copying = matches!(self.phase, Phase::CopyIn);
        if copying && !copy::is_expected(tag) {
            self.unexpected_in_copy(cx, tag);
            return Ok(bytes.len());
        }
        if !frontend::is_known(tag) {
            return Err(frontend::unknown(tag));
        }
        let frame = match frame(bytes, MAX_MESSAGE) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(0),
            Err(bad) if bad.too_long => {
                let text = format!("a message is longer than {} MiB", MAX_MESSAGE >> 20);
                return Err(SqlError::new(SqlState::LIMIT_EXCEEDED, text));
            }
            Err(_) => {
                // Silently, like PostgreSQL.
                self.end_of_input(cx);
                return Ok(bytes.len());
            }
        };
        let (message, rest) = bytes.split_at(frame.len);
        self.framed(cx, tag, &message[5..], rest);
        Ok(frame.len)
    }

    /// Handles a whole message; `rest` is the input after it.
    fn framed(&mut self, cx: &mut Context<'_>, tag: u8, body: &[u8], rest: &[u8]) {
        let copying = matches!(self.phase, Phase::CopyIn);
        let ignored = if copying {
            matches!(tag, b'H' | b'S')
        } else {
            // Leftovers of a failed COPY.
            matches!(tag, b'd' | b'c' | b'f')
        };
        if ignored || self.exchange.skip_to_sync && !matches!(tag, b'S' | b'X') {
            return;
        }
        match Frontend::decode(tag, body) {
            Ok(message) if copying => self.copy_message(cx, message),
            Ok(message) => self.message(cx, message, rest),
            Err(e) if copying => self.fail_copy(cx, e),
            Err(_) if tag == b'F' && self.status() == TxnStatus::Failed => {
                self.fail(cx, &Origin::Simple, &run::failed_block());
            }
            Err(e) if matches!(tag, b'Q' | b'S' | b'F') => {
                self.exchange.skip_to_sync = false;
                self.fail(cx, &Origin::Simple, &e);
            }
            Err(e) => self.fail(cx, &Origin::Portal { name: None, max_rows: 0 }, &e),
        }
    }

    /// Handles the end of the input, or input that cannot be decoded. The client may still read:
    /// released replies are sent when the log allows it and the client takes them.
    pub(super) fn end_of_input(&mut self, cx: &mut Context<'_>) {
        if matches!(self.phase, Phase::CopyIn) {
            return self.end_of_input_in_copy(cx);
        }
        self.io.discard_unreleased();
        self.portals.clear();
        if let Some(client) = self.client.take() {
            client.close();
        }
        self.phase = Phase::Draining;
    }

    fn message(&mut self, cx: &mut Context<'_>, message: Frontend<'_>, rest: &[u8]) {
        self.deadlines.message_arrived();
        if !matches!(
            message,
            Frontend::Bind(_) | Frontend::DescribePortal(_) | Frontend::Execute { .. }
        ) {
            cx.clock.forget();
        }
        if matches!(message, Frontend::Query(_) | Frontend::Bind(_)) {
            self.times.statement = cx.clock.arrival(&*cx.shared.clock);
        }
        match message {
            Frontend::Query(sql) => self.simple_query(cx, sql),
            Frontend::Sync => {
                let commit = !std::mem::take(&mut self.exchange.skip_to_sync);
                self.end_implicit(cx, commit);
            }
            Frontend::Flush => self.io.release(),
            Frontend::Terminate => self.end_of_input(cx),
            Frontend::Execute { portal, max_rows } => {
                // Alone in its group: a statement that commits itself. Otherwise the coming Sync
                // commits the group. COPY ignores a Sync before the end of its data.
                let alone = !self.exchange.implicit_open
                    && whole::is_sync(rest)
                    && !self.is_copy_in(portal);
                self.look_ahead_in_pipeline(cx, portal, max_rows, rest);
                self.execute(cx, portal, max_rows, !alone);
            }
            Frontend::FunctionCall(_) => {
                let failed = self.status() == TxnStatus::Failed;
                let unsupported = || SqlError::unsupported("the function call protocol");
                self.fail(
                    cx,
                    &Origin::Simple,
                    &if failed { run::failed_block() } else { unsupported() },
                );
            }
            other => {
                if let Err(e) = self.extended(cx, other) {
                    self.fail(cx, &Origin::Portal { name: None, max_rows: 0 }, &e);
                }
            }
        }
    }
}

//! Taking messages: where one ends, whether it may come now, and who carries it out.
//!
//! What is malformed or comes at the wrong time is answered as PostgreSQL answers it;
//! `tests/protocol/matrix` compares all of that.

use super::run::{self, Origin};
use super::{Context, Phase, Session, copy, whole};
use crate::io::MAX_MESSAGE;
use clearway_coordinator::TxnStatus;
use clearway_types::{SqlError, SqlResult, SqlState};
use clearway_wire::frame;
use clearway_wire::frontend::{self, Frontend};

impl Session {
    /// Takes the next message off the input; false if it is not there as a whole. An error ends the
    /// session.
    pub(super) fn take_message(&mut self, cx: &mut Context<'_>) -> SqlResult<bool> {
        let mut input = std::mem::take(&mut self.input);
        let result = self.take_message_from(cx, input.bytes());
        if let Ok(taken) = result {
            input.consume(taken);
        }
        self.input = input;
        result.map(|n| n > 0)
    }

    fn take_message_from(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> SqlResult<usize> {
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
                // As PostgreSQL, without a word.
                self.end_of_input(cx);
                return Ok(bytes.len());
            }
        };
        let (message, rest) = bytes.split_at(frame.len);
        self.framed(cx, tag, &message[5..], rest);
        Ok(frame.len)
    }

    /// Takes a whole message; `rest` is what has come after it.
    fn framed(&mut self, cx: &mut Context<'_>, tag: u8, body: &[u8], rest: &[u8]) {
        let copying = matches!(self.phase, Phase::CopyIn);
        let ignored = if copying {
            matches!(tag, b'H' | b'S')
        } else {
            // What is left of a COPY that has failed.
            matches!(tag, b'd' | b'c' | b'f')
        };
        if ignored || self.skip_to_sync && !matches!(tag, b'S' | b'X') {
            return;
        }
        match Frontend::decode(tag, body) {
            Ok(message) if copying => self.copy_message(cx, message),
            Ok(message) => self.message(cx, message, rest),
            Err(e) if copying => self.give_copy_up(cx, e),
            Err(_) if tag == b'F' && self.status() == TxnStatus::Failed => {
                self.fail(cx, &Origin::Simple, &run::failed_block());
            }
            Err(e) if matches!(tag, b'Q' | b'S' | b'F') => {
                self.skip_to_sync = false;
                self.fail(cx, &Origin::Simple, &e);
            }
            Err(e) => self.fail(cx, &Origin::Portal { name: None, max_rows: 0 }, &e),
        }
    }

    /// The client sends no more, or nothing that could be understood. It may still listen: what it
    /// asked for before is answered, as far as the log lets it go.
    pub(super) fn end_of_input(&mut self, cx: &mut Context<'_>) {
        if matches!(self.phase, Phase::CopyIn) {
            return self.end_of_input_in_copy(cx);
        }
        self.io.forget_unreleased();
        self.phase = Phase::Closing;
    }

    fn message(&mut self, cx: &mut Context<'_>, message: Frontend<'_>, rest: &[u8]) {
        self.deadlines.heard();
        if matches!(message, Frontend::Query(_) | Frontend::Bind(_)) {
            self.statement_now = cx.shared.clock.wall_micros();
        }
        match message {
            Frontend::Query(sql) => self.simple_query(cx, sql),
            Frontend::Sync => {
                let commit = !std::mem::take(&mut self.skip_to_sync);
                self.end_implicit(cx, commit);
            }
            Frontend::Flush => self.io.release(),
            Frontend::Terminate => self.phase = Phase::Closing,
            Frontend::Execute { portal, max_rows } => {
                // Alone in its group: one statement, committed by itself. Else the Sync to come
                // commits what the group did.
                let alone = !self.implicit_open && whole::is_sync(rest);
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

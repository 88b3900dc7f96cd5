//! Cursors, built from suspended statements as in the server.
//!
//! DECLARE starts the query and suspends it when the first rows arrive; FETCH resumes it if it asks
//! for more rows than have arrived. The rest of a cursor is read before a statement of the
//! transaction changes its table or rolls back to a savepoint.
//!
//! Invariants
//! 1. All rows that a cursor returns are the answer of its DECLARE: all rows of the query at that
//!    time if the cursor was read to its end, otherwise some of them.
//! 2. A cursor ends with its transaction, and when ROLLBACK TO goes back before its DECLARE.

use super::{REPLANS, Session, State};
use crate::answers;
use crate::generate::Block;
use crate::model::Answer;
use crate::sql::{CursorStmt, Row, Stmt};
use clearway_coordinator::{Outcome, Port, Step, Suspended, Tag};
use clearway_types::{Lsn, RowBatch};

/// A cursor.
pub(super) struct Cursor {
    number: u8,
    table: String,
    /// The place of its DECLARE in the record, if there is one yet.
    place: Option<Place>,
    /// The rows that have arrived.
    rows: Vec<Row>,
    /// How many of them have been fetched.
    fetched: usize,
    rest: Rest,
    /// Savepoints older than the cursor.
    depth: usize,
}

/// The place of a DECLARE in the record.
#[derive(Clone, Copy)]
enum Place {
    /// Among the statements of the open transaction.
    Open(usize),
    /// In a transaction of its own, of this number.
    Alone(usize),
}

/// What has not arrived yet.
enum Rest {
    /// A FETCH runs, or has failed.
    Running,
    Suspended(Suspended),
    /// Nothing.
    End,
}

/// Returns the numbers of these cursors.
pub(super) fn numbers(cursors: &[Cursor]) -> Vec<u8> {
    cursors.iter().map(|cursor| cursor.number).collect()
}

impl Session {
    /// Returns the statement to run first: the rest of a cursor is read before a statement changes
    /// its table.
    pub(super) fn before(&mut self, stmt: Stmt) -> Stmt {
        let is_in_way = |cursor: &&Cursor| match (&cursor.rest, &stmt) {
            (Rest::Running | Rest::End, _) => false,
            (Rest::Suspended(_), Stmt::RollbackTo(_)) => true,
            (Rest::Suspended(_), stmt) if stmt.is_ddl() => true,
            (Rest::Suspended(_), stmt) => stmt.writes() && stmt.table() == Some(&cursor.table),
        };
        let Some(cursor) = self.cursors.iter().find(is_in_way).map(|cursor| cursor.number) else {
            return stmt;
        };
        self.postponed = Some(stmt);
        Stmt::Cursor(CursorStmt::Fetch { cursor, rows: None })
    }

    /// Runs FETCH or CLOSE.
    pub(super) fn use_cursor(&mut self, port: &mut Port, stmt: Stmt) -> Result<(), String> {
        let Stmt::Cursor(what) = &stmt else { return Ok(()) };
        let at = self.cursors.iter().position(|cursor| cursor.number == what.cursor());
        let Some(at) = at else { return Err(format!("{stmt}: the session has no such cursor")) };
        if matches!(what, CursorStmt::Close(_)) {
            self.cursors.remove(at);
            return self.done(port, stmt, Ok(plain(Lsn(0))));
        }
        if self.has_enough(what) {
            self.fetched(what);
            return self.done(port, stmt, Ok(plain(Lsn(0))));
        }
        match (std::mem::replace(&mut self.cursors[at].rest, Rest::Running), &mut self.client) {
            (Rest::Suspended(suspended), Some(client)) => {
                // Relaxed: there is one OS thread.
                self.shared.fetches.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let step = client.resume_suspended(suspended);
                self.cursor_step(port, stmt, 0, step)
            }
            _ => Err(format!("{stmt}: the cursor has failed")),
        }
    }

    /// Handles the progress of a statement on a cursor.
    pub(super) fn cursor_step(
        &mut self,
        port: &mut Port,
        stmt: Stmt,
        replans: u32,
        step: Step,
    ) -> Result<(), String> {
        let Stmt::Cursor(what) = &stmt else { return Ok(()) };
        match step {
            Step::Pending => {
                self.state = State::Running { stmt, replans, rows: RowBatch::new() };
                Ok(())
            }
            Step::Rows(part) => {
                // Relaxed: there is one OS thread.
                self.shared.parts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                self.bring(what, &part.rows)?;
                if !self.has_enough(what) {
                    self.thinks = self.script.leaves_unread();
                    self.state = State::Running { stmt, replans, rows: RowBatch::new() };
                    return Ok(());
                }
                let suspended =
                    self.client.as_mut().and_then(clearway_coordinator::Client::suspend);
                let suspended = suspended
                    .ok_or_else(|| format!("{stmt}: a statement with rows cannot be suspended"))?;
                self.leave_rest(what, Rest::Suspended(suspended));
                self.done(port, stmt, Ok(plain(part.wait)))
            }
            Step::Done(Ok(outcome)) => {
                self.bring(what, &outcome.rows)?;
                self.leave_rest(what, Rest::End);
                self.done(port, stmt, Ok(Outcome { rows: RowBatch::new(), ..outcome }))
            }
            Step::Done(Err(refusal)) => {
                self.cursors.retain(|cursor| cursor.number != what.cursor());
                self.done(port, stmt, Err(refusal))
            }
            Step::Replan if what.query().is_some() && replans < REPLANS => {
                self.start(port, stmt, replans + 1)
            }
            Step::Replan => Err(format!(
                "{stmt}: to be planned again after {replans} times, or with rows handed out"
            )),
        }
    }

    /// Adds rows that have arrived; the first ones create the cursor.
    fn bring(&mut self, what: &CursorStmt, rows: &RowBatch) -> Result<(), String> {
        let rows = answers::rows(rows)?;
        self.shared.trace.event(
            "cursor",
            format!("{} {what} {rows:?}", self.name).as_bytes(),
            || format!("{} {what}: {} rows", self.name, rows.len()),
        );
        if let CursorStmt::Declare { cursor, table, .. } = what {
            let (number, table, depth) = (*cursor, table.clone(), self.savepoints.len());
            let rest = Rest::Running;
            self.cursors.push(Cursor {
                number,
                table,
                place: None,
                rows: Vec::new(),
                fetched: 0,
                rest,
                depth,
            });
        }
        if let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.number == what.cursor())
        {
            cursor.rows.extend(rows);
        }
        Ok(())
    }

    fn has_enough(&self, what: &CursorStmt) -> bool {
        let Some(cursor) = self.cursors.iter().find(|cursor| cursor.number == what.cursor()) else {
            return true;
        };
        match what {
            CursorStmt::Fetch { .. } if matches!(cursor.rest, Rest::End) => true,
            CursorStmt::Fetch { rows: None, .. } => false,
            CursorStmt::Fetch { rows: Some(rows), .. } => {
                cursor.fetched + rows <= cursor.rows.len()
            }
            CursorStmt::Declare { .. } | CursorStmt::Close(_) => true,
        }
    }

    /// Ends the statement and keeps the rest of the cursor.
    fn leave_rest(&mut self, what: &CursorStmt, rest: Rest) {
        if let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.number == what.cursor())
        {
            cursor.rest = rest;
        }
        self.fetched(what);
    }

    fn fetched(&mut self, what: &CursorStmt) {
        let CursorStmt::Fetch { cursor: number, rows } = what else { return };
        if let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.number == *number) {
            let to = rows.map_or(usize::MAX, |rows| cursor.fetched + rows);
            cursor.fetched = to.min(cursor.rows.len());
        }
    }

    /// Ends cursors with their savepoints, after an answer in the block.
    pub(super) fn follow_savepoints(&mut self, stmt: &Stmt, answer: &Answer) {
        if *answer != Answer::Done {
            // The rest of a cursor that the statement conflicts with could not be read.
            self.postponed = None;
            if self.block() == Block::Failed && self.savepoints.is_empty() {
                self.cursors.clear();
            }
            return;
        }
        let find = |name: &u8| self.savepoints.iter().rposition(|set| set == name);
        match stmt {
            Stmt::Savepoint(name) => self.savepoints.push(*name),
            Stmt::RollbackTo(name) => {
                let at = find(name).unwrap_or_default();
                self.savepoints.truncate(at + 1);
                self.cursors.retain(|cursor| cursor.depth <= at);
            }
            Stmt::Release(name) => {
                let at = find(name).unwrap_or_default();
                self.savepoints.truncate(at);
                self.cursors.iter_mut().for_each(|cursor| cursor.depth = cursor.depth.min(at));
            }
            _ => {}
        }
    }

    /// Records what the cursors have returned. `alone`: the number of the last statement's own
    /// transaction, if it has one.
    pub(super) fn write_down_cursors(&mut self, alone: Option<usize>) {
        let last = self.open.len().saturating_sub(1);
        for cursor in &mut self.cursors {
            let place = *cursor.place.get_or_insert(alone.map_or(Place::Open(last), Place::Alone));
            let mut rows = cursor.rows.clone();
            rows.sort_unstable();
            let answer = if matches!(cursor.rest, Rest::End) {
                Answer::Rows(rows)
            } else {
                Answer::Some(rows)
            };
            match place {
                Place::Open(at) => self.open[at].1 = answer,
                Place::Alone(number) => self.shared.history.amend(number, answer),
            }
        }
    }

    /// Ends all cursors with the transaction.
    pub(super) fn end_cursors(&mut self) {
        self.cursors.clear();
        self.savepoints.clear();
        self.postponed = None;
    }
}

fn plain(wait: Lsn) -> Outcome {
    Outcome { rows: RowBatch::new(), tag: Tag::Plain(""), wait, notices: Vec::new() }
}

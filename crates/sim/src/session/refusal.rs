//! Which errors the engine may give.

use super::Session;
use crate::model::Answer;
use crate::sql::{Set, Stmt};
use clearway_coordinator::Port;
use clearway_types::{SqlError, SqlState};

impl Session {
    /// Returns the answer for an error that the engine may give; fails for any other.
    pub(super) fn refusal(&self, port: &Port, stmt: &Stmt, e: &SqlError) -> Result<Answer, String> {
        use std::sync::atomic::Ordering::Relaxed; // there is one OS thread
        if e.state() == SqlState::UNIQUE_VIOLATION {
            return Ok(Answer::Duplicate);
        }
        if e.state() == SqlState::CHECK_VIOLATION {
            return Ok(Answer::Violated);
        }
        // Possible with any disk.
        if [SqlState::QUERY_CANCELED, SqlState::ADMIN_SHUTDOWN].contains(&e.state()) {
            let explained = self.inbox.explains(e.state());
            return explained.then(|| refused(e)).ok_or_else(|| self.unexplained(stmt, e));
        }
        let foreseen = [
            SqlState::DEADLOCK,
            SqlState::SERIALIZATION_FAILURE,
            SqlState::SNAPSHOT_TOO_OLD,
            SqlState::LIMIT_EXCEEDED,
            SqlState::OUT_OF_MEMORY,
            SqlState::FEATURE_NOT_SUPPORTED,
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_OBJECT,
            SqlState::DUPLICATE_TABLE,
            SqlState::IN_FAILED_TRANSACTION,
        ];
        let failing = self.shared.faults.load(Relaxed)
            || self.shared.stopping.load(Relaxed)
            || port.engine().failed().is_some();
        let expected = if e.state() == SqlState::DATA_CORRUPTED && port.engine().failed().is_none()
        {
            self.shared.rotten().iter().any(|page| page.explains(e.message()))
        } else {
            let busy = matches!(stmt, Stmt::Backup(_)) && e.state() == SqlState::OBJECT_IN_USE;
            // The exporter has ended, or reads under locks.
            let ended = matches!(stmt, Stmt::Import(_))
                && [SqlState::INVALID_PARAMETER, SqlState(*b"55000")].contains(&e.state());
            let unshared = matches!(stmt, Stmt::Export) && e.state() == SqlState(*b"55000");
            let locked = stmt.is_nowait() && e.state() == SqlState::LOCK_NOT_AVAILABLE;
            // Another session has added one meanwhile.
            let again = e.state() == SqlState::INVALID_TABLE_DEFINITION;
            let has_key = matches!(stmt, Stmt::AddKey(_)) && again;
            let overflows = matches!(stmt, Stmt::Update { set: Set::Add(..), .. })
                && e.state() == SqlState::OUT_OF_RANGE;
            let foreseen = foreseen.contains(&e.state()) || has_key;
            foreseen || failing || busy || locked || ended || unshared || overflows
        };
        if expected {
            return Ok(refused(e));
        }
        Err(self.unexplained(stmt, e))
    }

    fn unexplained(&self, stmt: &Stmt, e: &SqlError) -> String {
        let (number, state) = (self.number, e.state());
        let (stmt, state, message) = (stmt.short(), state.as_str(), e.message());
        format!("session {number}: {stmt}: an error without a cause: {state} {message}")
    }
}

fn refused(e: &SqlError) -> Answer {
    Answer::Refused(format!("{} {}", e.state().as_str(), e.message()))
}

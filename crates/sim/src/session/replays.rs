//! Blocks that the engine runs again because rollbacks of others have undone them.

use super::Session;
use crate::model::Answer;
use crate::sql::{CursorStmt, Stmt};
use clearway_coordinator::Client;

impl Session {
    /// After a rerun of the block, takes over the snapshots that its statements saw then.
    pub(super) fn follow_replay(&mut self) -> Result<(), String> {
        let Some(read) = self.client.as_ref().and_then(Client::take_replayed) else {
            return Ok(());
        };
        // Relaxed: there is one OS thread.
        self.shared.replays.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let ran = |(at, (stmt, _)): (usize, &(Stmt, Answer))| {
            let kept =
                matches!(stmt, Stmt::Cursor(CursorStmt::Fetch { .. } | CursorStmt::Close(_)));
            let marks = matches!(stmt, Stmt::Savepoint(_) | Stmt::Release(_));
            (!stmt.begins() && !kept && !marks).then_some(at)
        };
        let ran: Vec<usize> = self.open.iter().enumerate().filter_map(ran).collect();
        let below = matches!(self.open.first(), Some((Stmt::BeginAt { repeatable: false }, _)));
        if !below || ran.len() != read.len() {
            return Err(format!(
                "{} statements of a block of {} were run again",
                read.len(),
                ran.len()
            ));
        }
        for (at, read) in ran.into_iter().zip(read) {
            self.views[at] = read.filter(|_| self.open[at].0.looks());
        }
        Ok(())
    }

    /// Returns true if the client received the error that another rollback has undone the block.
    /// Its answers may be out of date, and depend on changes of others.
    pub(super) fn was_undone(&self) -> bool {
        let undone = |answer: &Answer| matches!(answer, Answer::Refused(why) if why.contains("was rolled back"));
        self.open.iter().any(|(_, answer)| undone(answer))
    }
}

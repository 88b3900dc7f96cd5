//! A session's row in `clearway.sessions`.
//!
//! A session keeps the text of its last statement, and the time of its message anyway. So only one
//! thing is recorded for the view: the end of a statement that had to wait.

use super::{Context, Phase, Session};
use crate::sessions::SessionInfo;
use clearway_coordinator::{Client, TxnStatus};
use std::sync::Arc;

impl Session {
    /// Describes the session; `None` before its client has logged in.
    pub fn describe(&self) -> Option<SessionInfo> {
        let client = self.client.as_ref()?;
        let state = self.state();
        let active = state == ACTIVE;
        let statement = match &self.statements.last {
            Some(text) => Some(text.clone()),
            None => (!self.statements.simple_text.is_empty())
                .then(|| Arc::from(self.statements.simple_text.as_str())),
        };
        let in_transaction = active || self.status() != TxnStatus::Idle;
        Some(SessionInfo {
            pid: self.login.pid,
            client: self.io.stream.peer(),
            user: self.login.user.clone(),
            application: self
                .config
                .settings
                .get("application_name")
                .unwrap_or_default()
                .to_owned(),
            state,
            state_since: if active { self.times.statement } else { self.times.idle_since },
            statement: statement.map(|text| (text, self.times.statement)),
            transaction_since: in_transaction
                .then_some(self.times.transaction)
                .filter(|since| *since != 0),
            snapshot: Client::snapshot(client).map(|(snapshot, of_transaction)| {
                (
                    snapshot,
                    if of_transaction { self.times.transaction } else { self.times.statement },
                )
            }),
            transactions: Client::transactions(client),
            waits_for: self.wait_event(),
        })
    }

    fn state(&self) -> &'static str {
        let idle = matches!(self.phase, Phase::Idle)
            && !self.exchange.implicit_open
            && self.io.waits_for().is_none();
        match self.status() {
            _ if !idle => ACTIVE,
            TxnStatus::Idle => "idle",
            TxnStatus::InBlock => "idle in transaction",
            TxnStatus::Failed => "idle in transaction (aborted)",
        }
    }

    /// Returns what the session waits for outside the engine, if anything.
    fn wait_event(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::Sleeping { .. } => Some("sleep"),
            Phase::Ending(_) => Some("session"),
            Phase::CopyIn => Some("client"),
            _ if self.io.is_full() => Some("client"),
            Phase::Running { .. } => None,
            _ => self.io.waits_for().map(|_| "log"),
        }
    }

    /// Records the start of idle time, after ReadyForQuery. A statement that never waited counts as
    /// ended when it began: this saves reading the clock.
    pub(super) fn becomes_idle(&mut self, cx: &Context<'_>) {
        self.times.idle_since = if std::mem::take(&mut self.times.has_waited) {
            cx.shared.clock.wall_micros()
        } else {
            self.times.statement
        };
    }
}

const ACTIVE: &str = "active";

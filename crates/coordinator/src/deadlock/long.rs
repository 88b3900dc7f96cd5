//! Waits that last so long that they are logged.
//!
//! Invariants
//! 1. A wait is claimed once, by the session whose it is, when it has lasted long enough: who
//!    claims it sees that it is logged.
//! 2. The end of a wait is logged if and only if the wait was logged while it lasted.

use super::WaitsFor;
use super::look::WaitId;
use crate::client::Client;
use crate::engine::Engine;
use clearway_sync::time::{Duration, Instant};
use clearway_types::TxnId;
use std::sync::Arc;

/// What the log has said of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedWait {
    /// The backend id of the session that waits.
    pub pid: i32,
    /// What for.
    pub what: String,
    /// Its statement.
    pub statement: String,
}

/// What has become of a wait as a long one.
#[derive(Default)]
pub(super) enum Long {
    /// Nothing yet.
    #[default]
    No,
    /// It will be logged if it still lasts then.
    Claimed,
    /// It was logged.
    Logged(Arc<LoggedWait>),
}

impl Long {
    /// The wait is over.
    pub(super) fn ended(self, since: Instant, granted: bool) -> Option<Ended> {
        let Self::Logged(wait) = self else { return None };
        Some(Ended { wait, waited: since.elapsed(), granted })
    }
}

/// A logged wait that is over.
pub(crate) struct Ended {
    wait: Arc<LoggedWait>,
    waited: Duration,
    granted: bool,
}

impl Ended {
    /// Logs the end.
    pub(crate) fn log(&self) {
        let LoggedWait { pid, what, statement } = &*self.wait;
        let ms = self.waited.as_secs_f64() * 1e3;
        match self.granted {
            true => tracing::info!(statement, "process {pid} acquired {what} after {ms:.3} ms"),
            false => tracing::info!(
                statement,
                "process {pid} gave up waiting for {what} after {ms:.3} ms"
            ),
        }
    }
}

impl WaitsFor {
    /// Claims the transaction's waits that have lasted so long; returns when the next may be that
    /// long.
    fn claim(&mut self, txn: TxnId, limit: Duration, claimed: &mut Vec<WaitId>) -> Duration {
        let mut next = limit;
        for wait in self
            .waits
            .get_mut(&txn)
            .into_iter()
            .flatten()
            .filter(|wait| matches!(wait.long, Long::No))
        {
            match limit.checked_sub(wait.since.elapsed()).filter(|left| !left.is_zero()) {
                Some(left) => next = next.min(left),
                None => {
                    wait.long = Long::Claimed;
                    claimed.push(WaitId { partition: wait.partition, number: wait.wait });
                }
            }
        }
        next
    }
}

impl Client {
    /// Adds to `claimed` the waits of what runs that have lasted at least `limit` and were not
    /// claimed before. Returns after which time there may be more.
    pub fn claim_long_waits(&self, limit: Duration, claimed: &mut Vec<WaitId>) -> Duration {
        let calling = self.calling();
        let mut waits = self.engine().waits_for();
        calling.into_iter().map(|txn| waits.claim(txn, limit, claimed)).min().unwrap_or(limit)
    }
}

impl Engine {
    /// Has the end of this wait logged as well; false if it has ended.
    pub fn wait_is_logged(&self, txn: TxnId, id: WaitId, as_what: LoggedWait) -> bool {
        let mut graph = self.waits_for();
        let waits = graph.waits.get_mut(&txn).into_iter().flatten();
        let mut found =
            waits.filter(|wait| (wait.partition, wait.wait) == (id.partition, id.number));
        found.next().map(|wait| wait.long = Long::Logged(Arc::new(as_what))).is_some()
    }
}

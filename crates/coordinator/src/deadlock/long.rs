//! Logging of long waits.
//!
//! Invariants
//! 1. A wait is claimed once, by its own session, when it has lasted long enough. The session that
//!    claims it makes sure that it is logged.
//! 2. The end of a wait is logged if and only if the wait was logged while it lasted.

use super::WaitsFor;
use super::look::WaitId;
use clearway_sync::time::{Duration, Instant};
use clearway_types::TxnId;
use std::sync::Arc;

/// A wait as logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedWait {
    /// The backend id of the waiting session.
    pub pid: i32,
    /// What it waits for.
    pub what: String,
    /// Its statement.
    pub statement: String,
}

/// Whether a wait has been logged as a long one.
#[derive(Default)]
pub(super) enum Long {
    /// Not yet.
    #[default]
    No,
    /// Claimed: it will be logged if it still lasts then.
    Claimed,
    /// Logged.
    Logged(Arc<LoggedWait>),
}

impl Long {
    /// Returns the ended wait if it was logged.
    pub(super) fn ended(self, since: Instant, granted: bool) -> Option<Ended> {
        let Self::Logged(wait) = self else { return None };
        Some(Ended { wait, waited: since.elapsed(), granted })
    }
}

/// A logged wait that has ended.
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
    /// Claims the transaction's waits that have lasted at least `limit`. Returns the time until the
    /// next one may reach it.
    pub(crate) fn claim(
        &mut self,
        txn: TxnId,
        limit: Duration,
        claimed: &mut Vec<WaitId>,
    ) -> Duration {
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

    /// Records that a wait was logged. Returns false if it has ended.
    pub(crate) fn set_logged(&mut self, txn: TxnId, id: WaitId, wait: LoggedWait) -> bool {
        let waits = self.waits.get_mut(&txn).into_iter().flatten();
        let mut found =
            waits.filter(|wait| (wait.partition, wait.wait) == (id.partition, id.number));
        found.next().map(|found| found.long = Long::Logged(Arc::new(wait))).is_some()
    }
}

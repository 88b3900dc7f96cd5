//! Counts for the metrics: waiting transactions and deadlocks.

use super::WaitsFor;

/// The numbers of waiting transactions and of deadlocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Transactions that are waiting for a lock.
    pub waiters: u64,
    /// Deadlocks found since the engine was opened.
    pub deadlocks: u64,
}

impl WaitsFor {
    /// Counts waiting transactions and deadlocks.
    pub(crate) fn counts(&self) -> LockCounts {
        let waits_for_lock =
            |waits: &&Vec<_>| waits.iter().any(|wait: &super::InLine| wait.wanted.is_some());
        let waiters = self.waits.values().filter(waits_for_lock).count();
        LockCounts { waiters: waiters as u64, deadlocks: self.found }
    }
}

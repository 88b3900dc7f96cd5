//! The waits in progress, as sessions and views read them from the waits-for graph.

use crate::client::Client;
use crate::deadlock::{LockWaitView, LoggedWait, Names, WaitId};
use crate::engine::Engine;
use clearway_sync::time::Duration;
use clearway_types::TxnId;

impl Client {
    /// Adds to `claimed` the running statement's unclaimed waits that have lasted at least `limit`.
    /// Returns the time after which there may be more.
    pub fn claim_long_waits(&self, limit: Duration, claimed: &mut Vec<WaitId>) -> Duration {
        let calling = self.calling();
        let mut waits = self.engine().waits_for();
        calling.into_iter().map(|txn| waits.claim(txn, limit, claimed)).min().unwrap_or(limit)
    }
}

impl Engine {
    /// Marks this wait as logged, so that its end is logged too. Returns false if it has ended.
    pub fn wait_is_logged(&self, txn: TxnId, id: WaitId, as_what: LoggedWait) -> bool {
        self.waits_for().set_logged(txn, id, as_what)
    }
}

impl Engine {
    /// Returns every wait of a transaction for a lock or a partition, longest first. Holds the
    /// latch of the waits-for graph for about 100 ns per wait.
    pub fn lock_waits(&self) -> Vec<LockWaitView> {
        let recorded = self.waits_for().all();
        if recorded.is_empty() {
            return Vec::new();
        }
        let catalog = self.catalog();
        let names = Names::new(&catalog);
        let mut waits: Vec<LockWaitView> =
            recorded.into_iter().map(|wait| wait.named(&names)).collect();
        waits.sort_unstable_by_key(|wait| (std::cmp::Reverse(wait.waited), wait.waiter));
        waits
    }
}

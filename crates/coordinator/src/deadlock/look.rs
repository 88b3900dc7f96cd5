//! The waits in progress, for people who look at them.

use super::WaitsFor;
use crate::engine::Engine;
use clearway_sync::time::Duration;
use clearway_types::{PartitionId, TxnId};

/// A wait in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Who waits.
    pub waiter: TxnId,
    /// Where.
    pub partition: PartitionId,
    /// For how long.
    pub waited: Duration,
    /// It waits for a lock, and not for the partition as a whole.
    pub for_lock: bool,
    /// Some of those in its way, the first of them for sure. Nobody is named where it waits for the partition.
    pub blockers: Vec<TxnId>,
}

impl WaitsFor {
    fn all(&self) -> Vec<LockWait> {
        let mut all = Vec::with_capacity(self.waits.len());
        for (waiter, waits) in &self.waits {
            all.extend(waits.iter().map(|wait| {
                let line = wait.line.and_then(|line| self.lines.get(&(wait.partition, line)));
                LockWait {
                    waiter: *waiter,
                    partition: wait.partition,
                    waited: wait.since.elapsed(),
                    for_lock: wait.line.is_some(),
                    blockers: line.cloned().unwrap_or_default(),
                }
            }));
        }
        all
    }
}

impl Engine {
    /// Every wait of a transaction for a lock or a partition that is in progress, in no order. The waits-for graph is latched meanwhile, for some 100 ns a wait.
    pub fn lock_waits(&self) -> Vec<LockWait> {
        self.waits_for().all()
    }
}

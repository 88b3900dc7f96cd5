//! The waits-for graph of the node: finds deadlocks, whatever partitions their waits are at.
//!
//! A transaction that starts to wait at a partition names everyone it waits for: holders and earlier waiters. Waiting is in order, so no
//! edge appears later without a new wait; a cycle is therefore closed by the wait that is being added, and looking for
//! one there and then finds every deadlock.
//!
//! Invariants
//! 1. Only waiting transactions have outgoing edges.
//! 2. After [`WaitsFor::add`] has returned false for every wait so far, the graph has no cycle.
//!
//! Locking: the engine keeps it behind a mutex, which only waits take. A crash leaves nothing.

use clearway_types::{PartitionId, TxnId};
use hashbrown::{HashMap, HashSet};

/// Who waits for whom.
#[derive(Default)]
pub(crate) struct WaitsFor {
    edges: HashMap<TxnId, Vec<(PartitionId, Vec<TxnId>)>>,
}

impl WaitsFor {
    /// Notes that `txn` waits at `partition` for `on`. True if that closes a cycle: then `txn` must give up.
    pub(crate) fn add(&mut self, txn: TxnId, partition: PartitionId, on: Vec<TxnId>) -> bool {
        let waits = self.edges.entry(txn).or_default();
        waits.retain(|(p, _)| *p != partition);
        waits.push((partition, on));
        self.reaches_itself(txn)
    }

    /// `txn` no longer waits at `partition`.
    pub(crate) fn remove(&mut self, txn: TxnId, partition: PartitionId) {
        if let Some(waits) = self.edges.get_mut(&txn) {
            waits.retain(|(p, _)| *p != partition);
            if waits.is_empty() {
                self.edges.remove(&txn);
            }
        }
    }

    fn reaches_itself(&self, txn: TxnId) -> bool {
        let mut seen = HashSet::new();
        let mut stack = vec![txn];
        while let Some(at) = stack.pop() {
            for next in self.edges.get(&at).into_iter().flatten().flat_map(|(_, on)| on) {
                if *next == txn {
                    return true;
                }
                if seen.insert(*next) {
                    stack.push(*next);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(ids: &[u64]) -> Vec<TxnId> {
        ids.iter().map(|i| TxnId(*i)).collect()
    }

    #[test]
    fn a_cycle_over_two_partitions_is_found_by_the_wait_that_closes_it() {
        let mut g = WaitsFor::default();
        assert!(!g.add(TxnId(1), PartitionId(0), t(&[2])));
        assert!(!g.add(TxnId(2), PartitionId(1), t(&[3])));
        assert!(g.add(TxnId(3), PartitionId(2), t(&[1])));
        g.remove(TxnId(3), PartitionId(2));
        assert!(!g.add(TxnId(4), PartitionId(0), t(&[1, 2, 3])));
    }

    #[test]
    fn a_wait_that_is_over_closes_nothing() {
        let mut g = WaitsFor::default();
        assert!(!g.add(TxnId(1), PartitionId(0), t(&[2])));
        g.remove(TxnId(1), PartitionId(0));
        assert!(!g.add(TxnId(2), PartitionId(0), t(&[1])));
    }
}

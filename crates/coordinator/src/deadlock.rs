//! The waits-for graph of the node: finds deadlocks, whatever partitions their waits are at.
//!
//! A transaction that starts to wait at a partition names everyone it waits for: holders and earlier waiters. Waiting is in order, so no
//! edge appears later without a new wait; a cycle is therefore closed by the wait that is being added, and looking for
//! one there and then finds every deadlock.
//!
//! Invariants
//! 1. Only waiting transactions have outgoing edges.
//! 2. After [`WaitsFor::add`] has found no deadlock in any wait so far, the graph has no cycle.
//! 3. A wait whose end was told here before its beginning (by another thread, which had the partition next) never gets an edge.
//!
//! Locking: the engine keeps it behind a latch, which only waits and their time-outs take. A crash leaves nothing.

use clearway_latch::lockstat::Wait;
use clearway_sync::time::{Duration, Instant};
use clearway_types::{PartitionId, TxnId};
use hashbrown::{HashMap, HashSet};

/// A wait, by its number at its partition.
pub(crate) type WaitId = (PartitionId, u64);

struct Edges {
    id: WaitId,
    on: Vec<TxnId>,
    wait: Wait,
    since: Instant,
}

/// What became of a wait that was added.
pub(crate) enum Added {
    /// It waits.
    Waits,
    /// It closes a cycle: it must give up.
    Deadlock,
    /// It is over already; this is to be counted.
    Over(Wait),
}

/// Who waits for whom.
#[derive(Default)]
pub(crate) struct WaitsFor {
    edges: HashMap<TxnId, Vec<Edges>>,
    /// Ends that were told before their beginnings: each is on its way.
    over: HashSet<WaitId>,
}

impl WaitsFor {
    /// Notes that `txn` waits for `on`.
    pub(crate) fn add(&mut self, txn: TxnId, id: WaitId, on: Vec<TxnId>, wait: Wait) -> Added {
        if self.over.remove(&id) {
            return Added::Over(wait);
        }
        self.edges.entry(txn).or_default().push(Edges { id, on, wait, since: Instant::now() });
        if self.reaches_itself(txn) { Added::Deadlock } else { Added::Waits }
    }

    /// `txn` no longer waits; what is to be counted of that wait.
    pub(crate) fn remove(&mut self, txn: TxnId, id: WaitId) -> Option<Wait> {
        let waits = self.edges.get_mut(&txn);
        let Some((waits, at)) = waits.and_then(|w| w.iter().position(|w| w.id == id).map(|at| (w, at))) else {
            self.over.insert(id);
            return None;
        };
        let ended = waits.swap_remove(at);
        if waits.is_empty() {
            self.edges.remove(&txn);
        }
        Some(ended.wait)
    }

    /// How long the longest wait of `txn` lasts, if it waits.
    pub(crate) fn longest(&self, txn: TxnId) -> Option<Duration> {
        self.edges.get(&txn)?.iter().map(|wait| wait.since.elapsed()).max()
    }

    fn reaches_itself(&self, txn: TxnId) -> bool {
        let mut seen = HashSet::new();
        let mut stack = vec![txn];
        while let Some(at) = stack.pop() {
            for next in self.edges.get(&at).into_iter().flatten().flat_map(|edges| &edges.on) {
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
    use clearway_latch::lockstat::Class;
    use std::panic::Location;

    fn t(ids: &[u64]) -> Vec<TxnId> {
        ids.iter().map(|i| TxnId(*i)).collect()
    }

    static CLASS: Class = Class::new("test.waits_for");

    impl WaitsFor {
        /// Adds the partition's first wait, which is not over; whether it closes a cycle.
        fn waits(&mut self, txn: u64, partition: u16, on: &[u64]) -> bool {
            match self.add(TxnId(txn), (PartitionId(partition), 1), t(on), wait()) {
                Added::Waits => false,
                Added::Deadlock => true,
                Added::Over(_) => panic!("nobody has ended it"),
            }
        }
    }

    fn wait() -> Wait {
        CLASS.wait(Location::caller())
    }

    #[test]
    fn a_cycle_over_two_partitions_is_found_by_the_wait_that_closes_it() {
        let mut g = WaitsFor::default();
        assert!(!g.waits(1, 0, &[2]));
        assert!(!g.waits(2, 1, &[3]));
        assert!(g.waits(3, 2, &[1]));
        g.remove(TxnId(3), (PartitionId(2), 1)).unwrap().end();
        assert!(!g.waits(4, 0, &[1, 2, 3]));
    }

    #[test]
    fn a_wait_that_is_over_closes_nothing() {
        let mut g = WaitsFor::default();
        assert!(!g.waits(1, 0, &[2]));
        g.remove(TxnId(1), (PartitionId(0), 1)).unwrap().end();
        assert!(!g.waits(2, 0, &[1]));
        assert!(g.over.is_empty());
    }

    /// Invariant 3, also where the transaction waits again before it is known that it had waited.
    #[test]
    fn an_end_may_overtake_its_beginning() {
        let (mut g, at) = (WaitsFor::default(), PartitionId(0));
        assert!(g.remove(TxnId(1), (at, 7)).is_none());
        assert!(matches!(g.add(TxnId(1), (at, 8), t(&[3]), wait()), Added::Waits));
        assert!(matches!(g.add(TxnId(1), (at, 7), t(&[2]), wait()), Added::Over(_)));
        assert!(!g.waits(2, 1, &[1]), "the first does not wait for the second any more");
        assert!(g.remove(TxnId(1), (at, 8)).is_some());
        assert!(g.over.is_empty() && g.edges.len() == 1);
    }
}

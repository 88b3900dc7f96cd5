//! The node's waits-for graph: finds deadlocks across partitions.
//!
//! A transaction that waits for a lock waits in a *line* of its partition. Edges lead from a line
//! to the transactions that it names as blocking all its members. A line names only a few; the
//! first surely blocks until the line is updated ([`clearway_partition::Out::Line`]). All waiters
//! for one row form one line, so a search takes time proportional to the chain of locks, not to the
//! number of waiters.
//!
//! Claim: if some transactions can never continue, one of them is chosen as a victim, at the latest
//! when all other transactions that blocked them are gone. Proof: each of them waits in a line. The
//! first transaction named by the line either is one of them, or eventually ends or gives up, and
//! then the line is updated. There are finitely many transactions, so eventually every first edge
//! leads to one of the blocked ones and stays. Following these edges yields a cycle. The last
//! change that closed it was a wait that joined a line (1) or an update of a line (2), and each of
//! these triggered a search. Conversely, every victim is on a cycle of edges that were each true
//! when reported. An edge that is no longer true leads to a transaction that has ended, which
//! has no edges. A transaction whose wait has ended meanwhile ignores the notification.
//!
//! Each transaction on a cycle waits for all that its line waits for, so the cycle breaks whichever
//! of them gives up: the *victim*.
//!
//! Invariants
//! 1. When a transaction joins a line and some line names it, the graph is searched for a path from
//!    it to itself.
//! 2. When a line is updated, the graph is searched for a path from the transactions that it names
//!    to one of its members.
//! 3. Every cycle found is broken: the victim's wait is no longer an edge. So the graph has no
//!    cycle.
//! 4. A partition's changes are applied in its order, in whatever order they arrive. A change that
//!    arrives early is kept until all before it have arrived.
//! 5. The victim has the smallest [`Stake`] on the cycle. Among equals, the highest id is chosen.
//!
//! Locking: the engine keeps the graph behind a latch, which only waits, their time-outs and
//! monitoring take. A crash leaves nothing.
//!
//! Source: Gray and Reuter, chapter 7.11. Finding some deadlocks late instead of examining every
//! member of a line: ours.

mod count;
mod long;
mod look;
mod report;

pub use count::LockCounts;
pub(crate) use long::Ended;
pub use long::LoggedWait;
pub(crate) use look::Names;
pub use look::{LockName, LockWaitView, WaitId, one_line};

use clearway_ir::Requester;
use clearway_latch::lockstat::Wait;
use clearway_partition::{Stake, Wanted};
use clearway_sync::canary::{self, Bug};
use clearway_sync::time::{Duration, Instant};
use clearway_types::{PartitionId, TxnId};
use hashbrown::{HashMap, HashSet};
use long::Long;
use report::Deadlock;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A line, by its number at its partition.
type LineId = (PartitionId, u64);

/// A change of a partition's waits or lines.
pub(crate) enum Change {
    /// The transaction waits, in a line for a lock or for the partition.
    Waits {
        txn: TxnId,
        wait: u64,
        stake: Stake,
        requester: Option<Requester>,
        line: Option<u64>,
        wanted: Option<Arc<Wanted>>,
        counted: Wait,
    },
    /// These transactions now block the line. Empty: the line is gone.
    Line { line: u64, on: Vec<TxnId> },
    /// The transaction no longer waits.
    Over { txn: TxnId, wait: u64, granted: bool },
}

/// The effects of changes.
#[derive(Default)]
pub(crate) struct Effects {
    /// Deadlocks whose victims must give up their waits.
    pub deadlocks: Vec<Deadlock>,
    /// Ended waits, to be counted.
    pub over: Vec<Wait>,
    /// Those of them that were logged while they lasted.
    pub ended: Vec<Ended>,
}

/// The transaction that gives up, and its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub txn: TxnId,
    pub partition: PartitionId,
    pub wait: u64,
}

struct InLine {
    partition: PartitionId,
    wait: u64,
    stake: Stake,
    requester: Option<Requester>,
    line: Option<u64>,
    wanted: Option<Arc<Wanted>>,
    counted: Wait,
    since: Instant,
    /// The transaction was notified to give up: invariant 3.
    notified: bool,
    long: Long,
}

impl InLine {
    /// Returns the line to which an edge leads.
    fn edge(&self) -> Option<LineId> {
        self.line.filter(|_| !self.notified).map(|line| (self.partition, line))
    }
}

/// What a change has added.
enum Edge {
    /// The transaction has joined the line.
    Joined(TxnId, u64),
    /// The line was updated.
    Updated(u64),
}

/// A partition's changes.
#[derive(Default)]
struct Order {
    applied: u64,
    /// Changes that arrived before their turn.
    early: BTreeMap<u64, Change>,
}

/// The waits-for graph.
#[derive(Default)]
pub(crate) struct WaitsFor {
    orders: HashMap<PartitionId, Order>,
    waits: HashMap<TxnId, Vec<InLine>>,
    lines: HashMap<LineId, Vec<TxnId>>,
    /// Number of lines that name a transaction.
    named: HashMap<TxnId, usize>,
    /// Deadlocks found since the engine was opened.
    found: u64,
}

impl WaitsFor {
    /// Accepts the change with this number. It is applied once all earlier ones have arrived.
    pub(crate) fn take(
        &mut self,
        partition: PartitionId,
        number: u64,
        change: Change,
        effects: &mut Effects,
    ) {
        let order = self.orders.entry(partition).or_default();
        if number != order.applied + 1 {
            order.early.insert(number, change);
            return;
        }
        let mut changed = Vec::new();
        let mut next = Some(change);
        while let Some(change) = next {
            changed.extend(self.apply(partition, change, effects));
            let order = self.orders.entry(partition).or_default();
            order.applied += 1;
            next = order.early.remove(&(order.applied + 1));
        }
        // Only after all have been applied: a wait that a later change ended is on no cycle.
        for edge in changed {
            self.search(partition, edge, effects);
        }
    }

    /// Applies a change. Returns an edge that may have closed a cycle.
    fn apply(
        &mut self,
        partition: PartitionId,
        change: Change,
        effects: &mut Effects,
    ) -> Option<Edge> {
        match change {
            Change::Waits { txn, wait, stake, requester, line, wanted, counted } => {
                let (since, notified) = (Instant::now(), false);
                let long = Long::default();
                let waiting = InLine {
                    partition,
                    wait,
                    stake,
                    requester,
                    line,
                    wanted,
                    counted,
                    since,

                    notified,
                    long,
                };
                self.waits.entry(txn).or_default().push(waiting);
                line.map(|line| Edge::Joined(txn, line))
            }
            Change::Line { line, on } => {
                let edge = (!on.is_empty()).then_some(Edge::Updated(line));
                self.point((partition, line), on);
                edge
            }
            Change::Over { txn, wait, granted } => {
                let waits = self.waits.get_mut(&txn)?;
                let at = waits.iter().position(|w| (w.partition, w.wait) == (partition, wait));
                if let Some(InLine { counted, long, since, .. }) =
                    at.map(|at| waits.swap_remove(at))
                {
                    effects.over.push(counted);
                    effects.ended.extend(long.ended(since, granted));
                }
                if waits.is_empty() {
                    self.waits.remove(&txn);
                }
                None
            }
        }
    }

    /// Searches for cycles through the edge: invariants 1 and 2.
    fn search(&mut self, partition: PartitionId, edge: Edge, effects: &mut Effects) {
        let (line, only) = match edge {
            Edge::Joined(txn, _) if !self.named.contains_key(&txn) => return,
            Edge::Updated(_) if canary::on(Bug::SkippedSearch) => return,
            Edge::Joined(txn, line) => (line, Some(txn)),
            Edge::Updated(line) => (line, None),
        };
        // The victim's wait is no longer an edge; there may be more cycles.
        while let Some(cycle) = self.cycle((partition, line), only)
            && let Some(victim) = self.victim(&cycle)
        {
            self.found += 1;
            effects.deadlocks.push(self.deadlock(victim, &cycle));
            self.notify(victim);
        }
    }

    fn point(&mut self, line: LineId, on: Vec<TxnId>) {
        for txn in &on {
            *self.named.entry(*txn).or_default() += 1;
        }
        let old =
            if on.is_empty() { self.lines.remove(&line) } else { self.lines.insert(line, on) };
        for txn in old.into_iter().flatten() {
            let Some(count) = self.named.get_mut(&txn) else { continue };
            *count -= 1;
            if *count == 0 {
                self.named.remove(&txn);
            }
        }
    }

    fn notify(&mut self, victim: Victim) {
        let waits = self.waits.get_mut(&victim.txn).into_iter().flatten();
        waits
            .filter(|w| (w.partition, w.wait) == (victim.partition, victim.wait))
            .for_each(|w| w.notified = true);
    }

    /// Chooses the victim: invariant 5.
    fn victim(&self, cycle: &[(TxnId, LineId)]) -> Option<Victim> {
        let wait = |(txn, line): &(TxnId, LineId)| {
            let wait = self.waits.get(txn)?.iter().find(|w| w.edge() == Some(*line))?;
            Some((
                (wait.stake, Reverse(*txn)),
                Victim { txn: *txn, partition: wait.partition, wait: wait.wait },
            ))
        };
        let waits = cycle.iter().filter_map(wait);
        let found = match canary::on(Bug::RichestVictim) {
            true => waits.max_by_key(|(stake, _)| *stake),
            false => waits.min_by_key(|(stake, _)| *stake),
        };
        found.map(|(_, victim)| victim)
    }

    /// Finds a cycle through the line, and through the given member of it, if any. Returns the
    /// transactions and the line in which each waits. Each blocks the next one, and the last blocks
    /// the first.
    fn cycle(&self, from: LineId, only: Option<TxnId>) -> Option<Vec<(TxnId, LineId)>> {
        let mut seen = HashSet::new();
        // Edges followed, each with the index of the one before it.
        let mut path: Vec<(TxnId, LineId, Option<usize>)> = Vec::new();
        let named = |line, before| {
            self.lines.get(&line).into_iter().flatten().map(move |txn| (*txn, before))
        };
        let mut stack: Vec<(TxnId, Option<usize>)> = named(from, None).collect();
        while let Some((at, before)) = stack.pop() {
            for line in self.waits.get(&at).into_iter().flatten().filter_map(InLine::edge) {
                if line == from && only.is_none_or(|only| only == at) {
                    let edges = std::iter::successors(before, |at| path[*at].2)
                        .map(|at| (path[at].0, path[at].1));
                    return Some(std::iter::once((at, line)).chain(edges).collect());
                }
                if seen.insert(line) {
                    path.push((at, line, before));
                    stack.extend(named(line, Some(path.len() - 1)));
                }
            }
        }
        None
    }

    /// Returns the duration of the longest wait of `txn`, if it waits.
    pub(crate) fn longest(&self, txn: TxnId) -> Option<Duration> {
        self.waits.get(&txn)?.iter().map(|wait| wait.since.elapsed()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_latch::lockstat::Class;
    use std::panic::Location;

    static CLASS: Class = Class::new("test.waits_for");

    const NOBODY: [u64; 0] = [];

    /// A graph, and the number of changes each partition has reported.
    #[derive(Default)]
    struct Node {
        graph: WaitsFor,
        numbers: HashMap<u16, u64>,
    }

    impl Node {
        fn number(&mut self, partition: u16) -> u64 {
            let number = self.numbers.entry(partition).or_default();
            *number += 1;
            *number
        }

        fn take(&mut self, partition: u16, number: u64, change: Change) -> Vec<u64> {
            let mut effects = Effects::default();
            self.graph.take(PartitionId(partition), number, change, &mut effects);
            effects.over.into_iter().for_each(Wait::end);
            effects.deadlocks.into_iter().map(|deadlock| deadlock.victim.txn.0).collect()
        }

        fn line(&mut self, partition: u16, line: u64, on: &[u64]) -> Vec<u64> {
            let number = self.number(partition);
            self.take(partition, number, updated(line, on))
        }

        /// The wait's number equals the transaction's.
        fn waits(&mut self, txn: u64, partition: u16, line: u64) -> Vec<u64> {
            let number = self.number(partition);
            self.take(partition, number, waiting(txn, line))
        }

        fn over(&mut self, txn: u64, partition: u16) {
            let number = self.number(partition);
            assert_eq!(
                self.take(
                    partition,
                    number,
                    Change::Over { txn: TxnId(txn), wait: txn, granted: true }
                ),
                NOBODY
            );
        }

        fn is_empty(&self) -> bool {
            let graph = &self.graph;
            graph.waits.is_empty()
                && graph.lines.is_empty()
                && graph.named.is_empty()
                && graph.orders.values().all(|order| order.early.is_empty())
        }
    }

    fn updated(line: u64, on: &[u64]) -> Change {
        Change::Line { line, on: on.iter().map(|i| TxnId(*i)).collect() }
    }

    fn waiting(txn: u64, line: u64) -> Change {
        waiting_with(txn, line, Stake::Rows(0))
    }

    fn waiting_with(txn: u64, line: u64, stake: Stake) -> Change {
        let (line, counted) = (Some(line), CLASS.wait(Location::caller()));
        Change::Waits {
            txn: TxnId(txn),
            wait: txn,
            stake,
            requester: None,
            line,
            wanted: None,
            counted,
        }
    }

    #[test]
    fn last_wait_finds_cycle_across_partitions() {
        let mut n = Node::default();
        for (txn, partition, on) in [(1, 0, 2), (2, 1, 3)] {
            assert_eq!(n.line(partition, 1, &[on]), NOBODY);
            assert_eq!(n.waits(txn, partition, 1), NOBODY);
        }
        assert_eq!(n.line(2, 1, &[9, 1]), NOBODY, "no transaction waits there");
        assert_eq!(n.waits(3, 2, 1), [3]);
        assert_eq!(n.waits(4, 2, 1), NOBODY, "the cycle is broken");
        n.over(3, 2);
        assert_eq!(n.waits(5, 0, 1), NOBODY);
    }

    /// Invariant 2: the blocker is gone, and its successor waits for a transaction behind it.
    #[test]
    fn updated_line_may_close_a_cycle() {
        let mut n = Node::default();
        n.line(0, 1, &[9]);
        for txn in [1, 2, 3] {
            assert_eq!(n.waits(txn, 0, 1), NOBODY);
        }
        n.line(1, 1, &[2]);
        assert_eq!(n.waits(1, 1, 1), NOBODY, "it waits at two partitions");
        n.over(1, 0);
        assert_eq!(n.line(0, 1, &[1]), [2], "2 waits for 1, and 1 for 2");
        assert_eq!(n.line(0, 1, &[1, 8]), NOBODY, "already reported");
    }

    #[test]
    fn ended_wait_closes_no_cycle() {
        let mut n = Node::default();
        n.line(0, 1, &[2]);
        assert_eq!(n.waits(1, 0, 1), NOBODY);
        n.over(1, 0);
        n.line(0, 1, &[]);
        n.line(0, 2, &[1]);
        assert_eq!(n.waits(2, 0, 2), NOBODY);
        n.over(2, 0);
        n.line(0, 2, &[]);
        assert!(n.is_empty());
    }

    /// Invariant 4: a wait and its end, and a line and its update, arrive in reverse order.
    #[test]
    fn changes_apply_in_partition_order() {
        let mut n = Node::default();
        let over = |txn| Change::Over { txn: TxnId(txn), wait: txn, granted: true };
        assert_eq!(n.take(0, 4, updated(1, &[])), NOBODY);
        assert_eq!(n.take(0, 3, over(1)), NOBODY);
        assert_eq!(n.take(0, 2, waiting(1, 1)), NOBODY);
        n.numbers.insert(1, 0);
        n.line(1, 1, &[1]);
        assert_eq!(n.waits(2, 1, 1), NOBODY);
        assert_eq!(n.take(0, 1, updated(1, &[2])), NOBODY, "1 no longer waits for 2");
        n.over(2, 1);
        n.line(1, 1, &[]);
        assert!(n.is_empty());
    }

    /// A deadlock that a late change completes is reported to the thread that delivers that change.
    #[test]
    fn late_change_finds_cycle_closed_by_queued_changes() {
        let mut n = Node::default();
        n.line(1, 1, &[1]);
        assert_eq!(n.waits(2, 1, 1), NOBODY);
        assert_eq!(n.take(0, 2, waiting(1, 1)), NOBODY);
        assert_eq!(n.take(0, 1, updated(1, &[2])), [2]);
    }

    /// Invariant 5, whichever transaction closes the cycle and wherever the victim waits.
    #[test]
    fn victim_has_the_smallest_stake() {
        use Stake::{Retry, Rows};
        let cases = [
            ([Rows(3), Rows(2), Rows(4)], 2),
            ([Rows(0), Retry(9), Rows(4)], 2),
            ([Retry(1), Retry(2), Retry(0)], 3),
            ([Rows(1), Rows(9), Rows(1)], 3),
            ([Rows(1), Rows(9), Rows(2)], 1),
        ];
        for (stakes, victim) in cases {
            let mut n = Node::default();
            let mut victims = Vec::new();
            for (txn, stake) in (1..).zip(stakes) {
                let partition = txn as u16;
                n.line(partition, 1, &[txn % 3 + 1]);
                let number = n.number(partition);
                victims.extend(n.take(partition, number, waiting_with(txn, 1, stake)));
            }
            assert_eq!(victims, [victim], "{stakes:?}");
        }
    }

    /// One wait in a line may close cycles that share nothing else.
    #[test]
    fn wait_that_closes_two_cycles_breaks_both() {
        let mut n = Node::default();
        n.line(0, 1, &[9]);
        for txn in [1, 2] {
            let number = n.number(0);
            assert_eq!(n.take(0, number, waiting_with(txn, 1, Stake::Rows(0))), NOBODY);
        }
        n.line(1, 1, &[1, 2]);
        let number = n.number(1);
        assert_eq!(n.take(1, number, waiting_with(9, 1, Stake::Rows(5))), [2, 1]);
    }

    #[cfg(shuttle)]
    #[test]
    fn canaries_are_found() {
        canary::assert_found(canary::BUGS_OF_DEADLOCKS, || {
            victim_has_the_smallest_stake();
            updated_line_may_close_a_cycle();
        });
    }
}

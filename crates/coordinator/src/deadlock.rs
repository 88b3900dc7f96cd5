//! The waits-for graph of the node: finds deadlocks, whatever partitions their waits are at.
//!
//! A transaction that waits for a lock waits in a *line* of its partition, and an edge leads from a
//! line to each of those that are named as in the way of all who wait there: to a few, of which the
//! first is sure to be in the way until the line is told anew ([`clearway_partition::Out::Line`]).
//! A crowd that waits for one row is one line, so a search is as long as the chain of locks,
//! whatever the number of those who wait.
//!
//! Claim: if some transactions can never go on, one of them is told so, at the latest when all
//! others that were in their way are gone. For each of them waits in a line. The first one named
//! there either is one of them, or ends or gives up some day, and then the line is told anew: as
//! there are finitely many, some day every first edge of theirs leads to one of them, and stays.
//! Follow these edges: there is a circle. It was closed by the change that came last: by a wait
//! that joined a line (1), or by a line that was told (2), and after each of these there was a
//! search. Conversely, whoever is told is in a circle of edges, each of which was true when it was
//! told; an edge that is true no longer leads to a transaction that is over, and so to nobody. A
//! transaction whose wait has ended meanwhile ignores that it was told.
//!
//! Each transaction of a circle waits for all that its line waits for, so the circle is broken
//! whichever of them gives up: the *victim*.
//!
//! Invariants
//! 1. When a transaction joins a line, and some line names it, there is a search for a way from it
//!    to itself.
//! 2. When a line is told anew, there is a search for a way from those that it names to one of its
//!    members.
//! 3. A circle that was found is broken: the wait of the victim is no edge any more. So there is
//!    none in the graph.
//! 4. The changes of a partition are applied in its order, whoever brings them when: what comes
//!    early is kept until all before it has come.
//! 5. The victim has the least at stake ([`Stake`]) of the circle, and of those that have as little
//!    the highest id.
//!
//! Locking: the engine keeps it behind a latch, which only waits and their time-outs take. A crash
//! leaves nothing.
//!
//! Source: Gray and Reuter, chapter 7.11; to find some deadlocks late rather than look at everybody
//! in line: ours.

mod long;
mod look;
mod report;

pub(crate) use long::Ended;
pub use long::LoggedWait;
pub(crate) use look::Names;
pub use look::{LockName, LockWait, WaitId, one_line};

use clearway_ir::Asker;
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
        asker: Option<Asker>,
        line: Option<u64>,
        wanted: Option<Arc<Wanted>>,
        counted: Wait,
    },
    /// These are in the line's way now; nobody: it is gone.
    Line { line: u64, on: Vec<TxnId> },
    /// The transaction waits no longer.
    Over { txn: TxnId, wait: u64, granted: bool },
}

/// What changes have led to.
#[derive(Default)]
pub(crate) struct Led {
    /// These must give up their waits.
    pub deadlocks: Vec<Deadlock>,
    /// Waits that are over: they are to be counted.
    pub over: Vec<Wait>,
    /// Those of them that were logged while they lasted.
    pub ended: Vec<Ended>,
}

/// Who gives up, and which wait.
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
    asker: Option<Asker>,
    line: Option<u64>,
    wanted: Option<Arc<Wanted>>,
    counted: Wait,
    since: Instant,
    /// It is to give up: invariant 3.
    told: bool,
    long: Long,
}

impl InLine {
    /// The line to which an edge leads.
    fn edge(&self) -> Option<LineId> {
        self.line.filter(|_| !self.told).map(|line| (self.partition, line))
    }
}

/// What a change has added.
enum Edge {
    /// The transaction has joined the line.
    Joined(TxnId, u64),
    /// The line was told anew.
    Told(u64),
}

/// A partition's changes.
#[derive(Default)]
struct Order {
    applied: u64,
    /// What came before its turn.
    early: BTreeMap<u64, Change>,
}

/// Who waits for whom.
#[derive(Default)]
pub(crate) struct WaitsFor {
    orders: HashMap<PartitionId, Order>,
    waits: HashMap<TxnId, Vec<InLine>>,
    lines: HashMap<LineId, Vec<TxnId>>,
    /// How many lines name a transaction.
    named: HashMap<TxnId, usize>,
}

impl WaitsFor {
    /// Takes the change with this number, which counts when all before it have come.
    pub(crate) fn take(
        &mut self,
        partition: PartitionId,
        number: u64,
        change: Change,
        led: &mut Led,
    ) {
        let order = self.orders.entry(partition).or_default();
        if number != order.applied + 1 {
            order.early.insert(number, change);
            return;
        }
        let mut changed = Vec::new();
        let mut next = Some(change);
        while let Some(change) = next {
            changed.extend(self.apply(partition, change, led));
            let order = self.orders.entry(partition).or_default();
            order.applied += 1;
            next = order.early.remove(&(order.applied + 1));
        }
        // Not before all of them are applied: what the last have ended is in no circle.
        for edge in changed {
            self.search(partition, edge, led);
        }
    }

    /// Applies a change; where it may have closed a circle.
    fn apply(&mut self, partition: PartitionId, change: Change, led: &mut Led) -> Option<Edge> {
        match change {
            Change::Waits { txn, wait, stake, asker, line, wanted, counted } => {
                let (since, told) = (Instant::now(), false);
                let long = Long::default();
                let waiting = InLine {
                    partition,
                    wait,
                    stake,
                    asker,
                    line,
                    wanted,
                    counted,
                    since,
                    told,
                    long,
                };
                self.waits.entry(txn).or_default().push(waiting);
                line.map(|line| Edge::Joined(txn, line))
            }
            Change::Line { line, on } => {
                let edge = (!on.is_empty()).then_some(Edge::Told(line));
                self.point((partition, line), on);
                edge
            }
            Change::Over { txn, wait, granted } => {
                let waits = self.waits.get_mut(&txn)?;
                let at = waits.iter().position(|w| (w.partition, w.wait) == (partition, wait));
                if let Some(InLine { counted, long, since, .. }) =
                    at.map(|at| waits.swap_remove(at))
                {
                    led.over.push(counted);
                    led.ended.extend(long.ended(since, granted));
                }
                if waits.is_empty() {
                    self.waits.remove(&txn);
                }
                None
            }
        }
    }

    /// Invariants 1 and 2.
    fn search(&mut self, partition: PartitionId, edge: Edge, led: &mut Led) {
        let (line, only) = match edge {
            Edge::Joined(txn, _) if !self.named.contains_key(&txn) => return,
            Edge::Told(_) if canary::on(Bug::SkippedSearch) => return,
            Edge::Joined(txn, line) => (line, Some(txn)),
            Edge::Told(line) => (line, None),
        };
        // The victim's wait is no edge any more, and there may be more circles.
        while let Some(circle) = self.circle((partition, line), only)
            && let Some(victim) = self.victim(&circle)
        {
            led.deadlocks.push(self.deadlock(victim, &circle));
            self.tell(victim);
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

    fn tell(&mut self, victim: Victim) {
        let waits = self.waits.get_mut(&victim.txn).into_iter().flatten();
        waits
            .filter(|w| (w.partition, w.wait) == (victim.partition, victim.wait))
            .for_each(|w| w.told = true);
    }

    /// Invariant 5.
    fn victim(&self, circle: &[(TxnId, LineId)]) -> Option<Victim> {
        let wait = |(txn, line): &(TxnId, LineId)| {
            let wait = self.waits.get(txn)?.iter().find(|w| w.edge() == Some(*line))?;
            Some((
                (wait.stake, Reverse(*txn)),
                Victim { txn: *txn, partition: wait.partition, wait: wait.wait },
            ))
        };
        let waits = circle.iter().filter_map(wait);
        let found = match canary::on(Bug::RichestVictim) {
            true => waits.max_by_key(|(stake, _)| *stake),
            false => waits.min_by_key(|(stake, _)| *stake),
        };
        found.map(|(_, victim)| victim)
    }

    /// A circle through the line, by way of this member of it if one is given: the transactions,
    /// and the line in which each waits. Each is in the way of the next one, and the last of the
    /// first.
    fn circle(&self, from: LineId, only: Option<TxnId>) -> Option<Vec<(TxnId, LineId)>> {
        let mut seen = HashSet::new();
        // Edges that were followed, each with the place of the one before it.
        let mut way: Vec<(TxnId, LineId, Option<usize>)> = Vec::new();
        let named = |line, before| {
            self.lines.get(&line).into_iter().flatten().map(move |txn| (*txn, before))
        };
        let mut stack: Vec<(TxnId, Option<usize>)> = named(from, None).collect();
        while let Some((at, before)) = stack.pop() {
            for line in self.waits.get(&at).into_iter().flatten().filter_map(InLine::edge) {
                if line == from && only.is_none_or(|only| only == at) {
                    let edges = std::iter::successors(before, |at| way[*at].2)
                        .map(|at| (way[at].0, way[at].1));
                    return Some(std::iter::once((at, line)).chain(edges).collect());
                }
                if seen.insert(line) {
                    way.push((at, line, before));
                    stack.extend(named(line, Some(way.len() - 1)));
                }
            }
        }
        None
    }

    /// How long the longest wait of `txn` lasts, if it waits.
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

    /// A graph, and how many changes each of its partitions has told.
    #[derive(Default)]
    struct Node {
        graph: WaitsFor,
        told: HashMap<u16, u64>,
    }

    impl Node {
        fn number(&mut self, partition: u16) -> u64 {
            let told = self.told.entry(partition).or_default();
            *told += 1;
            *told
        }

        fn take(&mut self, partition: u16, number: u64, change: Change) -> Vec<u64> {
            let mut led = Led::default();
            self.graph.take(PartitionId(partition), number, change, &mut led);
            led.over.into_iter().for_each(Wait::end);
            led.deadlocks.into_iter().map(|deadlock| deadlock.victim.txn.0).collect()
        }

        fn line(&mut self, partition: u16, line: u64, on: &[u64]) -> Vec<u64> {
            let number = self.number(partition);
            self.take(partition, number, told(line, on))
        }

        /// The transaction's number is that of its wait, too.
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

    fn told(line: u64, on: &[u64]) -> Change {
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
            asker: None,
            line,
            wanted: None,
            counted,
        }
    }

    #[test]
    fn a_cycle_over_three_partitions_is_found_by_the_wait_that_closes_it() {
        let mut n = Node::default();
        for (txn, partition, on) in [(1, 0, 2), (2, 1, 3)] {
            assert_eq!(n.line(partition, 1, &[on]), NOBODY);
            assert_eq!(n.waits(txn, partition, 1), NOBODY);
        }
        assert_eq!(n.line(2, 1, &[9, 1]), NOBODY, "nobody waits there");
        assert_eq!(n.waits(3, 2, 1), [3]);
        assert_eq!(n.waits(4, 2, 1), NOBODY, "the circle is broken");
        n.over(3, 2);
        assert_eq!(n.waits(5, 0, 1), NOBODY);
    }

    /// Invariant 2: who was in the way is gone, and who comes instead of him waits for one of those
    /// behind him.
    #[test]
    fn a_line_that_is_told_anew_may_close_a_circle() {
        let mut n = Node::default();
        n.line(0, 1, &[9]);
        for txn in [1, 2, 3] {
            assert_eq!(n.waits(txn, 0, 1), NOBODY);
        }
        n.line(1, 1, &[2]);
        assert_eq!(n.waits(1, 1, 1), NOBODY, "it waits at two partitions");
        n.over(1, 0);
        assert_eq!(n.line(0, 1, &[1]), [2], "it waits for the first, and the first for it");
        assert_eq!(n.line(0, 1, &[1, 8]), NOBODY, "that was told");
    }

    #[test]
    fn a_wait_that_is_over_closes_nothing() {
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

    /// Invariant 4: a wait and its end, and a line and its next state, come the other way round.
    #[test]
    fn changes_of_a_partition_count_in_its_order() {
        let mut n = Node::default();
        let over = |txn| Change::Over { txn: TxnId(txn), wait: txn, granted: true };
        assert_eq!(n.take(0, 4, told(1, &[])), NOBODY);
        assert_eq!(n.take(0, 3, over(1)), NOBODY);
        assert_eq!(n.take(0, 2, waiting(1, 1)), NOBODY);
        n.told.insert(1, 0);
        n.line(1, 1, &[1]);
        assert_eq!(n.waits(2, 1, 1), NOBODY);
        assert_eq!(
            n.take(0, 1, told(1, &[2])),
            NOBODY,
            "the first does not wait for the second any more"
        );
        n.over(2, 1);
        n.line(1, 1, &[]);
        assert!(n.is_empty());
    }

    /// A deadlock that comes to light when a late change has come is told to who brings that.
    #[test]
    fn a_late_change_finds_what_those_behind_it_close() {
        let mut n = Node::default();
        n.line(1, 1, &[1]);
        assert_eq!(n.waits(2, 1, 1), NOBODY);
        assert_eq!(n.take(0, 2, waiting(1, 1)), NOBODY);
        assert_eq!(n.take(0, 1, told(1, &[2])), [2]);
    }

    /// Invariant 5, whoever closes the circle, and at whatever partition the victim waits.
    #[test]
    fn the_victim_has_the_least_at_stake() {
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
            let mut told = Vec::new();
            for (txn, stake) in (1..).zip(stakes) {
                let partition = txn as u16;
                n.line(partition, 1, &[txn % 3 + 1]);
                let number = n.number(partition);
                told.extend(n.take(partition, number, waiting_with(txn, 1, stake)));
            }
            assert_eq!(told, [victim], "{stakes:?}");
        }
    }

    /// One wait in a line may close circles that share nothing else.
    #[test]
    fn a_wait_that_closes_two_circles_breaks_both() {
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
            the_victim_has_the_least_at_stake();
            a_line_that_is_told_anew_may_close_a_circle();
        });
    }
}

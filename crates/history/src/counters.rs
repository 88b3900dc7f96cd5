//! Derives the dependencies that one counter shows.
//!
//! Each addition to a counter adds another power of two, so the bits of a sum are the additions
//! that its reader saw. Additions commute: no edge orders two of them. A committed addition stays
//! in all later sums, so one that a sum lacks comes after the read. A sum with a bit that no
//! transaction added is reported and adds no edges.

use crate::dependencies::{Facts, NO_TXN};
use crate::graph::{Builder, RW, WR};
use crate::history::OpKind;
use crate::registers::add_product;
use crate::report::{Anomaly, HistoryReport, Order};
use crate::txn::TxnIndex;

/// The bits of a sum, including the sign, which no transaction adds.
const BITS: usize = 64;

/// Returns the powers of two that a sum consists of.
pub fn amounts(sum: u64) -> impl Iterator<Item = u64> {
    (0..BITS).map(|bit| 1 << bit).filter(move |amount| sum & amount != 0)
}

/// The state of one counter.
pub struct Counters<'f, 'h> {
    facts: &'f Facts<'h>,
    key: u32,
    name: &'h str,
    /// The transaction that added each power of two, or [`NO_TXN`].
    by: [u32; BITS],
    /// The sum of all additions, and of the committed ones.
    all: u64,
    committed: u64,
    /// Each committed transaction with additions, and their sum.
    added: Vec<(u32, u64)>,
    /// The sums that committed transactions read, each with its reader.
    reads: Vec<(u64, u32)>,
}

impl<'f, 'h> Counters<'f, 'h> {
    /// Finds the transaction of each addition.
    pub fn new(facts: &'f Facts<'h>, key: u32) -> Self {
        let (mut by, mut all, mut committed, mut added) = ([NO_TXN; BITS], 0, 0, Vec::new());
        for (txn, group) in facts.groups(key) {
            let mut sum = 0;
            for op in group.iter().map(|at| facts.op(*at)).filter(|op| op.kind == OpKind::Add) {
                by[op.value.trailing_zeros() as usize] = txn;
                sum |= op.value;
            }
            all |= sum;
            if sum != 0 && facts.committed[txn as usize] {
                committed |= sum;
                added.push((txn, sum));
            }
        }
        let name = &facts.history.keys[key as usize].name;
        Self { facts, key, name, by, all, committed, added, reads: Vec::new() }
    }

    /// Adds the edges, and reports the findings that are not cycles.
    pub fn add(mut self, builder: &mut Builder, report: &mut HistoryReport) {
        let mut updates = Vec::new();
        for (txn, group) in self.facts.committed_groups(self.key) {
            let (mut own, mut first_read) = (0, None);
            for op in group.iter().map(|at| self.facts.op(*at)) {
                if op.kind == OpKind::Add {
                    if own == 0 {
                        updates.extend(first_read.map(|sum| (sum, txn)));
                    }
                    own |= op.value;
                    continue;
                }
                if own == 0 {
                    first_read.get_or_insert(op.value);
                }
                if self.check(report, txn, op.value, own) {
                    self.reads.push((op.value, txn));
                }
            }
        }
        self.add_edges(builder);
        self.facts.lost_updates(report, self.key, updates);
    }

    /// Reports what a committed transaction should not have read, and what its read lacks. `own` is
    /// what it had added before. Returns false if the sum does not show which additions it has.
    fn check(&self, report: &mut HistoryReport, txn: u32, sum: u64, own: u64) -> bool {
        // The common case: exactly the committed additions.
        if sum == self.committed {
            return true;
        }
        let (reader, shown, name) = (TxnIndex(txn), sum as i64, self.name);
        let garbage = sum & !self.all;
        if garbage != 0 {
            self.facts.report(report, Anomaly::Garbage, &[txn], || {
                let amounts: Vec<String> =
                    amounts(garbage).map(|amount| (amount as i64).to_string()).collect();
                let amounts = amounts.join(", ");
                format!("{reader} read {shown} from {name}, but no transaction added {amounts}")
            });
            return false;
        }
        let mut reported = NO_TXN;
        for amount in amounts(sum & !self.committed) {
            let writer = self.by[amount.trailing_zeros() as usize];
            if std::mem::replace(&mut reported, writer) != writer {
                self.facts.report(report, Anomaly::G1a, &[writer, txn], || {
                    format!(
                        "{reader} read {shown} from {name}, with the {amount} of {}, \
                         which was rolled back",
                        TxnIndex(writer)
                    )
                });
            }
        }
        if let Some(amount) = amounts(own & !sum).next() {
            self.facts.report(report, Anomaly::LostAddition, &[txn], || {
                format!(
                    "{reader} read {shown} from {name}, without the {amount} that it had added \
                     itself"
                )
            });
        }
        self.check_committed(report, txn, sum);
        true
    }

    /// Reports transactions of which the reader saw only a part, or nothing although they had ended
    /// before it started.
    fn check_committed(&self, report: &mut HistoryReport, txn: u32, sum: u64) {
        if sum & self.committed == self.committed {
            return;
        }
        let (heads, shown, name) = (&self.facts.history.heads, sum as i64, self.name);
        let lacking = self.added.iter().filter(|(writer, _)| *writer != txn);
        for (writer, added) in lacking.copied() {
            let Some(missing) = amounts(added & !sum).next() else { continue };
            let (by, reader) = (TxnIndex(writer), TxnIndex(txn));
            if let Some(seen) = amounts(added & sum).next() {
                self.facts.report(report, Anomaly::G1b, &[writer, txn], || {
                    format!(
                        "{reader} read {shown} from {name}, with the {seen} that {by} added, but \
                         without its {missing}"
                    )
                });
            }
            let (end, start) = (heads[writer as usize].end, heads[txn as usize].start);
            if self.facts.options.real_time && end < start {
                let lost = (Anomaly::LostAddition, Order::RealTime);
                self.facts.report_in(report, lost, &[writer, txn], || {
                    format!(
                        "{reader} started at {start} and read {shown} from {name}, without the \
                         {missing} that {by} had added before it ended at {end}"
                    )
                });
            }
        }
    }

    /// Adds an edge from each transaction to the readers that saw an addition of it, and from each
    /// reader to the transactions whose additions it lacks.
    fn add_edges(&mut self, builder: &mut Builder) {
        self.reads.sort_unstable();
        self.reads.dedup();
        for group in self.reads.chunk_by(|a, b| a.0 == b.0) {
            let sum = group[0].0;
            let readers: Vec<u32> = group.iter().map(|(_, txn)| *txn).collect();
            let with = |bits: u64| {
                let some = self.added.iter().filter(move |(_, added)| added & bits != 0);
                some.map(|(txn, _)| *txn).collect::<Vec<u32>>()
            };
            add_product(builder, &with(sum), &readers, WR, self.key);
            add_product(builder, &readers, &with(!sum), RW, self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_split_into_its_powers_of_two() {
        assert_eq!(amounts(0).count(), 0);
        assert_eq!(amounts(13).collect::<Vec<_>>(), [1, 4, 8]);
        assert_eq!(amounts(-1_i64 as u64).count(), BITS);
        assert_eq!(amounts(i64::MAX as u64).max(), Some(1 << 62));
    }
}

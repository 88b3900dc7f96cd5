//! Brute force: tries the serial orders of a history.

use crate::draft::{Draft, KEYS, Kind, State, key_of};
use clearway_history::{Op, Txn, TxnOutcome};
use std::collections::HashSet;

impl Draft {
    /// Returns true if real time or a session orders the first transaction before the second.
    pub fn is_before(&self, first: usize, second: usize) -> bool {
        let (a, b) = (&self.txns[first], &self.txns[second]);
        a.end.is_some_and(|end| end < b.start)
            || a.session == b.session && (a.start, first) < (b.start, second)
    }

    /// Returns true if a serial order of all committed transactions, and of any with an unknown
    /// outcome, explains every read.
    pub fn has_serial_order(&self, real_time: bool) -> bool {
        self.can_continue(real_time, &mut Vec::new(), &State::default(), &mut HashSet::new())
    }

    /// Returns true if a serial order can continue after the transactions in `order`, which left
    /// this state. `refuted` has the remaining transactions and states from which none can.
    fn can_continue(
        &self,
        real_time: bool,
        order: &mut Vec<usize>,
        state: &State,
        refuted: &mut HashSet<(Vec<usize>, State)>,
    ) -> bool {
        let is_left = |txn: &usize| !order.contains(txn);
        let left: Vec<usize> = (0..self.txns.len()).filter(is_left).collect();
        let is_committed = |txn: &usize| self.txns[*txn].outcome == TxnOutcome::Committed;
        if !left.iter().any(is_committed) {
            return true;
        }
        if refuted.contains(&(left.clone(), state.clone())) {
            return false;
        }
        let mut next = Vec::new();
        for txn in left.iter().filter(|txn| self.txns[**txn].outcome != TxnOutcome::Aborted) {
            if real_time && order.iter().any(|earlier| self.is_before(*txn, *earlier)) {
                continue;
            }
            let mut after = state.clone();
            if !self.txns[*txn].ops.iter().all(|op| self.execute(&mut after, op) == *op) {
                continue;
            }
            // One that only reads can as well run at once, unless another must precede it.
            let must_wait = real_time && left.iter().any(|other| self.is_before(*other, *txn));
            if after == *state && !must_wait {
                next = vec![(*txn, after)];
                break;
            }
            next.push((*txn, after));
        }
        for (txn, after) in next {
            order.push(txn);
            let is_found = self.can_continue(real_time, order, &after, refuted);
            order.pop();
            if is_found {
                return true;
            }
        }
        refuted.insert((left, state.clone()));
        false
    }

    /// Returns true if the reads show the order of all versions, so that the checker must find
    /// every wrong history. Reads of lists and of counters always do. Those of a register do
    /// - if at most one transaction writes it,
    /// - if each of its writers reads it first, or
    /// - with real time, if all of its readers start after the ends of all of its writers.
    pub fn shows_all_orders(&self, real_time: bool) -> bool {
        let mut registers = (0..KEYS).filter(|at| self.kinds[*at] == Kind::Register);
        registers.all(|at| {
            // The transactions that access the register, each with whether its first access reads.
            let (mut writers, mut readers) = (Vec::<(&Txn, bool)>::new(), Vec::<&Txn>::new());
            for txn in self.txns.iter().filter(|txn| txn.outcome != TxnOutcome::Aborted) {
                let mut ops = txn.ops.iter().filter(|op| key_of(op) == self.keys[at]);
                let Some(first) = ops.next() else { continue };
                if !first.is_write() {
                    readers.push(txn);
                }
                if first.is_write() || ops.any(Op::is_write) {
                    writers.push((txn, !first.is_write()));
                }
            }
            let ends = writers.iter().map(|(txn, _)| txn.end.unwrap_or(u64::MAX));
            let end = ends.max().unwrap_or(0);
            writers.len() <= 1
                || writers.iter().all(|(_, reads_first)| *reads_first)
                || real_time && readers.iter().all(|txn| txn.start > end)
        })
    }
}

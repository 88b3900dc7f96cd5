//! What a coordinator that orders all transactions at several partitions knows about their order.
//!
//! A transaction that has run behind others at a partition must not commit before them. Elsewhere
//! it asks the partition ([`Control::Settle`](clearway_coordinator::protocol::Control::Settle)).
//! Here the coordinator has decided those others itself, so it answers the question.
//!
//! Invariants
//! 1. `lines` holds the transactions at a partition whose ends have not been sent there, in the
//!    order in which they were sent. Messages keep that order, so it is also the partition's.
//! 2. After an abort, only the partition knows which of the later transactions have been undone.
//!    Their questions go there.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.2 (dependencies within one coordinator).

use crate::participant::{Entry, SessionId};
use clearway_types::{PartitionId, TxnId};
use hashbrown::HashSet;
use std::collections::VecDeque;

/// What becomes of a transaction's question.
#[derive(Debug)]
pub(crate) enum Question {
    /// All transactions before it have committed.
    Answered(SessionId, Entry),
    /// It goes to the partition.
    Forwarded(PartitionId, Entry),
}

/// The order of the transactions at several partitions.
#[derive(Debug)]
pub(crate) struct CentralOrder {
    lines: Vec<VecDeque<TxnId>>,
    /// Transactions that may have been undone at a partition.
    doubtful: HashSet<(TxnId, PartitionId)>,
    /// Questions without an answer.
    held: Vec<(PartitionId, Entry)>,
}

impl CentralOrder {
    pub(crate) fn new(partitions: u16) -> Self {
        let lines = vec![VecDeque::new(); usize::from(partitions)];
        Self { lines, doubtful: HashSet::new(), held: Vec::new() }
    }

    fn line(&mut self, at: PartitionId) -> &mut VecDeque<TxnId> {
        &mut self.lines[usize::from(at.0)]
    }

    /// Records that the first fragment of a transaction is sent to a partition.
    pub(crate) fn sent(&mut self, txn: TxnId, at: PartitionId) {
        self.line(at).push_back(txn);
    }

    /// Decides about a question whether all before the transaction have committed there.
    pub(crate) fn ask(&mut self, at: PartitionId, question: Entry) -> Option<Question> {
        let txn = question.txn;
        if self.doubtful.contains(&(txn, at)) {
            return Some(Question::Forwarded(at, question));
        }
        if self.line(at).front() == Some(&txn) {
            return Some(Question::Answered(question.session, question));
        }
        self.held.push((at, question));
        None
    }

    /// Records that the end of a transaction is sent to a partition. Returns the questions that
    /// this decides.
    pub(crate) fn ended(&mut self, txn: TxnId, at: PartitionId, commits: bool) -> Vec<Question> {
        self.doubtful.remove(&(txn, at));
        let line = &mut self.lines[usize::from(at.0)];
        let Some(place) = line.iter().position(|other| *other == txn) else { return Vec::new() };
        line.remove(place);
        if !commits {
            self.doubtful.extend(line.iter().skip(place).map(|later| (*later, at)));
        }
        let (now, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|(to, _)| *to == at);
        self.held = held;
        now.into_iter().filter_map(|(to, question)| self.ask(to, question)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::participant::Command;
    use clearway_coordinator::protocol::Control;

    const AT: PartitionId = PartitionId(0);
    const A: TxnId = TxnId(1);
    const B: TxnId = TxnId(2);
    const C: TxnId = TxnId(3);

    fn question(txn: TxnId) -> Entry {
        Entry { txn, session: 7, seq: 1, command: Command::Control(Control::Settle) }
    }

    fn order() -> CentralOrder {
        let mut order = CentralOrder::new(1);
        [A, B, C].into_iter().for_each(|txn| order.sent(txn, AT));
        order
    }

    #[test]
    fn a_question_is_answered_when_all_before_have_committed() {
        let mut order = order();
        assert!(order.ask(AT, question(C)).is_none());
        assert!(order.ended(B, AT, true).is_empty(), "A is undecided");
        let answered = order.ended(A, AT, true);
        assert!(matches!(&answered[..], [Question::Answered(7, entry)] if entry.txn == C));
    }

    #[test]
    fn after_an_abort_the_partition_is_asked() {
        let mut order = order();
        assert!(order.ask(AT, question(B)).is_none());
        let forwarded = order.ended(A, AT, false);
        assert!(matches!(&forwarded[..], [Question::Forwarded(AT, entry)] if entry.txn == B));
        assert!(matches!(order.ask(AT, question(C)), Some(Question::Forwarded(..))));
    }
}

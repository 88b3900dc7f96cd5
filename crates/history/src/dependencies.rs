//! Derives facts that all keys share: which transactions committed, which transaction wrote each
//! value, and which operations access each key.

use crate::graph::Builder;
use crate::history::{History, ObjectKind, OpKind, PackedOp};
use crate::internal::{self, Internal};
use crate::report::{Anomaly, HistoryFinding, HistoryReport, Order};
use crate::txn::{Key, TxnIndex, TxnOutcome};
use crate::{counters, lists, registers};
use hashbrown::HashMap;

/// Stands for no transaction.
pub const NO_TXN: u32 = u32::MAX;

/// The history and everything derived from it before the dependencies.
pub struct Facts<'h> {
    pub history: &'h History,
    /// Whether each transaction committed: its commit was acknowledged, or its writes were seen.
    pub committed: Vec<bool>,
    /// The transaction of each operation.
    pub owner: Vec<u32>,
    /// Operations, sorted by key.
    by_key: Vec<u32>,
    starts: Vec<u32>,
    pub options: crate::CheckerOptions,
}

/// Finds the transactions with an unknown outcome whose writes were seen, and takes their reads
/// into account.
///
/// Returns whether each transaction committed, and the internal contradictions in the transactions
/// found.
pub fn resolve_unknown(history: &mut History) -> (Vec<bool>, Vec<Internal>) {
    let mut committed: Vec<bool> =
        history.heads.iter().map(|h| h.outcome == TxnOutcome::Committed).collect();
    let mut internal = Vec::new();
    let mut pending: Vec<u32> = Vec::new();
    if history.heads.iter().all(|h| h.outcome != TxnOutcome::Unknown) {
        return (committed, internal);
    }
    let mut mark_seen = |history: &History, pending: &mut Vec<u32>, key: u32, value: u64| {
        let Some(writer) = history.writers.get(&(key, value)).map(|op| history.owner(*op)) else {
            return;
        };
        if history.heads[writer as usize].outcome == TxnOutcome::Unknown
            && !committed[writer as usize]
        {
            committed[writer as usize] = true;
            pending.push(writer);
        }
    };
    for (key, state) in history.keys.iter().enumerate() {
        state.longest.iter().for_each(|value| mark_seen(history, &mut pending, key as u32, *value));
    }
    for txn in (0..history.heads.len() as u32)
        .filter(|t| history.heads[*t as usize].outcome == TxnOutcome::Committed)
    {
        for op in &history.ops[history.range(txn)] {
            match op.kind {
                OpKind::Read => mark_seen(history, &mut pending, op.key, op.value),
                OpKind::Sum => counters::amounts(op.value)
                    .for_each(|value| mark_seen(history, &mut pending, op.key, value)),
                OpKind::Divergent => history
                    .list(op)
                    .iter()
                    .for_each(|v| mark_seen(history, &mut pending, op.key, *v)),
                _ => {}
            }
        }
    }
    while let Some(txn) = pending.pop() {
        let index = TxnIndex(txn);
        internal.extend(
            internal::find(&history.txn(index).ops).map(|found| Internal { txn: index, ..found }),
        );
        for at in history.range(txn) {
            let PackedOp { key, kind, value } = history.ops[at];
            match kind {
                OpKind::Read => mark_seen(history, &mut pending, key, value),
                OpKind::Sum => counters::amounts(value)
                    .for_each(|value| mark_seen(history, &mut pending, key, value)),
                OpKind::Divergent => {
                    let list = history.divergent[value as usize].clone();
                    list.iter().for_each(|value| mark_seen(history, &mut pending, key, *value));
                    let (kind, value) = history.add_list(Key(key), list);
                    history.ops[at] = PackedOp { key, kind, value };
                }
                _ => {}
            }
        }
    }
    (committed, internal)
}

impl<'h> Facts<'h> {
    /// Sorts the operations by key.
    pub fn new(history: &'h History, committed: Vec<bool>, options: crate::CheckerOptions) -> Self {
        let mut owner = vec![0; history.ops.len()];
        for txn in 0..history.heads.len() as u32 {
            owner[history.range(txn)].fill(txn);
        }
        let mut starts = vec![0_u32; history.keys.len() + 1];
        for op in &history.ops {
            starts[op.key as usize + 1] += 1;
        }
        for key in 0..history.keys.len() {
            starts[key + 1] += starts[key];
        }
        let mut next = starts.clone();
        let mut by_key = vec![0; history.ops.len()];
        for (at, op) in history.ops.iter().enumerate() {
            let next = &mut next[op.key as usize];
            by_key[*next as usize] = at as u32;
            *next += 1;
        }
        Self { history, committed, owner, by_key, starts, options }
    }

    /// Returns the operations on a key, grouped by transaction, each group in execution order.
    pub fn groups(&self, key: u32) -> impl Iterator<Item = (u32, &[u32])> {
        let range = self.starts[key as usize] as usize..self.starts[key as usize + 1] as usize;
        let same = |a: &u32, b: &u32| self.owner[*a as usize] == self.owner[*b as usize];
        self.by_key[range].chunk_by(same).map(|group| (self.owner[group[0] as usize], group))
    }

    /// Returns the groups of [`Facts::groups`] whose transactions committed.
    pub fn committed_groups(&self, key: u32) -> impl Iterator<Item = (u32, &[u32])> {
        self.groups(key).filter(|(txn, _)| self.committed[*txn as usize])
    }

    /// Returns an operation.
    pub fn op(&self, at: u32) -> PackedOp {
        self.history.ops[at as usize]
    }

    /// Reports a finding that is not a cycle.
    pub fn report(
        &self,
        report: &mut HistoryReport,
        anomaly: Anomaly,
        txns: &[u32],
        text: impl FnOnce() -> String,
    ) {
        self.report_in(report, (anomaly, Order::Data), txns, text);
    }

    /// Reports a finding as [`Facts::report`] does, for a contradiction of the given order.
    pub fn report_in(
        &self,
        report: &mut HistoryReport,
        (anomaly, order): (Anomaly, Order),
        txns: &[u32],
        text: impl FnOnce() -> String,
    ) {
        report.add((anomaly, order), self.options.examples, || HistoryFinding {
            anomaly,
            order,
            text: text(),
            steps: Vec::new(),
            transactions: txns.iter().map(|t| (TxnIndex(*t), self.history.describe(*t))).collect(),
        });
    }

    /// Adds the edges of all keys, and reports the findings that are not cycles.
    pub fn add_all(&self, builder: &mut Builder, report: &mut HistoryReport) {
        for (key, state) in self.history.keys.iter().enumerate() {
            let key = key as u32;
            match state.kind {
                Some(ObjectKind::List) => lists::Lists::new(self, key).add(builder, report),
                Some(ObjectKind::Register) => {
                    registers::Registers::new(self, key).add(builder, report)
                }
                Some(ObjectKind::Counter) => {
                    counters::Counters::new(self, key).add(builder, report)
                }
                None => {}
            }
        }
    }

    /// Reports transactions that read the same version of a key and each replaced it. Each of
    /// `entries` is a version and a transaction.
    pub fn lost_updates(&self, report: &mut HistoryReport, key: u32, mut entries: Vec<(u64, u32)>) {
        entries.sort_unstable();
        for group in entries.chunk_by(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let txns: Vec<u32> = group.iter().map(|(_, txn)| *txn).collect();
            self.report(report, Anomaly::LostUpdate, &txns, || {
                let names: Vec<String> = txns.iter().map(|t| TxnIndex(*t).to_string()).collect();
                let name = &self.history.keys[key as usize].name;
                format!(
                    "{} all read the same version of {name}, and each changed it",
                    names.join(", ")
                )
            });
        }
    }
}

/// Returns the first value that occurs twice.
pub fn repeated(list: &[u64]) -> Option<u64> {
    let mut seen = HashMap::with_capacity(list.len());
    list.iter().find(|value| seen.insert(**value, ()).is_some()).copied()
}

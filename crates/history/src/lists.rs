//! Derives the dependencies that one list shows.
//!
//! The longest list that was read gives the order of its elements. A committed append that no read
//! shows comes after it: every committed append is in the final list, and each list that was read
//! is a prefix of the final list. Lists that are not a prefix of the longest one are reported and
//! add no edges.

use crate::dependencies::{Facts, NO_TXN, repeated};
use crate::graph::{Builder, RW, WR, WW};
use crate::history::OpKind;
use crate::report::{Anomaly, HistoryReport};
use crate::txn::TxnIndex;
use hashbrown::HashMap;

/// The state of one list.
pub struct Lists<'f, 'h> {
    facts: &'f Facts<'h>,
    key: u32,
    name: &'h str,
    longest: &'h [u64],
    /// The committed transaction that appended each element, or [`NO_TXN`].
    by: Vec<u32>,
    /// The position of each committed append in the longest list.
    position: HashMap<u32, usize>,
    /// The last append of each transaction.
    last: HashMap<u32, u32>,
    /// Transactions with committed appends that no read shows.
    unseen: Vec<u32>,
    /// Transactions that read the whole longest list.
    readers_of_longest: Vec<u32>,
}

impl<'f, 'h> Lists<'f, 'h> {
    /// Finds the writer of each element.
    pub fn new(facts: &'f Facts<'h>, key: u32) -> Self {
        let state = &facts.history.keys[key as usize];
        let (mut by, mut position) = (Vec::with_capacity(state.longest.len()), HashMap::new());
        for (at, value) in state.longest.iter().enumerate() {
            let writer = facts.history.writers.get(&(key, *value)).copied();
            let txn = writer
                .map(|op| facts.owner[op as usize])
                .filter(|txn| facts.committed[*txn as usize]);
            by.push(txn.unwrap_or(NO_TXN));
            position.extend(writer.filter(|_| txn.is_some()).map(|op| (op, at)));
        }
        let mut last = HashMap::new();
        for (txn, group) in facts.committed_groups(key) {
            let append = group.iter().rev().find(|op| facts.op(**op).kind == OpKind::Append);
            last.extend(append.map(|op| (txn, *op)));
        }
        let (unseen, readers_of_longest) = (Vec::new(), Vec::new());
        let (name, longest) = (&state.name, &state.longest);
        Self { facts, key, name, longest, by, position, last, unseen, readers_of_longest }
    }

    /// Adds the edges, and reports the findings that are not cycles.
    pub fn add(mut self, builder: &mut Builder, report: &mut HistoryReport) {
        let mut updates = Vec::new();
        let is_sound = repeated(self.longest).is_none();
        for (txn, group) in self.facts.committed_groups(self.key) {
            let (mut first_read, mut appended, mut previous) = (None, false, None);
            for at in group {
                let op = self.facts.op(*at);
                match op.kind {
                    OpKind::Append => {
                        self.check_own_order(report, txn, *at, &mut previous);
                        if let (Some(version), false) = (first_read, appended) {
                            updates.push((version, txn));
                        }
                        appended = true;
                    }
                    OpKind::Prefix => {
                        self.check_elements(report, txn, &self.longest[..op.value as usize]);
                        if is_sound {
                            self.read(builder, report, txn, op.value as usize);
                        }
                        if !appended {
                            first_read.get_or_insert(op.value);
                        }
                    }
                    OpKind::Divergent => self.divergent(report, txn, self.facts.history.list(&op)),
                    _ => {}
                }
            }
        }
        if is_sound {
            self.writes(builder);
        }
        self.facts.lost_updates(report, self.key, updates);
    }

    /// Reports elements that a committed transaction should not have read.
    fn check_elements(&self, report: &mut HistoryReport, txn: u32, list: &[u64]) {
        let is_longest = list.len() <= self.longest.len() && list == &self.longest[..list.len()];
        // The common case: all elements are of committed transactions.
        if is_longest
            && !self.by[..list.len()].contains(&NO_TXN)
            && self.position.len() == self.longest.len()
        {
            return;
        }
        if let Some(value) = repeated(list) {
            self.facts.report(report, Anomaly::Duplicate, &[txn], || {
                format!(
                    "{} read {list:?} from {}, which contains {value} twice",
                    TxnIndex(txn),
                    self.name
                )
            });
        }
        for value in list {
            let Some(op) = self.facts.history.writers.get(&(self.key, *value)) else {
                self.facts.report(report, Anomaly::Garbage, &[txn], || {
                    format!(
                        "{} read {value} from {}, which no transaction appended",
                        TxnIndex(txn),
                        self.name
                    )
                });
                continue;
            };
            let writer = self.facts.owner[*op as usize];
            if !self.facts.committed[writer as usize] {
                self.facts.report(report, Anomaly::G1a, &[writer, txn], || {
                    let (reader, writer) = (TxnIndex(txn), TxnIndex(writer));
                    format!(
                        "{reader} read {value} from {}, appended by {writer}, which was rolled back",
                        self.name
                    )
                });
            }
        }
    }

    fn divergent(&self, report: &mut HistoryReport, txn: u32, list: &[u64]) {
        self.check_elements(report, txn, list);
        self.facts.report(report, Anomaly::IncompatibleOrder, &[txn], || {
            let (name, longest) = (self.name, self.longest);
            format!(
                "{} read {list:?} from {name}, but another transaction read {longest:?}",
                TxnIndex(txn)
            )
        });
    }

    /// Checks that a transaction's appends are in the order in which it made them. `previous` is
    /// the latest of its earlier appends.
    fn check_own_order(
        &mut self,
        report: &mut HistoryReport,
        txn: u32,
        op: u32,
        previous: &mut Option<(u64, usize)>,
    ) {
        let value = self.facts.op(op).value;
        let at = self.position.get(&op).copied().unwrap_or(usize::MAX);
        if at == usize::MAX {
            self.unseen.push(txn);
        }
        if let Some((before, _)) = previous.filter(|(_, before)| at < *before) {
            self.facts.report(report, Anomaly::IncompatibleOrder, &[txn], || {
                let (txn, name) = (TxnIndex(txn), self.name);
                format!(
                    "{txn} appended {before} and then {value} to {name}, but {:?} was read",
                    self.longest
                )
            });
        }
        *previous = Some((value, at));
    }

    /// Adds the edges of a read of the first `length` elements.
    fn read(&mut self, builder: &mut Builder, report: &mut HistoryReport, txn: u32, length: usize) {
        // The transaction's own appends are no dependency; the version before them is.
        let own = self.by[..length].iter().rev().take_while(|by| **by == txn).count();
        let base = length - own;
        if base > 0 && self.by[base - 1] != NO_TXN {
            let writer = self.by[base - 1];
            builder.add(writer, txn, WR, self.key);
            let last = self.last.get(&writer);
            if last.is_some_and(|last| self.position.get(last) != Some(&(base - 1))) {
                self.facts.report(report, Anomaly::G1b, &[writer, txn], || {
                    let (reader, value, name) = (TxnIndex(txn), self.longest[base - 1], self.name);
                    let writer = TxnIndex(writer);
                    format!(
                        "{reader} read {name} up to {value}, but {writer} appended more after it"
                    )
                });
            }
        }
        if own > 0 {
            return;
        }
        match self.by[length..].iter().find(|by| **by != NO_TXN) {
            Some(next) => builder.add(txn, *next, RW, self.key),
            None => self.readers_of_longest.push(txn),
        }
    }

    /// Adds the edges between the writers, and to the appends that no read shows.
    fn writes(&self, builder: &mut Builder) {
        let mut writers = self.by.iter().copied().filter(|by| *by != NO_TXN);
        let mut before = writers.next();
        for writer in writers {
            builder.add(before.unwrap_or(writer), writer, WW, self.key);
            before = Some(writer);
        }
        for unseen in &self.unseen {
            if let Some(before) = before {
                builder.add(before, *unseen, WW, self.key);
            }
        }
        if self.unseen.len() <= 1 || self.readers_of_longest.len() <= 1 {
            for (reader, unseen) in
                self.readers_of_longest.iter().flat_map(|r| self.unseen.iter().map(move |u| (r, u)))
            {
                builder.add(*reader, *unseen, RW, self.key);
            }
            return;
        }
        let (readers, writers) = (&self.readers_of_longest, &self.unseen);
        crate::registers::add_product(builder, readers, writers, RW, self.key);
    }
}

//! Derives the dependencies that one register shows.

use crate::dependencies::Facts;
use crate::graph::{Builder, NO_KEY, RW, RW_TIME, VIA, WR, WW, WW_TIME};
use crate::history::OpKind;
use crate::report::{Anomaly, HistoryReport, Order};
use crate::txn::TxnIndex;
use crate::versions::{self, Pair, Use};
use hashbrown::{HashMap, HashSet};

/// If readers times writers exceeds this, a hidden node between them replaces the product of edges.
const PRODUCT_LIMIT: usize = 16;

/// A version that a committed transaction wrote last.
#[derive(Clone, Copy)]
struct Version {
    value: u64,
    writer: u32,
}

/// The state of one register.
pub struct Registers<'f, 'h> {
    facts: &'f Facts<'h>,
    key: u32,
    name: &'h str,
    /// Versions from 1 on; 0 is the state before the first write.
    versions: Vec<Version>,
    /// The version of each value.
    index: HashMap<u64, u32>,
    /// Pairs of a version and a transaction that read it, except for reads of its own writes.
    readers: Vec<(u32, u32)>,
    /// Pairs of versions such that a transaction read the first and then wrote the second.
    follows: Vec<(u32, u32)>,
    updates: Vec<(u64, u32)>,
    /// The uses of each version by the writers alone, and by all transactions.
    uses: [Vec<Use>; 2],
}

impl<'f, 'h> Registers<'f, 'h> {
    /// Finds the versions.
    pub fn new(facts: &'f Facts<'h>, key: u32) -> Self {
        let mut versions = vec![Version { value: 0, writer: u32::MAX }];
        let mut index = HashMap::new();
        for (txn, group) in facts.committed_groups(key) {
            let write =
                group.iter().rev().map(|op| facts.op(*op)).find(|op| op.kind == OpKind::Write);
            if let Some(op) = write {
                index.insert(op.value, versions.len() as u32);
                versions.push(Version { value: op.value, writer: txn });
            }
        }
        let unused = Use { left: u64::MAX, found: 0 };
        let uses = [vec![unused; versions.len()], vec![unused; versions.len()]];
        let name = &facts.history.keys[key as usize].name;
        let (readers, follows, updates) = (Vec::new(), Vec::new(), Vec::new());
        Self { facts, key, name, versions, index, readers, follows, updates, uses }
    }

    /// Adds the edges, and reports the findings that are not cycles.
    pub fn add(mut self, builder: &mut Builder, report: &mut HistoryReport) {
        for (txn, group) in self.facts.committed_groups(self.key) {
            self.add_transaction(builder, report, txn, group);
        }
        self.readers.sort_unstable();
        self.readers.dedup();
        for (version, reader) in self.readers.iter().filter(|(version, _)| *version > 0) {
            builder.add(self.versions[*version as usize].writer, *reader, WR, self.key);
        }
        let pairs = self.order(report);
        self.add_order(builder, &pairs);
        self.facts.lost_updates(report, self.key, std::mem::take(&mut self.updates));
    }

    /// Processes the operations of one transaction.
    fn add_transaction(
        &mut self,
        builder: &mut Builder,
        report: &mut HistoryReport,
        txn: u32,
        group: &[u32],
    ) {
        let (mut first, mut seen, mut last, mut wrote) = (None, None, None, false);
        for op in group.iter().map(|at| self.facts.op(*at)) {
            let version = match op.kind {
                OpKind::Write => {
                    wrote = true;
                    // Values that the transaction itself overwrote are no versions.
                    self.index.get(&op.value).copied()
                }
                // A read of its own write is no dependency.
                _ if wrote => continue,
                OpKind::ReadNothing => Some(0),
                _ => self.read(builder, report, txn, op.value),
            };
            if let (Some(version), false) = (version, wrote) {
                self.readers.push((version, txn));
                seen = Some(version);
            }
            first = first.or(version);
            last = version.or(last);
        }
        if let (Some(seen), Some(last), true) = (seen, last, wrote) {
            self.follows.push((seen, last));
            self.updates.push((u64::from(seen), txn));
        }
        let head = self.facts.history.heads[txn as usize];
        for (uses, counts) in self.uses.iter_mut().zip([wrote, true]) {
            if let Some(first) = first.filter(|_| counts) {
                // For a transaction that only writes, only its own version is known.
                let first = if wrote && seen.is_none() { last.unwrap_or(first) } else { first };
                let found = &mut uses[first as usize].found;
                *found = head.start.max(*found);
            }
            if let Some(last) = last.filter(|_| counts) {
                let left = &mut uses[last as usize].left;
                *left = head.end.min(*left);
            }
        }
    }

    /// Returns the version with this value. Reports a value that is not a version.
    fn read(
        &self,
        builder: &mut Builder,
        report: &mut HistoryReport,
        txn: u32,
        value: u64,
    ) -> Option<u32> {
        if let Some(version) = self.index.get(&value) {
            return Some(*version);
        }
        let Some(op) = self.facts.history.writers.get(&(self.key, value)) else {
            self.facts.report(report, Anomaly::Garbage, &[txn], || {
                format!(
                    "{} read {value} from {}, which no transaction wrote",
                    TxnIndex(txn),
                    self.name
                )
            });
            return None;
        };
        let writer = self.facts.owner[*op as usize];
        let (reader, by) = (TxnIndex(txn), TxnIndex(writer));
        if self.facts.committed[writer as usize] {
            builder.add(writer, txn, WR, self.key);
            self.facts.report(report, Anomaly::G1b, &[writer, txn], || {
                format!("{reader} read {value} from {}, which {by} overwrote itself", self.name)
            });
        } else {
            self.facts.report(report, Anomaly::G1a, &[writer, txn], || {
                format!(
                    "{reader} read {value} from {}, written by {by}, which was rolled back",
                    self.name
                )
            });
        }
        None
    }

    /// Returns the order of the versions. Reports versions that cannot be ordered.
    fn order(&self, report: &mut HistoryReport) -> Vec<Pair> {
        let (count, [by_writers, by_all]) = (self.versions.len(), &self.uses);
        let real_time = self.facts.options.real_time;
        // If the reads contradict real time, the order of the writers alone still shows the cycles.
        let attempts = [real_time.then_some(by_all), real_time.then_some(by_writers), None];
        let mut contradiction = None;
        let mut pairs = Vec::new();
        for uses in attempts {
            match versions::order(count, &self.follows, uses.map(Vec::as_slice)) {
                Ok(found) => {
                    pairs = found;
                    break;
                }
                Err(cycle) => {
                    let order = if uses.is_some() { Order::RealTime } else { Order::Data };
                    contradiction =
                        Some(contradiction.filter(|_| uses.is_some()).unwrap_or((order, cycle)));
                }
            }
        }
        if let Some((order, cycle)) = contradiction {
            let writers: Vec<u32> =
                cycle.iter().map(|v| self.versions[*v as usize].writer).collect();
            self.facts.report_in(report, (Anomaly::CyclicVersions, order), &writers, || {
                let values: Vec<u64> =
                    cycle.iter().map(|v| self.versions[*v as usize].value).collect();
                format!(
                    "the versions {values:?} of {} cannot be ordered: each comes after another one",
                    self.name
                )
            });
        }
        pairs
    }

    /// Adds the edges that follow from the order of the versions.
    fn add_order(&self, builder: &mut Builder, pairs: &[Pair]) {
        let mut pairs = pairs.to_vec();
        pairs.sort_unstable_by_key(|p| (p.before, p.by_time));
        for group in pairs.chunk_by(|a, b| (a.before, a.by_time) == (b.before, b.by_time)) {
            let before = group[0].before;
            let (ww, rw) = if group[0].by_time { (WW_TIME, RW_TIME) } else { (WW, RW) };
            let writers: Vec<u32> =
                group.iter().map(|p| self.versions[p.after as usize].writer).collect();
            if before > 0 {
                for writer in &writers {
                    builder.add(self.versions[before as usize].writer, *writer, ww, self.key);
                }
            }
            let from = self.readers.partition_point(|(version, _)| *version < before);
            let to = self.readers.partition_point(|(version, _)| *version <= before);
            let readers: Vec<u32> = self.readers[from..to].iter().map(|(_, txn)| *txn).collect();
            add_product(builder, &readers, &writers, rw, self.key);
        }
    }
}

/// Adds an edge from each of `from` to each of `to`, through a hidden node if there are many.
pub fn add_product(builder: &mut Builder, from: &[u32], to: &[u32], kind: u8, key: u32) {
    if from.len() * to.len() <= PRODUCT_LIMIT {
        for (from, to) in from.iter().flat_map(|f| to.iter().map(move |t| (f, t))) {
            builder.add(*from, *to, kind, key);
        }
        return;
    }
    let node = builder.hidden();
    // Through the hidden node, a transaction on both sides would have a path to itself.
    let both: HashSet<u32> = to.iter().copied().filter(|t| from.contains(t)).collect();
    from.iter().filter(|f| !both.contains(*f)).for_each(|f| builder.add(*f, node, kind, key));
    to.iter().for_each(|t| builder.add(node, *t, VIA, NO_KEY));
    for (from, to) in both.iter().flat_map(|f| to.iter().map(move |t| (f, t))) {
        builder.add(*from, *to, kind, key);
    }
}

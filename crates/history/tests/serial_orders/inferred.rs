//! The order of transactions that the checker promises to infer, from all pairs of transactions and
//! versions. Brute force cannot demand more where reads do not show the order of a register's
//! versions.

use crate::draft::{Draft, KEYS, Kind, key_of, written};
use clearway_history::{Op, TxnOutcome};

/// Adds the pairs that follow from others. Returns false if an item then comes before itself.
fn close(before: &mut [Vec<bool>]) -> bool {
    let count = before.len();
    for via in 0..count {
        for from in 0..count {
            for to in 0..count {
                before[from][to] |= before[from][via] && before[via][to];
            }
        }
    }
    (0..count).all(|at| !before[at][at])
}

/// Returns true if a read shows this write.
fn shows(read: &Op, write: &Op) -> bool {
    match (read, written(write)) {
        _ if key_of(read) != key_of(write) => false,
        (Op::List { values, .. }, Some(value)) => values.contains(&value),
        (Op::Read { value: found, .. }, Some(value)) => *found == Some(value),
        (Op::Sum { value: sum, .. }, Some(value)) => *sum as u64 & value != 0,
        _ => false,
    }
}

/// How a transaction uses a register. Version 0 is the state before the first write, version `t +
/// 1` is what transaction `t` leaves.
struct Access {
    txn: usize,
    /// The version that it reads before it writes.
    reads: Option<usize>,
    writes: bool,
}

impl Access {
    fn found(&self) -> usize {
        self.reads.unwrap_or(self.txn + 1)
    }

    fn left(&self) -> usize {
        if self.writes { self.txn + 1 } else { self.found() }
    }
}

impl Draft {
    /// Returns false if the inferred order of transactions has a cycle. Apart from cycles, the
    /// history must have no findings.
    pub fn inferred_order_is_acyclic(&self, real_time: bool) -> bool {
        let committed = self.committed();
        let count = self.txns.len();
        let mut before = vec![vec![false; count]; count];
        for at in 0..KEYS {
            if self.kinds[at] == Kind::Register {
                if !self.order_register(at, real_time, &committed, &mut before) {
                    return false;
                }
            } else {
                self.order_readers(at, &committed, &mut before);
            }
        }
        for (a, b) in pairs(&committed).filter(|(a, b)| real_time && self.is_before(*a, *b)) {
            before[a][b] = true;
        }
        close(&mut before)
    }

    /// Returns the transactions that committed: one with an unknown outcome did if another one that
    /// committed shows a write of it.
    fn committed(&self) -> Vec<usize> {
        let is_committed = |txn: &usize| self.txns[*txn].outcome == TxnOutcome::Committed;
        let mut committed: Vec<usize> = (0..self.txns.len()).filter(is_committed).collect();
        let mut at = 0;
        while let Some(reader) = committed.get(at).copied() {
            let reads = &self.txns[reader].ops;
            for writer in 0..self.txns.len() {
                let is_shown = |write: &Op| reads.iter().any(|read| shows(read, write));
                let is_seen = self.txns[writer].ops.iter().any(is_shown);
                if is_seen && !committed.contains(&writer) {
                    committed.push(writer);
                }
            }
            at += 1;
        }
        committed
    }

    /// Orders the readers and writers of a list or of a counter: a read shows exactly the writes
    /// before it, and a list also their order.
    fn order_readers(&self, at: usize, committed: &[usize], before: &mut [Vec<bool>]) {
        let on_key =
            |txn: usize| self.txns[txn].ops.iter().filter(move |op| key_of(op) == self.keys[at]);
        for (reader, writer) in pairs(committed) {
            for read in on_key(reader).filter(|op| !op.is_write()) {
                for write in on_key(writer).filter(|op| op.is_write()) {
                    let (a, b) =
                        if shows(read, write) { (writer, reader) } else { (reader, writer) };
                    before[a][b] = true;
                }
            }
        }
        let wrote = |value: u64| {
            let writes = |txn: &&usize| on_key(**txn).any(|op| written(op) == Some(value));
            committed.iter().find(writes).copied()
        };
        for read in committed.iter().flat_map(|txn| on_key(*txn)) {
            let Op::List { values, .. } = read else { continue };
            for pair in values.windows(2) {
                if let (Some(a), Some(b)) = (wrote(pair[0]), wrote(pair[1])) {
                    before[a][b] |= a != b;
                }
            }
        }
    }

    /// Orders the readers and writers of a register, as far as updates and real time show the order
    /// of its versions. Returns false if its versions have no order.
    fn order_register(
        &self,
        at: usize,
        real_time: bool,
        committed: &[usize],
        before: &mut [Vec<bool>],
    ) -> bool {
        let version = |value: Option<u64>| {
            let write = value.map(|value| Op::Write { key: self.keys[at], value });
            write.map_or(0, |write| {
                let writer = self.txns.iter().position(|txn| txn.ops.contains(&write));
                writer.expect("a clean history reads only what was written") + 1
            })
        };
        let mut accesses = Vec::new();
        for txn in committed.iter().copied() {
            let on_key = |op: &&Op| key_of(op) == self.keys[at];
            let ops: Vec<&Op> = self.txns[txn].ops.iter().filter(on_key).collect();
            let reads = match ops.first() {
                Some(Op::Read { value, .. }) => Some(version(*value)),
                Some(_) => None,
                None => continue,
            };
            accesses.push(Access { txn, reads, writes: ops.iter().any(|op| op.is_write()) });
        }
        let count = self.txns.len() + 1;
        let mut earlier = vec![vec![false; count]; count];
        for writer in accesses.iter().filter(|access| access.writes) {
            earlier[0][writer.txn + 1] = true;
            earlier[writer.reads.unwrap_or(0)][writer.txn + 1] = true;
        }
        for (a, b) in accesses.iter().flat_map(|a| accesses.iter().map(move |b| (a, b))) {
            let ends_before = self.txns[a.txn].end.is_some_and(|end| end < self.txns[b.txn].start);
            let (left, found) = (a.left(), b.found());
            if real_time && ends_before && left > 0 && found > 0 && left != found {
                earlier[left][found] = true;
            }
        }
        if !close(&mut earlier) {
            return false;
        }
        for access in &accesses {
            let txn = access.txn;
            for later in accesses.iter().filter(|later| later.writes && later.txn != txn) {
                let is_replaced = |version: usize| earlier[version][later.txn + 1];
                let writes_before = access.writes && is_replaced(txn + 1);
                before[txn][later.txn] |= writes_before || access.reads.is_some_and(is_replaced);
                before[later.txn][txn] |= access.reads == Some(later.txn + 1);
            }
        }
        true
    }
}

/// Returns all pairs of different transactions.
fn pairs(txns: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let all = txns.iter().flat_map(|a| txns.iter().map(move |b| (*a, *b)));
    all.filter(|(a, b)| a != b)
}

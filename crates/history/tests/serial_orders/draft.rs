//! Random histories of two objects.

use clearway_history::{CheckerOptions, History, HistoryReport, Key, Op, Txn, TxnOutcome, jsonl};
use std::fmt;

/// The number of objects of a history.
pub const KEYS: usize = 2;
/// A value that no transaction writes.
const UNWRITTEN: u64 = 1 << 40;
/// The session of the final read, and the time at which it starts, after all other transactions.
const FINAL: (u32, u64) = (90, 900);

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    List,
    Register,
    Counter,
}

/// Registers are drawn more often: only the order of their versions has to be inferred.
const KINDS: [Kind; 4] = [Kind::List, Kind::Register, Kind::Register, Kind::Counter];

/// What was written to each object, as far as a read shows it: the elements of a list, the last
/// value of a register, and the sorted additions to a counter.
pub type State = [Vec<u64>; KEYS];

/// A linear congruential generator.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The objects. They have the same keys in every history that names them first.
fn keys(history: &mut History) -> [Key; KEYS] {
    ["x", "y"].map(|name| history.key(name))
}

/// Returns the object of an operation.
pub fn key_of(op: &Op) -> Key {
    match op {
        Op::Append { key, .. } | Op::List { key, .. } => *key,
        Op::Write { key, .. } | Op::Read { key, .. } => *key,
        Op::Add { key, .. } | Op::Sum { key, .. } => *key,
    }
}

/// Returns the value that an operation writes.
pub fn written(op: &Op) -> Option<u64> {
    match op {
        Op::Append { value, .. } | Op::Write { value, .. } | Op::Add { value, .. } => Some(*value),
        _ => None,
    }
}

/// The transactions of a history, with the kinds of its objects.
pub struct Draft {
    pub keys: [Key; KEYS],
    pub kinds: [Kind; KEYS],
    pub txns: Vec<Txn>,
}

/// As a file that the checker's binary reads.
impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        jsonl::write(&self.history(), &mut lines).unwrap();
        f.write_str(&String::from_utf8(lines).unwrap())
    }
}

impl Draft {
    /// Draws `count` transactions of 1 to `length` steps. A step reads or writes, or does both.
    /// Half of the histories write only objects that the transaction has read, and half end with a
    /// read of everything. All reads are still empty.
    pub fn new(random: &mut Random, count: usize, length: usize) -> Self {
        let keys = keys(&mut History::new());
        let kinds = [(); KEYS].map(|()| KINDS[random.below(KINDS.len())]);
        let (reads_first, has_few_sessions) = (random.one_in(2), random.one_in(4));
        let mut draft = Self { keys, kinds, txns: Vec::new() };
        let mut writes = [0; KEYS];
        for txn in 0..count {
            let mut ops = Vec::new();
            for _ in 0..1 + random.below(length) {
                let at = random.below(KEYS);
                let is_first = ops.iter().all(|op| key_of(op) != keys[at]);
                let is_write = random.one_in(2);
                if !is_write || reads_first && is_first {
                    ops.push(draft.read(at, &[]));
                }
                if is_write {
                    ops.push(draft.write(at, writes[at]));
                    writes[at] += 1;
                }
            }
            let session = if has_few_sessions { random.below(2) } else { txn } as u32;
            let outcome = match random.below(12) {
                0 => TxnOutcome::Aborted,
                1 => TxnOutcome::Unknown,
                _ => TxnOutcome::Committed,
            };
            draft.txns.push(Txn { session, start: 0, end: None, outcome, ops });
        }
        draft.set_times(random);
        if random.one_in(2) {
            let ops = (0..KEYS).map(|at| draft.read(at, &[])).collect();
            let ((session, start), outcome) = (FINAL, TxnOutcome::Committed);
            draft.txns.push(Txn { session, start, end: Some(start), outcome, ops });
        }
        draft
    }

    /// Sets intervals: either all overlap, or each contains a moment of its own, in the order of
    /// the transactions.
    fn set_times(&mut self, random: &mut Random) {
        let are_concurrent = random.one_in(2);
        for (at, txn) in self.txns.iter_mut().enumerate() {
            let (mut start, mut end) = (0, 100);
            if !are_concurrent {
                let moment = 4 * at + 5;
                start = (moment - random.below(6)) as u64;
                end = (moment + random.below(6)) as u64;
            }
            let has_end = txn.outcome == TxnOutcome::Committed || random.one_in(2);
            (txn.start, txn.end) = (start, has_end.then_some(end));
        }
    }

    /// Returns the write number `number`, from 0 on, of an object.
    fn write(&self, at: usize, number: u32) -> Op {
        let (key, value) = (self.keys[at], u64::from(number) + 1);
        match self.kinds[at] {
            Kind::List => Op::Append { key, value },
            Kind::Register => Op::Write { key, value },
            Kind::Counter => Op::Add { key, value: 1 << number },
        }
    }

    /// Returns a read of an object to which these values were written.
    fn read(&self, at: usize, values: &[u64]) -> Op {
        let key = self.keys[at];
        match self.kinds[at] {
            Kind::List => Op::List { key, values: values.to_vec() },
            Kind::Register => Op::Read { key, value: values.last().copied() },
            Kind::Counter => Op::Sum { key, value: values.iter().sum::<u64>() as i64 },
        }
    }

    /// Returns the index of an operation's object.
    fn index(&self, op: &Op) -> usize {
        usize::from(key_of(op) == self.keys[1])
    }

    /// Executes an operation. Returns a read with what it finds, and a write as it is.
    pub fn execute(&self, state: &mut State, op: &Op) -> Op {
        let at = self.index(op);
        let Some(value) = written(op) else { return self.read(at, &state[at]) };
        if self.kinds[at] == Kind::Register {
            state[at].clear();
        }
        state[at].push(value);
        if self.kinds[at] == Kind::Counter {
            state[at].sort_unstable();
        }
        op.clone()
    }

    /// Draws for each transaction whether others see its writes. A few rollbacks fail.
    fn visible(&self, random: &mut Random) -> Vec<bool> {
        let is_visible = |txn: &Txn| match txn.outcome {
            TxnOutcome::Committed => true,
            TxnOutcome::Aborted => random.one_in(10),
            TxnOutcome::Unknown => random.one_in(2),
        };
        self.txns.iter().map(is_visible).collect()
    }

    /// Fills the reads as a serial execution in this order does.
    pub fn run_serially(&mut self, random: &mut Random, order: &[usize]) {
        let (mut state, visible) = (State::default(), self.visible(random));
        for txn in order {
            let mut own = state.clone();
            let ops = self.txns[*txn].ops.iter().map(|op| self.execute(&mut own, op)).collect();
            self.txns[*txn].ops = ops;
            if visible[*txn] {
                state = own;
            }
        }
    }

    /// Fills the reads as an execution without isolation does. Only a final read runs alone.
    pub fn run_interleaved(&mut self, random: &mut Random) {
        let (mut state, visible) = (State::default(), self.visible(random));
        let mut turns: Vec<usize> =
            (0..self.txns.len()).flat_map(|txn| vec![txn; self.txns[txn].ops.len()]).collect();
        let is_final = |txn: &usize| self.txns[*txn].start == FINAL.1;
        let concurrent = turns.iter().position(is_final).unwrap_or(turns.len());
        random.shuffle(&mut turns[..concurrent]);
        let mut next = vec![0; self.txns.len()];
        for txn in turns {
            let op = self.txns[txn].ops[next[txn]].clone();
            if visible[txn] || !op.is_write() {
                self.txns[txn].ops[next[txn]] = self.execute(&mut state, &op);
            }
            next[txn] += 1;
        }
    }

    /// Replaces one read in `n` by a guess: a read of some of the values that any transaction
    /// writes to the object, mostly in the same order.
    pub fn guess(&mut self, random: &mut Random, n: usize) {
        let mut values = State::default();
        for op in self.txns.iter().flat_map(|txn| &txn.ops) {
            values[self.index(op)].extend(written(op));
        }
        values.iter_mut().for_each(|values| random.shuffle(values));
        for txn in 0..self.txns.len() {
            for op in 0..self.txns[txn].ops.len() {
                let before = &self.txns[txn].ops[op];
                if before.is_write() || !random.one_in(n) {
                    continue;
                }
                let at = self.index(before);
                if random.one_in(8) {
                    random.shuffle(&mut values[at]);
                }
                let length = random.below(values[at].len() + 1);
                let mut seen = values[at][..length].to_vec();
                if random.one_in(40) {
                    seen.push(UNWRITTEN);
                }
                self.txns[txn].ops[op] = self.read(at, &seen);
            }
        }
    }

    fn history(&self) -> History {
        let mut history = History::new();
        assert_eq!(keys(&mut history), self.keys);
        for txn in &self.txns {
            history.push(txn.clone()).unwrap();
        }
        history
    }

    /// Runs the checker.
    pub fn check(&self, real_time: bool) -> HistoryReport {
        self.history().check(&CheckerOptions { real_time, ..CheckerOptions::default() })
    }
}

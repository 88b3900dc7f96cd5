//! Transactions as the clients saw them, in a compact form.
//!
//! Invariants:
//! 1. A read of a list is stored as a length: it is that prefix of the longest list that a
//!    committed transaction has read from the key. Lists that are not such a prefix (*divergent*
//!    lists) are stored completely and separately.
//! 2. Lists read by transactions with an unknown outcome are stored as divergent until the check
//!    knows that they committed. What such a transaction read may never have been committed, and
//!    must not influence the order.
//! 3. A value is written or added to a key once in the whole history.
//! 4. Reads of aborted transactions are not stored: no isolation level guarantees anything about
//!    them.

use crate::internal::{self, Internal};
use crate::txn::{Key, Op, Txn, TxnIndex, TxnOutcome};
use hashbrown::HashMap;
use std::fmt;

/// A reason why a history cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryError {
    /// A value was written or added twice to one key, so reads of it do not identify the write.
    WrittenTwice {
        /// The key's name.
        key: String,
        /// The value.
        value: u64,
    },
    /// A value was added to a counter that is no power of two up to 2^62, so sums do not identify
    /// the additions.
    NoPowerOfTwo {
        /// The key's name.
        key: String,
        /// The value.
        value: u64,
    },
    /// A key is used as objects of two kinds.
    MixedKinds {
        /// The key's name.
        key: String,
        /// What it was used as first, for example `list`.
        first: &'static str,
        /// What it was used as later.
        second: &'static str,
    },
    /// A transaction ends before it starts, or is committed without an end.
    BadInterval {
        /// Its start.
        start: u64,
    },
    /// More than 2^32 - 2 transactions, operations or keys.
    TooLong,
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrittenTwice { key, value } => write!(f, "{value} is written twice to {key}"),
            Self::NoPowerOfTwo { key, value } => {
                write!(f, "{value} is added to {key}, but is no power of two up to 2^62")
            }
            Self::MixedKinds { key, first, second } => {
                write!(f, "{key} is used as a {first} and as a {second}")
            }
            Self::BadInterval { start } => {
                write!(
                    f,
                    "the transaction that starts at {start} ends before its start, \
                     or is committed without an end"
                )
            }
            Self::TooLong => {
                write!(f, "the history has more than 2^32 - 2 transactions, operations or keys")
            }
        }
    }
}

impl std::error::Error for HistoryError {}

/// A transaction without its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub session: u32,
    /// The index of its first operation in [`History::ops`].
    pub first: u32,
    pub start: u64,
    /// `u64::MAX`: it may still commit.
    pub end: u64,
    pub outcome: TxnOutcome,
}

/// The meaning of an operation's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Append,
    /// A read of the first `value` elements of the key's longest list.
    Prefix,
    /// A read of the list at index `value` in [`History::divergent`].
    Divergent,
    Write,
    Read,
    ReadNothing,
    Add,
    /// A read of a counter; `value` has the bits of an `i64`.
    Sum,
}

/// What a key is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    List,
    Register,
    Counter,
}

impl ObjectKind {
    fn of(op: &Op) -> (Key, Self) {
        match op {
            Op::Append { key, .. } | Op::List { key, .. } => (*key, Self::List),
            Op::Write { key, .. } | Op::Read { key, .. } => (*key, Self::Register),
            Op::Add { key, .. } | Op::Sum { key, .. } => (*key, Self::Counter),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Register => "register",
            Self::Counter => "counter",
        }
    }
}

/// The largest value that may be added to a counter: the sum of all still fits an `i64`.
const LARGEST_ADDED: u64 = 1 << 62;

/// An operation in 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedOp {
    pub value: u64,
    pub key: u32,
    pub kind: OpKind,
}

/// The state of a key.
#[derive(Debug)]
pub(crate) struct KeyState {
    pub name: String,
    /// `None` before the first operation.
    pub kind: Option<ObjectKind>,
    /// The longest list that a committed transaction has read, among those that extend each other.
    pub longest: Vec<u64>,
}

/// The transactions of a run.
#[derive(Debug, Default)]
pub struct History {
    pub(crate) heads: Vec<Head>,
    pub(crate) ops: Vec<PackedOp>,
    pub(crate) keys: Vec<KeyState>,
    pub(crate) divergent: Vec<Vec<u64>>,
    /// The operation that wrote each value.
    pub(crate) writers: HashMap<(u32, u64), u32>,
    pub(crate) internal: Vec<Internal>,
    names: HashMap<String, u32>,
}

impl History {
    /// Creates an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the key with this name, and creates it if necessary.
    pub fn key(&mut self, name: &str) -> Key {
        if let Some(at) = self.names.get(name) {
            return Key(*at);
        }
        let at = self.keys.len() as u32;
        self.keys.push(KeyState { name: name.to_owned(), kind: None, longest: Vec::new() });
        self.names.insert(name.to_owned(), at);
        Key(at)
    }

    /// Returns the name of a key of this history.
    pub fn name(&self, key: Key) -> &str {
        &self.keys[key.0 as usize].name
    }

    /// Returns the number of transactions.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns true if there are no transactions.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Adds a transaction. Transactions of different sessions may be added in any order. After an
    /// error the history is unusable.
    pub fn push(&mut self, txn: Txn) -> Result<TxnIndex, HistoryError> {
        let index = TxnIndex(u32::try_from(self.heads.len()).map_err(|_| HistoryError::TooLong)?);
        if txn.end.map_or(txn.outcome == TxnOutcome::Committed, |end| end < txn.start) {
            return Err(HistoryError::BadInterval { start: txn.start });
        }
        if self.ops.len() + txn.ops.len() >= u32::MAX as usize {
            return Err(HistoryError::TooLong);
        }
        if txn.outcome == TxnOutcome::Committed {
            self.internal
                .extend(internal::find(&txn.ops).map(|finding| Internal { txn: index, ..finding }));
        }
        let head = Head {
            session: txn.session,
            first: self.ops.len() as u32,
            start: txn.start,
            end: txn.end.unwrap_or(u64::MAX),
            outcome: txn.outcome,
        };
        self.heads.push(head);
        for op in txn.ops {
            self.push_op(op, txn.outcome)?;
        }
        Ok(index)
    }

    fn push_op(&mut self, op: Op, outcome: TxnOutcome) -> Result<(), HistoryError> {
        let (key, object) = ObjectKind::of(&op);
        let state = &mut self.keys[key.0 as usize];
        let first = *state.kind.get_or_insert(object);
        if first != object {
            let (first, second) = (first.name(), object.name());
            return Err(HistoryError::MixedKinds { key: state.name.clone(), first, second });
        }
        let (kind, value) = match op {
            Op::List { .. } | Op::Read { .. } | Op::Sum { .. }
                if outcome == TxnOutcome::Aborted =>
            {
                return Ok(());
            }
            Op::Append { value, .. } => (OpKind::Append, value),
            Op::Add { value, .. } if !value.is_power_of_two() || value > LARGEST_ADDED => {
                return Err(HistoryError::NoPowerOfTwo { key: state.name.clone(), value });
            }
            Op::Add { value, .. } => (OpKind::Add, value),
            Op::Sum { value, .. } => (OpKind::Sum, value as u64),
            Op::Write { value, .. } => (OpKind::Write, value),
            Op::Read { value: Some(value), .. } => (OpKind::Read, value),
            Op::Read { value: None, .. } => (OpKind::ReadNothing, 0),
            Op::List { values, .. } if outcome == TxnOutcome::Unknown => {
                self.store_divergent(values)
            }
            Op::List { values, .. } => self.add_list(key, values),
        };
        let at = self.ops.len() as u32;
        if matches!(kind, OpKind::Append | OpKind::Write | OpKind::Add)
            && self.writers.insert((key.0, value), at).is_some()
        {
            return Err(HistoryError::WrittenTwice { key: self.name(key).to_owned(), value });
        }
        self.ops.push(PackedOp { value, key: key.0, kind });
        Ok(())
    }

    /// Adds a list that a committed transaction has read.
    pub(crate) fn add_list(&mut self, key: Key, values: Vec<u64>) -> (OpKind, u64) {
        let longest = &mut self.keys[key.0 as usize].longest;
        let shared = longest.len().min(values.len());
        if longest[..shared] != values[..shared] {
            return self.store_divergent(values);
        }
        let length = values.len() as u64;
        if values.len() > longest.len() {
            // Lists grow by a few elements at a time: `extend` avoids a reallocation for each.
            longest.extend_from_slice(&values[shared..]);
        }
        (OpKind::Prefix, length)
    }

    fn store_divergent(&mut self, values: Vec<u64>) -> (OpKind, u64) {
        self.divergent.push(values);
        (OpKind::Divergent, self.divergent.len() as u64 - 1)
    }

    /// Returns the indexes of a transaction's operations.
    pub(crate) fn range(&self, txn: u32) -> std::ops::Range<usize> {
        let next =
            self.heads.get(txn as usize + 1).map_or(self.ops.len(), |next| next.first as usize);
        self.heads[txn as usize].first as usize..next
    }

    /// Returns the transaction that an operation belongs to.
    pub(crate) fn owner(&self, op: u32) -> u32 {
        self.heads.partition_point(|head| head.first <= op) as u32 - 1
    }

    /// Returns the list that a read returned.
    pub(crate) fn list(&self, op: &PackedOp) -> &[u64] {
        match op.kind {
            OpKind::Divergent => &self.divergent[op.value as usize],
            _ => &self.keys[op.key as usize].longest[..op.value as usize],
        }
    }

    /// Returns a transaction as it was pushed. For an aborted transaction, it has only the writes.
    pub fn txn(&self, index: TxnIndex) -> Txn {
        let head = self.heads[index.0 as usize];
        let unpacked = self.ops[self.range(index.0)].iter().map(|op| {
            let (key, value) = (Key(op.key), op.value);
            match op.kind {
                OpKind::Append => Op::Append { key, value },
                OpKind::Prefix | OpKind::Divergent => {
                    Op::List { key, values: self.list(op).to_vec() }
                }
                OpKind::Write => Op::Write { key, value },
                OpKind::Read => Op::Read { key, value: Some(value) },
                OpKind::ReadNothing => Op::Read { key, value: None },
                OpKind::Add => Op::Add { key, value },
                OpKind::Sum => Op::Sum { key, value: value as i64 },
            }
        });
        Txn {
            session: head.session,
            start: head.start,
            end: (head.end < u64::MAX).then_some(head.end),
            outcome: head.outcome,
            ops: unpacked.collect(),
        }
    }

    /// Returns all transactions, in the order in which they were pushed.
    pub fn txns(&self) -> impl Iterator<Item = Txn> + '_ {
        (0..self.heads.len() as u32).map(|index| self.txn(TxnIndex(index)))
    }
}

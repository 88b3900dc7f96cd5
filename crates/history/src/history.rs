//! Transactions as the clients saw them, kept compactly.
//!
//! Invariants:
//! 1. A read of a list is stored as a length: it is that prefix of the longest list that a
//!    committed transaction has read from this key. Lists that are no such prefix are kept whole,
//!    apart.
//! 2. Reads of transactions with an unknown outcome are kept whole until the check knows that they
//!    committed: what they read may never have been committed itself, and must not shape the order.
//! 3. A value is written to a key once in the whole history.
//! 4. Reads of aborted transactions are not kept: no isolation level promises anything about them.

use crate::internal::{self, Internal};
use hashbrown::HashMap;
use std::fmt;

/// An object, by its index in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) u32);

/// A transaction, by the order in which it was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnIndex(pub u32);

impl fmt::Display for TxnIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was acknowledged.
    Committed,
    /// It was rolled back, or never asked to commit.
    Aborted,
    /// The commit was asked for and never answered: it happened or not. If another transaction sees
    /// one of its writes, it happened; otherwise the check leaves it out.
    Unknown,
}

/// One operation, in the order in which the transaction executed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Appended `value` to a list. Each value is appended to a key at most once.
    Append {
        /// The list.
        key: Key,
        /// The element.
        value: u64,
    },
    /// Read a whole list; one that does not exist reads as empty.
    List {
        /// The list.
        key: Key,
        /// Its elements.
        values: Vec<u64>,
    },
    /// Wrote a register. Each value is written to a key at most once.
    Write {
        /// The register.
        key: Key,
        /// The new value.
        value: u64,
    },
    /// Read a register.
    Read {
        /// The register.
        key: Key,
        /// Its value; `None` before the first write.
        value: Option<u64>,
    },
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Who ran it. Transactions of one session are executed in the order of their starts.
    pub session: u32,
    /// When the client asked for it; any unit, one monotonic clock for the whole history.
    pub start: u64,
    /// When it had surely ended: for a committed one the acknowledgement. `None`: it may still
    /// commit.
    pub end: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did.
    pub ops: Vec<Op>,
}

/// Why a history cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryError {
    /// A value is written twice to one key: reads of it would not tell which write they saw.
    WrittenTwice {
        /// The key's name.
        key: String,
        /// The value.
        value: u64,
    },
    /// A key is used as a list and as a register.
    MixedKinds {
        /// The key's name.
        key: String,
    },
    /// A transaction ends before it starts, or is committed without an end.
    BadInterval {
        /// Its start.
        start: u64,
    },
    /// More transactions, operations or keys than 2^32 - 2.
    TooLong,
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrittenTwice { key, value } => write!(f, "{value} is written twice to {key}"),
            Self::MixedKinds { key } => write!(f, "{key} is used as a list and as a register"),
            Self::BadInterval { start } => {
                write!(
                    f,
                    "the transaction that starts at {start} ends before that, or is committed without an end"
                )
            }
            Self::TooLong => write!(f, "the history is too long"),
        }
    }
}

impl std::error::Error for HistoryError {}

/// Where a transaction lies, and in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub session: u32,
    /// The first of its operations in [`History::ops`].
    pub first: u32,
    pub start: u64,
    /// `u64::MAX`: it may still commit.
    pub end: u64,
    pub outcome: Outcome,
}

/// What an operation's value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Append,
    /// A read of the first `value` elements of the key's longest list.
    Prefix,
    /// A read of the list at `value` in [`History::apart`].
    Apart,
    Write,
    Read,
    ReadNothing,
}

/// An operation in 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedOp {
    pub value: u64,
    pub key: u32,
    pub kind: OpKind,
}

/// What is known of a key.
#[derive(Debug)]
pub(crate) struct KeyState {
    pub name: String,
    pub is_list: Option<bool>,
    /// The longest list that a committed transaction has read, of those that extend each other.
    pub longest: Vec<u64>,
}

/// The transactions of a run.
#[derive(Debug, Default)]
pub struct History {
    pub(crate) heads: Vec<Head>,
    pub(crate) ops: Vec<PackedOp>,
    pub(crate) keys: Vec<KeyState>,
    pub(crate) apart: Vec<Vec<u64>>,
    /// The operation that wrote a value.
    pub(crate) writers: HashMap<(u32, u64), u32>,
    pub(crate) internal: Vec<Internal>,
    names: HashMap<String, u32>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// The key of this name; a new one if there is none yet.
    pub fn key(&mut self, name: &str) -> Key {
        if let Some(at) = self.names.get(name) {
            return Key(*at);
        }
        let at = self.keys.len() as u32;
        self.keys.push(KeyState { name: name.to_owned(), is_list: None, longest: Vec::new() });
        self.names.insert(name.to_owned(), at);
        Key(at)
    }

    /// The name of a key of this history.
    pub fn name(&self, key: Key) -> &str {
        &self.keys[key.0 as usize].name
    }

    /// Number of transactions.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns true if there is no transaction.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Adds a transaction. Those of different sessions may come in any order. After an error the
    /// history is unusable.
    pub fn push(&mut self, txn: Txn) -> Result<TxnIndex, HistoryError> {
        let index = TxnIndex(u32::try_from(self.heads.len()).map_err(|_| HistoryError::TooLong)?);
        if txn.end.map_or(txn.outcome == Outcome::Committed, |end| end < txn.start) {
            return Err(HistoryError::BadInterval { start: txn.start });
        }
        if self.ops.len() + txn.ops.len() >= u32::MAX as usize {
            return Err(HistoryError::TooLong);
        }
        if txn.outcome == Outcome::Committed {
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

    fn push_op(&mut self, op: Op, outcome: Outcome) -> Result<(), HistoryError> {
        let (key, is_list) = match &op {
            Op::Append { key, .. } | Op::List { key, .. } => (*key, true),
            Op::Write { key, .. } | Op::Read { key, .. } => (*key, false),
        };
        let state = &mut self.keys[key.0 as usize];
        if *state.is_list.get_or_insert(is_list) != is_list {
            return Err(HistoryError::MixedKinds { key: state.name.clone() });
        }
        let (kind, value) = match op {
            Op::List { .. } | Op::Read { .. } if outcome == Outcome::Aborted => return Ok(()),
            Op::Append { value, .. } => (OpKind::Append, value),
            Op::Write { value, .. } => (OpKind::Write, value),
            Op::Read { value: Some(value), .. } => (OpKind::Read, value),
            Op::Read { value: None, .. } => (OpKind::ReadNothing, 0),
            Op::List { values, .. } if outcome == Outcome::Unknown => self.keep_apart(values),
            Op::List { values, .. } => self.fold(key, values),
        };
        let at = self.ops.len() as u32;
        if matches!(kind, OpKind::Append | OpKind::Write)
            && self.writers.insert((key.0, value), at).is_some()
        {
            return Err(HistoryError::WrittenTwice { key: self.name(key).to_owned(), value });
        }
        self.ops.push(PackedOp { value, key: key.0, kind });
        Ok(())
    }

    /// Takes in a list that a committed transaction has read.
    pub(crate) fn fold(&mut self, key: Key, values: Vec<u64>) -> (OpKind, u64) {
        let longest = &mut self.keys[key.0 as usize].longest;
        let shared = longest.len().min(values.len());
        if longest[..shared] != values[..shared] {
            return self.keep_apart(values);
        }
        let length = values.len() as u64;
        if values.len() > longest.len() {
            // Lists grow by a few elements at a time: do not reallocate for each.
            longest.extend_from_slice(&values[shared..]);
        }
        (OpKind::Prefix, length)
    }

    fn keep_apart(&mut self, values: Vec<u64>) -> (OpKind, u64) {
        self.apart.push(values);
        (OpKind::Apart, self.apart.len() as u64 - 1)
    }

    /// The operations of a transaction, as indexes.
    pub(crate) fn range(&self, txn: u32) -> std::ops::Range<usize> {
        let next =
            self.heads.get(txn as usize + 1).map_or(self.ops.len(), |next| next.first as usize);
        self.heads[txn as usize].first as usize..next
    }

    /// The transaction that an operation belongs to.
    pub(crate) fn owner(&self, op: u32) -> u32 {
        self.heads.partition_point(|head| head.first <= op) as u32 - 1
    }

    /// The list that a read saw.
    pub(crate) fn list(&self, op: &PackedOp) -> &[u64] {
        match op.kind {
            OpKind::Apart => &self.apart[op.value as usize],
            _ => &self.keys[op.key as usize].longest[..op.value as usize],
        }
    }

    /// A transaction as it was pushed; of an aborted one only its writes are kept.
    pub fn txn(&self, index: TxnIndex) -> Txn {
        let head = self.heads[index.0 as usize];
        let unpacked = self.ops[self.range(index.0)].iter().map(|op| {
            let (key, value) = (Key(op.key), op.value);
            match op.kind {
                OpKind::Append => Op::Append { key, value },
                OpKind::Prefix | OpKind::Apart => Op::List { key, values: self.list(op).to_vec() },
                OpKind::Write => Op::Write { key, value },
                OpKind::Read => Op::Read { key, value: Some(value) },
                OpKind::ReadNothing => Op::Read { key, value: None },
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

    /// All transactions, in the order in which they were pushed.
    pub fn txns(&self) -> impl Iterator<Item = Txn> + '_ {
        (0..self.heads.len() as u32).map(|index| self.txn(TxnIndex(index)))
    }
}

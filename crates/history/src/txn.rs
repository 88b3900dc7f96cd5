//! Transactions and their operations, as the clients saw them.

use std::fmt;

/// An object, identified by its index in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) u32);

/// A transaction, identified by the order in which it was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnIndex(pub u32);

impl fmt::Display for TxnIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnOutcome {
    /// The commit was acknowledged.
    Committed,
    /// The transaction was rolled back, or its commit was never requested.
    Aborted,
    /// The commit was requested and never answered: it may or may not have happened. If another
    /// transaction saw one of the writes, it happened; otherwise the check ignores the transaction.
    Unknown,
}

/// One operation of a transaction.
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
    /// Added `value` to a counter. Each value is a power of two up to 2^62, and is added to a key
    /// at most once.
    Add {
        /// The counter.
        key: Key,
        /// The amount.
        value: u64,
    },
    /// Read a counter.
    Sum {
        /// The counter.
        key: Key,
        /// Its value; 0 before the first addition, and for a counter that does not exist.
        value: i64,
    },
}

impl Op {
    /// Returns true if it writes, appends or adds. Otherwise it reads.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Append { .. } | Self::Write { .. } | Self::Add { .. })
    }
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// The session that ran it. Transactions of one session are executed in the order of their
    /// starts.
    pub session: u32,
    /// The time at which the client sent the transaction, in any unit of one monotonic clock for
    /// the whole history.
    pub start: u64,
    /// A time by which it had certainly ended; for a committed transaction, the acknowledgement.
    /// `None`: it may still commit.
    pub end: Option<u64>,
    /// How it ended.
    pub outcome: TxnOutcome,
    /// Its operations, in execution order.
    pub ops: Vec<Op>,
}

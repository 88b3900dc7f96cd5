//! The lock table of a partition: table locks with intents, key locks, key-range locks.
//!
//! A key lock names a key whether the key exists or not. A range lock covers exactly the keys
//! between its bounds, so a phantom is a conflict like any other. These are predicate locks whose
//! predicates are ranges.
//!
//! Requests for the same place in the same mode wait in one *line*, in order of arrival. A line
//! *watches* one transaction that blocks its first member: an earlier conflicting request if there
//! is one, else the holder of a conflicting lock. The line is not examined until the watched
//! transaction ends or stops waiting. So a wait, a grant and a release cost O(1) in the number of
//! waiters (O(log n) if there are waits for ranges), and the waits-for graph has one edge per line,
//! not per waiter.
//!
//! Invariants
//! 1. Two transactions never hold conflicting locks.
//! 2. A request waits exactly while it conflicts with a lock of another transaction, or with a
//!    waiting request that precedes it. Of two conflicting requests the earlier precedes, unless it
//!    waits for the later one's transaction, directly or through others. So an upgrade by a holder
//!    passes the line: otherwise it would wait for transactions that wait for it. A request that
//!    passes and must still wait gets a line of its own. Whether to pass is decided when a request
//!    arrives, and when it becomes the first of its line. A request that could pass only later, or
//!    only through more than 64 lines, waits in a deadlock, which the coordinator detects.
//! 3. A non-empty line watches a transaction that blocks all its members, and names none of its
//!    members. When that transaction ends or stops waiting, the line is examined again: it grants
//!    what it can, and then watches another transaction. Each change is an [`Event`].
//! 4. A transaction waits for at most one lock here.
//! 5. Events are in the order in which they happened: a grant comes before a line that names its
//!    transaction as a holder.
//!
//! [`Mode::Shared`] and [`Mode::Increment`] are the only row modes of which neither covers the
//! other. A transaction that holds one of them on a key and requests the other gets
//! [`Mode::NoKeyExclusive`], which covers both. So does a transaction that requests
//! [`Mode::Increment`] while its keys are packed.
//!
//! Locks are never escalated to the table: a transaction with many locks has its further keys
//! packed and its ranges joined (docs/decisions/many-locks.md).
//!
//! On (3): a watched request remains an obstacle after its grant, because it then holds the lock.
//! The members of a line have the same place and mode, so they conflict with the same locks and
//! requests, and whatever precedes the first member precedes all of them. The only difference is
//! that a member's own locks do not block it. But no member has a lock that blocks the line. Such a
//! transaction passes the line when its request arrives (2), and gets no lock while it waits.
//!
//! Locking: none; one thread at a time runs a partition. A crash leaves nothing: recovery undoes
//! unfinished transactions before it admits clients.
//!
//! Source: Gray and Reuter, chapter 7 (modes, intents, queues); Eswaran and others 1976
//! (predicates). Lines and watching are our own, see docs/decisions/lines.md.

mod class;
mod few;
mod held;
mod holders;
mod hot;
mod increment;
mod intervals;
mod key;
mod large;
mod line;
mod owner;
mod packed;
mod retired;
mod scope;
mod spans;
mod table;
#[cfg(test)]
mod tests;
mod wanted;
mod work;

pub(crate) use class::{PARTITION, Wait, class};
pub use hot::HotRow;
pub(crate) use increment::Spread;
pub(crate) use line::InLine;
pub(crate) use table::{Acquired, Event, LockTable};
pub use wanted::{Wanted, WantedPlace};

use clearway_ir::RowLock;
use clearway_types::{TableId, TreeId};
use std::ops::Bound;

/// Lock modes, displayed by name. Tables use [`MODES`]; keys and ranges use [`ROW_MODES`], which
/// are PostgreSQL's row lock modes plus [`Mode::Increment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reads some rows.
    IntentShared = 1,
    /// Changes some rows.
    IntentExclusive = 2,
    /// FOR KEY SHARE: reads the columns of unique keys.
    KeyShared = 4,
    /// FOR SHARE, and every read under serializability.
    Shared = 8,
    /// FOR NO KEY UPDATE: changes columns that are in no unique key.
    NoKeyExclusive = 16,
    /// FOR UPDATE: changes anything, inserts and deletes keys.
    Exclusive = 32,
    /// Uses a table regardless of its rows, and protects its definition.
    AccessShared = 64,
    /// Changes a table's definition, or drops it.
    AccessExclusive = 128,
    /// Adds to integers of a row concurrently with others (docs/decisions/increments.md). For keys
    /// only.
    Increment = 256,
    /// A request for [`Mode::NoKeyExclusive`] that retired holders do not block ([`retired`]).
    /// Never held. For keys only.
    Behind = 512,
    /// Waits for the end of transactions: at a key for those that the requester is behind
    /// ([`retired`]), at a table for [large](`large`) ones. Never held.
    Settled = 1024,
}

/// The modes of tables. [`Mode::Exclusive`] locks all rows, and [`Mode::AccessExclusive`] the table
/// itself: even a statement with NOWAIT waits for the latter.
pub(crate) const MODES: [Mode; 6] = [
    Mode::AccessShared,
    Mode::IntentShared,
    Mode::IntentExclusive,
    Mode::Shared,
    Mode::Exclusive,
    Mode::AccessExclusive,
];
/// The modes of keys and ranges, from weakest to strongest. Each conflicts with everything that the
/// modes before it conflict with, except that [`Mode::Shared`] conflicts with [`Mode::Increment`],
/// which does not conflict with itself.
pub(crate) const ROW_MODES: [Mode; 5] =
    [Mode::KeyShared, Mode::Shared, Mode::Increment, Mode::NoKeyExclusive, Mode::Exclusive];

impl Mode {
    /// Returns the mode of a row lock.
    #[inline]
    pub(crate) const fn of_row(lock: RowLock) -> Self {
        match lock {
            RowLock::KeyShare => Mode::KeyShared,
            RowLock::Share => Mode::Shared,
            RowLock::NoKeyUpdate => Mode::NoKeyExclusive,
            RowLock::Update => Mode::Exclusive,
        }
    }
    /// Returns the set that contains only this mode.
    pub(crate) const fn bit(self) -> u16 {
        self as u16
    }
    /// Returns the modes that conflict with this one.
    pub(crate) const fn conflicts(self) -> u16 {
        const IS: u16 = Mode::IntentShared.bit();
        const IX: u16 = Mode::IntentExclusive.bit();
        const KS: u16 = Mode::KeyShared.bit();
        const S: u16 = Mode::Shared.bit();
        const INC: u16 = Mode::Increment.bit();
        const NKX: u16 = Mode::NoKeyExclusive.bit();
        const X: u16 = Mode::Exclusive.bit();
        const AS: u16 = Mode::AccessShared.bit();
        const AX: u16 = Mode::AccessExclusive.bit();
        const BH: u16 = Mode::Behind.bit();
        match self {
            Mode::IntentShared | Mode::KeyShared => X | AX,
            Mode::IntentExclusive => S | X | AX,
            Mode::Shared => IX | INC | NKX | BH | X | AX,
            Mode::Increment => S | NKX | BH | X | AX,
            Mode::NoKeyExclusive | Mode::Behind => S | INC | NKX | BH | X | AX,
            Mode::Settled => 0,
            Mode::Exclusive => IS | IX | KS | S | INC | NKX | BH | X | AX,
            Mode::AccessShared => AX,
            Mode::AccessExclusive => AS | IS | IX | S | X | AX,
        }
    }
    /// Returns the modes that cover this one: a holder of one of them does not need it.
    pub(crate) const fn covered_by(self) -> u16 {
        match self {
            Mode::AccessShared => 1 | 2 | 8 | 32 | 64 | 128,
            Mode::IntentShared => 1 | 2 | 8 | 32 | 128,
            Mode::IntentExclusive => 2 | 32 | 128,
            Mode::KeyShared => 4 | 8 | 16 | 32 | 256,
            Mode::Shared => 8 | 16 | 32 | 128,
            Mode::Increment => 16 | 32 | 256,
            Mode::NoKeyExclusive | Mode::Behind => 16 | 32,
            Mode::Settled => 0,
            Mode::Exclusive => 32 | 128,
            Mode::AccessExclusive => 128,
        }
    }
    /// Returns the table intent that a key or range lock of this mode needs.
    pub(crate) const fn intent(self) -> Mode {
        match self {
            Mode::KeyShared | Mode::Shared | Mode::IntentShared => Mode::IntentShared,
            Mode::Increment
            | Mode::NoKeyExclusive
            | Mode::Behind
            | Mode::Settled
            | Mode::Exclusive
            | Mode::IntentExclusive => Mode::IntentExclusive,
            Mode::AccessShared | Mode::AccessExclusive => self,
        }
    }
    /// Returns the table mode that covers every key or range lock of this mode.
    pub(crate) const fn of_table(self) -> Mode {
        match self {
            Mode::KeyShared => Mode::Shared,
            Mode::Increment | Mode::NoKeyExclusive | Mode::Behind => Mode::Exclusive,
            other => other,
        }
    }
    /// Returns the position in [`ROW_MODES`].
    pub(super) const fn rank(self) -> usize {
        match self {
            Mode::KeyShared => 0,
            Mode::Shared | Mode::IntentShared | Mode::AccessShared => 1,
            Mode::Increment => 2,
            Mode::NoKeyExclusive | Mode::Behind | Mode::Settled => 3,
            Mode::Exclusive | Mode::IntentExclusive | Mode::AccessExclusive => 4,
        }
    }
}

/// The target of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// A table.
    Table(TableId),
    /// A key of a tree, existing or not.
    Key(TreeId, &'a [u8]),
    /// All keys of a tree between the bounds, existing or not.
    Range(TreeId, Bound<&'a [u8]>, Bound<&'a [u8]>),
}

//! The lock table of a partition: table locks with intents, key locks, key-range locks.
//!
//! Key locks name a key whether it is there or not, and range locks cover exactly the keys between
//! their bounds, so that a phantom is a conflict like any other (predicate locks whose predicates
//! are ranges).
//!
//! Requests for the same place in the same mode wait in one *line*, in order of arrival. A line
//! *watches* one transaction that is in the way of its first member: a conflicting request further
//! ahead if there is one, else the holder of a conflicting lock. Nobody looks at a line before the
//! watched transaction ends or stops waiting. So a wait, a grant and a release cost O(1) in the
//! number of waiters (O(log n) where ranges are waited for), and the waits-for graph has the edges
//! of lines, not of waiters.
//!
//! Invariants
//! 1. Two transactions never hold locks that conflict.
//! 2. A request waits exactly while it conflicts with a lock that another transaction holds, or
//!    with a waiting request that goes before it. Of two conflicting requests the earlier goes
//!    first, unless it waits for the later one's transaction, directly or through others: an
//!    upgrade by a holder passes the line, or it would wait for those who wait for it. A request
//!    that passes and must still wait has a line of its own. Whether to pass is decided when a
//!    request arrives, and when it is the first of its line. A request that could pass only later,
//!    or only by way of more than 64 lines, waits in a deadlock, which the coordinator finds.
//! 3. A line that is not empty watches a transaction that is in the way of all its members (but for
//!    itself, if it is one of them). When that transaction ends or stops waiting, the line looks
//!    again: it grants what it can, and then watches somebody else. Each change is an [`Event`].
//! 4. A transaction waits for at most one lock here.
//! 5. Events are in the order in which things happened: a grant comes before the line that names
//!    its transaction as a holder.
//!
//! [`Mode::Shared`] and [`Mode::Increment`] are the only two modes of rows of which neither covers
//! the other. A transaction that has one of them on a key and asks for the other one comes to
//! [`Mode::NoKeyExclusive`], which covers both. So does one that asks for [`Mode::Increment`] and
//! packs its keys.
//!
//! Locks are never escalated to the table: a transaction with many of them has its further keys
//! packed and its ranges joined (docs/decisions/many-locks.md).
//!
//! On (3): a watched request stays in the way when it is granted, as it then holds the lock. The
//! members of a line have the same place and mode, so they conflict with the same locks and
//! requests, and whatever goes before the first of them goes before all. Only what a member holds
//! itself is no obstacle to it; then the line leads back to it, and that is a circle that the
//! coordinator finds.
//!
//! Locking: none, a partition is run by one thread at a time. A crash leaves nothing: recovery
//! undoes before it lets anyone in.
//!
//! Source: Gray and Reuter, chapter 7 (modes, intents, queues); Eswaran and others 1976
//! (predicates). Lines and what they watch: ours, see docs/decisions/lines.md.

mod class;
mod few;
mod held;
mod holders;
mod hot;
mod increment;
mod intervals;
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
pub(crate) use line::InLine;
pub(crate) use table::{Acquired, Event, LockTable};
pub use wanted::{Wanted, WantedPlace};

use clearway_ir::RowLock;
use clearway_types::{TableId, TreeId};
use std::ops::Bound;

/// Lock modes, shown by their names. Tables know those of [`MODES`]; keys and ranges know those of
/// [`ROW_MODES`], which are PostgreSQL's modes of row locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reads some rows.
    IntentShared = 1,
    /// Changes some rows.
    IntentExclusive = 2,
    /// FOR KEY SHARE: reads the columns of unique keys.
    KeyShared = 4,
    /// FOR SHARE, and any read under serialisability.
    Shared = 8,
    /// FOR NO KEY UPDATE: changes columns that are in no unique key.
    NoKeyExclusive = 16,
    /// FOR UPDATE: changes anything, makes keys and removes them.
    Exclusive = 32,
    /// Uses a table, whatever its rows: it stays as it is.
    AccessShared = 64,
    /// Changes a table itself, or removes it.
    AccessExclusive = 128,
    /// Adds to integers of a row, as others may at the same time (docs/decisions/increments.md). Of
    /// keys only.
    Increment = 256,
    /// A request for [`Mode::NoKeyExclusive`] that retired holders are not in the way of
    /// ([`retired`]). Never held. Of keys only.
    Behind = 512,
    /// Waits for the transactions that the requester is behind ([`retired`]). Never held.
    Settled = 1024,
}

/// The modes of tables. [`Mode::Exclusive`] locks all rows, and [`Mode::AccessExclusive`] the
/// table: who need not wait for locks of rows waits for that one.
pub(crate) const MODES: [Mode; 6] = [
    Mode::AccessShared,
    Mode::IntentShared,
    Mode::IntentExclusive,
    Mode::Shared,
    Mode::Exclusive,
    Mode::AccessExclusive,
];
/// The modes of keys and ranges, from the weakest to the strongest: each conflicts with all that
/// those before it conflict with, except that [`Mode::Shared`] and [`Mode::Increment`] conflict
/// with each other only.
pub(crate) const ROW_MODES: [Mode; 5] =
    [Mode::KeyShared, Mode::Shared, Mode::Increment, Mode::NoKeyExclusive, Mode::Exclusive];

impl Mode {
    /// The mode of a row lock.
    #[inline]
    pub(crate) const fn of_row(lock: RowLock) -> Self {
        match lock {
            RowLock::KeyShare => Mode::KeyShared,
            RowLock::Share => Mode::Shared,
            RowLock::NoKeyUpdate => Mode::NoKeyExclusive,
            RowLock::Update => Mode::Exclusive,
        }
    }
    /// The set of this mode.
    pub(crate) const fn bit(self) -> u16 {
        self as u16
    }
    /// The modes that conflict with this one.
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
    /// The modes that, held, make this one superfluous.
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
    /// The table-level intent that a key or range lock of this mode needs.
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
    /// The table's mode that makes every key or range lock of this mode superfluous.
    pub(crate) const fn of_table(self) -> Mode {
        match self {
            Mode::KeyShared => Mode::Shared,
            Mode::Increment | Mode::NoKeyExclusive | Mode::Behind => Mode::Exclusive,
            other => other,
        }
    }
    /// The position in [`ROW_MODES`].
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

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// A table.
    Table(TableId),
    /// A key of a tree, there or not.
    Key(TreeId, &'a [u8]),
    /// All keys of a tree between the bounds, there or not.
    Range(TreeId, Bound<&'a [u8]>, Bound<&'a [u8]>),
}

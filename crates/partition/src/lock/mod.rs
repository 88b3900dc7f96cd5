//! The lock table of a partition: table locks with intents, key locks, key-range locks.
//!
//! Key locks name a key whether it is there or not, and range locks cover exactly the keys between their bounds, so that a
//! phantom is a conflict like any other (predicate locks whose predicates are ranges).
//!
//! Invariants
//! 1. Two transactions never hold locks that conflict.
//! 2. A request waits exactly while it conflicts with a lock that another transaction holds, or with a waiting request that goes before it.
//!    Of two conflicting requests the earlier goes first, unless it waits for the later one's transaction itself, directly or through
//!    others (an upgrade by a holder passes the line, or it would wait for those who wait for it).
//! 3. Whom a request waits for is known when it starts to wait, and nobody is added later: the list holds those that its rivals wait for, too.
//! 4. A transaction waits for at most one lock here.
//!
//! Locking: none, a partition is run by one thread at a time. A crash leaves nothing: recovery undoes before it lets anyone in.
//!
//! Source: Gray and Reuter, chapter 7 (modes, intents, queues); Eswaran and others 1976 (predicates).

mod class;
mod scope;
mod spans;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use class::{PARTITION, Wait, class};
pub(crate) use table::{Acquired, LockTable};

use clearway_types::{TableId, TreeId};
use std::ops::Bound;

/// Lock modes. Keys and ranges know the last two only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reads some rows.
    IntentShared = 1,
    /// Changes some rows.
    IntentExclusive = 2,
    /// Reads.
    Shared = 4,
    /// Changes.
    Exclusive = 8,
}

impl Mode {
    /// The set of this mode.
    pub(crate) const fn bit(self) -> u8 {
        self as u8
    }
    /// The modes that conflict with this one.
    pub(crate) const fn conflicts(self) -> u8 {
        const IS: u8 = Mode::IntentShared.bit();
        const IX: u8 = Mode::IntentExclusive.bit();
        const S: u8 = Mode::Shared.bit();
        const X: u8 = Mode::Exclusive.bit();
        match self {
            Mode::IntentShared => X,
            Mode::IntentExclusive => S | X,
            Mode::Shared => IX | X,
            Mode::Exclusive => IS | IX | S | X,
        }
    }
    /// The modes that, held, make this one superfluous.
    pub(crate) const fn covered_by(self) -> u8 {
        match self {
            Mode::IntentShared => 1 | 2 | 4 | 8,
            Mode::IntentExclusive => 2 | 8,
            Mode::Shared => 4 | 8,
            Mode::Exclusive => 8,
        }
    }
    /// The table-level intent that a key or range lock of this mode needs.
    pub(crate) const fn intent(self) -> Mode {
        match self {
            Mode::Shared | Mode::IntentShared => Mode::IntentShared,
            Mode::Exclusive | Mode::IntentExclusive => Mode::IntentExclusive,
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

//! Locking: strict two-phase locking, by one thread and so without latches.
//!
//! A multi-partition one-shot locks like a general transaction and never has a partition to itself.
//! While no such transaction is active, single-partition one-shots take no locks. In contrast to
//! the source, deadlocks across partitions are found by a search instead of a time-out.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.3.

use super::{ExclusiveAccess, Scheme};

/// See the module.
pub(super) struct Locking;

impl Scheme for Locking {
    fn exclusive(&self) -> ExclusiveAccess {
        ExclusiveAccess::Never
    }
}

//! Blocking: a multi-partition one-shot has its partitions to itself, and all other work waits.
//!
//! In the source, a multi-partition transaction waits its turn and then blocks the partition. Here
//! others may hold locks: single-partition one-shots that wait for the disk, and multi-partition
//! ones that have exchanged the partition for locks. The transaction waits until none is held
//! (`partition/quiet.rs`), and single-partition one-shots wait behind it: they could take locks
//! again. Interactive transactions continue, because others may wait for their locks.
//!
//! The source has no clients that are idle in a transaction. The wait never depends on one: if it
//! would, the transaction locks.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.1.

use super::{ExclusiveAccess, Scheme};

/// See the module.
pub(super) struct Blocking;

impl Scheme for Blocking {
    fn exclusive(&self) -> ExclusiveAccess {
        ExclusiveAccess::WhenUnlocked
    }
}

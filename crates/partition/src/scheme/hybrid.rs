//! Hybrid: blocking while no lock is held at the partition, locking otherwise.
//!
//! A multi-partition one-shot has the partition to itself if no lock is held there when it asks. If
//! one is held, it locks like a general transaction and waits only for the rows that it uses. So a
//! client that is idle in a block delays only transactions that need its rows.
//!
//! Source: ours; it chooses between sections 4.1 and 4.3 of the paper at each request.

use super::{ExclusiveAccess, Scheme};

/// See the module.
pub(super) struct Hybrid;

impl Scheme for Hybrid {
    fn exclusive(&self) -> ExclusiveAccess {
        ExclusiveAccess::IfUnlocked
    }
}

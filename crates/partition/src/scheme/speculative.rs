//! Speculative: blocking, but one-shots run behind a multi-partition one-shot that has finished
//! here and waits for its decision only.
//!
//! Their replies are held, or name the partition where the decision is awaited, until everything
//! before them has committed. If it aborts, they are undone and run again
//! (`partition/speculation.rs`). All else is as under [blocking](super::blocking): interactive
//! transactions lock and wait until no speculation is open. Nothing runs speculatively behind a
//! transaction that may send a second statement to the partition.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.2.

use super::{ExclusiveAccess, Scheme};

/// See the module.
pub(super) struct Speculative;

impl Scheme for Speculative {
    fn exclusive(&self) -> ExclusiveAccess {
        ExclusiveAccess::WhenUnlocked
    }

    fn speculates(&self) -> bool {
        true
    }
}

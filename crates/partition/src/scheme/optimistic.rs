//! Optimistic: one-shots run without locks and record what they read and change. They are validated
//! when they have finished at the partition.
//!
//! A multi-partition one-shot of one round does not request its partitions. Each of its fragments
//! is validated against the transactions that are undecided or hold locks there, and is then
//! undecided itself. One that is invalid is undone everywhere and runs again as under
//! [blocking](super::blocking), with its partitions to itself. A single-partition one-shot that is
//! invalid runs again with locks.
//!
//! Interactive transactions lock. One-shots of several rounds have their partitions to themselves.
//! The rules and the proof are in `partition/optimistic.rs`.
//!
//! Source: Kung, Robinson, TODS 1981. Jones, Abadi, Madden, SIGMOD 2010, name the scheme without
//! describing it.

use super::{ExclusiveAccess, Scheme};

/// See the module.
pub(super) struct Optimistic;

impl Scheme for Optimistic {
    fn exclusive(&self) -> ExclusiveAccess {
        ExclusiveAccess::AfterConflict
    }

    fn records(&self) -> bool {
        true
    }
}

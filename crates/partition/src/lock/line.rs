//! A line: requests for the same place in the same mode, in the order of their arrival.
//!
//! What the first of a line waits for, all others of it wait for, too: they conflict with the same locks, and with every request that
//! conflicts with the first and goes before it. So one edge of the waits-for graph serves them all.

use super::scope::{LineRef, Place};
use super::table::ScopeId;
use clearway_types::TxnId;

/// The most transactions that are named as in a line's way.
pub(super) const NAMED: usize = 8;

/// Where a request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InLine {
    /// The number of its line at the partition, never used again.
    pub line: u64,
    /// Some of those in the line's way.
    pub on: Vec<TxnId>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub at: LineRef,
    pub scope: ScopeId,
    pub place: Place,
    pub first: TxnId,
    pub last: TxnId,
    /// In its way: the first of them is the one that it watches.
    pub on: Vec<TxnId>,
}

/// A transaction's place in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub line: u64,
    /// Of all waits at the partition, which this one is.
    pub number: u64,
    pub before: Option<TxnId>,
    pub behind: Option<TxnId>,
}

//! Concurrency-control schemes, which decide at admission how a transaction may run.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010. Blocking and locking are implemented; speculation and
//! optimistic control would use this interface.

use crate::limits::Limits;

/// The input of a scheme's decision about a one-shot transaction.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Whether the partition is free of locks and of waits for locks.
    pub unlocked: bool,
    /// Number of attempts of this transaction that missed a page.
    pub misses: u32,
    /// Whether it changes at most one row and no index: its attempt does everything or nothing.
    pub atomic: bool,
    /// Whether it only reads.
    pub reads: bool,
}

/// How a one-shot transaction may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Immediately, to completion, without locks: no other transaction is active.
    Alone,
    /// Immediately, to completion, without taking locks, unless it meets a lock of another
    /// transaction.
    Checked,
    /// As a locking transaction.
    Locking,
}

/// Decides how one-shot transactions run. Interactive transactions always lock.
pub trait Scheme {
    /// Returns how a one-shot transaction may run now.
    fn admit(&self, load: Load) -> Admission;
    /// Returns true if a multi-partition one-shot may have this partition to itself until it ends;
    /// otherwise it locks. `unlocked` means that no lock is held or waited for here.
    fn blocks(&self, unlocked: bool) -> bool;
}

/// The 2010 paper's blocking scheme for one-shots, and its locking scheme for the rest. While no
/// interactive transaction is active, single-partition work runs alone and multi-partition work has
/// its partitions to itself. Otherwise all transactions except the shortest take locks.
#[derive(Clone, Copy, Debug)]
pub struct BlockingLocking {
    /// See [`Limits::misses`].
    pub misses: u32,
}

impl Default for BlockingLocking {
    fn default() -> Self {
        Self { misses: Limits::default().misses }
    }
}

impl Scheme for BlockingLocking {
    #[inline]
    fn admit(&self, load: Load) -> Admission {
        if load.misses > self.misses {
            Admission::Locking
        } else if load.unlocked {
            Admission::Alone
        } else if load.reads || load.atomic {
            Admission::Checked
        } else {
            Admission::Locking
        }
    }

    fn blocks(&self, unlocked: bool) -> bool {
        unlocked
    }
}

//! Concurrency-control schemes: how one-shot transactions run at a partition.
//!
//! A scheme decides two things: how a single-partition one-shot runs, and whether a multi-partition
//! one-shot gets the partition to itself. Interactive transactions are the source's general
//! transactions, which take several rounds. They lock under every scheme.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4. Speculation and optimistic control are not
//! implemented.

mod hybrid;

pub(crate) use hybrid::Hybrid;

/// The input of a scheme's decision about a single-partition one-shot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Whether the partition is free of locks and of waits for locks.
    pub unlocked: bool,
    /// Whether an attempt that misses a page may start from the beginning: it has done so at most
    /// [`Limits::misses`](crate::Limits::misses) times.
    pub may_restart: bool,
    /// Whether it changes at most one row and no index: its attempt does everything or nothing.
    pub atomic: bool,
    /// Whether it only reads.
    pub reads: bool,
}

/// How a single-partition one-shot may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Immediately, to completion, without locks: no other transaction is active.
    Alone,
    /// Immediately, to completion, without taking locks, unless it meets a lock of another
    /// transaction.
    Checked,
    /// As a locking transaction.
    Locking,
}

/// Decides how one-shot transactions run.
pub(crate) trait Scheme: Sync {
    /// Returns how a single-partition one-shot may run now.
    ///
    /// No scheme differs here yet: all run it without locks while no lock is held at the partition.
    /// [`Admission::Checked`] has the effect of locks that are released within the same message.
    #[inline]
    fn admit(&self, load: Load) -> Admission {
        if !load.may_restart {
            Admission::Locking
        } else if load.unlocked {
            Admission::Alone
        } else if load.reads || load.atomic {
            Admission::Checked
        } else {
            Admission::Locking
        }
    }

    /// Returns true if a multi-partition one-shot may have this partition to itself until it ends;
    /// otherwise it locks. `unlocked` means that no lock is held or waited for here.
    fn blocks(&self, unlocked: bool) -> bool;
}

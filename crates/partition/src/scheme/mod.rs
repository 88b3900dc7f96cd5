//! Concurrency-control schemes: how one-shot transactions run at a partition.
//!
//! | transaction | hybrid | blocking | speculative | locking |
//! |---|---|---|---|---|
//! | one partition, no lock is held there | no locks | no locks | no locks | no locks |
//! | one, beside locks | respects them | respects them | respects them | respects them |
//! | one, while several have it | waits | waits | waits, or speculates | cannot happen |
//! | one, while several wait for it | runs | waits behind | waits behind | cannot happen |
//! | several, no lock is held | alone | alone | alone | locks |
//! | several, while others have one | waits | waits | waits, or speculates | cannot happen |
//! | several, beside locks that end soon | locks | waits for quiet | waits for quiet | locks |
//! | several, beside locks of a client | locks | locks | locks | locks |
//! | interactive transaction | locks | locks | locks | locks |
//!
//! "One" and "several" are one-shots of one and of several partitions. They speculate once all
//! that have the partition have finished there (`partition/speculation.rs`).
//!
//! Under the optimistic scheme, one-shots run without locks beside the locks of others, and are
//! validated (`partition/optimistic.rs`). Several partitions are requested only by one-shots of
//! several rounds, and by those that were invalid: as under blocking.
//!
//! Interactive transactions are the source's general transactions, which take several rounds. A
//! page that is not resident ends exclusive access under every scheme
//! (`partition/blocking.rs`).
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4; for the optimistic scheme Kung, Robinson,
//! TODS 1981.

mod blocking;
mod hybrid;
mod locking;
mod optimistic;
mod speculative;

use blocking::Blocking;
use hybrid::Hybrid;
use locking::Locking;
use optimistic::Optimistic;
use speculative::Speculative;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Names a concurrency-control scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemeKind {
    /// Multi-partition one-shots have their partitions to themselves if no lock is held there;
    /// otherwise they lock.
    #[default]
    Hybrid,
    /// Multi-partition one-shots have their partitions to themselves, and wait for that.
    Blocking,
    /// Like blocking. Once a multi-partition one-shot has finished at a partition, others run
    /// behind it before its decision, and are undone and run again if it aborts.
    Speculative,
    /// Multi-partition one-shots lock.
    Locking,
    /// One-shots run without locks, and are validated at their end. Multi-partition ones that are
    /// invalid run again as under blocking.
    Optimistic,
}

impl SchemeKind {
    /// Every scheme.
    pub const ALL: [Self; 5] =
        [Self::Hybrid, Self::Blocking, Self::Speculative, Self::Locking, Self::Optimistic];

    /// Returns how multi-partition one-shots get exclusive access to their partitions.
    pub fn exclusive(self) -> ExclusiveAccess {
        self.scheme().exclusive()
    }

    pub(crate) fn scheme(self) -> &'static dyn Scheme {
        match self {
            Self::Hybrid => &Hybrid,
            Self::Blocking => &Blocking,
            Self::Speculative => &Speculative,
            Self::Locking => &Locking,
            Self::Optimistic => &Optimistic,
        }
    }
}

impl Display for SchemeKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hybrid => "hybrid",
            Self::Blocking => "blocking",
            Self::Speculative => "speculative",
            Self::Locking => "locking",
            Self::Optimistic => "optimistic",
        })
    }
}

impl FromStr for SchemeKind {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        let known = || Self::ALL.map(|kind| kind.to_string()).join(", ");
        found.ok_or_else(|| format!("unknown scheme \"{name}\": use one of {}", known()))
    }
}

/// How multi-partition one-shots get partitions to themselves, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExclusiveAccess {
    /// Never: they lock.
    Never,
    /// Only if no lock is held at any of their partitions when they ask. Otherwise they lock.
    IfUnlocked,
    /// They wait until no lock is held, and single-partition one-shots wait behind them. They lock
    /// only if that would depend on a client, or after a number of refusals.
    WhenUnlocked,
    /// Those of one round first run without locks and without requesting their partitions
    /// ([`Body::Statement::optimistic`](crate::Body::Statement::optimistic)). If that fails, and if
    /// they have several rounds, the same as [`Self::WhenUnlocked`].
    AfterConflict,
}

impl ExclusiveAccess {
    /// Returns true if transactions that were refused a partition wait until no lock is held there.
    pub fn awaits_quiet(self) -> bool {
        matches!(self, Self::WhenUnlocked | Self::AfterConflict)
    }
}

/// Counts of a partition's one-shots by how they ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemeCounts {
    /// Transactions that ran behind an undecided one.
    pub speculated: u64,
    /// Optimistic runs that were valid.
    pub validated: u64,
    /// Transactions that were undone because one ahead of them was, or their run was invalid.
    pub discarded: u64,
    /// Those of the undone that run again here. The sessions of the others run them again.
    pub retried: u64,
    /// Messages that waited in line for the partition.
    pub blocked: u64,
}

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
    /// Without locks. What it reads and changes is recorded, and validated at its end.
    Recorded,
    /// As a locking transaction.
    Locking,
}

/// Decides how one-shot transactions run.
pub(crate) trait Scheme: Sync {
    /// Returns how a single-partition one-shot may run now.
    ///
    /// Blocking and locking agree here: no locks while no lock is held at the partition. If a lock
    /// is held, [`Admission::Checked`] has the effect of locks that are released within the same
    /// message.
    #[inline]
    fn admit(&self, load: Load) -> Admission {
        if !load.may_restart {
            Admission::Locking
        } else if load.unlocked {
            Admission::Alone
        } else if load.reads || load.atomic {
            Admission::Checked
        } else if self.records() {
            Admission::Recorded
        } else {
            Admission::Locking
        }
    }

    /// Returns how multi-partition one-shots get exclusive access.
    fn exclusive(&self) -> ExclusiveAccess;

    /// Returns true if one-shots that change several rows or an index beside locks are validated
    /// instead of locking.
    fn records(&self) -> bool {
        false
    }

    /// Returns true if one-shots run behind a multi-partition one-shot that has finished at the
    /// partition and has not been decided.
    fn speculates(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::SchemeKind;

    #[test]
    fn names_are_parsed() {
        for kind in SchemeKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "timestamps".parse::<SchemeKind>().unwrap_err();
        let known = "hybrid, blocking, speculative, locking, optimistic";
        assert_eq!(error, format!("unknown scheme \"timestamps\": use one of {known}"));
    }
}

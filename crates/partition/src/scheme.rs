//! Concurrency-control schemes: who may run how, decided at admission.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010. Blocking and locking are here; speculation and
//! optimistic control have this seam.

use crate::limits::Limits;

/// What a scheme looks at when a one-shot transaction asks to run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// No lock is held or waited for at the partition.
    pub unlocked: bool,
    /// How often this transaction has been tried already and missed a page.
    pub misses: u32,
    /// It changes at most one row and no index: its attempt either does everything or nothing.
    pub atomic: bool,
    /// It only reads.
    pub reads: bool,
}

/// How a one-shot transaction may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// At once, to its end, without locks: nobody else is active.
    Alone,
    /// At once, to its end, without taking locks, unless it meets somebody else's.
    Checked,
    /// As a locking transaction.
    Locking,
}

/// Decides how one-shot transactions run. Interactive transactions always lock.
pub trait Scheme {
    /// How a one-shot transaction may run now.
    fn admit(&self, load: Load) -> Admission;
    /// Whether a one-shot transaction of several partitions may have this one to itself until it
    /// ends; else it locks. `unlocked`: no lock is held or waited for here.
    fn blocks(&self, unlocked: bool) -> bool;
}

/// The 2010 paper's blocking scheme for one-shot work and its locking scheme for the rest: while no
/// interactive transaction is active, single-partition work runs alone and multi-partition work has
/// its partitions to itself; else all but the shortest lock.
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

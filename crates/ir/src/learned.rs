//! The lock that a plan's reads take on their rows, learned from what transactions later do with
//! the rows.
//!
//! Two transactions that both read a row under a shared lock and then both update it deadlock. If
//! most reads of a plan are followed by a change of the row, its reads lock exclusively, so that
//! the second transaction waits at the read.
//!
//! The same holds for two transactions that add to a row concurrently and then both read it under a
//! lock, or change it in another way, or read anything without locks. Here an UPDATE that only adds
//! counts as a read, and such a later use as a change. Such a plan starts exclusively: a program
//! that reads afterwards must not fail before this is learned.
//!
//! Invariants
//! 1. Evidence is what transactions did with rows after a read, never how long they waited. It is
//!    the same under both locks, so a plan can be unlearned as it was learned.
//! 2. The choice changes only when evidence arrives: to exclusive at a share of at least `ON`, and
//!    back below `OFF`. An UPDATE that only adds has lower thresholds: a wrong guess costs a
//!    deadlock instead of a wait.
//!
//! Locking: none. One word holds the share and the choice, and is replaced as a whole. Nothing
//! survives a restart.
//!
//! Source: Gray and Reuter, chapter 7.8, for update locks on reads that will write; choosing them
//! by observation is our own, see docs/decisions/read-locks.md.

use std::fmt;
// Plain std: no thread waits for another through these, and a stale choice only costs time.
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A share of 1.
const ONE: u32 = 1024;
/// The share of reads followed by a change at which a plan starts to read exclusively.
const ON: u32 = ONE / 2;
/// The share below which it returns to shared locks.
const OFF: u32 = ONE / 4;
/// [`ON`] and [`OFF`] of an UPDATE that only adds.
const ON_ADDS: u32 = ONE / 16;
const OFF_ADDS: u32 = ONE / 64;
/// The bit of the choice, next to the share.
const EXCLUSIVE: u32 = 1 << 31;

/// Finished reads, and what their transactions did with the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Rows read, or added to.
    pub reads: u32,
    /// Rows that the same transaction later changed or locked to change. For an UPDATE that only
    /// adds: rows that it used in any way except adding.
    pub changed: u32,
    /// Rows whose read took the exclusive lock.
    pub exclusive: u32,
}

/// The evidence about one plan, and the choice of its lock; see the module.
#[derive(Debug)]
pub struct LearnedLock {
    /// Unique within the engine.
    pub number: u32,
    /// What the plan does, as SQL without constants.
    pub text: Box<str>,
    /// Whether it is an UPDATE that only adds; see [`crate::increment`].
    pub adds: bool,
    /// The moving average of the share, with [`EXCLUSIVE`].
    word: AtomicU32,
    reads: AtomicU64,
    changed: AtomicU64,
    exclusive: AtomicU64,
    switches: AtomicU64,
}

/// A row of `clearway.plans`.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedRow {
    /// [`LearnedLock::text`].
    pub text: Box<str>,
    /// [`LearnedLock::adds`].
    pub adds: bool,
    /// Whether the plan takes the exclusive lock now.
    pub is_exclusive: bool,
    /// The share of recent reads that were followed by a change, from 0 to 1.
    pub recent_share: f64,
    /// Rows read in transaction blocks that could change them.
    pub reads: u64,
    /// Rows that were changed later in the block.
    pub changed: u64,
    /// Reads that took the exclusive lock.
    pub exclusive: u64,
    /// How many times the choice has changed.
    pub switches: u64,
}

impl LearnedLock {
    /// Creates a plan without evidence that takes shared locks.
    pub fn shared(number: u32, text: String, adds: bool) -> Self {
        Self::new(number, text, adds, 0)
    }

    /// Creates an UPDATE that only adds, without evidence. It takes exclusive locks until its
    /// transactions have been seen not to read afterwards.
    pub fn exclusive(number: u32, text: String) -> Self {
        Self::new(number, text, true, ON | EXCLUSIVE)
    }

    fn new(number: u32, text: String, adds: bool, word: u32) -> Self {
        Self {
            number,
            text: text.into(),
            adds,
            word: AtomicU32::new(word),
            reads: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            exclusive: AtomicU64::new(0),
            switches: AtomicU64::new(0),
        }
    }

    /// Returns true if the plan takes the exclusive lock on its rows.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        // Relaxed: a hint. Either lock is correct.
        self.word.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Records evidence: the share moves halfway to that of the evidence.
    pub fn learn(&self, evidence: Evidence) {
        let Evidence { reads, changed, exclusive } = evidence;
        if reads == 0 {
            return;
        }
        // All relaxed: independent counters.
        self.reads.fetch_add(reads.into(), Ordering::Relaxed);
        self.changed.fetch_add(changed.into(), Ordering::Relaxed);
        self.exclusive.fetch_add(exclusive.into(), Ordering::Relaxed);
        let share = (u64::from(changed.min(reads)) * u64::from(ONE) / u64::from(reads)) as u32;
        let (on, off) = if self.adds { (ON_ADDS, OFF_ADDS) } else { (ON, OFF) };
        let next = |word: u32| {
            let moved = ((word & !EXCLUSIVE) + share).div_ceil(2);
            let threshold = if word & EXCLUSIVE == 0 { on } else { off };
            Some(if moved >= threshold { moved | EXCLUSIVE } else { moved })
        };
        let before = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let before = before.unwrap_or_else(|word| word);
        if next(before).is_some_and(|after| (after ^ before) & EXCLUSIVE != 0) {
            self.switches.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the current state.
    pub fn row(&self) -> LearnedRow {
        // Relaxed: see `learn`.
        let word = self.word.load(Ordering::Relaxed);
        LearnedRow {
            text: self.text.clone(),
            adds: self.adds,
            is_exclusive: word & EXCLUSIVE != 0,
            recent_share: f64::from(word & !EXCLUSIVE) / f64::from(ONE),
            reads: self.reads.load(Ordering::Relaxed),
            changed: self.changed.load(Ordering::Relaxed),
            exclusive: self.exclusive.load(Ordering::Relaxed),
            switches: self.switches.load(Ordering::Relaxed),
        }
    }
}

/// A plan's slot for its [`LearnedLock`]; empty until the plan's first run in a transaction block.
/// It is not part of the plan's identity: all slots compare equal.
#[derive(Clone, Default)]
pub struct LearnedSlot(OnceLock<Option<Arc<LearnedLock>>>);

impl LearnedSlot {
    /// Returns the lock, if the slot has been filled with one.
    #[inline]
    pub fn get(&self) -> Option<&Arc<LearnedLock>> {
        self.0.get()?.as_ref()
    }

    /// Returns true if the slot has not been filled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Fills the slot, unless another thread has. `None` means that nothing is ever learned about
    /// this plan.
    pub fn fill(&self, with: Option<Arc<LearnedLock>>) {
        // `set`, not `get_or_init`: no thread waits for another's initialiser.
        let _ = self.0.set(with);
    }
}

impl PartialEq for LearnedSlot {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for LearnedSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LearnedSlot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(reads: u32, changed: u32) -> Evidence {
        Evidence { reads, changed, exclusive: 0 }
    }

    fn after(lock: &LearnedLock, batches: u32, evidence: Evidence) -> bool {
        (0..batches).for_each(|_| lock.learn(evidence));
        lock.is_exclusive()
    }

    #[test]
    fn one_full_batch_switches_and_three_empty_ones_undo() {
        let lock = LearnedLock::shared(1, String::new(), false);
        assert!(!lock.is_exclusive());
        assert!(after(&lock, 1, batch(16, 16)));
        assert!(after(&lock, 20, batch(16, 16)));
        assert!(after(&lock, 2, batch(16, 0)));
        assert!(!after(&lock, 1, batch(16, 0)));
        assert_eq!(
            (lock.row().switches, lock.row().reads, lock.row().changed),
            (2, 24 * 16, 21 * 16)
        );
    }

    #[test]
    fn a_share_of_one_third_keeps_the_current_choice() {
        let lock = LearnedLock::shared(1, String::new(), false);
        assert!(!after(&lock, 100, batch(15, 5)));
        assert!(after(&lock, 3, batch(15, 15)));
        assert!(after(&lock, 100, batch(15, 5)));
        assert!(!after(&lock, 10, batch(15, 2)));
    }

    #[test]
    fn additions_are_exclusive_until_six_batches_are_not_read() {
        let lock = LearnedLock::exclusive(1, String::new());
        assert!(after(&lock, 5, batch(16, 0)));
        assert!(!after(&lock, 1, batch(16, 0)));
        assert!(!after(&lock, 100, batch(160, 1)), "one in 160");
        assert!(after(&lock, 10, batch(16, 1)), "one in 16");
        assert!(after(&lock, 100, batch(160, 5)), "one in 32 keeps the choice");
        assert!(!after(&lock, 10, batch(160, 1)));
    }

    #[test]
    fn the_share_stays_between_0_and_1() {
        let lock = LearnedLock::shared(1, String::new(), false);
        for evidence in [batch(1, 1), batch(1, 9), batch(u32::MAX, u32::MAX), batch(0, 0)] {
            after(&lock, 40, evidence);
            assert!((0.0..=1.0).contains(&lock.row().recent_share), "{lock:?}");
        }
        after(&lock, 40, batch(9, 0));
        assert!(lock.row().recent_share < 0.01);
    }
}

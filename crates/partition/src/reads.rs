//! Rows that transactions read or add to by plans whose lock is learned, and what became of the
//! rows.
//!
//! A row to which an UPDATE has added concurrently with others is recorded like a read. For it, a
//! change is a read of the row under a lock, or a change other than an addition: two such
//! transactions would deadlock.
//!
//! Invariants
//! 1. A read is recorded when its lock is requested, before any wait. It becomes evidence once:
//!    when the transaction requests to change the row, or when the transaction ends.
//! 2. A transaction remembers at most [`MOST_READS`] rows at a partition. Further reads take shared
//!    locks, so that many rows are never locked exclusively on a guess.
//! 3. Reads of a failed statement are not evidence: the transaction may have intended to change the
//!    rows.
//!
//! Locking: none, one thread at a time runs a partition. Evidence is collected here and passed on
//! in batches, so that partitions do not write to the same memory at each read. A crash leaves
//! nothing.

use clearway_ir::{Evidence, LearnedLock};
use clearway_types::TreeId;
use clearway_types::hash::stable_hash;
use hashbrown::HashMap;
use std::sync::Arc;

/// Maximum number of reads that a transaction remembers at a partition.
pub(crate) const MOST_READS: usize = 16;
/// Maximum number of plans with pending evidence; beyond that, all of it is dropped.
const MOST_PLANS: usize = 4096;

struct Read {
    plan: u32,
    /// A hash of the tree and the key. A collision only produces wrong evidence.
    row: u32,
    exclusive: bool,
    /// Same as [`LearnedLock::adds`].
    adds: bool,
}

/// How a transaction is about to use a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It reads the row under a lock.
    Reads,
    /// It only adds to the row.
    Adds,
    /// It changes the row in another way, or locks it for that.
    Changes,
}

/// The rows that a transaction has read.
#[derive(Default)]
pub(crate) struct Reads(Vec<Read>);

impl Reads {
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST_READS
    }

    /// Discards reads that are not evidence (invariant 3).
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

struct Gathered {
    learned: Arc<LearnedLock>,
    evidence: Evidence,
}

/// A partition's pending evidence.
pub(crate) struct Gathering {
    /// Number of a plan's reads that are passed on together; 0 disables the collection.
    batch: u32,
    plans: HashMap<u32, Gathered>,
}

impl Gathering {
    pub(crate) fn new(batch: u32) -> Self {
        Self { batch, plans: HashMap::new() }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.batch == 0
    }

    /// Records that a row is about to be read or added to.
    pub(crate) fn note(
        &mut self,
        reads: &mut Reads,
        learned: &Arc<LearnedLock>,
        tree: TreeId,
        key: &[u8],
        exclusive: bool,
    ) {
        if reads.is_full() {
            return;
        }
        if self.plans.len() >= MOST_PLANS {
            self.plans.clear();
        }
        self.plans.entry(learned.number).or_insert_with(|| Gathered {
            learned: learned.clone(),
            evidence: Evidence::default(),
        });
        reads.0.push(Read {
            plan: learned.number,
            row: row(tree, key),
            exclusive,
            adds: learned.adds,
        });
    }

    /// Records that a row is about to be used. Its earlier reads become evidence, if this use
    /// counts as a change.
    #[inline]
    pub(crate) fn uses(&mut self, reads: &mut Reads, tree: TreeId, key: &[u8], by: Use) {
        if !reads.0.is_empty() {
            self.find(reads, row(tree, key), by);
        }
    }

    fn find(&mut self, reads: &mut Reads, row: u32, by: Use) {
        let counts = |read: &Read| match by {
            Use::Reads => read.adds,
            Use::Adds => !read.adds,
            Use::Changes => true,
        };
        while let Some(at) = reads.0.iter().position(|read| read.row == row && counts(read)) {
            self.count(reads.0.swap_remove(at), true);
        }
    }

    /// Records that the transaction is about to read without locks: that counts as a change of each
    /// row to which it has added.
    pub(crate) fn reads_freely(&mut self, reads: &mut Reads) {
        while let Some(at) = reads.0.iter().position(|read| read.adds) {
            self.count(reads.0.swap_remove(at), true);
        }
    }

    /// Counts the remaining reads when the transaction ends.
    #[inline]
    pub(crate) fn ended(&mut self, reads: &mut Reads) {
        for read in reads.0.drain(..) {
            self.count(read, false);
        }
    }

    fn count(&mut self, read: Read, changed: bool) {
        let Some(Gathered { learned, evidence }) = self.plans.get_mut(&read.plan) else { return };
        evidence.reads += 1;
        evidence.changed += u32::from(changed);
        evidence.exclusive += u32::from(read.exclusive);
        if evidence.reads >= self.batch {
            learned.learn(std::mem::take(evidence));
        }
    }
}

fn row(tree: TreeId, key: &[u8]) -> u32 {
    (stable_hash(key) ^ u64::from(tree.0)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(7);

    fn learned() -> Arc<LearnedLock> {
        Arc::new(LearnedLock::shared(3, String::new(), false))
    }

    /// Invariant 1.
    #[test]
    fn each_read_becomes_evidence_once() {
        let (mut all, learned) = (Gathering::new(1), learned());
        let mut reads = Reads::default();
        all.note(&mut reads, &learned, TREE, b"a", false);
        all.note(&mut reads, &learned, TREE, b"b", true);
        all.uses(&mut reads, TREE, b"c", Use::Changes);
        all.uses(&mut reads, TreeId(8), b"a", Use::Changes);
        assert_eq!(learned.row().reads, 0);
        all.uses(&mut reads, TREE, b"a", Use::Changes);
        all.uses(&mut reads, TREE, b"a", Use::Changes);
        assert_eq!((learned.row().reads, learned.row().changed), (1, 1));
        all.ended(&mut reads);
        all.ended(&mut reads);
        let row = learned.row();
        assert_eq!((row.reads, row.changed, row.exclusive), (2, 1, 1));
    }

    #[test]
    fn evidence_is_passed_on_in_batches() {
        let (mut all, learned) = (Gathering::new(3), learned());
        for n in 1..=7 {
            let mut reads = Reads::default();
            all.note(&mut reads, &learned, TREE, b"a", false);
            all.uses(&mut reads, TREE, b"a", Use::Changes);
            assert_eq!(learned.row().reads, n / 3 * 3);
        }
    }

    /// Invariants 2 and 3.
    #[test]
    fn excess_and_failed_reads_are_not_evidence() {
        let (mut all, learned) = (Gathering::new(1), learned());
        let mut reads = Reads::default();
        for key in 0..100_u8 {
            all.note(&mut reads, &learned, TREE, &[key], false);
        }
        assert!(reads.is_full());
        all.uses(&mut reads, TREE, &[0], Use::Changes);
        reads.forget();
        all.ended(&mut reads);
        assert_eq!((learned.row().reads, learned.row().changed), (1, 1));
    }

    /// For an addition, another addition does not count as a change; for a read, another read does
    /// not.
    #[test]
    fn what_counts_as_a_change_after_reads_and_additions() {
        let plans = [false, true]
            .map(|adds| Arc::new(LearnedLock::shared(adds.into(), String::new(), adds)));
        for (by, read, added) in [(Use::Reads, 0, 1), (Use::Adds, 1, 0), (Use::Changes, 1, 1)] {
            let mut all = Gathering::new(1);
            let before = plans.each_ref().map(|plan| plan.row().changed);
            let mut reads = Reads::default();
            plans.iter().for_each(|plan| all.note(&mut reads, plan, TREE, b"a", false));
            all.uses(&mut reads, TREE, b"a", by);
            all.ended(&mut reads);
            let after = plans.each_ref().map(|plan| plan.row().changed);
            assert_eq!([after[0] - before[0], after[1] - before[1]], [read, added], "{by:?}");
        }
    }
}

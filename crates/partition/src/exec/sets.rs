//! The read set and the write set of a run without locks (`partition/optimistic.rs`).
//!
//! A read set has keys, ranges of keys, or the whole table. A range is the predicate that the run
//! has searched, so a row that is not there yet is a conflict, too. A write set has the keys of
//! rows and index entries that the run has inserted, changed or deleted.
//!
//! Invariants
//! 1. The write set has every key that the run has changed. When a key was added, no other
//!    transaction had a lock that conflicts with the change, on the key or on the table.
//! 2. The sets are open from [`AccessSets::begin`] until the run has been validated, or its changes
//!    have been undone or locked. They are never open between two messages.

use crate::lock::{Acquired, LockTable, Mode, Target};
use clearway_sync::canary::{self, Bug};
use clearway_types::{TableId, TreeId, TxnId};
use std::ops::Bound;

/// A part of [`AccessSets::bytes`].
#[derive(Clone, Copy, Debug)]
struct Part {
    from: usize,
    to: usize,
}

/// What was read: a key, existing or not, or all keys between two bounds.
#[derive(Clone, Copy, Debug)]
enum Read {
    Key(TreeId, Part),
    Range(TreeId, Bound<Part>, Bound<Part>),
}

/// A key that was changed, and the lock that protects the change.
#[derive(Clone, Copy, Debug)]
struct Write {
    tree: TreeId,
    key: Part,
    mode: Mode,
}

/// The sets of the run in progress. They keep their memory for the next run.
#[derive(Debug, Default)]
pub(crate) struct AccessSets {
    open: bool,
    /// A run uses one table.
    table: Option<TableId>,
    /// Whether it has read the whole table.
    whole: bool,
    /// Whether it changes rows: then the table's intent lock was free.
    changes: bool,
    reads: Vec<Read>,
    writes: Vec<Write>,
    bytes: Vec<u8>,
}

impl AccessSets {
    /// Begins a run with empty sets.
    pub(crate) fn begin(&mut self) {
        self.end();
        self.open = true;
    }

    /// Forgets the sets.
    pub(crate) fn end(&mut self) {
        (self.open, self.table, self.whole, self.changes) = (false, None, false, false);
        self.reads.clear();
        self.writes.clear();
        self.bytes.clear();
    }

    /// Returns true if a run has begun and has been neither validated nor undone.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    fn keep(&mut self, bytes: &[u8]) -> Part {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Part { from, to: self.bytes.len() }
    }

    fn keep_bound(&mut self, bound: Bound<&[u8]>) -> Bound<Part> {
        bound.map(|bytes| self.keep(bytes))
    }

    fn bytes(&self, part: Part) -> &[u8] {
        &self.bytes[part.from..part.to]
    }

    /// Adds what is read under such a lock to the read set. The mode matters for tables only:
    /// whether it is an intent, or covers every row.
    pub(super) fn read(&mut self, target: Target<'_>, mode: Mode) {
        if let Target::Table(table) = target {
            debug_assert!(self.table.is_none_or(|known| known == table), "one table");
            self.table = Some(table);
        }
        if canary::on(Bug::UnvalidatedRead) {
            return;
        }
        match target {
            Target::Table(_) => self.whole |= matches!(mode, Mode::Shared | Mode::Exclusive),
            Target::Key(tree, key) => {
                let key = self.keep(key);
                self.reads.push(Read::Key(tree, key));
            }
            Target::Range(tree, from, to) => {
                let (from, to) = (self.keep_bound(from), self.keep_bound(to));
                self.reads.push(Read::Range(tree, from, to));
            }
        }
    }

    /// Adds a key that is about to be changed to the write set. Returns false if another
    /// transaction's lock is in the way.
    pub(super) fn write(
        &mut self,
        (txn, locks): (TxnId, &LockTable),
        (tree, key): (TreeId, &[u8]),
        mode: Mode,
    ) -> bool {
        if !self.will_change(txn, locks) || !locks.free(txn, Target::Key(tree, key), mode) {
            return false;
        }
        let key = self.keep(key);
        self.writes.push(Write { tree, key, mode });
        true
    }

    /// Records that the run changes rows. Returns false if another transaction's lock of the table
    /// is in the way.
    pub(crate) fn will_change(&mut self, txn: TxnId, locks: &LockTable) -> bool {
        let is_free = |table| locks.free(txn, Target::Table(table), Mode::IntentExclusive);
        self.changes = self.changes || self.table.is_none_or(is_free);
        self.changes
    }

    fn target(&self, read: Read) -> Target<'_> {
        match read {
            Read::Key(tree, key) => Target::Key(tree, self.bytes(key)),
            Read::Range(tree, from, to) => {
                Target::Range(tree, from.map(|at| self.bytes(at)), to.map(|at| self.bytes(at)))
            }
        }
    }

    /// Returns true if nothing in the read set is locked for a change by another transaction.
    pub(crate) fn is_valid(&self, txn: TxnId, locks: &LockTable) -> bool {
        let is_free = |target, mode| locks.free(txn, target, mode);
        self.table.is_none_or(|table| is_free(Target::Table(table), self.of_table()))
            && self.reads.iter().all(|read| is_free(self.target(*read), Mode::Shared))
    }

    /// Returns the lock of the table that the reads need.
    fn of_table(&self) -> Mode {
        if self.whole { Mode::Shared } else { Mode::IntentShared }
    }

    /// Locks the write set, whose locks are free by invariant 1.
    pub(crate) fn lock_writes(&self, txn: TxnId, locks: &mut LockTable) {
        let Some(table) = self.table.filter(|_| self.changes) else { return };
        let intent = locks.acquire(txn, Target::Table(table), Mode::IntentExclusive);
        assert_eq!(intent, Acquired::Granted, "invariant 1: the table's lock was free");
        for Write { tree, key, mode } in &self.writes {
            let key = Target::Key(*tree, self.bytes(*key));
            let acquired = locks.acquire_in(txn, table, key, *mode);
            assert_eq!(acquired, Acquired::Granted, "invariant 1: the key's lock was free");
        }
    }

    /// Locks both sets. They must be valid.
    pub(crate) fn lock_all(&self, txn: TxnId, locks: &mut LockTable) {
        self.lock_writes(txn, locks);
        let Some(table) = self.table else { return };
        let acquired = locks.acquire(txn, Target::Table(table), self.of_table());
        assert_eq!(acquired, Acquired::Granted, "the set is valid");
        for read in &self.reads {
            let acquired = locks.acquire_in(txn, table, self.target(*read), Mode::Shared);
            assert_eq!(acquired, Acquired::Granted, "the set is valid");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AccessSets;
    use crate::lock::{Acquired, LockTable, Mode, Target};
    use clearway_types::{TableId, TreeId, TxnId};
    use std::ops::Bound::{Excluded, Included, Unbounded};

    const TABLE: TableId = TableId(1);
    const ROWS: TreeId = TreeId(1);
    const INDEX: TreeId = TreeId(2);
    const ME: TxnId = TxnId(1);
    const OTHER: TxnId = TxnId(2);
    const THIRD: TxnId = TxnId(3);

    fn begun() -> AccessSets {
        let mut sets = AccessSets::default();
        sets.begin();
        sets.read(Target::Table(TABLE), Mode::IntentExclusive);
        sets
    }

    /// Returns sets with a read range of the index, a read row, and a changed row.
    fn filled() -> AccessSets {
        let mut sets = begun();
        let range = Target::Range(INDEX, Included(&b"b"[..]), Excluded(&b"d"[..]));
        sets.read(range, Mode::NoKeyExclusive);
        sets.read(Target::Key(ROWS, b"x"), Mode::NoKeyExclusive);
        let locks = LockTable::new(8);
        assert!(sets.write((ME, &locks), (ROWS, b"y"), Mode::NoKeyExclusive));
        sets
    }

    fn take(locks: &mut LockTable, txn: TxnId, target: Target<'_>, mode: Mode) -> bool {
        assert_eq!(locks.acquire(txn, Target::Table(TABLE), mode.intent()), Acquired::Granted);
        locks.acquire(txn, target, mode) == Acquired::Granted
    }

    /// Returns whether the sets are valid beside this lock of another transaction.
    fn is_valid(sets: &AccessSets, target: Target<'_>, mode: Mode) -> bool {
        let mut locks = LockTable::new(8);
        assert!(take(&mut locks, OTHER, target, mode));
        assert!(sets.is_valid(OTHER, &locks), "its own locks");
        sets.is_valid(ME, &locks)
    }

    #[test]
    fn changes_in_the_read_set_are_conflicts() {
        let sets = filled();
        let keys = [
            (INDEX, b"a", true),
            (INDEX, b"b", false),
            (INDEX, b"c", false),
            (INDEX, b"d", true),
            (ROWS, b"c", true),
            (ROWS, b"x", false),
        ];
        for (tree, key, valid) in keys {
            for mode in [Mode::Increment, Mode::NoKeyExclusive, Mode::Exclusive] {
                let found = is_valid(&sets, Target::Key(tree, key), mode);
                assert_eq!(found, valid, "{tree:?} {key:?} {mode:?}");
            }
        }
        let range = Target::Range(INDEX, Included(&b"c"[..]), Unbounded);
        assert!(!is_valid(&sets, range, Mode::NoKeyExclusive));
    }

    #[test]
    fn reads_of_others_are_no_conflicts() {
        for sets in [filled(), whole()] {
            for mode in [Mode::KeyShared, Mode::Shared] {
                assert!(is_valid(&sets, Target::Range(INDEX, Unbounded, Unbounded), mode));
                assert!(is_valid(&sets, Target::Key(ROWS, b"x"), mode));
            }
        }
    }

    fn whole() -> AccessSets {
        let mut sets = begun();
        sets.read(Target::Table(TABLE), Mode::Exclusive);
        sets
    }

    #[test]
    fn every_change_conflicts_with_a_read_of_the_table() {
        assert!(!is_valid(&whole(), Target::Key(ROWS, b"q"), Mode::NoKeyExclusive));
        assert!(is_valid(&begun(), Target::Key(ROWS, b"q"), Mode::Exclusive));
    }

    /// Invariant 1.
    #[test]
    fn changes_need_free_locks() {
        let write = |target, mode| {
            let (mut sets, mut locks) = (begun(), LockTable::new(8));
            assert!(take(&mut locks, OTHER, target, mode));
            sets.write((ME, &locks), (ROWS, b"y"), Mode::NoKeyExclusive)
        };
        assert!(write(Target::Key(ROWS, b"y"), Mode::KeyShared));
        assert!(write(Target::Key(ROWS, b"x"), Mode::Exclusive));
        assert!(!write(Target::Key(ROWS, b"y"), Mode::Shared));
        assert!(!write(Target::Range(ROWS, Unbounded, Unbounded), Mode::Shared));
        assert!(!write(Target::Table(TABLE), Mode::Shared));
        assert!(!write(Target::Table(TABLE), Mode::Exclusive));
    }

    #[test]
    fn waits_for_a_change_are_conflicts() {
        let (sets, mut locks) = (filled(), LockTable::new(8));
        let row = Target::Key(ROWS, b"x");
        assert!(take(&mut locks, OTHER, row, Mode::Shared));
        assert!(sets.is_valid(ME, &locks));
        assert!(!take(&mut locks, THIRD, row, Mode::Exclusive));
        assert!(!sets.is_valid(ME, &locks));
    }

    #[test]
    fn sets_are_locked_in_parts_and_as_a_whole() {
        let (sets, mut locks) = (filled(), LockTable::new(8));
        let (changed, read) = (Target::Key(ROWS, b"y"), Target::Key(ROWS, b"x"));
        let range = Target::Range(INDEX, Unbounded, Unbounded);
        sets.lock_writes(ME, &mut locks);
        assert!(!locks.free(OTHER, changed, Mode::Shared));
        assert!(locks.free(OTHER, read, Mode::Exclusive));
        sets.lock_all(ME, &mut locks);
        for target in [read, range] {
            assert!(locks.free(OTHER, target, Mode::Shared), "{target:?}");
            assert!(!locks.free(OTHER, target, Mode::NoKeyExclusive), "{target:?}");
        }
        locks.release(ME);
        assert!(locks.is_empty());
        whole().lock_all(ME, &mut locks);
        assert!(!locks.free(OTHER, Target::Table(TABLE), Mode::IntentExclusive));
    }

    /// Invariant 2.
    #[test]
    fn a_run_begins_with_empty_sets() {
        let mut sets = filled();
        assert!(sets.is_open());
        sets.begin();
        assert!(sets.is_open() && is_valid(&sets, Target::Key(ROWS, b"x"), Mode::Exclusive));
        sets.end();
        assert!(!sets.is_open());
    }
}

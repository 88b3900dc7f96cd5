//! A partition's trees in memory: for tests, and for the simulated cluster. No access misses a
//! page, and nothing outlives the process.

#![forbid(unsafe_code)]

use clearway_storage::{
    Addend, Addends, Blocked, Compute, EachImage, EachUndone, Incremented, Inserted, Prior,
    Replaced, StorageError, Trees, TxnMode, UndoLog, Visit,
};
use clearway_types::{Lsn, PartitionId, TreeId, TxnId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The values of a tree, by key.
pub type MemoryTree = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// A partition's trees.
#[derive(Debug)]
pub struct MemoryTrees {
    partition: PartitionId,
    /// The trees.
    pub trees: BTreeMap<TreeId, MemoryTree>,
    rowids: BTreeMap<TreeId, u64>,
    /// The end of the last record.
    lsn: Lsn,
    work: TreeWork,
    /// The number of calls of [`MemoryTrees::take_work`].
    period: u64,
}

/// What the trees of a partition have done for transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeWork {
    /// Transactions that have made their first change, or have ended without any. One that was
    /// undone and changes something again counts again.
    pub runs: u64,
    /// Changes.
    pub changes: u64,
    /// The part of `changes` that could still be undone when the work was taken.
    pub kept: u64,
    /// Changes that were undone.
    pub undone: u64,
}

/// The undo of a transaction.
#[derive(Debug)]
pub struct MemoryLog {
    txn: TxnId,
    /// The last [period](MemoryTrees::period) with an addition, and the additions in it.
    recent: (u64, u64),
    /// It was counted in [`TreeWork::runs`].
    ran: bool,
    undo: Vec<(TreeId, Box<[u8]>, Undo)>,
}

#[derive(Clone, Debug)]
enum Undo {
    /// The value before.
    Value(Option<Box<[u8]>>),
    Added(Addends),
}

impl MemoryLog {
    /// Returns the tree and key of each change, oldest first.
    pub fn changed(&self) -> impl DoubleEndedIterator<Item = (TreeId, &[u8])> {
        self.undo.iter().map(|(tree, key, _)| (*tree, &**key))
    }

    fn of_key(&self, tree: TreeId, key: &[u8]) -> impl DoubleEndedIterator<Item = &Undo> {
        self.undo.iter().filter(move |(t, k, _)| *t == tree && **k == *key).map(|(.., undo)| undo)
    }

    fn only_adds(&self, tree: TreeId, key: &[u8]) -> bool {
        self.of_key(tree, key).all(|undo| matches!(undo, Undo::Added(_)))
    }
}

impl UndoLog for MemoryLog {
    fn new(txn: TxnId) -> Self {
        Self { txn, recent: (0, 0), ran: false, undo: Vec::new() }
    }
    fn txn(&self) -> TxnId {
        self.txn
    }
    fn mark(&self) -> usize {
        self.undo.len()
    }
    fn is_in_memory(&self) -> bool {
        true
    }
}

impl MemoryTrees {
    /// Creates a partition without trees.
    pub fn new(partition: PartitionId) -> Self {
        // Before the first record, like a log with only its header.
        Self {
            partition,
            trees: BTreeMap::new(),
            rowids: BTreeMap::new(),
            lsn: Lsn(8),
            work: TreeWork::default(),
            period: 0,
        }
    }

    /// Returns the log's end.
    pub fn appended(&self) -> Lsn {
        self.lsn
    }

    /// Appends a record, for example a commit record; returns its end.
    pub fn append(&mut self) -> Lsn {
        self.lsn.0 += 8;
        self.lsn
    }

    /// Returns what was done since the last call.
    pub fn take_work(&mut self) -> TreeWork {
        self.period += 1;
        std::mem::take(&mut self.work)
    }

    fn keep(&mut self, log: &mut MemoryLog, tree: TreeId, key: &[u8], undo: Undo) {
        if log.recent.0 != self.period {
            log.recent = (self.period, 0);
        }
        self.work.runs += u64::from(!std::mem::replace(&mut log.ran, true));
        log.recent.1 += 1;
        self.work.kept += 1;
        log.undo.push((tree, key.into(), undo));
    }

    /// Forgets the undo of a transaction.
    fn release(&mut self, log: &MemoryLog) {
        if log.recent.0 == self.period {
            self.work.kept -= log.recent.1;
        }
    }

    fn tree(&self, tree: TreeId) -> Result<&MemoryTree, Blocked> {
        self.trees.get(&tree).ok_or(Blocked::Failed(StorageError::NoTree(tree)))
    }

    fn tree_mut(&mut self, tree: TreeId) -> Result<&mut MemoryTree, Blocked> {
        self.trees.get_mut(&tree).ok_or(Blocked::Failed(StorageError::NoTree(tree)))
    }

    fn set(
        &mut self,
        log: Option<&mut MemoryLog>,
        tree: TreeId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Lsn, Blocked> {
        let rows = self.tree_mut(tree)?;
        let old = match value {
            Some(value) => match rows.get_mut(key) {
                Some(now) => Some(std::mem::replace(now, value.into())),
                None => rows.insert(key.into(), value.into()),
            },
            None => rows.remove(key),
        };
        if let Some(log) = log {
            self.keep(log, tree, key, Undo::Value(old));
        }
        Ok(self.append())
    }

    /// Sets the value of a key that exists, or that does not; returns false otherwise.
    fn set_if(
        &mut self,
        log: Option<&mut MemoryLog>,
        exists: bool,
        tree: TreeId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Option<Lsn>, Blocked> {
        if self.tree(tree)?.contains_key(key) != exists {
            return Ok(None);
        }
        self.work.changes += 1;
        self.work.runs += u64::from(log.is_none());
        self.set(log, tree, key, value).map(Some)
    }

    /// Returns the value of a key before all changes of the transaction.
    fn before(
        &self,
        log: &MemoryLog,
        tree: TreeId,
        key: &[u8],
    ) -> Result<Option<Box<[u8]>>, Blocked> {
        let mut value = self.tree(tree)?.get(key).cloned();
        for undo in log.of_key(tree, key).rev() {
            match (undo, &mut value) {
                (Undo::Value(old), _) => value.clone_from(old),
                (Undo::Added(addends), Some(value)) => assert!(addends.subtract_from(value)),
                (Undo::Added(_), None) => panic!("an addition to an absent row"),
            }
        }
        Ok(value)
    }
}

fn logged(log: &mut MemoryLog, mode: TxnMode) -> Option<&mut MemoryLog> {
    (mode == TxnMode::Logged).then_some(log)
}

impl Trees for MemoryTrees {
    type Log = MemoryLog;
    fn partition(&self) -> PartitionId {
        self.partition
    }
    fn has_tree(&self, tree: TreeId) -> bool {
        self.trees.contains_key(&tree)
    }
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked> {
        assert!(self.trees.insert(tree, MemoryTree::new()).is_none(), "{tree} exists");
        Ok(())
    }
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked> {
        match self.trees.remove(&tree) {
            Some(_) => Ok(true),
            None => Err(Blocked::Failed(StorageError::NoTree(tree))),
        }
    }
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked> {
        let value = self.tree(tree)?.get(key);
        Ok(value.map(|value| f(value)).is_some())
    }
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked> {
        // `BTreeMap::range` panics on a range that is empty by its bounds.
        let (low, high) = match (from, to) {
            (Bound::Included(low), Bound::Included(high)) if low > high => return Ok(()),
            (
                Bound::Included(low) | Bound::Excluded(low),
                Bound::Included(high) | Bound::Excluded(high),
            ) if low >= high && (from != to || matches!(from, Bound::Excluded(_))) => {
                return Ok(());
            }
            bounds => bounds,
        };
        let mut rows = self.tree(tree)?.range::<[u8], _>((low, high));
        let next = || if reverse { rows.next_back() } else { rows.next() };
        for (key, value) in std::iter::from_fn(next) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
    fn insert(
        &mut self,
        log: &mut MemoryLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        let done = self.set_if(logged(log, mode), false, tree, key, Some(value))?;
        Ok(if done.is_some() { Inserted::Ok } else { Inserted::Exists })
    }
    fn update(
        &mut self,
        log: &mut MemoryLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        self.set_if(logged(log, mode), true, tree, key, Some(value)).map(|done| done.is_some())
    }
    fn increment(
        &mut self,
        log: &mut MemoryLog,
        _mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked> {
        let Some(value) = self.tree_mut(tree)?.get_mut(key) else {
            return Ok(Incremented::Missing);
        };
        let Some(addends) = compute(value) else { return Ok(Incremented::Refused) };
        if !addends.add_to(value) {
            return Ok(Incremented::Refused);
        }
        self.work.changes += 1;
        self.keep(log, tree, key, Undo::Added(addends));
        self.append();
        Ok(Incremented::Done(addends))
    }
    fn delete(
        &mut self,
        log: &mut MemoryLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked> {
        self.set_if(logged(log, mode), true, tree, key, None).map(|done| done.is_some())
    }
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        self.set_if(None, false, tree, key, Some(value))
    }
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        self.set_if(None, true, tree, key, Some(value))
    }
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked> {
        self.set_if(None, true, tree, key, None)
    }
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked> {
        let last = self.rowids.entry(tree).or_default();
        *last += 1;
        Ok(*last)
    }
    fn commit_local(&mut self, log: MemoryLog) -> Lsn {
        self.release(&log);
        self.append()
    }
    fn committed(&mut self, log: MemoryLog) {
        self.release(&log);
    }
    fn rollback(
        &mut self,
        log: &mut MemoryLog,
        to: usize,
        undone: &mut EachUndone<'_>,
    ) -> Result<(), Blocked> {
        while log.undo.len() > to {
            let Some((tree, key, undo)) = log.undo.pop() else { break };
            self.work.undone += 1;
            if log.recent.0 == self.period && log.recent.1 > 0 {
                log.recent.1 -= 1;
                self.work.kept -= 1;
            }
            match undo {
                Undo::Value(old) => {
                    self.set(None, tree, &key, old.as_deref())?;
                }
                Undo::Added(addends) => {
                    let value = self.tree_mut(tree)?.get_mut(&key);
                    assert!(value.is_some_and(|value| addends.subtract_from(value)), "it fits");
                    self.append();
                    undone(tree, &key, &addends);
                }
            }
        }
        Ok(())
    }
    fn aborted(&mut self, log: MemoryLog) {
        assert!(log.undo.is_empty(), "{} has ended with changes", log.txn);
        self.work.runs += u64::from(!log.ran);
    }
    fn images(&self, log: &MemoryLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        let mut befores = BTreeMap::new();
        for (tree, key, _) in &log.undo {
            if !log.only_adds(*tree, key) {
                befores.insert((*tree, key), self.before(log, *tree, key)?);
            }
        }
        for ((tree, key), before) in &befores {
            each(*tree, key, Prior::Value(before.as_deref()));
        }
        for (tree, key, undo) in log.undo.iter().rev() {
            if let (Undo::Added(addends), true) = (undo, log.only_adds(*tree, key)) {
                each(*tree, key, Prior::Added(addends));
            }
        }
        Ok(true)
    }
    fn replaced(&self, log: &MemoryLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        if log.of_key(tree, key).next().is_none() {
            return Ok(Replaced::Nothing);
        }
        if !log.only_adds(tree, key) {
            return Ok(Replaced::Value(self.before(log, tree, key)?));
        }
        let mut sums = BTreeMap::<u16, Addend>::new();
        for undo in log.of_key(tree, key) {
            let Undo::Added(addends) = undo else { continue };
            for addend in addends.iter() {
                let sum = sums.entry(addend.offset).or_insert(Addend { delta: 0, ..addend });
                sum.delta = sum.delta.wrapping_add(addend.delta);
            }
        }
        Ok(Replaced::Added(sums.into_values().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    const TREE: TreeId = TreeId(3);

    fn keys(trees: &MemoryTrees, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Vec<u8> {
        let mut keys = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            keys.push(key[0]);
            ControlFlow::Continue(())
        };
        trees.scan(TREE, from, to, reverse, &mut visit).unwrap();
        keys
    }

    #[test]
    fn rollback_restores_what_was_there() {
        let mut trees = MemoryTrees::new(PartitionId(0));
        trees.create_tree(TREE).unwrap();
        trees.insert_autocommit(TREE, b"a", b"1").unwrap().unwrap();
        let mut log = MemoryLog::new(TxnId(1));
        assert!(trees.update(&mut log, TxnMode::Logged, TREE, b"a", b"2").unwrap());
        let inserted = trees.insert(&mut log, TxnMode::Logged, TREE, b"b", b"3").unwrap();
        assert_eq!(inserted, Inserted::Ok);
        let first = trees.replaced(&log, TREE, b"a").unwrap();
        assert_eq!(first, Replaced::Value(Some(b"1".as_slice().into())));
        trees.rollback(&mut log, 0, &mut |_, _, _| {}).unwrap();
        assert_eq!(keys(&trees, Bound::Unbounded, Bound::Unbounded, false), b"a");
        trees.get(TREE, b"a", &mut |value| assert_eq!(value, b"1")).unwrap();
    }

    #[test]
    fn work_tells_which_undo_is_kept() {
        let mut trees = MemoryTrees::new(PartitionId(0));
        trees.create_tree(TREE).unwrap();
        let insert = |trees: &mut MemoryTrees, log: &mut MemoryLog, key: &[u8]| {
            trees.insert(log, TxnMode::Logged, TREE, key, b"").unwrap();
        };
        let work = |runs, changes, kept, undone| TreeWork { runs, changes, kept, undone };

        let (mut short, mut long) = (MemoryLog::new(TxnId(1)), MemoryLog::new(TxnId(2)));
        insert(&mut trees, &mut short, b"a");
        insert(&mut trees, &mut long, b"b");
        trees.commit_local(short);
        assert_eq!(trees.take_work(), work(2, 2, 1, 0), "it is kept for the second only");

        insert(&mut trees, &mut long, b"c");
        trees.rollback(&mut long, 0, &mut |_, _, _| {}).unwrap();
        trees.aborted(long);
        assert_eq!(trees.take_work(), work(0, 1, 0, 2), "the second has run before");

        trees.aborted(MemoryLog::new(TxnId(3)));
        assert_eq!(trees.take_work(), work(1, 0, 0, 0), "a run without changes");
    }

    #[test]
    fn scans_respect_their_bounds() {
        let mut trees = MemoryTrees::new(PartitionId(0));
        trees.create_tree(TREE).unwrap();
        for key in [b"a", b"b", b"c"] {
            trees.insert_autocommit(TREE, key, b"").unwrap();
        }
        let (a, b, c) = (b"a".as_slice(), b"b".as_slice(), b"c".as_slice());
        assert_eq!(keys(&trees, Bound::Included(a), Bound::Excluded(c), true), b"ba");
        assert_eq!(keys(&trees, Bound::Included(b), Bound::Included(b), false), b"b");
        assert_eq!(keys(&trees, Bound::Excluded(b), Bound::Included(b), false), b"");
        assert_eq!(keys(&trees, Bound::Excluded(b), Bound::Excluded(b), false), b"");
        assert_eq!(keys(&trees, Bound::Included(c), Bound::Included(a), false), b"");
    }
}

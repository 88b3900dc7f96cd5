//! Trees in memory, on pages that are usually not resident: any access may miss one first.

use clearway_buffer::MissingPage;
use clearway_storage::{
    Addend, Addends, Blocked, Compute, EachImage, EachUndone, Incremented, Inserted, Prior,
    Replaced, StorageError, Trees, TxnMode, UndoLog, Visit,
};
use clearway_types::{Lsn, PageId, PartitionId, TreeId, TxnId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// How a tree's keys are distributed over pages, and how many of these are resident.
#[derive(Clone, Copy)]
pub struct Paging {
    pub pages: u32,
    pub frames: usize,
}

pub struct MemTrees {
    pub trees: BTreeMap<TreeId, Tree>,
    dropping: BTreeSet<TreeId>,
    rowids: BTreeMap<TreeId, u64>,
    lsn: u64,
    paging: Option<Paging>,
    resident: RefCell<VecDeque<PageId>>,
    pinned: Vec<PageId>,
    pub misses: RefCell<u64>,
    /// Transactions that have tried to change something and have not been ended.
    pub active: BTreeSet<TxnId>,
    /// Trees with a corrupt page, which a drop or an undo finds.
    pub corrupt: BTreeSet<TreeId>,
}

pub struct MemLog {
    id: TxnId,
    undo: Vec<(TreeId, Vec<u8>, Undo)>,
}

#[derive(Clone)]
enum Undo {
    Value(Option<Vec<u8>>),
    Added(Addends),
}

impl MemLog {
    fn of_key(&self, tree: TreeId, key: &[u8]) -> impl DoubleEndedIterator<Item = &Undo> {
        self.undo.iter().filter(move |(t, k, _)| *t == tree && **k == *key).map(|(.., undo)| undo)
    }

    fn only_adds(&self, tree: TreeId, key: &[u8]) -> bool {
        self.of_key(tree, key).all(|undo| matches!(undo, Undo::Added(_)))
    }
}

impl UndoLog for MemLog {
    fn new(id: TxnId) -> Self {
        Self { id, undo: Vec::new() }
    }
    fn txn(&self) -> TxnId {
        self.id
    }
    fn mark(&self) -> usize {
        self.undo.len()
    }
}

impl MemTrees {
    pub fn new(paging: Option<Paging>) -> Self {
        Self {
            trees: BTreeMap::new(),
            dropping: BTreeSet::new(),
            rowids: BTreeMap::new(),
            // Before the first record, like a log with only its header.
            lsn: 8,
            paging,
            resident: RefCell::default(),
            pinned: Vec::new(),
            misses: RefCell::new(0),
            active: BTreeSet::new(),
            corrupt: BTreeSet::new(),
        }
    }

    /// Appends a record, for example a commit record; returns its end.
    pub fn append(&mut self) -> Lsn {
        self.lsn += 8;
        Lsn(self.lsn)
    }

    /// Returns the log's end.
    pub fn appended(&self) -> Lsn {
        Lsn(self.lsn)
    }

    /// Makes pages resident for the next attempt.
    pub fn pin(&mut self, wants: &[MissingPage]) {
        self.pinned = wants
            .iter()
            .filter_map(|w| match w {
                MissingPage::Page(id) | MissingPage::Scan(id) => Some(*id),
                MissingPage::Frames(_) | MissingPage::Space { .. } | MissingPage::Log { .. } => {
                    None
                }
            })
            .collect();
    }

    pub fn unpin(&mut self) {
        let mut resident = self.resident.borrow_mut();
        resident.extend(self.pinned.drain(..));
        while resident.len() > self.paging.map_or(0, |p| p.frames) {
            resident.pop_front();
        }
    }

    fn touch(&self, tree: TreeId, key: &[u8]) -> Result<(), Blocked> {
        let Some(paging) = self.paging else { return Ok(()) };
        let hash = clearway_types::hash::stable_hash(key) as u32;
        let page = PageId::new(PartitionId(0), tree.0 * 1000 + hash % paging.pages);
        if self.pinned.contains(&page) || self.resident.borrow().contains(&page) {
            return Ok(());
        }
        *self.misses.borrow_mut() += 1;
        Err(Blocked::MissingPage(vec![MissingPage::Page(page)]))
    }

    fn tree(&self, tree: TreeId) -> Result<&Tree, Blocked> {
        self.trees.get(&tree).ok_or(Blocked::Failed(StorageError::NoTree(tree)))
    }

    fn set(
        &mut self,
        log: Option<&mut MemLog>,
        tree: TreeId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Lsn, Blocked> {
        let rows = self.trees.get_mut(&tree).ok_or(Blocked::Failed(StorageError::NoTree(tree)))?;
        let old = match value {
            Some(v) => rows.insert(key.to_vec(), v.to_vec()),
            None => rows.remove(key),
        };
        if let Some(log) = log {
            log.undo.push((tree, key.to_vec(), Undo::Value(old)));
        }
        Ok(self.append())
    }

    /// Returns the value of a key before all changes of the transaction.
    fn before(&self, log: &MemLog, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>, Blocked> {
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

    fn check_readable(&self, tree: TreeId) -> Result<(), Blocked> {
        let page = PageId::new(PartitionId(0), tree.0);
        let what = "it is corrupt";
        if self.corrupt.contains(&tree) {
            Err(StorageError::Corrupt { page, what }.into())
        } else {
            Ok(())
        }
    }

    fn has(&self, tree: TreeId, key: &[u8]) -> Result<bool, Blocked> {
        let there = self.tree(tree)?.contains_key(key);
        self.touch(tree, key)?;
        Ok(there)
    }
}

fn logged(log: &mut MemLog, mode: TxnMode) -> Option<&mut MemLog> {
    (mode == TxnMode::Logged).then_some(log)
}

impl Trees for MemTrees {
    type Log = MemLog;
    fn partition(&self) -> PartitionId {
        PartitionId(0)
    }
    fn has_tree(&self, tree: TreeId) -> bool {
        self.trees.contains_key(&tree) && !self.dropping.contains(&tree)
    }
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked> {
        self.touch(tree, b"root")?;
        assert!(self.trees.insert(tree, Tree::new()).is_none());
        Ok(())
    }
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked> {
        self.check_readable(tree)?;
        self.dropping.insert(tree);
        if self.tree(tree)?.is_empty() {
            self.trees.remove(&tree);
            return Ok(true);
        }
        self.trees.get_mut(&tree).map(Tree::pop_first);
        Ok(false)
    }
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked> {
        self.touch(tree, key)?;
        let value = self.tree(tree)?.get(key);
        value.iter().for_each(|v| f(v));
        Ok(value.is_some())
    }
    fn insert(
        &mut self,
        log: &mut MemLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        self.active.insert(log.id);
        if self.has(tree, key)? {
            return Ok(Inserted::Exists);
        }
        self.set(logged(log, mode), tree, key, Some(value)).map(|_| Inserted::Ok)
    }
    fn update(
        &mut self,
        log: &mut MemLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        self.active.insert(log.id);
        if !self.has(tree, key)? {
            return Ok(false);
        }
        self.set(logged(log, mode), tree, key, Some(value)).map(|_| true)
    }
    fn delete(
        &mut self,
        log: &mut MemLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked> {
        self.active.insert(log.id);
        if !self.has(tree, key)? {
            return Ok(false);
        }
        self.set(logged(log, mode), tree, key, None).map(|_| true)
    }
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        if self.has(tree, key)? {
            return Ok(None);
        }
        self.set(None, tree, key, Some(value)).map(Some)
    }
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        if !self.has(tree, key)? {
            return Ok(None);
        }
        self.set(None, tree, key, Some(value)).map(Some)
    }
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked> {
        if !self.has(tree, key)? {
            return Ok(None);
        }
        self.set(None, tree, key, None).map(Some)
    }
    fn commit_local(&mut self, log: MemLog) -> Lsn {
        self.active.remove(&log.id);
        self.append()
    }
    fn committed(&mut self, log: MemLog) {
        self.active.remove(&log.id);
    }
    fn increment(
        &mut self,
        log: &mut MemLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked> {
        assert_eq!(mode, TxnMode::Logged);
        self.active.insert(log.id);
        self.touch(tree, key)?;
        let rows = self.trees.get_mut(&tree).ok_or(Blocked::Failed(StorageError::NoTree(tree)))?;
        let Some(value) = rows.get_mut(key) else { return Ok(Incremented::Missing) };
        let Some(addends) = compute(value) else { return Ok(Incremented::Refused) };
        assert!(addends.add_to(value));
        log.undo.push((tree, key.to_vec(), Undo::Added(addends)));
        self.append();
        Ok(Incremented::Done(addends))
    }
    fn rollback(
        &mut self,
        log: &mut MemLog,
        to: usize,
        undone: &mut EachUndone<'_>,
    ) -> Result<(), Blocked> {
        while log.undo.len() > to {
            let (tree, key, old) = &log.undo[log.undo.len() - 1];
            self.check_readable(*tree)?;
            self.touch(*tree, key)?;
            let (tree, key, old) = (*tree, key.clone(), old.clone());
            log.undo.pop();
            match old {
                Undo::Value(old) => {
                    self.set(None, tree, &key, old.as_deref())?;
                }
                Undo::Added(addends) => {
                    let value = self
                        .trees
                        .get_mut(&tree)
                        .and_then(|rows| rows.get_mut(&key))
                        .expect("it is locked");
                    assert!(addends.subtract_from(value));
                    self.append();
                    undone(tree, &key, &addends);
                }
            }
        }
        Ok(())
    }
    fn aborted(&mut self, log: MemLog) {
        assert!(log.undo.is_empty());
        self.active.remove(&log.id);
    }
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked> {
        self.touch(tree, b"last")?;
        let id = self.rowids.entry(tree).or_default();
        *id += 1;
        Ok(*id)
    }
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked> {
        let inside = |k: &[u8]| {
            (match from {
                Bound::Included(b) => k >= b,
                Bound::Excluded(b) => k > b,
                Bound::Unbounded => true,
            }) && match to {
                Bound::Included(b) => k <= b,
                Bound::Excluded(b) => k < b,
                Bound::Unbounded => true,
            }
        };
        let mut rows: Vec<_> = self.tree(tree)?.iter().filter(|(k, _)| inside(k)).collect();
        if reverse {
            rows.reverse();
        }
        for (key, value) in rows {
            self.touch(tree, key)?;
            if visit(key, value).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
    fn images(&self, log: &MemLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        let mut befores = BTreeMap::new();
        for (tree, key, _) in log.undo.iter().rev() {
            self.touch(*tree, key)?;
            if !log.only_adds(*tree, key) {
                befores.insert((*tree, key), self.before(log, *tree, key)?);
            }
        }
        befores
            .iter()
            .for_each(|((tree, key), before)| each(*tree, key, Prior::Value(before.as_deref())));
        for (tree, key, undo) in &log.undo {
            if let (Undo::Added(addends), true) = (undo, log.only_adds(*tree, key)) {
                each(*tree, key, Prior::Added(addends));
            }
        }
        Ok(true)
    }
    fn replaced(&self, log: &MemLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        self.touch(tree, key)?;
        if log.of_key(tree, key).next().is_none() {
            return Ok(Replaced::Nothing);
        }
        if !log.only_adds(tree, key) {
            return Ok(Replaced::Value(self.before(log, tree, key)?.map(Into::into)));
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

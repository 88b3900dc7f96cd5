//! Trees in memory, on pages that are usually not resident: any access may miss one first.

use clearway_buffer::MissingPage;
use clearway_memtrees::{MemoryLog, MemoryTrees};
use clearway_storage::{
    Blocked, Compute, EachImage, EachUndone, Incremented, Inserted, Replaced, StorageError, Trees,
    TxnMode, UndoLog, Visit,
};
use clearway_types::{Lsn, PageId, PartitionId, TreeId, TxnId};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Bound, Deref, DerefMut};

/// How a tree's keys are distributed over pages, and how many of these are resident.
#[derive(Clone, Copy)]
pub struct Paging {
    pub pages: u32,
    pub frames: usize,
}

pub struct MemTrees {
    inner: MemoryTrees,
    dropping: BTreeSet<TreeId>,
    paging: Option<Paging>,
    resident: RefCell<VecDeque<PageId>>,
    pinned: Vec<PageId>,
    pub misses: RefCell<u64>,
    /// Transactions that have tried to change something and have not been ended.
    pub active: BTreeSet<TxnId>,
    /// Trees with a corrupt page, which a drop, an undo or an image finds.
    pub corrupt: BTreeSet<TreeId>,
}

impl Deref for MemTrees {
    type Target = MemoryTrees;
    fn deref(&self) -> &MemoryTrees {
        &self.inner
    }
}

impl DerefMut for MemTrees {
    fn deref_mut(&mut self) -> &mut MemoryTrees {
        &mut self.inner
    }
}

impl MemTrees {
    pub fn new(paging: Option<Paging>) -> Self {
        Self {
            inner: MemoryTrees::new(PartitionId(0)),
            dropping: BTreeSet::new(),
            paging,
            resident: RefCell::default(),
            pinned: Vec::new(),
            misses: RefCell::new(0),
            active: BTreeSet::new(),
            corrupt: BTreeSet::new(),
        }
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

    /// Fails like an access to the tree if it does not exist, and then like one to its page.
    fn find(&self, tree: TreeId, key: &[u8]) -> Result<(), Blocked> {
        if !self.trees.contains_key(&tree) {
            return Err(StorageError::NoTree(tree).into());
        }
        self.touch(tree, key)
    }

    fn change(&mut self, log: &MemoryLog, tree: TreeId, key: &[u8]) -> Result<(), Blocked> {
        self.active.insert(log.txn());
        self.find(tree, key)
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
}

impl Trees for MemTrees {
    type Log = MemoryLog;
    fn partition(&self) -> PartitionId {
        self.inner.partition()
    }
    fn has_tree(&self, tree: TreeId) -> bool {
        self.inner.has_tree(tree) && !self.dropping.contains(&tree)
    }
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked> {
        self.touch(tree, b"root")?;
        self.inner.create_tree(tree)
    }
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked> {
        self.check_readable(tree)?;
        self.dropping.insert(tree);
        match self.trees.get_mut(&tree) {
            Some(rows) if !rows.is_empty() => {
                rows.pop_first();
                Ok(false)
            }
            _ => self.inner.drop_tree(tree),
        }
    }
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked> {
        self.touch(tree, key)?;
        self.inner.get(tree, key, f)
    }
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked> {
        let mut touched = Ok(());
        self.inner.scan(tree, from, to, reverse, &mut |key, value| {
            touched = self.touch(tree, key);
            if touched.is_ok() { visit(key, value) } else { std::ops::ControlFlow::Break(()) }
        })?;
        touched
    }
    fn insert(
        &mut self,
        log: &mut MemoryLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        self.change(log, tree, key)?;
        self.inner.insert(log, mode, tree, key, value)
    }
    fn update(
        &mut self,
        log: &mut MemoryLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        self.change(log, tree, key)?;
        self.inner.update(log, mode, tree, key, value)
    }
    fn increment(
        &mut self,
        log: &mut MemoryLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked> {
        assert_eq!(mode, TxnMode::Logged);
        self.active.insert(log.txn());
        self.touch(tree, key)?;
        self.inner.increment(log, mode, tree, key, compute)
    }
    fn delete(
        &mut self,
        log: &mut MemoryLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked> {
        self.change(log, tree, key)?;
        self.inner.delete(log, mode, tree, key)
    }
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        self.find(tree, key)?;
        self.inner.insert_autocommit(tree, key, value)
    }
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        self.find(tree, key)?;
        self.inner.update_autocommit(tree, key, value)
    }
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked> {
        self.find(tree, key)?;
        self.inner.delete_autocommit(tree, key)
    }
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked> {
        self.touch(tree, b"last")?;
        self.inner.next_rowid(tree)
    }
    fn commit_local(&mut self, log: MemoryLog) -> Lsn {
        self.active.remove(&log.txn());
        self.inner.commit_local(log)
    }
    fn committed(&mut self, log: MemoryLog) {
        self.active.remove(&log.txn());
        self.inner.committed(log);
    }
    fn rollback(
        &mut self,
        log: &mut MemoryLog,
        to: usize,
        undone: &mut EachUndone<'_>,
    ) -> Result<(), Blocked> {
        while log.mark() > to {
            if let Some((tree, key)) = log.changed().next_back() {
                self.check_readable(tree)?;
                self.touch(tree, key)?;
            }
            let before_last = log.mark() - 1;
            self.inner.rollback(log, before_last, undone)?;
        }
        Ok(())
    }
    fn aborted(&mut self, log: MemoryLog) {
        self.active.remove(&log.txn());
        self.inner.aborted(log);
    }
    fn images(&self, log: &MemoryLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        for (tree, key) in log.changed().rev() {
            self.check_readable(tree)?;
            self.touch(tree, key)?;
        }
        self.inner.images(log, each)
    }
    fn replaced(&self, log: &MemoryLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        self.touch(tree, key)?;
        self.inner.replaced(log, tree, key)
    }
}

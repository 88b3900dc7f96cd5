//! The trees of one partition.
//!
//! Invariants
//! 1. A `Store` is used by one thread at a time, and only that thread changes the partition's
//!    pages.
//! 2. An operation that returns `Blocked` has changed nothing (exceptions: see `rollback` and
//!    `scan`).
//! 3. Before a transaction's first undoable record is in the log, its position is published. So no
//!    checkpoint removes log that an undo may need.
//! 4. A hidden row number is given to one row only. It is above every number in the tree, and above
//!    every number whose deletion may still be undone.
//!
//! Locking: page latches only, see `mini`. After a crash, see `recovery`.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Bound, ControlFlow};

use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PartitionId, TreeId, TxnId};

use crate::addends::Incremented;
use crate::attempt::Blocked;
use crate::change::{self, Added, Logging, Tree};
use crate::descend::{self, Path};
use crate::directory;
use crate::error::StorageError;
use crate::images;
use crate::mini::Core;
use crate::overflow;
use crate::page::Node;
use crate::record;
use crate::rollback;
use crate::scan::{self, Visit};
use crate::spare::Moved;
use crate::trees::{Compute, EachImage, EachUndone, Inserted, Replaced, Trees, TxnMode};
use crate::txn::TxnLog;
use crate::undo::UndoStack;

/// Maximum undo memory that is kept for the next transaction, in bytes.
const KEPT_UNDO: usize = 4096;

/// Tree ids are small and assigned by us, so one multiplication spreads them.
#[derive(Default)]
struct TreeHasher(u64);

impl Hasher for TreeHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u32(b.into()));
    }
    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[derive(Debug)]
struct Entry {
    root: u32,
    /// The next hidden row number, once it was determined.
    next_rowid: Option<u64>,
    /// The highest hidden row number deleted since the start. If the deletion is not committed, the
    /// number is still in use although it is not in the tree. Meaningless if keys are not hidden
    /// row numbers.
    deleted_rowid: u64,
    dropping: bool,
    /// The key that was undone last: splits expect the next one next to it.
    undone: Vec<u8>,
}

impl Entry {
    fn new(root: u32) -> Self {
        Self { root, next_rowid: None, deleted_rowid: 0, dropping: false, undone: Vec::new() }
    }
}

/// The trees of one partition.
pub struct Store {
    core: Core,
    trees: HashMap<TreeId, Entry, BuildHasherDefault<TreeHasher>>,
    /// Transactions that may have something to undo, and for each an LSN from which the log must be
    /// kept, not after its first undoable record; oldest first.
    active: Vec<(TxnId, Lsn)>,
    /// Bytes of log that undoing all of them may need, and how many of these are reserved in the
    /// log.
    undo_cost: u64,
    undo_reserved: u64,
    /// The record being built.
    buf: Vec<u8>,
    /// Memory for the undo of the next transaction; empty.
    spare_undo: UndoStack,
}

impl Store {
    /// Creates a store without trees; see [`Store::load`].
    pub(crate) fn new(core: Core) -> Self {
        Self {
            core,
            trees: HashMap::default(),
            active: Vec::new(),
            undo_cost: 0,
            undo_reserved: 0,
            buf: Vec::new(),
            spare_undo: UndoStack::default(),
        }
    }

    /// Reads the directory.
    pub(crate) fn load(&mut self) -> Result<(), Blocked> {
        let mut found = Vec::new();
        let mut bad = false;
        scan::forward(
            &self.core,
            directory::ROOT,
            Bound::Unbounded,
            Bound::Unbounded,
            &mut |key, value| {
                match directory::entry(key, value) {
                    Some(entry) => found.push(entry),
                    None => bad = true,
                }
                ControlFlow::Continue(())
            },
        )?;
        if bad {
            return Err(self
                .core
                .corrupt(directory::ROOT, "an entry of the directory is malformed")
                .into());
        }
        self.trees = found.into_iter().map(|(tree, root)| (tree, Entry::new(root))).collect();
        Ok(())
    }

    /// Returns the trees, in no particular order. Includes trees whose drop was not finished before
    /// a restart.
    pub fn trees(&self) -> Vec<TreeId> {
        self.trees.iter().filter(|(_, e)| !e.dropping).map(|(tree, _)| *tree).collect()
    }

    #[inline]
    fn tree(&self, id: TreeId) -> Result<Tree, StorageError> {
        match self.trees.get(&id) {
            Some(e) if !e.dropping => Ok(Tree { id, root: e.root }),
            _ => Err(StorageError::NoTree(id)),
        }
    }

    fn begin(&mut self, txn: &mut TxnLog) {
        if !txn.active {
            txn.active = true;
            txn.use_memory(&mut self.spare_undo);
            let from = self.core.wal.appended();
            if self.active.is_empty() {
                self.core.publish_oldest(from.0);
            }
            self.active.push((txn.id, from));
        }
    }

    /// Adjusts the log space reserved for undo after a transaction's undo cost changed from
    /// `before` to `now` bytes.
    fn reserve_undo_log(&mut self, before: u64, now: u64) {
        self.undo_cost = self.undo_cost + now - before;
        let enough = self.undo_cost <= self.undo_reserved;
        let step = self.core.undo_reserve_step;
        if enough && self.undo_reserved - self.undo_cost <= step.saturating_mul(2) {
            return;
        }
        let reserved = self.undo_cost.next_multiple_of(step);
        self.core.wal.reserve_for_undo(self.undo_reserved, reserved);
        self.undo_reserved = reserved;
    }

    /// Reserves for its undo the pages that the transaction's last change has freed, and log.
    /// `before` is the log that undoing the transaction needed before the change.
    fn reserve_undo(&mut self, txn: &mut TxnLog, mode: TxnMode, before: u64) {
        let (moved, pages) = (self.core.spare.take_moved(), txn.undo_pages.pages());
        if mode == TxnMode::Logged && moved != Moved::default() {
            txn.undo_pages.change(moved);
            self.core.spare.reserve(pages, txn.undo_pages.pages());
        }
        self.reserve_undo_log(before, txn.undo_log());
    }

    fn end(&mut self, txn: TxnLog) {
        self.core.spare.reserve(txn.undo_pages.pages(), 0);
        self.reserve_undo_log(txn.undo_log(), 0);
        let Some(i) = self.active.iter().position(|(id, _)| *id == txn.id) else { return };
        if txn.size() <= KEPT_UNDO {
            self.spare_undo = txn.into_memory();
        }
        self.active.remove(i);
        if i == 0 {
            self.core.publish_oldest(self.active.first().map_or(u64::MAX, |(_, from)| from.0));
        }
    }

    fn by<'t>(&mut self, txn: &'t mut TxnLog, mode: TxnMode) -> Logging<'t> {
        self.core.spare.take_moved();
        match mode {
            TxnMode::Fresh => {
                txn.redo_only = true;
                Logging::Auto
            }
            TxnMode::Logged => {
                self.begin(txn);
                Logging::Txn(txn)
            }
        }
    }

    /// Undoes one change that recovery read in the log.
    pub(crate) fn undo_logged(
        &mut self,
        undo: &crate::undo::Undo<'_>,
        txn: TxnId,
        next: Lsn,
    ) -> Result<(), Blocked> {
        let entry = self.trees.get_mut(&undo.tree);
        let (root, mut none) = (entry.as_ref().map(|e| e.root), Vec::new());
        let undone = entry.map_or(&mut none, |e| &mut e.undone);
        rollback::undo(&self.core, &mut self.buf, root, undo, txn, next, undone)?;
        undone.clear();
        undone.extend_from_slice(undo.key);
        Ok(())
    }

    /// Ends a transaction that recovery has undone.
    pub(crate) fn log_abort_end(&mut self, txn: TxnId) {
        self.core.wal.append(&[&record::abort_end(txn, self.core.partition)]);
    }

    /// Ensures invariant 4 for a deletion that may be undone.
    pub(crate) fn keep_rowid(&mut self, tree: TreeId, key: &[u8]) {
        if let (Some(rowid), Some(entry)) = (rowid_of_key(key), self.trees.get_mut(&tree)) {
            entry.deleted_rowid = entry.deleted_rowid.max(rowid);
        }
    }
}

impl Trees for Store {
    type Log = TxnLog;
    fn partition(&self) -> PartitionId {
        self.core.partition
    }
    fn has_tree(&self, tree: TreeId) -> bool {
        self.trees.get(&tree).is_some_and(|e| !e.dropping)
    }
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked> {
        let root = directory::create(&self.core, &mut self.buf, tree)?;
        let root = root.ok_or(StorageError::TreeExists(tree))?;
        self.trees.insert(tree, Entry::new(root));
        Ok(())
    }
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked> {
        let Some(entry) = self.trees.get_mut(&tree) else { return Ok(true) };
        entry.dropping = true;
        let root = entry.root;
        let done = directory::drop_slice(&self.core, &mut self.buf, Tree { id: tree, root })?;
        if done {
            self.trees.remove(&tree);
        }
        Ok(done)
    }
    #[inline]
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked> {
        let tree = self.tree(tree)?;
        let mut path = Path::new();
        let (leaf, page) =
            descend::leaf(&self.core, tree.root, &mut path, |node| node.child_slot(key))?;
        let node = Node::new(&page);
        let Ok(slot) = node.search(key) else { return Ok(false) };
        overflow::with_value(&self.core, &node.cell(slot), f)
            .map_err(|e| path.behind(&self.core, leaf, e))?;
        Ok(true)
    }
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked> {
        let root = self.tree(tree)?.root;
        let scan = if reverse { scan::backward } else { scan::forward };
        scan(&self.core, root, from, to, visit)
    }
    fn insert(
        &mut self,
        txn: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        let tree = self.tree(tree)?;
        let before = txn.undo_log();
        let by = self.by(txn, mode);
        let done = change::insert(&self.core, &mut self.buf, tree, key, value, by)?;
        self.reserve_undo(txn, mode, before);
        Ok(if done.is_some() { Inserted::Ok } else { Inserted::Exists })
    }
    fn update(
        &mut self,
        txn: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        let tree = self.tree(tree)?;
        let before = txn.undo_log();
        let by = self.by(txn, mode);
        let done = change::update(&self.core, &mut self.buf, tree, key, value, by)?;
        self.reserve_undo(txn, mode, before);
        Ok(done.is_some())
    }
    fn increment(
        &mut self,
        txn: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked> {
        let tree = self.tree(tree)?;
        let before = txn.undo_log();
        let by = self.by(txn, mode);
        let added = change::increment(&self.core, &mut self.buf, tree, key, by, compute)?;
        self.reserve_undo(txn, mode, before);
        Ok(match added {
            Added::Missing => Incremented::Missing,
            Added::Refused | Added::Beyond(_) => Incremented::Refused,
            Added::Done(addends) => Incremented::Done(addends),
        })
    }
    fn delete(
        &mut self,
        txn: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked> {
        let Tree { id, root } = self.tree(tree)?;
        let before = txn.undo_log();
        let by = self.by(txn, mode);
        let done = change::delete(&self.core, &mut self.buf, Tree { id, root }, key, by)?;
        self.reserve_undo(txn, mode, before);
        if mode == TxnMode::Logged {
            self.keep_rowid(id, key);
        }
        Ok(done.is_some())
    }
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        let tree = self.tree(tree)?;
        change::insert(&self.core, &mut self.buf, tree, key, value, Logging::Auto)
    }
    #[inline]
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        let tree = self.tree(tree)?;
        change::update(&self.core, &mut self.buf, tree, key, value, Logging::Auto)
    }
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked> {
        let tree = self.tree(tree)?;
        change::delete(&self.core, &mut self.buf, tree, key, Logging::Auto)
    }
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked> {
        let root = self.tree(tree)?.root;
        let entry = self.trees.get(&tree).filter(|_| !canary::on(Bug::ReusedRowNumber));
        let (known, deleted) = entry.map_or((None, 0), |e| (e.next_rowid, e.deleted_rowid));
        let next = match known {
            Some(next) => Some(next),
            None => {
                let mut last = 0;
                scan::backward(
                    &self.core,
                    root,
                    Bound::Unbounded,
                    Bound::Unbounded,
                    &mut |key, _| {
                        last = rowid_of_key(key).unwrap_or(0);
                        ControlFlow::Break(())
                    },
                )?;
                last.max(deleted).checked_add(1)
            }
        };
        let next = next
            .filter(|next| *next < u64::MAX)
            .ok_or_else(|| self.core.corrupt(root, "its last key is the maximum row number"))?;
        if let Some(entry) = self.trees.get_mut(&tree) {
            entry.next_rowid = Some(next + 1);
        }
        Ok(next)
    }
    fn commit_local(&mut self, txn: TxnLog) -> Lsn {
        let lsn = match (txn.logged, txn.redo_only) {
            (true, _) => self.core.wal.append(&[&record::commit(txn.id)]),
            (false, true) => self.core.wal.appended(),
            (false, false) => Lsn(0),
        };
        self.end(txn);
        lsn
    }
    fn committed(&mut self, txn: TxnLog) {
        self.end(txn);
    }
    fn rollback(
        &mut self,
        txn: &mut TxnLog,
        to: usize,
        undone: &mut EachUndone<'_>,
    ) -> Result<(), Blocked> {
        while txn.mark() > to {
            let Some((undo, next)) = txn.last() else {
                let Core { wal, partition, undo_memory, .. } = &self.core;
                txn.refill(wal, *partition, undo_memory / 2)?;
                continue;
            };
            let entry = self.trees.get_mut(&undo.tree).filter(|e| !e.dropping);
            let (root, mut none) = (entry.as_ref().map(|e| e.root), Vec::new());
            let last = entry.map_or(&mut none, |e| &mut e.undone);
            let next = if canary::on(Bug::UndoneTwice) { txn.head() } else { next };
            self.core.spare.take_moved();
            rollback::undo(&self.core, &mut self.buf, root, &undo, txn.id, next, last)?;
            last.clear();
            last.extend_from_slice(undo.key);
            if let Some(addends) = undo.addends() {
                undone(undo.tree, undo.key, &addends);
            }
            let before = txn.undo_log();
            txn.undo_pages.undo(self.core.spare.take_moved());
            txn.pop();
            self.reserve_undo_log(before, txn.undo_log());
        }
        let before = txn.undo_pages.pages();
        txn.undo_pages.rolled_back();
        self.core.spare.reserve(before, txn.undo_pages.pages());
        Ok(())
    }
    fn aborted(&mut self, txn: TxnLog) {
        debug_assert!(txn.is_empty());
        if txn.logged {
            self.core.wal.append(&[&record::abort_end(txn.id, self.core.partition)]);
        }
        self.end(txn);
    }
    fn images(&self, txn: &TxnLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        images::all(self, txn, each)
    }
    fn replaced(&self, txn: &TxnLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        images::of_key(self, txn, tree, key)
    }
}

/// Returns the key of a hidden row number: the `types::key` encoding of one bigint.
pub fn rowid_key(rowid: u64) -> [u8; 9] {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&(rowid ^ 1 << 63).to_be_bytes());
    key
}

pub(crate) fn rowid_of_key(key: &[u8]) -> Option<u64> {
    let bytes = key.get(1..)?.try_into().ok()?;
    Some(u64::from_be_bytes(bytes) ^ 1 << 63)
}

//! The real trees.

use crate::trees::{Compute, Trees, Undone, Visit};
use clearway_storage::{
    Blocked, EachImage, Incremented, Inserted, Replaced, Store, TxnLog, TxnMode,
};
use clearway_types::{Lsn, PartitionId, TreeId};
use std::ops::Bound;

impl Trees for Store {
    type Log = TxnLog;
    #[inline]
    fn partition(&self) -> PartitionId {
        self.partition()
    }
    #[inline]
    fn has_tree(&self, tree: TreeId) -> bool {
        self.has_tree(tree)
    }
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked> {
        self.create_tree(tree)
    }
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked> {
        self.drop_tree(tree)
    }
    #[inline]
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked> {
        self.get(tree, key, f)
    }
    fn insert(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        self.insert(log, mode, tree, key, value)
    }
    fn update(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        self.update(log, mode, tree, key, value)
    }
    fn delete(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked> {
        self.delete(log, mode, tree, key)
    }
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        self.insert_autocommit(tree, key, value)
    }
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        self.update_autocommit(tree, key, value)
    }
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked> {
        self.delete_autocommit(tree, key)
    }
    fn commit_local(&mut self, log: TxnLog) -> Lsn {
        self.commit_local(log)
    }
    fn committed(&mut self, log: TxnLog) {
        self.committed(log);
    }
    fn increment(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked> {
        self.increment(log, mode, tree, key, compute)
    }
    fn rollback(
        &mut self,
        log: &mut TxnLog,
        to: usize,
        undone: &mut Undone<'_>,
    ) -> Result<(), Blocked> {
        self.rollback(log, to, undone)
    }
    fn aborted(&mut self, log: TxnLog) {
        self.aborted(log);
    }
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked> {
        self.next_rowid(tree)
    }
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked> {
        self.scan(tree, from, to, reverse, visit)
    }
    fn images(&self, log: &TxnLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        self.images(log, each)
    }
    fn replaced(&self, log: &TxnLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        self.replaced(log, tree, key)
    }
}

//! The real trees: each method calls the store's method of the same name.

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
        Store::partition(self)
    }
    #[inline]
    fn has_tree(&self, tree: TreeId) -> bool {
        Store::has_tree(self, tree)
    }
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked> {
        Store::create_tree(self, tree)
    }
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked> {
        Store::drop_tree(self, tree)
    }
    #[inline]
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked> {
        Store::get(self, tree, key, f)
    }
    fn insert(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        Store::insert(self, log, mode, tree, key, value)
    }
    fn update(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        Store::update(self, log, mode, tree, key, value)
    }
    fn delete(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked> {
        Store::delete(self, log, mode, tree, key)
    }
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        Store::insert_autocommit(self, tree, key, value)
    }
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        Store::update_autocommit(self, tree, key, value)
    }
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked> {
        Store::delete_autocommit(self, tree, key)
    }
    fn commit_local(&mut self, log: TxnLog) -> Lsn {
        Store::commit_local(self, log)
    }
    fn committed(&mut self, log: TxnLog) {
        Store::committed(self, log);
    }
    fn increment(
        &mut self,
        log: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked> {
        Store::increment(self, log, mode, tree, key, compute)
    }
    fn rollback(
        &mut self,
        log: &mut TxnLog,
        to: usize,
        undone: &mut Undone<'_>,
    ) -> Result<(), Blocked> {
        Store::rollback(self, log, to, undone)
    }
    fn aborted(&mut self, log: TxnLog) {
        Store::aborted(self, log);
    }
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked> {
        Store::next_rowid(self, tree)
    }
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked> {
        Store::scan(self, tree, from, to, reverse, visit)
    }
    fn images(&self, log: &TxnLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        Store::images(self, log, each)
    }
    fn replaced(&self, log: &TxnLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        Store::replaced(self, log, tree, key)
    }
}

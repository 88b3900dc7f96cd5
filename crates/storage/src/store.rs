//! One partition's trees. Signatures; the bodies follow.
use crate::error::Blocked;
use crate::txn::TxnLog;
use clearway_types::{Lsn, PartitionId, TreeId};
use std::ops::{Bound, ControlFlow};

/// How a change is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnMode {
    /// To be undone if the transaction does not commit.
    Logged,
    /// In a tree that this transaction made and that is dropped if it does not commit: no undo.
    Fresh,
}

/// What an insert did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The key is in the tree now.
    Ok,
    /// The key was there already; nothing was changed.
    Exists,
}

/// One partition's trees. Used by one thread at a time.
pub struct Store {}

#[allow(unused_variables)]
impl Store {
    /// The partition.
    pub fn partition(&self) -> PartitionId {
        unimplemented!()
    }
    /// Whether the tree is here.
    pub fn has_tree(&self, tree: TreeId) -> bool {
        unimplemented!()
    }
    /// The trees that are here, in no order; those whose drop was not finished before a restart among them.
    pub fn trees(&self) -> Vec<TreeId> {
        unimplemented!()
    }
    /// Makes an empty tree: logged, never undone.
    pub fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked> {
        unimplemented!()
    }
    /// Frees the tree's pages, some at a call: call again until it returns true. From the first call on the tree is gone for everyone else.
    pub fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked> {
        unimplemented!()
    }
    /// Shows `f` the key's value, in place if it can; false if the key is not there.
    pub fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked> {
        unimplemented!()
    }
    /// Inserts a key.
    pub fn insert(
        &mut self,
        txn: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        unimplemented!()
    }
    /// Changes a key's value; false if the key is not there.
    pub fn update(
        &mut self,
        txn: &mut TxnLog,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        unimplemented!()
    }
    /// Deletes a key; false if it is not there.
    pub fn delete(&mut self, txn: &mut TxnLog, mode: TxnMode, tree: TreeId, key: &[u8]) -> Result<bool, Blocked> {
        unimplemented!()
    }
    /// Inserts a key as a transaction of its own, committed when the log is durable up to the result; `None` if it was there already.
    pub fn insert_autocommit(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<Option<Lsn>, Blocked> {
        unimplemented!()
    }
    /// Changes a key's value as a transaction of its own; `None` if the key is not there.
    pub fn update_autocommit(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<Option<Lsn>, Blocked> {
        unimplemented!()
    }
    /// Deletes a key as a transaction of its own; `None` if it is not there.
    pub fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked> {
        unimplemented!()
    }
    /// Commits a transaction of this partition alone: true once the log is durable up to the result. `Lsn(0)` if it changed nothing.
    pub fn commit_local(&mut self, txn: TxnLog) -> Lsn {
        unimplemented!()
    }
    /// Forgets a transaction of several partitions after its commit record (`Node::commit`) is in the log.
    pub fn committed(&mut self, txn: TxnLog) {
        unimplemented!()
    }
    /// Undoes all but the first `to` changes, newest first. After `Blocked::Want` call it again: it goes on where it stopped.
    pub fn rollback(&mut self, txn: &mut TxnLog, to: usize) -> Result<(), Blocked> {
        unimplemented!()
    }
    /// Ends an aborted transaction after `rollback(txn, 0)`.
    pub fn aborted(&mut self, txn: TxnLog) {
        unimplemented!()
    }
    /// What `rollback` takes to come back to this point.
    pub fn mark(&self, txn: &TxnLog) -> usize {
        unimplemented!()
    }
    /// A hidden row number above every existing one of the tree, whose keys are `types::key` encodings of one bigint ([`crate::rowid_key`]).
    pub fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked> {
        unimplemented!()
    }
    /// Shows `visit` the keys between the bounds in order, or in reverse order, until it breaks. What was visited before a
    /// `Blocked::Want` stays visited: go on after the last key (or use [`crate::Cursor`]).
    pub fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Blocked> {
        unimplemented!()
    }
}

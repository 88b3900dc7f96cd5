//! The interface of one partition's trees.
//!
//! [`crate::Store`] implements it on pages. Tests implement it in memory, where any access can miss
//! a page.

use std::ops::Bound;

use clearway_types::{Lsn, PartitionId, TreeId, TxnId};

use crate::addends::{Addend, Addends, Incremented};
use crate::attempt::Blocked;
use crate::scan::Visit;
use crate::txn::TxnLog;

/// How a change is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnMode {
    /// Undone if the transaction does not commit.
    Logged,
    /// For a tree that this transaction created and that is dropped if it does not commit: no undo.
    Fresh,
}

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The key was inserted.
    Ok,
    /// The key already existed; nothing was changed.
    Exists,
}

/// Computes what to add to integers of a value; `None` changes nothing.
pub type Compute<'a> = dyn FnMut(&[u8]) -> Option<Addends> + 'a;

/// Receives each addition that a rollback has undone: its tree, its key, and the amounts added.
pub type EachUndone<'a> = dyn FnMut(TreeId, &[u8], &Addends) + 'a;

/// What a transaction has replaced under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior<'a> {
    /// The value before the transaction's first change; `None` if the key did not exist.
    Value(Option<&'a [u8]>),
    /// One of the transaction's additions. The transaction has only added to this key.
    Added(&'a Addends),
}

/// Receives each tree and key, and what was replaced there.
pub type EachImage<'a> = dyn FnMut(TreeId, &[u8], Prior<'_>) + 'a;

/// What an active transaction has replaced under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The transaction has not changed the key.
    Nothing,
    /// The old value; `None` if the key did not exist.
    Value(Option<Box<[u8]>>),
    /// The transaction has only added to the value. The additions are summed by offset and ordered
    /// by offset.
    Added(Vec<Addend>),
    /// Unknown: part of the undo is only in the log.
    Unknown,
}

/// One partition's trees. An operation that returns `Blocked` has changed nothing (exceptions: see
/// [`Trees::rollback`] and [`Trees::scan`]).
pub trait Trees {
    /// The undo of a transaction here.
    type Log: UndoLog;
    /// Returns the partition.
    fn partition(&self) -> PartitionId;
    /// Returns true if the tree exists.
    fn has_tree(&self, tree: TreeId) -> bool;
    /// Creates an empty tree. Logged, never undone.
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked>;
    /// Frees some of the tree's pages. Call it again until it returns true. From the first call on,
    /// the tree does not exist for any other operation. Logged, never undone.
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked>;
    /// Passes the key's value to `f`, in place if possible. Returns false if the key does not
    /// exist.
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked>;
    /// Passes the keys between the bounds to `visit` in ascending or descending order until it
    /// breaks. Keys visited before a `Blocked::MissingPage` stay visited: continue after the last
    /// key (or use [`crate::Cursor`]).
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked>;
    /// Inserts a key.
    fn insert(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked>;
    /// Changes a key's value. Returns false if the key does not exist.
    fn update(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked>;
    /// Adds to integers of the key's value, in place. Undo subtracts, regardless of what others
    /// have added meanwhile. This requires that all other changes of the key wait until the
    /// transaction has ended. `compute` gets the current value and returns the amounts to add; it
    /// may be called again after `Blocked`. If it returns no addends, nothing is logged. An integer
    /// out of the value's bounds is refused, as if `compute` had refused.
    fn increment(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked>;
    /// Deletes a key. Returns false if it does not exist.
    fn delete(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked>;
    /// Inserts a key as a transaction of its own, which is committed when the log is durable up to
    /// the result. Returns `None` if the key already exists.
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked>;
    /// Changes a key's value as a transaction of its own. Returns `None` if the key does not exist.
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked>;
    /// Deletes a key as a transaction of its own. Returns `None` if it does not exist.
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked>;
    /// Returns a new hidden row number, above every one in use in the tree. The tree's keys must be
    /// [`crate::rowid_key`]s. The number is counted in memory, so each call returns another one.
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked>;
    /// Commits a transaction of this partition alone. It is committed once the log is durable up to
    /// the result. A transaction without undoable changes needs no record; the result is `Lsn(0)`
    /// if it changed nothing.
    fn commit_local(&mut self, log: Self::Log) -> Lsn;
    /// Forgets a transaction of several partitions after its commit record (`Node::commit`) is in
    /// the log.
    fn committed(&mut self, log: Self::Log);
    /// Undoes all changes except the first `to`, newest first. After `Blocked::MissingPage` or
    /// `Blocked::Log` call it again: it continues where it stopped. `undone` receives each undone
    /// addition once, in the step that logs its compensation.
    fn rollback(
        &mut self,
        log: &mut Self::Log,
        to: usize,
        undone: &mut EachUndone<'_>,
    ) -> Result<(), Blocked>;
    /// Ends an aborted transaction after `rollback(txn, 0)`.
    fn aborted(&mut self, log: Self::Log);
    /// Visits each key that the transaction has changed in this partition's trees. If it has only
    /// added to the key, visits each addition separately, newest first; otherwise the value before
    /// the first change. Returns false without visiting anything if part of the undo is only in the
    /// log.
    fn images(&self, log: &Self::Log, each: &mut EachImage<'_>) -> Result<bool, Blocked>;
    /// Returns what the transaction's changes have replaced under a key of a tree in this
    /// partition.
    fn replaced(&self, log: &Self::Log, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked>;
}

/// The undo of a transaction.
pub trait UndoLog {
    /// Creates an empty one.
    fn new(txn: TxnId) -> Self;
    /// Returns the transaction.
    fn txn(&self) -> TxnId;
    /// Returns the number of changes to undo, for a later call of [`Trees::rollback`].
    fn mark(&self) -> usize;
    /// Returns true if memory has all changes to undo; otherwise some are only in the log.
    fn is_in_memory(&self) -> bool;
}

impl UndoLog for TxnLog {
    fn new(txn: TxnId) -> Self {
        TxnLog::new(txn)
    }
    fn txn(&self) -> TxnId {
        self.id
    }
    fn mark(&self) -> usize {
        TxnLog::mark(self)
    }
    fn is_in_memory(&self) -> bool {
        TxnLog::is_in_memory(self)
    }
}

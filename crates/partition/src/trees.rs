//! The trees' interface for a partition. It abstracts the store, so that tests can make any access
//! miss pages.

use clearway_storage::{
    Addends, Blocked, EachImage, Incremented, Inserted, Replaced, TxnLog, TxnMode,
};
use clearway_types::{Lsn, PartitionId, TreeId, TxnId};
use std::ops::Bound;

pub use clearway_storage::Visit;

/// Computes what to add to integers of a value; `None` changes nothing.
pub type Compute<'a> = dyn FnMut(&[u8]) -> Option<Addends> + 'a;

/// The callback of a rollback, for each undone addition.
pub type Undone<'a> = dyn FnMut(TreeId, &[u8], &Addends) + 'a;

/// One partition's trees. Each method means the same as the method of `clearway_storage::Store`
/// with the same name.
pub trait Trees {
    /// The undo of a transaction here.
    type Log: UndoLog;
    /// Returns the partition.
    fn partition(&self) -> PartitionId;
    /// Returns true if the tree exists here.
    fn has_tree(&self, tree: TreeId) -> bool;
    /// Creates an empty tree.
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked>;
    /// Frees a tree in slices: call again until it returns true.
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked>;
    /// Passes the key's value to `f`; returns false if the key does not exist.
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Blocked>;
    /// Inserts a key.
    fn insert(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked>;
    /// Changes a value; returns false if the key does not exist.
    fn update(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked>;
    /// Deletes a key; returns false if it does not exist.
    fn delete(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked>;
    /// Inserts a key as a transaction of its own; returns `None` if it already exists.
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked>;
    /// Changes a value as a transaction of its own; returns `None` if the key does not exist.
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked>;
    /// Deletes a key as a transaction of its own; returns `None` if it does not exist.
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked>;
    /// Commits a single-partition transaction.
    fn commit_local(&mut self, log: Self::Log) -> Lsn;
    /// Discards the undo of a transaction whose commit record is in the log.
    fn committed(&mut self, log: Self::Log);
    /// Adds to integers of a value; the undo is a subtraction.
    fn increment(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked>;
    /// Undoes all changes except the first `to`. After `Blocked::MissingPage`, resumes where it
    /// stopped.
    fn rollback(
        &mut self,
        log: &mut Self::Log,
        to: usize,
        undone: &mut Undone<'_>,
    ) -> Result<(), Blocked>;
    /// Ends a transaction that has been rolled back to 0.
    fn aborted(&mut self, log: Self::Log);
    /// Returns a hidden row number above all existing ones.
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked>;
    /// Passes keys and values to `visit` in order, until it breaks.
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked>;
    /// Passes what the transaction's changes have replaced to `each`; returns false if that is
    /// unknown here.
    fn images(&self, log: &Self::Log, each: &mut EachImage<'_>) -> Result<bool, Blocked>;
    /// Returns what the transaction's changes have replaced under a key.
    fn replaced(&self, log: &Self::Log, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked>;
}

/// The undo of a transaction.
pub trait UndoLog {
    /// Creates an empty one.
    fn new(txn: TxnId) -> Self;
    /// Returns the transaction.
    fn txn(&self) -> TxnId;
    /// Returns the number of changes to undo.
    fn mark(&self) -> usize;
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
}

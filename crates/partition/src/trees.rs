//! What a partition asks of its trees: the store's interface, as a seam for tests that make any
//! access want pages.

use clearway_storage::{
    Addends, Blocked, EachImage, Incremented, Inserted, Replaced, TxnLog, TxnMode,
};
use clearway_types::{Lsn, PartitionId, TreeId, TxnId};
use std::ops::{Bound, ControlFlow};

/// What a scan shows each key and value to.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// What says what is to be added to integers of a value; `None`: nothing is changed.
pub type Compute<'a> = dyn FnMut(&[u8]) -> Option<Addends> + 'a;

/// What is told each addition that a rollback has taken back.
pub type Undone<'a> = dyn FnMut(TreeId, &[u8], &Addends) + 'a;

/// One partition's trees; the meaning of each call is that of `clearway_storage::Store`'s method of
/// the same name.
pub trait Trees {
    /// What a transaction has to undo here.
    type Log: UndoLog;
    /// The partition.
    fn partition(&self) -> PartitionId;
    /// Whether the tree is here.
    fn has_tree(&self, tree: TreeId) -> bool;
    /// Makes an empty tree.
    fn create_tree(&mut self, tree: TreeId) -> Result<(), Blocked>;
    /// Frees a tree in slices: call again until true.
    fn drop_tree(&mut self, tree: TreeId) -> Result<bool, Blocked>;
    /// Shows the key's value; false if it is not there.
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
    /// Changes a value; false if the key is not there.
    fn update(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked>;
    /// Deletes a key; false if it is not there.
    fn delete(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked>;
    /// Inserts a key as a transaction of its own; `None` if it was there.
    fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked>;
    /// Changes a value as a transaction of its own; `None` if the key is not there.
    fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked>;
    /// Deletes a key as a transaction of its own; `None` if it is not there.
    fn delete_autocommit(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Lsn>, Blocked>;
    /// Commits a transaction of this partition alone.
    fn commit_local(&mut self, log: Self::Log) -> Lsn;
    /// Forgets a transaction whose commit record is in the log.
    fn committed(&mut self, log: Self::Log);
    /// Adds to integers of a value, which is undone by subtraction.
    fn increment(
        &mut self,
        log: &mut Self::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked>;
    /// Undoes all but the first `to` changes; goes on where it stopped after a
    /// `Blocked::MissingPage`.
    fn rollback(
        &mut self,
        log: &mut Self::Log,
        to: usize,
        undone: &mut Undone<'_>,
    ) -> Result<(), Blocked>;
    /// Ends a transaction that has been rolled back to 0.
    fn aborted(&mut self, log: Self::Log);
    /// A hidden row number above all existing ones.
    fn next_rowid(&mut self, tree: TreeId) -> Result<u64, Blocked>;
    /// Shows keys in order until `visit` breaks.
    fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Blocked>;
    /// Shows what the transaction's changes have replaced; false if that is not known here.
    fn images(&self, log: &Self::Log, each: &mut EachImage<'_>) -> Result<bool, Blocked>;
    /// What the transaction's changes have replaced under a key.
    fn replaced(&self, log: &Self::Log, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked>;
}

/// What a transaction has to undo.
pub trait UndoLog {
    /// Nothing yet.
    fn new(txn: TxnId) -> Self;
    /// Whose it is.
    fn txn(&self) -> TxnId;
    /// How many changes there are to undo.
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

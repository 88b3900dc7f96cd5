//! Frees a hidden row number that an early release gave to two rows.
//!
//! Up to commit 52b700a an insert could take the number of a row whose deletion was not committed.
//! Undoing the deletion then finds the number in use. The row that took it is committed; it gets a
//! new number here, and the deleted row keeps its own.
//!
//! Storage does not know which trees are indexes of which table. The deleting transaction's log
//! records show it: a row's deletion is followed by those of its index entries, and an entry's
//! value is the key of its row. The other entries with that value in the same trees belong to the
//! row that took the number. If an entry's key ends with the row's key, the index is not unique or
//! the entry has a NULL. Such a key changes with the row's key.
//!
//! Limit: in a unique index of several columns whose last column is a bigint with the row's number
//! as its value, the key is mistaken for such a key. `clearway check` then names the index.
//!
//! A crash leaves all of the change or nothing. It is a separate transaction, younger than the
//! loser that it makes way for, so the next recovery undoes it first.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use clearway_types::{Lsn, TreeId, TxnId};

use super::Undoing;
use crate::attempt::retry_blocking;
use crate::cursor::Cursor;
use crate::error::StorageError;
use crate::record::{self, Record, Role};
use crate::store::{Store, rowid_key, rowid_of_key};
use crate::trees::{Inserted, Trees, TxnMode};
use crate::txn::TxnLog;
use crate::undo::{Undo, UndoKind};

/// The deletion that finds its number in use.
pub(crate) struct Deletion {
    tree: TreeId,
    key: Vec<u8>,
    txn: TxnId,
    /// Its log record.
    lsn: Lsn,
}

/// What the log says about a deletion.
#[derive(Default)]
struct Evidence {
    /// The index entries that were deleted with the row.
    entries: BTreeSet<(TreeId, Vec<u8>)>,
    /// The highest number deleted from the row's tree by any transaction.
    highest: u64,
}

impl Deletion {
    /// Returns the deletion if `undo` would restore a row whose number another row has.
    pub(crate) fn in_conflict(
        undoing: &Undoing<'_>,
        store: &Store,
        undo: &Undo<'_>,
        txn: TxnId,
        lsn: Lsn,
    ) -> Result<Option<Self>, StorageError> {
        let &Undo { kind, tree, key, .. } = undo;
        if kind != UndoKind::Delete || rowid_of_key(key).is_none() || !store.has_tree(tree) {
            return Ok(None);
        }
        let taken = retry_blocking(undoing.pool, || store.get(tree, key, &mut |_| {}))?;
        Ok(taken.then(|| Self { tree, key: key.to_vec(), txn, lsn }))
    }

    fn evidence(&self, undoing: &Undoing<'_>, store: &Store) -> Result<Evidence, StorageError> {
        let mut reader = (undoing.forward)()?;
        let mut evidence = Evidence::default();
        let mut with_row = false;
        while reader.position() < undoing.end
            && let Some(entry) = reader.next()?
        {
            let Ok(Record::Pages { partition, role: Role::Undoable { txn, undo, .. }, .. }) =
                record::parse(entry.payload)
            else {
                continue;
            };
            if partition != store.partition() {
                continue;
            }
            let deletes = undo.kind == UndoKind::Delete;
            if deletes && undo.tree == self.tree {
                evidence.highest = evidence.highest.max(rowid_of_key(undo.key).unwrap_or(0));
            }
            if txn != self.txn {
                continue;
            }
            with_row = entry.start == self.lsn || with_row && deletes && undo.old == self.key;
            if with_row && undo.tree != self.tree {
                evidence.entries.insert((undo.tree, undo.key.to_vec()));
            }
        }
        Ok(evidence)
    }

    /// Assigns a new number to the row that has the deleted row's number.
    pub(crate) fn make_way(
        &self,
        undoing: &mut Undoing<'_>,
        store: &mut Store,
    ) -> Result<(), StorageError> {
        let evidence = self.evidence(undoing, store)?;
        let txn = undoing.next_txn;
        undoing.next_txn = TxnId(txn.0 + 1);
        store.keep_rowid(self.tree, &rowid_key(evidence.highest));
        let mut change = Change { undoing, store, log: TxnLog::new(txn), lsn: self.lsn };
        let new_key = change.move_row(self.tree, &self.key)?;
        let indexes: BTreeSet<TreeId> = evidence.entries.iter().map(|(tree, _)| *tree).collect();
        for index in indexes {
            for entry in change.entries_of(index, &self.key)? {
                if !evidence.entries.contains(&(index, entry.clone())) {
                    change.move_entry(index, &entry, &self.key, &new_key)?;
                }
            }
        }
        let log = change.log;
        store.commit_local(log);
        tracing::warn!(
            partition = %store.partition(), tree = %self.tree,
            "a row had the hidden number of a restored row and got a new number"
        );
        Ok(())
    }
}

/// The transaction that moves the row.
struct Change<'c, 'u> {
    undoing: &'c Undoing<'u>,
    store: &'c mut Store,
    log: TxnLog,
    /// The deletion that it makes way for.
    lsn: Lsn,
}

impl Change<'_, '_> {
    fn move_row(&mut self, tree: TreeId, key: &[u8]) -> Result<[u8; 9], StorageError> {
        let Self { undoing, store, log, .. } = self;
        let pool = undoing.pool;
        let mut row = Vec::new();
        retry_blocking(pool, || {
            store.get(tree, key, &mut |value| {
                row.clear();
                row.extend_from_slice(value);
            })
        })?;
        let new_key = rowid_key(retry_blocking(pool, || store.next_rowid(tree))?);
        retry_blocking(pool, || store.delete(log, TxnMode::Logged, tree, key))?;
        self.insert(tree, &new_key, &row)?;
        Ok(new_key)
    }

    fn insert(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        let Self { undoing, store, log, .. } = self;
        match retry_blocking(undoing.pool, || store.insert(log, TxnMode::Logged, tree, key, value))?
        {
            Inserted::Ok => Ok(()),
            Inserted::Exists => Err(StorageError::bad_record(
                self.lsn,
                "the row whose number it frees cannot get another one",
            )),
        }
    }

    /// Returns the index's entries for the row with this key.
    fn entries_of(&self, index: TreeId, row_key: &[u8]) -> Result<Vec<Vec<u8>>, StorageError> {
        let mut found = Vec::new();
        if !self.store.has_tree(index) {
            return Ok(found);
        }
        let mut cursor = Cursor::new(index, Bound::Unbounded, Bound::Unbounded, false);
        retry_blocking(self.undoing.pool, || {
            cursor.run(self.store, &mut |key, value| {
                if value == row_key {
                    found.push(key.to_vec());
                }
                ControlFlow::Continue(())
            })
        })?;
        Ok(found)
    }

    fn move_entry(
        &mut self,
        index: TreeId,
        entry: &[u8],
        row_key: &[u8],
        new_row_key: &[u8],
    ) -> Result<(), StorageError> {
        let Self { undoing, store, log, .. } = self;
        let pool = undoing.pool;
        let Some(columns) = entry.strip_suffix(row_key) else {
            retry_blocking(pool, || store.update(log, TxnMode::Logged, index, entry, new_row_key))?;
            return Ok(());
        };
        retry_blocking(pool, || store.delete(log, TxnMode::Logged, index, entry))?;
        self.insert(index, &[columns, new_row_key].concat(), new_row_key)
    }
}

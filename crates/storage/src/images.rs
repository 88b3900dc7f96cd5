//! What the changes of a transaction that is not over have replaced.

use std::collections::BTreeMap;

use clearway_types::TreeId;

use crate::error::{Blocked, StorageError};
use crate::store::Store;
use crate::txn::{TxnLog, UndoKind};

/// What is shown each tree, key and earlier value.
pub type EachImage<'a> = dyn FnMut(TreeId, &[u8], Option<&[u8]>) + 'a;

impl Store {
    /// Shows each key that the transaction has changed here (in trees that are here), with the value that it had before, or none if it was not there.
    /// False, and nothing is shown, if memory has only a part of the transaction's undo: the rest is in the log.
    pub fn images(&self, txn: &TxnLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        let Some(undos) = txn.newest_first() else { return Ok(false) };
        let mut values: BTreeMap<(TreeId, &[u8]), Option<Vec<u8>>> = BTreeMap::new();
        for undo in undos.filter(|undo| self.has_tree(undo.tree)) {
            let place = (undo.tree, undo.key);
            let before = match undo.kind {
                UndoKind::Insert => None,
                UndoKind::Delete => Some(undo.old.to_vec()),
                UndoKind::Update => {
                    let mut old = None;
                    match values.get(&place) {
                        Some(now) => old = now.as_deref().and_then(|now| undo.old_value(now)),
                        None => {
                            self.get(undo.tree, undo.key, &mut |now| old = undo.old_value(now))?;
                        }
                    }
                    let what = "a value is not as its undo says";
                    Some(old.ok_or(StorageError::BadRecord { lsn: txn.head(), what })?)
                }
            };
            values.insert(place, before);
        }
        for ((tree, key), before) in &values {
            each(*tree, key, before.as_deref());
        }
        Ok(true)
    }
}

//! What the changes of a transaction that is not over have replaced.

use std::collections::BTreeMap;

use clearway_types::TreeId;

use crate::error::{Blocked, StorageError};
use crate::store::Store;
use crate::txn::{TxnLog, Undo, UndoKind};

/// What is shown each tree, key and earlier value.
pub type EachImage<'a> = dyn FnMut(TreeId, &[u8], Option<&[u8]>) + 'a;

/// What a transaction that is not over has replaced under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: it has not changed the key.
    Nothing,
    /// This value; none: the key was not there.
    Value(Option<Box<[u8]>>),
    /// That is not known: a part of its undo is in the log only.
    Unknown,
}

impl Store {
    /// What the transaction's changes have replaced under a key of a tree that is here.
    pub fn replaced(&self, txn: &TxnLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        let Some(undos) = txn.newest_first() else { return Ok(Replaced::Unknown) };
        let mut replaced = Replaced::Nothing;
        for undo in undos.filter(|undo| undo.tree == tree && undo.key == key) {
            let now = match &replaced {
                Replaced::Value(now) => Some(now.as_deref()),
                _ => None,
            };
            replaced = Replaced::Value(self.before(txn, &undo, now)?.map(Into::into));
        }
        Ok(replaced)
    }

    /// The value before the change; `now`: the one behind it, if that is not the tree's.
    fn before(&self, txn: &TxnLog, undo: &Undo<'_>, now: Option<Option<&[u8]>>) -> Result<Option<Vec<u8>>, Blocked> {
        Ok(match undo.kind {
            UndoKind::Insert => None,
            UndoKind::Delete => Some(undo.old.to_vec()),
            UndoKind::Update => {
                let mut old = None;
                match now {
                    Some(now) => old = now.and_then(|now| undo.old_value(now)),
                    None => {
                        self.get(undo.tree, undo.key, &mut |now| old = undo.old_value(now))?;
                    }
                }
                let what = "a value is not as its undo says";
                Some(old.ok_or(StorageError::BadRecord { lsn: txn.head(), what })?)
            }
        })
    }

    /// Shows each key that the transaction has changed here (in trees that are here), with the value that it had before, or none if it was not there.
    /// False, and nothing is shown, if memory has only a part of the transaction's undo: the rest is in the log.
    pub fn images(&self, txn: &TxnLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        let Some(undos) = txn.newest_first() else { return Ok(false) };
        let mut values: BTreeMap<(TreeId, &[u8]), Option<Vec<u8>>> = BTreeMap::new();
        for undo in undos.filter(|undo| self.has_tree(undo.tree)) {
            let place = (undo.tree, undo.key);
            let now = values.get(&place).map(Option::as_deref);
            let before = self.before(txn, &undo, now)?;
            values.insert(place, before);
        }
        for ((tree, key), before) in &values {
            each(*tree, key, before.as_deref());
        }
        Ok(true)
    }
}

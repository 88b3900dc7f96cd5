//! What the changes of a transaction that is not over have replaced.
//!
//! A key that the transaction has only added to has no value of its own from before: others may
//! have added to it since. Of such a key the additions are told, of every other one the value.

use std::collections::BTreeMap;

use clearway_types::TreeId;

use crate::addends::{Addend, Addends};
use crate::error::{Blocked, StorageError};
use crate::store::Store;
use crate::txn::{TxnLog, Undo, UndoKind};

/// What a transaction has replaced under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior<'a> {
    /// The value before the transaction's first change; none: the key was not there.
    Value(Option<&'a [u8]>),
    /// One of the transaction's additions; it has done nothing but add to this key.
    Added(&'a Addends),
}

/// What is shown each tree and key, and what was replaced there.
pub type EachImage<'a> = dyn FnMut(TreeId, &[u8], Prior<'_>) + 'a;

/// What a transaction that is not over has replaced under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: it has not changed the key.
    Nothing,
    /// This value; none: the key was not there.
    Value(Option<Box<[u8]>>),
    /// It has only added to the value: this, summed by offset, in the order of the offsets.
    Added(Vec<Addend>),
    /// That is not known: a part of its undo is in the log only.
    Unknown,
}

/// What the transaction's changes of a key, from some change on, have replaced.
enum Seen {
    /// Nothing but additions were seen, newest first.
    Added(Vec<Addends>),
    /// This value.
    Value(Option<Vec<u8>>),
}

impl Store {
    /// What the transaction's changes have replaced under a key of a tree that is here.
    pub fn replaced(&self, txn: &TxnLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        let Some(undos) = txn.newest_first() else { return Ok(Replaced::Unknown) };
        let mut seen = None;
        for undo in undos.filter(|undo| undo.tree == tree && undo.key == key) {
            seen = Some(self.before(txn, &undo, seen)?);
        }
        Ok(match seen {
            None => Replaced::Nothing,
            Some(Seen::Value(value)) => Replaced::Value(value.map(Into::into)),
            Some(Seen::Added(added)) => Replaced::Added(Addends::sum(&added)),
        })
    }

    /// What was replaced by the change and those behind it, `seen`.
    fn before(&self, txn: &TxnLog, undo: &Undo<'_>, seen: Option<Seen>) -> Result<Seen, Blocked> {
        let bad =
            || StorageError::BadRecord { lsn: txn.head(), what: "a value is not as its undo says" };
        let now = match (undo.kind, seen) {
            (UndoKind::Insert, _) => return Ok(Seen::Value(None)),
            (UndoKind::Delete, _) => return Ok(Seen::Value(Some(undo.old.to_vec()))),
            (UndoKind::Add, None) => return Ok(Seen::Added(vec![undo.addends().ok_or_else(bad)?])),
            (UndoKind::Add, Some(Seen::Added(mut added))) => {
                added.push(undo.addends().ok_or_else(bad)?);
                return Ok(Seen::Added(added));
            }
            (UndoKind::Add | UndoKind::Update, Some(Seen::Value(value))) => value,
            (UndoKind::Update, None) => self.value(undo)?,
            (UndoKind::Update, Some(Seen::Added(added))) => {
                let mut value = self.value(undo)?.ok_or_else(bad)?;
                let all = added.iter().all(|addends| addends.subtract_from(&mut value));
                Some(value).filter(|_| all)
            }
        };
        let mut value = now.ok_or_else(bad)?;
        match undo.addends() {
            Some(addends) => addends.subtract_from(&mut value).then_some(()).ok_or_else(bad)?,
            None => value = undo.old_value(&value).ok_or_else(bad)?,
        }
        Ok(Seen::Value(Some(value)))
    }

    /// The value in the tree.
    fn value(&self, undo: &Undo<'_>) -> Result<Option<Vec<u8>>, Blocked> {
        let mut value = None;
        self.get(undo.tree, undo.key, &mut |now| value = Some(now.to_vec()))?;
        Ok(value)
    }

    /// Shows each key that the transaction has changed here (in trees that are here): if it has
    /// only added to the key, each addition by itself, newest first; else the value before its
    /// first change. False, and nothing is shown, if memory has only a part of the transaction's
    /// undo: the rest is in the log.
    pub fn images(&self, txn: &TxnLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        let Some(undos) = txn.newest_first() else { return Ok(false) };
        let mut all: BTreeMap<(TreeId, &[u8]), Seen> = BTreeMap::new();
        for undo in undos.filter(|undo| self.has_tree(undo.tree)) {
            let place = (undo.tree, undo.key);
            let before = self.before(txn, &undo, all.remove(&place))?;
            all.insert(place, before);
        }
        for ((tree, key), seen) in &all {
            match seen {
                Seen::Value(value) => each(*tree, key, Prior::Value(value.as_deref())),
                Seen::Added(added) => {
                    added.iter().for_each(|addends| each(*tree, key, Prior::Added(addends)));
                }
            }
        }
        Ok(true)
    }
}

//! What the changes of a transaction that is not over have replaced.

use std::collections::{BTreeMap, BTreeSet};

use clearway_types::TreeId;

use crate::addends::{Addend, Addends};
use crate::error::{Blocked, StorageError};
use crate::store::Store;
use crate::txn::{TxnLog, Undo, UndoKind};

/// What a transaction that is not over has done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior<'a> {
    /// The value before its first change; none: the key was not there. It may have added to the value as well.
    Value(Option<&'a [u8]>),
    /// It has only added to integers of the value, this among others.
    Added(&'a Addends),
}

/// What is shown each tree and key, and what was done to it.
pub type EachImage<'a> = dyn FnMut(TreeId, &[u8], Prior<'_>) + 'a;

/// What a transaction that is not over has replaced under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: it has not changed the key.
    Nothing,
    /// This value; none: the key was not there.
    Value(Option<Box<[u8]>>),
    /// Nothing, but it has added this to integers of the value: once for each.
    Added(Vec<Addend>),
    /// That is not known: a part of its undo is in the log only.
    Unknown,
}

/// Adds to the sum of what was added to each integer.
fn sum(sums: &mut Vec<Addend>, addends: &Addends) {
    for addend in addends.iter() {
        match sums.iter_mut().find(|have| have.offset == addend.offset) {
            Some(have) => have.delta = have.delta.wrapping_add(addend.delta),
            None => sums.push(addend),
        }
    }
}

impl Store {
    /// What the transaction's changes have replaced under a key of a tree that is here.
    pub fn replaced(&self, txn: &TxnLog, tree: TreeId, key: &[u8]) -> Result<Replaced, Blocked> {
        let Some(undos) = txn.newest_first() else { return Ok(Replaced::Unknown) };
        let undos: Vec<_> = undos.filter(|undo| undo.tree == tree && undo.key == key).collect();
        if undos.is_empty() {
            return Ok(Replaced::Nothing);
        }
        if undos.iter().all(|undo| undo.kind == UndoKind::Add) {
            let mut sums = Vec::new();
            undos.iter().filter_map(Undo::added).for_each(|addends| sum(&mut sums, &addends));
            return Ok(Replaced::Added(sums));
        }
        let mut value: Option<Option<Vec<u8>>> = None;
        for undo in &undos {
            value = Some(self.before(txn, undo, value.as_ref().map(Option::as_deref))?);
        }
        Ok(Replaced::Value(value.flatten().map(Into::into)))
    }

    /// The value before the change; `now`: the one behind it, if that is not the tree's.
    fn before(&self, txn: &TxnLog, undo: &Undo<'_>, now: Option<Option<&[u8]>>) -> Result<Option<Vec<u8>>, Blocked> {
        Ok(match undo.kind {
            UndoKind::Insert => None,
            UndoKind::Delete => Some(undo.old.to_vec()),
            UndoKind::Update | UndoKind::Add => {
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

    /// Shows each key that the transaction has changed here (in trees that are here), with what was done to it. False, and nothing is shown, if memory has
    /// only a part of the transaction's undo: the rest is in the log.
    pub fn images(&self, txn: &TxnLog, each: &mut EachImage<'_>) -> Result<bool, Blocked> {
        let (Some(kinds), Some(undos)) = (txn.newest_first(), txn.newest_first()) else { return Ok(false) };
        let replaced = kinds.filter(|undo| undo.kind != UndoKind::Add).map(|undo| (undo.tree, undo.key));
        let replaced: BTreeSet<(TreeId, &[u8])> = replaced.collect();
        let (mut values, mut added) = (BTreeMap::<(TreeId, &[u8]), Option<Vec<u8>>>::new(), Vec::new());
        for undo in undos.filter(|undo| self.has_tree(undo.tree)) {
            let place = (undo.tree, undo.key);
            if let (Some(addends), false) = (undo.added(), replaced.contains(&place)) {
                added.push((place, addends));
                continue;
            }
            let now = values.get(&place).map(Option::as_deref);
            let before = self.before(txn, &undo, now)?;
            values.insert(place, before);
        }
        for ((tree, key), before) in &values {
            each(*tree, key, Prior::Value(before.as_deref()));
        }
        for ((tree, key), addends) in &added {
            each(*tree, key, Prior::Added(addends));
        }
        Ok(true)
    }
}

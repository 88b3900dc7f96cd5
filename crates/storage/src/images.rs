//! Before-images of an active transaction's changes.
//!
//! A key that the transaction has only added to has no before-image: other transactions may have
//! added to it since. For such a key the additions are reported; for every other key, the old
//! value.

use std::collections::BTreeMap;

use clearway_types::TreeId;

use crate::addends::Addends;
use crate::attempt::Blocked;
use crate::error::StorageError;
use crate::trees::{EachImage, Prior, Replaced, Trees};
use crate::txn::TxnLog;
use crate::undo::{Undo, UndoKind};

/// What the transaction's changes of a key, from some change on, have replaced.
enum Seen {
    /// Only additions so far, newest first.
    Added(Vec<Addends>),
    /// The old value.
    Value(Option<Vec<u8>>),
}

/// See [`Trees::replaced`].
pub(crate) fn of_key(
    trees: &impl Trees,
    txn: &TxnLog,
    tree: TreeId,
    key: &[u8],
) -> Result<Replaced, Blocked> {
    let Some(undos) = txn.newest_first() else { return Ok(Replaced::Unknown) };
    let mut seen = None;
    for undo in undos.filter(|undo| undo.tree == tree && undo.key == key) {
        seen = Some(before(trees, txn, &undo, seen)?);
    }
    Ok(match seen {
        None => Replaced::Nothing,
        Some(Seen::Value(value)) => Replaced::Value(value.map(Into::into)),
        Some(Seen::Added(added)) => Replaced::Added(Addends::sum(&added)),
    })
}

/// Returns what was replaced by the change `undo` and the later changes, of which `seen` is
/// known.
fn before(
    trees: &impl Trees,
    txn: &TxnLog,
    undo: &Undo<'_>,
    seen: Option<Seen>,
) -> Result<Seen, Blocked> {
    let bad =
        || StorageError::BadRecord { lsn: txn.head(), what: "a value does not match its undo" };
    let now = match (undo.kind, seen) {
        (UndoKind::Insert, _) => return Ok(Seen::Value(None)),
        (UndoKind::Delete, _) => return Ok(Seen::Value(Some(undo.old.to_vec()))),
        (UndoKind::Add, None) => return Ok(Seen::Added(vec![undo.addends().ok_or_else(bad)?])),
        (UndoKind::Add, Some(Seen::Added(mut added))) => {
            added.push(undo.addends().ok_or_else(bad)?);
            return Ok(Seen::Added(added));
        }
        (UndoKind::Add | UndoKind::Update, Some(Seen::Value(value))) => value,
        (UndoKind::Update, None) => value(trees, undo)?,
        (UndoKind::Update, Some(Seen::Added(added))) => {
            let mut value = value(trees, undo)?.ok_or_else(bad)?;
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

/// Returns the current value in the tree.
fn value(trees: &impl Trees, undo: &Undo<'_>) -> Result<Option<Vec<u8>>, Blocked> {
    let mut value = None;
    trees.get(undo.tree, undo.key, &mut |now| value = Some(now.to_vec()))?;
    Ok(value)
}

/// See [`Trees::images`].
pub(crate) fn all(
    trees: &impl Trees,
    txn: &TxnLog,
    each: &mut EachImage<'_>,
) -> Result<bool, Blocked> {
    let Some(undos) = txn.newest_first() else { return Ok(false) };
    let mut all: BTreeMap<(TreeId, &[u8]), Seen> = BTreeMap::new();
    for undo in undos.filter(|undo| trees.has_tree(undo.tree)) {
        let place = (undo.tree, undo.key);
        let before = before(trees, txn, &undo, all.remove(&place))?;
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

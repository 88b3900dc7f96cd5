//! Undoes one change, from a transaction's memory or from the log, with the same code.
//!
//! Invariant: one record undoes a change and logs its compensation, so the change is undone exactly
//! once despite crashes.

use clearway_types::{Lsn, TxnId};

use crate::addends::Addends;
use crate::attempt::Blocked;
use crate::change::{self, Added, Logging, Tree};
use crate::descend::{self, Path};
use crate::mini::{Core, Need, Urgency};
use crate::overflow;
use crate::page::Node;
use crate::record::{Role, start_pages};
use crate::undo::{Undo, UndoKind};

/// Returns the value before the update.
fn old_value(core: &Core, tree: Tree, undo: &Undo<'_>) -> Result<Option<Vec<u8>>, Blocked> {
    let mut path = Path::new();
    let (no, page) = descend::leaf(core, tree.root, &mut path, |node| node.child_slot(undo.key))?;
    let node = Node::new(&page);
    let Ok(slot) = node.search(undo.key) else { return Ok(None) };
    let old = overflow::with_value(core, &node.cell(slot), |now| undo.old_value(now));
    let old = old.map_err(|blocked| path.behind(core, no, blocked))?;
    old.map(Some).ok_or_else(|| core.corrupt(no, "a value is shorter than its undo says").into())
}

/// Subtracts an addition from the current value, which includes the additions of others.
fn subtract(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    undo: &Undo<'_>,
    by: Logging<'_>,
) -> Result<(), Blocked> {
    let taken_back = undo.addends().map(Addends::negated);
    match change::increment(core, buf, tree, undo.key, by, &mut |_| taken_back)? {
        Added::Done(_) => Ok(()),
        Added::Beyond(no) => Err(core.corrupt(no, "a value is shorter than its undo says").into()),
        Added::Missing | Added::Refused => {
            let (no, _) =
                descend::leaf(core, tree.root, &mut Path::new(), |node| node.child_slot(undo.key))?;
            Err(core.corrupt(no, "a change to undo is not there").into())
        }
    }
}

/// Undoes one change of `txn`; the record to undo next is at `next`. `root` is that of the undo's
/// tree, `None` if the tree was dropped together with everything to undo in it. `after` is the key
/// undone before in that tree, if any.
pub(crate) fn undo(
    core: &Core,
    buf: &mut Vec<u8>,
    root: Option<u32>,
    undo: &Undo<'_>,
    txn: TxnId,
    next: Lsn,
    after: &[u8],
) -> Result<(), Blocked> {
    let Some(root) = root else {
        start_pages(buf, core.partition, &Role::Compensation { txn, next });
        core.admit(buf.len(), Need::new(Urgency::Reserved))?;
        core.wal.append(&[buf]);
        return Ok(());
    };
    let tree = Tree { id: undo.tree, root };
    let by = Logging::Compensation { txn, next, after };
    let done = match undo.kind {
        UndoKind::Insert => change::delete(core, buf, tree, undo.key, by)?,
        UndoKind::Delete => change::insert(core, buf, tree, undo.key, undo.old, by)?,
        UndoKind::Update => match old_value(core, tree, undo)? {
            Some(old) => change::update(core, buf, tree, undo.key, &old, by)?,
            None => None,
        },
        UndoKind::Add => return subtract(core, buf, tree, undo, by),
    };
    match done {
        Some(_) => Ok(()),
        None => {
            let (no, _) =
                descend::leaf(core, root, &mut Path::new(), |node| node.child_slot(undo.key))?;
            Err(core.corrupt(no, "a change to undo is not there").into())
        }
    }
}

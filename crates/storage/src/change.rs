//! Changes one key: in one leaf if possible, otherwise with splits, freed pages and overflow
//! chains.

use std::ops::Range;

use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TreeId, TxnId};

use crate::addends::Addends;
use crate::attempt::Blocked;
use crate::descend::{self, Path};
use crate::error::{MAX_KEY, StorageError};
use crate::mini::{Core, Mini, Need, Urgency};
use crate::overflow;
use crate::page::{CELL_HEAD, Cell, MAX_CELL, Node, REFERENCE, SLOT};
use crate::record::{PageOp, Role, push_op, start_pages};
use crate::split::{self, Incoming};
use crate::txn::TxnLog;
use crate::undo::{Undo, UndoKind};

/// A tree and the page of its root.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    pub(crate) root: u32,
}

/// How a change is logged.
pub(crate) enum Logging<'t> {
    /// The change commits by itself, or is never undone.
    Auto,
    /// A consequence of a decision already made.
    Cleanup,
    /// A transaction that may undo the change.
    Txn(&'t mut TxnLog),
    /// An undo of a transaction. `next` is the record to undo next. `after` is the key of the tree
    /// that was undone before; empty if there is none.
    Compensation { txn: TxnId, next: Lsn, after: &'t [u8] },
}

impl Logging<'_> {
    fn role<'a>(&self, undo: &Undo<'a>) -> Role<'a> {
        match self {
            Self::Auto | Self::Cleanup => Role::Plain,
            Self::Txn(log) => Role::Undoable { txn: log.id, prev: log.head(), undo: *undo },
            Self::Compensation { txn, next, .. } => Role::Compensation { txn: *txn, next: *next },
        }
    }
    /// Adds the undo of the record at `start` to the transaction.
    fn logged(&mut self, core: &Core, undo: &Undo<'_>, start: Lsn) {
        if let Self::Txn(log) = self {
            log.push(undo, start, core.undo_memory);
        }
    }
    fn need(&self, undo: &Undo<'_>) -> Need {
        match self {
            Self::Auto => Need::new(Urgency::Refusable),
            Self::Cleanup => Need::new(Urgency::Waits),
            Self::Txn(_) => Need { urgency: Urgency::Refusable, undo: undo.cost() },
            Self::Compensation { .. } => Need::new(Urgency::Reserved),
        }
    }
    fn after(&self) -> &[u8] {
        if let Self::Compensation { after, .. } = self { after } else { &[] }
    }
    fn wants_old(&self) -> bool {
        matches!(self, Self::Txn(_))
    }
}

/// The value of a new cell.
#[derive(Clone, Copy)]
enum CellValue<'a> {
    Bytes(&'a [u8]),
    /// The number of a page that becomes the root of a new tree in the same record.
    Root,
}

/// A change that [`complex`] makes.
#[derive(Clone, Copy)]
pub(crate) enum ChangeOp<'a> {
    Insert(&'a [u8]),
    Update(&'a [u8]),
    /// Deletes the key, and frees the page with this number unless it is 0.
    Delete(u32),
}

fn fits_inline(key: &[u8], len: usize) -> bool {
    CELL_HEAD + key.len() + len <= MAX_CELL
}

/// Checks a key and the length of its new value. An undo restores what was there, whatever this
/// start's settings allow.
fn check_sizes(core: &Core, key: &[u8], len: usize, by: &Logging<'_>) -> Result<(), StorageError> {
    if matches!(by, Logging::Compensation { .. }) {
        return Ok(());
    }
    if key.len() > MAX_KEY {
        return Err(StorageError::KeyTooLong { len: key.len() });
    }
    if len > core.max_value {
        return Err(StorageError::ValueTooLong { len, max: core.max_value });
    }
    Ok(())
}

/// Returns the lengths of the common prefix, and of the common suffix of the rest. Compares words
/// of 8 bytes first.
fn common(a: &[u8], b: &[u8]) -> (usize, usize) {
    let (words, _) = a.as_chunks::<8>();
    let same = words.iter().zip(b.as_chunks::<8>().0).take_while(|(x, y)| x == y).count() * 8;
    let front = same + a[same..].iter().zip(&b[same..]).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[front..], &b[front..]);
    let (_, words) = a.as_rchunks::<8>();
    let pairs = words.iter().rev().zip(b.as_rchunks::<8>().1.iter().rev());
    let same = pairs.take_while(|(x, y)| x == y).count() * 8;
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    let end = same + a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    (front, end)
}

/// Inserts a key. Returns the record's end, or `None` if the key exists.
pub(crate) fn insert(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
    value: &[u8],
    mut by: Logging<'_>,
) -> Result<Option<Lsn>, Blocked> {
    check_sizes(core, key, value.len(), &by)?;
    let (no, page) = descend::leaf_mut(core, tree.root, &mut Path::new(), key)?;
    let node = Node::new(&page);
    let Err(slot) = node.search(key) else { return Ok(None) };
    let cell = Cell { key, value, overflow: false };
    let full = node.free() < cell.size() + SLOT || node.count() >= core.node_cells;
    if full || !fits_inline(key, value.len()) {
        drop(page);
        return complex(core, buf, tree, key, ChangeOp::Insert(value), by);
    }
    let undo = Undo { kind: UndoKind::Insert, tree: tree.id, key, prefix: 0, suffix: 0, old: &[] };
    start_pages(buf, core.partition, &by.role(&undo));
    let op = PageOp::Insert { slot: slot as u16, cell };
    push_op(buf, no, &op);
    core.admit(buf.len(), by.need(&undo))?;
    let (start, end) = core.log(buf, [(no, op)].into_iter(), &mut [(no, page)])?;
    by.logged(core, &undo, start);
    Ok(Some(end))
}

/// Changes a key's value. Returns the record's end, or `None` if the key does not exist.
pub(crate) fn update(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
    value: &[u8],
    mut by: Logging<'_>,
) -> Result<Option<Lsn>, Blocked> {
    check_sizes(core, key, value.len(), &by)?;
    let (no, page) = descend::leaf_mut(core, tree.root, &mut Path::new(), key)?;
    let node = Node::new(&page);
    let Ok(slot) = node.search(key) else { return Ok(None) };
    let old = node.cell(slot);
    if old.overflow || !fits_inline(key, value.len()) || node.free() + old.value.len() < value.len()
    {
        drop(page);
        return complex(core, buf, tree, key, ChangeOp::Update(value), by);
    }
    let (prefix, suffix) = common(old.value, value);
    let (old, middle) =
        (&old.value[prefix..old.value.len() - suffix], &value[prefix..value.len() - suffix]);
    let undo = Undo {
        kind: UndoKind::Update,
        tree: tree.id,
        key,
        prefix: prefix as u32,
        suffix: suffix as u32,
        old,
    };
    let old = start_pages(buf, core.partition, &by.role(&undo));
    let (slot, prefix, suffix) = (slot as u16, prefix as u16, suffix as u16);
    let op = PageOp::Patch { slot, prefix, suffix, middle };
    push_op(buf, no, &op);
    core.admit(buf.len(), by.need(&undo))?;
    let undo = undo.without_old(key);
    let (start, end) = core.log(buf, [(no, op)].into_iter(), &mut [(no, page)])?;
    // The page no longer has the old bytes; the record does.
    by.logged(core, &Undo { old: &buf[old], ..undo }, start);
    Ok(Some(end))
}

/// The result of an addition.
pub(crate) enum Added {
    /// The key does not exist.
    Missing,
    /// `compute` refused.
    Refused,
    /// An integer is out of the value's bounds. Nothing was changed. Holds the leaf's page number.
    Beyond(u32),
    Done(Addends),
}

/// Returns the undo of an addition to a value that was `old` before. `written` is the number of
/// value bytes in the record that undoes it.
fn undo_of_addition<'a>(
    tree: Tree,
    key: &'a [u8],
    addends: &'a [u8],
    old: &'a [u8],
    span: Range<usize>,
    written: usize,
) -> Undo<'a> {
    if canary::on(Bug::PatchForAddition) {
        let (prefix, suffix) = (span.start as u32, (old.len() - span.end) as u32);
        return Undo {
            kind: UndoKind::Update,
            tree: tree.id,
            key,
            prefix,
            suffix,
            old: &old[span],
        };
    }
    Undo {
        kind: UndoKind::Add,
        tree: tree.id,
        key,
        prefix: written as u32,
        suffix: 0,
        old: addends,
    }
}

/// Adds what `compute` returns for the value to integers of a key's value.
pub(crate) fn increment(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
    mut by: Logging<'_>,
    compute: &mut dyn FnMut(&[u8]) -> Option<Addends>,
) -> Result<Added, Blocked> {
    let (no, page) = descend::leaf_mut(core, tree.root, &mut Path::new(), key)?;
    let node = Node::new(&page);
    let Ok(slot) = node.search(key) else { return Ok(Added::Missing) };
    let cell = node.cell(slot);
    if cell.overflow {
        drop(page);
        return increment_long(core, buf, tree, key, by, compute);
    }
    let value = cell.value;
    let Some(addends) = compute(value) else { return Ok(Added::Refused) };
    let Some(span) = addends.span() else { return Ok(Added::Done(addends)) };
    if !addends.fits(value.len()) {
        return Ok(Added::Beyond(no));
    }
    let encoded = addends.encode();
    let undo = undo_of_addition(tree, key, encoded.bytes(), value, span.clone(), span.len());
    let old = start_pages(buf, core.partition, &by.role(&undo));
    let (slot, prefix, suffix) = (slot as u16, span.start as u16, (value.len() - span.end) as u16);
    push_op(buf, no, &PageOp::Patch { slot, prefix, suffix, middle: &value[span.clone()] });
    // The record ends with the patch's bytes.
    let middle_at = buf.len() - span.len();
    addends.add_to_part(&mut buf[middle_at..], span.start);
    let op = PageOp::Patch { slot, prefix, suffix, middle: &buf[middle_at..] };
    core.admit(buf.len(), by.need(&undo))?;
    let undo = undo.without_old(key);
    let (start, _) = core.log(buf, [(no, op)].into_iter(), &mut [(no, page)])?;
    by.logged(core, &Undo { old: &buf[old], ..undo }, start);
    Ok(Added::Done(addends))
}

/// Adds to a value in overflow pages by writing a new chain.
fn increment_long(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
    mut by: Logging<'_>,
    compute: &mut dyn FnMut(&[u8]) -> Option<Addends>,
) -> Result<Added, Blocked> {
    let place = find(core, tree, key, &by)?;
    if !place.found {
        return Ok(Added::Missing);
    }
    let Some(addends) = compute(&place.old_value) else { return Ok(Added::Refused) };
    let Some(span) = addends.span() else { return Ok(Added::Done(addends)) };
    let mut value = place.old_value.clone();
    if !addends.add_to(&mut value) {
        return Ok(Added::Beyond(place.leaf));
    }
    let encoded = addends.encode();
    let undo = undo_of_addition(tree, key, encoded.bytes(), &place.old_value, span, value.len());
    let (role, need) = (by.role(&undo), by.need(&undo));
    let (start, _) = put(core, buf, key, CellValue::Bytes(&value), &place, &role, need)?.log;
    by.logged(core, &undo, start);
    Ok(Added::Done(addends))
}

/// Deletes a key. Returns the record's end, or `None` if the key does not exist.
pub(crate) fn delete(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
    mut by: Logging<'_>,
) -> Result<Option<Lsn>, Blocked> {
    let (no, page) = descend::leaf_mut(core, tree.root, &mut Path::new(), key)?;
    let node = Node::new(&page);
    let Ok(slot) = node.search(key) else { return Ok(None) };
    let old = node.cell(slot);
    if old.overflow || (node.count() == 1 && no != tree.root) {
        drop(page);
        return complex(core, buf, tree, key, ChangeOp::Delete(0), by);
    }
    let undo =
        Undo { kind: UndoKind::Delete, tree: tree.id, key, prefix: 0, suffix: 0, old: old.value };
    let old = start_pages(buf, core.partition, &by.role(&undo));
    let op = PageOp::Remove { slot: slot as u16 };
    push_op(buf, no, &op);
    core.admit(buf.len(), by.need(&undo))?;
    let undo = undo.without_old(key);
    let (start, end) = core.log(buf, [(no, op)].into_iter(), &mut [(no, page)])?;
    // The page no longer has the old bytes; the record does.
    by.logged(core, &Undo { old: &buf[old], ..undo }, start);
    Ok(Some(end))
}

/// The position of a key, and what is stored there.
struct Place {
    path: Path,
    leaf: u32,
    slot: usize,
    found: bool,
    /// Number of cells in the leaf.
    count: usize,
    old_value: Vec<u8>,
    old_pages: Vec<u32>,
    after: Vec<u8>,
}

fn find(core: &Core, tree: Tree, key: &[u8], by: &Logging<'_>) -> Result<Place, Blocked> {
    let (wants_old, after) = (by.wants_old(), by.after());
    let mut path = Path::new();
    let (leaf, page) = descend::leaf(core, tree.root, &mut path, |node| node.child_slot(key))?;
    let node = Node::new(&page);
    let (slot, found) = match node.search(key) {
        Ok(slot) => (slot, true),
        Err(slot) => (slot, false),
    };
    let (mut old_value, mut old_pages) = (Vec::new(), Vec::new());
    if found {
        let cell = node.cell(slot);
        if cell.overflow {
            (old_value, old_pages) = overflow::read(core, cell.value)
                .map_err(|blocked| path.behind(core, leaf, blocked))?;
        } else if wants_old {
            old_value = cell.value.to_vec();
        }
    }
    Ok(Place {
        path,
        leaf,
        slot,
        found,
        count: node.count(),
        old_value,
        old_pages,
        after: after.to_vec(),
    })
}

/// Makes a change that allocates or frees pages.
pub(crate) fn complex(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
    what: ChangeOp<'_>,
    mut by: Logging<'_>,
) -> Result<Option<Lsn>, Blocked> {
    let place = find(core, tree, key, &by)?;
    if place.found == matches!(what, ChangeOp::Insert(_)) {
        return Ok(None);
    }
    let kind = match what {
        ChangeOp::Insert(_) => UndoKind::Insert,
        ChangeOp::Update(_) => UndoKind::Update,
        ChangeOp::Delete(_) => UndoKind::Delete,
    };
    let undo = Undo { kind, tree: tree.id, key, prefix: 0, suffix: 0, old: &place.old_value };
    let (role, need) = (by.role(&undo), by.need(&undo));
    let (start, end) = match what {
        ChangeOp::Insert(value) | ChangeOp::Update(value) => {
            put(core, buf, key, CellValue::Bytes(value), &place, &role, need)?.log
        }
        ChangeOp::Delete(extra) => remove(core, buf, tree, &place, extra, &role, need)?,
    };
    by.logged(core, &undo, start);
    Ok(Some(end))
}

/// Inserts a key whose value is the root page of a new tree, created in the same record. Returns
/// that page, or `None` if the key exists.
///
/// The page is known before the record is logged. Nothing after logging can block, so a repeated
/// call never finds its own work.
pub(crate) fn insert_root(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
) -> Result<Option<u32>, Blocked> {
    let place = find(core, tree, key, &Logging::Auto)?;
    if place.found {
        return Ok(None);
    }
    let need = Need::new(Urgency::Refusable);
    put(core, buf, key, CellValue::Root, &place, &Role::Plain, need).map(|put| Some(put.root))
}

/// The result of [`put`].
struct Put {
    /// The record's start and end in the log.
    log: (Lsn, Lsn),
    /// The page of the new root; 0 if none was requested.
    root: u32,
}

fn put(
    core: &Core,
    buf: &mut Vec<u8>,
    key: &[u8],
    new: CellValue<'_>,
    place: &Place,
    role: &Role<'_>,
    need: Need,
) -> Result<Put, Blocked> {
    let (value, is_root) = match new {
        CellValue::Bytes(value) => (value, false),
        CellValue::Root => (&[0; 4][..], true),
    };
    let long = !fits_inline(key, value.len());
    let len = if long { REFERENCE } else { value.len() };
    let incoming =
        Incoming { slot: place.slot, replaces: place.found, key, len, after: &place.after };
    let mut plan = split::plan(core, &place.path, place.leaf, incoming)?;
    let mut mini = Mini::new(core, need);
    plan.take(&mut mini)?;
    let chain = overflow::alloc(&mut mini, if long { value.len() } else { 0 })?;
    let root = if is_root { mini.alloc()? } else { 0 };
    for &no in &place.old_pages {
        mini.take_to_free(no)?;
    }
    mini.start(buf, role);
    overflow::push(buf, value, &chain);
    if is_root {
        push_op(buf, root, &PageOp::InitNode { level: 0 });
        plan.push(&mini, buf, &root.to_le_bytes());
    } else if let Some(&first) = chain.first() {
        plan.push_reference(&mini, buf, &overflow::reference(value.len(), first));
    } else {
        plan.push(&mini, buf, value);
    }
    for &no in &place.old_pages {
        mini.push_free(buf, no);
    }
    Ok(Put { log: mini.finish(buf)?, root })
}

fn remove(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    place: &Place,
    extra: u32,
    role: &Role<'_>,
    need: Need,
) -> Result<(Lsn, Lsn), Blocked> {
    let mut mini = Mini::new(core, need);
    let empty = if place.count == 1 { emptied(core, tree, &place.path, place.leaf)? } else { None };
    let mut freed = place.old_pages.clone();
    freed.extend((extra != 0).then_some(extra));
    mini.take(empty.as_ref().map_or(place.leaf, |e| e.survivor))?;
    if let Some(empty) = &empty {
        freed.extend(&empty.pages);
    }
    for &no in &freed {
        mini.take_to_free(no)?;
    }
    mini.start(buf, role);
    match &empty {
        None => push_op(buf, place.leaf, &PageOp::Remove { slot: place.slot as u16 }),
        Some(empty) => empty.push(buf, 1),
    }
    for &no in &freed {
        mini.push_free(buf, no);
    }
    mini.finish(buf)
}

/// The effect on a tree of removing a leaf, or several neighbouring leaves.
pub(crate) struct Emptied {
    /// The remaining node. It loses a slot. If it is the root and has no other slot, it becomes an
    /// empty leaf.
    pub(crate) survivor: u32,
    slot: Option<u16>,
    /// The nodes to free.
    pub(crate) pages: Vec<u32>,
}

impl Emptied {
    /// Logs the removal of `children` neighbouring children from the survivor.
    pub(crate) fn push(&self, buf: &mut Vec<u8>, children: usize) {
        match self.slot {
            Some(slot) => {
                (0..children).for_each(|_| push_op(buf, self.survivor, &PageOp::Remove { slot }))
            }
            None => push_op(buf, self.survivor, &PageOp::InitNode { level: 0 }),
        }
    }
}

/// Plans the removal of the node `no` below `path`. Returns `None` if it is the root.
pub(crate) fn emptied(
    core: &Core,
    tree: Tree,
    path: &Path,
    no: u32,
) -> Result<Option<Emptied>, Blocked> {
    if no == tree.root {
        return Ok(None);
    }
    let mut pages = vec![no];
    for &(parent, slot) in path.nodes().iter().rev() {
        let page = core.read(parent).map_err(|want| path.blocked(core, want))?;
        if Node::new(&page).count() > 1 {
            return Ok(Some(Emptied { survivor: parent, slot: Some(slot), pages }));
        }
        if parent == tree.root {
            break;
        }
        pages.push(parent);
    }
    Ok(Some(Emptied { survivor: tree.root, slot: None, pages }))
}

#[cfg(test)]
mod tests {
    use super::common;
    use proptest::prelude::*;

    proptest! {
        /// Few byte values and shared parts, so that prefix and suffix have all lengths, and may
        /// overlap.
        #[test]
        fn common_parts_are_those_found_byte_by_byte(
            front in prop::collection::vec(0_u8..2, 0..40),
            a in prop::collection::vec(0_u8..2, 0..12),
            b in prop::collection::vec(0_u8..2, 0..12),
            end in prop::collection::vec(0_u8..2, 0..40),
        ) {
            let (a, b) = ([&*front, &a, &end].concat(), [&*front, &b, &end].concat());
            let prefix = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            let rest = a[prefix..].iter().rev().zip(b[prefix..].iter().rev());
            prop_assert_eq!(common(&a, &b), (prefix, rest.take_while(|(x, y)| x == y).count()));
        }
    }
}

//! Visits a range of keys, ascending or descending.
//!
//! Leaves have no sibling links. The descent remembers the separator next to the path, and the scan
//! finds the next leaf from the root by it. That costs one descent per leaf, and saves every split
//! and free from changing two more pages. A scan that misses a leaf also requests some of the
//! following leaves: it will need them, and the disk reads them in parallel. The requests tell the
//! pool that the pages belong to a scan ([`MissingPage::Scan`]).

use std::ops::{Bound, ControlFlow};

use clearway_buffer::MissingPage;

use crate::attempt::Blocked;
use crate::descend::{self, Path};
use crate::mini::Core;
use crate::overflow;
use crate::page::Node;

/// Receives a key and its value; breaks to end the scan.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Returns the first slot within a lower bound.
fn first_slot(node: Node<'_>, from: Bound<&[u8]>) -> usize {
    match from {
        Bound::Unbounded => 0,
        Bound::Included(key) => node.search(key).unwrap_or_else(|slot| slot),
        Bound::Excluded(key) => node.search(key).map_or_else(|slot| slot, |slot| slot + 1),
    }
}

/// Returns the slot after the last one within an upper bound.
fn end_slot(node: Node<'_>, to: Bound<&[u8]>) -> usize {
    match to {
        Bound::Unbounded => node.count(),
        Bound::Included(key) => node.search(key).map_or_else(|slot| slot, |slot| slot + 1),
        Bound::Excluded(key) => node.search(key).unwrap_or_else(|slot| slot),
    }
}

fn visit_slots(
    core: &Core,
    node: Node<'_>,
    slots: impl Iterator<Item = usize>,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>, Blocked> {
    for slot in slots {
        let cell = node.cell(slot);
        let flow = if cell.overflow {
            overflow::with_value(core, &cell, |value| visit(cell.key, value))?
        } else {
            visit(cell.key, cell.value)
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Adds the leaves that follow a missing leaf to the request. They have the same parent and are
/// within the range: `wanted` decides by the separator before each leaf.
#[cold]
fn read_ahead(
    core: &Core,
    path: &Path,
    blocked: Blocked,
    reverse: bool,
    wanted: impl Fn(&[u8]) -> bool,
) -> Blocked {
    let Blocked::MissingPage(mut wants) = blocked else { return blocked };
    if let Some(&(no, slot)) = path.nodes().last()
        && let Ok(page) = core.read(no)
        && Node::new(&page).level() == 1
    {
        let (node, slot) = (Node::new(&page), usize::from(slot));
        if let Some(missing) = wants.last_mut()
            && let MissingPage::Page(leaf) = *missing
        {
            *missing = MissingPage::Scan(leaf);
        }
        let mut want = |slot| wants.push(MissingPage::Scan(core.id(node.child(slot))));
        if reverse {
            let slots = (slot.saturating_sub(core.read_ahead)..slot).rev();
            slots.take_while(|&slot| wanted(node.key(slot + 1))).for_each(&mut want);
        } else {
            let slots = slot + 1..node.count().min(slot + 1 + core.read_ahead);
            slots.take_while(|&slot| wanted(node.key(slot))).for_each(&mut want);
        }
    }
    Blocked::MissingPage(wants)
}

/// Visits the keys between the bounds in ascending order.
pub(crate) fn forward(
    core: &Core,
    root: u32,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    visit: &mut Visit<'_>,
) -> Result<(), Blocked> {
    let beyond = |separator: &[u8]| match to {
        Bound::Unbounded => false,
        Bound::Included(key) => separator > key,
        Bound::Excluded(key) => separator >= key,
    };
    // The separator at which the next leaf starts.
    let mut at: Vec<u8> = Vec::new();
    let mut first = true;
    loop {
        let from = if first { from } else { Bound::Included(&at[..]) };
        let (mut next, mut has_next) = (Vec::new(), false);
        let mut path = Path::new();
        let leaf = descend::leaf(core, root, &mut path, |inner| {
            let slot = match from {
                Bound::Included(key) | Bound::Excluded(key) => inner.child_slot(key),
                Bound::Unbounded => 0,
            };
            if slot + 1 < inner.count() {
                next.clear();
                next.extend_from_slice(inner.key(slot + 1));
                has_next = true;
            }
            slot
        });
        // Not for the first leaf, because most scans end there.
        let (no, page) = match leaf {
            Err(blocked) if !first => {
                return Err(read_ahead(core, &path, blocked, false, |key| !beyond(key)));
            }
            leaf => leaf?,
        };
        let node = Node::new(&page);
        let (start, end) = (first_slot(node, from), end_slot(node, to));
        let flow = visit_slots(core, node, start..end, visit)
            .map_err(|blocked| path.behind(core, no, blocked))?;
        if flow.is_break() || end < node.count() || !has_next || beyond(&next) {
            return Ok(());
        }
        if !first && next <= at {
            return Err(core.corrupt(no, "the tree's separators are not in order").into());
        }
        at = next;
        first = false;
    }
}

/// Visits the keys between the bounds in descending order.
pub(crate) fn backward(
    core: &Core,
    root: u32,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    visit: &mut Visit<'_>,
) -> Result<(), Blocked> {
    let beyond = |separator: &[u8]| match from {
        Bound::Unbounded => false,
        Bound::Included(key) | Bound::Excluded(key) => separator <= key,
    };
    // The separator at which the next leaf ends.
    let mut at: Vec<u8> = Vec::new();
    let mut first = true;
    loop {
        let to = if first { to } else { Bound::Excluded(&at[..]) };
        let (mut next, mut has_next) = (Vec::new(), false);
        let mut path = Path::new();
        let leaf = descend::leaf(core, root, &mut path, |inner| {
            let slot = match to {
                Bound::Included(key) => inner.child_slot(key),
                Bound::Excluded(key) => inner.child_slot_below(key),
                Bound::Unbounded => inner.count().max(1) - 1,
            };
            if slot > 0 {
                next.clear();
                next.extend_from_slice(inner.key(slot));
                has_next = true;
            }
            slot
        });
        let (no, page) = match leaf {
            Err(blocked) if !first => {
                return Err(read_ahead(core, &path, blocked, true, |key| !beyond(key)));
            }
            leaf => leaf?,
        };
        let node = Node::new(&page);
        let (start, end) = (first_slot(node, from), end_slot(node, to));
        let flow = visit_slots(core, node, (start..end).rev(), visit);
        let flow = flow.map_err(|blocked| path.behind(core, no, blocked))?;
        if flow.is_break() || start > 0 || !has_next || beyond(&next) {
            return Ok(());
        }
        if !first && next >= at {
            return Err(core.corrupt(no, "the tree's separators are not in order").into());
        }
        at = next;
        first = false;
    }
}

//! The descent from a tree's root to a leaf.
//!
//! Source: Comer, The Ubiquitous B-Tree. Roots keep their page number, so that a split need not
//! update anything else.

use clearway_buffer::{MissingPage, PageMut, PageRef};

use crate::attempt::Blocked;
use crate::mini::Core;
use crate::page::Node;

/// Maximum number of levels above the leaves. With at least two children per node, that is more
/// pages than a file can have.
const MAX_DEPTH: usize = 32;

/// The inner nodes of a descent, root first, and the slot taken in each.
pub(crate) struct Path {
    nodes: [(u32, u16); MAX_DEPTH],
    len: usize,
}

impl Path {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { nodes: [(0, 0); MAX_DEPTH], len: 0 }
    }
    pub(crate) fn nodes(&self) -> &[(u32, u16)] {
        &self.nodes[..self.len]
    }
    fn push(&mut self, core: &Core, no: u32, slot: usize) -> Result<(), Blocked> {
        let Some(place) = self.nodes.get_mut(self.len) else {
            return Err(core.corrupt(no, "the tree has a loop").into());
        };
        *place = (no, slot as u16);
        self.len += 1;
        Ok(())
    }
    /// Asks for the missing page and the path to it, so that a retry finds everything.
    #[cold]
    pub(crate) fn blocked(&self, core: &Core, want: MissingPage) -> Blocked {
        let mut wants: Vec<MissingPage> =
            self.nodes().iter().map(|&(no, _)| MissingPage::Page(core.id(no))).collect();
        wants.push(want);
        Blocked::MissingPage(wants)
    }
    /// Adds the path to this leaf to the missing pages of an attempt that blocked after reaching
    /// it.
    #[cold]
    pub(crate) fn behind(&self, core: &Core, leaf: u32, blocked: Blocked) -> Blocked {
        match (blocked, self.blocked(core, MissingPage::Page(core.id(leaf)))) {
            (Blocked::MissingPage(behind), Blocked::MissingPage(mut wants)) => {
                wants.extend(behind);
                Blocked::MissingPage(wants)
            }
            (blocked, _) => blocked,
        }
    }
}

fn node<'a>(core: &Core, no: u32, page: &'a [u8]) -> Result<Node<'a>, Blocked> {
    let node = Node::new(page);
    if node.is_node() {
        Ok(node)
    } else {
        Err(core.corrupt(no, "a tree's node was expected").into())
    }
}

/// Descends to a leaf; `choose` picks the slot of the child in each inner node.
#[inline]
pub(crate) fn leaf<'p>(
    core: &'p Core,
    root: u32,
    path: &mut Path,
    mut choose: impl FnMut(Node<'_>) -> usize,
) -> Result<(u32, PageRef<'p>), Blocked> {
    let mut no = root;
    loop {
        let page = core.read(no).map_err(|want| path.blocked(core, want))?;
        let inner = node(core, no, &page)?;
        if inner.level() == 0 {
            return Ok((no, page));
        }
        let slot = choose(inner);
        path.push(core, no, slot)?;
        no = inner.child(slot);
    }
}

/// Descends to the leaf of `key` and latches it exclusively.
#[inline]
pub(crate) fn leaf_mut<'p>(
    core: &'p Core,
    root: u32,
    path: &mut Path,
    key: &[u8],
) -> Result<(u32, PageMut<'p>), Blocked> {
    let mut no = root;
    loop {
        let page = core.read(no).map_err(|want| path.blocked(core, want))?;
        let inner = node(core, no, &page)?;
        let level = inner.level();
        if level > 0 {
            let slot = inner.child_slot(key);
            path.push(core, no, slot)?;
            no = inner.child(slot);
        }
        drop(page);
        if level <= 1 {
            let page = core.write(no).map_err(|want| path.blocked(core, want))?;
            if node(core, no, &page)?.level() != 0 {
                return Err(core.corrupt(no, "a leaf was expected").into());
            }
            return Ok((no, page));
        }
    }
}

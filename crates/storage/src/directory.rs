//! The directory of a partition's file: a tree whose root is page 1. It maps a tree id (big-endian)
//! to the page of the tree's root.
//!
//! Invariants
//! 1. One record adds a tree's entry and its root page together; one record removes both.
//! 2. A tree that is being dropped stays a valid tree until its entry is removed. A crash in
//!    between leaves fewer keys.

use clearway_types::TreeId;

use crate::attempt::Blocked;
use crate::change::{self, ChangeOp, Logging, Tree};
use crate::descend::{self, Path};
use crate::mini::{Core, Mini, Need, Urgency};
use crate::page::Node;
use crate::record::Role;

/// The page of the directory's root.
pub(crate) const ROOT: u32 = 1;

/// The directory, as a tree. Its changes are never undone, so the id appears nowhere.
const DIRECTORY: Tree = Tree { id: TreeId(0), root: ROOT };

fn key(tree: TreeId) -> [u8; 4] {
    tree.0.to_be_bytes()
}

/// Decodes an entry of the directory: a tree and the page of its root.
pub(crate) fn entry(key: &[u8], value: &[u8]) -> Option<(TreeId, u32)> {
    Some((
        TreeId(u32::from_be_bytes(key.try_into().ok()?)),
        u32::from_le_bytes(value.try_into().ok()?),
    ))
}

/// Creates a tree. Returns the page of its root, or `None` if the tree exists.
pub(crate) fn create(core: &Core, buf: &mut Vec<u8>, tree: TreeId) -> Result<Option<u32>, Blocked> {
    change::insert_root(core, buf, DIRECTORY, &key(tree))
}

/// Frees a part of a tree. Returns true when the tree is gone.
pub(crate) fn drop_slice(core: &Core, buf: &mut Vec<u8>, tree: Tree) -> Result<bool, Blocked> {
    let mut path = Path::new();
    let (leaf, page) = descend::leaf(core, tree.root, &mut path, |_| 0)?;
    let node = Node::new(&page);
    if let Some(slot) = (0..node.count()).find(|&slot| node.cell(slot).overflow) {
        let key = node.key(slot).to_vec();
        drop(page);
        if change::complex(core, buf, tree, &key, ChangeOp::Delete(0), Logging::Cleanup)?.is_none()
        {
            return Err(core.corrupt(leaf, "its keys are not in order").into());
        }
        return Ok(false);
    }
    drop(page);
    if leaf == tree.root {
        change::complex(
            core,
            buf,
            DIRECTORY,
            &key(tree.id),
            ChangeOp::Delete(tree.root),
            Logging::Cleanup,
        )?;
        return Ok(true);
    }
    drop_leaves(core, buf, tree, &path, leaf)?;
    Ok(false)
}

fn drop_leaves(
    core: &Core,
    buf: &mut Vec<u8>,
    tree: Tree,
    path: &Path,
    leaf: u32,
) -> Result<(), Blocked> {
    let Some(&(parent, _)) = path.nodes().last() else { return Ok(()) };
    // The first leaf has no long values. Count how many of its siblings have none either.
    let mut leaves = vec![leaf];
    let siblings = {
        let page = core.read(parent).map_err(|want| path.blocked(core, want))?;
        let node = Node::new(&page);
        (1..node.count().min(core.drop_leaves)).map(|slot| node.child(slot)).collect::<Vec<_>>()
    };
    for &no in &siblings {
        let page = core.read(no).map_err(|want| path.blocked(core, want))?;
        let node = Node::new(&page);
        if (0..node.count()).any(|slot| node.cell(slot).overflow) {
            break;
        }
        leaves.push(no);
    }
    let whole = {
        let page = core.read(parent).map_err(|want| path.blocked(core, want))?;
        leaves.len() == Node::new(&page).count()
    };
    if whole {
        // The last leaf is freed alone, in the next call, together with its parent.
        leaves.truncate((leaves.len() - 1).max(1));
    }
    let Some(emptied) = change::emptied(core, tree, path, leaf)? else { return Ok(()) };
    let mut mini = Mini::new(core, Need::new(Urgency::Waits));
    mini.take(emptied.survivor)?;
    let mut pages = leaves.clone();
    pages.extend(emptied.pages.iter().filter(|no| !leaves.contains(no)));
    for &no in &pages {
        mini.take_to_free(no)?;
    }
    mini.start(buf, &Role::Plain);
    emptied.push(buf, leaves.len());
    for &no in &pages {
        mini.push_free(buf, no);
    }
    mini.finish(buf).map(drop)
}

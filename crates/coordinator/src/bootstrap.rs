//! Start-up: reads the catalog, and drops the trees that no table owns.
//!
//! Runs before any worker starts, so it may block on the disk.

use crate::catalog_rows::{self, CATALOG_TREE};
use clearway_ir::Catalog;
use clearway_storage::{Node, OpenError, OpenErrorKind, Store, Trees, retry_blocking};
use clearway_types::TreeId;
use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};

/// Returns the error for a disk that failed while trees were read.
pub(crate) fn cannot_read(error: std::io::Error) -> OpenError {
    OpenError::Io { doing: "cannot read a tree".to_owned(), error }
}

/// Returns the catalog as of the last commit. Creates the catalog's tree in a new directory.
///
/// # Errors
/// Other trees exist without the catalog's, which was created before them: it is lost, and they are
/// not to be dropped.
pub(crate) fn load_catalog(node: &Node, stores: &mut [Store]) -> Result<Catalog, OpenError> {
    let others = stores.iter().map(|store| store.trees().len()).sum::<usize>();
    let home = &mut stores[0];
    if !home.has_tree(CATALOG_TREE) {
        if others > 0 {
            let what = format!("its tree in partition 0 is missing, and {others} others exist");
            return Err(OpenError::catalog(what));
        }
        retry_blocking(node.pool(), || home.create_tree(CATALOG_TREE))?;
    }
    let mut tables = Vec::new();
    let mut after: Bound<Vec<u8>> = Bound::Unbounded;
    let mut bad = None;
    retry_blocking(node.pool(), || {
        let from = after.clone();
        home.scan(
            CATALOG_TREE,
            from.as_ref().map(Vec::as_slice),
            Bound::Unbounded,
            false,
            &mut |key, value| {
                match catalog_rows::decode(value) {
                    Ok(table) => tables.push(table),
                    Err(e) => bad = Some(e),
                }
                after = Bound::Excluded(key.to_vec());
                ControlFlow::Continue(())
            },
        )
    })?;
    match bad {
        Some(e) => Err(OpenError::catalog(e.message())),
        None => Ok(catalog_rows::catalog_of(tables)),
    }
}

/// Drops the trees that no table of the catalog owns: created by DDL that did not commit, or left
/// by an interrupted drop. If a page that is damaged or cannot be read, or a lack of space,
/// prevents freeing a tree, the rest of it stays until the next start tries again; nothing refers
/// to it.
pub(crate) fn drop_orphans(
    node: &Node,
    stores: &mut [Store],
    catalog: &Catalog,
) -> Result<(), OpenError> {
    let mut owned: HashSet<TreeId> =
        catalog.tables.values().flat_map(|t| t.trees().collect::<Vec<_>>()).collect();
    owned.insert(CATALOG_TREE);
    for store in stores {
        let orphans: Vec<TreeId> =
            store.trees().into_iter().filter(|t| !owned.contains(t)).collect();
        for tree in orphans {
            let partition = store.partition();
            tracing::info!(%partition, %tree, "dropping a tree that no table owns");
            match drop_orphan(node, store, tree) {
                Err(error) if blocks_only_the_tree(node, &error) => {
                    tracing::error!(%partition, %tree, "the tree cannot be freed: {error}");
                }
                done => done?,
            }
        }
    }
    Ok(())
}

/// Drops a tree. When the log is full, takes a checkpoint, because no checkpointer runs yet. Gives
/// up if nothing could be freed since the previous checkpoint.
fn drop_orphan(node: &Node, store: &mut Store, tree: TreeId) -> Result<(), OpenError> {
    let mut freed = true;
    loop {
        match retry_blocking(node.pool(), || store.drop_tree(tree)).map_err(OpenError::from) {
            Ok(true) => return Ok(()),
            Ok(false) => freed = true,
            Err(error) if error.kind() == OpenErrorKind::Full && freed => {
                node.checkpoint()?;
                freed = false;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if the error only prevents freeing the tree. A node that has failed serves nothing.
fn blocks_only_the_tree(node: &Node, error: &OpenError) -> bool {
    use OpenErrorKind::{Damaged, Disk, Full};
    matches!(error.kind(), Damaged | Disk | Full) && node.failed().is_none()
}

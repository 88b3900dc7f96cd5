//! The catalog on disk: one row per table in the tree [`CATALOG_TREE`] of partition 0, keyed by
//! table id, with the definition as JSON.
//!
//! JSON because the rows are few, are read once at start, and should be readable from a plain dump
//! of the page.

use clearway_ir::{Catalog, TableDef};
use clearway_types::{SqlError, SqlResult, SqlState, TableId, TreeId};
use std::sync::Arc;

/// The catalog's own tree.
pub(crate) const CATALOG_TREE: TreeId = TreeId(1);
/// The table id under which the catalog is locked. No table has it.
pub(crate) const CATALOG_TABLE: TableId = TableId(0);
/// The lowest id for a user's table or tree.
pub(crate) const FIRST_USER_ID: u32 = 16;

pub(crate) fn key(id: TableId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

pub(crate) fn encode(table: &TableDef) -> SqlResult<Vec<u8>> {
    serde_json::to_vec(table).map_err(|e| {
        SqlError::internal(format!("cannot write the definition of table {}: {e}", table.name))
    })
}

pub(crate) fn decode(bytes: &[u8]) -> SqlResult<TableDef> {
    serde_json::from_slice(bytes).map_err(|e| {
        SqlError::new(SqlState::DATA_CORRUPTED, format!("a row of the catalog cannot be read: {e}"))
    })
}

/// Returns the catalog that these rows describe.
pub(crate) fn catalog_of(rows: impl IntoIterator<Item = TableDef>) -> Catalog {
    let mut catalog = Catalog::default();
    for table in rows {
        catalog.version = catalog.version.max(table.version);
        catalog.tables.insert(table.name.clone(), Arc::new(table));
    }
    catalog
}

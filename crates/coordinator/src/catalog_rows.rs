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

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_ir::statement::unnumbered_table;
    use clearway_ir::{Distribution, IndexDef};

    #[test]
    fn a_definition_without_the_kind_of_an_index_stays_readable() {
        let mut table = unnumbered_table("t", Vec::new(), Vec::new(), Distribution::Random);
        table.indexes.push(IndexDef {
            name: "t_a_key".to_owned(),
            tree: TreeId(20),
            columns: vec![0],
            unique: true,
            constraint: None,
            global_index: None,
        });
        let old = encode(&table).unwrap();
        assert!(!String::from_utf8_lossy(&old).contains("constraint"));
        assert_eq!(decode(&old).unwrap(), table);
        table.indexes[0].constraint = Some(true);
        assert_eq!(decode(&encode(&table).unwrap()).unwrap(), table);
    }
}

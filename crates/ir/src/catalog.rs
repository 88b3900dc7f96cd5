//! Table definitions, and the immutable snapshot of all of them that a statement is planned
//! against.

use crate::Expr;
use clearway_types::{SqlType, TableId, TreeId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, as folded by the parser.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// The default: an expression without columns or parameters, already of the column's type.
    pub default: Option<Expr>,
}

/// How a table's rows are spread over partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// By the hash of these columns' key encoding.
    Hash(Vec<usize>),
    /// Anywhere: a table without a primary key and without DISTRIBUTED BY.
    Random,
}

/// A secondary index. Entries: for a unique index the indexed columns' key encoding (followed by
/// the row's key if one of them is NULL), otherwise always followed by the row's key; the value is
/// the row's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDef {
    /// Its name.
    pub name: String,
    /// Its tree.
    pub tree: TreeId,
    /// The indexed columns, in order.
    pub columns: Vec<usize>,
    /// Whether equal keys (without NULLs) are refused.
    pub unique: bool,
    /// The tree of its global index (see [`crate::global_index`]), if it is unique and does not
    /// contain the distribution columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "guard")]
    pub global_index: Option<TreeId>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDef {
    /// Stays the same through TRUNCATE and ALTER.
    pub id: TableId,
    /// The catalog version of the last change of its definition: partitions refuse fragments
    /// planned before it.
    pub version: u64,
    /// Its name.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// The tree of its rows: primary-key encoding (or a hidden row number, 8 bytes big-endian) to
    /// encoded row of all columns.
    pub tree: TreeId,
    /// The primary key's columns; empty if the table has none and rows are keyed by a hidden number
    /// given by their partition.
    pub primary_key: Vec<usize>,
    /// The primary key's constraint name.
    pub primary_key_name: String,
    /// The tree of the primary key's global index (see [`crate::global_index`]), if the key does
    /// not contain the distribution columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "primary_key_guard")]
    pub primary_key_global_index: Option<TreeId>,
    /// Secondary indexes, local to each partition.
    pub indexes: Vec<IndexDef>,
    /// Where rows live.
    pub distribution: Distribution,
}

impl TableDef {
    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }
    /// Every tree of the table: the rows' first.
    pub fn trees(&self) -> impl Iterator<Item = TreeId> + '_ {
        let indexes = self.indexes.iter().map(|i| i.tree);
        std::iter::once(self.tree).chain(indexes).chain(self.global_indexes().map(|g| g.tree))
    }
}

/// All tables at one moment. Cheap to clone behind its `Arc`; a change makes a new one with a
/// higher version.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every committed change; cached plans of another version are thrown away.
    pub version: u64,
    /// By name.
    pub tables: HashMap<String, Arc<TableDef>>,
}

impl Catalog {
    /// The table called `name`.
    pub fn table(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.tables.get(name)
    }
    /// Whether a table, an index or a primary key is called `name`: they share their names.
    pub fn has_relation(&self, name: &str) -> bool {
        self.table(name).is_some() || self.index(name).is_some() || self.keyed_by(name).is_some()
    }
    /// The table whose primary key is called `name`.
    pub fn keyed_by(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.tables.values().find(|t| !t.primary_key.is_empty() && t.primary_key_name == name)
    }
    /// The table and the position of the index called `name`.
    pub fn index(&self, name: &str) -> Option<(&Arc<TableDef>, usize)> {
        self.tables.values().find_map(|t| Some((t, t.indexes.iter().position(|i| i.name == name)?)))
    }
}

//! Table definitions, and the immutable snapshot of them that a statement is planned against.

use crate::value::MAX_NAME;
use crate::{CheckConstraint, Expr};
use clearway_types::{SqlType, TableId, TreeId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The column's name, as folded by the parser.
    pub name: String,
    /// The column's type.
    pub ty: SqlType,
    /// Whether the column rejects NULL.
    pub not_null: bool,
    /// The default: an expression without columns or parameters, already of the column's type. Its
    /// literals have the same meaning in every session, as have those of a [`CheckConstraint`].
    pub default: Option<Expr>,
}

/// How a table's rows are distributed over partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// By the hash of these columns' key encoding.
    Hash(Vec<usize>),
    /// To any partition: for a table without a primary key and without DISTRIBUTED BY.
    Random,
}

/// A secondary index.
///
/// The key of an entry is the encoding of the indexed columns. It is followed by the row's key
/// unless the index is unique and no indexed column is NULL. The value is the row's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDef {
    /// The index's name.
    pub name: String,
    /// The index's tree.
    pub tree: TreeId,
    /// The indexed columns, in order.
    pub columns: Vec<usize>,
    /// Whether equal keys without NULLs are rejected.
    pub unique: bool,
    /// Whether it belongs to a UNIQUE constraint, which must not lose it. `None`: unknown, because
    /// a version of Clearway that did not record this has created the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<bool>,
    /// The tree of the global index (see [`crate::global_index`]) that a unique index needs if it
    /// does not contain the distribution columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "guard")]
    pub global_index: Option<TreeId>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDef {
    /// The table's id; TRUNCATE and ALTER keep it.
    pub id: TableId,
    /// The catalog version of the definition's last change. Partitions reject fragments planned
    /// before it.
    pub version: u64,
    /// The table's name.
    pub name: String,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The tree of the rows. It maps the encoded primary key (or a hidden row number, encoded like
    /// a bigint key) to the encoded row with all columns.
    pub tree: TreeId,
    /// The primary key's columns. Empty if the table has none: its partition then assigns hidden
    /// row numbers as keys.
    pub primary_key: Vec<usize>,
    /// The primary key's constraint name.
    pub primary_key_name: String,
    /// The tree of the primary key's global index (see [`crate::global_index`]), if the key does
    /// not contain the distribution columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "primary_key_guard")]
    pub primary_key_global_index: Option<TreeId>,
    /// The secondary indexes; each partition has its own trees of them.
    pub indexes: Vec<IndexDef>,
    /// The CHECK constraints, sorted by name: the order in which a row is tested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckConstraint>,
    /// How the rows are distributed.
    pub distribution: Distribution,
}

impl TableDef {
    /// Returns the position of the column called `name`.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }
    /// Returns true if a key or CHECK constraint of the table is called `name`.
    pub fn has_constraint(&self, name: &str) -> bool {
        !self.primary_key.is_empty() && self.primary_key_name == name
            || self.indexes.iter().any(|index| index.unique && index.name == name)
            || self.checks.iter().any(|check| check.name == name)
    }
    /// Returns all trees of the table; the first is the tree of the rows.
    pub fn trees(&self) -> impl Iterator<Item = TreeId> + '_ {
        let indexes = self.indexes.iter().map(|i| i.tree);
        std::iter::once(self.tree).chain(indexes).chain(self.global_indexes().map(|g| g.tree))
    }
}

/// All tables at one moment. Shared behind an `Arc`; a change creates a new catalog with a higher
/// version.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Increases with every committed change; cached plans of another version are discarded.
    pub version: u64,
    /// The tables by name.
    pub tables: HashMap<String, Arc<TableDef>>,
}

impl Catalog {
    /// Returns the table called `name`.
    pub fn table(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.tables.get(name)
    }
    /// Returns true if a table, an index or a primary key is called `name`; they share one
    /// namespace.
    pub fn has_relation(&self, name: &str) -> bool {
        self.table(name).is_some() || self.index(name).is_some() || self.keyed_by(name).is_some()
    }
    /// Returns true if a constraint of any table is called `name`. A default name is not chosen
    /// twice, although only constraints of the same table must have different names.
    pub fn has_constraint(&self, name: &str) -> bool {
        self.tables.values().any(|table| table.has_constraint(name))
    }
    /// Returns the table whose primary key is called `name`.
    pub fn keyed_by(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.tables.values().find(|t| !t.primary_key.is_empty() && t.primary_key_name == name)
    }
    /// Returns the table and the position of the index called `name`.
    pub fn index(&self, name: &str) -> Option<(&Arc<TableDef>, usize)> {
        self.tables.values().find_map(|t| Some((t, t.indexes.iter().position(|i| i.name == name)?)))
    }
}

/// Returns the default name of an object of a table: `first_second_label`. Truncates the longer of
/// the first two, until the result is within PostgreSQL's limit.
///
/// Source: PostgreSQL's `makeObjectName`.
pub fn object_name(first: &str, second: Option<&str>, label: &str) -> String {
    let underscores = 1 + usize::from(second.is_some());
    let most = MAX_NAME.saturating_sub(label.len() + underscores);
    let (mut one, mut two) = (first.len(), second.map_or(0, str::len));
    while one + two > most {
        if one > two { one -= 1 } else { two -= 1 }
    }
    let cut = |name: &str, len: usize| name[..name.floor_char_boundary(len)].to_owned();
    match second {
        Some(second) => format!("{}_{}_{label}", cut(first, one), cut(second, two)),
        None => format!("{}_{label}", cut(first, one)),
    }
}

//! Global indexes: they enforce unique keys whose columns do not determine the row's partition.
//!
//! If a unique key contains the table's distribution columns, equal keys are in the same partition,
//! which enforces uniqueness itself. Any other unique key has a global index: a separate tree that
//! is distributed by the hash of the key, so that equal keys meet in it. An entry maps the key's
//! encoding to the row's home partition. A key with a NULL equals no other key and has no entry.
//! The transactions that change the rows change their global indexes, too.
//!
//! Source: the global indexes of Spanner and CockroachDB; docs/decisions/distributed-unique.md.

use crate::route::push_columns;
use crate::{Distribution, LockWait, RowLock, TableDef};
use clearway_types::{PartitionId, RowView, SqlResult, TreeId, hash};

/// One of a table's unique keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniqueKey {
    /// The primary key.
    Primary,
    /// The unique index at this position.
    Index(usize),
}

/// The global index of a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalIndex<'a> {
    /// The key that it indexes.
    pub key: UniqueKey,
    /// The global index's tree.
    pub tree: TreeId,
    /// The constraint's name.
    pub name: &'a str,
    /// The key's columns.
    pub columns: &'a [usize],
}

/// The operation of a fragment on a global index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalIndexOp {
    /// Adds entries; an existing one is a violation (23505).
    Insert,
    /// Removes entries.
    Delete,
    /// Locks keys, whether they exist or not. Outputs the home of each existing key as one int4
    /// column.
    Find {
        /// The lock mode.
        lock: RowLock,
        /// What to do with keys that others have locked; a skipped key is not output.
        wait: LockWait,
    },
    /// Like `Find`, for an INSERT that ignores conflicts: locks keys exclusively. Outputs the home
    /// of each key that exists now, regardless of the transaction's snapshot.
    Clash,
}

impl TableDef {
    /// Returns true if the column is part of a unique key. Changing such a column takes FOR UPDATE,
    /// and FOR KEY SHARE protects it.
    pub fn is_in_key(&self, column: usize) -> bool {
        let indexes = self.indexes.iter().filter(|index| index.unique).map(|index| &index.columns);
        std::iter::once(&self.primary_key).chain(indexes).any(|columns| columns.contains(&column))
    }
    /// Returns true if rows with equal values of these columns are always in the same partition.
    pub fn meets_in(&self, columns: &[usize]) -> bool {
        match &self.distribution {
            Distribution::Hash(by) => by.iter().all(|c| columns.contains(c)),
            Distribution::Random => false,
        }
    }
    /// Returns the constraint's name and the columns of a unique key.
    pub fn unique_key(&self, key: UniqueKey) -> (&str, &[usize]) {
        match key {
            UniqueKey::Primary => (&self.primary_key_name, &self.primary_key),
            UniqueKey::Index(i) => (&self.indexes[i].name, &self.indexes[i].columns),
        }
    }
    /// Returns the global indexes of the table's unique keys; the primary key's is first.
    pub fn global_indexes(&self) -> impl Iterator<Item = GlobalIndex<'_>> {
        let indexes = self
            .indexes
            .iter()
            .enumerate()
            .map(|(i, index)| (UniqueKey::Index(i), index.global_index));
        std::iter::once((UniqueKey::Primary, self.primary_key_global_index))
            .chain(indexes)
            .filter_map(|(key, tree)| {
                let (name, columns) = self.unique_key(key);
                Some(GlobalIndex { key, tree: tree?, name, columns })
            })
    }
    /// Returns the global index of this key, if it has one.
    pub fn global_index(&self, key: UniqueKey) -> Option<GlobalIndex<'_>> {
        self.global_indexes().find(|g| g.key == key)
    }
    /// Returns true if any unique key of the table has a global index.
    pub fn has_global_index(&self) -> bool {
        self.primary_key_global_index.is_some()
            || self.indexes.iter().any(|i| i.global_index.is_some())
    }
    /// Returns the columns of all global indexes, concatenated. A DELETE outputs them after its
    /// RETURNING columns, so that the entries can be deleted, too.
    pub fn global_index_columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.global_indexes().flat_map(|g| g.columns.iter().copied())
    }
}

/// Returns the key of a row's entry in a global index, and the entry's partition. `columns` are the
/// positions of the key's columns in `row`. Returns `None` if one of them is NULL: there is no
/// entry.
pub fn entry(
    columns: &[usize],
    row: RowView<'_>,
    partitions: u16,
) -> SqlResult<Option<(Vec<u8>, PartitionId)>> {
    let mut key = Vec::with_capacity(32);
    let null = push_columns(columns, row, &mut key)?;
    let partition = hash::partition_of(&key, partitions);
    Ok((!null).then_some((key, partition)))
}

//! Global indexes: what keeps a unique key unique whose columns do not say where a row lives.
//!
//! A partition can vouch for the uniqueness of a key that contains the table's distribution
//! columns: equal keys meet there. Any other unique key has a global index, a tree of its own that
//! is spread by the hash of the key itself: equal keys meet in the global index. An entry is the
//! key's encoding with the row's home, its partition; keys with a NULL are equal to none and have
//! no entry. Global indexes change in the transactions that change the rows.
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
    /// What it global indexes.
    pub key: UniqueKey,
    /// Its tree.
    pub tree: TreeId,
    /// The name of the constraint.
    pub name: &'a str,
    /// The key's columns.
    pub columns: &'a [usize],
}

/// What a fragment does with a global index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalIndexOp {
    /// Adds entries; one that is there is a violation (23505).
    Insert,
    /// Takes entries away.
    Delete,
    /// Locks keys, whether they are there or not, and puts out the home of each that is there, as
    /// one int4 column.
    Find {
        /// How.
        lock: RowLock,
        /// What becomes of those that others have locked: one that is skipped is not put out.
        wait: LockWait,
    },
    /// As `Find` by an INSERT that ignores conflicts: locks keys exclusively, and puts out the home
    /// of each that is there now, whatever its snapshot has.
    Clash,
}

impl TableDef {
    /// Whether the column is in a unique key: then it is changed FOR UPDATE only, and FOR KEY SHARE
    /// protects it.
    pub fn is_in_key(&self, column: usize) -> bool {
        let indexes = self.indexes.iter().filter(|index| index.unique).map(|index| &index.columns);
        std::iter::once(&self.primary_key).chain(indexes).any(|columns| columns.contains(&column))
    }
    /// Whether equal values of these columns always meet in one partition.
    pub fn meets_in(&self, columns: &[usize]) -> bool {
        match &self.distribution {
            Distribution::Hash(by) => by.iter().all(|c| columns.contains(c)),
            Distribution::Random => false,
        }
    }
    /// The constraint's name and the columns of a unique key.
    pub fn unique_key(&self, key: UniqueKey) -> (&str, &[usize]) {
        match key {
            UniqueKey::Primary => (&self.primary_key_name, &self.primary_key),
            UniqueKey::Index(i) => (&self.indexes[i].name, &self.indexes[i].columns),
        }
    }
    /// The global indexes of the table's unique keys; that of the primary key first.
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
    /// The global index of this key, if it has one.
    pub fn global_index(&self, key: UniqueKey) -> Option<GlobalIndex<'_>> {
        self.global_indexes().find(|g| g.key == key)
    }
    /// Whether a unique key of the table has a global index.
    pub fn has_global_index(&self) -> bool {
        self.primary_key_global_index.is_some()
            || self.indexes.iter().any(|i| i.global_index.is_some())
    }
    /// The columns of all global indexes, one after the other: what a DELETE puts out, behind what
    /// it returns, so that their entries can go too.
    pub fn global_index_columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.global_indexes().flat_map(|g| g.columns.iter().copied())
    }
}

/// The key of a global index's entry for a row that has the key's columns at these positions, and
/// the partition where the entry lives. `None`: one of them is NULL, there is no entry.
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

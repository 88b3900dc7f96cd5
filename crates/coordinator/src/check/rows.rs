//! One pass over entries in any order: checks each row, and sums the expected and the actual
//! entries of each index.

use clearway_ir::{TableDef, global_index};
use clearway_storage::check::{TreeEntry, shown_key};
use clearway_types::row::RowBuilder;
use clearway_types::{DatumRef, PartitionId, RowView, SqlResult, SqlType, TreeId, hash};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// A set of entries, represented by its size and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    count: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(key.len());
        hasher.write(key);
        hasher.write(value);
        self.count += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

/// The entries that a table's rows require of an index, and those found in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    expected: Sum,
    found: Sum,
}

impl Pair {
    pub(super) fn agrees(&self) -> bool {
        self.expected == self.found
    }
}

#[derive(Clone, Copy)]
enum Role {
    Rows(usize),
    Index(usize, usize),
    GlobalIndex(usize, usize),
}

/// The sums of one partition's indexes and of all partitions' global indexes.
pub(super) struct Rows {
    tables: Vec<Arc<TableDef>>,
    roles: HashMap<TreeId, Role>,
    partitions: u16,
    partition: PartitionId,
    /// For each table, its indexes in the partition entered last.
    pub(super) indexes: Vec<Vec<Pair>>,
    /// For each table, its global indexes.
    pub(super) global_indexes: Vec<Vec<Pair>>,
    /// Rows seen.
    pub(super) count: u64,
    buffer: Vec<u8>,
}

impl Rows {
    pub(super) fn new(tables: &[Arc<TableDef>], partitions: u16) -> Self {
        let mut roles = HashMap::new();
        for (t, table) in tables.iter().enumerate() {
            roles.insert(table.tree, Role::Rows(t));
            roles.extend(
                table.indexes.iter().enumerate().map(|(i, index)| (index.tree, Role::Index(t, i))),
            );
            roles.extend(
                table
                    .global_indexes()
                    .enumerate()
                    .map(|(g, global_index)| (global_index.tree, Role::GlobalIndex(t, g))),
            );
        }
        let global_indexes = tables
            .iter()
            .map(|table| vec![Pair::default(); table.global_indexes().count()])
            .collect();
        Self {
            tables: tables.to_vec(),
            roles,
            partitions,
            partition: PartitionId(0),
            indexes: Vec::new(),
            global_indexes,
            count: 0,
            buffer: Vec::new(),
        }
    }

    /// Starts the entries of another partition.
    pub(super) fn enter(&mut self, partition: PartitionId) {
        self.partition = partition;
        self.indexes =
            self.tables.iter().map(|table| vec![Pair::default(); table.indexes.len()]).collect();
    }

    /// Counts an entry, and returns what is wrong with it on its own.
    pub(super) fn see(&mut self, entry: TreeEntry<'_>) -> Option<String> {
        match *self.roles.get(&entry.tree)? {
            Role::Rows(t) => {
                self.count += 1;
                let table = self.tables[t].clone();
                let wrong = self.row(t, &table, entry).err()?;
                Some(format!("row {} of table \"{}\": {wrong}", shown_key(entry.key), table.name))
            }
            Role::Index(t, i) => {
                self.indexes[t][i].found.add(entry.key, entry.value);
                None
            }
            Role::GlobalIndex(t, g) => {
                self.global_indexes[t][g].found.add(entry.key, entry.value);
                let home = hash::partition_of(entry.key, self.partitions);
                (home != self.partition).then(|| {
                    let name = self.tables[t]
                        .global_indexes()
                        .nth(g)
                        .map_or("", |global_index| global_index.name);
                    format!(
                        "entry {} of unique key \"{name}\": partition {home} expected, {} found",
                        shown_key(entry.key),
                        self.partition
                    )
                })
            }
        }
    }

    fn row(&mut self, t: usize, table: &TableDef, entry: TreeEntry<'_>) -> Result<(), String> {
        let row = RowView::new(entry.value);
        form(table, row, &mut self.buffer)?;
        let text = |error: clearway_types::SqlError| error.message().to_owned();
        let key = &mut self.buffer;
        key.clear();
        if table.primary_key.is_empty() {
            let hidden = entry.key.len() == 9 && entry.key[0] == 1;
            if !hidden {
                return Err("the key of a hidden row number expected".to_owned());
            }
        } else {
            table.push_primary_key(row, key).map_err(text)?;
            if key != entry.key {
                return Err(format!("key {} expected", shown_key(key)));
            }
        }
        for (index, pair) in table.indexes.iter().zip(&mut self.indexes[t]) {
            key.clear();
            index.push_entry(row, entry.key, key).map_err(text)?;
            pair.expected.add(key, entry.key);
        }
        for (global_index, pair) in table.global_indexes().zip(&mut self.global_indexes[t]) {
            if let Some((key, _)) =
                global_index::entry(global_index.columns, row, self.partitions).map_err(text)?
            {
                pair.expected.add(&key, &self.partition.0.to_le_bytes());
            }
        }
        match table.partition_of(row, self.partitions).map_err(text)? {
            Some(home) if home != self.partition => Err(format!(
                "partition {home} expected by its distribution key, {} found",
                self.partition
            )),
            _ => Ok(()),
        }
    }
}

/// Checks that the bytes are exactly a row of the table.
fn form(table: &TableDef, row: RowView<'_>, buffer: &mut Vec<u8>) -> Result<(), String> {
    if row.len() != table.columns.len() {
        return Err(format!("{} columns expected, {} found", table.columns.len(), row.len()));
    }
    buffer.clear();
    let mut encoded = RowBuilder::new(buffer);
    for (i, (value, column)) in row.iter().zip(&table.columns).enumerate() {
        let value = value.map_err(|_| format!("column \"{}\" cannot be read", column.name))?;
        if !fits(column.ty, value) {
            return Err(format!(
                "column \"{}\": a value of type {} expected, {value:?} found",
                column.name, column.ty
            ));
        }
        if value.is_null() && (column.not_null || table.primary_key.contains(&i)) {
            return Err(format!("column \"{}\": a value expected, NULL found", column.name));
        }
        encoded.push(value);
    }
    encoded.finish();
    if buffer == row.bytes() {
        Ok(())
    } else {
        Err(format!("{} bytes expected, {} found", buffer.len(), row.bytes().len()))
    }
}

fn fits(ty: SqlType, value: DatumRef<'_>) -> bool {
    match value {
        DatumRef::Null => true,
        DatumRef::Bool(_) => ty == SqlType::Bool,
        DatumRef::Int2(_) => ty == SqlType::Int2,
        DatumRef::Int4(_) => ty == SqlType::Int4,
        DatumRef::Int8(_) => ty == SqlType::Int8,
        DatumRef::Float8(_) => ty == SqlType::Float8,
        DatumRef::Text(_) => matches!(ty, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_)),
        DatumRef::Date(_) => ty == SqlType::Date,
        DatumRef::Timestamp(_) => ty == SqlType::Timestamp,
        DatumRef::Timestamptz(_) => ty == SqlType::Timestamptz,
        DatumRef::Numeric(_) => ty == SqlType::Numeric,
    }
}

/// Returns the key of the entry that an index should have for a row.
pub(super) fn index_key(
    table: &TableDef,
    index: usize,
    row: &[u8],
    row_key: &[u8],
) -> SqlResult<Vec<u8>> {
    let mut key = Vec::with_capacity(32);
    table.indexes[index].push_entry(RowView::new(row), row_key, &mut key)?;
    Ok(key)
}

//! Global indexes of unique keys (`clearway_ir::global_index`): maintains their entries as rows are
//! inserted and deleted, and finds a row's home by its key.
//!
//! Invariants
//! 1. When a statement ends, a global index holds exactly the keys (without NULLs) of the table's
//!    rows, each with its row's partition.
//! 2. A statement removes all old entries before it adds the first new one: it may swap keys.
//!
//! Locking: an entry is locked in its partition's lock table before it is read or changed, like any
//! row, and stays locked until the transaction's end. After a crash: global indexes change in the
//! transactions of their rows, so recovery keeps both or neither.

use crate::core::Core;
use crate::outcome::Stop;
use crate::{finish, insert};
use clearway_ir::program::Env;
use clearway_ir::{
    Charge, Expr, GlobalIndexOp, OnConflict, Program, TableDef, UniqueKey, global_index,
};
use clearway_partition::Reply;
use clearway_sync::canary::{self, Bug};
use clearway_types::{DatumRef, PartitionId, RowBatch, RowView, SqlError, SqlResult};
use std::collections::HashMap;
use std::sync::Arc;

/// One row's entry in one global index.
struct Entry {
    key: Vec<u8>,
    home: PartitionId,
    /// The entry's partition.
    at: PartitionId,
    /// The key's columns and the home, in the form that `Program::GlobalIndex` expects.
    row: Vec<u8>,
}

/// A subset of a table's unique keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Primary,
    /// All except the primary key.
    Secondary,
}

impl Keys {
    fn contains(self, key: UniqueKey) -> bool {
        (key == UniqueKey::Primary) == (self == Self::Primary)
    }
}

/// The entries of some of a table's rows in its global indexes.
pub(crate) struct Entries {
    table: Arc<TableDef>,
    /// In the order of `TableDef::global_indexes`.
    global_indexes: Vec<(UniqueKey, Vec<Entry>)>,
    memory: usize,
}

impl Entries {
    /// Creates an empty set for the table.
    pub(crate) fn new(table: &Arc<TableDef>) -> Self {
        Self {
            table: table.clone(),
            global_indexes: table.global_indexes().map(|g| (g.key, Vec::new())).collect(),
            memory: 0,
        }
    }

    /// Adds the entries of a row of the table that is, or will be, at `home`.
    pub(crate) fn add(
        &mut self,
        core: &Core,
        row: RowView<'_>,
        home: PartitionId,
    ) -> SqlResult<()> {
        for (global_index, (_, entries)) in
            self.table.global_indexes().zip(&mut self.global_indexes)
        {
            let entry = entry(core, global_index.columns, row, home)?;
            self.memory += memory(&entry);
            entries.extend(entry);
        }
        Ok(())
    }

    /// Adds the entries of a row that has only its global indexes' columns, from position `at`.
    pub(crate) fn add_columns(
        &mut self,
        core: &Core,
        row: RowView<'_>,
        mut at: usize,
    ) -> SqlResult<()> {
        for (global_index, (_, entries)) in
            self.table.global_indexes().zip(&mut self.global_indexes)
        {
            let columns: Vec<usize> = (at..at + global_index.columns.len()).collect();
            at += columns.len();
            let entry = entry(core, &columns, row, PartitionId(0))?;
            self.memory += memory(&entry);
            entries.extend(entry);
        }
        Ok(())
    }

    /// Adds the entry of a row that has only the columns of this key's global index.
    pub(crate) fn add_key(
        &mut self,
        core: &Core,
        key: UniqueKey,
        row: RowView<'_>,
        home: PartitionId,
    ) -> SqlResult<()> {
        let columns: Vec<usize> = (0..row.len()).collect();
        if let Some((_, entries)) = self.global_indexes.iter_mut().find(|(k, _)| *k == key) {
            let entry = entry(core, &columns, row, home)?;
            self.memory += memory(&entry);
            entries.extend(entry);
        }
        Ok(())
    }

    /// Returns the memory that the entries use in bytes, without spare capacity.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the entries' partitions.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        self.global_indexes.iter().flat_map(|(_, entries)| entries.iter().map(|e| e.at))
    }

    /// Removes the entries that both sets contain.
    pub(crate) fn cancel(&mut self, other: &mut Self) {
        for ((_, mine), (_, theirs)) in
            self.global_indexes.iter_mut().zip(&mut other.global_indexes)
        {
            let mut homes: HashMap<&[u8], PartitionId> =
                mine.iter().map(|e| (e.key.as_slice(), e.home)).collect();
            theirs.retain(|e| {
                let same = homes
                    .get(e.key.as_slice())
                    .is_some_and(|h| *h == e.home || canary::on(Bug::StaleHome));
                if same {
                    homes.remove(e.key.as_slice());
                }
                !same
            });
            let changed: Vec<bool> =
                mine.iter().map(|e| homes.contains_key(e.key.as_slice())).collect();
            let mut changed = changed.into_iter();
            mine.retain(|_| changed.next().unwrap_or(true));
        }
        for entries in [self, other] {
            entries.memory = memory(entries.global_indexes.iter().flat_map(|(_, entries)| entries));
        }
    }

    /// Deletes the entries from the global indexes.
    pub(crate) async fn delete(&self, core: &Core, env: &Arc<Env>) -> Result<(), Stop> {
        for (key, entries) in &self.global_indexes {
            self.send(core, *key, GlobalIndexOp::Delete, entries, env).await?;
        }
        Ok(())
    }

    /// Inserts the entries of these keys into the global indexes. Fails with 23505 if an entry
    /// exists.
    pub(crate) async fn insert(&self, core: &Core, keys: Keys, env: &Arc<Env>) -> Result<(), Stop> {
        for (key, entries) in self.global_indexes.iter().filter(|(key, _)| keys.contains(*key)) {
            self.send(core, *key, GlobalIndexOp::Insert, entries, env).await?;
        }
        Ok(())
    }

    /// Returns true if a key that ON CONFLICT ignores exists; otherwise locks its absence. Fails
    /// with 40001 at REPEATABLE READ if another transaction has added it since the snapshot.
    pub(crate) async fn clash(
        &self,
        core: &Core,
        on_conflict: OnConflict,
        env: &Arc<Env>,
    ) -> Result<bool, Stop> {
        for (key, entries) in
            self.global_indexes.iter().filter(|(key, _)| on_conflict.ignores(*key))
        {
            let replies = self.send(core, *key, GlobalIndexOp::Clash, entries, env).await?;
            if replies.iter().any(|r| !r.rows.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn send(
        &self,
        core: &Core,
        key: UniqueKey,
        op: GlobalIndexOp,
        entries: &[Entry],
        env: &Arc<Env>,
    ) -> Result<Vec<Reply>, Stop> {
        let mut parts = insert::parts(core);
        for e in entries {
            parts[usize::from(e.at.0)].push_encoded(&e.row);
        }
        let mut charge = Charge::default();
        charge.grow(&env.memory, parts.iter().map(RowBatch::memory).sum())?;
        let program = Arc::new(Program::GlobalIndex { table: self.table.clone(), key, op });
        let replies = insert::deal(core, &program, parts, env).await?;
        charge.release(&env.memory);
        Ok(replies)
    }
}

/// Returns the memory of entries in bytes.
fn memory<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> usize {
    entries.into_iter().map(|e| size_of::<Entry>() + e.key.len() + e.row.len()).sum()
}

fn entry(
    core: &Core,
    columns: &[usize],
    row: RowView<'_>,
    home: PartitionId,
) -> SqlResult<Option<Entry>> {
    let Some((key, at)) = global_index::entry(columns, row, core.engine().partitions())? else {
        return Ok(None);
    };
    let mut batch = RowBatch::new();
    batch.try_push_with(|r| {
        for c in columns {
            r.push(row.get(*c).map_err(insert::bad_row)?);
        }
        r.push(DatumRef::Int4(i32::from(home.0)));
        Ok::<_, SqlError>(())
    })?;
    Ok(Some(Entry { key, home, at, row: batch.get(0).bytes().to_vec() }))
}

/// Runs `op` to find the home of the row with this key. If there is no such row, returns an
/// arbitrary partition: none has the row, and the key is locked. A skipped key means a skipped row.
/// Returns `None` if the global index is newer than the snapshot, so that any partition may have
/// the row.
pub(crate) async fn home(
    core: &Core,
    table: &Arc<TableDef>,
    key: UniqueKey,
    values: &Vec<Expr>,
    op: GlobalIndexOp,
    env: &Arc<Env>,
) -> Result<Option<PartitionId>, Stop> {
    let rows = finish::values(std::slice::from_ref(values), env)?;
    let columns: Vec<usize> = (0..values.len()).collect();
    let Some((_, at)) = global_index::entry(&columns, rows.get(0), core.engine().partitions())?
    else {
        return Ok(Some(PartitionId(0)));
    };
    let mut parts = insert::parts(core);
    parts[usize::from(at.0)] = rows;
    let program = Arc::new(Program::GlobalIndex { table: table.clone(), key, op });
    let replies = insert::deal(core, &program, parts, env).await?;
    let Some(found) = replies.iter().find(|r| !r.rows.is_empty()) else { return Ok(Some(at)) };
    match found.rows.get(0).get(0) {
        Ok(DatumRef::Null) => Ok(None),
        Ok(DatumRef::Int4(home)) if (0..i32::from(core.engine().partitions())).contains(&home) => {
            Ok(Some(PartitionId(home as u16)))
        }
        _ => Err(insert::bad_row(clearway_types::row::BadRow).into()),
    }
}

//! The steps of one row's change, and the errors that a change can return.

use super::{Cx, Locking, Stop, recheck};
use crate::lock::Mode;
use clearway_ir::program::Env;
use clearway_ir::value::write_text;
use clearway_ir::{OnConflict, TableDef, UniqueKey};
use clearway_storage::{Inserted, Trees};
use clearway_sync::canary::{self, Bug};
use clearway_types::{RowView, SqlError, SqlResult, SqlState, TreeId};

/// What a step does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Inserts the key; this unique key is violated if it already exists.
    Insert(UniqueKey),
    Update,
    /// `moves`: it is a row that will be reinserted under another key or at another partition.
    Delete {
        moves: bool,
    },
}

/// One change of one tree. Its key and its value are in [`Steps::bytes`], up to `key_end` and from
/// there up to `end`.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    tree: TreeId,
    start: usize,
    key_end: usize,
    end: usize,
}

/// The noted steps for one row, and the progress through them.
#[derive(Debug, Default)]
pub(super) struct Steps {
    steps: Vec<Step>,
    bytes: Vec<u8>,
    locked: usize,
    checked: usize,
    taken: usize,
}

impl Steps {
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.bytes.clear();
        self.locked = 0;
        self.checked = 0;
        self.taken = 0;
    }
    /// Notes a step; `value` is empty for a deletion.
    pub(super) fn push(&mut self, kind: Kind, tree: TreeId, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.reserve(key.len() + value.len());
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.steps.push(Step { kind, tree, start, key_end, end: self.bytes.len() });
    }
    /// Returns the bytes that are allocated.
    pub(super) fn allocated(&self) -> usize {
        self.bytes.capacity() + self.steps.capacity() * size_of::<Step>()
    }
    fn get(&self, at: usize) -> Option<(Kind, TreeId, &[u8], &[u8])> {
        let Step { kind, tree, start, key_end, end } = *self.steps.get(at)?;
        Some((kind, tree, &self.bytes[start..key_end], &self.bytes[key_end..end]))
    }
    /// Returns true if a step has been executed.
    pub(super) fn has_started(&self) -> bool {
        self.taken > 0
    }

    /// Locks what the steps touch, before the first is executed, then executes the remaining ones.
    /// `new_row` is the row that an insert adds.
    #[track_caller]
    pub(super) fn take<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        table: &TableDef,
        new_row: &[u8],
        env: &Env,
    ) -> Result<(), Stop> {
        self.lock(cx, table)?;
        while let Some((kind, tree, key, value)) = self.get(self.taken) {
            match kind {
                Kind::Insert(unique) => {
                    recheck::is_not_hidden(cx, table, tree, key)?;
                    if cx.trees.insert(cx.log, cx.mode, tree, key, value)? == Inserted::Exists {
                        return Err(duplicate(table, unique, RowView::new(new_row), env)?.into());
                    }
                }
                Kind::Update => {
                    if !cx.trees.update(cx.log, cx.mode, tree, key, value)? {
                        return Err(vanished(table).into());
                    }
                }
                Kind::Delete { moves } => {
                    if !cx.trees.delete(cx.log, cx.mode, tree, key)? {
                        return Err(vanished(table).into());
                    }
                    if moves {
                        cx.moves(tree, key);
                    }
                }
            }
            self.taken += 1;
        }
        Ok(())
    }

    #[track_caller]
    pub(super) fn lock<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        table: &TableDef,
    ) -> Result<(), Stop> {
        while let Some((kind, tree, key, _)) = self.get(self.locked) {
            // A row that is updated in place is already locked in the mode that the change needs. A
            // new row is locked even under a hidden row number: SKIP LOCKED locks no range, and
            // would read the row before it commits.
            let stays = tree == table.tree && kind == Kind::Update;
            if cx.locking == Locking::Record {
                let mode = if stays { Mode::NoKeyExclusive } else { Mode::Exclusive };
                cx.record_write(tree, key, mode)?;
            } else if !stays {
                cx.lock_change(table.id, tree, key, Mode::Exclusive)?;
            }
            self.locked += 1;
        }
        Ok(())
    }

    /// Returns true if an insert among the steps would meet an equal key that ON CONFLICT ignores.
    /// Fails with 40001 if that key belongs to a row that a repeatable snapshot does not see. Works
    /// one key at a time: a checked key is locked, and its page may leave the pool.
    pub(super) fn would_clash<T: Trees>(
        &mut self,
        cx: &Cx<'_, T>,
        table: &TableDef,
        on_conflict: OnConflict,
    ) -> Result<bool, Stop> {
        while let Some((kind, tree, key, _)) = self.get(self.checked) {
            if let Kind::Insert(unique) = kind
                && on_conflict.ignores(unique)
                && cx.trees.get(tree, key, &mut |_| {})?
            {
                if let Some(as_of) = cx.as_of.filter(|_| !canary::on(Bug::UnseenConflict)) {
                    recheck::since(cx, as_of, table, (tree, key), true)?;
                }
                return Ok(true);
            }
            self.checked += 1;
        }
        Ok(false)
    }
}

/// Notes the changes of a row's index entries. `old` and `new` are the row and its key before and
/// after, if any.
pub(super) fn index_steps(
    table: &TableDef,
    old: Option<(&[u8], &[u8])>,
    new: Option<(&[u8], &[u8])>,
    steps: &mut Steps,
) -> SqlResult<()> {
    for (at, index) in table.indexes.iter().enumerate() {
        let entry = |row: Option<(&[u8], &[u8])>| -> SqlResult<Option<Vec<u8>>> {
            row.map(|(row, key)| {
                let mut out = Vec::with_capacity(32);
                index.push_entry(RowView::new(row), key, &mut out).map(|_| out)
            })
            .transpose()
        };
        let tree = index.tree;
        let unique = UniqueKey::Index(at);
        match (entry(old)?, entry(new)?, new) {
            (Some(before), Some(key), Some((_, row_key))) if before == key => {
                if old.is_some_and(|(_, old_key)| old_key != row_key) {
                    steps.push(Kind::Update, tree, &key, row_key);
                }
            }
            (before, after, row) => {
                if let Some(key) = before {
                    steps.push(Kind::Delete { moves: false }, tree, &key, &[]);
                }
                if let (Some(key), Some((_, row_key))) = (after, row) {
                    steps.push(Kind::Insert(unique), tree, &key, row_key);
                }
            }
        }
    }
    Ok(())
}

/// Returns the error for a row or entry that was just read but cannot be changed, because it does
/// not exist.
#[cold]
pub(super) fn vanished(table: &TableDef) -> SqlError {
    SqlError::new(
        SqlState::DATA_CORRUPTED,
        format!("an index of table \"{}\" does not agree with its rows", table.name),
    )
}

/// Formats `Key (names)=(values)`. `at` maps a key column's number to the position of its value in
/// `row`.
fn key_text(
    table: &TableDef,
    columns: &[usize],
    row: RowView<'_>,
    at: impl Fn(usize) -> usize,
    env: &Env,
) -> SqlResult<String> {
    let names: Vec<_> = columns.iter().map(|c| table.columns[*c].name.as_str()).collect();
    let mut values = Vec::new();
    for (i, c) in columns.iter().enumerate() {
        if i > 0 {
            values.extend_from_slice(b", ");
        }
        let value = row.get(at(i)).map_err(|_| damaged(table))?;
        write_text(&mut values, table.columns[*c].ty, value, env.zone());
    }
    Ok(format!("Key ({})=({})", names.join(", "), String::from_utf8_lossy(&values)))
}

/// Returns the error for a row that cannot be decoded.
pub(super) fn damaged(table: &TableDef) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("a row of table \"{}\" is damaged", table.name))
}

/// Returns 23505 for a row.
#[cold]
pub(super) fn duplicate(
    table: &TableDef,
    unique: UniqueKey,
    row: RowView<'_>,
    env: &Env,
) -> SqlResult<SqlError> {
    let columns = table.unique_key(unique).1;
    violation(table, unique, row, |i| columns[i], env)
}

/// Returns 23505 for a global index, whose rows are the key's columns.
#[cold]
pub(super) fn duplicate_key(
    table: &TableDef,
    unique: UniqueKey,
    key: RowView<'_>,
    env: &Env,
) -> SqlResult<SqlError> {
    violation(table, unique, key, |i| i, env)
}

fn violation(
    table: &TableDef,
    unique: UniqueKey,
    row: RowView<'_>,
    at: impl Fn(usize) -> usize,
    env: &Env,
) -> SqlResult<SqlError> {
    let (name, columns) = table.unique_key(unique);
    let message = format!("duplicate key value violates unique constraint \"{name}\"");
    let detail = format!("{} already exists.", key_text(table, columns, row, at, env)?);
    Ok(SqlError::new(SqlState::UNIQUE_VIOLATION, message)
        .detail(detail)
        .table(&table.name)
        .constraint(name))
}

/// Returns 23505 for CREATE UNIQUE INDEX.
#[cold]
pub(super) fn duplicated(
    table: &TableDef,
    index: usize,
    row: RowView<'_>,
    env: &Env,
) -> SqlResult<SqlError> {
    let index = &table.indexes[index];
    let message = format!("could not create unique index \"{}\"", index.name);
    let detail = format!(
        "{} is duplicated.",
        key_text(table, &index.columns, row, |i| index.columns[i], env)?
    );
    let error = SqlError::new(SqlState::UNIQUE_VIOLATION, message).detail(detail);
    Ok(error.table(&table.name).constraint(&index.name))
}

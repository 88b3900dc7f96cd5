//! The steps that one row's change consists of, and the errors that a change can meet.

use super::{Cx, Stop, recheck};
use crate::lock::Mode;
use crate::trees::Trees;
use clearway_ir::program::Env;
use clearway_ir::value::write_text;
use clearway_ir::{OnConflict, TableDef, UniqueKey};
use clearway_storage::Inserted;
use clearway_sync::canary::{self, Bug};
use clearway_types::{RowView, SqlError, SqlResult, SqlState, TreeId};

/// One change of one tree.
#[derive(Debug)]
pub(super) enum Step {
    /// `unique`: what it violates if the key is there already.
    Insert {
        tree: TreeId,
        key: Vec<u8>,
        value: Vec<u8>,
        unique: UniqueKey,
    },
    Update {
        tree: TreeId,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// `moves`: it is a row, which comes back under another key or at another partition.
    Delete {
        tree: TreeId,
        key: Vec<u8>,
        moves: bool,
    },
}

impl Step {
    fn place(&self) -> (TreeId, &[u8]) {
        match self {
            Self::Insert { tree, key, .. }
            | Self::Update { tree, key, .. }
            | Self::Delete { tree, key, .. } => (*tree, key),
        }
    }
}

/// Noted steps of one row, and how many of them have been taken.
#[derive(Debug, Default)]
pub(super) struct Steps {
    steps: Vec<Step>,
    locked: usize,
    checked: usize,
    taken: usize,
}

impl Steps {
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.locked = 0;
        self.checked = 0;
        self.taken = 0;
    }
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }
    /// Whether a step has been taken.
    pub(super) fn begun(&self) -> bool {
        self.taken > 0
    }

    /// Locks what the steps touch (before the first is taken), then takes those that are left.
    /// `new_row` is what an insert is about.
    #[track_caller]
    pub(super) fn take<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        table: &TableDef,
        new_row: &[u8],
        env: &Env,
    ) -> Result<(), Stop> {
        self.lock(cx, table)?;
        while let Some(step) = self.steps.get(self.taken) {
            match step {
                Step::Insert { tree, key, value, unique } => {
                    if let Some(as_of) = cx.as_of.filter(|as_of| as_of.repeatable) {
                        recheck::is_not_hidden(cx, as_of, table, *tree, key)?;
                    }
                    if cx.trees.insert(cx.log, cx.mode, *tree, key, value)? == Inserted::Exists {
                        return Err(duplicate(table, *unique, RowView::new(new_row), env)?.into());
                    }
                }
                Step::Update { tree, key, value } => {
                    if !cx.trees.update(cx.log, cx.mode, *tree, key, value)? {
                        return Err(vanished(table).into());
                    }
                }
                Step::Delete { tree, key, moves } => {
                    if !cx.trees.delete(cx.log, cx.mode, *tree, key)? {
                        return Err(vanished(table).into());
                    }
                    if *moves {
                        cx.moves(*tree, key);
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
        while let Some(step) = self.steps.get(self.locked) {
            let (tree, key) = step.place();
            // A row that stays where it is has been locked as its change wants it. A new row is
            // locked even under a hidden number: who skips locked rows locks no range, and would
            // read it before it is committed.
            let stays = tree == table.tree && matches!(step, Step::Update { .. });
            if stays {
                cx.lock_row(table.id, tree, key, Mode::NoKeyExclusive)?;
            } else {
                cx.lock_change(table.id, tree, key, Mode::Exclusive)?;
            }
            self.locked += 1;
        }
        Ok(())
    }

    /// Whether an insert among the steps would meet an equal key that is to be ignored; 40001 if it
    /// belongs to a row that a repeatable snapshot does not have. One key at a time: what has been
    /// looked at is locked, and need not be in the pool any more.
    pub(super) fn would_clash<T: Trees>(
        &mut self,
        cx: &Cx<'_, T>,
        table: &TableDef,
        on_conflict: OnConflict,
    ) -> Result<bool, Stop> {
        while let Some(step) = self.steps.get(self.checked) {
            if let Step::Insert { tree, key, unique, .. } = step
                && on_conflict.ignores(*unique)
                && cx.trees.get(*tree, key, &mut |_| {})?
            {
                if let Some(as_of) = cx.as_of.filter(|_| !canary::on(Bug::UnseenConflict)) {
                    recheck::since(cx, as_of, table, *tree, key)?;
                }
                return Ok(true);
            }
            self.checked += 1;
        }
        Ok(false)
    }
}

/// Changes of a row's index entries. `old` and `new`: the row and its key before and after, if any.
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
                    steps.push(Step::Update { tree, key, value: row_key.to_vec() });
                }
            }
            (before, after, row) => {
                if let Some(key) = before {
                    steps.push(Step::Delete { tree, key, moves: false });
                }
                if let (Some(key), Some((_, row_key))) = (after, row) {
                    steps.push(Step::Insert { tree, key, value: row_key.to_vec(), unique });
                }
            }
        }
    }
    Ok(())
}

/// A row or entry that was just read is not there to be changed.
#[cold]
pub(super) fn vanished(table: &TableDef) -> SqlError {
    SqlError::new(
        SqlState::DATA_CORRUPTED,
        format!("an index of table \"{}\" does not agree with its rows", table.name),
    )
}

/// `Key (names)=(values)`; the values of `columns` are in `row` where `at` says.
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

/// A row whose bytes make no sense.
pub(super) fn damaged(table: &TableDef) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("a row of table \"{}\" is damaged", table.name))
}

/// 23505.
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

/// 23505 of a global index, whose rows are the key's columns.
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

/// 23505 of CREATE UNIQUE INDEX.
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

/// Bytes of a value that the detail of a 23502 shows.
const SHOWN: usize = 64;

/// 23502: `column` of `row` is NULL and must not be. The detail shows the row as PostgreSQL does.
#[cold]
pub fn not_null_violation(
    table: &TableDef,
    column: usize,
    row: RowView<'_>,
    env: &Env,
) -> SqlResult<SqlError> {
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        table.columns[column].name, table.name
    );
    let mut shown = Vec::new();
    for (column, value) in table.columns.iter().zip(row.iter()) {
        let value = value.map_err(|_| damaged(table))?;
        let mut text = Vec::new();
        if value.is_null() {
            text.extend_from_slice(b"null");
        } else {
            write_text(&mut text, column.ty, value, env.zone());
        }
        let text = String::from_utf8_lossy(&text);
        shown.push(match text.char_indices().map(|(at, _)| at).find(|at| *at > SHOWN) {
            Some(_) => format!("{}...", &text[..text.floor_char_boundary(SHOWN)]),
            None => text.into_owned(),
        });
    }
    let detail = format!("Failing row contains ({}).", shown.join(", "));
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message).detail(detail);
    Ok(error.table(&table.name).column(&table.columns[column].name))
}

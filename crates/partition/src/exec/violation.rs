//! Tests the constraints that concern one row: NOT NULL and CHECK.

use super::change::damaged;
use clearway_ir::TableDef;
use clearway_ir::program::Env;
use clearway_ir::value::write_text;
use clearway_types::{DatumRef, RowView, SqlError, SqlResult, SqlState};

/// Maximum length of a value in an error's detail, in bytes.
const SHOWN: usize = 64;

/// Tests a row of the table against these CHECK constraints, positions in [`TableDef::checks`], in
/// this order.
///
/// # Errors
/// 23514 for the first constraint that the row violates, and the errors of the conditions.
#[inline]
pub fn satisfies_checks(
    table: &TableDef,
    checks: impl IntoIterator<Item = usize>,
    row: RowView<'_>,
    env: &Env,
) -> SqlResult<()> {
    for at in checks {
        let value = table.checks[at].condition.eval_ref(row, env)?;
        if value.as_ref() == DatumRef::Bool(false) {
            return Err(check_violation(table, at, row, env)?);
        }
    }
    Ok(())
}

/// Returns 23514: the row violates this CHECK constraint.
#[cold]
fn check_violation(
    table: &TableDef,
    at: usize,
    row: RowView<'_>,
    env: &Env,
) -> SqlResult<SqlError> {
    let name = &table.checks[at].name;
    let message =
        format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
    let error = SqlError::new(SqlState::CHECK_VIOLATION, message);
    Ok(error.detail(failing_row(table, row, env)?).table(&table.name).constraint(name))
}

/// Returns 23502: `column` of `row` is NULL but must not be.
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
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message);
    let error = error.detail(failing_row(table, row, env)?);
    Ok(error.table(&table.name).column(&table.columns[column].name))
}

/// Returns a detail that shows the row as PostgreSQL does.
fn failing_row(table: &TableDef, row: RowView<'_>, env: &Env) -> SqlResult<String> {
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
    Ok(format!("Failing row contains ({}).", shown.join(", ")))
}

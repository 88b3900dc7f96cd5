//! BACKUP: its parser, and the columns of its result.

use crate::cursor::Cursor;
use clearway_ir::Statement;
use clearway_ir::statement::{Backup, OutColumn};
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use sqlparser::tokenizer::Token;

/// Parses `BACKUP TO 'directory' [ RATE bytes ]`, Clearway's own command.
pub(crate) fn parse(c: &mut Cursor<'_>) -> SqlResult<Statement> {
    c.expect(&["backup", "to"])?;
    let target = c.string()?;
    let mut bytes_a_second = None;
    if c.accept(&["rate"]) {
        let place = c.clone();
        match c.next() {
            Some(Token::Number(digits, _)) => {
                bytes_a_second = digits.parse().ok().filter(|n| *n > 0)
            }
            _ => return Err(place.error()),
        }
        if bytes_a_second.is_none() {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                "RATE must be a number of bytes per second greater than 0",
            ));
        }
    }
    Ok(Statement::Backup(Backup { target, bytes_a_second }))
}

/// Returns the columns of its one result row.
pub(crate) fn columns() -> Vec<OutColumn> {
    let column = |name: &str| OutColumn::computed(name, SqlType::Int8);
    ["bytes", "begin_lsn", "end_lsn", "duration_ms"].map(column).to_vec()
}

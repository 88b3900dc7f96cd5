//! Parser errors with PostgreSQL's messages, and positions in the text.

use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

/// Returns the position of `at` in characters from 1, or `None` if the parser did not know it.
pub(crate) fn position(sql: &str, at: Location) -> Option<u32> {
    if at.line == 0 || at.column == 0 {
        return None;
    }
    let before: usize =
        sql.split_inclusive('\n').take(at.line as usize - 1).map(|l| l.chars().count()).sum();
    u32::try_from(before + at.column as usize).ok()
}

/// Adds the position to an error, if it is known and the error has none.
pub(crate) fn place(e: SqlError, sql: &str, at: Location) -> SqlError {
    match position(sql, at) {
        Some(p) if e.position().is_none() => e.at(p),
        _ => e,
    }
}

/// Returns 42601 at a token, or at the end.
pub(crate) fn syntax_at(sql: &str, token: Option<&TokenWithSpan>) -> SqlError {
    match token.filter(|t| t.token != Token::EOF) {
        Some(t) => {
            let text = source_of(sql, t);
            let e = SqlError::new(SqlState::SYNTAX, format!("syntax error at or near \"{text}\""));
            place(e, sql, t.span.start)
        }
        None => {
            SqlError::new(SqlState::SYNTAX, "syntax error at end of input")
                .at(sql.chars().count() as u32 + 1)
        }
    }
}

/// Returns the token as it was written.
fn source_of(sql: &str, t: &TokenWithSpan) -> String {
    let (start, end) = (position(sql, t.span.start), position(sql, t.span.end));
    match (start, end) {
        (Some(s), Some(e)) if e > s => {
            sql.chars().skip(s as usize - 1).take((e - s) as usize).collect()
        }
        _ => t.token.to_string(),
    }
}

/// Returns 42601 if one of these constructs is there: sqlparser knows them, PostgreSQL does not.
pub(crate) fn foreign(constructs: &[(bool, &str)]) -> SqlResult<()> {
    constructs.iter().find(|(there, _)| *there).map_or(Ok(()), |(_, what)| {
        Err(SqlError::new(
            SqlState::SYNTAX,
            format!("syntax error: PostgreSQL does not have {what}"),
        ))
    })
}

/// Returns 54001, as PostgreSQL does for a statement that needs more stack than there is.
pub(crate) fn too_deep() -> SqlError {
    SqlError::new(SqlState(*b"54001"), "stack depth limit exceeded")
}

/// Converts sqlparser's error to PostgreSQL's.
pub(crate) fn from_parser(sql: &str, e: &ParserError, tokens: &[TokenWithSpan]) -> SqlError {
    let text = match e {
        ParserError::RecursionLimitExceeded => {
            return too_deep();
        }
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
    };
    let found = location_in(text)
        .and_then(|at| tokens.iter().find(|t| t.span.start == at))
        .or_else(|| tokens.iter().find(|t| text.ends_with(&format!("found: {}", t.token))));
    syntax_at(sql, found)
}

/// Parses `... at Line: 1, Column: 8`.
fn location_in(text: &str) -> Option<Location> {
    let (_, tail) = text.rsplit_once("at Line: ")?;
    let (line, column) = tail.split_once(", Column: ")?;
    Some(Location { line: line.parse().ok()?, column: column.trim().parse().ok()? })
}

//! Cursors: DECLARE, FETCH, MOVE and CLOSE.
//!
//! Source: PostgreSQL 15, gram.y (`DeclareCursorStmt`, `fetch_args`) and
//! `transformDeclareCursorStmt`.

use crate::cursor::Cursor;
use crate::parse::{Kind, statement};
use clearway_ir::Statement;
use clearway_ir::statement::{Fetch, FetchRows};
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast;
use sqlparser::tokenizer::Token;

/// The options between DECLARE's name and FOR.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) binary: bool,
    insensitive: bool,
    asensitive: bool,
    scroll: bool,
    pub(crate) no_scroll: bool,
    hold: bool,
}

/// Parses DECLARE.
pub(crate) fn declare(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    c.next();
    let name = c.ident()?;
    let mut o = Options::default();
    while !c.accept(&["cursor"]) {
        if c.accept(&["binary"]) {
            o.binary = true;
        } else if c.accept(&["insensitive"]) {
            o.insensitive = true;
        } else if c.accept(&["asensitive"]) {
            o.asensitive = true;
        } else if c.accept(&["no", "scroll"]) {
            o.no_scroll = true;
        } else if c.accept(&["scroll"]) {
            o.scroll = true;
        } else {
            return Err(c.error());
        }
    }
    o.hold = c.accept(&["with", "hold"]);
    if !o.hold {
        c.accept(&["without", "hold"]);
    }
    c.expect(&["for"])?;
    let queries = ["select", "values", "with", "table"];
    if c.peek() != Some(&Token::LParen)
        && !c.peek_word().is_some_and(|word| queries.contains(&word.as_str()))
    {
        return Err(c.error());
    }
    let query = statement(c.sql, c.rest())?;
    c.finish();
    o.check(&query)?;
    Ok(Kind::Declare { name, options: o, query: Box::new(query) })
}

impl Options {
    /// Refuses contradictory options, options that no cursor can have, and unsupported ones.
    fn check(self, query: &Kind) -> SqlResult<()> {
        let contradiction = |text: &str| Err(SqlError::new(SqlState(*b"42P11"), text));
        if self.scroll && self.no_scroll {
            return contradiction("cannot specify both SCROLL and NO SCROLL");
        }
        if self.asensitive && self.insensitive {
            return contradiction("cannot specify both ASENSITIVE and INSENSITIVE");
        }
        if let Some(lock) = first_lock(query) {
            let only_reads = |of: &str, verb: &str, state: SqlState, kind: &str| {
                let text = format!("DECLARE {of} ... {lock} is not {verb}");
                Err(SqlError::new(state, text).detail(format!("{kind} cursors must be READ ONLY.")))
            };
            if self.hold {
                return only_reads(
                    "CURSOR WITH HOLD",
                    "supported",
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "Holdable",
                );
            }
            if self.scroll {
                return only_reads(
                    "SCROLL CURSOR",
                    "supported",
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "Scrollable",
                );
            }
            if self.insensitive {
                return only_reads(
                    "INSENSITIVE CURSOR",
                    "valid",
                    SqlState(*b"42P11"),
                    "Insensitive",
                );
            }
        }
        if self.hold {
            return Err(
                SqlError::unsupported("WITH HOLD").hint("A cursor ends with its transaction.")
            );
        }
        if self.scroll {
            return Err(SqlError::unsupported("SCROLL")
                .hint("A cursor moves forward only: declare it with NO SCROLL."));
        }
        Ok(())
    }
}

/// Returns the query's first locking clause, as written.
fn first_lock(query: &Kind) -> Option<&'static str> {
    let Kind::Sql(statement) = query else { return None };
    let ast::Statement::Query(query) = &**statement else { return None };
    query.locks.first().map(|lock| crate::locking::clause(lock).name)
}

/// Parses FETCH and MOVE.
pub(crate) fn fetch(c: &mut Cursor<'_>) -> SqlResult<Statement> {
    let moves = c.is("move");
    c.next();
    // A single word is the cursor's name, even if it could be a direction.
    let rows = if c.rest().len() > 1 { rows(c)? } else { FetchRows::By(1) };
    let _ = c.accept(&["from"]) || c.accept(&["in"]);
    Ok(Statement::Fetch(Fetch { cursor: c.ident()?, rows, moves }))
}

fn rows(c: &mut Cursor<'_>) -> SqlResult<FetchRows> {
    let by = |c: &mut Cursor<'_>, sign: i64| -> SqlResult<FetchRows> {
        if c.accept(&["all"]) {
            return Ok(if sign > 0 { FetchRows::AllForward } else { FetchRows::AllBackward });
        }
        Ok(FetchRows::By(sign * if is_number(c) { number(c)? } else { 1 }))
    };
    for (word, at) in [("next", FetchRows::By(1)), ("prior", FetchRows::By(-1))] {
        if c.accept(&[word]) {
            return Ok(at);
        }
    }
    for (word, at) in [("first", FetchRows::Absolute(1)), ("last", FetchRows::Absolute(-1))] {
        if c.accept(&[word]) {
            return Ok(at);
        }
    }
    if c.accept(&["absolute"]) {
        return number(c).map(FetchRows::Absolute);
    }
    if c.accept(&["relative"]) {
        return number(c).map(FetchRows::Relative);
    }
    if c.accept(&["backward"]) {
        return by(c, -1);
    }
    c.accept(&["forward"]);
    by(c, 1)
}

fn is_number(c: &Cursor<'_>) -> bool {
    matches!(c.peek(), Some(Token::Number(..) | Token::Minus | Token::Plus))
}

/// Reads a 32-bit integer with an optional sign.
fn number(c: &mut Cursor<'_>) -> SqlResult<i64> {
    let minus = c.accept_token(&Token::Minus);
    if !minus {
        c.accept_token(&Token::Plus);
    }
    let Some(Token::Number(digits, _)) = c.peek() else { return Err(c.error()) };
    let Ok(n) = digits.parse::<i32>() else { return Err(c.error()) };
    c.next();
    Ok(if minus { -i64::from(n) } else { i64::from(n) })
}

/// Parses CLOSE.
pub(crate) fn close(c: &mut Cursor<'_>) -> SqlResult<Statement> {
    c.next();
    Ok(Statement::Close(if c.accept(&["all"]) { None } else { Some(c.ident()?) }))
}

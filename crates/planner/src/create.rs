//! The syntax of CREATE TABLE and CREATE INDEX that sqlparser does not parse, or parses differently
//! from PostgreSQL.

use crate::cursor::Cursor;
use crate::error::place;
use crate::options::{self, Storage};
use crate::parse::{Distributed, Kind, sql_statement};
use crate::utility::word_of;
use clearway_types::{SqlError, SqlResult};
use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

pub(crate) fn index(c: &mut Cursor<'_>, unique: bool) -> SqlResult<Kind> {
    let concurrently = c.accept(&["concurrently"]);
    let if_not_exists = c.accept(&["if", "not", "exists"]);
    let name = if c.is("on") { None } else { Some(c.ident()?) };
    c.expect(&["on"])?;
    c.accept(&["only"]);
    let table = c.name()?;
    if c.accept(&["using"]) {
        options::index_method(c)?;
    }
    c.expect_token(&Token::LParen)?;
    let mut columns = Vec::new();
    loop {
        if c.peek() == Some(&Token::LParen)
            || c.rest().get(1).is_some_and(|t| t.token == Token::LParen)
        {
            return Err(c.unsupported("an index on an expression"));
        }
        columns.push(c.ident()?);
        c.accept(&["asc"]);
        if c.peek_word().is_some_and(|w| !["desc", "nulls"].contains(&w.as_str())) {
            let what = if c.is("collate") { "COLLATE" } else { "an operator class" };
            return Err(c.unsupported(what));
        }
        if c.is("desc") {
            return Err(c.unsupported("a descending index"));
        }
        c.accept(&["nulls", "last"]);
        if c.is("nulls") {
            return Err(c.unsupported("an index with NULLS FIRST"));
        }
        if !c.accept_token(&Token::Comma) {
            break;
        }
    }
    c.expect_token(&Token::RParen)?;
    if c.is("include") {
        return Err(c.unsupported("INCLUDE"));
    }
    if !c.accept(&["nulls", "distinct"]) && c.is("nulls") {
        return Err(c.unsupported("NULLS NOT DISTINCT"));
    }
    if c.accept(&["with"]) {
        options::storage(c, Storage::Index)?;
    }
    if c.accept(&["tablespace"]) {
        options::tablespace(c)?;
    }
    if c.is("where") {
        return Err(c.unsupported("a partial index"));
    }
    Ok(Kind::CreateIndex { table, name, columns, unique, if_not_exists, concurrently })
}

/// Parses CREATE TABLE. sqlparser gets it without UNLOGGED (all tables are logged) and without the
/// clauses after the column list.
pub(crate) fn table(c: &mut Cursor<'_>, create: &[TokenWithSpan]) -> SqlResult<Kind> {
    let head = c.rest();
    c.next();
    c.accept(&["if", "not", "exists"]);
    let at = c.location();
    c.name().map_err(|e| place(e, c.sql, at))?;
    if c.is("partition") {
        return Err(c.unsupported("PARTITION OF"));
    }
    if c.is("as") {
        return Err(c.unsupported("CREATE TABLE AS"));
    }
    let begin = &head[..head.len() - c.rest().len()];
    let elements = elements(c)?;
    let tokens: Vec<TokenWithSpan> = create.iter().chain(begin).cloned().chain(elements).collect();
    let distribution = table_tail(c)?;
    match sql_statement(c.sql, &tokens)? {
        ast::Statement::CreateTable(create) => {
            Ok(Kind::CreateTable { create: Box::new(create), distribution })
        }
        _ => Err(SqlError::internal("CREATE TABLE parsed as something else")),
    }
}

/// Returns the columns and constraints in their parentheses, without the constraints' options,
/// which are parsed here.
fn elements(c: &mut Cursor<'_>) -> SqlResult<Vec<TokenWithSpan>> {
    let (mut out, mut depth, mut keyed) = (Vec::new(), 0, false);
    // The first word of the column or constraint, and whether it is a CHECK constraint of the
    // table. Nothing of a new table's rows could be invalid.
    let (mut first, mut checked) = (true, None);
    loop {
        if depth == 1 && c.is("exclude") {
            return Err(c.unsupported("EXCLUDE"));
        }
        if depth == 1 && keyed {
            options::constraint(c)?;
        }
        if depth == 1 && std::mem::take(&mut first) {
            checked = (c.is("constraint") || c.is("check")).then_some(false);
        }
        if depth == 1 && checked == Some(true) {
            options::check(c)?;
        }
        let Some(token) = c.rest().first() else { return Err(c.error()) };
        c.next();
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::Comma if depth == 1 => (keyed, first) = (false, true),
            _ => {}
        }
        if depth == 1 && checked.is_some() {
            checked = Some(checked == Some(true) || word_of(&token.token) == "check");
        }
        keyed |= depth == 1 && matches!(word_of(&token.token).as_str(), "unique" | "primary");
        out.push(token.clone());
        match depth {
            0 if out.len() == 1 => return Err(c.error()),
            0 => return Ok(out),
            _ => {}
        }
    }
}

/// Returns the position of a trailing clause in the required order; `None`: anywhere.
fn rank(word: &str) -> Option<usize> {
    ["using", "with", "on", "tablespace"]
        .iter()
        .position(|w| *w == if word == "without" { "with" } else { word })
}

fn table_tail(c: &mut Cursor<'_>) -> SqlResult<Option<Distributed>> {
    let mut distribution = None;
    let mut last = None;
    while let Some(word) = c.peek_word() {
        if let Some(rank) = rank(&word) {
            if last.is_some_and(|last| last >= rank) {
                return Err(c.error());
            }
            last = Some(rank);
        }
        match word.as_str() {
            "with" => {
                c.next();
                options::storage(c, Storage::Table)?;
            }
            "without" => {
                c.next();
                c.expect(&["oids"])?;
            }
            "using" => {
                c.next();
                options::table_method(c)?;
            }
            "tablespace" => {
                c.next();
                options::tablespace(c)?;
            }
            "distributed" => {
                c.next();
                distribution = Some(if c.accept(&["by"]) {
                    Distributed::By(c.columns()?)
                } else if c.accept(&["randomly"]) {
                    Distributed::Randomly
                } else if c.is("replicated") {
                    return Err(c.unsupported("DISTRIBUTED REPLICATED"));
                } else {
                    return Err(c.error());
                });
            }
            "partition" => return Err(c.unsupported("PARTITION BY")),
            "inherits" => return Err(c.unsupported("INHERITS")),
            "as" => return Err(c.unsupported("CREATE TABLE AS")),
            "on" => return Err(c.unsupported("ON COMMIT")),
            _ => break,
        }
    }
    Ok(distribution)
}

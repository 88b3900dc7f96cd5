//! The commands that we parse ourselves: transactions, settings, maintenance, and DDL with a fixed
//! syntax.

use crate::cursor::Cursor;
use crate::parse::{Kind, data_types, expressions, statement};
use crate::relation::RelationName;
use crate::{backup, copy, create, cursors, options};
use clearway_ir::Statement;
use clearway_ir::statement::{Isolation, Maintain, TxnOptions};
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

/// Parses the statement if it is one of ours.
pub(crate) fn parse(c: &mut Cursor<'_>) -> SqlResult<Option<Kind>> {
    let Some(first) = c.peek_word() else { return Ok(None) };
    if let Some(s) = transaction(&first, c)? {
        return Ok(Some(Kind::Plain(s)));
    }
    Ok(Some(match first.as_str() {
        "set" => Kind::Plain(set(c)?),
        "reset" => {
            c.next();
            Kind::Plain(Statement::Reset(setting_name(c)?))
        }
        "show" => {
            c.next();
            Kind::Plain(Statement::Show(setting_name(c)?))
        }
        "vacuum" | "analyze" | "analyse" => maintain(c)?,
        "checkpoint" => {
            c.next();
            Kind::Maintain(Maintain::Checkpoint, Vec::new())
        }
        "backup" => Kind::Plain(backup::parse(c)?),
        "declare" => cursors::declare(c)?,
        "fetch" | "move" => Kind::Plain(cursors::fetch(c)?),
        "close" => Kind::Plain(cursors::close(c)?),
        "discard" | "unlisten" => Kind::Plain(noop(&first, c)?),
        "copy" => copy::parse(c)?,
        "explain" => explain(c)?,
        "prepare" => prepare(c)?,
        "execute" => execute(c)?,
        "deallocate" => {
            c.next();
            c.accept(&["prepare"]);
            let name = c.ident()?;
            Kind::Plain(Statement::Deallocate((name != "all").then_some(name)))
        }
        "truncate" => truncate(c)?,
        "drop" => return drop(c),
        "alter" => return alter(c),
        "create" => return create(c),
        _ => return Ok(None),
    }))
}

fn transaction(first: &str, c: &mut Cursor<'_>) -> SqlResult<Option<Statement>> {
    let start = c.clone();
    c.next();
    let skip = |c: &mut Cursor<'_>| c.accept(&["work"]) || c.accept(&["transaction"]);
    let s = match first {
        "begin" => {
            skip(c);
            Statement::Begin(options(c)?)
        }
        "start" if c.accept(&["transaction"]) => {
            Statement::Begin(TxnOptions { start: true, ..options(c)? })
        }
        "commit" | "end" => {
            skip(c);
            prepared_or_chain(c)?;
            Statement::Commit
        }
        "rollback" | "abort" => {
            skip(c);
            if first == "rollback" && c.accept(&["to"]) {
                c.accept(&["savepoint"]);
                Statement::RollbackTo(c.ident()?)
            } else {
                prepared_or_chain(c)?;
                Statement::Rollback
            }
        }
        "savepoint" => Statement::Savepoint(c.ident()?),
        "release" => {
            c.accept(&["savepoint"]);
            Statement::Release(c.ident()?)
        }
        _ => {
            *c = start;
            return Ok(None);
        }
    };
    Ok(Some(s))
}

fn prepared_or_chain(c: &mut Cursor<'_>) -> SqlResult<()> {
    if c.is("prepared") {
        return Err(c.unsupported("a two-phase transaction"));
    }
    if c.accept(&["and", "no", "chain"]) {
        return Ok(());
    }
    if c.is("and") {
        return Err(c.unsupported("AND CHAIN"));
    }
    Ok(())
}

fn options(c: &mut Cursor<'_>) -> SqlResult<TxnOptions> {
    let mut o = TxnOptions::default();
    while !c.done() {
        if c.accept(&["read", "only"]) {
            o.read_only = Some(true);
        } else if c.accept(&["read", "write"]) {
            o.read_only = Some(false);
        } else if c.accept(&["isolation", "level"]) {
            o.isolation = Some(isolation(c)?);
        } else if c.accept(&["not", "deferrable"]) {
            o.deferrable = Some(false);
        } else if c.accept(&["deferrable"]) {
            o.deferrable = Some(true);
        } else {
            return Err(c.error());
        }
        c.accept_token(&Token::Comma);
    }
    Ok(o)
}

fn isolation(c: &mut Cursor<'_>) -> SqlResult<Isolation> {
    let accepted = |level: &Isolation| c.accept(&level.name().split(' ').collect::<Vec<_>>());
    Isolation::ALL.into_iter().find(accepted).ok_or_else(|| c.error())
}

fn setting_name(c: &mut Cursor<'_>) -> SqlResult<String> {
    if c.accept(&["time", "zone"]) {
        return Ok("timezone".to_owned());
    }
    if c.accept(&["transaction", "isolation", "level"]) {
        return Ok("transaction_isolation".to_owned());
    }
    if c.accept(&["session", "authorization"]) {
        return Ok("session_authorization".to_owned());
    }
    let mut name = c.ident()?;
    while c.accept_token(&Token::Period) {
        name = format!("{name}.{}", c.ident()?);
    }
    Ok(name.to_ascii_lowercase())
}

fn set(c: &mut Cursor<'_>) -> SqlResult<Statement> {
    c.next();
    if c.clone().accept(&["local", "transaction", "snapshot"]) {
        let text = "SET LOCAL TRANSACTION SNAPSHOT is not implemented";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
    }
    if c.accept(&["transaction", "snapshot"]) {
        return Ok(Statement::SetSnapshot(c.string()?));
    }
    if c.accept(&["transaction"]) {
        return Ok(Statement::SetTransaction { options: options(c)?, session: false });
    }
    if c.accept(&["session", "characteristics", "as", "transaction"]) {
        return Ok(Statement::SetTransaction { options: options(c)?, session: true });
    }
    let local = c.accept(&["local"]);
    if !local
        && !matches!(c.rest().get(1).map(|t| &t.token), Some(Token::Eq))
        && !c.is("session_authorization")
    {
        c.accept(&["session"]);
    }
    if c.is("constraints") || c.is("role") || c.is("authorization") {
        let what = format!("SET {}", c.ident()?.to_uppercase());
        return Err(SqlError::unsupported(what));
    }
    let (name, bare) = if c.accept(&["time", "zone"]) {
        ("timezone".to_owned(), true)
    } else if c.accept(&["names"]) {
        ("client_encoding".to_owned(), true)
    } else {
        (setting_name(c)?, false)
    };
    if bare
        && c.is("interval")
        && matches!(c.rest().get(1).map(|t| &t.token), Some(Token::SingleQuotedString(_)))
    {
        return Err(c.unsupported("SET TIME ZONE INTERVAL"));
    }
    if !bare && !c.accept(&["to"]) && !c.accept_token(&Token::Eq) {
        return Err(c.error());
    }
    if c.accept(&["default"]) || name == "timezone" && c.accept(&["local"]) {
        return Ok(Statement::Set { name, value: None, local });
    }
    let mut values = vec![options::value(c)?];
    while c.accept_token(&Token::Comma) {
        values.push(options::value(c)?);
    }
    if name == "search_path" {
        values.iter_mut().for_each(|name| *name = quoted(name));
    }
    let value = values.join(", ");
    Ok(Statement::Set { name, value: Some(value), local })
}

/// Quotes an identifier if necessary.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn maintain(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    let kind = if c.accept(&["vacuum"]) { Maintain::Vacuum } else { Maintain::Analyze };
    let mut analyze = kind == Maintain::Analyze;
    if analyze {
        c.next();
    }
    match (kind, c.peek() == Some(&Token::LParen)) {
        (Maintain::Vacuum, true) => analyze = options::vacuum(c)?,
        (_, true) => options::analyze(c)?,
        (Maintain::Vacuum, false) => {
            while ["full", "freeze", "verbose"].iter().any(|w| c.accept(&[w])) {}
            analyze = c.accept(&["analyze"]) || c.accept(&["analyse"]);
        }
        (_, false) => {
            c.accept(&["verbose"]);
        }
    }
    let mut tables = Vec::new();
    while !c.done() {
        let name = c.name()?;
        let columns = if c.peek() == Some(&Token::LParen) { c.columns()? } else { Vec::new() };
        if !analyze && !columns.is_empty() {
            let text = "ANALYZE option must be specified when a column list is provided";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
        }
        tables.push((name, columns));
        if !c.accept_token(&Token::Comma) {
            break;
        }
    }
    Ok(Kind::Maintain(kind, tables))
}

fn noop(first: &str, c: &mut Cursor<'_>) -> SqlResult<Statement> {
    c.next();
    Ok(match first {
        "discard" => match c.ident()?.as_str() {
            "all" => Statement::Noop("DISCARD ALL"),
            "plans" => Statement::Noop("DISCARD PLANS"),
            "sequences" => Statement::Noop("DISCARD SEQUENCES"),
            "temp" | "temporary" => Statement::Noop("DISCARD TEMP"),
            _ => return Err(c.error()),
        },
        _ => {
            if !c.accept_token(&Token::Mul) {
                c.ident()?;
            }
            Statement::Noop("UNLISTEN")
        }
    })
}

fn explain(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    c.next();
    // EXPLAIN of a query in parentheses has no options.
    let query = matches!(c.rest().get(1).map(|t| &t.token), Some(Token::LParen))
        || c.rest()
            .get(1)
            .is_some_and(|t| ["select", "values", "with"].contains(&word_of(&t.token).as_str()));
    if c.peek() == Some(&Token::LParen) && !query {
        options::explain(c)?;
    } else if c.is("analyze") {
        return Err(c.unsupported("EXPLAIN ANALYZE"));
    } else {
        c.accept(&["verbose"]);
    }
    Ok(Kind::Explain(Box::new(contained(c)?)))
}

/// Parses the statement after EXPLAIN or PREPARE. PostgreSQL's grammar excludes these two there;
/// here that also limits the recursion.
fn contained(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    if c.is("explain") || c.is("prepare") {
        return Err(c.error());
    }
    let inner = statement(c.sql, c.rest())?;
    c.finish();
    Ok(inner)
}

fn prepare(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    c.next();
    if c.is("transaction") {
        return Err(c.unsupported("PREPARE TRANSACTION"));
    }
    let name = c.ident()?;
    let types = match c.peek() {
        Some(Token::LParen) => data_types(c.sql, c.parenthesised()?)?,
        _ => Vec::new(),
    };
    c.expect(&["as"])?;
    Ok(Kind::Prepare { name, types, statement: Box::new(contained(c)?) })
}

fn execute(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    c.next();
    let name = c.ident()?;
    let args = match c.peek() {
        Some(Token::LParen) => expressions(c.sql, c.parenthesised()?)?,
        _ => Vec::new(),
    };
    Ok(Kind::Execute { name, args })
}

fn truncate(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    c.next();
    c.accept(&["table"]);
    c.accept(&["only"]);
    let names = c.names()?;
    let _ = c.accept(&["continue", "identity"]) || c.accept(&["restart", "identity"]);
    behaviour(c)?;
    Ok(Kind::Truncate(names))
}

fn behaviour(c: &mut Cursor<'_>) -> SqlResult<()> {
    // Nothing depends on a table yet, so both mean the same.
    let _ = c.accept(&["cascade"]) || c.accept(&["restrict"]);
    Ok(())
}

fn drop(c: &mut Cursor<'_>) -> SqlResult<Option<Kind>> {
    let start = c.clone();
    c.next();
    let table = c.accept(&["table"]);
    if !table && !c.accept(&["index"]) {
        *c = start;
        return Ok(None);
    }
    let concurrently = !table && c.accept(&["concurrently"]);
    let if_exists = c.accept(&["if", "exists"]);
    let names = c.names()?;
    behaviour(c)?;
    Ok(Some(Kind::Drop { table, names, if_exists, concurrently }))
}

fn alter(c: &mut Cursor<'_>) -> SqlResult<Option<Kind>> {
    let start = c.clone();
    c.next();
    if !c.accept(&["table"]) {
        *c = start;
        return Ok(None);
    }
    let if_exists = c.accept(&["if", "exists"]);
    c.accept(&["only"]);
    let table = c.name()?;
    if !c.accept(&["add"]) {
        let what = c.peek_word().unwrap_or_default().to_uppercase();
        return Err(c.unsupported(&format!("ALTER TABLE {what}")));
    }
    let name = if c.accept(&["constraint"]) { Some(c.ident()?) } else { None };
    if c.is("check") {
        return added_check(c, table, if_exists, name).map(Some);
    }
    if !c.accept(&["primary", "key"]) {
        let what = match c.peek_word().as_deref() {
            Some("foreign") => "a FOREIGN KEY constraint",
            Some("unique") => "ALTER TABLE ADD UNIQUE",
            Some(_) => "ALTER TABLE ADD COLUMN",
            None => return Err(c.error()),
        };
        return Err(c.unsupported(what));
    }
    if c.is("using") {
        return Err(c.unsupported("PRIMARY KEY USING INDEX"));
    }
    let columns = c.columns()?;
    options::constraint(c)?;
    Ok(Some(Kind::AddPrimaryKey { table, if_exists, name, columns }))
}

fn added_check(
    c: &mut Cursor<'_>,
    table: RelationName,
    if_exists: bool,
    name: Option<String>,
) -> SqlResult<Kind> {
    c.next();
    let start = c.clone();
    let mut conditions = expressions(c.sql, c.parenthesised()?)?;
    let (Some(condition), true) = (conditions.pop(), conditions.is_empty()) else {
        return Err(start.error());
    };
    let options = c.clone();
    if options::check(c)? {
        return Err(options.unsupported("NOT VALID"));
    }
    Ok(Kind::AddCheck { table, if_exists, name, condition: Box::new(condition) })
}

fn create(c: &mut Cursor<'_>) -> SqlResult<Option<Kind>> {
    let start = c.clone();
    c.next();
    let unique = c.accept(&["unique"]);
    if c.accept(&["index"]) {
        return create::index(c, unique).map(Some);
    }
    for word in ["temp", "temporary", "local", "global"] {
        if c.is(word) {
            return Err(c.unsupported("a temporary table"));
        }
    }
    c.accept(&["unlogged"]);
    if !c.is("table") {
        *c = start;
        return Ok(None);
    }
    create::table(c, &start.rest()[..1]).map(Some)
}

/// Returns the word in lower case, or an empty string if it is something else, or quoted.
pub(crate) fn word_of(token: &Token) -> String {
    match token {
        Token::Word(w) if w.quote_style.is_none() => w.value.to_ascii_lowercase(),
        _ => String::new(),
    }
}

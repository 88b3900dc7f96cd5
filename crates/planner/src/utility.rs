//! The commands that we parse ourselves: transactions, settings, maintenance, and DDL of a fixed shape.

use crate::cursor::Cursor;
use crate::parse::{Distributed, Kind, data_types, expressions, sql_statement, statement};
use crate::{backup, copy, error};
use clearway_plan::Statement;
use clearway_plan::statement::{Isolation, Maintain, TxnOptions};
use clearway_types::{SqlError, SqlResult};
use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

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
            Kind::Plain(Statement::Set { name: setting_name(c)?, value: None, local: false })
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
        "discard" | "close" | "unlisten" => Kind::Plain(noop(&first, c)?),
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
        "start" if c.accept(&["transaction"]) => Statement::Begin(TxnOptions { start: true, ..options(c)? }),
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
        } else if !(c.accept(&["not", "deferrable"]) || c.accept(&["deferrable"])) {
            return Err(c.error());
        }
        c.accept_token(&Token::Comma);
    }
    Ok(o)
}

fn isolation(c: &mut Cursor<'_>) -> SqlResult<Isolation> {
    for (words, level) in [
        (&["read", "uncommitted"][..], Isolation::ReadUncommitted),
        (&["read", "committed"], Isolation::ReadCommitted),
        (&["repeatable", "read"], Isolation::RepeatableRead),
        (&["serializable"], Isolation::Serializable),
    ] {
        if c.accept(words) {
            return Ok(level);
        }
    }
    Err(c.error())
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
    Ok(name.to_lowercase())
}

fn set(c: &mut Cursor<'_>) -> SqlResult<Statement> {
    c.next();
    if c.accept(&["transaction"]) {
        return Ok(Statement::SetTransaction { options: options(c)?, session: false });
    }
    if c.accept(&["session", "characteristics", "as", "transaction"]) {
        return Ok(Statement::SetTransaction { options: options(c)?, session: true });
    }
    let local = c.accept(&["local"]);
    if !local && !matches!(c.rest().get(1).map(|t| &t.token), Some(Token::Eq)) && !c.is("session_authorization") {
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
    if !bare && !c.accept(&["to"]) && !c.accept_token(&Token::Eq) {
        return Err(c.error());
    }
    if c.accept(&["default"]) || name == "timezone" && c.accept(&["local"]) {
        return Ok(Statement::Set { name, value: None, local });
    }
    let mut value = setting_value(c)?;
    while c.accept_token(&Token::Comma) {
        value = format!("{value}, {}", setting_value(c)?);
    }
    Ok(Statement::Set { name, value: Some(value), local })
}

fn setting_value(c: &mut Cursor<'_>) -> SqlResult<String> {
    let minus = c.accept_token(&Token::Minus);
    if !minus {
        c.accept_token(&Token::Plus);
    }
    match c.peek() {
        Some(Token::Number(n, _)) => {
            c.next();
            Ok(if minus { format!("-{n}") } else { n.clone() })
        }
        _ if minus => Err(c.error()),
        Some(Token::Word(_)) => c.ident(),
        _ => c.string(),
    }
}

fn maintain(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    let kind = if c.accept(&["vacuum"]) { Maintain::Vacuum } else { Maintain::Analyze };
    if kind == Maintain::Analyze {
        c.next();
    }
    if c.peek() == Some(&Token::LParen) {
        c.parenthesised()?;
    }
    let words: &[&str] =
        if kind == Maintain::Vacuum { &["full", "freeze", "verbose", "analyze", "analyse"] } else { &["verbose"] };
    while words.iter().any(|w| c.accept(&[w])) {}
    let mut names = Vec::new();
    while !c.done() {
        names.push(c.name()?);
        if c.peek() == Some(&Token::LParen) {
            c.columns()?;
        }
        if !c.accept_token(&Token::Comma) {
            break;
        }
    }
    Ok(Kind::Maintain(kind, names))
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
        "close" => {
            if c.accept(&["all"]) {
                Statement::Noop("CLOSE CURSOR ALL")
            } else {
                return Err(c.unsupported("CLOSE of a cursor"));
            }
        }
        _ => {
            c.finish();
            Statement::Noop("UNLISTEN")
        }
    })
}

fn explain(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    c.next();
    if c.peek() == Some(&Token::LParen) {
        let options = c.parenthesised()?;
        let word = |w: &str| options.iter().find(|t| t.token.to_string().eq_ignore_ascii_case(w));
        if let Some(t) = word("analyze") {
            return Err(error::place(SqlError::unsupported("EXPLAIN ANALYZE"), c.sql, t.span.start));
        }
        if let Some(t) = word("format").filter(|_| word("text").is_none()) {
            return Err(error::place(SqlError::unsupported("EXPLAIN FORMAT"), c.sql, t.span.start));
        }
    }
    if c.is("analyze") {
        return Err(c.unsupported("EXPLAIN ANALYZE"));
    }
    c.accept(&["verbose"]);
    let inner = statement(c.sql, c.rest())?;
    c.finish();
    Ok(Kind::Explain(Box::new(inner)))
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
    let inner = statement(c.sql, c.rest())?;
    c.finish();
    Ok(Kind::Prepare { name, types, statement: Box::new(inner) })
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
    if !table {
        c.accept(&["concurrently"]);
    }
    let if_exists = c.accept(&["if", "exists"]);
    let names = c.names()?;
    behaviour(c)?;
    Ok(Some(Kind::Plain(if table {
        Statement::DropTable { names, if_exists }
    } else {
        Statement::DropIndex { names, if_exists }
    })))
}

fn alter(c: &mut Cursor<'_>) -> SqlResult<Option<Kind>> {
    let start = c.clone();
    c.next();
    if !c.accept(&["table"]) {
        *c = start;
        return Ok(None);
    }
    c.accept(&["if", "exists"]);
    c.accept(&["only"]);
    let table = c.name()?;
    if !c.accept(&["add"]) {
        let what = c.peek_word().unwrap_or_default().to_uppercase();
        return Err(c.unsupported(&format!("ALTER TABLE {what}")));
    }
    let name = if c.accept(&["constraint"]) { Some(c.ident()?) } else { None };
    if !c.accept(&["primary", "key"]) {
        let what = match c.peek_word().as_deref() {
            Some("foreign") => "a FOREIGN KEY constraint",
            Some("check") => "a CHECK constraint",
            Some("unique") => "ALTER TABLE ADD UNIQUE",
            Some(_) => "ALTER TABLE ADD COLUMN",
            None => return Err(c.error()),
        };
        return Err(c.unsupported(what));
    }
    if c.is("using") {
        return Err(c.unsupported("PRIMARY KEY USING INDEX"));
    }
    Ok(Some(Kind::AddPrimaryKey { table, name, columns: c.columns()? }))
}

fn create(c: &mut Cursor<'_>) -> SqlResult<Option<Kind>> {
    let start = c.clone();
    c.next();
    let unique = c.accept(&["unique"]);
    if c.accept(&["index"]) {
        return create_index(c, unique).map(Some);
    }
    for word in ["temp", "temporary", "local", "global"] {
        if c.is(word) {
            return Err(c.unsupported("a temporary table"));
        }
    }
    let unlogged = c.accept(&["unlogged"]);
    if !c.is("table") {
        *c = start;
        return Ok(None);
    }
    create_table(c, &start.rest()[..1], unlogged).map(Some)
}

fn create_index(c: &mut Cursor<'_>, unique: bool) -> SqlResult<Kind> {
    c.accept(&["concurrently"]);
    let if_not_exists = c.accept(&["if", "not", "exists"]);
    let name = if c.is("on") { None } else { Some(c.name()?) };
    c.expect(&["on"])?;
    c.accept(&["only"]);
    let table = c.name()?;
    if c.accept(&["using"]) && !c.accept(&["btree"]) {
        return Err(c.unsupported("an index method other than btree"));
    }
    c.expect_token(&Token::LParen)?;
    let mut columns = Vec::new();
    loop {
        if c.peek() == Some(&Token::LParen) || c.rest().get(1).is_some_and(|t| t.token == Token::LParen) {
            return Err(c.unsupported("an index on an expression"));
        }
        columns.push(c.ident()?);
        c.accept(&["asc"]);
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
    for (word, what) in [
        ("include", "INCLUDE"),
        ("where", "a partial index"),
        ("nulls", "NULLS NOT DISTINCT"),
        ("tablespace", "TABLESPACE"),
    ] {
        if c.is(word) {
            return Err(c.unsupported(what));
        }
    }
    if c.accept(&["with"]) {
        c.parenthesised()?;
    }
    Ok(Kind::CreateIndex { table, name, columns, unique, if_not_exists })
}

/// CREATE TABLE: sqlparser gets it without UNLOGGED (all tables are logged) and without what follows the column list.
fn create_table(c: &mut Cursor<'_>, create: &[TokenWithSpan], _unlogged: bool) -> SqlResult<Kind> {
    let head = c.rest();
    c.next();
    c.accept(&["if", "not", "exists"]);
    c.name()?;
    if c.is("partition") {
        return Err(c.unsupported("PARTITION OF"));
    }
    if c.is("as") {
        return Err(c.unsupported("CREATE TABLE AS"));
    }
    c.parenthesised()?;
    let used = head.len() - c.rest().len();
    let tokens: Vec<TokenWithSpan> = create.iter().chain(&head[..used]).cloned().collect();
    let distribution = table_tail(c)?;
    match sql_statement(c.sql, &tokens)? {
        ast::Statement::CreateTable(create) => Ok(Kind::CreateTable { create: Box::new(create), distribution }),
        _ => Err(SqlError::internal("CREATE TABLE parsed as something else")),
    }
}

fn table_tail(c: &mut Cursor<'_>) -> SqlResult<Option<Distributed>> {
    let mut distribution = None;
    while let Some(word) = c.peek_word() {
        match word.as_str() {
            "with" => {
                c.next();
                c.parenthesised()?;
            }
            "without" => {
                c.next();
                c.expect(&["oids"])?;
            }
            "using" | "tablespace" => {
                c.next();
                c.ident()?;
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

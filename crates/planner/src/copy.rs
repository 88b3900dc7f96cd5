//! COPY: we parse it ourselves because it has many options, some of them in a legacy syntax.

use crate::bind::Binder;
use crate::cursor::Cursor;
use crate::dml::{Evaluated, defaults, unique_columns};
use crate::error::place;
use crate::parse::{CopySource, CopyStatement, Kind, sql_statement};
use crate::query;
use crate::scope;
use clearway_ir::statement::{Copy, CopyDirection, CopyFormat, Query, Route, Source};
use clearway_ir::{Access, Catalog, Expr, OnConflict, Path, Program};
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast;
use sqlparser::tokenizer::Token;
use std::sync::Arc;

/// Options as written. Missing ones get the format's default.
#[derive(Default)]
struct Options {
    csv: bool,
    delimiter: Option<String>,
    null: Option<String>,
    header: bool,
    quote: Option<String>,
    escape: Option<String>,
}

/// Parses COPY.
pub(crate) fn parse(c: &mut Cursor<'_>) -> SqlResult<Kind> {
    c.next();
    if c.is("binary") {
        return Err(c.unsupported("COPY in binary format"));
    }
    let source = if c.peek() == Some(&Token::LParen) {
        CopySource::Query(Box::new(sql_statement(c.sql, c.parenthesised()?)?))
    } else {
        let name = c.name()?;
        let columns = if c.peek() == Some(&Token::LParen) { c.columns()? } else { Vec::new() };
        CopySource::Table { name, columns }
    };
    let from = c.accept(&["from"]);
    if !from {
        c.expect(&["to"])?;
    }
    if from && matches!(source, CopySource::Query(_)) {
        return Err(c.error());
    }
    if !c.accept(&[if from { "stdin" } else { "stdout" }]) {
        let what =
            if c.is("program") { "COPY with a program" } else { "COPY with a file on the server" };
        return Err(if c.done() { c.error() } else { c.unsupported(what) });
    }
    let format = format(options(c)?)?;
    if c.is("where") {
        return Err(c.unsupported("COPY ... WHERE"));
    }
    Ok(Kind::Copy(CopyStatement { source, from, format }))
}

fn options(c: &mut Cursor<'_>) -> SqlResult<Options> {
    let mut o = Options::default();
    c.accept(&["with"]);
    if c.accept_token(&Token::LParen) {
        let mut seen = Vec::new();
        loop {
            let start = c.clone();
            let name = start.clone().ident()?;
            if seen.contains(&name) {
                let error = SqlError::new(SqlState::SYNTAX, "conflicting or redundant options");
                return Err(place(error, c.sql, start.location()));
            }
            seen.push(name);
            option(c, &mut o).map_err(|e| place(e, c.sql, start.location()))?;
            if !c.accept_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
        return Ok(o);
    }
    while let Some(word) = c.peek_word() {
        match word.as_str() {
            "csv" | "header" | "freeze" => {
                c.next();
                o.csv |= word == "csv";
                o.header |= word == "header";
            }
            "delimiter" | "null" | "quote" | "escape" => {
                c.next();
                c.accept(&["as"]);
                let value = Some(c.string()?);
                match word.as_str() {
                    "delimiter" => o.delimiter = value,
                    "null" => o.null = value,
                    "quote" => o.quote = value,
                    _ => o.escape = value,
                }
            }
            "binary" => return Err(c.unsupported("COPY in binary format")),
            "force" => return Err(c.unsupported("COPY FORCE")),
            _ => break,
        }
    }
    Ok(o)
}

/// Parses one option in parentheses.
fn option(c: &mut Cursor<'_>, o: &mut Options) -> SqlResult<()> {
    let name = c.ident()?;
    match name.as_str() {
        "format" => {
            let format = match c.peek() {
                Some(Token::Word(_)) => c.ident()?,
                _ => c.string()?,
            };
            match format.as_str() {
                "text" => o.csv = false,
                "csv" => o.csv = true,
                "binary" => return Err(SqlError::unsupported("COPY in binary format")),
                other => {
                    let text = format!("COPY format \"{other}\" not recognized");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER, text));
                }
            }
        }
        "freeze" => {
            boolean(c)?;
        }
        "header" => o.header = boolean(c)?,
        "delimiter" => o.delimiter = Some(c.string()?),
        "null" => o.null = Some(c.string()?),
        "quote" => o.quote = Some(c.string()?),
        "escape" => o.escape = Some(c.string()?),
        "encoding" => {
            let encoding = c.string()?.to_ascii_lowercase().replace('-', "");
            if encoding != "utf8" {
                return Err(SqlError::unsupported("COPY in an encoding other than UTF8"));
            }
        }
        "force_quote" | "force_not_null" | "force_null" => {
            return Err(SqlError::unsupported(format!("COPY option {name}")));
        }
        _ => {
            let text = format!("option \"{name}\" not recognized");
            return Err(SqlError::new(SqlState::SYNTAX, text));
        }
    }
    Ok(())
}

/// Parses a boolean option's value. A missing value means true.
fn boolean(c: &mut Cursor<'_>) -> SqlResult<bool> {
    let word = match c.peek() {
        Some(Token::Word(_)) => c.ident()?,
        Some(Token::Number(n, _)) => {
            c.next();
            n.clone()
        }
        Some(Token::SingleQuotedString(_)) => c.string()?,
        _ => return Ok(true),
    };
    match word.as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        "match" => Err(SqlError::unsupported("COPY HEADER MATCH")),
        _ => Err(SqlError::new(SqlState::SYNTAX, "a boolean option requires a Boolean value")),
    }
}

fn one_byte(value: Option<String>, default: u8, what: &str) -> SqlResult<u8> {
    match value.as_deref().map(str::as_bytes) {
        None => Ok(default),
        Some([b]) if *b != b'\n' && *b != b'\r' && b.is_ascii() => Ok(*b),
        Some(_) => {
            let text = format!("COPY {what} must be a single one-byte character");
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text))
        }
    }
}

fn format(o: Options) -> SqlResult<CopyFormat> {
    if !o.csv && (o.quote.is_some() || o.escape.is_some()) {
        let what = if o.quote.is_some() { "quote" } else { "escape" };
        let text = format!("COPY {what} available only in CSV mode");
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
    }
    let bad = |text: &str| Err(SqlError::new(SqlState::INVALID_PARAMETER, text));
    if o.delimiter.as_deref().is_some_and(|d| matches!(d, "\n" | "\r")) {
        return bad("COPY delimiter cannot be newline or carriage return");
    }
    let delimiter = one_byte(o.delimiter, if o.csv { b',' } else { b'\t' }, "delimiter")?;
    let quote = one_byte(o.quote, b'"', "quote")?;
    let escape = one_byte(o.escape, quote, "escape")?;
    let null = o.null.unwrap_or_else(|| if o.csv { String::new() } else { "\\N".to_owned() });
    if null.contains(['\r', '\n']) {
        return bad("COPY null representation cannot use newline or carriage return");
    }
    if !o.csv
        && (delimiter == b'\\'
            || delimiter == b'.'
            || delimiter.is_ascii_lowercase()
            || delimiter.is_ascii_digit())
    {
        return bad(&format!("COPY delimiter cannot be \"{}\"", delimiter as char));
    }
    if o.csv && delimiter == quote {
        return bad("COPY delimiter and quote must be different");
    }
    let unsupported = |text: &str| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
    if null.as_bytes().contains(&delimiter) {
        return unsupported("COPY delimiter must not appear in the NULL specification");
    }
    if o.csv && null.as_bytes().contains(&quote) {
        return unsupported("CSV quote character must not appear in the NULL specification");
    }
    Ok(CopyFormat { csv: o.csv, delimiter, null, header: o.header, quote, escape })
}

/// Binds COPY.
pub(crate) fn plan(b: &mut Binder<'_>, catalog: &Catalog, s: &CopyStatement) -> SqlResult<Copy> {
    let format = s.format.clone();
    let (name, names) = match &s.source {
        CopySource::Query(q) => {
            let ast::Statement::Query(q) = &**q else {
                return Err(SqlError::unsupported("COPY of a data-modifying statement"));
            };
            let planned = query::plan(b, catalog, q, &[])?;
            let types = planned.columns.iter().map(|c| c.ty).collect();
            let names = planned.columns.into_iter().map(|c| c.name).collect();
            return Ok(Copy { direction: CopyDirection::To(planned.query), format, types, names });
        }
        CopySource::Table { name, columns } => (name, columns),
    };
    let table = name.opened(catalog, &b.path)?;
    let columns: Vec<usize> = if names.is_empty() {
        (0..table.columns.len()).collect()
    } else {
        names.iter().map(|n| scope::column(table, n)).collect::<SqlResult<_>>()?
    };
    unique_columns(table, &columns)?;
    let types = columns.iter().map(|c| table.columns[*c].ty).collect();
    let names = columns.iter().map(|c| table.columns[*c].name.clone()).collect();
    let direction = if s.from {
        let mut row = defaults(b, table, Evaluated::PerRow)?;
        for (n, c) in columns.iter().enumerate() {
            row[*c] = Expr::Column(n);
        }
        let program = Program::Insert {
            table: table.clone(),
            returning: Vec::new(),
            on_conflict: OnConflict::Fail,
        };
        CopyDirection::From { table: table.clone(), row, program: Arc::new(program) }
    } else {
        let access = Access {
            table: table.clone(),
            path: Path::Full,
            filter: None,
            lock: None,
            learned: Default::default(),
        };
        let project = columns.into_iter().map(Expr::Column).collect();
        let program = Arc::new(Program::Scan { access, group: None, project, limit: None });
        CopyDirection::To(Query {
            once: None,
            source: Source::Table { program, route: Route::All },
            finish: Vec::new(),
        })
    };
    Ok(Copy { direction, format, types, names })
}

//! Options of commands: every option is checked, none is ignored silently.
//!
//! An option that PostgreSQL does not know gets PostgreSQL's error. One that would change a
//! statement's meaning is refused with 0A000. One that only concerns how PostgreSQL stores or
//! maintains a table (`fillfactor`, `FREEZE`) has no effect here.

use crate::cursor::Cursor;
use crate::error::place;
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::{Location, Token};

/// The kind of relation that storage parameters belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    Table,
    Index,
}

/// PostgreSQL's parameters that we do not have. Those of autovacuum are recognised by their prefix.
const OTHER_PARAMETERS: [(Storage, &str); 8] = [
    (Storage::Table, "parallel_workers"),
    (Storage::Table, "toast_tuple_target"),
    (Storage::Table, "vacuum_index_cleanup"),
    (Storage::Table, "vacuum_truncate"),
    (Storage::Table, "user_catalog_table"),
    (Storage::Table, "log_autovacuum_min_duration"),
    (Storage::Index, "deduplicate_items"),
    (Storage::Index, "vacuum_cleanup_index_scale_factor"),
];

/// PostgreSQL's index access methods.
const INDEX_METHODS: [&str; 6] = ["btree", "hash", "gist", "gin", "brin", "spgist"];

fn invalid(text: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, text)
}

/// Parses `(fillfactor = 70, ...)` after WITH.
pub(crate) fn storage(c: &mut Cursor<'_>, of: Storage) -> SqlResult<()> {
    c.expect_token(&Token::LParen)?;
    let mut seen: Vec<String> = Vec::new();
    loop {
        let mut name = c.ident()?;
        if c.accept_token(&Token::Period) {
            if name != "toast" {
                return Err(invalid(format!("unrecognized parameter namespace \"{name}\"")));
            }
            name = format!("{name}.{}", c.ident()?);
        }
        let value = if c.accept_token(&Token::Eq) { value(c)? } else { "true".to_owned() };
        if seen.contains(&name) {
            return Err(invalid(format!("parameter \"{name}\" specified more than once")));
        }
        parameter(&name, &value, of)?;
        seen.push(name);
        if !c.accept_token(&Token::Comma) {
            break;
        }
    }
    c.expect_token(&Token::RParen)
}

fn parameter(name: &str, value: &str, of: Storage) -> SqlResult<()> {
    match name {
        "fillfactor" => {
            let n: i32 = value.parse().map_err(|_| {
                invalid(format!("invalid value for integer option \"fillfactor\": {value}"))
            })?;
            if !(10..=100).contains(&n) {
                return Err(invalid(format!("value {n} out of bounds for option \"fillfactor\""))
                    .detail("Valid values are between \"10\" and \"100\"."));
            }
            Ok(())
        }
        "oids" if of == Storage::Table => match value {
            "false" | "off" | "0" => Ok(()),
            _ => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "tables declared WITH OIDS are not supported",
            )),
        },
        _ if OTHER_PARAMETERS.contains(&(of, name))
            || name.starts_with("toast.")
            || of == Storage::Table && name.starts_with("autovacuum_") =>
        {
            Err(SqlError::unsupported(format!("storage parameter \"{name}\"")))
        }
        _ => Err(invalid(format!("unrecognized parameter \"{name}\""))),
    }
}

/// Reads an option's value as text.
pub(crate) fn value(c: &mut Cursor<'_>) -> SqlResult<String> {
    let minus = c.accept_token(&Token::Minus);
    let signed = minus || c.accept_token(&Token::Plus);
    match c.peek() {
        Some(Token::Number(n, _)) => {
            c.next();
            Ok(if minus { format!("-{n}") } else { n.clone() })
        }
        _ if signed => Err(c.error()),
        Some(Token::Word(_)) => c.ident(),
        _ => c.string(),
    }
}

/// Reads the name after TABLESPACE: there is one tablespace.
pub(crate) fn tablespace(c: &mut Cursor<'_>) -> SqlResult<()> {
    match c.ident()?.as_str() {
        "pg_default" => Ok(()),
        "pg_global" => Err(SqlError::unsupported("a table in tablespace pg_global")),
        name => {
            let text = format!("tablespace \"{name}\" does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_OBJECT, text))
        }
    }
}

fn no_method(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("access method \"{name}\" does not exist"))
}

fn wrong_method(name: &str, kind: &str) -> SqlError {
    SqlError::new(SqlState(*b"55000"), format!("access method \"{name}\" is not of type {kind}"))
}

/// Reads the name after a table's USING.
pub(crate) fn table_method(c: &mut Cursor<'_>) -> SqlResult<()> {
    match c.ident()?.as_str() {
        "heap" => Ok(()),
        name if INDEX_METHODS.contains(&name) => Err(wrong_method(name, "TABLE")),
        name => Err(no_method(name)),
    }
}

/// Reads the name after an index's USING.
pub(crate) fn index_method(c: &mut Cursor<'_>) -> SqlResult<()> {
    let start = c.clone();
    match c.ident()?.as_str() {
        "btree" => Ok(()),
        "heap" => Err(wrong_method("heap", "INDEX")),
        name if INDEX_METHODS.contains(&name) => {
            Err(start.unsupported("an index method other than btree"))
        }
        name => Err(no_method(name)),
    }
}

/// Reads the options after UNIQUE or PRIMARY KEY, in any order.
pub(crate) fn constraint(c: &mut Cursor<'_>) -> SqlResult<()> {
    loop {
        let start = c.clone();
        if c.accept(&["nulls", "not", "distinct"]) {
            return Err(start.unsupported("NULLS NOT DISTINCT"));
        } else if c.accept(&["using", "index", "tablespace"]) {
            tablespace(c)?;
        } else if c.accept(&["with"]) {
            storage(c, Storage::Index)?;
        } else if c.is("deferrable") || c.is("initially") && !c.accept(&["initially", "immediate"])
        {
            return Err(c.unsupported("a deferrable constraint"));
        } else if c.is("include") {
            return Err(c.unsupported("INCLUDE"));
        } else if !(c.accept(&["nulls", "distinct"]) || c.accept(&["not", "deferrable"]))
            && c.is_at(&start)
        {
            return Ok(());
        }
    }
}

/// Reads the options after a CHECK constraint of a table, in any order. Returns true for NOT VALID.
pub(crate) fn check(c: &mut Cursor<'_>) -> SqlResult<bool> {
    let mut unchecked = false;
    loop {
        let start = c.clone();
        if c.accept(&["not", "valid"]) {
            unchecked = true;
        } else if c.is("deferrable") || c.clone().accept(&["initially", "deferred"]) {
            let text = "CHECK constraints cannot be marked DEFERRABLE";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
        } else if !(c.accept(&["not", "deferrable"])
            || c.accept(&["initially", "immediate"])
            || c.accept(&["no", "inherit"]))
            && c.is_at(&start)
        {
            return Ok(unchecked);
        }
    }
}

/// One option of a parenthesised list: its name, its value, and their positions.
struct Given {
    name: String,
    value: Option<String>,
    at: Location,
    value_at: Location,
}

impl Given {
    /// Returns true if the option is on. 42601 if its value is not a boolean.
    fn is_on(&self, c: &Cursor<'_>) -> SqlResult<bool> {
        match self.value.as_deref() {
            None | Some("true" | "on" | "1") => Ok(true),
            Some("false" | "off" | "0") => Ok(false),
            Some(_) => {
                let text = format!("{} requires a Boolean value", self.name);
                Err(place(SqlError::new(SqlState::SYNTAX, text), c.sql, self.at))
            }
        }
    }
    fn unrecognized(&self, c: &Cursor<'_>, command: &str) -> SqlError {
        let text = format!("unrecognized {command} option \"{}\"", self.name);
        place(SqlError::new(SqlState::SYNTAX, text), c.sql, self.at)
    }
}

/// Parses `(name [value], ...)`.
fn list(c: &mut Cursor<'_>) -> SqlResult<Vec<Given>> {
    c.expect_token(&Token::LParen)?;
    let mut out = Vec::new();
    loop {
        let at = c.location();
        let name = c.ident()?;
        let value_at = c.location();
        let value = match c.peek() {
            Some(Token::Comma | Token::RParen) => None,
            _ => Some(value(c)?.to_ascii_lowercase()),
        };
        out.push(Given { name, value, at, value_at });
        if !c.accept_token(&Token::Comma) {
            break;
        }
    }
    c.expect_token(&Token::RParen)?;
    Ok(out)
}

/// Parses EXPLAIN's options: we print TEXT, without ANALYZE.
pub(crate) fn explain(c: &mut Cursor<'_>) -> SqlResult<()> {
    let given = list(c)?;
    for o in &given {
        match o.name.as_str() {
            "format" => match o.value.as_deref() {
                Some("text") => {}
                Some("json" | "xml" | "yaml") => {
                    return Err(place(SqlError::unsupported("EXPLAIN FORMAT"), c.sql, o.at));
                }
                value => {
                    let value = value.unwrap_or_default();
                    let text =
                        format!("unrecognized value for EXPLAIN option \"format\": \"{value}\"");
                    return Err(place(invalid(text), c.sql, o.at));
                }
            },
            "analyze" | "verbose" | "costs" | "settings" | "buffers" | "wal" | "timing"
            | "summary" => {
                o.is_on(c)?;
            }
            _ => return Err(o.unrecognized(c, "EXPLAIN")),
        }
    }
    if let Some(o) = given.iter().rfind(|o| o.name == "analyze")
        && o.is_on(c)?
    {
        return Err(place(SqlError::unsupported("EXPLAIN ANALYZE"), c.sql, o.at));
    }
    for needs in ["wal", "timing"] {
        if let Some(o) = given.iter().rfind(|o| o.name == needs)
            && o.is_on(c)?
        {
            let text = format!("EXPLAIN option {} requires ANALYZE", needs.to_uppercase());
            return Err(invalid(text));
        }
    }
    Ok(())
}

/// Parses VACUUM's options. Returns true if ANALYZE is one of them.
pub(crate) fn vacuum(c: &mut Cursor<'_>) -> SqlResult<bool> {
    let (mut analyze, mut full, mut every_page, mut parallel) = (false, false, false, false);
    for o in list(c)? {
        match o.name.as_str() {
            "analyze" => analyze = o.is_on(c)?,
            "full" => full = o.is_on(c)?,
            "disable_page_skipping" => every_page = o.is_on(c)?,
            "verbose" | "skip_locked" | "freeze" | "process_toast" | "truncate" => {
                o.is_on(c)?;
            }
            "index_cleanup" if o.value.as_deref() == Some("auto") => {}
            "index_cleanup" => {
                o.is_on(c)?;
            }
            "parallel" => {
                let workers = o.value.as_deref().and_then(|v| v.parse().ok());
                if workers.is_none_or(|n: u32| n > 1024) {
                    let text = "parallel workers for vacuum must be between 0 and 1024";
                    return Err(place(SqlError::new(SqlState::SYNTAX, text), c.sql, o.value_at));
                }
                parallel = workers.is_some_and(|n| n > 0);
            }
            _ => return Err(o.unrecognized(c, "VACUUM")),
        }
    }
    if full && parallel {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "VACUUM FULL cannot be performed in parallel",
        ));
    }
    if full && every_page {
        let text = "VACUUM option DISABLE_PAGE_SKIPPING cannot be used with FULL";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text));
    }
    Ok(analyze)
}

/// Parses ANALYZE's options.
pub(crate) fn analyze(c: &mut Cursor<'_>) -> SqlResult<()> {
    for o in list(c)? {
        match o.name.as_str() {
            "verbose" | "skip_locked" => o.is_on(c)?,
            _ => return Err(o.unrecognized(c, "ANALYZE")),
        };
    }
    Ok(())
}

//! Parses text to statements. One pass of sqlparser's tokenizer covers the whole text, so that
//! positions refer to the whole text.

use crate::cursor::Cursor;
use crate::cursors;
use crate::dialect;
use crate::error::{from_parser, place, position, syntax_at, too_deep};
use crate::lexical::{self, Lexed};
use crate::locking;
use crate::normalize::EXPRESSION_FOLLOWS;
use crate::position::{ends_value, is_word};
use crate::relation::RelationName;
use crate::utility;
use clearway_ir::Statement;
use clearway_ir::statement::Maintain;
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use std::sync::Arc;

/// Maximum nesting depth of expressions.
const RECURSION_LIMIT: usize = 128;
/// Maximum number of consecutive operators: each is a level of the tree, which is walked by
/// recursion. The tests run this on a thread with 2 MiB of stack; a worker has more.
const MAX_CHAIN: usize = 1500;

/// A parsed statement, with its source text.
#[derive(Clone, Debug)]
pub struct ParsedStatement {
    pub(crate) sql: Arc<str>,
    pub(crate) kind: Kind,
    notices: Arc<[(SqlState, String)]>,
}

impl ParsedStatement {
    /// Returns the whole source text.
    pub fn text(&self) -> &Arc<str> {
        &self.sql
    }

    /// Returns PostgreSQL's notices about the statement's text: about truncated identifiers.
    pub fn notices(&self) -> &[(SqlState, String)] {
        &self.notices
    }

    /// Returns 42P02 for a parameter in a text that has none, at the first one's position.
    pub fn no_parameter(&self) -> SqlError {
        let Lexed { tokens, .. } = tokenize(&self.sql).unwrap_or_default();
        let found = tokens.iter().find_map(|t| match &t.token {
            Token::Placeholder(name) => Some((name.as_str(), t.span.start)),
            _ => None,
        });
        let error = |name: &str| {
            SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"))
        };
        found.map_or_else(|| error("$1"), |(name, at)| place(error(name), &self.sql, at))
    }

    /// Returns true if there is nothing to do: only white space and comments.
    pub fn is_empty(&self) -> bool {
        matches!(self.kind, Kind::Plain(Statement::Empty))
    }
}

/// The kinds of parsed statements.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// SELECT, VALUES, INSERT, UPDATE, DELETE.
    Sql(Box<ast::Statement>),
    /// A statement that needs no catalog.
    Plain(Statement),
    CreateTable {
        create: Box<ast::CreateTable>,
        distribution: Option<Distributed>,
    },
    Drop {
        /// True: a table; false: an index.
        table: bool,
        names: Vec<RelationName>,
        if_exists: bool,
        concurrently: bool,
    },
    AddPrimaryKey {
        table: RelationName,
        if_exists: bool,
        name: Option<String>,
        columns: Vec<String>,
    },
    AddCheck {
        table: RelationName,
        if_exists: bool,
        name: Option<String>,
        condition: Box<ast::Expr>,
    },
    CreateIndex {
        table: RelationName,
        name: Option<String>,
        columns: Vec<String>,
        unique: bool,
        if_not_exists: bool,
        concurrently: bool,
    },
    Truncate(Vec<RelationName>),
    /// Tables, each with its column list.
    Maintain(Maintain, Vec<(RelationName, Vec<String>)>),
    Copy(CopyStatement),
    Explain(Box<Kind>),
    Prepare {
        name: String,
        types: Vec<ast::DataType>,
        statement: Box<Kind>,
    },
    Execute {
        name: String,
        args: Vec<ast::Expr>,
    },
    Declare {
        name: String,
        options: cursors::Options,
        query: Box<Kind>,
    },
}

/// DISTRIBUTED BY (columns), DISTRIBUTED RANDOMLY.
#[derive(Clone, Debug)]
pub(crate) enum Distributed {
    By(Vec<String>),
    Randomly,
}

/// COPY as parsed.
#[derive(Clone, Debug)]
pub(crate) struct CopyStatement {
    pub(crate) source: CopySource,
    pub(crate) from: bool,
    pub(crate) format: clearway_ir::statement::CopyFormat,
}

#[derive(Clone, Debug)]
pub(crate) enum CopySource {
    Table { name: RelationName, columns: Vec<String> },
    Query(Box<ast::Statement>),
}

/// Parses a text with any number of statements. A text without any gives one empty statement.
pub fn parse(sql: &str) -> SqlResult<Vec<ParsedStatement>> {
    let text: Arc<str> = sql.into();
    let Lexed { tokens, notices } = tokenize(sql)?;
    let mut notices = notices.into_iter().peekable();
    let mut out = Vec::new();
    for part in tokens.split(|t| t.token == Token::SemiColon) {
        let Some(last) = part.last() else { continue };
        check_depth(part)?;
        let kind = statement(sql, part)?;
        let own = std::iter::from_fn(|| notices.next_if(|notice| notice.at <= last.span.start));
        // 42622: name_too_long.
        let notices = own.map(|notice| (SqlState(*b"42622"), notice.text)).collect();
        out.push(ParsedStatement { sql: text.clone(), kind, notices });
    }
    if out.is_empty() {
        let kind = Kind::Plain(Statement::Empty);
        out.push(ParsedStatement { sql: text, kind, notices: Arc::default() });
    }
    Ok(out)
}

fn tokenize(sql: &str) -> SqlResult<Lexed> {
    let tokens = dialect::tokenize(sql).map_err(|e| {
        if has_unknown_escape(sql, e.location) {
            return place(SqlError::unsupported("this escape in a string"), sql, e.location);
        }
        let message = if e.message.to_lowercase().contains("unterminated") {
            "unterminated quoted string".to_owned()
        } else {
            format!("syntax error: {}", e.message)
        };
        place(SqlError::new(SqlState::SYNTAX, message), sql, e.location)
    })?;
    lexical::checked(sql, tokens)
}

/// Returns true if a string with escapes begins here and ends: then the error is about an escape of
/// it. sqlparser does not know those of bytes above 127 and of half a character.
fn has_unknown_escape(sql: &str, at: Location) -> bool {
    let begin = position(sql, at).map_or(0, |n| n as usize - 1);
    let mut rest = sql.chars().skip(begin);
    if !matches!(rest.next(), Some('E' | 'e')) || rest.next() != Some('\'') {
        return false;
    }
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                rest.next();
            }
            // Two quotes are part of the string.
            '\'' if rest.next() != Some('\'') => return true,
            _ => {}
        }
    }
    false
}

/// The depth that operators could add at one level of brackets.
#[derive(Default)]
struct Level {
    /// By the operators since the last comma: the items of a list do not nest.
    item: usize,
    /// By set operations: each operand may be a list.
    sets: usize,
}

/// Returns 54001 if operators could nest deeper than our stack allows: counts a chain of them at
/// each level, summed over the open brackets.
fn check_depth(tokens: &[TokenWithSpan]) -> SqlResult<()> {
    let (mut open, mut here) = (Vec::new(), Level::default());
    let mut total = 0;
    for t in tokens {
        let depth = depth_of(&t.token);
        total += depth;
        if total > MAX_CHAIN {
            let hint = format!("An expression may have at most {MAX_CHAIN} operators in a row.");
            return Err(too_deep().hint(hint));
        }
        if is_word(&t.token, SET_OPERATIONS) {
            here.sets += depth
        } else {
            here.item += depth
        }
        match &t.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push(std::mem::take(&mut here));
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                total -= here.item + here.sets;
                here = open.pop().unwrap_or_default();
            }
            Token::Comma => total -= std::mem::take(&mut here.item),
            _ => {}
        }
    }
    Ok(())
}

/// Returns how much the token adds to the depth. Operators between operands are bound by a loop and
/// use less stack than others.
fn depth_of(token: &Token) -> usize {
    use Token as T;
    let chains = match token {
        T::Word(_) => is_word(token, &["and", "or"]),
        T::Plus | T::Minus | T::Mul | T::Div | T::Mod | T::StringConcat => true,
        T::Eq | T::Neq | T::Lt | T::Gt | T::LtEq | T::GtEq => true,
        _ => false,
    };
    match (chains, nests(token)) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => 0,
    }
}

/// Set operations. MINUS is sqlparser's.
const SET_OPERATIONS: &[&str] = &["union", "except", "intersect", "minus"];

/// Returns true if the token makes the tree one level deeper: an operator, a keyword like one, or
/// an array's bracket. That includes constructs that only sqlparser accepts: they are refused after
/// parsing, with a tree as deep as the others'.
fn nests(token: &Token) -> bool {
    const WORDS: &[&str] = &[
        "and", "or", "not", "is", "isnull", "notnull", "at", "collate", "in", "like", "ilike",
        "similar", "rlike", "regexp", "between", "overlaps", "member", "xor", "operator", "pivot",
        "unpivot",
    ];
    match token {
        Token::Word(_) => is_word(token, WORDS) || is_word(token, SET_OPERATIONS),
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::Placeholder(_)
        | Token::Period
        | Token::Comma
        | Token::LParen
        | Token::RParen
        | Token::RBracket
        | Token::RBrace => false,
        _ => true,
    }
}

/// Parses one statement.
pub(crate) fn statement(sql: &str, tokens: &[TokenWithSpan]) -> SqlResult<Kind> {
    let mut cursor = Cursor::new(sql, tokens);
    if let Some(kind) = utility::parse(&mut cursor)? {
        cursor.expect_end()?;
        return Ok(kind);
    }
    let first = cursor.peek_word().unwrap_or_default();
    if first == "table" {
        return Err(cursor.unsupported("TABLE"));
    }
    let tokens = &locking::marked(&Cursor::new(sql, &without_only(&cursor, tokens)?))[..];
    let known = matches!(
        first.as_str(),
        "select" | "insert" | "update" | "delete" | "values" | "with" | "table"
    );
    if known || cursor.peek() == Some(&Token::LParen) {
        return Ok(Kind::Sql(Box::new(sql_statement(sql, tokens)?)));
    }
    if is_command(&first) {
        return Err(cursor.unsupported(&command_name(&cursor)));
    }
    Err(cursor.error())
}

/// Refuses constructs that PostgreSQL knows but that sqlparser would report as syntax errors.
fn refuse(c: &Cursor<'_>) -> SqlResult<()> {
    const CONSTRUCTS: &[&[&str]] = &[
        &["overriding", "system", "value"],
        &["overriding", "user", "value"],
        &["where", "current", "of"],
        &["between", "symmetric"],
        &["between", "asymmetric"],
    ];
    if let Some(words) = CONSTRUCTS.iter().find(|words| c.clone().accept(words)) {
        return Err(c.unsupported(&words.join(" ").to_uppercase()));
    }
    let next = c.rest().get(1).map(|t| &t.token);
    if c.is("name") && next.is_some_and(|t| matches!(t, Token::SingleQuotedString(_))) {
        return Err(c.unsupported("type name before a string"));
    }
    let mut key = c.clone();
    if !key.accept(&["on", "conflict"]) || key.peek() != Some(&Token::LParen) {
        return Ok(());
    }
    let (start, mut columns) = (key.clone(), key.clone());
    match (key.parenthesised(), columns.columns()) {
        (Ok([_, ..]), Err(_)) => Err(start.unsupported("ON CONFLICT on an expression")),
        (Ok(_), Ok(_)) if key.is("where") => Err(key.unsupported("a condition of ON CONFLICT")),
        _ => Ok(()),
    }
}

/// Returns true if these tokens are the end of a value and NOT NULL. sqlparser takes that for IS
/// NOT NULL, as in SQLite; PostgreSQL has only NOTNULL.
fn is_postfix_not_null(tokens: &[TokenWithSpan]) -> bool {
    let [value, not, null, ..] = tokens else { return false };
    if !is_word(&not.token, &["not"]) || !is_word(&null.token, &["null"]) {
        return false;
    }
    match &value.token {
        // A quoted word is none of these.
        Token::Word(_) => !is_word(&value.token, EXPRESSION_FOLLOWS),
        token => ends_value(token),
    }
}

/// Returns the tokens without ONLY before a table's name, since no table has children.
fn without_only(cursor: &Cursor<'_>, tokens: &[TokenWithSpan]) -> SqlResult<Vec<TokenWithSpan>> {
    let (mut c, mut out) = (cursor.clone(), Vec::with_capacity(tokens.len()));
    let mut before_table = false;
    for (at, token) in tokens.iter().enumerate() {
        refuse(&c)?;
        if at > 0 && is_postfix_not_null(&tokens[at - 1..]) {
            return Err(c.error());
        }
        let only = before_table && c.is("only");
        if only && c.rest().get(1).is_some_and(|t| t.token == Token::LParen) {
            return Err(c.unsupported("ONLY with parentheses"));
        }
        before_table = c.is("from") || c.is("update");
        c.next();
        if !only {
            out.push(token.clone());
        }
    }
    Ok(out)
}

/// Words that begin PostgreSQL statements that we do not have.
fn is_command(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "alter", "call", "cluster", "comment", "create", "do", "drop", "grant", "import", "listen",
        "load", "lock", "merge", "notify", "reassign", "refresh", "reindex", "revoke", "security",
    ];
    WORDS.contains(&word)
}

/// Returns the leading keywords in upper case, such as `CREATE TYPE` or `LISTEN`.
fn command_name(cursor: &Cursor<'_>) -> String {
    let mut cursor = cursor.clone();
    let first = cursor.ident().unwrap_or_default();
    let two =
        matches!(first.as_str(), "create" | "alter" | "drop" | "comment" | "import" | "refresh");
    match cursor.peek_word().filter(|_| two) {
        Some(second) => format!("{first} {second}").to_uppercase(),
        None => first.to_uppercase(),
    }
}

/// Parses with sqlparser. All tokens must be used.
pub(crate) fn sql_statement(sql: &str, tokens: &[TokenWithSpan]) -> SqlResult<ast::Statement> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(tokens.to_vec());
    let parsed = parser.parse_statement().map_err(|e| from_parser(sql, &e, tokens))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(syntax_at(sql, Some(&next)));
    }
    Ok(parsed)
}

/// Parses expressions separated by commas.
pub(crate) fn expressions(sql: &str, tokens: &[TokenWithSpan]) -> SqlResult<Vec<ast::Expr>> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(tokens.to_vec());
    let parsed = parser
        .parse_comma_separated(Parser::parse_expr)
        .map_err(|e| from_parser(sql, &e, tokens))?;
    at_end(sql, &parser)?;
    Ok(parsed)
}

/// Parses type names separated by commas.
pub(crate) fn data_types(sql: &str, tokens: &[TokenWithSpan]) -> SqlResult<Vec<ast::DataType>> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens.to_vec());
    let parsed = parser
        .parse_comma_separated(Parser::parse_data_type)
        .map_err(|e| from_parser(sql, &e, tokens))?;
    at_end(sql, &parser)?;
    Ok(parsed)
}

/// Returns an error if the parser has not read everything.
fn at_end(sql: &str, parser: &Parser<'_>) -> SqlResult<()> {
    let next = parser.peek_token();
    if next.token == Token::EOF { Ok(()) } else { Err(syntax_at(sql, Some(&next))) }
}

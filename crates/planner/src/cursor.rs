//! Reads a statement token by token, for the commands that we parse ourselves.

use crate::error::{place, syntax_at};
use crate::relation::{RelationName, cross_database};
use clearway_types::{SqlError, SqlResult};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

/// A position in a statement's tokens (without white space).
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    pub(crate) sql: &'a str,
    tokens: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(sql: &'a str, tokens: &'a [TokenWithSpan]) -> Self {
        Self { sql, tokens, at: 0 }
    }
    pub(crate) fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|t| &t.token)
    }
    pub(crate) fn next(&mut self) -> Option<&'a Token> {
        let t = self.peek()?;
        self.at += 1;
        Some(t)
    }
    /// Returns the remaining tokens.
    pub(crate) fn rest(&self) -> &'a [TokenWithSpan] {
        &self.tokens[self.at.min(self.tokens.len())..]
    }
    /// Skips to the end.
    pub(crate) fn finish(&mut self) {
        self.at = self.tokens.len();
    }
    /// Returns where the next token begins; line 0 at the end.
    pub(crate) fn location(&self) -> Location {
        self.tokens.get(self.at).map_or(Location { line: 0, column: 0 }, |t| t.span.start)
    }
    /// Returns true if both are at the same token of the same text.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self.at == other.at
    }
    pub(crate) fn done(&self) -> bool {
        self.at >= self.tokens.len()
    }
    /// Returns 42601 at the next token.
    pub(crate) fn error(&self) -> SqlError {
        syntax_at(self.sql, self.tokens.get(self.at))
    }
    /// Returns 0A000 at the next token.
    pub(crate) fn unsupported(&self, what: &str) -> SqlError {
        let e = SqlError::unsupported(what);
        match self.tokens.get(self.at) {
            Some(t) => place(e, self.sql, t.span.start),
            None => e,
        }
    }
    /// Returns the next word in lower case, unless it is quoted.
    pub(crate) fn peek_word(&self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(w)) if w.quote_style.is_none() => Some(w.value.to_ascii_lowercase()),
            _ => None,
        }
    }
    pub(crate) fn is(&self, word: &str) -> bool {
        let Some(Token::Word(w)) = self.peek() else { return false };
        w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word)
    }
    /// Consumes the words if all of them come next.
    pub(crate) fn accept(&mut self, words: &[&str]) -> bool {
        let start = self.at;
        for word in words {
            if !self.is(word) {
                self.at = start;
                return false;
            }
            self.at += 1;
        }
        true
    }
    pub(crate) fn expect(&mut self, words: &[&str]) -> SqlResult<()> {
        for word in words {
            if !self.accept(&[word]) {
                return Err(self.error());
            }
        }
        Ok(())
    }
    pub(crate) fn accept_token(&mut self, token: &Token) -> bool {
        let yes = self.peek() == Some(token);
        self.at += usize::from(yes);
        yes
    }
    pub(crate) fn expect_token(&mut self, token: &Token) -> SqlResult<()> {
        if self.accept_token(token) { Ok(()) } else { Err(self.error()) }
    }
    pub(crate) fn expect_end(&self) -> SqlResult<()> {
        if self.done() { Ok(()) } else { Err(self.error()) }
    }
    /// Reads an identifier and folds it.
    pub(crate) fn ident(&mut self) -> SqlResult<String> {
        let Some(Token::Word(w)) = self.peek() else { return Err(self.error()) };
        self.at += 1;
        Ok(if w.quote_style.is_some() { w.value.clone() } else { w.value.to_ascii_lowercase() })
    }
    /// Reads a table's or index's name, optionally qualified by a schema.
    pub(crate) fn name(&mut self) -> SqlResult<RelationName> {
        let first = self.ident()?;
        if !self.accept_token(&Token::Period) {
            return Ok(RelationName { schema: None, name: first });
        }
        let name = self.ident()?;
        if self.accept_token(&Token::Period) {
            return Err(cross_database(&format!("{first}.{name}.{}", self.ident()?)));
        }
        Ok(RelationName { schema: Some(first), name })
    }
    /// Reads names separated by commas.
    pub(crate) fn names(&mut self) -> SqlResult<Vec<RelationName>> {
        let mut names = vec![self.name()?];
        while self.accept_token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }
    /// Reads `(a, b)`.
    pub(crate) fn columns(&mut self) -> SqlResult<Vec<String>> {
        self.expect_token(&Token::LParen)?;
        let mut names = vec![self.ident()?];
        while self.accept_token(&Token::Comma) {
            names.push(self.ident()?);
        }
        self.expect_token(&Token::RParen)?;
        Ok(names)
    }
    /// Reads a quoted string.
    pub(crate) fn string(&mut self) -> SqlResult<String> {
        match self.peek() {
            Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => {
                self.at += 1;
                Ok(s.clone())
            }
            _ => Err(self.error()),
        }
    }
    /// Reads everything in the next parentheses.
    pub(crate) fn parenthesised(&mut self) -> SqlResult<&'a [TokenWithSpan]> {
        self.expect_token(&Token::LParen)?;
        let start = self.at;
        let mut depth = 1;
        while let Some(t) = self.next() {
            match t {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(&self.tokens[start..self.at - 1]);
            }
        }
        Err(self.error())
    }
}

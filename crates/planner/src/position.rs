//! Positions of errors in a statement's text.
//!
//! PostgreSQL points to the operator if no operator matches the operands, and to a literal that is
//! invalid for the required type. It gives no position for a value that is out of range when it is
//! computed.

use crate::bind::{Binder, Typed};
use crate::dialect::tokenize;
use crate::error::{place, position};
use crate::lexical::split_signs;
use clearway_types::{SqlError, SqlResult, SqlState, SqlType};
use sqlparser::ast::{self, Spanned};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

/// Returns true if the error concerns a value: class 22, data exceptions.
pub(crate) fn of_value(e: &SqlError) -> bool {
    e.state().0.starts_with(b"22")
}

/// Returns true if the text supplies the expression's value, so that an error can point to it.
pub(crate) fn is_undecided(t: &Typed) -> bool {
    t.ty == SqlType::Unknown
}

impl Binder<'_> {
    /// Puts an error at the expression's position, unless it concerns a value: then the text is not
    /// at fault.
    pub(crate) fn at<T>(&self, e: &ast::Expr, r: SqlResult<T>) -> SqlResult<T> {
        r.map_err(|err| if of_value(&err) { err } else { self.placed(err, e) })
    }

    /// Puts any error at the position of this literal or parameter.
    pub(crate) fn at_literal<T>(&self, e: &ast::Expr, r: SqlResult<T>) -> SqlResult<T> {
        r.map_err(|err| self.placed(err, e))
    }

    /// Returns an expression's position.
    pub(crate) fn position(&self, e: &ast::Expr) -> Option<u32> {
        position(self.sql, self.start(e))
    }

    fn placed(&self, err: SqlError, e: &ast::Expr) -> SqlError {
        if err.position().is_some() { err } else { place(err, self.sql, self.start(e)) }
    }

    /// Returns where the expression's text begins for PostgreSQL: enclosing parentheses do not
    /// count.
    fn start(&self, e: &ast::Expr) -> Location {
        match e {
            ast::Expr::UnaryOp { expr, .. } => {
                self.before(self.start(expr)).unwrap_or(e.span().start)
            }
            ast::Expr::Nested(inner) => self.start(inner),
            // A chain of operators is as deep as it is long.
            ast::Expr::BinaryOp { left, .. } => {
                let mut first = left;
                while let ast::Expr::BinaryOp { left, .. } = &**first {
                    first = left;
                }
                self.start(first)
            }
            _ => e.span().start,
        }
    }

    /// Puts an operator's error at the first undecided operand if that one's value is invalid, or
    /// if it is a parameter of another type; otherwise at the operator.
    pub(crate) fn of_operator<T>(
        &self,
        r: SqlResult<T>,
        operands: &[(bool, &ast::Expr)],
        is_operator: impl Fn(&Token) -> bool,
    ) -> SqlResult<T> {
        r.map_err(|err| {
            if err.position().is_some() {
                return err;
            }
            if of_value(&err) || err.state() == SqlState(*b"42P08") {
                let undecided = operands.iter().find(|(undecided, _)| *undecided);
                return undecided.map_or(err.clone(), |(_, e)| self.placed(err, e));
            }
            let left = operands.first().map(|(_, e)| end(e));
            match left.and_then(|end| self.after(end, is_operator)) {
                Some(at) => place(err, self.sql, at),
                None => err,
            }
        })
    }

    /// Records where a column was named outside aggregates and GROUP BY.
    pub(crate) fn saw(&mut self, column: usize, at: Location) {
        if self.mode == crate::bind::Aggregates::Allowed {
            self.seen.push((column, at));
        }
    }

    /// Puts the error at the first position where the column was named.
    pub(crate) fn where_seen(&self, err: SqlError, column: usize) -> SqlError {
        match self.seen.iter().find(|(c, _)| *c == column) {
            Some((_, at)) => place(err, self.sql, *at),
            None => err,
        }
    }

    /// Puts an error about an unknown type or its length at the type's name in a cast.
    pub(crate) fn of_type<T>(&self, ty: &ast::DataType, r: SqlResult<T>) -> SqlResult<T> {
        r.map_err(|err| match ty {
            ast::DataType::Custom(name, _)
                if [SqlState::UNDEFINED_OBJECT, SqlState::INVALID_PARAMETER]
                    .contains(&err.state()) =>
            {
                place(err, self.sql, name.span().start)
            }
            _ => err,
        })
    }

    /// Returns the first token of this kind after the position that is not inside parentheses
    /// opened after it.
    pub(crate) fn after(
        &self,
        place: Location,
        wanted: impl Fn(&Token) -> bool,
    ) -> Option<Location> {
        if place.line == 0 {
            return None;
        }
        // Parentheses that close here began before the position.
        let mut depth = 0;
        for t in self.tokens().iter().filter(|t| t.span.start >= place) {
            match &t.token {
                token if depth == 0 && wanted(token) => return Some(t.span.start),
                Token::LParen => depth += 1,
                Token::RParen if depth > 0 => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// Returns the token before the position, ignoring open parentheses.
    pub(crate) fn before(&self, place: Location) -> Option<Location> {
        let tokens = self.tokens();
        let before =
            tokens.iter().rev().filter(|t| t.span.start < place && t.token != Token::LParen);
        before.map(|t| t.span.start).next()
    }

    /// Returns the last parenthesis that opens before the position.
    pub(crate) fn parenthesis_before(&self, place: Location) -> Option<Location> {
        let tokens = self.tokens();
        let mut before =
            tokens.iter().rev().filter(|t| t.span.start < place && t.token == Token::LParen);
        before.next().map(|t| t.span.start)
    }

    /// Puts an error at the operator before an operand.
    pub(crate) fn of_prefix<T>(&self, e: &ast::Expr, r: SqlResult<T>) -> SqlResult<T> {
        r.map_err(|err| {
            if err.position().is_some() || of_value(&err) {
                return err;
            }
            let mut first = Some(self.start(e));
            // The words of a literal's type precede it.
            if let ast::Expr::TypedString(t) = e {
                let words = t.data_type.to_string().split_whitespace().count();
                first = (0..words).try_fold(self.start(e), |at, _| self.before(at));
            }
            match first.and_then(|at| self.before(at)) {
                Some(at) => place(err, self.sql, at),
                None => err,
            }
        })
    }

    /// Puts an error at the call whose first argument is this expression.
    pub(crate) fn of_call<T>(&self, e: &ast::Expr, r: SqlResult<T>) -> SqlResult<T> {
        r.map_err(|err| {
            let (place_of, start) = (|at| place(err.clone(), self.sql, at), self.start(e));
            // The name, the parenthesis, the argument.
            let before: Vec<Location> = self
                .tokens()
                .iter()
                .filter(|t| t.span.start < start)
                .map(|t| t.span.start)
                .collect();
            match before[..] {
                [.., call, _] if !of_value(&err) => place_of(call),
                _ => err,
            }
        })
    }

    /// Returns the text's tokens. Used for errors only.
    fn tokens(&self) -> Vec<TokenWithSpan> {
        let tokens = tokenize(self.sql).unwrap_or_default();
        let mut out = Vec::with_capacity(tokens.len());
        for mut t in tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))) {
            let signs = split_signs(&mut t);
            out.push(t);
            out.extend(signs);
        }
        out
    }

    /// Puts the error of a column's type where the type is written.
    pub(crate) fn type_error(&self, e: SqlError, def: &ast::ColumnDef) -> SqlError {
        let name = def.name.span.end;
        match self
            .tokens()
            .iter()
            .find(|t| t.span.start >= name)
            .and_then(|t| position(self.sql, t.span.start))
        {
            Some(at) if e.position().is_none() => e.at(at),
            _ => e,
        }
    }
}

/// Returns where the expression's last part ends.
fn end(e: &ast::Expr) -> Location {
    match e {
        ast::Expr::BinaryOp { right, .. } => end(right),
        ast::Expr::Cast { expr, .. } | ast::Expr::UnaryOp { expr, .. } => end(expr),
        ast::Expr::Nested(inner) => end(inner),
        _ => e.span().end,
    }
}

/// Returns true if the token ends a value and is not a word.
pub(crate) fn ends_value(token: &Token) -> bool {
    matches!(
        token,
        Token::Number(..)
            | Token::Placeholder(_)
            | Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::RParen
    )
}

/// Returns true if the token is one of these words.
pub(crate) fn is_word(token: &Token, words: &[&str]) -> bool {
    let Token::Word(w) = token else { return false };
    w.quote_style.is_none() && words.iter().any(|word| w.value.eq_ignore_ascii_case(word))
}

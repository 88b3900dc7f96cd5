//! The tokens of a text, by sqlparser's tokenizer.

use sqlparser::dialect::{Dialect, PostgreSqlDialect};
use sqlparser::tokenizer::{TokenWithSpan, Tokenizer, TokenizerError};
use std::any::TypeId;

/// Returns the tokens of a text, white space and comments included.
pub(crate) fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    Tokenizer::new(&Lexical(PostgreSqlDialect {}), sql).tokenize_with_location()
}

/// PostgreSQL's tokens, with one difference to sqlparser's: no operator contains a slash, so a
/// comment directly after an operator is a comment, as in PostgreSQL. sqlparser has tokens of its
/// own for `|/` and `||/`, so a comment directly after `||` is still an error.
///
/// Forwards what the tokenizer asks for; the parser uses sqlparser's dialect.
#[derive(Debug)]
struct Lexical(PostgreSqlDialect);

impl Dialect for Lexical {
    fn dialect(&self) -> TypeId {
        self.0.dialect()
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        ch != '/' && self.0.is_custom_operator_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.0.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.0.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.0.is_identifier_part(ch)
    }

    fn supports_geometric_types(&self) -> bool {
        self.0.supports_geometric_types()
    }

    fn supports_nested_comments(&self) -> bool {
        self.0.supports_nested_comments()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        self.0.supports_numeric_literal_underscores()
    }

    fn supports_string_escape_constant(&self) -> bool {
        self.0.supports_string_escape_constant()
    }

    fn supports_unicode_string_literal(&self) -> bool {
        self.0.supports_unicode_string_literal()
    }
}

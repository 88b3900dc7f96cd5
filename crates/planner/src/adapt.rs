//! Adapts a text's tokens to sqlparser, which reads some of them differently from PostgreSQL.
//!
//! `TRIM (LEADING a, b)` and `TRIM (FROM a)` become calls of `ltrim` and its siblings: sqlparser
//! forgets LEADING before a comma, and requires characters before FROM. `top`, `directory` and
//! `local` are quoted where sqlparser takes them for keywords: PostgreSQL does not reserve them. So
//! are words that PostgreSQL allows as an alias without AS.

use crate::position::{ends_value, is_word};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// Maximum depth of parentheses inside those of TRIM. The parser's limit is not higher.
const MAX_DEPTH: usize = 128;

/// Words that sqlparser does not take for an alias without AS, and that begin no clause of
/// PostgreSQL's which could follow a value.
const ALIASES: &[&str] =
    &["top", "view", "lateral", "distribute", "sort", "cluster", "exclude", "minus"];

/// What may follow the alias of a select list's item.
const AFTER_ALIAS: &[&str] = &[
    "from",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "fetch",
    "for",
    "union",
    "intersect",
    "except",
];

/// Returns the tokens with the same meaning for sqlparser.
pub(crate) fn adapted(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const WORDS: &[&str] = &["trim", "directory", "local"];
    if !tokens.iter().any(|t| is_word(&t.token, WORDS) || is_word(&t.token, ALIASES)) {
        return tokens;
    }
    let (mut out, mut at) = (Vec::with_capacity(tokens.len()), 0);
    while let Some(token) = tokens.get(at) {
        match trim(&tokens[at..]) {
            Some((name, used)) => {
                out.push(TokenWithSpan { token: quoted(name), span: token.span });
                out.extend(tokens.get(at + 1).cloned());
                at += used;
            }
            None => {
                let name = name(&tokens[..at], &tokens[at..]);
                let token = name.map_or_else(|| token.token.clone(), quoted);
                out.push(TokenWithSpan { token, span: tokens[at].span });
                at += 1;
            }
        }
    }
    out
}

fn quoted(name: &str) -> Token {
    let (value, quote_style) = (name.to_ascii_lowercase(), Some('"'));
    Token::Word(Word { value, quote_style, keyword: Keyword::NoKeyword })
}

/// Returns the next token if it is a name, and sqlparser would take it for a keyword.
fn name<'t>(before: &[TokenWithSpan], tokens: &'t [TokenWithSpan]) -> Option<&'t str> {
    let Token::Word(word) = &tokens.first()?.token else { return None };
    let (earlier, last) = match before {
        [.., earlier, last] => (Some(earlier), last),
        [last] => (None, last),
        [] => return None,
    };
    let next = tokens.get(1).map(|t| &t.token);
    if is_alias(&last.token, &tokens[0].token, next) {
        return Some(&word.value);
    }
    let selected = is_word(&last.token, &["select"])
        || is_word(&last.token, &["distinct", "all"])
            && earlier.is_some_and(|t| is_word(&t.token, &["select"]));
    let is_name = match &tokens[0].token {
        // TOP 5 and TOP (5) are refused by their name.
        top if is_word(top, &["top"]) => {
            selected && !matches!(next, Some(Token::Number(..) | Token::LParen))
        }
        other => is_word(other, &["directory", "local"]) && is_word(&last.token, &["into"]),
    };
    is_name.then_some(word.value.as_str())
}

/// Returns true if the word is the alias of the value before it. To quote a word that names
/// something else here has no effect, except after words of statements: DROP VIEW.
fn is_alias(last: &Token, word: &Token, next: Option<&Token>) -> bool {
    let after_value = match last {
        Token::Word(_) => !is_word(last, &["create", "drop", "alter"]),
        _ => ends_value(last),
    };
    let ends_item = match next {
        None | Some(Token::Comma | Token::RParen | Token::SemiColon) => true,
        Some(token) => is_word(token, AFTER_ALIAS),
    };
    after_value && ends_item && is_word(word, ALIASES)
}

/// Returns the function that a TRIM with a plain list calls, and the number of tokens before the
/// list.
fn trim(tokens: &[TokenWithSpan]) -> Option<(&'static str, usize)> {
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|t| is_word(&t.token, &[word]));
    if !is(0, "trim") || tokens.get(1)?.token != Token::LParen {
        return None;
    }
    let (name, first) = match () {
        _ if is(2, "leading") => ("ltrim", 3),
        _ if is(2, "trailing") => ("rtrim", 3),
        _ if is(2, "both") => ("btrim", 3),
        _ => ("btrim", 2),
    };
    if is(first, "from") {
        return Some((name, first + 1));
    }
    (first == 3 && is_list(&tokens[first..])).then_some((name, first))
}

/// Returns true if there is a comma before the parenthesis closes, and no FROM before it.
fn is_list(tokens: &[TokenWithSpan]) -> bool {
    let mut depth = 0;
    for t in tokens {
        match &t.token {
            Token::Comma if depth == 0 => return true,
            token if depth == 0 && is_word(token, &["from"]) => return false,
            Token::LParen if depth == MAX_DEPTH => return false,
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return false,
            Token::RParen => depth -= 1,
            _ => {}
        }
    }
    false
}

//! PostgreSQL's rules for numbers, strings and names that sqlparser's tokenizer does not implement.
//!
//! A number may not be followed directly by a name (`123abc`, `1_000`, `0x1F` and `1e` are errors).
//! Strings separated by a line break are one string. On one line they are an error, where sqlparser
//! would take the second for an alias. `ISNULL` becomes `IS NULL`. A long identifier is truncated,
//! with a notice. An operator such as `>-` or `-+` is two: the second is a sign.

use crate::adapt::adapted;
use crate::error::{place, syntax_at};
use clearway_ir::value::MAX_NAME;
use clearway_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Whitespace, Word};

/// Maximum number of notices about a text. Further identifiers are truncated without a notice.
const MAX_NOTICES: usize = 100;

/// The significant tokens of a text.
#[derive(Default)]
pub(crate) struct Lexed {
    pub(crate) tokens: Vec<TokenWithSpan>,
    pub(crate) notices: Vec<LexicalNotice>,
}

/// A notice about a token.
pub(crate) struct LexicalNotice {
    /// Where the token begins.
    pub(crate) at: Location,
    pub(crate) text: String,
}

/// Returns the significant tokens, or 42601.
pub(crate) fn checked(sql: &str, tokens: Vec<TokenWithSpan>) -> SqlResult<Lexed> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut notices = Vec::new();
    let mut gap = Gap::default();
    for mut t in tokens {
        if let Token::Whitespace(space) = &t.token {
            gap.take(space);
            continue;
        }
        if t.token == Token::EOF {
            continue;
        }
        if let Token::Word(word) = &mut t.token
            && let Some(text) = truncate(word)
            && notices.len() < MAX_NOTICES
        {
            notices.push(LexicalNotice { at: t.span.start, text });
        }
        let signs = split_signs(&mut t);
        let last = out.last_mut();
        match (last, &t.token) {
            (Some(last), Token::SingleQuotedString(more))
                if is_string(&last.token) && gap.joins =>
            {
                join(sql, last, more)?;
                last.span.end = t.span.end;
            }
            (Some(last), token) if is_string(&last.token) && is_string(token) => {
                return Err(syntax_at(sql, Some(&t)));
            }
            (Some(last), token)
                if matches!(last.token, Token::Number(..)) && gap.empty && begins_name(token) =>
            {
                return Err(junk(sql, last, "numeric literal"));
            }
            // Braces enclose calls for sqlparser. PostgreSQL has none.
            (_, Token::LBrace | Token::RBrace) => return Err(syntax_at(sql, Some(&t))),
            // For sqlparser this is another spelling of `=`.
            (_, Token::DoubleEq) => {
                let token = Token::CustomBinaryOperator("==".to_owned());
                out.push(TokenWithSpan { token, span: t.span });
            }
            // The parser knows only the long form.
            (_, Token::Word(w))
                if w.quote_style.is_none() && w.value.eq_ignore_ascii_case("isnull") =>
            {
                out.push(TokenWithSpan { token: Token::make_keyword("IS"), span: t.span });
                out.push(TokenWithSpan { token: Token::make_keyword("NULL"), span: t.span });
            }
            _ => {
                check_number(sql, &t)?;
                out.push(t);
            }
        }
        out.extend(signs);
        gap = Gap { empty: true, joins: false, block: false };
    }
    Ok(Lexed { tokens: adapted(out), notices })
}

/// Removes the signs after a comparison or a minus, and returns them as tokens. Other operators
/// with signs remain as they are, and so does one in which a comment of one line begins: they are
/// refused by name.
///
/// Source: PostgreSQL's `scan.l`, the rule of `operator`.
pub(crate) fn split_signs(t: &mut TokenWithSpan) -> Vec<TokenWithSpan> {
    let Token::CustomBinaryOperator(operator) = &t.token else { return Vec::new() };
    let base = match operator.trim_end_matches(['+', '-']) {
        "" => &operator[..1],
        base => base,
    };
    let token = match base {
        "-" => Token::Minus,
        ">" => Token::Gt,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        _ => return Vec::new(),
    };
    let signs = &operator[base.len()..];
    if signs.contains("--") {
        return Vec::new();
    }
    let mut end = t.span.start;
    end.column += base.len() as u64;
    let signs = signs.chars().map(|sign| {
        let start = end;
        end.column += 1;
        let token = if sign == '-' { Token::Minus } else { Token::Plus };
        TokenWithSpan { token, span: Span { start, end } }
    });
    let signs = signs.collect();
    t.span.end.column = t.span.start.column + base.len() as u64;
    t.token = token;
    signs
}

/// Truncates an identifier to PostgreSQL's limit. Returns the text of the notice about it.
fn truncate(word: &mut Word) -> Option<String> {
    if word.value.len() <= MAX_NAME {
        return None;
    }
    if word.quote_style.is_none() {
        word.value.make_ascii_lowercase();
    }
    let whole = word.value.clone();
    word.value.truncate(whole.floor_char_boundary(MAX_NAME));
    word.value.shrink_to_fit();
    Some(format!("identifier \"{whole}\" will be truncated to \"{}\"", word.value))
}

/// The white space between two tokens.
#[derive(Default)]
struct Gap {
    empty: bool,
    /// It contains a line break, preceded only by blanks and comments that end with a line break.
    joins: bool,
    block: bool,
}

impl Gap {
    fn take(&mut self, space: &Whitespace) {
        self.empty = false;
        match space {
            Whitespace::Newline | Whitespace::SingleLineComment { .. } => self.joins = !self.block,
            Whitespace::MultiLineComment(_) => (self.block, self.joins) = (true, false),
            Whitespace::Space | Whitespace::Tab => {}
        }
    }
}

fn is_string(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
    )
}

/// Appends a string's continuation, which uses the escapes of its beginning.
fn join(sql: &str, first: &mut TokenWithSpan, more: &str) -> SqlResult<()> {
    match &mut first.token {
        Token::SingleQuotedString(s) | Token::NationalStringLiteral(s) => s.push_str(more),
        Token::EscapedStringLiteral(s) | Token::UnicodeStringLiteral(s) if !more.contains('\\') => {
            s.push_str(more)
        }
        _ => {
            let e = SqlError::unsupported("an escape in the continuation of a string");
            return Err(place(e, sql, first.span.start));
        }
    }
    Ok(())
}

/// Returns true if the token's first character may begin a name.
fn begins_name(token: &Token) -> bool {
    match token {
        Token::Word(w) => w.quote_style.is_none(),
        token => is_string(token) && !matches!(token, Token::SingleQuotedString(_)),
    }
}

fn check_number(sql: &str, t: &TokenWithSpan) -> SqlResult<()> {
    let width = t.span.end.column.saturating_sub(t.span.start.column) as usize;
    match &t.token {
        Token::Number(text, long) if *long || text.contains('_') => {
            Err(junk(sql, t, "numeric literal"))
        }
        // `0x1F` is as long as `X'1F` without the closing quote.
        Token::HexStringLiteral(text) if width == text.chars().count() + 2 => {
            Err(junk(sql, t, "numeric literal"))
        }
        Token::Placeholder(name) => {
            match name.strip_prefix('$').map(|n| n.trim_start_matches(|c: char| c.is_ascii_digit()))
            {
                Some("") if name.len() > 1 => Ok(()),
                Some(rest) if rest.len() + 1 < name.len() => Err(junk(sql, t, "parameter")),
                _ => Err(syntax_at(sql, Some(t))),
            }
        }
        _ => Ok(()),
    }
}

fn junk(sql: &str, t: &TokenWithSpan, after: &str) -> SqlError {
    let e = SqlError::new(
        SqlState::SYNTAX,
        format!("trailing junk after {after} at or near \"{}\"", t.token),
    );
    place(e, sql, t.span.start)
}

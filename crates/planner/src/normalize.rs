//! Replaces literals in the text, for the simple protocol's plan cache.
//!
//! One pass over the bytes. Numbers and plain strings become `$n`; a minus that can only be a sign
//! belongs to its number. A literal that is not a value (ordinals of ORDER BY and GROUP BY, lengths
//! of types, typed strings) stays in the key. The key's text is parsed once. A text that this
//! tokenizer misreads fails to parse or plan, and is then planned as it is. So is a text with an
//! identifier that is truncated: each parse of it has a notice.

use crate::literal::number;
use clearway_ir::value::MAX_NAME;
use clearway_types::{Datum, SqlType};

/// Longer texts are not cached.
const MAX_TEXT: usize = 4096;
/// Texts with more literals, such as long INSERTs of values, are not cached either.
const MAX_LITERALS: usize = 64;

/// A text without its literals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Normalized {
    /// The text with `$n` for literals, then their types: equal keys have equal plans.
    pub key: String,
    /// Length of the text in `key`.
    pub text_len: usize,
    /// The literals: Int4, Int8, Numeric, or Text for a quoted string of undecided type.
    pub literals: Vec<Datum>,
}

impl Normalized {
    /// Returns the text to parse.
    pub fn text(&self) -> &str {
        &self.key[..self.text_len]
    }
    /// Returns the literals' types: Unknown for quoted strings.
    pub fn types(&self) -> Vec<SqlType> {
        self.literals
            .iter()
            .map(|d| match d {
                Datum::Int4(_) => SqlType::Int4,
                Datum::Int8(_) => SqlType::Int8,
                Datum::Numeric(_) => SqlType::Numeric,
                _ => SqlType::Unknown,
            })
            .collect()
    }
}

/// Extracts the literals. Returns `None` if the text is not a single SELECT, INSERT, UPDATE or
/// DELETE that the cache could serve.
pub fn normalize(sql: &str) -> Option<Normalized> {
    let mut out = Normalized::default();
    normalize_into(sql, &mut out).then_some(out)
}

/// Like [`normalize`], into a value whose allocations are reused.
pub fn normalize_into(sql: &str, out: &mut Normalized) -> bool {
    out.key.clear();
    out.literals.clear();
    if sql.len() > MAX_TEXT || !begins(sql) {
        return false;
    }
    out.key.reserve(sql.len() + 16);
    let mut scan = Scan { sql, at: 0, last: Last::Operator, ordinals: false, typed: false };
    if scan.run(out).is_none() {
        return false;
    }
    while out.key.ends_with(' ') {
        out.key.pop();
    }
    out.text_len = out.key.len();
    out.key.push('\0');
    for d in &out.literals {
        out.key.push(match d {
            Datum::Int4(_) => 'i',
            Datum::Int8(_) => 'l',
            Datum::Numeric(_) => 'n',
            _ => 's',
        });
    }
    true
}

fn begins(sql: &str) -> bool {
    let head = sql.trim_start().as_bytes();
    [&b"select"[..], b"insert", b"update", b"delete"]
        .iter()
        .any(|w| head.len() > w.len() && head[..w.len()].eq_ignore_ascii_case(w))
}

/// The kind of the previous token, to distinguish a sign from a minus.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// An operator, an opening parenthesis, a comma, or a keyword followed by an expression.
    Operator,
    /// A value, a name, a closing parenthesis.
    Value,
}

struct Scan<'a> {
    sql: &'a str,
    at: usize,
    last: Last,
    /// After ORDER or GROUP: numbers may be positions.
    ordinals: bool,
    /// After a word that may be a type: a following string belongs to it.
    typed: bool,
}

impl Scan<'_> {
    fn run(&mut self, out: &mut Normalized) -> Option<()> {
        let bytes = self.sql.as_bytes();
        while let Some(&c) = bytes.get(self.at) {
            match c {
                b' ' | b'\t' | b'\n' | b'\r' => {
                    self.at += 1;
                    if !out.key.is_empty() && !out.key.ends_with(' ') {
                        out.key.push(' ');
                    }
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(out)?,
                b'0'..=b'9' => self.number(out, false)?,
                b'.' if bytes.get(self.at + 1).is_some_and(u8::is_ascii_digit) => {
                    self.number(out, false)?
                }
                b'\'' => self.string(out)?,
                b'"' => self.quoted(out)?,
                // One operator, such as `%-`.
                b'+' | b'-' if out.key.ends_with(TAKES_SIGNS) => return None,
                b'-' if self.last == Last::Operator && self.signs_number() => {
                    self.at += 1;
                    self.number(out, true)?;
                }
                b'-' if bytes.get(self.at + 1) == Some(&b'-') => return None,
                b'/' if bytes.get(self.at + 1) == Some(&b'*') => return None,
                b';' => {
                    let rest = &self.sql[self.at + 1..];
                    return rest
                        .trim_matches([' ', '\t', '\n', '\r', ';'])
                        .is_empty()
                        .then_some(());
                }
                // A type's length, or a position: all of it stays.
                b':' if bytes.get(self.at + 1) == Some(&b':') => self.cast(out)?,
                b'$' | b'\\' | b'[' | 0x80.. | 0 => return None,
                _ => {
                    self.at += 1;
                    out.key.push(c as char);
                    self.last = if c == b')' { Last::Value } else { Last::Operator };
                    self.typed = false;
                }
            }
        }
        Some(())
    }

    /// Returns true if the minus here is part of a number. In `-1::type` the minus applies to the
    /// cast.
    fn signs_number(&self) -> bool {
        let rest = &self.sql[self.at + 1..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        rest.starts_with(|c: char| c.is_ascii_digit())
            && !rest[end..].trim_start().starts_with("::")
    }

    /// Copies `self.at .. end` to the key.
    fn copy(&mut self, end: usize, out: &mut Normalized) {
        out.key.push_str(&self.sql[self.at..end]);
        self.at = end;
    }

    fn word_end(&self) -> usize {
        let rest = &self.sql.as_bytes()[self.at..];
        let len = rest
            .iter()
            .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$')))
            .unwrap_or(rest.len());
        self.at + len
    }

    fn word(&mut self, out: &mut Normalized) -> Option<()> {
        let end = self.word_end();
        let word = &self.sql[self.at..end];
        let is = |w: &str| word.eq_ignore_ascii_case(w);
        let next = self.sql.as_bytes().get(end);
        if next.is_some_and(|b| !b.is_ascii()) {
            return None;
        }
        let is_long = word.len() > MAX_NAME;
        if is_long || next == Some(&b'\'') || is("cast") || is("interval") || is("extract") {
            return None;
        }
        if is("order") || is("group") {
            self.ordinals = true;
        } else if is("limit") || is("offset") || is("having") || is("fetch") {
            self.ordinals = false;
        }
        let operator = EXPRESSION_FOLLOWS.iter().any(|w| is(w));
        self.last = if operator { Last::Operator } else { Last::Value };
        self.typed = !operator;
        self.copy(end, out);
        Some(())
    }

    fn number(&mut self, out: &mut Normalized, negative: bool) -> Option<()> {
        let bytes = self.sql.as_bytes();
        let mut end = self.at;
        while let Some(&b) = bytes.get(end) {
            let exponent_sign = matches!(b, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
            let exponent = matches!(b, b'e' | b'E')
                && bytes
                    .get(end + 1)
                    .is_some_and(|n| n.is_ascii_digit() || matches!(n, b'+' | b'-'));
            if !(b.is_ascii_digit() || b == b'.' || exponent || exponent_sign && end > self.at) {
                break;
            }
            end += 1;
        }
        if bytes.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | 0x80..)) {
            return None;
        }
        if self.ordinals {
            if negative {
                out.key.push('-');
            }
            self.copy(end, out);
        } else {
            // The parser decides the type of a number whose negative fits a narrower type: signs
            // may be separated from it.
            if matches!(&self.sql[self.at..end], "2147483648" | "9223372036854775808") {
                return None;
            }
            let literal = plain_int(&self.sql[self.at..end], negative)
                .or_else(|| number(&self.sql[self.at..end], negative).map(|(d, _)| d))?;
            self.at = end;
            push(out, literal)?;
        }
        self.last = Last::Value;
        self.typed = false;
        Some(())
    }

    fn string(&mut self, out: &mut Normalized) -> Option<()> {
        if self.typed {
            return None;
        }
        let body = self.at + 1;
        let bytes = self.sql.as_bytes();
        let mut end = body;
        let mut doubled = false;
        loop {
            match bytes.get(end)? {
                b'\'' if bytes.get(end + 1) == Some(&b'\'') => {
                    doubled = true;
                    end += 2;
                }
                b'\'' => break,
                _ => end += 1,
            }
        }
        // 'a' newline 'b' is one string.
        if self.sql[end + 1..].trim_start().starts_with('\'') {
            return None;
        }
        if self.ordinals {
            self.copy(end + 1, out);
        } else {
            let text = &self.sql[body..end];
            let text = if doubled { text.replace("''", "'").into() } else { text.into() };
            push(out, Datum::Text(text))?;
            self.at = end + 1;
        }
        self.last = Last::Value;
        Some(())
    }

    fn quoted(&mut self, out: &mut Normalized) -> Option<()> {
        let len = self.sql[self.at + 1..].find('"')?;
        let end = self.at + len + 2;
        // Two quotes are part of the identifier.
        if len > MAX_NAME || self.sql.as_bytes().get(end) == Some(&b'"') {
            return None;
        }
        self.copy(end, out);
        self.last = Last::Value;
        self.typed = true;
        Some(())
    }

    /// Copies `::type(n)`.
    fn cast(&mut self, out: &mut Normalized) -> Option<()> {
        self.copy(self.at + 2, out);
        let end = self.word_end();
        self.copy(end, out);
        if self.sql.as_bytes().get(end) == Some(&b'(') {
            let len = self.sql[end..].find(')')?;
            self.copy(end + len + 1, out);
        }
        self.last = Last::Value;
        self.typed = false;
        Some(())
    }
}

/// The characters that make a sign directly after them a part of the operator.
const TAKES_SIGNS: &[char] = &['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'];

/// Words after which a minus is a sign and a string a value.
pub(crate) const EXPRESSION_FOLLOWS: &[&str] = &[
    "and",
    "where",
    "values",
    "select",
    "in",
    "or",
    "between",
    "like",
    "ilike",
    "limit",
    "offset",
    "then",
    "else",
    "when",
    "not",
    "by",
    "having",
    "set",
    "returning",
    "case",
    "distinct",
    "from",
    "is",
    "as",
    "on",
    "escape",
    "all",
];

fn push(out: &mut Normalized, literal: Datum) -> Option<()> {
    if out.literals.len() >= MAX_LITERALS {
        return None;
    }
    out.literals.push(literal);
    let n = out.literals.len();
    out.key.push('$');
    if n >= 10 {
        out.key.push(char::from(b'0' + (n / 10) as u8));
    }
    out.key.push(char::from(b'0' + (n % 10) as u8));
    Some(())
}

/// The common case: at most nine digits.
fn plain_int(text: &str, negative: bool) -> Option<Datum> {
    if text.len() > 9 {
        return None;
    }
    let mut v = 0i32;
    for b in text.bytes() {
        if !b.is_ascii_digit() {
            return None;
        }
        v = v * 10 + i32::from(b - b'0');
    }
    Some(Datum::Int4(if negative { -v } else { v }))
}

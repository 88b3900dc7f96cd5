//! LIKE and ILIKE: `%` matches any run of characters, `_` any one character; a backslash escapes
//! the next.
//!
//! A pattern is split at each `%` into pieces. As in PostgreSQL, it is read in place: a match needs
//! no memory for the pieces. The first and the last piece match at the ends of the text, each other
//! one at the leftmost place after the piece before it. A piece without `_` between its characters
//! is found in linear time. Others are compared at every place, as in PostgreSQL; since other
//! sessions wait meanwhile, the number of comparisons is limited.

use clearway_types::{SqlError, SqlResult, SqlState};
use std::borrow::Cow;

/// Maximum number of characters that one match compares, apart from linear searches.
const MAX_COMPARED: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Returns true if the text matches. Copies at most one piece at a time; ILIKE and a pattern that
/// ends with an escape also copy the text and the pattern.
///
/// # Errors
/// 22025 if the match comes to an escape at the end of the pattern; such a pattern matches nothing.
/// 54000 if the match takes more than [`MAX_COMPARED`] comparisons.
pub(crate) fn matches(text: &str, pattern: &str, insensitive: bool) -> SqlResult<bool> {
    let escapes = pattern.bytes().rev().take_while(|b| *b == b'\\').count();
    if escapes % 2 == 1 {
        let reaching = reaching(&pattern[..pattern.len() - 1]);
        if !run(&folded(text, insensitive), &folded(&reaching, insensitive))? {
            return Ok(false);
        }
        let text = "LIKE pattern must not end with escape character";
        return Err(SqlError::new(SqlState(*b"22025"), text));
    }
    run(&folded(text, insensitive), &folded(pattern, insensitive))
}

/// Returns the pattern of the texts for which PostgreSQL reads the escape after this pattern: some
/// text is left there. After `%` and then `_`, none need be left.
///
/// Source: PostgreSQL's `MatchText`.
fn reaching(pattern: &str) -> String {
    let (mut any, mut one) = (false, false);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => any = true,
            '_' => one |= any,
            _ => {
                (any, one) = (false, false);
                if c == '\\' {
                    chars.next();
                }
            }
        }
    }
    format!("{pattern}{}", if one { "%" } else { "_%" })
}

fn folded(s: &str, insensitive: bool) -> Cow<'_, str> {
    if insensitive { s.chars().flat_map(char::to_lowercase).collect() } else { Cow::Borrowed(s) }
}

/// Splits a pattern before its first `special` that is not escaped.
fn split(pattern: &str, special: u8) -> (&str, &str) {
    let (bytes, mut at) = (pattern.as_bytes(), 0);
    // Both characters are ASCII, so neither is part of a longer one.
    while let Some(&b) = bytes.get(at).filter(|b| **b != special) {
        at += if b == b'\\' { 2 } else { 1 };
    }
    pattern.split_at(at)
}

/// Returns the piece before the first `%`, and the pattern after that.
fn first_piece(pattern: &str) -> (&str, Option<&str>) {
    let (piece, rest) = split(pattern, b'%');
    (piece, rest.strip_prefix('%'))
}

/// Returns what the characters of a piece match: a character, or `None` for any one.
fn characters(piece: &str) -> impl Iterator<Item = Option<char>> {
    let mut chars = piece.chars();
    std::iter::from_fn(move || match chars.next()? {
        '_' => Some(None),
        '\\' => chars.next().map(Some),
        c => Some(Some(c)),
    })
}

fn run(text: &str, pattern: &str) -> SqlResult<bool> {
    let mut compared = 0;
    let (piece, mut rest) = first_piece(pattern);
    let Some(mut text) = after(text, piece, &mut compared) else { return Ok(false) };
    if rest.is_none() {
        return Ok(text.is_empty());
    }
    while let Some(pattern) = rest {
        let (piece, next) = first_piece(pattern);
        if next.is_none() {
            return Ok(ends_with(text, piece));
        }
        match find(text, piece, &mut compared)? {
            Some(found) => (text, rest) = (found, next),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns the text without its first `n` characters.
fn skip(text: &str, n: usize) -> Option<&str> {
    let mut chars = text.chars();
    (0..n).try_for_each(|_| chars.next().map(drop))?;
    Some(chars.as_str())
}

/// Returns the text after the piece, if it begins with it.
fn after<'t>(text: &'t str, piece: &str, compared: &mut usize) -> Option<&'t str> {
    let mut chars = text.chars();
    for wanted in characters(piece) {
        *compared += 1;
        let c = chars.next()?;
        if wanted.is_some_and(|wanted| wanted != c) {
            return None;
        }
    }
    Some(chars.as_str())
}

/// Returns true if the text ends with the piece.
fn ends_with(text: &str, piece: &str) -> bool {
    let (mut chars, mut before) = (text.chars(), 0);
    for _ in characters(piece) {
        if chars.next_back().is_none() {
            return false;
        }
    }
    after(&text[chars.as_str().len()..], piece, &mut before).is_some()
}

/// Returns a piece's text without `_`: the characters that it matches.
fn unescaped(piece: &str) -> Cow<'_, str> {
    if piece.contains('\\') { characters(piece).flatten().collect() } else { Cow::Borrowed(piece) }
}

/// Returns the text after the piece's leftmost occurrence. A piece has a fixed number of
/// characters, so the leftmost one also ends first.
fn find<'t>(text: &'t str, piece: &str, compared: &mut usize) -> SqlResult<Option<&'t str>> {
    let inner = piece.trim_start_matches('_');
    let Some(mut text) = skip(text, piece.len() - inner.len()) else { return Ok(None) };
    let (start, others) = split(inner, b'_');
    if start.is_empty() {
        return Ok(Some(text));
    }
    let start = unescaped(start);
    let any = others.bytes().all(|b| b == b'_');
    while let Some(at) = text.find(&*start) {
        let found = &text[at + start.len()..];
        if any {
            // Further right there are even fewer characters left.
            return Ok(skip(found, others.len()));
        }
        if let Some(rest) = after(found, others, compared) {
            return Ok(Some(rest));
        }
        // The next search prepares its text again.
        *compared += start.len();
        if *compared > MAX_COMPARED {
            let text = "LIKE pattern requires too many comparisons";
            return Err(SqlError::new(SqlState::LIMIT_EXCEEDED, text)
                .hint("Only patterns with _ between other characters require them."));
        }
        let Some(next) = skip(&text[at..], 1) else { break };
        text = next;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// LIKE by its definition.
    fn defined(text: &[char], pattern: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', others @ ..] => (0..=text.len()).any(|n| defined(&text[n..], others)),
            ['_', others @ ..] => !text.is_empty() && defined(&text[1..], others),
            ['\\', c, others @ ..] | [c, others @ ..] => {
                text.first() == Some(c) && defined(&text[1..], others)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn matches_by_definition(text in "[abé%_]{0,9}", pattern in "([abé%_]|\\\\[abé%_]){0,7}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            let expected = defined(&chars(&text), &chars(&pattern));
            prop_assert_eq!(matches(&text, &pattern, false).unwrap(), expected);
            let (text, pattern) = (text.to_uppercase(), pattern);
            prop_assert_eq!(matches(&text, &pattern, true).unwrap(), expected);
        }
    }

    #[test]
    fn long_patterns_are_matched_in_linear_time() {
        let text = "a".repeat(2_000_000);
        for (pattern, found) in [
            (format!("%{}b%", "a".repeat(1_000_000)), false),
            (format!("%{}%", "a".repeat(1_000_000)), true),
            (format!("%_{}__%b", "a".repeat(1_000_000)), false),
            (format!("%_{}__%", "a".repeat(1_000_000)), true),
            ("%a".repeat(1_000_000), true),
            ("%_".repeat(1_000_000), true),
        ] {
            assert_eq!(matches(&text, &pattern, false).unwrap(), found, "{}", &pattern[..9]);
        }
    }

    #[test]
    fn escaped_text_is_found_in_linear_time() {
        let text = "a".repeat(2_000_000);
        for last in ["\\b", "\\%", "\\_", "\\\\"] {
            let pattern = format!("%{}{last}%", "\\a".repeat(1_000_000));
            assert!(!matches(&text, &pattern, false).unwrap());
        }
    }

    #[test]
    fn escape_at_the_end_of_the_pattern_is_an_error_if_it_is_reached() {
        for (text, pattern) in [
            ("a", "\\"),
            ("ab", "a\\"),
            ("a\\b", "%\\\\\\"),
            ("aéb", "_%é\\"),
            ("a", "%\\"),
            ("a", "%_\\"),
            ("ab", "a%_%\\"),
        ] {
            let error = matches(text, pattern, false).unwrap_err();
            assert_eq!(error.state(), SqlState(*b"22025"), "{text} {pattern}");
        }
        for (text, pattern) in [
            ("", "\\"),
            ("abc", "x\\"),
            ("abc", "abc\\"),
            ("a\\", "%\\\\\\"),
            ("a", "_\\"),
            ("", "%\\"),
            ("a", "a%\\"),
            ("a", "%__\\"),
        ] {
            assert!(!matches(text, pattern, false).unwrap(), "{text} {pattern}");
        }
        assert!(matches("a\\", "_\\\\", false).unwrap());
    }

    #[test]
    fn comparisons_are_limited() {
        let (text, half) = ("a".repeat(200_000), "a".repeat(100_000));
        let error = matches(&text, &format!("%{half}_{half}b%"), false).unwrap_err();
        assert_eq!(error.state(), SqlState::LIMIT_EXCEEDED);
    }
}

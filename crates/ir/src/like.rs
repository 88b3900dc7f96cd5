//! LIKE and ILIKE: `%` matches any run of characters, `_` any one character; a backslash escapes
//! the next.
//!
//! A pattern is split at each `%` into pieces. The first and the last piece match at the ends of
//! the text, each other one at the leftmost place after the piece before it. A piece without `_`
//! between its characters is found in linear time. Others are compared at every place, as in
//! PostgreSQL; since other sessions wait meanwhile, the number of comparisons is limited.

use clearway_types::{SqlError, SqlResult, SqlState};
use std::borrow::Cow;

/// Maximum number of bytes that one match compares, apart from linear searches.
const MAX_COMPARED: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Returns true if the text matches. An escape at the end of the pattern is an error, 22025 as in
/// PostgreSQL.
///
/// # Errors
/// 54000 if the match takes more than [`MAX_COMPARED`] comparisons.
pub(crate) fn matches(text: &str, pattern: &str, insensitive: bool) -> SqlResult<bool> {
    let pieces = compile(&folded(pattern, insensitive))?;
    run(&folded(text, insensitive), &pieces)
}

fn folded(s: &str, insensitive: bool) -> Cow<'_, str> {
    if insensitive { s.chars().flat_map(char::to_lowercase).collect() } else { Cow::Borrowed(s) }
}

/// Part of a piece.
#[derive(Debug, PartialEq)]
enum Part {
    /// These characters; at least one.
    Text(String),
    /// This many of any characters; at least one.
    Any(usize),
}

/// The pattern between two `%`.
type Piece = Vec<Part>;

/// Returns the pattern's pieces: one more than it has `%`.
fn compile(pattern: &str) -> SqlResult<Vec<Piece>> {
    let mut pieces = vec![Piece::new()];
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '%' {
            pieces.push(Piece::new());
            continue;
        }
        let Some(piece) = pieces.last_mut() else { break };
        match (c, piece.last_mut()) {
            ('_', Some(Part::Any(n))) => *n += 1,
            ('_', _) => piece.push(Part::Any(1)),
            (c, last) => {
                let c = if c == '\\' { chars.next().ok_or_else(ends_with_escape)? } else { c };
                match last {
                    Some(Part::Text(text)) => text.push(c),
                    _ => piece.push(Part::Text(c.into())),
                }
            }
        }
    }
    Ok(pieces)
}

fn ends_with_escape() -> SqlError {
    SqlError::new(SqlState(*b"22025"), "LIKE pattern must not end with escape character")
}

fn run(text: &str, pieces: &[Piece]) -> SqlResult<bool> {
    let mut compared = 0;
    let [first, others @ ..] = pieces else { return Ok(text.is_empty()) };
    let Some(text) = after(text, first, &mut compared) else { return Ok(false) };
    let [between @ .., last] = others else { return Ok(text.is_empty()) };
    let Some(mut text) = before(text, last) else { return Ok(false) };
    for piece in between {
        match find(text, piece, &mut compared)? {
            Some(rest) => text = rest,
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
fn after<'t>(mut text: &'t str, piece: &[Part], compared: &mut usize) -> Option<&'t str> {
    for part in piece {
        text = match part {
            Part::Text(wanted) => {
                let same = text.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
                *compared += same + 1;
                text.get(wanted.len()..).filter(|_| same == wanted.len())?
            }
            Part::Any(n) => {
                *compared += n;
                skip(text, *n)?
            }
        };
    }
    Some(text)
}

/// Returns the text before the piece, if it ends with it.
fn before<'t>(mut text: &'t str, piece: &[Part]) -> Option<&'t str> {
    for part in piece.iter().rev() {
        text = match part {
            Part::Text(wanted) => text.strip_suffix(wanted.as_str())?,
            Part::Any(n) => {
                let mut chars = text.chars();
                (0..*n).try_for_each(|_| chars.next_back().map(drop))?;
                chars.as_str()
            }
        };
    }
    Some(text)
}

/// Returns the text after the piece's leftmost occurrence. A piece has a fixed number of
/// characters, so the leftmost one also ends first.
fn find<'t>(mut text: &'t str, piece: &[Part], compared: &mut usize) -> SqlResult<Option<&'t str>> {
    let mut piece = piece;
    if let [Part::Any(n), others @ ..] = piece {
        let Some(rest) = skip(text, *n) else { return Ok(None) };
        (text, piece) = (rest, others);
    }
    let [Part::Text(start), others @ ..] = piece else { return Ok(Some(text)) };
    while let Some(at) = text.find(start.as_str()) {
        let found = &text[at + start.len()..];
        match others {
            [] => return Ok(Some(found)),
            // Further right there are even fewer characters left.
            [Part::Any(n)] => return Ok(skip(found, *n)),
            _ => {}
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
    fn comparisons_are_limited() {
        let (text, half) = ("a".repeat(200_000), "a".repeat(100_000));
        let error = matches(&text, &format!("%{half}_{half}b%"), false).unwrap_err();
        assert_eq!(error.state(), SqlState::LIMIT_EXCEEDED);
    }
}

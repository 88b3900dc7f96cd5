//! LIKE and ILIKE agree with the simplest possible matcher.

use super::common::env;
use crate::input::Input;
use clearway_ir::Expr;
use clearway_types::Datum;

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let insensitive = input.u8() & 1 == 1;
    let cut = usize::from(input.u8());
    let (pattern, text) = (input.bytes(cut), input.rest());
    let (Ok(pattern), Ok(text)) = (std::str::from_utf8(pattern), std::str::from_utf8(text)) else {
        return;
    };
    let literal = |s: &str| Box::new(Expr::Literal(Datum::from(s)));
    let found = Expr::Like { expr: literal(text), pattern: literal(pattern), insensitive }
        .eval_const(&env(Vec::new()));
    let fold = |s: &str| -> Vec<char> {
        if insensitive {
            s.chars().flat_map(char::to_lowercase).collect()
        } else {
            s.chars().collect()
        }
    };
    match (plain(&fold(pattern), &fold(text)), found) {
        (Some(wanted), Ok(found)) => {
            assert_eq!(found, Datum::Bool(wanted), "{text:?} like {pattern:?}")
        }
        (None, found) => assert!(found.is_err(), "{pattern:?} ends with an escape"),
        (_, Err(error)) => panic!("{text:?} like {pattern:?}: {error:?}"),
    }
}

/// Returns which prefixes of the text match the pattern, character by character; `None` if the
/// pattern ends with an escape.
fn plain(pattern: &[char], text: &[char]) -> Option<bool> {
    let mut matched = vec![false; text.len() + 1];
    matched[0] = true;
    let mut pattern = pattern.iter();
    while let Some(&c) = pattern.next() {
        if c == '%' {
            let first = matched.iter().position(|m| *m).unwrap_or(matched.len());
            matched[first..].fill(true);
            continue;
        }
        let one = if c == '\\' { Some(*pattern.next()?) } else { Some(c).filter(|c| *c != '_') };
        for at in (0..text.len()).rev() {
            matched[at + 1] = matched[at] && one.is_none_or(|one| one == text[at]);
        }
        matched[0] = false;
    }
    Some(matched[text.len()])
}

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
        (None, found) => assert!(found.is_err(), "{text:?} reaches the escape of {pattern:?}"),
        (_, Err(error)) => panic!("{text:?} like {pattern:?}: {error:?}"),
    }
}

/// Determines which prefixes of the text match the pattern, character by character; `None` if an
/// escape at the end of the pattern is reached.
fn plain(pattern: &[char], text: &[char]) -> Option<bool> {
    let mut matched = vec![false; text.len() + 1];
    matched[0] = true;
    // Whether the last characters were `%`, and then `_`.
    let (mut any, mut single) = (false, false);
    let mut pattern = pattern.iter();
    while let Some(&c) = pattern.next() {
        let wild = any && single;
        single = any && (single && c == '%' || c == '_');
        any = c == '%' || any && c == '_';
        if c == '%' {
            let first = matched.iter().position(|m| *m).unwrap_or(matched.len());
            matched[first..].fill(true);
            continue;
        }
        let one = match c {
            '\\' => match pattern.next() {
                Some(one) => Some(*one),
                None => {
                    let reached = if wild { &matched[..] } else { &matched[..text.len()] };
                    return (!reached.contains(&true)).then_some(false);
                }
            },
            '_' => None,
            c => Some(c),
        };
        for at in (0..text.len()).rev() {
            matched[at + 1] = matched[at] && one.is_none_or(|one| one == text[at]);
        }
        matched[0] = false;
    }
    Some(matched[text.len()])
}

//! LIKE and ILIKE: `%` matches any run of characters, `_` any one character; a backslash escapes
//! the next.

use clearway_types::{SqlError, SqlResult, SqlState};

/// Returns true if the text matches. An escape at the end of the pattern is an error, 22025 as in
/// PostgreSQL.
pub(crate) fn matches(text: &str, pattern: &str, insensitive: bool) -> SqlResult<bool> {
    let fold = |s: &str| -> Vec<char> {
        if insensitive {
            s.chars().flat_map(char::to_lowercase).collect()
        } else {
            s.chars().collect()
        }
    };
    let pattern = compile(&fold(pattern))?;
    Ok(run(&fold(text), &pattern))
}

#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Run,
    One,
    Char(char),
}

fn compile(pattern: &[char]) -> SqlResult<Vec<Piece>> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut chars = pattern.iter();
    while let Some(&c) = chars.next() {
        out.push(match c {
            '%' => Piece::Run,
            '_' => Piece::One,
            '\\' => Piece::Char(*chars.next().ok_or_else(|| {
                SqlError::new(
                    SqlState(*b"22025"),
                    "LIKE pattern must not end with escape character",
                )
            })?),
            c => Piece::Char(c),
        });
    }
    Ok(out)
}

/// Greedy matching with a single backtracking point, the last `%`: linear except for the last run.
fn run(text: &[char], pattern: &[Piece]) -> bool {
    let (mut t, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(Piece::Run) => {
                retry = Some((t, p));
                p += 1;
                continue;
            }
            Some(Piece::One) => {
                t += 1;
                p += 1;
                continue;
            }
            Some(Piece::Char(c)) if *c == text[t] => {
                t += 1;
                p += 1;
                continue;
            }
            _ => {}
        }
        let Some((at, run)) = retry else { return false };
        retry = Some((at + 1, run));
        t = at + 1;
        p = run + 1;
    }
    pattern[p..].iter().all(|x| *x == Piece::Run)
}

//! What source text must not contain.
//!
//! The patterns below are concatenated from parts so that this file passes its own checks.

/// Crates that may contain `unsafe`.
const UNSAFE_CRATES: [&str; 5] = ["latch", "buffer", "fabric", "env", "specimens"];
/// Lines above an `unsafe`, past attributes and comments, that are searched for its `SAFETY:`
/// comment.
const SAFETY_DISTANCE: usize = 12;

const UNFINISHED: [&str; 4] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const SILENCED: [&str; 4] = [
    concat!("allow(missing", "_docs"),
    concat!("allow(dead", "_code"),
    concat!("allow(unu", "sed"),
    concat!("allow(clippy::undocumented_un", "safe_blocks"),
];
const SLEEP: &str = concat!("thread::sl", "eep");
const IGNORE: &str = concat!("#[ig", "nore");
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Returns the findings in one Rust file; `file` is relative to the repository's root.
pub fn check(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut found =
        |line: usize, what: String| findings.push(format!("{file}:{}: {what}", line + 1));
    let lines: Vec<&str> = text.lines().collect();
    let may_be_unsafe = UNSAFE_CRATES.iter().any(|c| file.starts_with(&format!("crates/{c}/")));
    for (number, line) in lines.iter().enumerate() {
        for pattern in UNFINISHED.iter().chain(&SILENCED).filter(|p| line.contains(**p)) {
            found(number, format!("`{pattern}`: finish it, or leave it out"));
        }
        if line.contains(IGNORE) {
            found(number, "an ignored test: CI skips nothing".into());
        }
        if line.contains(SLEEP) {
            found(number, format!("`{SLEEP}`: wait for the event instead"));
        }
        let code = code_of(line);
        if !has_word(code, "unsafe") || code.contains("unsafe_") {
            continue;
        }
        if !may_be_unsafe {
            found(number, format!("`unsafe` outside {}", UNSAFE_CRATES.join(", ")));
        } else if needs_safety(code) && !has_safety(&lines, number) {
            found(number, "`unsafe` without a `SAFETY:` comment above it".into());
        }
    }
    if is_crate_root(file) && !may_be_unsafe && !text.contains("#![forbid(unsafe_code)]") {
        findings.push(format!("{file}: `#![forbid(unsafe_code)]` is missing"));
    }
    findings
}

/// Returns absolute paths of one machine, in any text file.
pub fn machine_paths(file: &str, text: &str) -> Vec<String> {
    let hit = |line: &str| {
        MACHINE_PATHS.iter().any(|path| {
            let mut starts = line.match_indices(path).map(|(at, _)| line[..at].chars().next_back());
            starts.any(|before| {
                before.is_none_or(|c| !c.is_ascii_alphanumeric() && !"_-./}*".contains(c))
            })
        })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| hit(line));
    lines
        .map(|(number, _)| format!("{file}:{}: an absolute path of one machine", number + 1))
        .collect()
}

/// Returns the line up to its first comment or string literal: enough to tell a keyword from a
/// mention.
fn code_of(line: &str) -> &str {
    let line = line.split("//").next().unwrap_or_default();
    line.split('"').next().unwrap_or_default()
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

/// Returns true for blocks and implementations, which prove their claim in place. A declaration
/// (`unsafe fn`, `unsafe trait`) states it in its docs.
fn needs_safety(code: &str) -> bool {
    !code.contains("unsafe fn") && !code.contains("unsafe trait") && !code.contains("unsafe extern")
}

fn has_safety(lines: &[&str], at: usize) -> bool {
    lines[at].contains("SAFETY:")
        || lines[at.saturating_sub(SAFETY_DISTANCE)..at].iter().any(|l| l.contains("SAFETY:"))
}

fn is_crate_root(file: &str) -> bool {
    let mut parts = file.split('/');
    parts.next() == Some("crates")
        && parts.nth(1) == Some("src")
        && matches!(parts.next(), Some("lib.rs" | "main.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "#![forbid(unsafe_code)]\n// unsafe is a word\nfn f() {}\n";

    fn only(file: &str, text: &str, what: &str) {
        let found = check(file, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(what), "{found:?}");
    }

    #[test]
    fn clean_text_gives_no_finding() {
        assert_eq!(check("crates/ir/src/lib.rs", GOOD), Vec::<String>::new());
        assert_eq!(
            machine_paths("a.md", "see /usr/lib, src/work/a and $HOME/x"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn unsafe_outside_its_crates_is_found() {
        only("crates/ir/src/a.rs", "// SAFETY: none\nunsafe { f() }\n", "outside");
        only("crates/ir/src/lib.rs", "fn f() {}\n", "forbid");
    }

    #[test]
    fn unsafe_without_a_safety_comment_is_found() {
        only("crates/latch/src/a.rs", "let x = unsafe { *p };\n", "SAFETY");
        only("crates/latch/src/a.rs", "unsafe impl Sync for A {}\n", "SAFETY");
        let proven = "// SAFETY: p is valid, because it was made above.\nlet x = unsafe { *p };\n";
        assert_eq!(check("crates/latch/src/a.rs", proven), Vec::<String>::new());
    }

    #[test]
    fn unfinished_code_is_found() {
        for pattern in UNFINISHED.iter().chain(&SILENCED) {
            only("crates/ir/src/a.rs", &format!("{pattern}\n"), pattern);
        }
        only("crates/ir/src/a.rs", &format!("{SLEEP}(d);\n"), SLEEP);
    }

    #[test]
    fn ignored_tests_are_found() {
        only("crates/ir/src/a.rs", &format!("{IGNORE}]\n"), "ignored");
        only("crates/ir/src/a.rs", &format!("// {IGNORE} = \"later\"]\n"), "ignored");
    }

    #[test]
    fn a_machine_path_is_found() {
        for path in MACHINE_PATHS {
            assert_eq!(
                machine_paths("a.md", &format!("x\nsee {path}x\n")),
                ["a.md:2: an absolute path of one machine"]
            );
        }
    }
}

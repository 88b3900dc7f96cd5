//! Every atomic access that orders memory names its partner in a comment nearby.

/// The comment must be within this many lines above or below the access.
const DISTANCE: usize = 5;
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
/// Part of "Pairs with the Release in ..." and similar phrases.
const PARTNER: &str = "pair";

/// Returns the ordered accesses of one Rust file, outside of tests, without a named partner.
pub fn check(file: &str, text: &str) -> Vec<String> {
    let is_test = file.contains("/tests") || file.ends_with("tests.rs");
    if is_test || !file.contains("/src/") {
        return Vec::new();
    }
    let lines: Vec<&str> =
        text.lines().take_while(|line| !line.starts_with("mod tests {")).collect();
    let found = (0..lines.len()).filter(|at| is_ordered(lines[*at]) && !names_partner(&lines, *at));
    found
        .map(|at| {
            let what = "an ordered atomic access: name its partner (\"Pairs with ...\")";
            format!("{file}:{}: {what} within {DISTANCE} lines", at + 1)
        })
        .collect()
}

fn is_ordered(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    if code.trim_start().starts_with("use ") || code.trim_start().starts_with("pub use ") {
        return false;
    }
    // An argument: what follows is `)` or `,`.
    ORDERINGS.iter().any(|ordering| {
        code.match_indices(ordering).any(|(at, _)| {
            let before = code[..at].trim_end();
            let is_path = before.ends_with("Ordering::");
            let is_argument = is_path || before.ends_with(['(', ',']);
            let after = code[at + ordering.len()..].trim_start().chars().next();
            is_argument && matches!(after, Some(')' | ','))
        })
    })
}

fn names_partner(lines: &[&str], at: usize) -> bool {
    let near = &lines[at.saturating_sub(DISTANCE)..(at + DISTANCE + 1).min(lines.len())];
    let mut comments = near.iter().filter_map(|line| line.split_once("//"));
    comments.any(|(_, comment)| comment.to_ascii_lowercase().contains(PARTNER))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/a/src/b.rs";

    #[test]
    fn accesses_without_a_partner_are_found() {
        let text = "fn f() {\n    flag.store(true, Ordering::Release);\n    fence(SeqCst);\n}\n";
        let found = check(FILE, text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/b.rs:2:"), "{found:?}");
    }

    #[test]
    fn variants_of_the_same_name_are_no_accesses() {
        assert_eq!(
            check(
                FILE,
                "enum Call {\n    Release,\n}\nSome(Call::Release) => end(Step::Acquire),\n"
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn partners_imports_relaxed_accesses_and_tests_pass() {
        let paired = "// Pairs with the Acquire in `g`.\nflag.store(true, Release);\n";
        let far = format!("// Pairs with\n{}flag.store(true, Release);\n", "\n".repeat(5));
        let relaxed = "flag.store(true, Relaxed);\nuse a::{Acquire, Release};\n";
        assert_eq!(check(FILE, paired), Vec::<String>::new());
        assert_eq!(check(FILE, relaxed), Vec::<String>::new());
        assert_eq!(check(FILE, &far).len(), 1);
        assert_eq!(check("crates/a/src/tests.rs", &far), Vec::<String>::new());
        assert_eq!(check(FILE, &format!("mod tests {{\n{far}")), Vec::<String>::new());
    }
}

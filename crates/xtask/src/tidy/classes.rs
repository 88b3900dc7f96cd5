//! Every latch and lock of the engine has a class, and docs/lockstat.md explains a wait for it.

use std::collections::BTreeSet;

/// The table.
pub const TABLE: &str = "docs/lockstat.md";

/// Crates whose latches and locks are counted.
const COUNTED: [&str; 9] = [
    "env",
    "latch",
    "replacement",
    "buffer",
    "storage",
    "partition",
    "coordinator",
    "planner",
    "server",
];
const FOR_TESTS: &str = "tests";
/// The crate that builds the counted latches from the uncounted ones.
const MAKES_LATCHES: &str = "latch";
const UNCOUNTED: [&str; 3] = [concat!("Mut", "ex"), concat!("Rw", "Lock"), concat!("Cond", "var")];
const CLASS: &str = concat!("Class", "::new(\"");

/// Checks one Rust file of the engine, and adds its classes to `classes`.
pub fn check(file: &str, text: &str, classes: &mut BTreeSet<String>) -> Vec<String> {
    let Some(name) =
        COUNTED.into_iter().find(|name| file.starts_with(&format!("crates/{name}/src/")))
    else {
        return Vec::new();
    };
    if file.contains(FOR_TESTS) {
        return Vec::new();
    }
    let lines = text.lines().take_while(|line| !line.starts_with("mod tests {")).enumerate();
    let mut findings = Vec::new();
    for (number, line) in lines {
        let code = line.split("//").next().unwrap_or_default();
        if let Some((_, rest)) = code.split_once(CLASS) {
            classes.extend(rest.split('"').next().map(String::from));
        }
        let word = |word: &&str| code.split(|c: char| !c.is_alphanumeric()).any(|w| w == *word);
        if let Some(found) = UNCOUNTED.iter().find(|w| word(w)).filter(|_| name != MAKES_LATCHES) {
            let what = "not counted by lockstat: use `Latch`, or `Monitor` if its holder waits or does I/O";
            findings.push(format!("{file}:{}: `{found}`: {what}", number + 1));
        }
    }
    findings
}

/// Returns the differences between the table and the classes.
pub fn compare(table: &str, classes: &BTreeSet<String>) -> Vec<String> {
    let rows: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let listed: BTreeSet<String> = rows.iter().map(|row| row.to_string()).collect();
    let twice = rows.len() - listed.len();
    let missing =
        classes.difference(&listed).map(|class| format!("{TABLE}: no row for class `{class}`"));
    let gone =
        listed.difference(classes).map(|class| format!("{TABLE}: there is no class `{class}`"));
    let double = (twice > 0).then(|| format!("{TABLE}: {twice} classes have more than one row"));
    missing.chain(gone).chain(double).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(classes: &[&str]) -> BTreeSet<String> {
        classes.iter().map(|class| class.to_string()).collect()
    }

    #[test]
    fn classes_and_unclassified_locks_are_found() {
        let mut classes = BTreeSet::new();
        let text = [
            concat!("static A: Class = Class", "::new(\"log.a\");"),
            concat!("// as std's Mut", "ex"),
            concat!("/// `Class", "::new(\"log.b\")`"),
            concat!("use std::sync::{Arc, Mut", "ex};"),
            "#[cfg(test)]",
            "mod tests {",
            concat!("static B: Class = Class", "::new(\"test.b\");"),
        ];
        let text = text.join("\n");
        let found = check("crates/storage/src/a.rs", &text, &mut classes);
        assert_eq!((found.len(), classes.clone()), (1, names(&["log.a"])));
        assert!(found[0].starts_with("crates/storage/src/a.rs:4:"), "{found:?}");
        assert_eq!(check("crates/latch/src/a.rs", &text, &mut classes), Vec::<String>::new());
        classes.clear();
        for elsewhere in [
            "crates/testkit/src/a.rs",
            "crates/lab/src/a.rs",
            "crates/storage/src/wal/tests/a.rs",
            "crates/storage/tests/it/a.rs",
        ] {
            assert_eq!(check(elsewhere, &text, &mut classes), Vec::<String>::new());
        }
        assert!(classes.is_empty());
    }

    #[test]
    fn differences_from_the_table_are_found() {
        let table = "| class | a wait means |\n|---|---|\n| `log.a` | . |\n| `log.b` | `log.c` |\n";
        assert_eq!(compare(table, &names(&["log.a", "log.b"])), Vec::<String>::new());
        assert_eq!(compare(table, &names(&["log.a"])).len(), 1);
        assert_eq!(compare(table, &names(&["log.a", "log.b", "log.c"])).len(), 1);
        assert_eq!(
            compare(&format!("{table}| `log.a` | . |"), &names(&["log.a", "log.b"])).len(),
            1
        );
    }
}

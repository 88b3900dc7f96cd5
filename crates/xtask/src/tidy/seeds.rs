//! The document about the simulation names the seeds that found the planted bugs last.

use std::collections::{BTreeMap, BTreeSet};

/// The document.
pub const DOCUMENT: &str = "docs/simulation.md";
/// The seeds, one bug a line: who judges, the bug, the seed.
pub const FOUND: &str = "crates/sim/canaries.txt";
/// The head of the table of what the engine's simulation finds.
const TABLE: &str = "| bug of the engine | what is planted | found by seed |";
/// Follows a bug's name where the checker of histories finds it.
const BY_SEED: &str = " (found by seed ";

type Seeds<'a> = BTreeMap<&'a str, &'a str>;

/// Compares the seeds in the document with those that are kept.
pub fn check(document: &str, found: &str) -> Vec<String> {
    let flat = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut findings = compare("engine", &table(document), found);
    findings.extend(compare("histories", &prose(&flat), found));
    findings
}

/// Returns the rows of the first table with that head.
fn table(document: &str) -> Seeds<'_> {
    let lines = document.lines().skip_while(|line| *line != TABLE).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        Some((cells.next()?.trim_matches('`'), cells.next_back()?))
    })
    .collect()
}

/// Returns the bugs whose name is followed by a seed.
fn prose(flat: &str) -> Seeds<'_> {
    let parts: Vec<&str> = flat.split(BY_SEED).collect();
    let before_and_after = parts.windows(2);
    before_and_after
        .filter_map(|pair| {
            let name = pair[0].strip_suffix('`')?.rsplit('`').next()?;
            Some((name, pair[1].split(')').next()?))
        })
        .collect()
}

fn compare(judge: &str, documented: &Seeds<'_>, found: &str) -> Vec<String> {
    let kept = found.lines().filter_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some(judge)).then_some((words.next()?, words.next()?))
    });
    let kept: Seeds<'_> = kept.collect();
    let names: BTreeSet<&str> = kept.keys().chain(documented.keys()).copied().collect();
    let differs = names.into_iter().filter(|name| kept.get(name) != documented.get(name));
    let shown = |seeds: &Seeds<'_>, name| seeds.get(name).map_or("none", |seed| seed).to_owned();
    differs
        .map(|name| {
            format!(
                "{DOCUMENT}: {judge}: {name} has seed {}, in {FOUND} {}",
                shown(documented, name),
                shown(&kept, name)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND_NOW: &str = "# A comment\nengine A 1\nengine B 2\nhistories A 30\n";

    fn document(a: u32, by_history: u32) -> String {
        format!(
            "text\n\n{TABLE}\n|---|---|---|\n| `A` | a \"b\" | {a} |\n| `B` | c | 2 |\n\n| `C` | - | 7 |\n\
             \nThe checker finds `A`\n(found by seed {by_history}) and more (`D`).\n"
        )
    }

    #[test]
    fn documented_seeds_are_the_kept_ones() {
        assert_eq!(check(&document(1, 30), FOUND_NOW), [""; 0]);
        let old = check(&document(9, 31), FOUND_NOW);
        assert_eq!(
            old,
            [
                format!("{DOCUMENT}: engine: A has seed 9, in {FOUND} 1"),
                format!("{DOCUMENT}: histories: A has seed 31, in {FOUND} 30")
            ]
        );
        let more = check(&document(1, 30), &format!("{FOUND_NOW}engine E 5\n"));
        assert_eq!(more, [format!("{DOCUMENT}: engine: E has seed none, in {FOUND} 5")]);
    }
}

//! Modules of a crate form layers: their imports have no cycle.

use std::collections::{BTreeMap, BTreeSet};

/// Crates that must obey this rule.
const LAYERED: [&str; 10] = [
    "sync",
    "types",
    "latch",
    "specimens",
    "replacement",
    "buffer",
    "storage",
    "ir",
    "wire",
    "history",
];
/// Prefix of imports from the same crate.
const OWN: &str = "crate::";

/// The imports between top-level modules of each layered crate, without tests.
#[derive(Default)]
pub struct Imports(BTreeMap<&'static str, BTreeMap<String, BTreeSet<String>>>);

impl Imports {
    /// Adds the imports of one Rust file.
    pub fn add(&mut self, file: &str, text: &str) {
        let inside = |name: &&str| file.starts_with(&format!("crates/{name}/src/"));
        let Some(name) = LAYERED.into_iter().find(inside) else { return };
        let path = &file[format!("crates/{name}/src/").len()..];
        let module = path.split(['/', '.']).next().unwrap_or_default();
        if matches!(module, "lib" | "main") || path.contains("tests") {
            return;
        }
        let modules = self.0.entry(name).or_default();
        let imported = modules.entry(module.to_owned()).or_default();
        for line in text.lines().take_while(|line| !line.starts_with("mod tests {")) {
            let code = line.split("//").next().unwrap_or_default();
            // The text before the first prefix is no import.
            for rest in code.split(OWN).skip(1) {
                let end =
                    rest.find(|c: char| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit());
                let other = &rest[..end.unwrap_or(rest.len())];
                if !other.is_empty() && other != module {
                    imported.insert(other.to_owned());
                }
            }
        }
    }

    /// Returns one finding for each crate with a cycle.
    pub fn cycles(&self) -> Vec<String> {
        let of = |(name, modules): (&&str, &BTreeMap<String, BTreeSet<String>>)| {
            let cycle = cycle(modules)?;
            Some(format!(
                "crates/{name}/src: modules import each other in a cycle: {}",
                cycle.join(" -> ")
            ))
        };
        self.0.iter().filter_map(of).collect()
    }
}

/// Returns modules of which each imports the next, and the last the first.
fn cycle(modules: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<&str>> {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = modules
        .iter()
        .map(|(name, used)| (&**name, used.iter().map(String::as_str).collect()))
        .collect();
    // Repeatedly removes modules that import nothing that is left.
    loop {
        let names: BTreeSet<&str> = left.keys().copied().collect();
        let before = left.len();
        left.retain(|_, used| {
            used.retain(|other| names.contains(other));
            !used.is_empty()
        });
        if left.len() == before {
            break;
        }
    }
    // Every module that is left imports another one that is left, so a walk returns to its start.
    let mut walk = vec![*left.keys().next()?];
    loop {
        let next = *left.get(walk[walk.len() - 1])?.first()?;
        if let Some(at) = walk.iter().position(|seen| *seen == next) {
            walk.push(next);
            return Some(walk.split_off(at));
        }
        walk.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let mut imports = Imports::default();
        files.iter().for_each(|(file, text)| imports.add(file, text));
        imports.cycles()
    }

    #[test]
    fn layers_give_no_finding() {
        let files = [
            ("crates/buffer/src/lib.rs", "pub use crate::pool::Pool;"),
            (
                "crates/buffer/src/pool.rs",
                "use crate::core::Core;\nuse crate::PageIo;\n/// [`crate::pool::Pool`]\n",
            ),
            (
                "crates/buffer/src/core.rs",
                "use crate::frame::Frame; // crate::pool\nmod tests {\nuse crate::pool::Pool;\n",
            ),
            ("crates/buffer/src/frame/uses.rs", "use crate::frame::Frame;"),
            ("crates/buffer/src/frame/tests.rs", "use crate::pool::Pool;"),
            ("crates/coordinator/src/a.rs", "use crate::b::B;"),
            ("crates/coordinator/src/b.rs", "use crate::a::A;"),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn a_cycle_is_found() {
        let files = [
            ("crates/buffer/src/above.rs", "use crate::pool::Pool;"),
            ("crates/buffer/src/pool.rs", "use crate::guard::PageRef;"),
            ("crates/buffer/src/guard/mod.rs", "let core: crate::core::Core = crate::frame::f();"),
            ("crates/buffer/src/core.rs", "use crate::pool::{Pool, MissingPage};"),
            ("crates/buffer/src/frame.rs", ""),
        ];
        let found = findings(&files);
        let cycle = "crates/buffer/src: modules import each other in a cycle: pool -> guard -> core -> pool";
        assert!(
            found.len() == 1 && cycle.split(" -> ").all(|part| found[0].contains(part)),
            "{found:?}"
        );
    }
}

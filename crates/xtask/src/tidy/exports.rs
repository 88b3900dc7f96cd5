//! One exported type name has one owner in the workspace.
//!
//! A type is exported if its crate's `lib.rs` declares it, re-exports it by name, or declares the
//! public module that declares it. Crates that only provide programs export nothing. Two types of a
//! crate may share a name if each is under a `#[cfg]`: they are one type.

use std::collections::{BTreeMap, BTreeSet};

/// Beginnings of type declarations.
const DECLARATIONS: [&str; 5] =
    ["pub struct ", "pub enum ", "pub trait ", "pub type ", "pub union "];

/// Crates whose libraries are used only by their own programs, tests and benches.
const PROGRAMS: [&str; 4] = ["fuzz", "lab", "sim", "xtask"];

/// The declarations and the roots of all crates.
#[derive(Default)]
pub struct Exports {
    /// Crate, module (empty for the root), name and file of each public type.
    declared: Vec<Declared>,
    /// Text of each crate's `lib.rs`, in which comments are blank.
    roots: BTreeMap<String, String>,
    /// Modules under a `#[cfg]`: the paths of their files, without `.rs` and `/mod.rs`.
    conditional: BTreeSet<String>,
}

struct Declared {
    owner: String,
    module: String,
    name: String,
    file: String,
    /// It is under a `#[cfg]`. (Its module may be, too.)
    conditional: bool,
}

impl Exports {
    /// Adds one Rust file; files outside of a crate's `src` declare nothing.
    pub fn add(&mut self, file: &str, text: &str) {
        let Some((owner, path)) =
            file.strip_prefix("crates/").and_then(|file| file.split_once("/src/"))
        else {
            return;
        };
        let mut code = String::new();
        let mut conditional = false;
        let outside_tests = text.lines().take_while(|line| !line.starts_with("mod tests {"));
        for line in outside_tests.map(|line| line.split("//").next().unwrap_or_default()) {
            code.push_str(line);
            code.push('\n');
            let declared = DECLARATIONS.iter().find_map(|start| line.strip_prefix(start));
            if let Some(rest) = declared {
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next();
                self.declared.push(Declared {
                    owner: owner.to_owned(),
                    module: path.split(['/', '.']).next().unwrap_or_default().to_owned(),
                    name: name.unwrap_or_default().to_owned(),
                    file: file.to_owned(),
                    conditional,
                });
            }
            let module = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ");
            if let Some(module) = module.and_then(|rest| rest.strip_suffix(';'))
                && conditional
            {
                let path = stem(file);
                let dir = path.strip_suffix("/lib").unwrap_or(path);
                self.conditional.insert(format!("{dir}/{module}"));
            }
            // Comments and further attributes may follow a `#[cfg]`.
            conditional = line.starts_with("#[cfg(")
                || conditional && (line.trim().is_empty() || line.starts_with("#["));
        }
        if path == "lib.rs" {
            self.roots.insert(owner.to_owned(), code);
        }
    }

    /// Returns a finding for each name that more than one file exports.
    pub fn duplicates(&self) -> Vec<String> {
        let mut owners: BTreeMap<&str, Vec<&Declared>> = BTreeMap::new();
        for declared in self.declared.iter().filter(|declared| self.is_exported(declared)) {
            let others = owners.entry(&declared.name).or_default();
            let is_twin = |other: &&Declared| {
                other.owner == declared.owner
                    && self.is_conditional(other)
                    && self.is_conditional(declared)
            };
            if !others.iter().any(is_twin) {
                others.push(declared);
            }
        }
        let shared = owners.into_iter().filter(|(_, types)| types.len() > 1);
        shared
            .map(|(name, types)| {
                let files: Vec<&str> = types.iter().map(|declared| &*declared.file).collect();
                format!("{}: `{name}` is exported by {}, too", files[0], files[1..].join(", "))
            })
            .collect()
    }

    fn is_conditional(&self, declared: &Declared) -> bool {
        declared.conditional || self.conditional.contains(stem(&declared.file))
    }

    fn is_exported(&self, declared: &Declared) -> bool {
        if PROGRAMS.contains(&declared.owner.as_str()) {
            return false;
        }
        let Some(root) = self.roots.get(&declared.owner) else { return false };
        let module = format!("pub mod {};", declared.module);
        declared.module == "lib" || root.contains(&module) || re_exports(root, &declared.name)
    }
}

/// Returns the path of a module from that of its file.
fn stem(file: &str) -> &str {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    path.strip_suffix("/mod").unwrap_or(path)
}

/// Returns true if a `pub use` of the root names `name`.
fn re_exports(root: &str, name: &str) -> bool {
    root.split(';').any(|statement| {
        let words =
            |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == name);
        statement.split_once("pub use ").is_some_and(|(_, names)| words(names))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplicates(files: &[(&str, &str)]) -> Vec<String> {
        let mut exports = Exports::default();
        files.iter().for_each(|(file, text)| exports.add(file, text));
        exports.duplicates()
    }

    #[test]
    fn a_name_that_two_crates_export_is_found() {
        let found = duplicates(&[
            ("crates/a/src/lib.rs", "mod x;\npub use x::{\n    Other,\n    Name,\n};\n"),
            ("crates/a/src/x.rs", "pub struct Name<T>(T);\npub struct Other;\n"),
            ("crates/b/src/lib.rs", "pub mod y;\n"),
            ("crates/b/src/y/z.rs", "pub enum Name {}\n"),
        ]);
        assert_eq!(found, ["crates/a/src/x.rs: `Name` is exported by crates/b/src/y/z.rs, too"]);
    }

    #[test]
    fn a_name_that_a_crate_exports_twice_is_found() {
        let root = "pub mod x;\npub mod y;\n";
        let found = duplicates(&[
            ("crates/a/src/lib.rs", root),
            ("crates/a/src/x.rs", "#[cfg(loom)]\nuse z::Z;\npub struct Name;\n"),
            ("crates/a/src/y.rs", "#[cfg(loom)]\npub struct Name;\n"),
        ]);
        assert_eq!(found, ["crates/a/src/x.rs: `Name` is exported by crates/a/src/y.rs, too"]);
    }

    #[test]
    fn one_type_under_two_configurations_is_one() {
        let twins = "#[cfg(loom)]\n/// Docs.\n#[derive(Debug)]\npub struct Name;\n\n#[cfg(not(loom))]\npub type Name = u8;\n";
        let modules = "#[cfg(loom)]\nmod b;\n#[cfg(not(loom))]\nmod c;\n";
        let found = duplicates(&[
            ("crates/a/src/lib.rs", "pub mod x;\npub mod y;\n"),
            ("crates/a/src/x.rs", twins),
            ("crates/a/src/y/mod.rs", modules),
            ("crates/a/src/y/b.rs", "pub struct Other;\n"),
            ("crates/a/src/y/c.rs", "pub struct Other;\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn private_names_and_programs_export_nothing() {
        let found = duplicates(&[
            ("crates/a/src/lib.rs", "mod x;\nmod tests {\npub struct Name;\n"),
            ("crates/a/src/x.rs", "pub struct Name;\n"),
            ("crates/b/src/lib.rs", "pub struct Name;\n// pub use y::Name;\n"),
            ("crates/lab/src/lib.rs", "pub struct Name;\n"),
            ("crates/c/src/main.rs", "pub struct Name;\n"),
            ("crates/c/src/x.rs", "pub struct Name;\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}

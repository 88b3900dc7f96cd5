//! One exported type name has one owner in the workspace.
//!
//! A type is exported if its crate's `lib.rs` declares it, re-exports it by name, or declares the
//! public module that declares it. Crates that only provide programs export nothing.

use std::collections::BTreeMap;

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
}

struct Declared {
    owner: String,
    module: String,
    name: String,
    file: String,
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
                });
            }
        }
        if path == "lib.rs" {
            self.roots.insert(owner.to_owned(), code);
        }
    }

    /// Returns a finding for each name that more than one file exports.
    pub fn duplicates(&self) -> Vec<String> {
        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for declared in self.declared.iter().filter(|declared| self.is_exported(declared)) {
            let files = owners.entry(&declared.name).or_default();
            // The same name under two configurations is one type.
            let crate_of = |file: &str| file.split('/').nth(1).map(str::to_owned);
            if !files.iter().any(|file| crate_of(file) == crate_of(&declared.file)) {
                files.push(&declared.file);
            }
        }
        let shared = owners.into_iter().filter(|(_, files)| files.len() > 1);
        shared
            .map(|(name, files)| {
                format!("{}: `{name}` is exported by {}, too", files[0], files[1..].join(", "))
            })
            .collect()
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

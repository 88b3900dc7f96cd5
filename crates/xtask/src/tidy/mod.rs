//! `cargo xtask tidy`: the rules of STYLE.md that a machine can check.
//!
//! Each check is a function from texts to findings, with tests of its own; this file only reads the
//! tree.

mod atomics;
mod classes;
mod exports;
mod layers;
mod links;
mod modules;
mod ratchet;
mod records;
mod seeds;
mod source;
mod tree;
mod width;

use clearway_harness::tools::repository_root;
use clearway_harness::{Res, tools};
use std::collections::BTreeSet;
use std::path::Path;

/// Sizes of the files that exceed the limit.
const RATCHET: &str = "crates/xtask/ratchet.txt";

/// Checks the whole repository; the error lists every finding. `update` rewrites the ratchet file
/// for files that shrank.
pub fn run(update: bool) -> Res<()> {
    let root = repository_root();
    let files = tree::text_files(&root)?;
    let mut findings = Vec::new();
    let map = read(&root, "ARCHITECTURE.md")?;
    findings.extend(layers::check(&map, &layers::from_metadata(&metadata()?)?));
    let (mut sizes, mut names) = (Vec::new(), BTreeSet::new());
    let (mut imports, mut exports) = (modules::Imports::default(), exports::Exports::default());
    for file in &files {
        let text = read(&root, file)?;
        findings.extend(source::machine_paths(file, &text));
        if file.ends_with(".md") {
            findings.extend(links::check(&root, file, &text));
            findings.extend(width::markdown(file, &text));
            if records::is_record(file) {
                findings.extend(records::check(file, &text));
            }
        }
        if file.ends_with(".rs") {
            imports.add(file, &text);
            exports.add(file, &text);
            findings.extend(source::check(file, &text));
            findings.extend(atomics::check(file, &text));
            findings.extend(width::comments(file, &text));
            findings.extend(classes::check(file, &text, &mut names));
            sizes.push((file.clone(), text.lines().count()));
        }
    }
    let (index, summary) = (read(&root, records::INDEX)?, read(&root, records::SUMMARY)?);
    findings.extend(records::unlisted(files.iter(), &index, &summary));
    findings.extend(seeds::check(&read(&root, seeds::DOCUMENT)?, &read(&root, seeds::FOUND)?));
    findings.extend(imports.cycles());
    findings.extend(exports.duplicates());
    findings.extend(classes::compare(&read(&root, classes::TABLE)?, &names));
    let recorded = std::fs::read_to_string(root.join(RATCHET)).unwrap_or_default();
    if update {
        let text = ratchet::shrunk(&recorded, &sizes)?;
        std::fs::write(root.join(RATCHET), text).map_err(|e| format!("{RATCHET}: {e}"))?;
    } else {
        findings.extend(ratchet::check(&recorded, &sizes));
    }
    if findings.is_empty() {
        println!("tidy: {} files in order", files.len());
        return Ok(());
    }
    Err(format!("{}\ntidy: {} findings", findings.join("\n"), findings.len()))
}

fn read(root: &Path, file: &str) -> Res<String> {
    std::fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))
}

fn metadata() -> Res<String> {
    let output = tools::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|e| e.to_string())
}

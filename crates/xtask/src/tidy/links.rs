//! Relative links of Markdown files have targets. Links of `docs/` stay there, because the
//! directory is also a book, whose pages are at other places.

use std::path::{Component, Path};

/// The directory of the book.
const BOOK: &str = "docs/";

/// Returns the links of `file` (relative to `root`) whose target does not exist, or which leave the
/// book.
pub fn check(root: &Path, file: &str, text: &str) -> Vec<String> {
    let directory = root.join(file).parent().map(Path::to_path_buf).unwrap_or_default();
    let mut findings = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:");
            if !outside && !path.is_empty() && !directory.join(path).exists() {
                findings.push(format!(
                    "{file}:{}: link to `{target}`, which does not exist",
                    number + 1
                ));
            } else if !outside && leaves_book(file, path) {
                findings.push(format!(
                    "{file}:{}: link to `{target}`, which is not in {BOOK}: name it in a code span",
                    number + 1
                ));
            } else if !outside && is_renamed_in_book(file, path) {
                findings.push(format!(
                    "{file}:{}: link to `{target}`: the book has it under another name; link to \
                     its directory",
                    number + 1
                ));
            }
        }
    }
    findings
}

/// Returns true if a link of a page of the book leads to a file outside of it.
fn leaves_book(file: &str, path: &str) -> bool {
    let Some(page) = file.strip_prefix(BOOK) else { return false };
    let mut depth = page.matches('/').count();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

/// Returns true if a page of the book links to a file that has another name there: mdBook calls
/// `README.md` `index.html`, and has no page for `SUMMARY.md`. It knows both names in the summary.
fn is_renamed_in_book(file: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    file.starts_with(BOOK)
        && !file.ends_with("SUMMARY.md")
        && ["README.md", "SUMMARY.md"].contains(&name)
}

/// Returns the texts between `](` and `)`, except in code spans.
fn targets(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    prose
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split_whitespace().next().unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_harness::tools::TempDir;

    #[test]
    fn only_dead_links_are_found() {
        let dir = TempDir::new("links").unwrap();
        std::fs::create_dir(dir.path().join("docs")).unwrap();
        std::fs::write(dir.path().join("docs/a.md"), "").unwrap();
        let text = "[a](docs/a.md#part) [b](https://example.org/x) `[c](no)` [d](#here)\n```\n[e](no)\n```\n[f](docs/none.md)\n";
        let found = check(dir.path(), "README.md", text);
        assert_eq!(found, ["README.md:5: link to `docs/none.md`, which does not exist"]);
        assert_eq!(check(dir.path(), "docs/b.md", "[a](a.md)"), Vec::<String>::new());
    }

    #[test]
    fn links_that_leave_the_book_are_found() {
        let dir = TempDir::new("book").unwrap();
        std::fs::create_dir_all(dir.path().join("docs/c")).unwrap();
        for file in ["README.md", "docs/a.md"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let none = Vec::<String>::new();
        assert_eq!(check(dir.path(), "docs/c/d.md", "[a](../a.md) [a](./../c/../a.md)"), none);
        assert_eq!(check(dir.path(), "docs/a.md", "[x](https://example.org) [y](#z)"), none);
        assert_eq!(check(dir.path(), "README.md", "[a](docs/a.md) [b](docs/../README.md)"), none);
        for (file, link) in
            [("docs/SUMMARY.md", "../README.md"), ("docs/c/d.md", "../../README.md")]
        {
            let found = check(dir.path(), file, &format!("[r]({link})"));
            let says = "which is not in docs/: name it in a code span";
            assert_eq!(found, [format!("{file}:1: link to `{link}`, {says}")]);
        }
        std::fs::write(dir.path().join("docs/c/README.md"), "").unwrap();
        assert_eq!(check(dir.path(), "docs/SUMMARY.md", "[c](c/README.md)"), none);
        assert_eq!(check(dir.path(), "docs/a.md", "[c](c/)"), none);
        assert_eq!(check(dir.path(), "docs/a.md", "[c](c/README.md)").len(), 1);
    }
}

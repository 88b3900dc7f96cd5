//! Relative links of Markdown files have targets.

use std::path::Path;

/// Returns the links of `file` (relative to `root`) whose target does not exist.
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
            }
        }
    }
    findings
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
}

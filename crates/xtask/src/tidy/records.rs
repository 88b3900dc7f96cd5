//! Decision records have one form, and the lists of records name all of them.

/// The directory of the records.
const DIRECTORY: &str = "docs/decisions/";
/// The list of records in their directory.
pub const INDEX: &str = "docs/decisions/README.md";
/// The list of the book's chapters.
pub const SUMMARY: &str = "docs/SUMMARY.md";
/// The parts of a record, each a bold word at the start of a paragraph.
const PARTS: [&str; 4] = ["Context", "Decision", "Consequences", "Measured"];
/// The part that may follow.
const SOURCE: &str = "Source";

/// Returns true if the file is a decision record.
pub fn is_record(file: &str) -> bool {
    file.starts_with(DIRECTORY) && file.ends_with(".md") && file != INDEX
}

/// Returns what is wrong with the form of a record.
pub fn check(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if text.lines().filter(|line| line.starts_with("# ")).count() != 1 || !text.starts_with("# ") {
        findings.push(format!("{file}: a record begins with its only title"));
    }
    let bold = text.lines().filter_map(|line| line.strip_prefix("**")?.split("**").next());
    let parts: Vec<&str> = bold.collect();
    let mut found: Vec<&str> =
        parts.iter().map(|part| part.strip_suffix('.').unwrap_or("without a full stop")).collect();
    if found.last() == Some(&SOURCE) {
        found.pop();
    }
    if found != PARTS {
        findings.push(format!(
            "{file}: the parts are {}, and optionally {SOURCE}; found: {}",
            PARTS.join(", "),
            parts.join(" ")
        ));
    }
    findings
}

/// Returns the records that a list does not name. The lists are those of the directory and of the
/// book.
pub fn unlisted<'a>(
    files: impl Iterator<Item = &'a String>,
    index: &str,
    summary: &str,
) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.filter(|file| is_record(file)) {
        let name = &file[DIRECTORY.len()..];
        if !index.contains(&format!("]({name})")) {
            findings.push(format!("{INDEX}: {name} is not in the list"));
        }
        if !summary.contains(&format!("(decisions/{name})")) {
            findings.push(format!("{SUMMARY}: decisions/{name} is not in the list"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "docs/decisions/a.md";
    const GOOD: &str = "# A\n\n**Context.** x\n\n**Decision.** y\n\n## More\n\n| **1** |\n\n\
                        **Consequences.** z\n\n**Measured.** Not measured.\n";

    #[test]
    fn complete_records_pass() {
        assert_eq!(check(FILE, GOOD), Vec::<String>::new());
        let with_source = format!("{GOOD}\n**Source.** A paper.\n");
        assert_eq!(check(FILE, &with_source), Vec::<String>::new());
        assert!(is_record(FILE) && !is_record(INDEX) && !is_record("docs/lab.md"));
    }

    #[test]
    fn missing_swapped_and_extra_parts_are_found() {
        for bad in [
            GOOD.replace("**Measured.** Not measured.\n", ""),
            GOOD.replace("**Measured.** N", "**Measured** (here). N"),
            GOOD.replace("Context", "Consequence").replace("Consequences", "Context"),
            format!("{GOOD}\n**Tested.** By hand.\n"),
            format!("{GOOD}\n**Source.** A paper.\n\n**Source.** Another.\n"),
            format!("{GOOD}\n# B\n"),
            GOOD.replace("# A\n", ""),
        ] {
            assert_eq!(check(FILE, &bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn unlisted_records_are_found() {
        let files = [FILE, INDEX, "docs/lab.md", "docs/decisions/b.md"].map(str::to_owned);
        let found = unlisted(files.iter(), "- [A](a.md)\n", "- [B](decisions/b.md)\n");
        assert_eq!(
            found,
            [
                "docs/SUMMARY.md: decisions/a.md is not in the list",
                "docs/decisions/README.md: b.md is not in the list",
            ]
        );
    }
}

//! Comments and Markdown prose stay within 100 columns, cells of Markdown tables within 120.
//!
//! rustfmt wraps code, but not comments. A line that cannot be broken, because it is
//! one word such as a link or a code span, may be longer.

/// The last column of a comment or of prose.
const COLUMNS: usize = 100;
/// Characters of a table's cell.
const CELL: usize = 120;

/// Returns the comment lines of a Rust file that are too wide.
pub fn comments(file: &str, text: &str) -> Vec<String> {
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let marker = |line: &str| line.len() - line.trim_start().trim_start_matches(['/', '!']).len();
    too_wide(file, text.lines().enumerate().filter(|(_, line)| is_comment(line)), marker)
}

/// Returns the lines of prose and the table cells of a Markdown file that are too wide.
pub fn markdown(file: &str, text: &str) -> Vec<String> {
    let (mut fenced, mut prose, mut cells) = (false, Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") || trimmed.starts_with('<') {
            continue;
        } else if trimmed.starts_with('|') {
            cells.extend(line.split(" | ").map(|cell| (number, cell.trim_matches(['|', ' ']))));
        } else {
            prose.push((number, line));
        }
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut findings = too_wide(file, prose.into_iter(), indent);
    let wide = cells.into_iter().filter(|(_, cell)| shown(cell) > CELL);
    findings.extend(wide.map(|(number, cell)| {
        let width = shown(cell);
        format!("{file}:{}: a cell of {width} characters; the limit is {CELL}", number + 1)
    }));
    findings
}

/// Returns the lines that are too wide and can be broken. `start` returns the offset of a line's
/// text, after its indentation and markers.
fn too_wide<'a>(
    file: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
    start: impl Fn(&str) -> usize,
) -> Vec<String> {
    let wide = lines.filter(|(_, line)| line.chars().count() > COLUMNS);
    wide.filter(|(_, line)| can_break(&line[start(line)..]))
        .map(|(number, line)| {
            let width = line.chars().count();
            format!("{file}:{}: {width} columns; the limit is {COLUMNS}", number + 1)
        })
        .collect()
}

/// Returns true if there is a blank outside of code spans, tables and link targets.
fn can_break(text: &str) -> bool {
    let text = text.trim();
    let outside: String = text.split('`').step_by(2).collect();
    !text.starts_with('|') && outside.trim().contains(' ')
}

/// Returns the number of visible characters of a cell: without the targets of links.
fn shown(cell: &str) -> usize {
    let mut width = 0;
    let mut rest = cell;
    while let Some((before, after)) = rest.split_once("](") {
        width += before.chars().count() - usize::from(before.contains('['));
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    width + rest.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide() -> String {
        "word ".repeat(21)
    }

    #[test]
    fn wide_comments_are_found() {
        let text = format!("// {}\n    /// {}\nlet x = 1;\n", wide().trim(), "short");
        assert_eq!(comments("a.rs", &text), ["a.rs:1: 107 columns; the limit is 100"]);
    }

    #[test]
    fn lines_that_cannot_be_broken_pass() {
        let link = format!("//! <https://example.org/{}>", "x".repeat(100));
        let span = format!("/// `{}`", wide());
        let code = format!("    let text = \"{}\";", wide());
        for text in [link, span, code] {
            assert_eq!(comments("a.rs", &text), Vec::<String>::new());
        }
    }

    #[test]
    fn wide_prose_and_cells_are_found() {
        let fenced = format!("```\n{0}\n```\n\n    {0}\n", wide());
        assert_eq!(markdown("a.md", &fenced), Vec::<String>::new());
        assert_eq!(markdown("a.md", &wide()), ["a.md:1: 105 columns; the limit is 100"]);
        let row = format!("| a | {} |", "y".repeat(121));
        assert_eq!(markdown("a.md", &row), ["a.md:1: a cell of 121 characters; the limit is 120"]);
        let row = format!("| a | [b]({}) and c |", "z".repeat(200));
        assert_eq!(markdown("a.md", &row), Vec::<String>::new());
    }
}

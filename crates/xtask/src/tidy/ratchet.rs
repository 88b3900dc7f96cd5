//! Source files have a maximum size; those that exceed it already may only shrink.
//!
//! The ratchet file lists the exceptions, `<lines> <path>` each, with their current size. A listed
//! file that grew is a finding. So is one that shrank, until its line is updated
//! (`cargo xtask tidy --update`), so that the gain is kept.

use clearway_harness::Res;
use std::fmt::Write;

/// Maximum number of lines of a file that is not listed.
pub const LIMIT: usize = 600;

const HEADER: &str = "# Source files over the limit, with their size. It may only shrink: split the file, then run\n\
    # `cargo xtask tidy --update`. A new line here needs a reason in the commit message.\n";

/// Returns the files that exceed the limit and are not listed, or differ from their listed size.
pub fn check(recorded: &str, sizes: &[(String, usize)]) -> Vec<String> {
    let listed = match parse(recorded) {
        Ok(listed) => listed,
        Err(why) => return vec![why],
    };
    let mut findings = Vec::new();
    for (file, lines) in sizes {
        let allowed = listed.iter().find(|(name, _)| name == file).map(|(_, n)| *n);
        match allowed {
            Some(n) if *lines > n => {
                findings.push(format!("{file}: {lines} lines; the ratchet allows {n}"))
            }
            Some(n) if *lines < n => {
                findings.push(format!(
                    "{file}: {lines} lines, the ratchet says {n}: run `cargo xtask tidy --update`"
                ));
            }
            None if *lines > LIMIT => {
                findings.push(format!("{file}: {lines} lines; the limit is {LIMIT}"))
            }
            _ => {}
        }
    }
    for (file, _) in &listed {
        if !sizes.iter().any(|(name, _)| name == file) {
            findings
                .push(format!("{file}: in the ratchet, but gone: run `cargo xtask tidy --update`"));
        }
    }
    findings
}

/// Returns the ratchet file with smaller sizes updated; adds nothing and increases nothing.
pub fn shrunk(recorded: &str, sizes: &[(String, usize)]) -> Res<String> {
    let mut text = HEADER.to_owned();
    for (file, allowed) in parse(recorded)? {
        let now = sizes.iter().find(|(name, _)| *name == file).map_or(0, |(_, n)| *n).min(allowed);
        if now > LIMIT {
            writeln!(text, "{now} {file}").map_err(|e| e.to_string())?;
        }
    }
    Ok(text)
}

fn parse(recorded: &str) -> Res<Vec<(String, usize)>> {
    let lines = recorded.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    lines
        .map(|line| {
            let (count, file) = line.split_once(' ').ok_or_else(|| format!("ratchet: `{line}`"))?;
            Ok((
                file.trim().to_owned(),
                count.parse().map_err(|e| format!("ratchet: `{line}`: {e}"))?,
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(lines: usize) -> Vec<(String, usize)> {
        vec![("a.rs".into(), lines), ("b.rs".into(), 10)]
    }

    #[test]
    fn a_file_over_the_limit_is_found() {
        assert_eq!(check("", &sizes(LIMIT)), Vec::<String>::new());
        assert_eq!(check("", &sizes(LIMIT + 1)), ["a.rs: 601 lines; the limit is 600"]);
    }

    #[test]
    fn listed_files_may_only_shrink() {
        assert_eq!(check("700 a.rs\n", &sizes(700)), Vec::<String>::new());
        assert_eq!(check("700 a.rs\n", &sizes(701)), ["a.rs: 701 lines; the ratchet allows 700"]);
        assert_eq!(check("700 a.rs\n", &sizes(699)).len(), 1);
        assert_eq!(shrunk("700 a.rs\n", &sizes(699)).unwrap(), format!("{HEADER}699 a.rs\n"));
        assert_eq!(shrunk("700 a.rs\n", &sizes(800)).unwrap(), format!("{HEADER}700 a.rs\n"));
        assert_eq!(shrunk("700 a.rs\n", &sizes(400)).unwrap(), HEADER);
    }

    #[test]
    fn a_deleted_listed_file_is_found() {
        assert_eq!(check("600 c.rs\n", &sizes(1)).len(), 1);
        assert_eq!(check("many c.rs\n", &sizes(1)).len(), 1);
    }
}

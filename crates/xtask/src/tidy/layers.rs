//! Dependencies point down: compares `cargo metadata` with the crate map of ARCHITECTURE.md.
//!
//! The map is the table whose first column is headed `crate`, top to bottom. Its column `may use`
//! names the crates that a crate may depend on; a star marks those that only its tests may use. A
//! row may only name rows below it. A row without a crate continues the one above.

use clearway_harness::Res;
use serde_json::Value;

const PREFIX: &str = "clearway-";

/// Marks a crate that only tests use, in the map and here.
const TESTS_ONLY: char = '*';

/// A row of the map.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: String,
    uses: Vec<String>,
}

impl Row {
    fn allows(&self, used: &str) -> bool {
        let for_tests = |allowed: &str| used.strip_suffix(TESTS_ONLY) == Some(allowed);
        self.uses.iter().any(|allowed| allowed == used || for_tests(allowed))
    }
}

/// A workspace crate and its workspace dependencies, without `clearway-`; those of tests have a
/// star.
#[derive(Debug, PartialEq, Eq)]
pub struct Crate {
    name: String,
    uses: Vec<String>,
}

/// Reads the workspace's crates from `cargo metadata --no-deps`.
pub fn from_metadata(json: &str) -> Res<Vec<Crate>> {
    let value: Value = serde_json::from_str(json).map_err(|e| format!("cargo metadata: {e}"))?;
    let short =
        |v: &Value| v["name"].as_str().and_then(|n| n.strip_prefix(PREFIX)).map(String::from);
    let packages = value["packages"].as_array().ok_or("cargo metadata: no packages")?;
    let starred = |v: &Value| {
        let star = if v["kind"] == "dev" { TESTS_ONLY.to_string() } else { String::new() };
        short(v).map(|name| name + &star)
    };
    let one = |package: &Value| {
        let mut uses: Vec<String> =
            package["dependencies"].as_array().into_iter().flatten().filter_map(starred).collect();
        uses.sort_unstable();
        uses.dedup();
        let name = short(package).ok_or_else(|| {
            format!("{}: the name of a crate begins with {PREFIX}", package["name"])
        })?;
        Ok(Crate { name, uses })
    };
    packages.iter().map(one).collect()
}

/// Returns the contradictions between the map and the crates.
pub fn check(map: &str, crates: &[Crate]) -> Vec<String> {
    let rows = parse(map);
    if rows.is_empty() {
        return vec!["ARCHITECTURE.md: no table with the columns `crate` and `may use`".into()];
    }
    let mut findings = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        for used in &row.uses {
            let used = used.trim_end_matches(TESTS_ONLY);
            if !rows[at + 1..].iter().any(|below| below.name == used) {
                findings.push(format!(
                    "ARCHITECTURE.md: `{}` may use `{used}`, which is not below it",
                    row.name
                ));
            }
        }
        if !crates.iter().any(|c| c.name == row.name) {
            findings.push(format!(
                "ARCHITECTURE.md: `{}` is on the map, but no such crate exists",
                row.name
            ));
        }
    }
    for c in crates {
        let Some(row) = rows.iter().find(|r| r.name == c.name) else {
            findings.push(format!("ARCHITECTURE.md: crate `{}` is missing from the map", c.name));
            continue;
        };
        for used in c.uses.iter().filter(|used| !row.allows(used)) {
            findings.push(format!(
                "crates/{}/Cargo.toml: depends on `{used}`, which the map does not allow",
                c.name
            ));
        }
    }
    findings
}

fn parse(map: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        line.trim()
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.replace('`', "").trim().to_owned())
            .collect()
    };
    let lines: Vec<&str> = map.lines().collect();
    let header = |line: &&str| line.starts_with('|') && cells(line)[0] == "crate";
    let Some(start) = lines.iter().position(header) else { return Vec::new() };
    let Some(column) = cells(lines[start]).iter().position(|c| c == "may use") else {
        return Vec::new();
    };
    let body = lines[start + 1..].iter().take_while(|line| line.starts_with('|')).skip(1);
    let mut rows: Vec<Row> = Vec::new();
    for line in body {
        let cells = cells(line);
        let uses = cells.get(column).map_or("", String::as_str);
        let uses: Vec<String> = uses
            .split([',', ' '])
            .filter(|u| !u.is_empty() && *u != "-")
            .map(String::from)
            .collect();
        match rows.last_mut() {
            Some(last) if cells[0].is_empty() => last.uses.extend(uses),
            _ => rows.push(Row { name: cells[0].clone(), uses }),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "text\n\n| crate | what | may use |\n|---|---|---|\n\
        | `server` | s | `planner`, `types` |\n| `planner` | p | `types` |\n| `types` | t | - |\n\nmore\n";

    fn crates(list: &[(&str, &[&str])]) -> Vec<Crate> {
        list.iter()
            .map(|(n, u)| Crate {
                name: (*n).into(),
                uses: u.iter().map(|u| (*u).into()).collect(),
            })
            .collect()
    }

    #[test]
    fn rows_without_a_crate_continue_the_one_above() {
        let map = "| crate | what | may use |\n|---|---|---|\n| `a` | x | b, |\n| | | c |\n";
        let uses = ["b", "c"].map(String::from).to_vec();
        assert_eq!(parse(map), [Row { name: "a".into(), uses }]);
    }

    #[test]
    fn an_agreeing_map_gives_no_finding() {
        let good =
            crates(&[("server", &["planner", "types"]), ("planner", &["types"]), ("types", &[])]);
        assert_eq!(check(MAP, &good), Vec::<String>::new());
    }

    #[test]
    fn an_upward_dependency_is_found() {
        let bad = crates(&[("server", &[]), ("planner", &["server"]), ("types", &[])]);
        assert_eq!(
            check(MAP, &bad),
            ["crates/planner/Cargo.toml: depends on `server`, which the map does not allow"]
        );
        let upside_down = MAP.replace("| p | `types` |", "| p | `server` |");
        let found =
            check(&upside_down, &crates(&[("server", &[]), ("planner", &[]), ("types", &[])]));
        assert_eq!(found, ["ARCHITECTURE.md: `planner` may use `server`, which is not below it"]);
    }

    #[test]
    fn dev_dependencies_are_distinguished() {
        let map = MAP.replace("| p | `types` |", "| p | `types`* |");
        let check = |uses: &str| {
            check(&map, &crates(&[("server", &[]), ("planner", &[uses]), ("types", &[])]))
        };
        assert_eq!(check("types*"), Vec::<String>::new());
        assert_eq!(
            check("types"),
            ["crates/planner/Cargo.toml: depends on `types`, which the map does not allow"]
        );
    }

    #[test]
    fn missing_crates_are_found_on_both_sides() {
        let bad = crates(&[("server", &[]), ("planner", &[]), ("latch", &[])]);
        let found = check(MAP, &bad).join("\n");
        assert!(found.contains("crate `latch` is missing from the map"), "{found}");
        assert!(found.contains("`types` is on the map, but no such crate exists"), "{found}");
        assert_eq!(check("no table", &bad).len(), 1);
    }

    #[test]
    fn metadata_gives_the_workspace_crates_only() {
        let json = r#"{"packages":[{"name":"clearway-buffer","dependencies":[{"name":"clearway-types"},{"name":"crc32c"},
            {"name":"clearway-types","kind":"dev"}]}]}"#;
        assert_eq!(from_metadata(json).unwrap(), crates(&[("buffer", &["types", "types*"])]));
        assert!(from_metadata(r#"{"packages":[{"name":"other","dependencies":[]}]}"#).is_err());
    }
}

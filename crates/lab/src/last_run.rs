//! Reads the ratios of our last run from the page that publishes them, so that the page and the
//! comparison cannot differ.

use clearway_harness::pgbench::{Length, QueryMode, Run, Script};

/// A case name and its ratio in our last run.
pub type LastRun = Vec<(String, f64)>;

/// Heading of the column with the names of the cases.
const CASE: &str = "case";
/// Heading of the column with the ratios of the last run. Other columns may have older ratios.
const RATIO: &str = "ratio";

/// Returns the ratios in a page's pgbench tables: those in the column `ratio` of rows that begin
/// with `script, protocol, N clients` (protocol defaults to prepared).
pub fn ratios(page: &str) -> LastRun {
    let (mut at, mut all) = (None, LastRun::new());
    for line in page.lines() {
        let cells: Vec<&str> = line
            .strip_prefix("| ")
            .and_then(|line| line.strip_suffix(" |"))
            .map_or_else(Vec::new, |line| line.split(" | ").collect());
        match cells.first() {
            Some(&CASE) => at = cells.iter().position(|heading| *heading == RATIO),
            // The line between the headings and the rows has no space.
            None if !line.starts_with('|') => at = None,
            _ => all.extend(at.and_then(|at| ratio(&cells, at))),
        }
    }
    all
}

/// Returns the case of a row and the number in its column `at`.
fn ratio(cells: &[&str], at: usize) -> Option<(String, f64)> {
    let case: Vec<&str> = cells.first()?.split(", ").collect();
    let (script, mode, clients) = match case[..] {
        [script, clients] => (script, QueryMode::Prepared.name(), clients),
        [script, mode, clients] => (script, mode, clients),
        _ => return None,
    };
    let run = Run {
        script: Script::ALL.into_iter().find(|s| s.name() == script)?,
        mode: QueryMode::ALL.into_iter().find(|m| m.name() == mode)?,
        clients: clients
            .strip_suffix(" clients")
            .or(clients.strip_suffix(" client"))?
            .parse()
            .ok()?,
        threads: Run::THREADS,
        length: Length::Seconds(0),
    };
    Some((run.name(), cells.get(at)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_come_from_the_column_with_their_heading() {
        let page = "| case | TPS | ratio | ratio before |\n|---|---|---|---|\n\
                    | select-only, simple, 100 clients | 1,234 | 2.50 | 9.00 |\n\
                    | tpcb-like, 1 client | 8 | 0.5 | 9.00 |\n\
                    | select-only, 4 clients | 8 | none | 9.00 |\n\
                    | cold | direct | 8 threads | 8 |\n\n\
                    | case | TPS |\n|---|---|\n| select-only, 1 client | 3.00 |\n\n\
                    | script | ratio |\n|---|---|\n| select-only, 1 client | 3.00 |\n";
        let want = [("select-only -M simple -c 100", 2.5), ("tpcb-like -M prepared -c 1", 0.5)];
        assert_eq!(ratios(page), want.map(|(case, ratio)| (case.to_owned(), ratio)));
    }
}

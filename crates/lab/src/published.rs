//! Reads the ratios that our own pages publish, so that the pages and the comparison cannot differ.

use clearway_harness::pgbench::{Length, QueryMode, Run, Script};

/// A case name and its published ratio.
pub type Published = Vec<(String, f64)>;

/// Returns the ratios in a page's pgbench tables: rows that begin with `script, protocol, N
/// clients` (protocol defaults to prepared) and end with the ratio.
pub fn ratios(page: &str) -> Published {
    page.lines().filter_map(ratio).collect()
}

fn ratio(line: &str) -> Option<(String, f64)> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let case: Vec<&str> = cells.next()?.split(", ").collect();
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
    Some((run.name(), cells.last()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ratios_come_from_case_rows_only() {
        let page = "| case | ratio |\n|---|---|\n| select-only, simple, 100 clients | 1,234 | 2.50 |\n\
                    | tpcb-like, 1 client | 0.5 |\n| select-only, 4 clients | none |\n| cold | direct | 8 threads | 8 |\n";
        let want = [("select-only -M simple -c 100", 2.5), ("tpcb-like -M prepared -c 1", 0.5)];
        assert_eq!(ratios(page), want.map(|(case, ratio)| (case.to_owned(), ratio)));
    }
}

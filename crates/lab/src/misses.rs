//! pgbench's point reads on tables many times the pool, against a PostgreSQL with the same pool and
//! memory: the cost of a page miss.

use crate::experiment::{Experiment, Part, Task};
use crate::last_run::LastRun;
use crate::result::Findings;
use crate::rival::{Setup, Sizes, Target, against_postgres};
use clearway_harness::Res;
use clearway_harness::pgbench::{Length, QueryMode, Run, Script};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "misses",
    about: "pgbench -S on tables of more than eight times the pool: Clearway against PostgreSQL, same pool, same memory",
    question: "How fast are point reads if nearly all of them miss the buffer pool, compared with a PostgreSQL with the same pool size and memory?",
    source: "Our own question. Both servers read through the page cache. Each has its own memory control group with the same limit. The group is charged \
             for the page cache and all of the server's processes, so the cache holds part of the tables. (The installed PostgreSQL may not support direct I/O, so both cannot use it.)",
    source_found: "Nothing is published about it.",
    limits: &[
        "The limit of memory is the same, but Clearway's tables are half as large as PostgreSQL's, and PostgreSQL's processes leave less of the limit to the page cache if there are many. So the cache holds a larger part of Clearway's tables.",
        "Client and servers share the cores of one machine.",
    ],
    bars: &[BARS[0].name],
    run,
};

const BARS: [Target; 1] = [Target {
    name: "select-only, prepared, 100 clients, tables of more than 8 times the pool, memory limited alike, against PostgreSQL",
    script: Script::SelectOnly,
    clients: 100,
    at_least: 1.0,
}];

/// A single client, a small connection pool, and many clients.
const CLIENTS: [u32; 3] = [1, 16, 100];

fn cases(part: &Part) -> Vec<Run> {
    let run = |clients| Run {
        script: Script::SelectOnly,
        mode: QueryMode::Prepared,
        clients,
        threads: Run::THREADS,
        length: Length::Seconds(0),
    };
    let judged = |case: &Run| BARS.iter().any(|bar| bar.case() == case.name());
    CLIENTS.map(run).into_iter().filter(|case| part.wants(&case.name(), judged(case))).collect()
}

/// Returns tables of more than eight times the pool: 100,000 accounts take about 7.8 MB in
/// Clearway, and about 15 MB with their index in PostgreSQL.
fn sizes(task: &Task) -> Sizes {
    if task.options.quick {
        Sizes { pool: "2MB", scale: 3 }
    } else {
        Sizes { pool: "64MB", scale: 100 }
    }
}

/// Enough for the pool, for PostgreSQL's processes, and for less than half of the smaller tables.
const MEMORY_MB: u32 = 384;

fn run(task: &Task) -> Res<Findings> {
    let setup = Setup {
        name: EXPERIMENT.name,
        sizes: sizes(task),
        memory_mb: Some(MEMORY_MB),
        serve: &["--direct-io", "off"],
        cases: cases(&task.part),
        targets: &BARS,
        last_run: LastRun::new(),
    };
    let mut findings = against_postgres(task, &setup)?;
    findings.configuration.insert("page I/O".into(), "through the page cache, in both".into());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_runs_have_exactly_the_bars_case() {
        let names = |part: &Part| cases(part).iter().map(Run::name).collect::<Vec<_>>();
        assert_eq!(names(&Part::Whole).len(), CLIENTS.len());
        assert_eq!(names(&Part::Bars), BARS.map(|bar| bar.case()));
    }
}

//! pgbench's point reads on tables many times the pool, against a PostgreSQL of the same pool and
//! the same memory: what a page miss costs a server.

use crate::experiment::{Experiment, Part, Task};
use crate::published::Published;
use crate::result::Findings;
use crate::rival::{Promise, Setup, Sizes, against_postgres};
use clearway_harness::Res;
use clearway_harness::pgbench::{Length, Mode, Run, Script};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "misses",
    about: "pgbench -S on tables of more than eight times the pool: Clearway against PostgreSQL, same pool, same memory",
    question: "How does Clearway serve point reads when nearly each of them misses the buffer pool, beside a PostgreSQL with the same pool size and as much memory?",
    source: "Our own question. Both servers read through the operating system's cache, and each has a memory control group of its own with the same limit, in which \
             that cache is counted with all of the server's processes: it holds a part of the tables. (The PostgreSQL that is installed may not know direct I/O, so that it cannot be had for both.)",
    source_found: "Nothing is published of it.",
    bars: &[BARS[0].name],
    run,
};

const BARS: [Promise; 1] = [Promise {
    name: "select-only, prepared, 100 clients, tables of more than 8 times the pool, memory limited alike, against PostgreSQL",
    script: Script::SelectOnly,
    clients: 100,
    at_least: 1.0,
}];

/// Alone, as many as a small pool of connections has, and a crowd.
const CLIENTS: [u32; 3] = [1, 16, 100];

fn cases(part: &Part) -> Vec<Run> {
    let run = |clients| Run {
        script: Script::SelectOnly,
        mode: Mode::Prepared,
        clients,
        length: Length::Seconds(0),
    };
    let judged = |case: &Run| BARS.iter().any(|bar| bar.case() == case.name());
    CLIENTS.map(run).into_iter().filter(|case| part.wants(&case.name(), judged(case))).collect()
}

/// 100,000 accounts take about 7.8 MB in Clearway, and, with their index, about 15 MB in
/// PostgreSQL.
fn sizes(task: &Task) -> Sizes {
    if task.options.quick {
        Sizes { pool: "2MB", scale: 3 }
    } else {
        Sizes { pool: "64MB", scale: 100 }
    }
}

/// Room for the pool, for PostgreSQL's process for each client, and for less than half of the
/// smaller tables.
const MEMORY_MB: u32 = 384;

fn run(task: &Task) -> Res<Findings> {
    let setup = Setup {
        name: EXPERIMENT.name,
        sizes: sizes(task),
        memory_mb: Some(MEMORY_MB),
        serve: &["--direct-io", "off"],
        cases: cases(&task.part),
        promises: &BARS,
        published: Published::new(),
    };
    let mut findings = against_postgres(task, &setup)?;
    findings
        .configuration
        .insert("page I/O".into(), "through the operating system's cache, in both".into());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_has_its_case_and_needs_no_other() {
        let names = |part: &Part| cases(part).iter().map(Run::name).collect::<Vec<_>>();
        assert_eq!(names(&Part::Whole).len(), CLIENTS.len());
        assert_eq!(names(&Part::Bars), BARS.map(|bar| bar.case()));
    }
}

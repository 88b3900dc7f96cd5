//! pgbench's scripts on Clearway and, if installed, on a PostgreSQL with the same durability and
//! pool size.

use crate::compare::Comparison;
use crate::experiment::{Experiment, Part, Task};
use crate::last_run;
use crate::result::{Axis, Configuration, Findings, Samples};
use crate::rival::{Setup, Sizes, Target, against_postgres};
use clearway_harness::Res;
use clearway_harness::pgbench::{Length, QueryMode, Run, Script};
use clearway_harness::server::Kind;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pgbench",
    about: "pgbench's three scripts: Clearway against PostgreSQL, same durability, same pool size",
    question: "How fast does Clearway run pgbench's built-in scripts, compared with a PostgreSQL with the same durability and pool size on the same machine?",
    source: "Our own question: published pgbench results come from other machines and settings. The ratios of our last run are those of docs/measurements.md, which names their commit and machine.",
    source_found: "Clearway has a higher throughput than PostgreSQL in every case, with the largest ratios at many clients.",
    limits: &[
        "Client and servers share the cores of one machine. PostgreSQL has its defaults, except for the pool's size, and no connection pooler.",
        "pgbench logs a twentieth of the transactions, at random. Latencies are of these.",
    ],
    bars: &[BARS[0].name, BARS[1].name],
    run,
};

const BARS: [Target; 2] = [
    Target {
        name: "select-only, prepared, 100 clients, against PostgreSQL",
        script: Script::SelectOnly,
        clients: 100,
        at_least: 1.5,
    },
    Target {
        name: "tpcb-like, prepared, 16 clients, scale 10, against PostgreSQL",
        script: Script::TpcbLike,
        clients: 16,
        at_least: 1.0,
    },
];

/// The page that publishes Clearway's rate over PostgreSQL's.
const PAGE: &str = include_str!("../../../docs/measurements.md");

/// Client counts: one, a small connection pool, and many.
const CLIENTS: [u32; 3] = [1, 16, 100];

/// Returns the cases of this part of the experiment.
pub fn cases(part: &Part) -> Vec<Run> {
    let run = |script, mode, clients| Run {
        script,
        mode,
        clients,
        threads: Run::THREADS,
        length: Length::Seconds(0),
    };
    let mut cases = Vec::new();
    for script in Script::ALL {
        cases.extend(CLIENTS.map(|clients| run(script, QueryMode::Prepared, clients)));
    }
    cases.extend(
        [QueryMode::Simple, QueryMode::Extended].map(|mode| run(Script::SelectOnly, mode, 100)),
    );
    cases.retain(|case| part.wants(&case.name(), BARS.iter().any(|bar| bar.case() == case.name())));
    cases
}

impl Sizes {
    /// Returns tables that fit in the pool; small ones for `--quick`.
    pub fn of(task: &Task) -> Self {
        Self { pool: "256MB", scale: if task.options.quick { 1 } else { 10 } }
    }
}

/// Returns the Clearway under test, with these additional arguments.
pub fn clearway(task: &Task, sizes: &Sizes, more: &[&str]) -> Res<Kind> {
    let mut args: Vec<String> =
        ["--buffer-pool", sizes.pool].iter().chain(more).map(|a| (*a).to_owned()).collect();
    args.extend(task.options.serve_args.iter().cloned());
    Ok(Kind::Clearway { binary: task.server_binary()?, args })
}

/// Returns the configuration of the runs.
pub fn configuration(task: &Task, sizes: &Sizes) -> Configuration {
    let length = if task.options.quick {
        "320 transactions".into()
    } else {
        format!("{} s", task.options.seconds)
    };
    let mut settings = vec![
        ("scale", sizes.scale.to_string()),
        ("pool", sizes.pool.into()),
        ("fsync", "on".into()),
        ("transport", "TCP loopback".into()),
        ("clients", "pgbench on the same machine, at most 2 threads".into()),
        ("run length", length),
        (
            "latencies",
            "of 5 % of the transactions, sampled by pgbench; of all in a quick run".into(),
        ),
        ("repetitions", format!("{}, servers in turn", task.repetitions())),
    ];
    if !task.options.serve_args.is_empty() {
        settings.push(("serve arguments", task.options.serve_args.join(" ")));
    }
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns charts for each script by clients, and for the protocols.
pub fn samples(comparison: &Comparison) -> Vec<Samples> {
    let mut samples = Vec::new();
    for script in Script::ALL {
        let title = format!("{}, prepared", script.name());
        let clients = |run: &Run| {
            (run.script == script && run.mode == QueryMode::Prepared)
                .then_some(f64::from(run.clients))
        };
        samples.extend(comparison.samples(&title, &Axis::log("clients", ""), clients));
    }
    let modes =
        Axis::names("protocol", QueryMode::ALL.iter().map(|m| m.name().to_owned()).collect());
    let most_clients = CLIENTS[CLIENTS.len() - 1];
    let mode = |run: &Run| {
        let place = QueryMode::ALL.iter().position(|m| *m == run.mode)?;
        (run.script == Script::SelectOnly && run.clients == most_clients).then_some(place as f64)
    };
    samples.extend(comparison.samples(
        &format!("select-only, {most_clients} clients"),
        &modes,
        mode,
    ));
    samples
}

fn run(task: &Task) -> Res<Findings> {
    let setup = Setup {
        name: EXPERIMENT.name,
        sizes: Sizes::of(task),
        memory_mb: None,
        serve: &[],
        cases: cases(&task.part),
        targets: &BARS,
        last_run: last_run::ratios(PAGE),
    };
    against_postgres(task, &setup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PANELS;

    #[test]
    fn bar_runs_have_exactly_the_bars_cases() {
        let names = |part: &Part| cases(part).iter().map(Run::name).collect::<Vec<_>>();
        let mut last_run: Vec<String> = last_run::ratios(PAGE).into_iter().map(|p| p.0).collect();
        last_run.sort();
        let mut whole = names(&Part::Whole);
        whole.sort();
        assert_eq!(last_run, whole, "docs/measurements.md has every case");
        assert_eq!(names(&Part::Bars), BARS.map(|bar| bar.case()));
        assert_eq!(names(&Part::Only("-M simple".into())), ["select-only -M simple -c 100"]);
    }

    #[test]
    fn the_readme_chart_finds_its_samples() {
        let samples = samples(&crate::compare::tests::comparison());
        assert!(samples.iter().any(|samples| samples.title == PANELS[0].samples));
        assert_eq!(PANELS[1].samples, format!("{}, prepared: throughput", Script::TpcbLike.name()));
        assert!(CLIENTS.contains(&100));
    }
}

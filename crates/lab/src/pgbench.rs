//! pgbench's three scripts against Clearway and, where it is installed, a PostgreSQL with the same durability and pool size.

use crate::bars::{Bar, Bound, Reading};
use crate::compare::{Comparison, Contender, compare, seeds};
use crate::experiment::{Experiment, Part, Task};
use crate::published;
use crate::result::{Axis, Configuration, Findings, Samples};
use clearway_harness::pgbench::{Length, Mode, Run, Script};
use clearway_harness::server::Kind;
use clearway_harness::{Res, process, tools};
use std::process::Command;
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pgbench",
    about: "pgbench's three scripts: Clearway against PostgreSQL, same durability, same pool size",
    question: "How does Clearway serve pgbench's three built-in scripts, beside a PostgreSQL with the same durability and pool size on the same machine?",
    source: "Our own question: what others publish of pgbench is of other machines and settings. The published ratios beside ours are those of docs/measurements.md, which names their commit and machine.",
    source_found: "Clearway serves more transactions than PostgreSQL in every case, most ahead with many clients.",
    bars: &[BARS[0].name, BARS[1].name],
    run,
};

/// A promise on a case's ratio.
struct Promise {
    name: &'static str,
    script: Script,
    clients: u32,
    at_least: f64,
}

const BARS: [Promise; 2] = [
    Promise {
        name: "select-only, prepared, 100 clients, against PostgreSQL",
        script: Script::SelectOnly,
        clients: 100,
        at_least: 1.5,
    },
    Promise {
        name: "tpcb-like, prepared, 16 clients, scale 10, against PostgreSQL",
        script: Script::TpcbLike,
        clients: 16,
        at_least: 1.0,
    },
];

/// Clearway's rate over PostgreSQL's was published here.
const PAGE: &str = include_str!("../../../docs/measurements.md");

/// Buffer pool of Clearway and `shared_buffers` of PostgreSQL.
const POOL: &str = "256MB";
/// Accounts in 100,000; the small one for `--quick`.
const SCALE: u32 = 10;
const QUICK_SCALE: u32 = 1;
/// How many clients: alone, as many as a small pool of connections has, and a crowd.
const CLIENTS: [u32; 3] = [1, 16, 100];

/// What the PostgreSQL of the comparison takes.
const NEEDED: [&str; 3] = ["postgres", "initdb", "pgbench"];
/// Longest that a program may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// The cases of this part of the experiment.
pub fn cases(part: &Part) -> Vec<Run> {
    let run = |script, mode, clients| Run { script, mode, clients, length: Length::Seconds(0) };
    let mut cases = Vec::new();
    for script in Script::ALL {
        cases.extend(CLIENTS.map(|clients| run(script, Mode::Prepared, clients)));
    }
    cases.extend([Mode::Simple, Mode::Extended].map(|mode| run(Script::SelectOnly, mode, 100)));
    cases.retain(|case| part.wants(&case.name(), BARS.iter().any(|bar| bar.case() == case.name())));
    cases
}

/// How large the tables are.
pub fn scale(task: &Task) -> u32 {
    if task.options.quick { QUICK_SCALE } else { SCALE }
}

/// The Clearway under test, with these arguments besides the experiment's own.
pub fn clearway(task: &Task, more: &[&str]) -> Res<Kind> {
    let mut args: Vec<String> = ["--buffer-pool", POOL].iter().chain(more).map(|a| (*a).to_owned()).collect();
    args.extend(task.options.serve_args.iter().cloned());
    Ok(Kind::Clearway { binary: task.server_binary()?, args })
}

/// How the runs are made.
pub fn configuration(task: &Task) -> Configuration {
    let length = if task.options.quick { "320 transactions".into() } else { format!("{} s", task.options.seconds) };
    let mut settings = vec![
        ("scale", scale(task).to_string()),
        ("pool", POOL.into()),
        ("fsync", "on".into()),
        ("transport", "TCP loopback".into()),
        ("clients", "pgbench on the same machine, at most 2 threads".into()),
        ("run length", length),
        ("repetitions", format!("{}, servers in turn", task.repetitions())),
    ];
    if !task.options.serve_args.is_empty() {
        settings.push(("serve arguments", task.options.serve_args.join(" ")));
    }
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A chart's worth of samples for each script, by clients, and one for the protocols.
pub fn samples(comparison: &Comparison) -> Vec<Samples> {
    let mut samples = Vec::new();
    for script in Script::ALL {
        let title = format!("{}, prepared", script.name());
        let clients =
            |run: &Run| (run.script == script && run.mode == Mode::Prepared).then_some(f64::from(run.clients));
        samples.extend(comparison.samples(&title, &Axis::log("clients", ""), clients));
    }
    let modes = Axis::names("protocol", Mode::ALL.iter().map(|m| m.name().to_owned()).collect());
    let crowd = CLIENTS[CLIENTS.len() - 1];
    let mode = |run: &Run| {
        let place = Mode::ALL.iter().position(|m| *m == run.mode)?;
        (run.script == Script::SelectOnly && run.clients == crowd).then_some(place as f64)
    };
    samples.extend(comparison.samples(&format!("select-only, {crowd} clients"), &modes, mode));
    samples
}

impl Promise {
    fn case(&self) -> String {
        Run { script: self.script, mode: Mode::Prepared, clients: self.clients, length: Length::Seconds(0) }.name()
    }

    /// Nothing where its case was not run.
    fn judge(&self, comparison: &Comparison) -> Option<Bar> {
        let [ours, theirs] = comparison.rates(&self.case())?[..] else { return None };
        let (ours, theirs) = (Reading::new("Clearway", ours, "TPS", 0), Reading::new("PostgreSQL", theirs, "TPS", 0));
        Some(Bar::ratio(self.name, Bound::AtLeast(self.at_least), ours, theirs))
    }
}

fn postgres() -> Kind {
    let pool = format!("shared_buffers={POOL}");
    let settings = [pool.as_str(), "fsync=on", "synchronous_commit=on", "max_connections=300"].map(String::from);
    Kind::Postgres { settings: settings.to_vec() }
}

fn postgres_version() -> Res<String> {
    let mut command = Command::new(tools::need("postgres")?);
    let said = process::run(command.arg("--version"), "", VERSION_LIMIT)?.success("postgres --version")?;
    Ok(said.trim().to_owned())
}

fn run(task: &Task) -> Res<Findings> {
    let mut findings = Findings { configuration: configuration(task), ..Findings::default() };
    let missing = NEEDED.into_iter().find(|tool| tools::find(tool).is_none());
    if let Some(tool) = missing {
        let why = format!("`{tool}` is not installed");
        if tools::in_ci() {
            return Err(format!("{why}, and CI skips nothing"));
        }
        findings.bars = BARS.iter().map(|bar| Bar::not_here(bar.name, why.clone())).collect();
        if task.part == Part::Bars {
            return Ok(findings);
        }
        findings.configuration.insert("PostgreSQL".into(), "not installed".into());
    }
    let mut contenders = vec![Contender::start("Clearway", &clearway(task, &[])?, scale(task))?];
    if missing.is_none() {
        findings.configuration.insert("PostgreSQL".into(), postgres_version()?);
        contenders.push(Contender::start("PostgreSQL", &postgres(), scale(task))?);
    }
    findings.seeds = seeds(task);
    let comparison = compare(EXPERIMENT.name, &mut contenders, &cases(&task.part), task)?;
    let published = published::ratios(PAGE);
    findings.samples = samples(&comparison);
    findings.tables = vec![comparison.table("Medians, and Clearway's rate over PostgreSQL's", &published)];
    findings.found = comparison.summary().into_iter().collect();
    findings.agreement = comparison.agreement(&published);
    if missing.is_none() {
        findings.bars = BARS.iter().filter_map(|bar| bar.judge(&comparison)).collect();
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_case_and_bars_need_no_other() {
        let names = |part: &Part| cases(part).iter().map(Run::name).collect::<Vec<_>>();
        let published: Vec<String> = published::ratios(PAGE).into_iter().map(|p| p.0).collect();
        assert!(!published.is_empty() && published.iter().all(|case| names(&Part::Whole).contains(case)));
        assert_eq!(names(&Part::Bars), BARS.map(|bar| bar.case()));
        assert_eq!(names(&Part::Only("-M simple".into())), ["select-only -M simple -c 100"]);
    }
}

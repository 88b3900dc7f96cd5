//! Runs the same pgbench cases on Clearway and PostgreSQL, started alike and in turn, and judges
//! the ratio of their rates.

use crate::bars::{Bar, Bound, Reading};
use crate::compare::{Comparison, Contender, compare, seeds};
use crate::experiment::{Part, Task};
use crate::last_run::LastRun;
use crate::pgbench::{clearway, configuration, samples};
use crate::result::Findings;
use clearway_harness::memory::Limit;
use clearway_harness::pgbench::{Length, QueryMode, Run, Script};
use clearway_harness::server::Kind;
use clearway_harness::{Res, process, tools};
use std::process::Command;
use std::time::Duration;

/// Programs that the comparison needs.
const NEEDED: [&str; 3] = ["postgres", "initdb", "pgbench"];
/// PostgreSQL's `max_connections`: more than any pgbench run uses.
const CONNECTIONS: u32 = 300;
/// Maximum time for a program to print its version.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// Sizes of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Buffer pool of Clearway and `shared_buffers` of PostgreSQL.
    pub pool: &'static str,
    /// pgbench's scale: accounts in units of 100,000.
    pub scale: u32,
}

/// A minimum ratio for a case; the case uses the prepared protocol.
#[derive(Debug)]
pub struct Target {
    /// Name of the bar.
    pub name: &'static str,
    /// The script.
    pub script: Script,
    /// Number of clients.
    pub clients: u32,
    /// Minimum of Clearway's rate over PostgreSQL's.
    pub at_least: f64,
}

/// Definition of a comparison.
pub struct Setup<'a> {
    /// Name of the experiment.
    pub name: &'static str,
    /// Sizes.
    pub sizes: Sizes,
    /// Memory limit of each server, for all of its processes and their page cache, in MB. The
    /// targets apply only under that limit. `None`: no limit.
    pub memory_mb: Option<u32>,
    /// Additional arguments of `clearway serve`.
    pub serve: &'a [&'a str],
    /// The cases.
    pub cases: Vec<Run>,
    /// The targets.
    pub targets: &'a [Target],
    /// The ratios of our last run.
    pub last_run: LastRun,
}

impl Target {
    /// Returns the name of its case.
    pub fn case(&self) -> String {
        Run {
            script: self.script,
            mode: QueryMode::Prepared,
            clients: self.clients,
            threads: Run::THREADS,
            length: Length::Seconds(0),
        }
        .name()
    }

    /// Returns `None` if its case was not run.
    fn judge(&self, comparison: &Comparison) -> Option<Bar> {
        let [ours, theirs] = comparison.rates(&self.case())?[..] else { return None };
        let (ours, theirs) = (
            Reading::new("Clearway", ours, "TPS", 0),
            Reading::new("PostgreSQL", theirs, "TPS", 0),
        );
        Some(Bar::ratio(self.name, Bound::AtLeast(self.at_least), ours, theirs))
    }
}

/// Memory of each server.
enum Memory {
    /// Unlimited, as requested.
    Unlimited,
    /// Limited; with the text for the record and the table's title.
    Limited(Limit, String),
    /// Unlimited although a limit is requested, and why. Whether a user may limit memory depends on
    /// the system, so CI does not require it.
    CannotBeLimited(String),
}

impl Memory {
    fn new(megabytes: Option<u32>) -> Self {
        let Some(megabytes) = megabytes else { return Self::Unlimited };
        match Limit::new(u64::from(megabytes) * 1_000_000, &std::env::temp_dir()) {
            Ok(limit) => {
                let said = format!(
                    "{megabytes} MB for each server with all of its processes and its page cache (control groups, version {})",
                    limit.version()
                );
                Self::Limited(limit, said)
            }
            Err(why) => Self::CannotBeLimited(format!("memory is not limited: {why}")),
        }
    }

    fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Limited(limit, _) => Some(limit),
            Self::Unlimited | Self::CannotBeLimited(_) => None,
        }
    }
}

/// Returns a PostgreSQL with this pool for this many clients.
pub fn postgres(pool: &str, clients: u32) -> Kind {
    let (pool, clients) = (format!("shared_buffers={pool}"), format!("max_connections={clients}"));
    let settings = [pool.as_str(), "fsync=on", "synchronous_commit=on", &clients].map(String::from);
    Kind::Postgres { settings: settings.to_vec() }
}

/// Names a program that is not installed; in CI that is an error.
pub fn missing_postgres() -> Res<Option<String>> {
    let missing = NEEDED.into_iter().find(|tool| tools::find(tool).is_none());
    let missing = missing.map(|tool| format!("`{tool}` is not installed"));
    match missing {
        Some(missing) if tools::in_ci() => Err(format!("{missing}, and CI must not skip it")),
        missing => Ok(missing),
    }
}

/// Returns PostgreSQL's version string.
pub fn postgres_version() -> Res<String> {
    let mut command = Command::new(tools::need("postgres")?);
    let said =
        process::run(command.arg("--version"), "", VERSION_LIMIT)?.success("postgres --version")?;
    Ok(said.trim().to_owned())
}

/// Runs the cases on Clearway and, if installed, on PostgreSQL.
pub fn against_postgres(task: &Task, setup: &Setup<'_>) -> Res<Findings> {
    let Setup { sizes, targets, last_run, .. } = setup;
    let mut findings =
        Findings { configuration: configuration(task, sizes), ..Findings::default() };
    let missing = missing_postgres()?;
    let memory = Memory::new(setup.memory_mb);
    let not_judged = match (&missing, &memory) {
        (Some(missing), _) => Some(missing.clone()),
        (None, Memory::CannotBeLimited(why)) => Some(why.clone()),
        (None, Memory::Unlimited | Memory::Limited(..)) => None,
    };
    if let Some(why) = &not_judged {
        findings.bars = targets.iter().map(|bar| Bar::not_here(bar.name, why)).collect();
        if task.part == Part::Bars {
            return Ok(findings);
        }
    }
    let start = |name, kind: &Kind| Contender::limited(memory.limit(), name, kind, sizes.scale);
    let mut contenders = vec![start("Clearway", &clearway(task, sizes, setup.serve)?)?];
    if missing.is_none() {
        findings.configuration.insert("PostgreSQL".into(), postgres_version()?);
        contenders.push(start("PostgreSQL", &postgres(sizes.pool, CONNECTIONS))?);
    } else {
        findings.configuration.insert("PostgreSQL".into(), "not installed".into());
    }
    findings.seeds = seeds(task);
    let comparison = compare(setup.name, &mut contenders, &setup.cases, task)?;
    findings.samples = samples(&comparison);
    let mut title = "Medians, and Clearway's rate over PostgreSQL's".to_owned();
    let limit = match &memory {
        Memory::Unlimited => None,
        Memory::Limited(_, said) => Some((said, said.as_str())),
        Memory::CannotBeLimited(why) => Some((why, "not limited")),
    };
    if let Some((heading, configured)) = limit {
        title = format!("{title}; {heading}");
        findings.configuration.insert("memory".into(), configured.into());
    }
    findings.tables = vec![comparison.table(&title, last_run)];
    if memory.limit().is_some() {
        findings.tables.push(
            comparison
                .memory("Medians of disk reads per transaction, and of page cache at a run's end"),
        );
    }
    findings.found = comparison.summary().into_iter().chain(comparison.losses()).collect();
    findings.agreement = comparison.agreement(last_run);
    if not_judged.is_none() {
        findings.bars = targets.iter().filter_map(|bar| bar.judge(&comparison)).collect();
    }
    Ok(findings)
}

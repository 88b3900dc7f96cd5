//! Clearway and PostgreSQL under the same pgbench runs: started alike, in turn, and judged by the
//! ratio of their rates.

use crate::bars::{Bar, Bound, Reading};
use crate::compare::{Comparison, Contender, compare, seeds};
use crate::experiment::{Part, Task};
use crate::pgbench::{clearway, configuration, samples};
use crate::published::Published;
use crate::result::Findings;
use clearway_harness::memory::Limit;
use clearway_harness::pgbench::{Length, Mode, Run, Script};
use clearway_harness::server::Kind;
use clearway_harness::{Res, process, tools};
use std::process::Command;
use std::time::Duration;

/// What the PostgreSQL of the comparison takes.
const NEEDED: [&str; 3] = ["postgres", "initdb", "pgbench"];
/// Connections that it lets in: more than any pgbench run has.
const CONNECTIONS: u32 = 300;
/// Longest that a program may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// How large everything is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Buffer pool of Clearway and `shared_buffers` of PostgreSQL.
    pub pool: &'static str,
    /// Accounts in 100,000.
    pub scale: u32,
}

/// A promise on a case's ratio; the case is sent by the prepared protocol.
#[derive(Debug)]
pub struct Promise {
    /// The bar's name.
    pub name: &'static str,
    /// What is run.
    pub script: Script,
    /// By how many clients.
    pub clients: u32,
    /// The least that Clearway's rate over PostgreSQL's may be.
    pub at_least: f64,
}

/// What is run on both.
pub struct Setup<'a> {
    /// The experiment's name.
    pub name: &'static str,
    /// How large.
    pub sizes: Sizes,
    /// Memory that each server may have for all of its processes and their page cache, in MB; the
    /// promises hold only under that limit. `None`: as much as the machine has.
    pub memory_mb: Option<u32>,
    /// Further arguments of `clearway serve`.
    pub serve: &'a [&'a str],
    /// What is run.
    pub cases: Vec<Run>,
    /// What is promised of it.
    pub promises: &'a [Promise],
    /// The ratios that were published.
    pub published: Published,
}

impl Promise {
    /// The name of its case.
    pub fn case(&self) -> String {
        Run {
            script: self.script,
            mode: Mode::Prepared,
            clients: self.clients,
            length: Length::Seconds(0),
        }
        .name()
    }

    /// Nothing where its case was not run.
    fn judge(&self, comparison: &Comparison) -> Option<Bar> {
        let [ours, theirs] = comparison.rates(&self.case())?[..] else { return None };
        let (ours, theirs) = (
            Reading::new("Clearway", ours, "TPS", 0),
            Reading::new("PostgreSQL", theirs, "TPS", 0),
        );
        Some(Bar::ratio(self.name, Bound::AtLeast(self.at_least), ours, theirs))
    }
}

/// Memory that each server has.
enum Memory {
    /// As much as the machine has, and no limit is wanted.
    Unlimited,
    /// So much; and how a record and a table's heading say it.
    Limited(Limit, String),
    /// As much as the machine has, though a limit is wanted; and why. Whether a user may limit
    /// memory is the system's affair, and not an installation that CI has to make.
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

/// A PostgreSQL with this pool for so many clients.
pub fn postgres(pool: &str, clients: u32) -> Kind {
    let (pool, clients) = (format!("shared_buffers={pool}"), format!("max_connections={clients}"));
    let settings = [pool.as_str(), "fsync=on", "synchronous_commit=on", &clients].map(String::from);
    Kind::Postgres { settings: settings.to_vec() }
}

/// Which program of the comparison is not installed, as a sentence; in CI that is an error.
pub fn missing_postgres() -> Res<Option<String>> {
    let missing = NEEDED.into_iter().find(|tool| tools::find(tool).is_none());
    let missing = missing.map(|tool| format!("`{tool}` is not installed"));
    match missing {
        Some(missing) if tools::in_ci() => Err(format!("{missing}, and CI skips nothing")),
        missing => Ok(missing),
    }
}

/// What it says of itself.
pub fn postgres_version() -> Res<String> {
    let mut command = Command::new(tools::need("postgres")?);
    let said =
        process::run(command.arg("--version"), "", VERSION_LIMIT)?.success("postgres --version")?;
    Ok(said.trim().to_owned())
}

/// Runs the cases on Clearway and, where it is installed, on PostgreSQL.
pub fn against_postgres(task: &Task, setup: &Setup<'_>) -> Res<Findings> {
    let Setup { sizes, promises, published, .. } = setup;
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
        findings.bars = promises.iter().map(|bar| Bar::not_here(bar.name, why)).collect();
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
    findings.tables = vec![comparison.table(&title, published)];
    if memory.limit().is_some() {
        findings.tables.push(
            comparison.memory(
                "Medians of reads from disks a transaction, and of page cache at a run's end",
            ),
        );
    }
    findings.found = comparison.summary().into_iter().collect();
    findings.agreement = comparison.agreement(published);
    if not_judged.is_none() {
        findings.bars = promises.iter().filter_map(|bar| bar.judge(&comparison)).collect();
    }
    Ok(findings)
}

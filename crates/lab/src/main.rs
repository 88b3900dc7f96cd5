//! The lab: experiments that measure Clearway and its peers in the same run.
//!
//! An experiment asks a question, measures, and stores a [`result::Record`]: raw samples with the
//! commit, the machine, the configuration and the seeds. Rates are compared with a baseline of the
//! same run. A rate counts only if the state after the run passes a check.

#![forbid(unsafe_code)]

mod bars;
mod bp;
mod compare;
mod contention;
mod cpu;
mod describe;
mod experiment;
mod hot_rows;
mod json;
mod last_run;
mod lockstat;
mod machine;
mod misses;
mod multilist;
mod number;
mod partition;
mod pgbench;
mod place;
mod policies;
mod profile;
mod progress;
mod readers;
mod remote_locks;
mod report;
mod result;
mod rival;
mod room;
mod runs;
mod serve;
mod simulator;
mod spinlock;
mod table;
mod terminal;

use bars::Verdict;
use clap::{Parser, Subcommand};
use clearway_harness::tools::repository_root;
use experiment::{Experiment, Options, Part, Task};
use result::Record;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// All experiments, in the order of the report.
static EXPERIMENTS: [Experiment; 32] = [
    pgbench::EXPERIMENT,
    misses::EXPERIMENT,
    hot_rows::EXPERIMENT,
    readers::EXPERIMENT,
    spinlock::EXPERIMENT,
    spinlock::server::EXPERIMENT,
    lockstat::EXPERIMENT,
    policies::EXPERIMENT,
    bp::FIG2,
    bp::FIG6,
    bp::FIG7,
    bp::FIG8,
    bp::TABLE2,
    bp::TABLE3,
    multilist::EXPERIMENT,
    remote_locks::FIG1,
    remote_locks::FIG3,
    remote_locks::FIG4,
    remote_locks::FIG5,
    remote_locks::KINDS,
    remote_locks::NODES,
    remote_locks::TABLE2,
    remote_locks::VERBS,
    remote_locks::REAL,
    partition::FIG4,
    partition::FIG5,
    partition::FIG6,
    partition::FIG7,
    partition::TABLE1,
    partition::SCALE,
    partition::ENGINE,
    partition::LOCK_PROFILE,
];

/// Selects all experiments where a name is expected.
const ALL: &str = "all";

/// Columns of the help texts.
const HELP_WIDTH: usize = 80;

const EXIT_CODES: &str = "Exit codes:
  0  success; for bars: none is missed
  1  a run failed, or a file was refused
  2  usage error
  3  a bar is missed";

#[derive(Parser)]
#[command(
    about = "Experiments that measure Clearway and its peers",
    max_term_width = HELP_WIDTH,
    after_help = EXIT_CODES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments with their bars, and how long whole runs took
    List,
    /// Run experiments, print their results, and store them as JSON. If one of several fails, the
    /// others run, too
    Run {
        /// Experiment, the part before the slashes of several, or `all`
        name: String,
        #[command(flatten)]
        options: Options,
        /// Run only cases whose name contains this text
        #[arg(long)]
        only: Option<String>,
        /// Output file [default: target/lab/NAME.json, with - for /; quick runs: target/lab/quick]
        #[arg(long)]
        json: Option<PathBuf>,
        /// Skip experiments with a record of a whole run of this commit, whatever its options.
        /// Records of uncommitted code do not count
        #[arg(long, conflicts_with_all = ["only", "json", "binary", "serve_args"])]
        resume: bool,
    },
    /// Measure the bars of experiments and print one line each: ok, short, or not here
    Bars {
        /// Experiment, the part before the slashes of several, or `all`
        #[arg(default_value = ALL)]
        name: String,
        #[command(flatten)]
        options: Options,
    },
    /// Run the real server with a replacement that exists only for measurements, until SIGINT or
    /// SIGTERM
    Serve(serve::ServeFlags),
    /// Copy records of whole runs of a committed tree, compressed, to docs/records/
    Publish {
        /// Experiment, the part before the slashes of several, or `all`
        name: String,
    },
    /// Write one HTML page of all records
    Report {
        /// Use the records of quick runs, whose numbers are meaningless
        #[arg(long)]
        quick: bool,
        /// Use the records in docs/records/ [default: those in target/lab]
        #[arg(long, conflicts_with = "quick")]
        published: bool,
        /// Output file [default: report.html beside the records]
        #[arg(long)]
        out: Option<PathBuf>,
        /// Write the chart of the README as SVG to this directory, instead of the page. Needs whole
        /// runs of pgbench and hot-rows, of a committed tree
        #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "quick"])]
        figures: Option<PathBuf>,
    },
}

/// Reasons for a command to fail.
enum Failure {
    Failed(String),
    Usage(String),
    Short,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

fn main() -> ExitCode {
    let (code, why) = match command(Cli::parse().command) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(why)) => (1, Some(why)),
        Err(Failure::Usage(why)) => (2, Some(why)),
        Err(Failure::Short) => (3, None),
    };
    if let Some(why) = why {
        eprintln!("{why}");
    }
    ExitCode::from(code)
}

fn command(command: Command) -> Result<(), Failure> {
    match command {
        Command::List => list()?,
        Command::Run { name, options, only, json, resume } => {
            let task = Task { options, part: only.map_or(Part::Whole, Part::Only) };
            return run(&chosen(&name)?, &task, json, resume);
        }
        Command::Bars { name, options } => {
            return judge(&chosen(&name)?, &Task { options, part: Part::Bars });
        }
        Command::Serve(flags) => serve::serve(flags).map_err(|failure| failure.to_string())?,
        Command::Publish { name } => {
            for experiment in chosen(&name)? {
                publish(experiment, &directory(false), &published())?;
            }
        }
        Command::Report { published: of_published, figures: Some(out), .. } => {
            let records = if of_published { published() } else { directory(false) };
            println!("chart: {}", report::write_figures(&records, &out)?.display());
        }
        Command::Report { quick, published: of_published, out, figures: None } => {
            let directory = directory(quick);
            let out = out.unwrap_or_else(|| directory.join("report.html"));
            let directory = if of_published { published() } else { directory };
            let records = report::write(&directory, &out, &EXPERIMENTS)?;
            println!("records: {records}, page: {}", out.display());
        }
    }
    Ok(())
}

fn chosen(name: &str) -> Result<Vec<&'static Experiment>, Failure> {
    if let Some(experiment) = EXPERIMENTS.iter().find(|e| e.name == name) {
        return Ok(vec![experiment]);
    }
    let chosen: Vec<&Experiment> =
        EXPERIMENTS.iter().filter(|e| name == ALL || is_before_slash(e.name, name)).collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(format!(
            "there is no experiment `{name}`\nhint: see `clearway-lab list`"
        )));
    }
    Ok(chosen)
}

/// Returns true if `name` is the part before the slash of the experiment's name.
fn is_before_slash(experiment: &str, name: &str) -> bool {
    experiment.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
}

/// Prints the experiments. A reader that leaves early, such as `head`, is no failure.
fn list() -> Result<(), Failure> {
    let all: Vec<&Experiment> = EXPERIMENTS.iter().collect();
    let lengths = lengths(&all);
    let mut lines = Vec::new();
    for (experiment, length) in EXPERIMENTS.iter().zip(&lengths) {
        lines.push(format!("{:<20} {}", experiment.name, experiment.about));
        lines.push(format!("{:<20}   {}", "", runs::described(length.as_ref())));
        lines.extend(experiment.bars.iter().map(|bar| format!("{:<20}   bar: {bar}", "")));
    }
    lines.push(runs::total(&lengths));
    match writeln!(io::stdout(), "{}", lines.join("\n")) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("output: {e}")))
        }
        _ => Ok(()),
    }
}

/// Returns the times of whole runs, from the records here or the published ones.
fn lengths(experiments: &[&Experiment]) -> Vec<Option<runs::Length>> {
    let (directories, here) = ([directory(false), published()], machine::Machine::here());
    experiments.iter().map(|experiment| runs::length(experiment, &directories, &here)).collect()
}

fn run(
    experiments: &[&Experiment],
    task: &Task,
    json: Option<PathBuf>,
    resume: bool,
) -> Result<(), Failure> {
    if json.is_some() && experiments.len() > 1 {
        return Err(Failure::Usage(
            "--json names one file, but several experiments were selected".into(),
        ));
    }
    if experiments.len() > 1 && task.part == Part::Whole && !task.options.quick {
        println!("{}", runs::total(&lengths(experiments)));
    }
    let directory = directory(task.options.quick);
    let keeping = runs::Keeping { directory: &directory, json, resume, commit: runs::commit() };
    Ok(runs::run(experiments, task, &keeping)?)
}

/// Returns the file name of an experiment's record; all records share a directory.
fn file(experiment: &Experiment) -> String {
    format!("{}.json", experiment.name.replace('/', "-"))
}

/// Publishes an experiment's record, if there is one.
fn publish(experiment: &Experiment, from: &Path, to: &Path) -> Result<(), Failure> {
    let kept = from.join(file(experiment));
    if !kept.exists() {
        println!("{} was not run", experiment.name);
        return Ok(());
    }
    let record = json::read(&kept)?;
    if let Some(why) = record.unpublishable() {
        return Err(Failure::Failed(format!("{}: {why}", kept.display())));
    }
    let published = to.join(file(experiment) + ".gz");
    json::write(&record, &published)?;
    println!("published in {}", published.display());
    Ok(())
}

fn judge(experiments: &[&Experiment], task: &Task) -> Result<(), Failure> {
    let mut short = false;
    for experiment in experiments {
        if experiment.bars.is_empty() {
            println!("{} has no bars", experiment.name);
            continue;
        }
        let record = Record::make(experiment, task)?;
        println!(
            "{}: commit {}, configuration {}",
            experiment.name, record.commit, record.configuration_hash
        );
        println!("  on {}", record.machine);
        for bar in &record.findings.bars {
            println!("{}", bar.line(experiment.name, record.quick));
            short |= bar.verdict(record.quick) == Verdict::Short;
        }
    }
    if short { Err(Failure::Short) } else { Ok(()) }
}

/// Returns the directory of the records. Quick runs have their own, so they never replace long
/// runs.
fn directory(quick: bool) -> PathBuf {
    repository_root().join(if quick { "target/lab/quick" } else { "target/lab" })
}

/// Returns the directory of the records that documents quote.
fn published() -> PathBuf {
    repository_root().join("docs/records")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_have_unique_names_and_texts() {
        let mut names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(!names.contains(&ALL));
        for e in &EXPERIMENTS {
            let texts = [e.about, e.question, e.source, e.source_found];
            assert!(!texts.iter().chain(e.limits).any(|text| text.is_empty()), "{}", e.name);
            assert!(!e.limits.is_empty(), "{}", e.name);
        }
    }

    #[test]
    fn every_help_fits_80_columns() {
        use clap::CommandFactory;
        let mut cli = Cli::command();
        cli.build();
        let mut commands: Vec<_> = cli.get_subcommands().cloned().collect();
        commands.push(cli);
        for mut command in commands {
            for help in [command.render_help(), command.render_long_help()] {
                let wide = |line: &str| line.chars().count() > HELP_WIDTH;
                let wide: Vec<String> =
                    help.to_string().lines().filter(|line| wide(line)).map(str::to_owned).collect();
                assert_eq!(wide, [""; 0], "{}", command.get_name());
            }
        }
    }

    #[test]
    fn unknown_names_are_usage_errors() {
        assert!(matches!(chosen("nothing"), Err(Failure::Usage(why)) if why.contains("list")));
        assert_eq!(chosen(ALL).map_or(0, |c| c.len()), EXPERIMENTS.len());
        assert!(is_before_slash("policies/traces", "policies"));
        assert!(
            ["polic", "traces", "policies/"].iter().all(|n| !is_before_slash("policies/traces", n))
        );
    }

    #[test]
    fn a_whole_name_selects_only_its_experiment() {
        let names = |name| {
            chosen(name).map(|chosen| chosen.iter().map(|e| e.name).collect::<Vec<_>>()).ok()
        };
        assert_eq!(names("spinlock"), Some(vec!["spinlock"]), "not spinlock/server");
        assert_eq!(names("spinlock/server"), Some(vec!["spinlock/server"]));
        assert!(names("partition").is_some_and(|names| names.len() > 5));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// An experiment with two bars, both measured as 2.0, with minimums 1.0 and 3.0.
    const MADE_UP: Experiment = Experiment {
        name: "made-up",
        about: "",
        question: "",
        source: "",
        source_found: "",
        limits: &["It measures nothing."],
        bars: &["low", "high"],
        run: |task| {
            let reading = |value| bars::Reading::new("r", value, "", 0);
            let bar = |name, least| {
                bars::Bar::ratio(name, bars::Bound::AtLeast(least), reading(2.0), reading(1.0))
            };
            let all = vec![bar("low", 1.0), bar("high", 3.0)];
            let wanted = |bar: &bars::Bar| task.part.wants(&bar.name, true);
            Ok(result::Findings {
                bars: all.into_iter().filter(wanted).collect(),
                ..Default::default()
            })
        },
    };

    fn task(quick: bool, part: Part) -> Task {
        let options =
            Options { quick, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() };
        Task { options, part }
    }

    #[test]
    fn short_bars_fail_bars_but_not_run() {
        assert!(matches!(judge(&[&MADE_UP], &task(false, Part::Bars)), Err(Failure::Short)));
        assert!(judge(&[&MADE_UP], &task(true, Part::Bars)).is_ok(), "a quick run judges nothing");
        assert!(
            judge(&[&spinlock::server::EXPERIMENT], &task(false, Part::Bars)).is_ok(),
            "an experiment without bars is not run"
        );
        let directory = clearway_harness::tools::TempDir::new("lab").unwrap();
        let json = directory.path().join("made-up.json");
        assert!(run(&[&MADE_UP], &task(false, Part::Whole), Some(json.clone()), false).is_ok());
        assert_eq!(json::read(&json).map(|record| record.findings.bars.len()), Ok(2));
    }

    #[test]
    fn only_whole_committed_runs_are_published() {
        let directory = clearway_harness::tools::TempDir::new("publish").unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let whole = Record { experiment: MADE_UP.name.into(), ..result::example() };
        let mut with_binary = whole.clone();
        with_binary.findings.configuration.insert(result::BINARY.into(), "another".into());
        let refused = [
            Record { quick: true, ..whole.clone() },
            Record { only: Some("a".into()), ..whole.clone() },
            Record { commit: "abc123-dirty".into(), ..whole.clone() },
            Record { commit: "unknown".into(), ..whole.clone() },
            Record { checkout: Some("abc124".into()), ..whole.clone() },
            Record { checkout: Some("abc123-dirty".into()), ..whole.clone() },
            with_binary,
        ];
        assert!(publish(&MADE_UP, &from, &to).is_ok(), "without a record nothing is published");
        for record in refused {
            json::write(&record, &from.join("made-up.json")).unwrap();
            assert!(publish(&MADE_UP, &from, &to).is_err() && !to.exists(), "{record}");
        }
        json::write(&whole, &from.join("made-up.json")).unwrap();
        assert!(publish(&MADE_UP, &from, &to).is_ok());
        let published = json::read(&to.join("made-up.json.gz")).map(|record| record.to_string());
        assert_eq!(published, Ok(whole.to_string()));
    }

    #[test]
    fn records_name_a_binary_that_was_not_built_from_the_tree() {
        let binary = std::env::current_exe().ok();
        let with = |binary| {
            let mut task = task(false, Part::Whole);
            task.options.binary = binary;
            Record::make(&MADE_UP, &task)
        };
        let (other, own) = (with(binary.clone()).unwrap(), with(None).unwrap());
        let name = binary.as_deref().and_then(Path::file_name).unwrap().to_string_lossy();
        let named = &other.findings.configuration[result::BINARY];
        assert!(named.starts_with(&format!("{name}, CRC-32C ")), "{named}");
        assert_eq!(own.findings.configuration.get(result::BINARY), None);
        assert_ne!(other.configuration_hash, own.configuration_hash);
        assert!(with(Some("/no/such/binary".into())).is_err());
    }

    #[test]
    fn published_records_are_valid() {
        for entry in std::fs::read_dir(published()).unwrap().map(|entry| entry.unwrap().path()) {
            if !json::is_compressed(&entry) {
                continue;
            }
            let record = json::read(&entry).unwrap();
            assert_eq!(record.unpublishable(), None, "{}", entry.display());
            let experiment = EXPERIMENTS.iter().find(|e| e.name == record.experiment).unwrap();
            assert_eq!(entry.file_name().unwrap().to_str(), Some(&*(file(experiment) + ".gz")));
        }
    }

    #[test]
    fn unjudged_bars_of_a_whole_run_are_errors() {
        let forgetful = Experiment { bars: &["low", "high", "forgotten"], ..MADE_UP };
        assert!(
            Record::make(&forgetful, &task(false, Part::Whole)).unwrap_err().contains("forgotten")
        );
        assert!(Record::make(&forgetful, &task(true, Part::Bars)).is_err());
        let part = Record::make(&forgetful, &task(false, Part::Only("lo".into()))).unwrap();
        assert_eq!((part.findings.bars.len(), part.only.as_deref()), (1, Some("lo")));
    }
}

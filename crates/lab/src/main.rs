//! The lab: experiments that measure Clearway, and peers beside it in the same run.
//!
//! An experiment prints a table and writes JSON with the commit, the machine and the configuration. Rates are quoted against a
//! baseline of the same run; what a run left behind is checked before its rate counts.

#![forbid(unsafe_code)]

mod baton;
mod compare;
mod machine;
mod pgbench;
mod report;

use clap::{Parser, Subcommand};
use clearway_harness::Res;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Experiments that measure Clearway and its peers")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name the experiments and say what each measures
    List,
    /// Run one experiment, or `all`
    Run {
        /// The experiment's name
        name: String,
        #[command(flatten)]
        options: Options,
    },
}

/// What every experiment is told.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Tiny run that shows that the experiment works; its numbers mean nothing
    #[arg(long)]
    quick: bool,
    /// Seconds that each single run lasts
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Runs of each case, of which the median counts
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Only cases whose name contains this text
    #[arg(long)]
    only: Option<String>,
    /// Where to write the JSON report [default: target/lab/NAME.json]
    #[arg(long)]
    json: Option<PathBuf>,
    /// The Clearway to measure, instead of one built from this tree
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Further argument of `clearway serve`; may be given several times
    #[arg(long = "serve-arg", allow_hyphen_values = true)]
    serve_args: Vec<String>,
}

struct Experiment {
    name: &'static str,
    about: &'static str,
    run: fn(&Options) -> Res<Report>,
}

const EXPERIMENTS: [Experiment; 2] = [
    Experiment { name: "pgbench", about: pgbench::ABOUT, run: pgbench::run },
    Experiment { name: "baton", about: baton::ABOUT, run: baton::run },
];

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Res<()> {
    let (name, options) = match command {
        Command::List => {
            for e in &EXPERIMENTS {
                println!("{:<10} {}", e.name, e.about);
            }
            return Ok(());
        }
        Command::Run { name, options } => (name, options),
    };
    let chosen: Vec<&Experiment> = EXPERIMENTS.iter().filter(|e| name == "all" || name == e.name).collect();
    if chosen.is_empty() {
        return Err(format!("no experiment is called `{name}`; see `clearway-lab list`"));
    }
    for experiment in chosen {
        let report = (experiment.run)(&options).map_err(|why| format!("{}: {why}", experiment.name))?;
        println!("{report}");
        let path = options.json.clone().unwrap_or_else(|| {
            clearway_harness::tools::repository_root().join(format!("target/lab/{}.json", experiment.name))
        });
        report.write(&path)?;
        println!("report: {}", path.display());
        report.bars_met()?;
    }
    Ok(())
}

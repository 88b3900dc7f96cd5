//! What an experiment is: what it asks, how it is run, and which bars it has to meet.

use crate::result::Findings;
use clearway_harness::{Res, tools};
use std::path::PathBuf;
use std::time::Duration;

/// One experiment, as `main` lists it.
pub struct Experiment {
    /// The name that `run` and `bars` are given; also the name of its file.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// What was asked.
    pub question: &'static str,
    /// Whom the question comes from: the publication, or why there is none.
    pub source: &'static str,
    /// What the source found.
    pub source_found: &'static str,
    /// The bars that it measures; each must be among the [`Findings::bars`] of a run, by its name.
    pub bars: &'static [&'static str],
    /// Runs it, or the part of it that is wanted.
    pub run: fn(&Task) -> Res<Findings>,
}

/// How every experiment is run, whatever it measures.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Tiny run that shows that the experiment works; its numbers mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Seconds that each single run lasts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Runs of each case, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// The Clearway to measure, instead of one built from this tree
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Further argument of `clearway serve`; may be given several times
    #[arg(long = "serve-arg", allow_hyphen_values = true)]
    pub serve_args: Vec<String>,
}

/// No run whose number is published is shorter, however many share the seconds of the command line.
const LEAST_RUN: Duration = Duration::from_secs(1);

/// Which part of an experiment is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The cases whose name contains this text.
    Only(String),
    /// The cases that its bars are judged by.
    Bars,
}

/// What an experiment is told.
#[derive(Clone, Debug)]
pub struct Task {
    /// How to run.
    pub options: Options,
    /// How much of it.
    pub part: Part,
}

impl Part {
    /// Whether a case belongs to it.
    pub fn wants(&self, case: &str, judged_by_a_bar: bool) -> bool {
        match self {
            Self::Whole => true,
            Self::Only(text) => case.contains(text.as_str()),
            Self::Bars => judged_by_a_bar,
        }
    }
}

impl Task {
    /// Runs of each case.
    pub fn repetitions(&self) -> u32 {
        if self.options.quick { 1 } else { self.options.repeat }
    }

    /// How long one of `runs` runs lasts that share the seconds of the command line: at least a
    /// second.
    pub fn shared_time(&self, runs: u32) -> Duration {
        (Duration::from_secs(self.options.seconds.into()) / runs.max(1)).max(LEAST_RUN)
    }

    /// The Clearway to measure; built from this tree, in release, unless another is given.
    pub fn server_binary(&self) -> Res<PathBuf> {
        self.options.binary.clone().map_or_else(tools::build_server, Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_share_the_seconds_last_a_second_at_least() {
        let options =
            Options { quick: false, seconds: 8, repeat: 1, binary: None, serve_args: Vec::new() };
        let task = Task { options, part: Part::Whole };
        let times = [0, 1, 4, 7, 100].map(|runs| task.shared_time(runs).as_millis());
        assert_eq!(times, [8_000, 8_000, 2_000, 1_142, 1_000]);
    }

    #[test]
    fn a_part_has_its_cases() {
        assert!(Part::Whole.wants("a", false));
        assert!(Part::Bars.wants("a", true) && !Part::Bars.wants("a", false));
        let only = Part::Only("tpcb".into());
        assert!(only.wants("tpcb-like -c 16", false) && !only.wants("select-only", true));
    }
}

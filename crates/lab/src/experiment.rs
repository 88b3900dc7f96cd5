//! Definition of an experiment: its question, how it runs, and the bars it must meet.

use crate::result::Findings;
use clearway_harness::{Res, tools};
use std::path::PathBuf;
use std::time::Duration;

/// One experiment, as listed in `main`.
pub struct Experiment {
    /// The name that `run` and `bars` accept; also the name of its record.
    pub name: &'static str,
    /// One-line description of what it measures.
    pub about: &'static str,
    /// The question it answers.
    pub question: &'static str,
    /// The publication that the question comes from, or why there is none.
    pub source: &'static str,
    /// What the source found.
    pub source_found: &'static str,
    /// What its results do not show, and which of them follow from the method; one paragraph each.
    pub limits: &'static [&'static str],
    /// The bars it measures. A run must return each of them in [`Findings::bars`].
    pub bars: &'static [&'static str],
    /// Runs the experiment, or the requested part of it.
    pub run: fn(&Task) -> Res<Findings>,
}

/// Options common to all experiments.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Tiny run that only checks that the experiment works; its numbers are meaningless
    #[arg(long)]
    pub quick: bool,
    /// Length of each single run, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Repetitions of each case; the median is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Clearway binary to measure [default: built from this tree]
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Additional argument for `clearway serve`; may be repeated
    #[arg(long = "serve-arg", allow_hyphen_values = true)]
    pub serve_args: Vec<String>,
}

/// Minimum length of a run whose number is published, however many runs share `--seconds`.
const MIN_RUN: Duration = Duration::from_secs(1);

/// Part of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All cases.
    Whole,
    /// Cases whose name contains this text.
    Only(String),
    /// Cases that the bars need.
    Bars,
}

/// What to run and how.
#[derive(Clone, Debug)]
pub struct Task {
    /// How to run.
    pub options: Options,
    /// Which part to run.
    pub part: Part,
}

impl Part {
    /// Returns true if a case belongs to this part.
    pub fn wants(&self, case: &str, judged_by_a_bar: bool) -> bool {
        match self {
            Self::Whole => true,
            Self::Only(text) => case.contains(text.as_str()),
            Self::Bars => judged_by_a_bar,
        }
    }
}

impl Task {
    /// Returns the number of repetitions of each case.
    pub fn repetitions(&self) -> u32 {
        if self.options.quick { 1 } else { self.options.repeat }
    }

    /// Returns the length of one of `runs` runs that share `--seconds`: at least 1 s.
    pub fn shared_time(&self, runs: u32) -> Duration {
        (Duration::from_secs(self.options.seconds.into()) / runs.max(1)).max(MIN_RUN)
    }

    /// Returns the minimum length of a run whose number is published.
    pub fn min_run(&self) -> Duration {
        if self.options.quick { Duration::ZERO } else { MIN_RUN }
    }

    /// Returns the binary to measure; builds it from this tree in release mode if none is given.
    pub fn server_binary(&self) -> Res<PathBuf> {
        self.options.binary.clone().map_or_else(tools::build_server, Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_runs_last_at_least_a_second() {
        let options =
            Options { quick: false, seconds: 8, repeat: 1, binary: None, serve_args: Vec::new() };
        let task = Task { options, part: Part::Whole };
        let times = [0, 1, 4, 7, 100].map(|runs| task.shared_time(runs).as_millis());
        assert_eq!(times, [8_000, 8_000, 2_000, 1_142, 1_000]);
    }

    #[test]
    fn parts_select_their_cases() {
        assert!(Part::Whole.wants("a", false));
        assert!(Part::Bars.wants("a", true) && !Part::Bars.wants("a", false));
        let only = Part::Only("tpcb".into());
        assert!(only.wants("tpcb-like -c 16", false) && !only.wants("select-only", true));
    }
}

//! The record of a run: everything needed to believe it, repeat it, or question it.
//!
//! An experiment returns [`Findings`]. The framework adds what all experiments share (time,
//! machine, commit) to make a [`Record`]. Records are stored ([`crate::json`]), printed
//! ([`crate::terminal`]) and reported ([`crate::report`]).

use crate::bars::Bar;
use crate::experiment::{Experiment, Part, Task};
use crate::json::numbers_or_null;
use crate::machine::Machine;
use crate::table::Table;
use crate::{json, machine};
use clearway_harness::Res;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Key of the server binary in the configuration, if it was not built from the tree.
pub const BINARY: &str = "server binary";

/// Configuration of a run: names and values, sorted by name.
pub type Configuration = BTreeMap<String, String>;

/// The result of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Everything except the machine that affects the numbers: sizes, settings, run lengths, peers'
    /// versions.
    pub configuration: Configuration,
    /// Seeds of the repetitions, in order; empty if nothing is random.
    pub seeds: Vec<u64>,
    /// All measurements, before any median is taken.
    pub samples: Vec<Samples>,
    /// Tables derived from the samples, with published numbers beside ours.
    pub tables: Vec<Table>,
    /// Our findings, one paragraph each.
    pub found: Vec<String>,
    /// How far they agree with the source and why not, one paragraph each.
    pub agreement: Vec<String>,
    /// The judged bars.
    pub bars: Vec<Bar>,
}

/// Raw samples of one measure for several contenders: the data of one chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Chart title.
    pub title: String,
    /// The independent variable.
    pub x: Axis,
    /// The measured quantity.
    pub y: Axis,
    /// One series per contender.
    pub series: Vec<Series>,
    /// Whether the report draws them. All samples are stored.
    pub drawn: bool,
    /// Points that are drawn as crosses. Records of older labs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked: Option<Marked>,
}

/// Points of a chart that differ from the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marked {
    /// How they differ: the text of the legend.
    pub what: String,
    /// Name of the series, and `x`.
    pub points: Vec<(String, f64)>,
}

/// Meaning of the numbers along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// Its unit; empty for a count.
    pub unit: String,
    /// Its scale.
    pub scale: Scale,
}

/// Scale of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic.
    Log,
    /// Names instead of numbers: `x` is an index into the names.
    Names(Vec<String>),
}

/// The samples of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name of the contender.
    pub name: String,
    /// In the order of `x`.
    pub points: Vec<Point>,
}

impl Series {
    /// Returns true for a series of published numbers: its name ends in `published`.
    pub fn is_published(&self) -> bool {
        self.name.ends_with("published")
    }
}

/// The measurements at one `x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Position, in the unit of the x axis.
    pub x: f64,
    /// One value per repetition, in the unit of the y axis; NaN if the repetition gave no number.
    #[serde(deserialize_with = "numbers_or_null")]
    pub y: Vec<f64>,
}

impl Axis {
    /// Creates a linear axis.
    pub fn linear(label: &str, unit: &str) -> Self {
        Self { label: label.into(), unit: unit.into(), scale: Scale::Linear }
    }

    /// Creates a logarithmic axis.
    pub fn log(label: &str, unit: &str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label, unit) }
    }

    /// Creates an axis of names.
    pub fn names(label: &str, names: Vec<String>) -> Self {
        Self { scale: Scale::Names(names), ..Self::linear(label, "") }
    }
}

/// A stored run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The experiment's name.
    pub experiment: String,
    /// The question it answers.
    pub question: String,
    /// The publication that the question comes from.
    pub source: String,
    /// What the source found.
    pub source_found: String,
    /// What its results do not show. Records of older labs have none.
    #[serde(default)]
    pub limits: Vec<String>,
    /// Start of the run: `YYYY-MM-DD HH:MM UTC`.
    pub date: String,
    /// Commit that the lab was built from, with `-dirty` if tracked files had changes.
    pub commit: String,
    /// Commit of the checkout at the start of the run, from which servers are built; `None` in
    /// records of older labs, which recorded only the checkout's commit.
    #[serde(default)]
    pub checkout: Option<String>,
    /// Time that the run took, in seconds; `None` in records of older labs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_taken: Option<f64>,
    /// The machine it ran on.
    pub machine: Machine,
    /// Whether it was a `--quick` run, whose numbers are meaningless.
    pub quick: bool,
    /// The `--only` text; `None` if all cases were run.
    pub only: Option<String>,
    /// The [`configuration_hash`] of the findings' configuration.
    pub configuration_hash: String,
    /// The result.
    pub findings: Findings,
}

impl Record {
    /// Runs an experiment and returns its record. Fails if a whole run, or a run for the bars, did
    /// not judge every bar.
    pub fn make(experiment: &Experiment, task: &Task) -> Res<Self> {
        let (date, checkout, began) = (machine::now(), machine::checkout(), Instant::now());
        let mut findings =
            (experiment.run)(task).map_err(|why| format!("{}: {why}", experiment.name))?;
        if let Some(binary) = &task.options.binary {
            findings.configuration.insert(BINARY.into(), named(binary)?);
        }
        if !matches!(task.part, Part::Only(_))
            && let Some(missing) =
                experiment.bars.iter().find(|name| findings.bars.iter().all(|b| b.name != **name))
        {
            return Err(format!("{}: the run did not judge its bar `{missing}`", experiment.name));
        }
        Ok(Self {
            experiment: experiment.name.into(),
            question: experiment.question.into(),
            source: experiment.source.into(),
            source_found: experiment.source_found.into(),
            limits: limits(experiment),
            date,
            commit: machine::BUILT_FROM.into(),
            checkout: Some(checkout),
            seconds_taken: Some((began.elapsed().as_secs_f64() * 10.0).round() / 10.0),
            machine: Machine::here(),
            quick: task.options.quick,
            only: if let Part::Only(text) = &task.part { Some(text.clone()) } else { None },
            configuration_hash: configuration_hash(experiment.name, &findings.configuration),
            findings,
        })
    }
}

fn limits(experiment: &Experiment) -> Vec<String> {
    experiment.limits.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns a binary's file name and the checksum of its content.
fn named(binary: &Path) -> Res<String> {
    let content = std::fs::read(binary).map_err(|e| format!("{}: {e}", binary.display()))?;
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!("{name}, CRC-32C {:08x}", crc32c::crc32c(&content)))
}

impl Record {
    /// Replaces what the record says about its experiment and the source by this lab's text, which
    /// may be a correction. What was measured stays.
    pub fn described_by(mut self, experiment: &Experiment) -> Self {
        self.question = experiment.question.into();
        self.source = experiment.source.into();
        self.source_found = experiment.source_found.into();
        self.limits = limits(experiment);
        self
    }

    /// Returns why documents must not quote this record, or `None` if they may.
    pub fn unpublishable(&self) -> Option<&'static str> {
        match () {
            () if self.quick => Some("a quick run's numbers are meaningless"),
            () if self.only.is_some() => Some("only some cases were run"),
            () if self.commit.ends_with("-dirty") || self.commit == "unknown" => {
                Some("it was built from uncommitted code")
            }
            () if self.checkout.as_ref().is_some_and(|checkout| *checkout != self.commit) => {
                Some("the lab was built from another commit than the checkout had")
            }
            () if self.findings.configuration.contains_key(BINARY) => {
                Some("it measured another server binary than the tree's (--binary)")
            }
            () => None,
        }
    }
}

/// Returns the hash of a configuration: CRC-32C over the name and the sorted configuration, as 8
/// hexadecimal digits. Equal configurations have equal hashes; different ones collide with a
/// probability of 2^-32.
pub fn configuration_hash(experiment: &str, configuration: &Configuration) -> String {
    json::checksum(&serde_json::json!([experiment, configuration]))
}

/// Returns a record with one of everything, for tests.
#[cfg(test)]
pub fn example() -> Record {
    use crate::bars::{Bound, Reading};
    use crate::table::{Cell, Column};
    let bar = |name, ours| {
        let readings =
            (Reading::new("clearway", ours, "TPS", 0), Reading::new("postgres", 1000.0, "TPS", 0));
        Bar::ratio(name, Bound::AtLeast(1.5), readings.0, readings.1)
    };
    let series = |name: &str, times: f64| {
        let point = |x: f64| Point { x, y: vec![x * 1e5 * times, x * 1.1e5 * times, f64::NAN] };
        Series { name: name.into(), points: vec![point(1.0), point(16.0), point(100.0)] }
    };
    let findings = Findings {
        configuration: Configuration::from([
            ("scale".into(), "10".into()),
            ("pool".into(), "256MB".into()),
        ]),
        seeds: vec![1, u64::MAX],
        samples: vec![Samples {
            title: "select-only".into(),
            x: Axis::log("clients", ""),
            y: Axis::linear("throughput", "TPS"),
            series: vec![series("clearway", 2.0), series("<peer> & \"co\"", 1.0 / 3.0)],
            drawn: true,
            marked: None,
        }],
        tables: vec![Table {
            title: "Rates".into(),
            columns: vec![
                Column::ours("latch", ""),
                Column::ours("ours", "TPS"),
                Column::published("source", "TPS"),
            ],
            rows: vec![vec![Cell::text("cas"), Cell::number(f64::NAN, 0), Cell::number(3652.0, 0)]],
        }],
        found: vec!["more".into()],
        agreement: vec!["half".into()],
        bars: vec![
            bar("high", 2000.0),
            bar("low", 1100.0),
            Bar::not_here("elsewhere", "64 cores are needed"),
        ],
    };
    Record {
        experiment: "spin".into(),
        question: "How fast?".into(),
        source: "A report".into(),
        source_found: "805 TPS".into(),
        limits: vec!["few cores".into()],
        date: "2026-01-02 03:04 UTC".into(),
        commit: "abc123".into(),
        checkout: Some("abc123".into()),
        seconds_taken: Some(61.5),
        machine: Machine {
            cpu: "a <chip>".into(),
            cores: 2,
            memory_mib: 1024,
            kernel: "6.1".into(),
            conditions: [("SMT".into(), "off".into())].into(),
        },
        quick: false,
        only: None,
        configuration_hash: configuration_hash("spin", &findings.configuration),
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_hash_ignores_order() {
        let a =
            Configuration::from([("scale".into(), "10".into()), ("pool".into(), "256MB".into())]);
        let b =
            Configuration::from([("pool".into(), "256MB".into()), ("scale".into(), "10".into())]);
        assert_eq!(configuration_hash("pgbench", &a), configuration_hash("pgbench", &b));
        assert_eq!(configuration_hash("pgbench", &a), "ec07d625");
        let changed =
            Configuration::from([("pool".into(), "256MB".into()), ("scale".into(), "1".into())]);
        assert_ne!(configuration_hash("pgbench", &a), configuration_hash("pgbench", &changed));
        assert_ne!(configuration_hash("pgbench", &a), configuration_hash("baton", &a));
        // The boundary between name and value counts.
        let one = Configuration::from([("a".into(), "bc".into())]);
        let other = Configuration::from([("ab".into(), "c".into())]);
        assert_ne!(configuration_hash("x", &one), configuration_hash("x", &other));
    }
}

//! What a run of an experiment leaves: everything that a reader needs to believe it, repeat it, or
//! doubt it.
//!
//! An experiment returns [`Findings`]; the frame adds what is the same for all (when, where, of
//! which commit) and has a [`Record`], which is what is written ([`crate::json`]), printed
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

/// How a run was configured: names and values, sorted by name.
pub type Configuration = BTreeMap<String, String>;

/// What an experiment returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Whatever changes the numbers and is not the machine: sizes, settings, lengths of runs,
    /// peers' versions.
    pub configuration: Configuration,
    /// Seeds of the repetitions, in their order; empty where nothing is drawn at random.
    pub seeds: Vec<u64>,
    /// Everything measured, before any median.
    pub samples: Vec<Samples>,
    /// What is read off the samples, with published numbers beside ours.
    pub tables: Vec<Table>,
    /// What we found, a paragraph each.
    pub found: Vec<String>,
    /// How far that agrees with what the source found and why not, a paragraph each.
    pub agreement: Vec<String>,
    /// The bars that were judged.
    pub bars: Vec<Bar>,
}

/// One measure of several contenders: a chart's worth of raw samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// What is shown, as a chart's title.
    pub title: String,
    /// What was set.
    pub x: Axis,
    /// What was measured.
    pub y: Axis,
    /// One a contender.
    pub series: Vec<Series>,
    /// Whether the report draws them; all are kept.
    pub drawn: bool,
}

/// What the numbers along an axis are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// Its unit; empty where the quantity is a count.
    pub unit: String,
    /// How it is drawn.
    pub scale: Scale,
}

/// How an axis is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal steps, from zero.
    Linear,
    /// Equal factors; only numbers above zero have a place.
    Log,
    /// Names instead of numbers: point `x` stands for the name of index `x`.
    Names(Vec<String>),
}

/// The samples of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The contender.
    pub name: String,
    /// In the order of `x`.
    pub points: Vec<Point>,
}

/// What was measured at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where, in the unit of the x axis.
    pub x: f64,
    /// Every repetition, in the unit of the y axis; one that gave no number is a NaN.
    #[serde(deserialize_with = "numbers_or_null")]
    pub y: Vec<f64>,
}

impl Axis {
    /// An axis of equal steps.
    pub fn linear(label: &str, unit: &str) -> Self {
        Self { label: label.into(), unit: unit.into(), scale: Scale::Linear }
    }

    /// An axis of equal factors.
    pub fn log(label: &str, unit: &str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label, unit) }
    }

    /// An axis of names.
    pub fn names(label: &str, names: Vec<String>) -> Self {
        Self { scale: Scale::Names(names), ..Self::linear(label, "") }
    }
}

/// A run as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The experiment's name.
    pub experiment: String,
    /// What was asked.
    pub question: String,
    /// Whom the question comes from.
    pub source: String,
    /// What the source found.
    pub source_found: String,
    /// When the run began: `YYYY-MM-DD HH:MM UTC`.
    pub date: String,
    /// Commit of the working tree, with `-dirty` where it was changed.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// Whether it was a `--quick` run, whose numbers mean nothing.
    pub quick: bool,
    /// The text that chose its cases (`--only`); `None`: all cases.
    pub only: Option<String>,
    /// [`configuration_hash`] of the findings' configuration.
    pub configuration_hash: String,
    /// What the experiment returned.
    pub findings: Findings,
}

impl Record {
    /// Runs the experiment and keeps what it found. A whole run, and one for its bars, must have
    /// judged every bar.
    pub fn make(experiment: &Experiment, task: &Task) -> Res<Self> {
        let date = machine::now();
        let findings =
            (experiment.run)(task).map_err(|why| format!("{}: {why}", experiment.name))?;
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
            date,
            commit: machine::commit(),
            machine: Machine::here(),
            quick: task.options.quick,
            only: if let Part::Only(text) = &task.part { Some(text.clone()) } else { None },
            configuration_hash: configuration_hash(experiment.name, &findings.configuration),
            findings,
        })
    }
}

impl Record {
    /// Why documents may not quote it; nothing where they may.
    pub fn unpublishable(&self) -> Option<&'static str> {
        match () {
            () if self.quick => Some("a quick run's numbers mean nothing"),
            () if self.only.is_some() => Some("only some of its cases were run"),
            () if self.commit.ends_with("-dirty") || self.commit == "unknown" => {
                Some("its code was not committed")
            }
            () => None,
        }
    }
}

/// What two runs of an experiment share if, and (but for one case in four thousand million) only
/// if, they were configured alike: CRC-32C over the name and the sorted configuration, eight
/// hexadecimal digits.
pub fn configuration_hash(experiment: &str, configuration: &Configuration) -> String {
    json::checksum(&serde_json::json!([experiment, configuration]))
}

/// A record with one of everything, for tests of what is done with records.
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
        date: "2026-01-02 03:04 UTC".into(),
        commit: "abc123".into(),
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
    fn the_configuration_hash_is_the_same_on_every_machine_and_for_every_order() {
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
        // What ends a name and what begins a value counts.
        let one = Configuration::from([("a".into(), "bc".into())]);
        let other = Configuration::from([("ab".into(), "c".into())]);
        assert_ne!(configuration_hash("x", &one), configuration_hash("x", &other));
    }
}

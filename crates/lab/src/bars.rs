//! Bars: the target an experiment must reach, judged against a peer of the same run.

use crate::json::number_or_null;
use crate::number;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Decimals of the measured value and of its bound.
const DIGITS: u8 = 2;

/// A bar and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Name, unique among the experiment's bars.
    pub name: String,
    /// The measurement, or why there is none.
    pub outcome: Outcome,
}

/// Outcome of a bar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The bar was measured.
    Measured {
        /// The number that is compared with the bound, usually a ratio.
        #[serde(deserialize_with = "number_or_null")]
        value: f64,
        /// Its unit: `x` for a ratio.
        unit: String,
        /// The bound that the value must keep.
        bound: Bound,
        /// The numbers the value is computed from: ours first, then the peers'.
        readings: Vec<Reading>,
    },
    /// This machine cannot measure the bar.
    NotHere {
        /// What is missing.
        why: String,
    },
}

/// Bound of a measured number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Minimum.
    AtLeast(f64),
    /// Maximum.
    AtMost(f64),
}

/// One number that a bar is computed from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Contender or case that was measured.
    pub name: String,
    /// The measured value.
    #[serde(deserialize_with = "number_or_null")]
    pub value: f64,
    /// Unit of the value.
    pub unit: String,
    /// Significant decimals.
    pub digits: u8,
}

/// Verdict at the start of a bar's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Reached.
    Ok,
    /// Missed, or the measurement gave no number.
    Short,
    /// Not measured.
    NotHere,
    /// Measured in a `--quick` run, whose numbers are meaningless.
    Quick,
}

impl Bar {
    /// Creates a bar on the ratio of our number to the best peer's: `ours / peer`.
    pub fn ratio(name: &str, bound: Bound, ours: Reading, peer: Reading) -> Self {
        Self::measured(name, ours.value / peer.value, "x", bound, vec![ours, peer])
    }

    /// Creates a bar on a number of its own.
    pub fn measured(
        name: &str,
        value: f64,
        unit: &str,
        bound: Bound,
        readings: Vec<Reading>,
    ) -> Self {
        Self {
            name: name.into(),
            outcome: Outcome::Measured { value, unit: unit.into(), bound, readings },
        }
    }

    /// Creates a bar that this machine cannot measure.
    pub fn not_here(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::NotHere { why: why.into() } }
    }

    /// Adds the number of cells that were left out, because their contenders had no runs with the
    /// cores in the same state.
    pub fn without(mut self, cells: usize) -> Self {
        if let (Outcome::Measured { readings, .. }, 1..) = (&mut self.outcome, cells) {
            readings.push(Reading::new("cells not judged:", cells as f64, "", 0));
        }
        self
    }

    /// Creates a bar whose cells are all left out for this reason.
    pub fn without_all(name: &str, cells: usize) -> Self {
        let why = "in none did all contenders have runs with the cores in the same state";
        Self::not_here(name, format!("{cells} cells not judged: {why}"))
    }

    /// Returns the verdict for a run that was `quick` or not.
    pub fn verdict(&self, quick: bool) -> Verdict {
        match &self.outcome {
            Outcome::NotHere { .. } => Verdict::NotHere,
            Outcome::Measured { .. } if quick => Verdict::Quick,
            Outcome::Measured { value, bound, .. } if bound.is_within(*value) => Verdict::Ok,
            Outcome::Measured { .. } => Verdict::Short,
        }
    }

    /// Explains the outcome: the value, the bound and the readings, or why nothing was measured.
    pub fn explained(&self) -> String {
        match &self.outcome {
            Outcome::NotHere { why } => why.clone(),
            Outcome::Measured { value, unit, bound, readings } => {
                let readings: Vec<String> = readings.iter().map(Reading::to_string).collect();
                let from = match readings.split_first() {
                    Some((ours, [])) => format!(" ({ours})"),
                    Some((ours, peers)) => format!(" ({ours} beside {})", peers.join(", ")),
                    None => String::new(),
                };
                format!("{} {unit}, bar {bound} {unit}{from}", number::shown(*value, DIGITS))
            }
        }
    }

    /// Returns the bar's line for a terminal.
    pub fn line(&self, experiment: &str, quick: bool) -> String {
        format!(
            "{:<8} {experiment}: {}: {}",
            self.verdict(quick).to_string(),
            self.name,
            self.explained()
        )
    }
}

impl Bound {
    /// Returns true if the value is within the bound. NaN is within none.
    pub fn is_within(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl Reading {
    /// Creates a reading with this many significant decimals.
    pub fn new(name: &str, value: f64, unit: &str, digits: u8) -> Self {
        Self { name: name.into(), value, unit: unit.into(), digits }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = if self.unit.is_empty() { "" } else { " " };
        let value = number::shown(self.value, self.digits);
        write!(f, "{} {value}{gap}{}", self.name, self.unit)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {}", number::shown(*least, DIGITS)),
            Self::AtMost(most) => write!(f, "at most {}", number::shown(*most, DIGITS)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Short => "short",
            Self::NotHere => "not here",
            Self::Quick => "quick",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(bound: Bound, ours: f64, peer: f64) -> Bar {
        Bar::ratio(
            "b",
            bound,
            Reading::new("clearway", ours, "TPS", 0),
            Reading::new("postgres", peer, "TPS", 0),
        )
    }

    #[test]
    fn bars_are_met_missed_or_not_measured() {
        assert_eq!(bar(Bound::AtLeast(1.5), 3000.0, 2000.0).verdict(false), Verdict::Ok);
        assert_eq!(bar(Bound::AtLeast(1.5), 2999.0, 2000.0).verdict(false), Verdict::Short);
        assert_eq!(bar(Bound::AtMost(1.1), 11.0, 10.0).verdict(false), Verdict::Ok);
        assert_eq!(bar(Bound::AtMost(1.1), 11.1, 10.0).verdict(false), Verdict::Short);
        assert_eq!(Bar::not_here("b", "no peer").verdict(false), Verdict::NotHere);
    }

    #[test]
    fn nan_meets_no_bar() {
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(9.0)] {
            assert_eq!(bar(bound, 0.0, 0.0).verdict(false), Verdict::Short);
        }
        assert_eq!(bar(Bound::AtMost(9.0), 1.0, 0.0).verdict(false), Verdict::Short);
    }

    #[test]
    fn quick_runs_judge_nothing() {
        assert_eq!(bar(Bound::AtLeast(1.5), 1.0, 2.0).verdict(true), Verdict::Quick);
        assert_eq!(Bar::not_here("b", "no peer").verdict(true), Verdict::NotHere);
    }

    #[test]
    fn bar_lines_show_value_bound_and_peer() {
        assert_eq!(
            bar(Bound::AtLeast(1.5), 3000.0, 2000.0).line("pgbench", false),
            "ok       pgbench: b: 1.50 x, bar at least 1.50 x (clearway 3,000 TPS beside postgres 2,000 TPS)"
        );
        assert_eq!(
            Bar::not_here("b", "no peer").line("pgbench", false),
            "not here pgbench: b: no peer"
        );
    }
}

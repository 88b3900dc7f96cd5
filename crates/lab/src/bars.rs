//! Bars: what an experiment has to reach, judged against a peer of the same run.

use crate::json::number_or_null;
use crate::number;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Digits behind the point of what was measured, and of its bar.
const DIGITS: u8 = 2;

/// A bar, and how the run came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Its name among the experiment's bars.
    pub name: String,
    /// What was measured against it, or why nothing was.
    pub outcome: Outcome,
}

/// How a bar came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was measured.
    Measured {
        /// The number that is held against the bar, most often a ratio.
        #[serde(deserialize_with = "number_or_null")]
        value: f64,
        /// Its unit: `x` for a ratio.
        unit: String,
        /// What it has to keep to.
        bound: Bound,
        /// What it was computed from, ours first, peers beside it.
        readings: Vec<Reading>,
    },
    /// This machine cannot measure it.
    NotHere {
        /// What is missing.
        why: String,
    },
}

/// What a measured number has to keep to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// No less than this.
    AtLeast(f64),
    /// No more than this.
    AtMost(f64),
}

/// One number that a bar is computed from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Whose.
    pub name: String,
    /// How much.
    #[serde(deserialize_with = "number_or_null")]
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// Digits behind the point that mean something.
    pub digits: u8,
}

/// What a bar's line begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Reached.
    Ok,
    /// Missed; also where the measurement gave no number.
    Short,
    /// Not measured.
    NotHere,
    /// Measured in a `--quick` run: it was shown to work, and means nothing.
    Quick,
}

impl Bar {
    /// How our number compares to the best of the peers', as a ratio: `ours / peer`.
    pub fn ratio(name: &str, bound: Bound, ours: Reading, peer: Reading) -> Self {
        Self::measured(name, ours.value / peer.value, "x", bound, vec![ours, peer])
    }

    /// A number that is held against a bar by itself.
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

    /// A bar that cannot be measured on this machine.
    pub fn not_here(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.into(), outcome: Outcome::NotHere { why: why.into() } }
    }

    /// How it came out, in a run that was `quick` or not.
    pub fn verdict(&self, quick: bool) -> Verdict {
        match &self.outcome {
            Outcome::NotHere { .. } => Verdict::NotHere,
            Outcome::Measured { .. } if quick => Verdict::Quick,
            Outcome::Measured { value, bound, .. } if bound.keeps(*value) => Verdict::Ok,
            Outcome::Measured { .. } => Verdict::Short,
        }
    }

    /// What was measured, the bar, and the peer beside it; or why nothing was measured.
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

    /// Its line on a terminal.
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
    /// What is no number keeps to nothing.
    pub fn keeps(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl Reading {
    /// A number with so many digits behind the point that mean something.
    pub fn new(name: &str, value: f64, unit: &str, digits: u8) -> Self {
        Self { name: name.into(), value, unit: unit.into(), digits }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, number::shown(self.value, self.digits), self.unit)
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
    fn a_bar_is_reached_missed_or_not_measured() {
        assert_eq!(bar(Bound::AtLeast(1.5), 3000.0, 2000.0).verdict(false), Verdict::Ok);
        assert_eq!(bar(Bound::AtLeast(1.5), 2999.0, 2000.0).verdict(false), Verdict::Short);
        assert_eq!(bar(Bound::AtMost(1.1), 11.0, 10.0).verdict(false), Verdict::Ok);
        assert_eq!(bar(Bound::AtMost(1.1), 11.1, 10.0).verdict(false), Verdict::Short);
        assert_eq!(Bar::not_here("b", "no peer").verdict(false), Verdict::NotHere);
    }

    #[test]
    fn what_is_no_number_reaches_no_bar() {
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(9.0)] {
            assert_eq!(bar(bound, 0.0, 0.0).verdict(false), Verdict::Short);
        }
        assert_eq!(bar(Bound::AtMost(9.0), 1.0, 0.0).verdict(false), Verdict::Short);
    }

    #[test]
    fn a_quick_run_judges_nothing() {
        assert_eq!(bar(Bound::AtLeast(1.5), 1.0, 2.0).verdict(true), Verdict::Quick);
        assert_eq!(Bar::not_here("b", "no peer").verdict(true), Verdict::NotHere);
    }

    #[test]
    fn a_line_says_what_was_measured_the_bar_and_the_peer() {
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

//! A report: what was compared, on what, and whether the bars were met; as a terminal table and as JSON.

use crate::machine::Machine;
use clearway_harness::Res;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What an experiment returns.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Commit and machine.
    pub machine: Machine,
    /// How contenders and runs were configured, one line each.
    pub configuration: Vec<String>,
    /// Names of the contenders; the last is the baseline that ratios are taken against.
    pub contenders: Vec<String>,
    /// One row a case.
    pub rows: Vec<Row>,
    /// Bars of this experiment that could be judged.
    pub bars: Vec<Bar>,
}

/// One case, measured for every contender.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The case's name.
    pub case: String,
    /// By contender, in the report's order.
    pub measured: Vec<Measured>,
    /// First contender's rate over the baseline's; `None` with a single contender.
    pub ratio: Option<f64>,
}

/// The median run of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Transactions per second: the median, and all runs.
    pub tps: f64,
    /// All runs' rates, as measured.
    pub runs: Vec<f64>,
    /// Average latency in milliseconds in the median run.
    pub latency_ms: f64,
    /// CPU time of the server a transaction in the median run, in microseconds.
    pub server_cpu_us: Option<f64>,
}

/// A promise on a case's ratio.
#[derive(Debug, Serialize)]
pub struct Bar {
    /// The case.
    pub case: String,
    /// The least ratio.
    pub at_least: f64,
    /// What was reached.
    pub reached: f64,
}

impl Bar {
    fn met(&self) -> bool {
        self.reached >= self.at_least
    }
}

impl Report {
    /// Writes the JSON form.
    pub fn write(&self, path: &Path) -> Res<()> {
        let json = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(path, json));
        written.map_err(|e| format!("{}: {e}", path.display()))
    }

    /// An error that names the bars that were missed.
    pub fn bars_met(&self) -> Res<()> {
        let missed: Vec<String> = self.bars.iter().filter(|b| !b.met()).map(ToString::to_string).collect();
        if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.met() { "met" } else { "MISSED" };
        write!(f, "bar {}: at least {:.2}x, reached {:.2}x: {verdict}", self.case, self.at_least, self.reached)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.machine;
        writeln!(f, "\n{}: commit {}", self.experiment, m.commit)?;
        writeln!(f, "  on {}, {} cores, {} MiB, Linux {}", m.cpu, m.cores, m.memory_mib, m.kernel)?;
        for line in &self.configuration {
            writeln!(f, "  {line}")?;
        }
        write!(f, "\n{:<38}", "case")?;
        for name in &self.contenders {
            write!(f, "{:>16}{:>10}{:>9}", format!("{name} tps"), "ms", "CPU us")?;
        }
        writeln!(f, "{:>9}", if self.contenders.len() > 1 { "ratio" } else { "" })?;
        for row in &self.rows {
            write!(f, "{:<38}", row.case)?;
            for m in &row.measured {
                let cpu = m.server_cpu_us.map_or_else(|| "-".into(), |us| format!("{us:.1}"));
                write!(f, "{:>16.0}{:>10.3}{cpu:>9}", m.tps, m.latency_ms)?;
            }
            writeln!(f, "{:>9}", row.ratio.map_or_else(String::new, |r| format!("{r:.2}x")))?;
        }
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(reached: f64) -> Report {
        let measured = Measured { tps: reached, runs: vec![reached], latency_ms: 1.0, server_cpu_us: None };
        Report {
            experiment: "x",
            machine: Machine::here(),
            configuration: vec!["scale 1".into()],
            contenders: vec!["a".into(), "b".into()],
            rows: vec![Row { case: "c".into(), measured: vec![measured.clone(), measured], ratio: Some(reached) }],
            bars: vec![Bar { case: "c".into(), at_least: 1.5, reached }],
        }
    }

    #[test]
    fn a_missed_bar_is_an_error_and_shows_in_the_table() {
        report(1.5).bars_met().unwrap();
        assert!(report(1.4).bars_met().unwrap_err().contains("MISSED"));
        let table = report(1.4).to_string();
        assert!(table.contains("1.40x") && table.contains("MISSED") && table.contains("scale 1"), "{table}");
    }
}

//! Runs of the real pgbench, and what it reported.

use crate::{Endpoint, Res, process, tools};
use clearway_testkit::Rng;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// pgbench's built-in scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// SELECT by primary key.
    SelectOnly,
    /// UPDATE of an account, SELECT, INSERT into the history.
    SimpleUpdate,
    /// Updates of account, teller and branch and an INSERT into the history, in one transaction.
    TpcbLike,
}

impl Script {
    /// All scripts, cheapest first.
    pub const ALL: [Self; 3] = [Self::SelectOnly, Self::SimpleUpdate, Self::TpcbLike];

    /// Returns pgbench's name of the script.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelectOnly => "select-only",
            Self::SimpleUpdate => "simple-update",
            Self::TpcbLike => "tpcb-like",
        }
    }
}

/// pgbench's protocol mode (`-M`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryMode {
    /// Simple protocol, literals in the text.
    Simple,
    /// Extended protocol, parsed for every query.
    Extended,
    /// Extended protocol, parsed once.
    Prepared,
}

impl QueryMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// Returns pgbench's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Transactions per client (`-t`).
    Transactions(u32),
    /// Seconds (`-T`).
    Seconds(u32),
}

/// One pgbench run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The script.
    pub script: Script,
    /// The protocol mode.
    pub mode: QueryMode,
    /// Number of connections.
    pub clients: u32,
    /// Number of pgbench's threads (`-j`); no more than `clients` are started.
    pub threads: u32,
    /// Length of the run.
    pub length: Length,
}

/// pgbench's report at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PgbenchReport {
    /// "number of transactions actually processed".
    pub processed: u64,
    /// "number of failed transactions".
    pub failed: u64,
    /// Transactions per second, excluding connection time.
    pub tps: f64,
    /// Average latency in milliseconds.
    pub latency_ms: f64,
}

/// A transaction in pgbench's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Latency in microseconds.
    pub latency_us: u64,
    /// End, in microseconds since 1970.
    pub end_us: u64,
}

impl Timed {
    /// Parses a line: client, number, latency, script, second and microsecond of the end.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(2);
        let latency_us = words.next()?.parse().ok()?;
        let mut end = words.skip(1).map(str::parse::<u64>);
        let (second, microsecond) = (end.next()?.ok()?, end.next()?.ok()?);
        Some(Self { latency_us, end_us: second * 1_000_000 + microsecond })
    }
}

/// Returns the latency percentile in milliseconds; NaN without transactions.
pub fn percentile_ms(timed: &[Timed], percent: usize) -> f64 {
    let mut latencies: Vec<u64> = timed.iter().map(|t| t.latency_us).collect();
    latencies.sort_unstable();
    latencies.get(latencies.len() * percent / 100).map_or(f64::NAN, |us| *us as f64 / 1e3)
}

/// Maximum time of a fixed-count run or an initialisation.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `pgbench -i -I steps -s scale` and returns its duration.
pub fn init(endpoint: &Endpoint, steps: &str, scale: u32) -> Res<Duration> {
    let mut command = Command::new(tools::need("pgbench")?);
    command.args(endpoint.client_args()).args([
        "-i",
        "-q",
        "-I",
        steps,
        "-s",
        &scale.to_string(),
        &endpoint.database,
    ]);
    let done = process::run(&mut command, "", LIMIT)?;
    let took = done.took;
    done.success(&format!("pgbench -i -I {steps} -s {scale}"))?;
    Ok(took)
}

impl Run {
    /// The usual number of pgbench's threads: one can load a server on one core.
    pub const THREADS: u32 = 2;

    /// Returns the name of the run in tables and for `--only`.
    pub fn name(&self) -> String {
        format!("{} -M {} -c {}", self.script.name(), self.mode.name(), self.clients)
    }

    /// Runs pgbench with a fresh seed. An error in the output or a failed transaction is an error.
    pub fn execute(&self, endpoint: &Endpoint) -> Res<PgbenchReport> {
        self.seeded(endpoint, Rng::fresh_seed())
    }

    /// Like [`Run::execute`], with this random seed.
    pub fn seeded(&self, endpoint: &Endpoint, seed: u64) -> Res<PgbenchReport> {
        self.with(endpoint, seed, &[])
    }

    /// Like [`Run::seeded`], and returns every transaction from pgbench's log, in no particular
    /// order. `directory` must contain no other files.
    pub fn timed(
        &self,
        endpoint: &Endpoint,
        seed: u64,
        directory: &Path,
    ) -> Res<(PgbenchReport, Vec<Timed>)> {
        self.sampled(endpoint, seed, directory, 1.0)
    }

    /// Like [`Run::timed`], but pgbench logs only this share of the transactions, chosen at random.
    /// Logging all of them costs more than a short transaction.
    pub fn sampled(
        &self,
        endpoint: &Endpoint,
        seed: u64,
        directory: &Path,
        share: f64,
    ) -> Res<(PgbenchReport, Vec<Timed>)> {
        let prefix = format!("--log-prefix={}", directory.join("pgbench").display());
        let rate = format!("--sampling-rate={share}");
        let report = self.with(endpoint, seed, &["-l", &prefix, &rate])?;
        let mut all = Vec::new();
        let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let log = std::fs::read_to_string(entry.map_err(failed)?.path()).map_err(failed)?;
            for line in log.lines() {
                all.push(
                    Timed::parse(line)
                        .ok_or_else(|| format!("pgbench's log: `{line}` is not understood"))?,
                );
            }
        }
        Ok((report, all))
    }

    fn with(&self, endpoint: &Endpoint, seed: u64, more: &[&str]) -> Res<PgbenchReport> {
        let threads = self.clients.min(self.threads);
        let (flag, amount, limit) = match self.length {
            Length::Transactions(n) => ("-t", n, LIMIT),
            Length::Seconds(s) => ("-T", s, Duration::from_secs(u64::from(s)) + LIMIT),
        };
        let mut command = Command::new(tools::need("pgbench")?);
        command.args(endpoint.client_args());
        command.args(["-b", self.script.name(), "-M", self.mode.name(), flag, &amount.to_string()]);
        command.args(["-c", &self.clients.to_string(), "-j", &threads.to_string()]);
        command.args(more).args([&format!("--random-seed={seed}"), &endpoint.database]);
        let what = format!("pgbench {}", self.name());
        let output = process::run(&mut command, "", limit)
            .map_err(|e| format!("{what}: {e}"))?
            .success(&what)?;
        let report =
            parse(&output).ok_or_else(|| format!("{what}: output not understood:\n{output}"))?;
        if report.failed > 0 || output.contains("aborted") || output.contains("ERROR") {
            return Err(format!("{what}: errors\n{output}"));
        }
        if let Length::Transactions(n) = self.length
            && report.processed != u64::from(n) * u64::from(self.clients)
        {
            return Err(format!("{what}: not every transaction was processed\n{output}"));
        }
        Ok(report)
    }
}

fn parse(output: &str) -> Option<PgbenchReport> {
    let after = |label: &str| {
        let rest = output.lines().find_map(|line| line.strip_prefix(label))?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        Some(&rest[..end])
    };
    Some(PgbenchReport {
        processed: after("number of transactions actually processed: ")?.parse().ok()?,
        failed: after("number of failed transactions: ").map_or(Some(0), |n| n.parse().ok())?,
        tps: after("tps = ")?.parse().ok()?,
        latency_ms: after("latency average = ")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgbench_reports_are_parsed() {
        let output = "pgbench (15.20)\nscaling factor: 10\nnumber of clients: 16\n\
            number of transactions actually processed: 32000/32000\nnumber of failed transactions: 0 (0.000%)\n\
            latency average = 2.531 ms\ninitial connection time = 20.1 ms\n\
            tps = 6322.104020 (without initial connection time)\n";
        let want =
            PgbenchReport { processed: 32000, failed: 0, tps: 6322.104020, latency_ms: 2.531 };
        assert_eq!(parse(output), Some(want));
        assert_eq!(parse("pgbench: error"), None);
    }

    #[test]
    fn percentiles_are_computed() {
        let timed: Vec<Timed> =
            (1..=200).map(|n| Timed { latency_us: n * 1_000, end_us: 0 }).collect();
        assert_eq!([50, 99, 0].map(|percent| percentile_ms(&timed, percent)), [101.0, 199.0, 1.0]);
        assert!(percentile_ms(&[], 50).is_nan());
    }

    #[test]
    fn log_lines_are_parsed() {
        let timed = Timed { latency_us: 4800, end_us: 1_700_000_000_000_200 };
        assert_eq!(Timed::parse("3 17 4800 0 1700000000 200"), Some(timed));
        assert_eq!(Timed::parse("3 17 4800 0 1700000000"), None);
        assert_eq!(Timed::parse("3 17 skipped 0 1700000000 200"), None);
    }
}

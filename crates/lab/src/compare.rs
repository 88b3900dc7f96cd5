//! The same pgbench runs against several servers, interleaved, so that what else happens on the machine happens to all of them.

use crate::Options;
use crate::report::{Measured, Row};
use clearway_harness::pgbench::{self, Length, Report as Result, Run};
use clearway_harness::server::{Kind, Server};
use clearway_harness::sums::Sums;
use clearway_harness::tools::TempDir;
use clearway_harness::{Res, cpu};

/// Transactions of all clients in a `--quick` run.
const QUICK_TRANSACTIONS: u32 = 320;

/// One server of a comparison.
pub struct Contender {
    /// The name that the table shows.
    pub name: String,
    server: Server,
    sums: Sums,
    // Dropped after the server.
    _directory: TempDir,
}

impl Contender {
    /// Starts a private server of this kind and fills it at `scale`.
    pub fn start(name: &str, kind: &Kind, scale: u32) -> Res<Self> {
        let directory = TempDir::new("lab")?;
        let data = directory.path().join("data");
        kind.prepare(&data)?;
        let server = kind.start(&data)?;
        pgbench::init(server.endpoint(), "dtgvp", scale).map_err(|why| format!("{name}: {why}"))?;
        let sums = Sums::read(server.endpoint())?;
        Ok(Self { name: name.into(), server, sums, _directory: directory })
    }

    /// One run; its rate counts only where the sums agree afterwards. Also the server's CPU time a transaction, in microseconds.
    fn run(&mut self, run: &Run) -> Res<(Result, Option<f64>)> {
        let before = cpu::used(self.server.id());
        let result = run.execute(self.server.endpoint())?;
        let used = before.zip(cpu::used(self.server.id())).map(|(before, after)| after.saturating_sub(before));
        let sums = Sums::read(self.server.endpoint())?;
        sums.check(&self.sums, run.script, result.processed)?;
        self.sums = sums;
        Ok((result, used.map(|u| u.as_secs_f64() * 1e6 / result.processed.max(1) as f64)))
    }
}

/// Runs every case on every contender, `repeat` times in turn, and keeps the medians.
pub fn compare(contenders: &mut [Contender], cases: &[Run], options: &Options) -> Res<Vec<Row>> {
    let wanted = |run: &&Run| options.only.as_deref().is_none_or(|only| run.name().contains(only));
    cases.iter().filter(wanted).map(|case| row(contenders, case, options)).collect()
}

fn row(contenders: &mut [Contender], case: &Run, options: &Options) -> Res<Row> {
    let length = match options.quick {
        true => Length::Transactions((QUICK_TRANSACTIONS / case.clients).max(1)),
        false => Length::Seconds(options.seconds),
    };
    let run = Run { length, ..*case };
    let mut results = vec![Vec::new(); contenders.len()];
    for _ in 0..if options.quick { 1 } else { options.repeat } {
        for (contender, results) in contenders.iter_mut().zip(&mut results) {
            results.push(contender.run(&run).map_err(|why| format!("{}: {why}", contender.name))?);
        }
    }
    let measured: Vec<Measured> = results.iter().map(|r| median(r)).collect();
    let ratio = (measured.len() > 1).then(|| measured[0].tps / measured[measured.len() - 1].tps);
    eprintln!("{:<38} {}", run.name(), measured.iter().map(|m| format!("{:>10.0}", m.tps)).collect::<String>());
    Ok(Row { case: run.name(), measured, ratio })
}

fn median(results: &[(Result, Option<f64>)]) -> Measured {
    let mut sorted = results.to_vec();
    sorted.sort_by(|a, b| a.0.tps.total_cmp(&b.0.tps));
    let (middle, server_cpu_us) = sorted[(sorted.len() - 1) / 2];
    let runs = results.iter().map(|r| r.0.tps).collect();
    Measured { tps: middle.tps, runs, latency_ms: middle.latency_ms, server_cpu_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_run_is_kept_whole() {
        let run = |tps: f64| (Result { processed: 1, failed: 0, tps, latency_ms: tps * 10.0 }, Some(tps + 0.5));
        let m = median(&[run(3.0), run(1.0), run(2.0)]);
        assert_eq!((m.tps, m.latency_ms, m.server_cpu_us), (2.0, 20.0, Some(2.5)));
        assert_eq!(m.runs, [3.0, 1.0, 2.0]);
    }
}

//! One run on one server, and what is kept of it.

use super::crowd::{self, Load};
use super::work;
use crate::contention;
use clearway_harness::server::{Kind, Server};
use clearway_harness::tools::TempDir;
use clearway_harness::{Res, cpu};

/// A server under test.
pub struct Contender {
    /// The name that tables and charts show.
    pub name: &'static str,
    server: Server,
    scale: u32,
    /// Whether it tells who waited for what.
    tells_waits: bool,
    // Dropped after the server.
    _directory: TempDir,
}

/// What one run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Committed transactions a second.
    pub tps: f64,
    /// Mean latency in milliseconds, repetitions included.
    pub latency_ms: f64,
    /// 99th percentile of it.
    pub p99_ms: f64,
    /// CPU time of the server a transaction, in microseconds; NaN where it is not known.
    pub cpu_us: f64,
    /// Transactions that were told to try again (40001, 40P01), in percent of all that were begun.
    pub retried: f64,
    /// Waits for a row's or table's lock a transaction; NaN where the server does not tell.
    pub waits: f64,
    /// Milliseconds of such waits a transaction; NaN where the server does not tell.
    pub waited_ms: f64,
}

impl Contender {
    /// Starts a private server and makes the tables, pgbench's with `scale` branches.
    pub fn start(name: &'static str, kind: &Kind, scale: u32) -> Res<Self> {
        let directory = TempDir::new("lab")?;
        let data = directory.path().join("data");
        kind.prepare(&data)?;
        let server = kind.start(&data)?;
        work::set_up(server.endpoint(), scale).map_err(|why| format!("{name}: {why}"))?;
        Ok(Self {
            name,
            server,
            scale,
            tells_waits: matches!(kind, Kind::Clearway { .. }),
            _directory: directory,
        })
    }

    /// Branches of pgbench's tables on this server.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// One run of a load of this contender's scale. Fails if the tables do not hold what the clients
    /// committed.
    pub fn run(&self, load: Load) -> Res<Sample> {
        let work = load.work;
        let endpoint = self.server.endpoint();
        let before = work.before(endpoint)?;
        if self.tells_waits {
            contention::reset(endpoint)?;
        }
        let cpu_before = cpu::used(self.server.id());
        let report = crowd::run(endpoint, load)?;
        let used = cpu_before
            .zip(cpu::used(self.server.id()))
            .map(|(before, after)| after.saturating_sub(before));
        let rows = if self.tells_waits { Some(contention::read(endpoint)?) } else { None };
        work.check(endpoint, &before, report.committed)?;
        let committed = report.committed.max(1) as f64;
        let lock_waits = |of: fn(&contention::Row) -> f64| {
            let locks = |rows: &Vec<contention::Row>| {
                rows.iter().filter(|row| row.name.starts_with("lock.")).map(of).sum::<f64>()
                    / committed
            };
            rows.as_ref().map_or(f64::NAN, locks)
        };
        let latencies = &report.latencies_us;
        let mean = latencies.iter().map(|us| f64::from(*us)).sum::<f64>() / latencies.len() as f64;
        let p99 = latencies.get(latencies.len() * 99 / 100).map_or(f64::NAN, |us| f64::from(*us));
        Ok(Sample {
            tps: latencies.len() as f64 / report.took.as_secs_f64(),
            latency_ms: mean / 1e3,
            p99_ms: p99 / 1e3,
            cpu_us: used.map_or(f64::NAN, |used| used.as_secs_f64() * 1e6 / committed),
            retried: 100.0 * report.retried as f64 / (committed + report.retried as f64),
            waits: lock_waits(|row| row.contended),
            waited_ms: lock_waits(|row| row.wait_us) / 1e3,
        })
    }
}

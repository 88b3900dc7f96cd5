//! One run on one server, and its measurements.

use super::cascades::{BySize, Cascades};
use super::chains::{self, Chains};
use super::clients::{self, Load};
use super::work;
use crate::contention;
use clearway_harness::client::PgClient;
use clearway_harness::server::{Kind, PrivateServer};
use clearway_harness::tools::TempDir;
use clearway_harness::{Res, cpu};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum time of a query between two runs.
const LIMIT: Duration = Duration::from_secs(60);

/// A server under test.
pub struct Contender {
    /// Name in tables and charts.
    pub name: &'static str,
    server: PrivateServer,
    /// The clients' Unix socket.
    socket: PathBuf,
    scale: u32,
    /// Whether it reports waits (`clearway.contention`), chains and cascades.
    reports_waits: bool,
    // Dropped after the server.
    _directory: TempDir,
}

/// Measurements of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Committed transactions per second.
    pub tps: f64,
    /// Mean latency in milliseconds, including retries.
    pub latency_ms: f64,
    /// Median latency in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99_ms: f64,
    /// Server CPU time per transaction, in microseconds; NaN if unknown.
    pub cpu_us: f64,
    /// Transactions that failed with a retryable error (40001, 40P01), in percent of all begun.
    pub retried: f64,
    /// Those of them that failed with a deadlock (40P01), in percent of all begun.
    pub deadlocks: f64,
    /// Waits for row and table locks per transaction; NaN if the server does not report them.
    pub waits: f64,
    /// Number of such waits; NaN if the server does not report them.
    pub lock_waits: f64,
    /// Milliseconds of such waits per transaction; NaN if the server does not report them.
    pub waited_ms: f64,
    /// Blocks that the server ran again because a transaction ahead of them rolled back or because
    /// of a deadlock, in percent of the committed transactions; NaN if the server does not report
    /// them.
    pub replayed: f64,
    /// Transactions behind another on one row; NaN if the server does not report them.
    pub chains: Chains,
    /// Undone transactions behind others.
    pub cascades: Cascades,
}

impl Contender {
    /// Starts a private server and creates the tables, pgbench's with `scale` branches.
    pub fn start(name: &'static str, kind: &Kind, scale: u32) -> Res<Self> {
        let directory = TempDir::new("lab")?;
        let data = directory.path().join("data");
        let sockets = directory.path().join("sockets");
        let kind = &kind.with_sockets_in(&sockets)?;
        kind.prepare(&data)?;
        let server = kind.start(&data)?;
        work::set_up(server.endpoint(), scale).map_err(|why| format!("{name}: {why}"))?;
        Ok(Self {
            name,
            socket: server.endpoint().socket_in(&sockets),
            server,
            scale,
            reports_waits: matches!(kind, Kind::Clearway { .. }),
            _directory: directory,
        })
    }

    /// Returns the number of branches of pgbench's tables.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Runs a load of this contender's scale once. Fails unless the tables match the reported
    /// commits.
    pub fn run(&self, load: Load) -> Res<Sample> {
        let work = load.work;
        let (endpoint, socket) = (self.server.endpoint(), self.socket.as_path());
        let before = work.before(endpoint)?;
        if self.reports_waits {
            contention::reset(endpoint)?;
        }
        let replays_before = self.replays()?;
        let cascades_before = self.cascades()?;
        let cpu_before = cpu::used(self.server.id());
        let (report, chains) = match self.reports_waits {
            true => chains::watch(endpoint, || clients::run(socket, endpoint, load))?,
            false => (clients::run(socket, endpoint, load)?, Chains::UNKNOWN),
        };
        let used = cpu_before
            .zip(cpu::used(self.server.id()))
            .map(|(before, after)| after.saturating_sub(before));
        let rows = if self.reports_waits { Some(contention::read(endpoint)?) } else { None };
        let replays = self.replays()? - replays_before;
        let cascades = match (cascades_before, self.cascades()?) {
            (Some(before), Some(after)) => Cascades::between(&before, &after),
            _ => Cascades::UNKNOWN,
        };
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
        let percentile_ms = |percent: usize| {
            let at = latencies.get(latencies.len() * percent / 100);
            at.map_or(f64::NAN, |us| f64::from(*us) / 1e3)
        };
        let waits = lock_waits(|row| row.contended);
        let of_all_begun =
            |failed: u64| 100.0 * failed as f64 / (committed + report.retried as f64);
        Ok(Sample {
            tps: latencies.len() as f64 / report.took.as_secs_f64(),
            latency_ms: mean / 1e3,
            p50_ms: percentile_ms(50),
            p99_ms: percentile_ms(99),
            cpu_us: used.map_or(f64::NAN, |used| used.as_secs_f64() * 1e6 / committed),
            retried: of_all_begun(report.retried),
            deadlocks: of_all_begun(report.deadlocks),
            waits,
            lock_waits: waits * committed,
            waited_ms: lock_waits(|row| row.wait_us) / 1e3,
            replayed: 100.0 * replays / committed,
            chains,
            cascades,
        })
    }

    /// Returns the cascades since the server's start; `None` if it does not report them.
    fn cascades(&self) -> Res<Option<BySize>> {
        self.reports_waits.then(|| BySize::read(self.server.endpoint())).transpose()
    }

    /// Returns the number of blocks that were run again since the server's start.
    fn replays(&self) -> Res<f64> {
        if !self.reports_waits {
            return Ok(f64::NAN);
        }
        let mut client = PgClient::connect(self.server.endpoint(), LIMIT)?;
        Ok(client.number("SELECT replays FROM clearway.activity")? as f64)
    }
}

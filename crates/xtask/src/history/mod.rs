//! `cargo xtask history`: runs many clients on a real server that is sometimes killed with kill -9,
//! and checks what they saw.
//!
//! The clients record every transaction: what it read and wrote, when it was sent and when it was
//! answered (docs/history.md). After each restart one more transaction reads everything.
//! `clearway-history` then searches for anomalies. At each isolation level only the anomalies that
//! it allows may be found, and the schedules of [`control`] must show each of them. PostgreSQL runs
//! the same as the control.

mod additions;
mod control;
mod load;
mod steps;

use crate::options::Options;
use clearway_harness::server::{Kind, PrivateServer};
use clearway_harness::tools::TempDir;
use clearway_harness::{Endpoint, Res};
use clearway_history::{CheckerOptions, History, HistoryReport, Txn, TxnOutcome, jsonl};
use clearway_testkit::Rng;
use control::Isolation;
use load::Shared;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Clients without `--clients`.
const CLIENTS: u32 = 24;
/// Length of a run without `--minutes`; with `--quick`.
const USUAL: Duration = Duration::from_secs(60);
const QUICK: Duration = Duration::from_secs(4);
/// Time between two kills, in milliseconds; with `--quick`.
const ROUND_MS: (u64, u64) = (5_000, 20_000);
const QUICK_ROUND_MS: (u64, u64) = (1_500, 2_500);
/// The same with `--rounds`.
const SHORT_ROUND_MS: (u64, u64) = (100, 1_500);
/// In every second round, a pool that cannot hold the tables.
const SMALL_POOL: &str = "4MB";

/// Runs clients and kills, and checks the history; an unexpected anomaly is an error.
pub fn run(options: &Options) -> Res<()> {
    let seed = options.seed.unwrap_or_else(Rng::fresh_seed);
    let isolation = Isolation::parse(options.isolation.as_deref())?;
    println!("history: seed {seed}");
    let setting = format!("default_transaction_isolation={}", isolation.name());
    let own = ["--default-transaction-isolation", isolation.name()];
    let kind = options.kind()?.with(&own, &[&setting, "deadlock_timeout=20ms"]);
    let directory = TempDir::new("history")?;
    let data = directory.path().join("data");
    let result = rounds(options, &kind, &data, Rng::new(seed)).and_then(|mut history| {
        let report = check(&mut history);
        judge(&report, kind.name(), isolation).map_err(|why| {
            let file = directory.path().join("history.jsonl");
            let saved = std::fs::File::create(&file)
                .and_then(|f| jsonl::write(&history, std::io::BufWriter::new(f)));
            format!("{report}\n{why}\nthe history: {} ({saved:?})", file.display())
        })
    });
    result.map_err(|why| {
        format!("{why}\nseed {seed}; the data directory stays at {}", directory.keep().display())
    })
}

fn check(history: &mut History) -> HistoryReport {
    let started = Instant::now();
    let report = history.check(&CheckerOptions::default());
    let counts = report.counts;
    println!(
        "history: {} transactions ({} committed, {} aborted, {} unknown, {} of them seen), {} operations, {} edges; \
         checked in {:.1?}: {}",
        history.len(),
        counts.committed,
        counts.aborted,
        counts.unknown,
        counts.unknown_seen,
        counts.operations,
        counts.edges,
        started.elapsed(),
        report.summary()
    );
    report
}

fn judge(report: &HistoryReport, server: &str, isolation: Isolation) -> Res<()> {
    isolation.judge(report)?;
    println!("history: {server} at {}: {}", isolation.name(), isolation.verdict());
    Ok(())
}

fn rounds(options: &Options, kind: &Kind, data: &Path, mut rng: Rng) -> Res<History> {
    kind.prepare(data)?;
    let server = kind.start(data)?;
    steps::create(server.endpoint())?;
    let isolation = Isolation::parse(options.isolation.as_deref())?;
    if options.postgres || isolation != Isolation::Serializable {
        control::run(server.endpoint(), isolation)?;
    }
    additions::run(server.endpoint(), options, isolation)?;
    let mut history = History::new();
    let keys = steps::Keys::new(&mut history);
    let shared = Shared {
        history: Mutex::new(history),
        keys,
        clock: Instant::now(),
        // Never 0, which a register could hold by mistake.
        values: AtomicU64::new(1),
        additions: Mutex::new(additions::Additions::new()),
        done: AtomicU64::new(0),
        target: options.transactions.unwrap_or(u64::MAX),
        stop: AtomicBool::new(false),
        counts_rollbacks: !options.postgres,
    };
    let usual = if options.quick { QUICK } else { USUAL };
    let minutes = options.minutes.map(|m| Duration::from_secs(60 * u64::from(m)));
    let is_bounded = options.transactions.is_some() || options.rounds.is_some();
    let length = minutes.unwrap_or(if is_bounded { Duration::MAX } else { usual });
    let mut worked = Duration::ZERO;
    let mut server = Some(server);
    for round in 0_u32.. {
        let variant = if round % 2 == 1 {
            kind.with(&["--buffer-pool", SMALL_POOL], &[])
        } else {
            kind.clone()
        };
        let running = match server.take() {
            Some(running) => running,
            None => {
                let running = variant.start(data)?;
                read_all(&shared, &running, round)?;
                running
            }
        };
        let (low, high) = match options.rounds {
            Some(_) => SHORT_ROUND_MS,
            None if options.quick => QUICK_ROUND_MS,
            None => ROUND_MS,
        };
        let moment = Duration::from_millis(rng.between(low, high));
        let left = length.saturating_sub(worked);
        let one = Round {
            number: round,
            clients: options.clients.unwrap_or(CLIENTS),
            seed: rng.next_u64(),
        };
        let is_last = moment >= left || options.rounds.is_some_and(|rounds| round + 1 >= rounds);
        let (took, last) = one.run(&shared, running, moment.min(left), is_last)?;
        worked += took;
        if let Some(server) = last {
            additions::count(server.endpoint(), options)?;
            server.stop()?;
            let server = kind.start(data)?;
            read_all(&shared, &server, round + 1)?;
            server.stop()?;
            break;
        }
    }
    let done = shared.done.load(Ordering::Relaxed);
    let rate = done as f64 / worked.as_secs_f64();
    println!("history: {done} transactions in {worked:.1?} of load, {rate:.0} a second");
    Ok(shared.history.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Reads everything ever used, as one transaction.
fn read_all(shared: &Shared, server: &PrivateServer, round: u32) -> Res<()> {
    let start = shared.now();
    let last_counter = shared.additions().last_used();
    let ops = steps::read_all(server.endpoint(), &shared.keys, shared.last_used(), last_counter)?;
    // These reads have session numbers from the top.
    let txn = Txn {
        session: u32::MAX - round,
        start,
        end: Some(shared.now()),
        outcome: TxnOutcome::Committed,
        ops,
    };
    shared.push(txn)
}

/// A period of load that ends with a kill or an orderly stop.
struct Round {
    number: u32,
    clients: u32,
    seed: u64,
}

impl Round {
    /// Returns how long the load ran and, if this was the last round, the server: as configured, or
    /// because the transactions are done.
    fn run(
        &self,
        shared: &Shared,
        server: PrivateServer,
        length: Duration,
        is_last: bool,
    ) -> Res<(Duration, Option<PrivateServer>)> {
        let endpoint: Endpoint = server.endpoint().clone();
        let (end, ended) = sync_channel(1);
        let (ready, all_ready) = channel();
        let before = shared.done.load(Ordering::Relaxed);
        shared.stop.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for client in 0..self.clients {
                let (endpoint, end, ready) = (&endpoint, end.clone(), ready.clone());
                let session = self.number * self.clients + client;
                let seed = self.seed.wrapping_add(u64::from(client));
                threads.push(
                    scope.spawn(move || load::run(shared, endpoint, session, seed, &end, ready)),
                );
            }
            drop((end, ready));
            // Nobody sends: the channel closes when all clients have connected or failed.
            let _ = all_ready.recv();
            let started = Instant::now();
            // Disconnected: no client is left, and one of them has the reason.
            let early = ended.recv_timeout(length);
            let took = started.elapsed();
            let is_last = is_last || early != Err(RecvTimeoutError::Timeout);
            let stopped = shared.now();
            let log = if is_last {
                shared.stop.store(true, Ordering::Relaxed);
                Some(server)
            } else {
                server.kill();
                None
            };
            let (mut unknown, mut failure) = (Vec::new(), None);
            for thread in threads {
                match thread
                    .join()
                    .map_err(|_| "a client panicked".to_owned())
                    .and_then(|result| result)
                {
                    Ok(end) if end.lost.is_some_and(|lost| is_last || lost < stopped) => {
                        failure.get_or_insert(
                            "a connection was lost, or an answer did not come".into(),
                        );
                    }
                    Ok(end) => unknown.extend(end.unknown),
                    Err(why) => {
                        failure.get_or_insert(why);
                    }
                }
            }
            if let Some(why) = failure {
                let log = log.map(|server| server.log()).unwrap_or_default();
                return Err(format!("history: round {}: {why}\n{log}", self.number));
            }
            println!(
                "history: round {}: {} transactions in {took:.1?}, {} under way {}",
                self.number,
                shared.done.load(Ordering::Relaxed) - before,
                unknown.len(),
                if is_last { "at the end" } else { "at the kill" }
            );
            // Either the server is gone, or all clients have their answers: what has not happened
            // by now never will.
            for txn in unknown {
                shared.push(Txn { end: Some(shared.now()), ..txn })?;
            }
            Ok((took, log))
        })
    }
}

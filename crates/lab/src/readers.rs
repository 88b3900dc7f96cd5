//! The cost of table readers and of a long-running snapshot to writing transactions.
//!
//! pgbench's tpcb-like runs on Clearway beside one of four activities: nothing, a client that only
//! burns a core, a loop of `count(*)` over the accounts, or a REPEATABLE READ transaction that
//! stays open. Latency and end of each transaction come from pgbench's log.

use crate::bars::{Bar, Bound, Reading};
use crate::experiment::{Experiment, Part, Task};
use crate::number::median;
use crate::pgbench::{clearway, configuration};
use crate::progress::Progress;
use crate::result::{Axis, Findings, Point, Samples, Series};
use crate::rival::Sizes;
use crate::table::{Cell, Column, Table};
use clearway_harness::client::PgClient;
use clearway_harness::pgbench::{self, Length, QueryMode, Run, Script, Timed};
use clearway_harness::server::PrivateServer;
use clearway_harness::sums::Sums;
use clearway_harness::tools::{TempDir, in_ci, need};
use clearway_harness::{Endpoint, Res};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "readers",
    about: "tpcb-like beside count(*) over the accounts, and beside a snapshot that stays open",
    question: "How much slower are writing transactions while others scan whole tables, and while an old snapshot is open?",
    source: "Our own question. A snapshot reader waits for no row lock, and no transaction waits for it.",
    source_found: "Nothing is published about this load.",
    limits: &[
        "The reader and the clients share the cores of one machine. The client that burns a core shows how much of a slowdown is due to that.",
        "The bars judge the decay within a run, waits, and p99 beside the client that burns a core; none judges the throughput beside a reader.",
    ],
    bars: &[HELD, WAITING, SLOWER],
    run,
};

const HELD: &str = "tpcb-like, 16 clients, beside a snapshot held throughout: last tenth of the run against the first";
const WAITING: &str = "tpcb-like, 16 clients, beside count(*): waits for its session";
const SLOWER: &str =
    "tpcb-like, 16 clients, beside count(*): p99 against that beside a client that burns a core";

const CLIENTS: u32 = 16;
/// Parts of a run with separate rates.
const PARTS: usize = 10;
/// Interval of sampling waits and snapshot memory.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time of a statement of the reader.
const LIMIT: Duration = Duration::from_secs(600);
const QUICK_TRANSACTIONS: u32 = 20;

/// Activity beside the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Background {
    Nothing,
    Burner,
    Counter,
    Snapshot,
}

impl Background {
    const ALL: [Self; 4] = [Self::Nothing, Self::Burner, Self::Counter, Self::Snapshot];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "beside nothing",
            Self::Burner => "beside a client that burns a core",
            Self::Counter => "beside count(*)",
            Self::Snapshot => "beside a snapshot held throughout",
        }
    }

    fn is_judged(self) -> bool {
        self != Self::Nothing
    }
}

/// Measurements of one run.
#[derive(Clone, Debug, Default)]
struct Sample {
    tps: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Transactions per second that ended in each tenth of the run.
    parts: Vec<f64>,
    /// Statements of the reader.
    reads: f64,
    /// Observed waits for the reader's session.
    waits: f64,
    /// Maximum memory kept for snapshots, in MB.
    kept_mb: f64,
}

/// One case and its repetitions.
struct Case {
    beside: Background,
    samples: Vec<Sample>,
}

impl Case {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(&self.samples.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    }

    fn cell(&self, of: impl Fn(&Sample) -> f64, digits: u8) -> Cell {
        Cell::measured(&self.samples.iter().map(of).collect::<Vec<_>>(), digits)
    }
}

fn sizes(task: &Task) -> Sizes {
    if task.options.quick {
        Sizes { pool: "64MB", scale: 1 }
    } else {
        Sizes { pool: "2GB", scale: 50 }
    }
}

fn run(task: &Task) -> Res<Findings> {
    let sizes = sizes(task);
    let mut findings =
        Findings { configuration: configuration(task, &sizes), ..Findings::default() };
    if let Err(why) = need("pgbench") {
        if in_ci() {
            return Err(format!("{why}, and CI must not skip it"));
        }
        findings.bars = EXPERIMENT.bars.iter().map(|name| Bar::not_here(name, &why)).collect();
        return Ok(findings);
    }
    let directory = TempDir::new("lab")?;
    let data = directory.path().join("data");
    let kind = clearway(task, &sizes, &[])?;
    kind.prepare(&data)?;
    let server = kind.start(&data)?;
    pgbench::init(server.endpoint(), "dtgvp", sizes.scale)?;
    findings.seeds = (1..=u64::from(task.repetitions())).collect();
    let cases = measured(task, &server, &findings.seeds)?;
    findings.samples = samples(&cases);
    findings.tables = vec![table(&cases)];
    findings.found = found(&cases).into_iter().collect();
    findings.bars = bars(&cases);
    Ok(findings)
}

/// Reports throughput and p99 of each case over those beside nothing.
fn found(cases: &[Case]) -> Option<String> {
    let alone = cases.iter().find(|case| case.beside == Background::Nothing)?;
    let over = |case: &Case, of: fn(&Sample) -> f64| case.median(of) / alone.median(of);
    let others = cases.iter().filter(|case| case.beside != Background::Nothing);
    let parts: Vec<String> = others
        .map(|case| {
            let (rate, p99) = (over(case, |s| s.tps), over(case, |s| s.p99_ms));
            format!("{} {rate:.2} and {p99:.2}", case.beside.name())
        })
        .collect();
    (!parts.is_empty())
        .then(|| format!("Throughput and p99 over those beside nothing: {}.", parts.join("; ")))
}

fn cases(part: &Part) -> Vec<Background> {
    Background::ALL
        .into_iter()
        .filter(|beside| part.wants(beside.name(), beside.is_judged()))
        .collect()
}

/// Runs every case in turn, once per seed.
fn measured(task: &Task, server: &PrivateServer, seeds: &[u64]) -> Res<Vec<Case>> {
    let mut cases: Vec<Case> =
        cases(&task.part).into_iter().map(|beside| Case { beside, samples: Vec::new() }).collect();
    let length = match task.options.quick {
        true => Length::Transactions(QUICK_TRANSACTIONS),
        false => Length::Seconds(task.options.seconds),
    };
    let (script, mode) = (Script::TpcbLike, QueryMode::Prepared);
    let run = Run { script, mode, clients: CLIENTS, threads: Run::THREADS, length };
    let mut progress = Progress::new(EXPERIMENT.name, cases.len() * seeds.len());
    let mut before = Sums::read(server.endpoint())?;
    for seed in seeds {
        for Case { beside, samples } in &mut cases {
            progress.step(&format!("{}, seed {seed}", beside.name()));
            let (sample, processed) = measure(*beside, &run, server.endpoint(), *seed)?;
            samples.push(sample);
            let after = Sums::read(server.endpoint())?;
            after.check(&before, run.script, processed)?;
            before = after;
        }
    }
    Ok(cases)
}

/// Runs once; also returns the number of transactions.
fn measure(beside: Background, run: &Run, endpoint: &Endpoint, seed: u64) -> Res<(Sample, u64)> {
    let over = AtomicBool::new(false);
    let mut reader = PgClient::connect(endpoint, LIMIT)?;
    let pid = reader.number("SELECT pg_backend_pid()")?;
    if beside == Background::Snapshot {
        reader.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        reader.number("SELECT count(*) FROM pgbench_branches")?;
    }
    let (report, timed, reads, seen) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| match beside {
            Background::Burner => Ok(burn(&over)),
            Background::Counter => count(&mut reader, &over),
            Background::Nothing | Background::Snapshot => Ok(0),
        });
        let (watched, ended) = mpsc::channel::<()>();
        let looking = scope.spawn(move || look(endpoint, pid, &ended));
        let logs = TempDir::new("lab")?;
        let ran = run.timed(endpoint, seed, logs.path());
        // Relaxed, here and below: a stop flag; it publishes no data.
        over.store(true, Ordering::Relaxed);
        drop(watched);
        let panicked = |_| "a thread of the experiment panicked".to_owned();
        let reads = reading.join().map_err(panicked)??;
        let seen = looking.join().map_err(panicked)??;
        let (report, timed) = ran?;
        Ok::<_, String>((report, timed, reads, seen))
    })?;
    let sample = Sample {
        tps: report.tps,
        p50_ms: pgbench::percentile_ms(&timed, 50),
        p99_ms: p99(&timed),
        parts: parts(&timed),
        reads: reads as f64,
        waits: seen.0 as f64,
        kept_mb: seen.1 as f64 / 1e6,
    };
    Ok((sample, report.processed))
}

/// Keeps a core busy.
fn burn(over: &AtomicBool) -> u64 {
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    0
}

/// Counts the accounts in a loop; returns the number of counts.
fn count(reader: &mut PgClient, over: &AtomicBool) -> Res<u64> {
    let mut reads = 0;
    while !over.load(Ordering::Relaxed) {
        reader.number("SELECT count(*) FROM pgbench_accounts")?;
        reads += 1;
    }
    Ok(reads)
}

/// Samples waits for the session and snapshot memory until the run ends. Returns the sum of the
/// waits and the maximum memory in bytes.
fn look(endpoint: &Endpoint, pid: i64, ended: &Receiver<()>) -> Res<(i64, i64)> {
    let mut client = PgClient::connect(endpoint, LIMIT)?;
    let waits = format!("SELECT count(*) FROM clearway.locks WHERE blocked_by = {pid}");
    let mut seen = (0, 0);
    while ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        seen.0 += client.number(&waits)?;
        let kept = client.number("SELECT coalesce(max(kept_bytes), 0) FROM clearway.snapshots")?;
        seen.1 = seen.1.max(kept);
    }
    Ok(seen)
}

/// Returns the 99th percentile of the latencies, in milliseconds.
fn p99(timed: &[Timed]) -> f64 {
    pgbench::percentile_ms(timed, 99)
}

/// Returns transactions per second in each tenth of the time between the first and the last end.
fn parts(timed: &[Timed]) -> Vec<f64> {
    let ends = timed.iter().map(|t| t.end_us);
    let (Some(first), Some(last)) = (ends.clone().min(), ends.clone().max()) else {
        return Vec::new();
    };
    let part = ((last - first) as f64 / PARTS as f64).max(1.0);
    let mut counts = vec![0u32; PARTS];
    ends.for_each(|end| counts[(((end - first) as f64 / part) as usize).min(PARTS - 1)] += 1);
    counts.into_iter().map(|n| f64::from(n) / (part / 1e6)).collect()
}

fn samples(cases: &[Case]) -> Vec<Samples> {
    let series = cases.iter().map(|case| {
        let point = |at: usize| Point {
            x: (at + 1) as f64 / PARTS as f64,
            y: case.samples.iter().map(|s| s.parts.get(at).copied().unwrap_or(f64::NAN)).collect(),
        };
        Series { name: case.beside.name().into(), points: (0..PARTS).map(point).collect() }
    });
    let rates = Samples {
        title: "throughput in each tenth of a run".into(),
        x: Axis::linear("elapsed share of the run", ""),
        y: Axis::linear("throughput", "TPS"),
        series: series.collect(),
        drawn: true,
        marked: None,
    };
    let names: Vec<String> = cases.iter().map(|case| case.beside.name().into()).collect();
    let by_case = |title: &str, unit: &str, of: fn(&Sample) -> f64| {
        let point = |(at, case): (usize, &Case)| Point {
            x: at as f64,
            y: case.samples.iter().map(of).collect(),
        };
        let series = Series {
            name: "Clearway".into(),
            points: cases.iter().enumerate().map(point).collect(),
        };
        let y = Axis::linear(title, unit);
        Samples {
            title: title.into(),
            x: Axis::names("case", names.clone()),
            y,
            series: vec![series],
            drawn: true,
            marked: None,
        }
    };
    vec![
        rates,
        by_case("p50", "ms", |s| s.p50_ms),
        by_case("p99", "ms", |s| s.p99_ms),
        by_case("kept for snapshots", "MB", |s| s.kept_mb),
    ]
}

fn table(cases: &[Case]) -> Table {
    let columns = [
        ("throughput", "TPS"),
        ("p50", "ms"),
        ("p99", "ms"),
        ("reads", ""),
        ("waits for the reader", ""),
        ("kept", "MB"),
    ];
    let row = |case: &Case| {
        vec![
            Cell::text(case.beside.name()),
            case.cell(|s| s.tps, 0),
            case.cell(|s| s.p50_ms, 2),
            case.cell(|s| s.p99_ms, 2),
            case.cell(|s| s.reads, 0),
            case.cell(|s| s.waits, 0),
            case.cell(|s| s.kept_mb, 1),
        ]
    };
    Table {
        title: "Medians of tpcb-like, prepared, 16 clients".into(),
        columns: std::iter::once(Column::ours("case", ""))
            .chain(columns.map(|(label, unit)| Column::ours(label, unit)))
            .collect(),
        rows: cases.iter().map(row).collect(),
    }
}

/// Returns the bars whose cases were run.
fn bars(cases: &[Case]) -> Vec<Bar> {
    let find = |beside| cases.iter().find(|case| case.beside == beside);
    let mut bars = Vec::new();
    if let Some(held) = find(Background::Snapshot) {
        let part = |name: &str, at: usize| {
            let rate = held.median(|s| s.parts.get(at).copied().unwrap_or(f64::NAN));
            Reading::new(name, rate, "TPS", 0)
        };
        bars.push(Bar::ratio(HELD, Bound::AtLeast(0.9), part("last", PARTS - 1), part("first", 0)));
    }
    if let Some(counter) = find(Background::Counter) {
        let waits = counter.samples.iter().map(|s| s.waits).sum();
        let readings = vec![Reading::new("count(*)", counter.median(|s| s.reads), "times", 0)];
        bars.push(Bar::measured(WAITING, waits, "waits", Bound::AtMost(0.0), readings));
        if let Some(burner) = find(Background::Burner) {
            let p99 =
                |case: &Case| Reading::new(case.beside.name(), case.median(|s| s.p99_ms), "ms", 2);
            bars.push(Bar::ratio(SLOWER, Bound::AtMost(2.0), p99(counter), p99(burner)));
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(ends: impl Iterator<Item = u64>) -> Vec<Timed> {
        ends.map(|end_us| Timed { latency_us: end_us / 10, end_us }).collect()
    }

    #[test]
    fn parts_are_rates_and_p99_is_a_percentile() {
        // 100 in the first five seconds, 50 in the second five.
        let all =
            timed((0..100).map(|n| n * 50_000).chain((0..=50).map(|n| 5_000_000 + n * 100_000)));
        let parts = parts(&all);
        assert_eq!(parts.len(), PARTS);
        assert!((parts[0] - 20.0).abs() < 0.1 && (parts[9] - 11.0).abs() < 0.1, "{parts:?}");
        assert_eq!(p99(&timed((1..=100).map(|n| n * 10_000))), 100.0);
        assert!(p99(&[]).is_nan() && super::parts(&[]).is_empty());
    }

    #[test]
    fn bar_runs_have_exactly_the_bars_cases() {
        let case = |beside| Case {
            beside,
            samples: vec![Sample { p99_ms: 4.0, parts: vec![10.0; PARTS], ..Sample::default() }],
        };
        let all: Vec<Case> = cases(&Part::Bars).into_iter().map(case).collect();
        assert_eq!(all.len(), 3);
        let mut judged: Vec<String> = bars(&all).into_iter().map(|bar| bar.name).collect();
        let mut named: Vec<String> =
            EXPERIMENT.bars.iter().map(|name| (*name).to_owned()).collect();
        judged.sort();
        named.sort();
        assert_eq!(judged, named);
        assert_eq!(cases(&Part::Whole).len(), Background::ALL.len());
    }

    #[test]
    fn readers_are_compared_with_none() {
        let case = |beside, tps, p99_ms| {
            let sample = Sample { tps, p99_ms, ..Sample::default() };
            Case { beside, samples: vec![sample] }
        };
        let alone = case(Background::Nothing, 100.0, 2.0);
        let said = found(&[alone, case(Background::Counter, 45.0, 7.0)]).unwrap();
        assert_eq!(
            said,
            "Throughput and p99 over those beside nothing: beside count(*) 0.45 and 3.50."
        );
        assert_eq!(found(&[case(Background::Counter, 45.0, 7.0)]), None);
    }

    #[test]
    fn tables_and_charts_include_every_case() {
        let all = [Case { beside: Background::Counter, samples: vec![Sample::default()] }];
        let table = table(&all);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        assert_eq!(samples(&all).len(), 4);
    }
}

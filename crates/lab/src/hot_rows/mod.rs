//! Hot rows: transactions that contend for the same rows, with 1 to 1,000 clients, on Clearway and
//! on PostgreSQL.
//!
//! [`session`] is a connection and [`clients`] drives many of them. [`work`] defines the
//! transactions and checks their effects. [`measure`] runs them on a server, [`chains`] samples the
//! server in the meantime, [`cascades`] reads its counts, and [`judge`] holds the bars.

mod cascades;
mod chains;
mod clients;
mod judge;
mod measure;
mod session;
mod work;

use crate::bars::Bar;
use crate::experiment::{Experiment, Part, Task};
use crate::number::{self, median};
use crate::pgbench::clearway;
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings, Point, Samples, Series};
use crate::rival::{Sizes, missing_postgres, postgres, postgres_version};
use crate::table::{Cell, Column, Table};
use clearway_harness::Res;
use clients::{Load, Until};
use measure::{Contender, Sample};
use std::time::Duration;
use work::Work;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hot-rows",
    about: "1 to 1,000 clients contend for one row or a few: Clearway against PostgreSQL, with lock waits",
    question: "How many transactions on the same rows does a server commit, in autocommit, in transaction blocks, and under SERIALIZABLE, and how does that depend on the number of clients?",
    source: "Our own question. In PostgreSQL a transaction that waits for a row queues for a heavyweight lock of the row's holder (src/backend/access/heap/README.tuplock).",
    source_found: "Others report gains on hot rows (Bamboo, TXSQL, PolarDB) over their own baselines, with other loads. They cannot be compared.",
    limits: &[
        "Clients and servers share the cores of one machine. On few cores a case has two rates, which depend on the cores that the system chooses for its threads.",
        "A run bounds the latencies that it can show. With 500 clients PostgreSQL commits only a few transactions for each client in a run of 2 s, and with 1,000 less than one in most kinds, so these rates include the start of the load.",
        "PostgreSQL has no connection pooler.",
    ],
    bars: judge::NAMES,
    run,
};

const CLIENTS: [u32; 5] = [1, 16, 100, 500, 1000];
/// Clients and transactions of a `--quick` run.
const QUICK_CLIENTS: u32 = 20;
const QUICK_TRANSACTIONS: u64 = 100;
/// Threads of the clients in a `--quick` run, so that it checks that they add up.
const QUICK_THREADS: usize = 2;
/// Connections besides the clients, for checks.
const MORE_CONNECTIONS: u32 = 20;
const CLEARWAY: &str = "Clearway";
const POSTGRES: &str = "PostgreSQL";
/// Clearway without its hot-row mechanisms.
const OFF: &str = "Clearway, hot_rows off";
/// Clearway with all its hot-row mechanisms.
const ALL: &str = "Clearway, all hot_rows";
/// Clearway with tables so large that clients rarely conflict; runs only where
/// [`judge::wants_scale`] asks for it.
const LARGE: &str = "Clearway, scale 100";
/// Clearway with one of its hot-row mechanisms; runs only with [`ALONE_CLIENTS`]. The third
/// mechanism alone is [`CLEARWAY`].
const RETIRE: &str = "Clearway, retire alone";
const WHOLE: &str = "Clearway, whole alone";
const ALONE_CLIENTS: [u32; 2] = [16, 100];
/// Contenders, in the order of a case's samples.
const CONTENDERS: [&str; 7] = [CLEARWAY, POSTGRES, OFF, ALL, LARGE, RETIRE, WHOLE];
const AT_ALL: usize = 3;
const AT_RETIRE: usize = 5;
/// Branches of [`LARGE`]'s tables, in a whole run and in a `--quick` run.
const LARGE_SCALE: u32 = 100;
const QUICK_LARGE_SCALE: u32 = 2;
/// Holds all of [`LARGE`]'s tables, as the others' pools hold theirs.
const LARGE_POOL: &str = "3GiB";

/// A transaction kind with a number of clients, and its samples: by contender, every repetition.
struct Case {
    work: Work,
    clients: u32,
    samples: Vec<Vec<Sample>>,
}

/// A measure of a [`Sample`]: its name, and how it is read.
struct Measure {
    label: &'static str,
    unit: &'static str,
    digits: u8,
    of: fn(&Sample) -> f64,
}

/// Up to this number of clients, a run is long beside its start.
const STEADY_CLIENTS: u32 = 100;

const RATE: Measure = Measure { label: "throughput", unit: "TPS", digits: 0, of: |s| s.tps };
const P50: Measure = Measure { label: "p50", unit: "ms", digits: 2, of: |s| s.p50_ms };
const P99: Measure = Measure { label: "p99", unit: "ms", digits: 2, of: |s| s.p99_ms };
const CPU: Measure = Measure { label: "CPU", unit: "us", digits: 1, of: |s| s.cpu_us };
const RETRIED: Measure =
    Measure { label: "retryable errors", unit: "%", digits: 2, of: |s| s.retried };
const DEADLOCKS: Measure =
    Measure { label: "deadlocks", unit: "%", digits: 2, of: |s| s.deadlocks };
const WAITS: Measure =
    Measure { label: "lock waits per transaction", unit: "", digits: 2, of: |s| s.waits };
const WAITED: Measure =
    Measure { label: "lock wait time per transaction", unit: "ms", digits: 3, of: |s| s.waited_ms };
const REPLAYED: Measure =
    Measure { label: "blocks run again", unit: "%", digits: 2, of: |s| s.replayed };
const CHAIN: Measure =
    Measure { label: "longest chain, mean of samples", unit: "", digits: 1, of: |s| s.chains.mean };
const LONGEST_CHAIN: Measure =
    Measure { label: "longest chain", unit: "", digits: 0, of: |s| s.chains.most };
const CASCADES: Measure =
    Measure { label: "cascades", unit: "", digits: 0, of: |s| s.cascades.number };
const UNDONE: Measure = Measure {
    label: "undone transactions per cascade",
    unit: "",
    digits: 1,
    of: |s| s.cascades.mean,
};
const LARGEST_CASCADE: Measure =
    Measure { label: "largest cascade", unit: "", digits: 0, of: |s| s.cascades.largest };
const LATENCY: Measure =
    Measure { label: "mean latency", unit: "ms", digits: 2, of: |s| s.latency_ms };

impl Case {
    fn name(work: Work, clients: u32) -> String {
        format!("{} -c {clients}", work.name())
    }

    /// Returns the median of a measure on a contender.
    fn median(&self, contender: usize, measure: &Measure) -> Option<f64> {
        median(&self.values(contender, measure))
    }

    fn values(&self, contender: usize, measure: &Measure) -> Vec<f64> {
        self.samples.get(contender).into_iter().flatten().map(measure.of).collect()
    }

    /// Returns the table cell of a measure on a contender. A few lock waits are shown as a count.
    fn cell(&self, contender: usize, measure: &Measure) -> Cell {
        let values = self.values(contender, measure);
        let events: f64 = self.samples[contender].iter().map(|sample| sample.lock_waits).sum();
        match measure.label == WAITS.label && events.is_finite() {
            true => Cell::rate(&values, measure.digits, "waits", events),
            false => Cell::measured(&values, measure.digits),
        }
    }

    /// Returns Clearway's rate over PostgreSQL's.
    fn ratio(&self) -> Option<f64> {
        self.ratio_of(0)
    }

    /// Returns a contender's rate over PostgreSQL's.
    fn ratio_of(&self, contender: usize) -> Option<f64> {
        Some(self.median(contender, &RATE)? / self.median(1, &RATE)?)
    }
}

fn cases(part: &Part) -> Vec<(Work, u32)> {
    let all = Work::ALL.into_iter().flat_map(|work| CLIENTS.map(|clients| (work, clients)));
    all.filter(|(work, clients)| {
        part.wants(&Case::name(*work, *clients), judge::needs(*work, *clients))
    })
    .collect()
}

fn run(task: &Task) -> Res<Findings> {
    let sizes = Sizes { pool: "256MB", scale: 1 };
    let mut findings =
        Findings { configuration: configuration(task, &sizes), ..Findings::default() };
    if let Some(why) = missing_postgres()? {
        // pgbench creates its tables, so it must be installed, too.
        findings.bars = judge::NAMES.iter().map(|name| Bar::not_here(name, &why)).collect();
        return Ok(findings);
    }
    findings.configuration.insert(POSTGRES.into(), postgres_version()?);
    let most = CLIENTS[CLIENTS.len() - 1] + MORE_CONNECTIONS;
    let small = |name, kind: &_| Contender::start(name, kind, sizes.scale);
    let mut contenders = vec![
        small(CLEARWAY, &clearway(task, &sizes, &[])?)?,
        small(POSTGRES, &postgres(sizes.pool, most))?,
        small(OFF, &clearway(task, &sizes, &["--hot-rows", "off"])?)?,
        small(ALL, &clearway(task, &sizes, &["--hot-rows", "increments,whole,retire"])?)?,
    ];
    if cases(&task.part).iter().any(|(work, clients)| judge::wants_scale(*work, *clients)) {
        let scale = if task.options.quick { QUICK_LARGE_SCALE } else { LARGE_SCALE };
        let sizes = Sizes { pool: LARGE_POOL, scale };
        contenders.push(Contender::start(LARGE, &clearway(task, &sizes, &[])?, scale)?);
    }
    if cases(&task.part).iter().any(|(_, clients)| wants(&task.part, RETIRE, *clients)) {
        for (name, mechanism) in [(RETIRE, "retire"), (WHOLE, "whole")] {
            contenders.push(small(name, &clearway(task, &sizes, &["--hot-rows", mechanism])?)?);
        }
    }
    findings.seeds = (1..=u64::from(task.repetitions())).collect();
    let cases = measured(task, &contenders, &findings.seeds)?;
    findings.samples = Work::ALL.into_iter().flat_map(|work| samples(work, &cases)).collect();
    findings.tables = vec![rates(&cases)];
    findings.tables.extend([0, AT_ALL, AT_RETIRE].map(|contender| waits(&cases, contender)));
    findings.tables.retain(|table| !table.rows.is_empty());
    findings.found = found(&cases);
    findings.agreement = vec!["Nothing is published about these loads.".into()];
    findings.bars = judge::bars(&cases);
    Ok(findings)
}

fn configuration(task: &Task, sizes: &Sizes) -> Configuration {
    let length = match task.options.quick {
        true => format!("{QUICK_TRANSACTIONS} transactions, at most {QUICK_CLIENTS} clients"),
        false => format!("{} s", task.options.seconds),
    };
    let mut settings = vec![
        ("pool", format!("{}; {LARGE}: {LARGE_POOL}", sizes.pool)),
        ("fsync", "on".into()),
        ("transport", "Unix sockets".into()),
        (
            "clients",
            format!(
                "{} thread(s) on the same machine, by epoll; prepared statements, each sent after the previous answer",
                threads(task)
            ),
        ),
        ("isolation", "SERIALIZABLE if the name says so, otherwise each server's default".into()),
        ("run length", length),
        ("repetitions", format!("{}, servers and numbers of clients in turn", task.repetitions())),
    ];
    if !task.options.serve_args.is_empty() {
        settings.push(("serve arguments", task.options.serve_args.join(" ")));
    }
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn threads(task: &Task) -> usize {
    if task.options.quick { QUICK_THREADS } else { clients::threads_here() }
}

/// Returns true if the contender runs with this number of clients. No bar needs a single mechanism.
fn wants(part: &Part, contender: &str, clients: u32) -> bool {
    ![RETIRE, WHOLE].contains(&contender)
        || !matches!(part, Part::Bars) && ALONE_CLIENTS.contains(&clients)
}

/// Returns the runs in their order, as a case's index and a seed. The cases of a transaction kind
/// take turns within each repetition: bars compare some of them, and the state of a machine changes
/// between repetitions.
fn turns(cases: &[(Work, u32)], seeds: &[u64]) -> Vec<(usize, u64)> {
    let mut turns = Vec::new();
    let mut first = 0;
    for kind in cases.chunk_by(|(work, _), (next, _)| work == next) {
        let of_kind = first..first + kind.len();
        turns.extend(seeds.iter().flat_map(|seed| of_kind.clone().map(|case| (case, *seed))));
        first = of_kind.end;
    }
    turns
}

/// Runs every case on every contender in turn, once per seed.
fn measured(task: &Task, contenders: &[Contender], seeds: &[u64]) -> Res<Vec<Case>> {
    let cases = cases(&task.part);
    let runs = |work, clients| {
        contenders.iter().filter(move |c| match c.name {
            LARGE => judge::wants_scale(work, clients),
            name => wants(&task.part, name, clients),
        })
    };
    let steps: usize = cases.iter().map(|(work, clients)| runs(*work, *clients).count()).sum();
    let mut progress = Progress::new(EXPERIMENT.name, steps * seeds.len());
    let samples = || vec![Vec::new(); CONTENDERS.len()];
    let mut done: Vec<Case> =
        cases.iter().map(|&(work, clients)| Case { work, clients, samples: samples() }).collect();
    for (case, seed) in turns(&cases, seeds) {
        let Case { work, clients, ref mut samples } = done[case];
        let (at_once, until) = match task.options.quick {
            true => (clients.min(QUICK_CLIENTS), Until::Committed(QUICK_TRANSACTIONS)),
            false => {
                (clients, Until::Elapsed(Duration::from_secs(u64::from(task.options.seconds))))
            }
        };
        for contender in runs(work, clients) {
            let at = CONTENDERS.iter().position(|name| *name == contender.name);
            let at = at.ok_or("a contender without a place")?;
            let name = format!("{}, {}", Case::name(work, clients), contender.name);
            progress.step(&format!("{name}, seed {seed}"));
            let (scale, threads) = (contender.scale(), threads(task));
            let load = Load { work, scale, clients: at_once, threads, seed, until };
            samples[at].push(contender.run(load).map_err(|why| format!("{name}: {why}"))?);
        }
    }
    Ok(done)
}

/// Returns the charts of a transaction kind, by clients.
fn samples(work: Work, cases: &[Case]) -> Vec<Samples> {
    let measures = [
        (RATE, true),
        (P50, true),
        (P99, true),
        (WAITED, true),
        (LATENCY, false),
        (CPU, false),
        (RETRIED, false),
        (DEADLOCKS, false),
        (WAITS, false),
        (REPLAYED, false),
        (CHAIN, false),
        (LONGEST_CHAIN, false),
        (CASCADES, false),
        (UNDONE, false),
        (LARGEST_CASCADE, false),
    ];
    let of = measures.map(|(measure, drawn)| {
        let series = CONTENDERS.into_iter().enumerate().map(|(at, name)| {
            let point = |case: &Case| Point {
                x: f64::from(case.clients),
                y: case.samples[at].iter().map(measure.of).collect(),
            };
            Series {
                name: name.into(),
                points: cases
                    .iter()
                    .filter(|case| case.work == work && !case.samples[at].is_empty())
                    .map(point)
                    .collect(),
            }
        });
        let measured = |s: &Series| s.points.iter().flat_map(|p| &p.y).any(|y| y.is_finite());
        Samples {
            title: format!("{}: {}", work.name(), measure.label),
            x: Axis::log("clients", ""),
            y: Axis::linear(measure.label, measure.unit),
            series: series.filter(measured).collect(),
            drawn,
            marked: None,
        }
    });
    of.into_iter().filter(|samples| !samples.series.is_empty()).collect()
}

/// Renders one row per case: all contenders, and the rates over PostgreSQL's.
fn rates(cases: &[Case]) -> Table {
    let measures = [RATE, P50, P99, CPU, RETRIED];
    let mut columns = vec![Column::ours("case", "")];
    for name in CONTENDERS {
        columns.extend(measures.iter().enumerate().map(|(at, m)| {
            let label = if at == 0 { name } else { m.label };
            Column::ours(label, m.unit)
        }));
    }
    columns.push(Column::ours("ratio", ""));
    columns.push(Column::ours("ratio, hot_rows off", ""));
    columns.push(Column::ours("ratio, all hot_rows", ""));
    let row = |case: &Case| {
        let mut row = vec![Cell::text(Case::name(case.work, case.clients))];
        for at in 0..CONTENDERS.len() {
            row.extend(measures.iter().map(|m| Cell::measured(&case.values(at, m), m.digits)));
        }
        row.push(Cell::number(case.ratio(), 2));
        row.push(Cell::number(case.ratio_of(2), 2));
        row.push(Cell::number(case.ratio_of(AT_ALL), 2));
        row
    };
    Table {
        title: "Medians, and rates over PostgreSQL's".into(),
        columns,
        rows: cases.iter().map(row).collect(),
    }
}

/// Renders a contender's lock waits from `clearway.contention`, its chains of transactions behind
/// each other from `clearway.hot_rows`, its cascades from `clearway.cascades`, and the blocks that
/// it ran again.
fn waits(cases: &[Case], contender: usize) -> Table {
    let measures = [
        RATE,
        LATENCY,
        WAITS,
        WAITED,
        CHAIN,
        LONGEST_CHAIN,
        CASCADES,
        UNDONE,
        LARGEST_CASCADE,
        REPLAYED,
    ];
    let columns = measures.iter().map(|m| Column::ours(m.label, m.unit));
    let row = |case: &Case| {
        let cells = measures.iter().map(|m| case.cell(contender, m));
        std::iter::once(Cell::text(Case::name(case.work, case.clients))).chain(cells).collect()
    };
    Table {
        title: format!(
            "Medians of {}, and lock waits, chains and cascades on hot rows",
            CONTENDERS[contender]
        ),
        columns: std::iter::once(Column::ours("case", "")).chain(columns).collect(),
        rows: cases.iter().filter(|case| !case.samples[contender].is_empty()).map(row).collect(),
    }
}

fn found(cases: &[Case]) -> Vec<String> {
    let ratios: Vec<f64> = cases.iter().filter_map(Case::ratio).collect();
    let of_few = cases.iter().filter(|case| case.clients <= STEADY_CLIENTS);
    let Some((least, most)) = number::spread(&of_few.filter_map(Case::ratio).collect::<Vec<_>>())
    else {
        return Vec::new();
    };
    let ahead = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    vec![format!(
        "In {ahead} of {} cases Clearway commits more than PostgreSQL; with at most {STEADY_CLIENTS} clients the ratio of their rates is {} to {}. With more, PostgreSQL commits few transactions for each client, so the start of the load is part of its rates, and the length of the run bounds its 99th percentile.",
        ratios.len(),
        number::shown(least, 2),
        number::shown(most, 2)
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PANELS;
    use cascades::Cascades;

    pub(super) fn case(work: Work, clients: u32, ours: f64, theirs: f64) -> Case {
        let sample = |tps: f64| Sample {
            tps,
            latency_ms: 1.0,
            p50_ms: 0.5,
            p99_ms: 2.0,
            cpu_us: 3.0,
            retried: 0.5,
            deadlocks: 0.25,
            waits: f64::NAN,
            lock_waits: f64::NAN,
            waited_ms: f64::NAN,
            replayed: f64::NAN,
            chains: chains::Chains::UNKNOWN,
            cascades: Cascades::UNKNOWN,
        };
        let samples = [ours, theirs, ours, ours, ours, ours, ours]
            .map(|tps| vec![sample(tps), sample(tps * 3.0), sample(tps * 2.0)])
            .to_vec();
        Case { work, clients, samples }
    }

    #[test]
    fn tables_and_charts_show_the_measurements() {
        let cases = [case(Work::ForUpdate, 16, 10.0, 5.0), case(Work::ForUpdate, 100, 3.0, 6.0)];
        for table in [rates(&cases), waits(&cases, 0), waits(&cases, AT_ALL)] {
            assert!(
                table.rows.iter().all(|row| row.len() == table.columns.len()),
                "{}",
                table.title
            );
        }
        assert_eq!(rates(&cases).rows[0][36], Cell::number(2.0, 2));
        assert_eq!(rates(&cases).rows[0][1].to_string(), "20 ±10", "the median and the deviation");
        let drawn = samples(Work::ForUpdate, &cases);
        assert!(
            drawn
                .iter()
                .all(|s| s.series.len() == CONTENDERS.len() && !s.title.contains("lock wait")),
            "no server reports waits"
        );
        assert_eq!(samples(Work::Increment, &cases), Vec::new());
        assert!(found(&cases)[0].contains("1 of 2 cases"));
    }

    #[test]
    fn ratios_are_quoted_of_runs_that_are_long_beside_their_start() {
        let cases = [case(Work::ForUpdate, 100, 10.0, 5.0), case(Work::ForUpdate, 500, 40.0, 5.0)];
        let found = found(&cases).remove(0);
        assert!(found.starts_with("In 2 of 2 cases"), "{found}");
        assert!(found.contains("the ratio of their rates is 2.00 to 2.00."), "{found}");
        assert!(found.contains("bounds its 99th percentile"), "{found}");
    }

    #[test]
    fn cascades_are_shown_beside_chains() {
        let mut cases = [case(Work::TimedRollback, 100, 10.0, 5.0)];
        let all = [(4.0, 2.5, 7.0), (0.0, f64::NAN, f64::NAN), (2.0, 1.5, 2.0)];
        for (sample, (number, mean, largest)) in cases[0].samples[AT_ALL].iter_mut().zip(all) {
            sample.chains = chains::Chains { mean: 0.5, most: 3.0 };
            sample.cascades = Cascades { number, mean, largest };
        }
        let table = waits(&cases, AT_ALL);
        let shown = |label: &str| {
            let at = table.columns.iter().position(|column| column.name == label).unwrap();
            table.rows[0][at].to_string()
        };
        let labels =
            ["longest chain", "cascades", "undone transactions per cascade", "largest cascade"];
        assert_eq!(labels.map(shown), ["3 ±0", "2 ±2", "1.5 ±1.0", "2 ±5"]);
        let other = waits(&cases, 0);
        assert!(other.rows[0].contains(&Cell::Empty), "a server without cascades");
        let samples = samples(Work::TimedRollback, &cases);
        let cascades = samples.iter().find(|s| s.title.ends_with(": cascades")).unwrap();
        assert_eq!((&*cascades.series[0].name, cascades.series.len()), (ALL, 1));
        assert_eq!(cascades.series[0].points[0].y, [4.0, 0.0, 2.0]);
    }

    #[test]
    fn few_lock_waits_are_shown_as_a_count() {
        let mut case = case(Work::Autocommit, 16, 10.0, 5.0);
        for (sample, waits) in case.samples[0].iter_mut().zip([49.0, 50.0, 0.0]) {
            (sample.waits, sample.lock_waits) = (waits / 1e3, waits);
        }
        assert_eq!(case.cell(0, &WAITS).to_string(), "99 waits in 3 runs");
        case.samples[0][2].lock_waits = 1.0;
        assert_eq!(case.cell(0, &WAITS).to_string(), "0.05 ±0.00");
        assert_eq!(case.cell(0, &P50).to_string(), "0.50 ±0.00");
    }

    #[test]
    fn the_readme_chart_finds_its_samples() {
        for (work, panel) in [Work::Autocommit, Work::ForUpdate].into_iter().zip(&PANELS[2..]) {
            let samples = samples(work, &[case(work, 100, 10.0, 5.0)]);
            let shown = samples.iter().find(|samples| samples.title == panel.samples).unwrap();
            let names: Vec<&str> = shown.series.iter().map(|series| series.name.as_str()).collect();
            assert_eq!(names[..2], [CLEARWAY, POSTGRES]);
        }
    }

    #[test]
    fn single_mechanisms_run_with_few_clients_and_for_no_bar() {
        let wanted = |part, name| CLIENTS.into_iter().filter(|n| wants(&part, name, *n)).collect();
        let (of_one, of_all): (Vec<u32>, Vec<u32>) =
            (wanted(Part::Whole, RETIRE), wanted(Part::Whole, ALL));
        assert_eq!((of_one, of_all), (ALONE_CLIENTS.to_vec(), CLIENTS.to_vec()));
        let of_bars: Vec<u32> = wanted(Part::Bars, WHOLE);
        assert!(of_bars.is_empty());
    }

    #[test]
    fn cases_of_a_kind_take_turns_within_each_repetition() {
        let cases = [(Work::Autocommit, 1), (Work::Autocommit, 16), (Work::ForUpdate, 1)];
        let in_order = [(0, 1), (1, 1), (0, 2), (1, 2), (2, 1), (2, 2)];
        assert_eq!(turns(&cases, &[1, 2]), in_order);
    }

    #[test]
    fn tables_skip_contenders_that_did_not_run() {
        let mut cases = [case(Work::Timed, 16, 10.0, 5.0), case(Work::Timed, 500, 3.0, 6.0)];
        cases[1].samples[AT_RETIRE].clear();
        assert_eq!(waits(&cases, AT_RETIRE).rows.len(), 1);
        assert_eq!(rates(&cases).rows.len(), 2);
    }

    #[test]
    fn bar_runs_have_exactly_the_bars_cases() {
        assert_eq!(cases(&Part::Whole).len(), Work::ALL.len() * CLIENTS.len());
        assert!(cases(&Part::Bars).len() < cases(&Part::Whole).len());
        let whole: Vec<Case> =
            cases(&Part::Bars).into_iter().map(|(w, c)| case(w, c, 2.0, 1.0)).collect();
        let judged: Vec<String> = judge::bars(&whole).into_iter().map(|bar| bar.name).collect();
        assert_eq!(judged, judge::NAMES);
    }
}

//! The whole server under `pgbench -S -c 100` with one hot latch, for each acquisition of the
//! engine's latch.
//!
//! The latch protects the pool's replacement policy: with `lru/locked` every page access takes it.
//! The cost of waiting comes from the server's own counters, `clearway.contention`, which are reset
//! before each run and read after pgbench has ended. The share of CPU time in the latch comes from
//! `perf`, as the source's does: samples in the function that waits for the latch. It includes
//! spinning and excludes sleeping.
//!
//! One server at a time runs, all on the same tables: each has the memory for itself.
//!
//! The source's "before" is the same server with PostgreSQL's `s_lock` instead of the latch. The
//! lab serves it itself ([`Specimen`]).

mod found;

use super::waits::Waits;
use crate::compare::{Contender, Sample, Tables, seeds, sized};
use crate::contention;
use crate::experiment::{Experiment, Part, Task};
use crate::number::median;
use crate::pgbench::{clearway, configuration};
use crate::profile::Profiler;
use crate::progress::Progress;
use crate::result::{Axis, Findings, Point, Samples, Series};
use crate::rival::Sizes;
use crate::room::Room;
use crate::serve::Specimen;
use crate::table::{Cell, Column, FEW, Table};
use clearway_harness::pgbench::{Length, QueryMode, Run, Script};
use clearway_harness::server::Kind;
use clearway_harness::{Res, tools};
use clearway_latch::Choice;
use clearway_replacement::{PolicyKind, WrapperKind};
use found::{agreement, found};
use std::time::Instant;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "spinlock/server",
    about: "the whole server under pgbench -S -c 100 with the pool's policy behind one latch, for each acquisition",
    question: "How much of a server's time does one hot latch cost with a hundred clients, and how much of that depends on the acquiring instruction or on how long a thread spins?",
    source: "A report on Greenplum 6.9.1 on Kunpeng (aarch64) under pgbench -S -c 100, and Greenplum pull request 12848.",
    source_found: "With test-and-set 805 transactions per second and 82.42 % of the CPU time in s_lock; with compare-and-swap by acquire exclusives 3,800 and 38 % (3,652 in the comparison with LSE). With LSE instructions both are slower: 577 and 77.8 %, 2,985 and 27 %.",
    limits: &[
        "No more workers run at once than this machine has cores, and they share these with the clients. It cannot show what a hundred cores do to a latch.",
    ],
    bars: &[],
    run,
};

/// A server configuration: its name in the table, and its arguments.
#[derive(Clone, Debug, PartialEq)]
struct Variant {
    name: String,
    args: Vec<String>,
    /// Set if the lab serves it.
    specimen: Option<Specimen>,
}

/// A variant with a number of workers.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    variant: Variant,
    workers: usize,
}

/// Measurements of one run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    sample: Sample,
    waits: Waits,
    /// Percent of the server's CPU time in the function that waits for the latch. NaN if `perf`
    /// did not run.
    latch_cpu: f64,
}

/// The policy that takes a latch on every page access, and one that takes none on a hit.
const LATCHED: &str = "lru/locked";
const UNLATCHED: &str = "clock-sweep";
/// More workers than cores on most machines: the source has one process per client.
const MANY_WORKERS: usize = 32;
/// Workers of a `--quick` run.
const QUICK_WORKERS: usize = 3;
/// Tables of about 0.8 GB, and a pool that holds them. The source's scale is 1,000.
const LARGE: Sizes = Sizes { pool: "1GB", scale: 100 };
/// Room for tables that `LARGE` needs, in bytes.
const LARGE_BYTES: u64 = 1 << 30;
/// Minimum run length of a whole run, in seconds: the source's.
const MIN_SECONDS: u32 = 60;
/// A number of spins with which a thread hardly ever sleeps.
const MANY_SPINS: &str = "100000";

/// A measure: its name and unit, and how it is read from a run.
struct Measure {
    name: &'static str,
    unit: &'static str,
    digits: u8,
    of: fn(&Figures) -> f64,
}

/// A rate of waits; shown as a count if there are few.
const WAITED: &str = "requests that waited for the policy's latch";

/// The functions that wait for `s_lock` and for the engine's latch. The second one also waits for
/// the engine's other latches.
const S_LOCK_WAITS: &str = "SLock<A>::lock_slowly";
const LATCH_WAITS: &str = "ParkLatch::lock_slowly";

const MEASURES: [Measure; 7] = [
    Measure { name: "throughput", unit: "TPS", digits: 0, of: |f| f.sample.tps },
    Measure {
        name: "waiting for the policy's latch",
        unit: "% of the workers' time",
        digits: 2,
        of: |f| f.waits.policy_share,
    },
    Measure {
        name: "waiting for any latch",
        unit: "% of the workers' time",
        digits: 2,
        of: |f| f.waits.latch_share,
    },
    Measure { name: WAITED, unit: "%", digits: 3, of: |f| f.waits.policy_contended },
    Measure {
        name: "server CPU time per transaction",
        unit: "us",
        digits: 1,
        of: |f| f.sample.server_cpu_us,
    },
    Measure {
        name: "requests for the policy's latch per transaction",
        unit: "",
        digits: 1,
        of: Figures::requests,
    },
    Measure {
        name: "CPU time in the latch",
        unit: "% of the server's CPU time",
        digits: 2,
        of: |f| f.latch_cpu,
    },
];
/// Short labels for the table.
const SHORT: [&str; 7] = [
    "",
    "waiting for the policy",
    "for any latch",
    "requests that waited",
    "CPU",
    "requests per transaction",
    "CPU in the latch",
];

/// Published results: acquisition, transactions per second, percent of CPU time in `s_lock`.
const PUBLISHED: [(&str, f64, f64); 4] = [
    ("s_lock by test-and-set", 805.0, 82.42),
    ("s_lock by test-and-set, LSE", 577.0, 77.8),
    ("s_lock by compare-and-swap", 3800.0, 38.0),
    ("s_lock by compare-and-swap, LSE", 2985.0, 27.0),
];

impl Figures {
    /// Requests for the policy's latch that waited.
    fn waited(&self) -> f64 {
        (self.waits.policy_requests * self.waits.policy_contended / 100.0).round()
    }

    fn requests(&self) -> f64 {
        self.waits.policy_requests / (self.sample.tps * self.waits.seconds)
    }
}

impl Case {
    /// Returns the name in progress output and for `--only`.
    fn name(&self) -> String {
        format!("{}, {} workers", self.variant.name, self.workers)
    }
}

fn variants() -> Vec<Variant> {
    let served = |name: String, specimen: Option<Specimen>, args: &[&str]| Variant {
        name,
        args: args.iter().map(|a| (*a).to_owned()).collect(),
        specimen,
    };
    let locked = Specimen::Wrapped(PolicyKind::Lru, WrapperKind::Locked);
    let variant = |what: &str, args: &[&str]| {
        served(format!("{}, {what}", locked.name()), Some(locked), args)
    };
    let mut variants = vec![served(
        format!("{UNLATCHED}, no latch on a hit"),
        None,
        &["--replacement", UNLATCHED],
    )];
    variants.extend(
        Choice::all().into_iter().map(|choice| variant(choice.name(), &["--latch", choice.name()])),
    );
    variants.push(variant("sleeps at once", &["--latch-spins", "0"]));
    variants.push(variant("hardly sleeps", &["--latch-spins", MANY_SPINS]));
    variants.extend(Specimen::S_LOCKS.map(|specimen| served(specimen.name(), Some(specimen), &[])));
    variants
}

impl Variant {
    /// Returns the server with this many workers. For a specimen, the server is this program.
    fn kind(&self, task: &Task, sizes: &Sizes, workers: usize) -> Res<Kind> {
        let workers = workers.to_string();
        let args = self.args.iter().map(String::as_str).chain(["--workers", workers.as_str()]);
        let kind = clearway(task, sizes, &args.collect::<Vec<_>>())?;
        let (Some(specimen), Kind::Clearway { mut args, .. }) = (self.specimen, kind.clone())
        else {
            return Ok(kind);
        };
        let binary =
            std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        args.extend(["--specimen".into(), specimen.name()]);
        Ok(Kind::Clearway { binary, args })
    }
}

/// Returns the cases of this part: as many workers as cores, and more. There is no bar.
fn cases(task: &Task) -> Vec<Case> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if task.options.quick {
        vec![QUICK_WORKERS]
    } else {
        vec![cores, MANY_WORKERS.max(4 * cores)]
    };
    let all = workers
        .into_iter()
        .flat_map(|workers| variants().into_iter().map(move |variant| Case { variant, workers }));
    all.filter(|case| task.part.wants(&case.name(), false)).collect()
}

/// Returns tables as large as fit.
fn sizes(task: &Task, room: Room) -> Sizes {
    match !task.options.quick && room.for_tables() >= LARGE_BYTES {
        true => LARGE,
        false => Sizes::of(task),
    }
}

/// Returns the task with runs of a whole run as long as the source's.
fn lengthened(task: &Task) -> Task {
    let mut task = task.clone();
    if task.part == Part::Whole {
        task.options.seconds = task.options.seconds.max(MIN_SECONDS);
    }
    task
}

fn load(task: &Task) -> Run {
    sized(
        &Run {
            script: Script::SelectOnly,
            mode: QueryMode::Simple,
            clients: 100,
            threads: 100,
            length: Length::Seconds(0),
        },
        task,
    )
}

fn run(task: &Task) -> Res<Findings> {
    let task = &lengthened(task);
    let (cases, sizes) = (cases(task), sizes(task, Room::here()?));
    let mut findings =
        Findings { configuration: configuration(task, &sizes), ..Findings::default() };
    let load = load(task);
    let threads = format!("pgbench on the same machine, {} threads", load.threads);
    findings.configuration.extend([("load".into(), load.name()), ("clients".into(), threads)]);
    if task.part == Part::Bars {
        return Ok(findings);
    }
    if tools::find("pgbench").is_none() {
        let why = "`pgbench` is not installed";
        findings.found.push(format!("Nothing was measured: {why}."));
        return if tools::in_ci() {
            Err(format!("{why}, and CI must not skip it"))
        } else {
            Ok(findings)
        };
    }
    let Measured { cases: measured, unprofiled } = measure(task, cases, &sizes)?;
    findings.seeds = seeds(task);
    findings.samples = MEASURES.iter().map(|measure| samples(&measured, measure)).collect();
    findings.tables = vec![table(&measured)];
    findings.found = found(&measured);
    findings
        .found
        .extend(unprofiled.map(|why| format!("CPU time in the latch is not known: {why}")));
    findings.agreement = agreement(&measured);
    Ok(findings)
}

/// The runs of each case, and why a run, if any, has no profile.
struct Measured {
    cases: Vec<(Case, Vec<Figures>)>,
    unprofiled: Option<String>,
}

/// Runs every case. Servers take turns: one at a time starts, runs and stops.
fn measure(task: &Task, cases: Vec<Case>, sizes: &Sizes) -> Res<Measured> {
    let kinds = cases.iter().map(|case| case.variant.kind(task, sizes, case.workers));
    let kinds = kinds.collect::<Res<Vec<Kind>>>()?;
    let first = kinds.first().ok_or("no case was selected")?;
    let tables = Tables::load(first, sizes.scale)?;
    let mut progress = Progress::new(EXPERIMENT.name, cases.len() * seeds(task).len());
    let mut unprofiled = None;
    let mut measured: Vec<(Case, Vec<Figures>)> =
        cases.into_iter().map(|case| (case, Vec::new())).collect();
    for seed in seeds(task) {
        for (kind, (case, runs)) in kinds.iter().zip(&mut measured) {
            progress.step(&format!("{}, seed {seed}", case.name()));
            let named = |why| format!("{}: {why}", case.name());
            let mut contender = tables.open(&case.name(), kind).map_err(named)?;
            let (figures, without) =
                one_run(&mut contender, case, &load(task), seed).map_err(named)?;
            contender.stop()?;
            runs.push(figures);
            unprofiled = unprofiled.or(without.map(named));
        }
    }
    Ok(Measured { cases: measured, unprofiled })
}

/// Runs once. Also returns why there is no profile, if there is none.
fn one_run(
    contender: &mut Contender,
    case: &Case,
    load: &Run,
    seed: u64,
) -> Res<(Figures, Option<String>)> {
    let profiler = Profiler::start(contender.process());
    contention::reset(contender.endpoint())?;
    let began = Instant::now();
    let look = |endpoint: &_| {
        let waits = Waits::read(endpoint, case.workers, began.elapsed())?;
        Ok((waits, profiler.and_then(Profiler::finish)))
    };
    let (sample, (waits, profile)) = contender.run_and_look(load, seed, look)?;
    let s_lock =
        case.variant.specimen.is_some_and(|specimen| Specimen::S_LOCKS.contains(&specimen));
    let function = if s_lock { S_LOCK_WAITS } else { LATCH_WAITS };
    let latch_cpu = profile.as_ref().map_or(f64::NAN, |profile| profile.percent(function));
    Ok((Figures { sample, waits, latch_cpu }, profile.err()))
}

fn middle(runs: &[Figures], of: fn(&Figures) -> f64) -> Option<f64> {
    median(&runs.iter().map(of).collect::<Vec<_>>())
}

fn samples(measured: &[(Case, Vec<Figures>)], measure: &Measure) -> Samples {
    let mut series: Vec<Series> = Vec::new();
    for (case, runs) in measured {
        // A rate of a few waits says little; the table has their count.
        let waited: f64 = runs.iter().map(Figures::waited).sum();
        let few = measure.name == WAITED && waited > 0.0 && waited < FEW;
        let value = |run: &Figures| if few { f64::NAN } else { (measure.of)(run) };
        let point = Point { x: case.workers as f64, y: runs.iter().map(value).collect() };
        match series.iter_mut().find(|series| series.name == case.variant.name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: case.variant.name.clone(), points: vec![point] }),
        }
    }
    let y = Axis::linear(measure.name, measure.unit);
    Samples {
        title: measure.name.into(),
        x: Axis::log("workers", ""),
        y,
        series,
        drawn: true,
        marked: None,
    }
}

fn table(measured: &[(Case, Vec<Figures>)]) -> Table {
    let mut columns = vec![Column::ours("server", ""), Column::ours("workers", "")];
    columns.extend(
        MEASURES.iter().zip(SHORT).map(|(measure, short)| Column::ours(short, measure.unit)),
    );
    columns.extend([Column::published("", "TPS"), Column::published("CPU in s_lock", "%")]);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (case, runs) in measured {
        let mut row = vec![Cell::text(&case.variant.name), Cell::number(case.workers as f64, 0)];
        let values = |measure: &Measure| runs.iter().map(measure.of).collect::<Vec<_>>();
        let waited: f64 = runs.iter().map(Figures::waited).sum();
        row.extend(MEASURES.iter().map(|measure| match measure.name {
            WAITED => Cell::rate(&values(measure), measure.digits, "waits", waited),
            _ => Cell::measured(&values(measure), measure.digits),
        }));
        row.extend([Cell::Empty, Cell::Empty]);
        rows.push(row);
    }
    for (acquisition, tps, share) in PUBLISHED {
        let mut row = vec![Cell::text(acquisition)];
        row.resize(columns.len() - 2, Cell::Empty);
        row.extend([Cell::number(tps, 0), Cell::number(share, 2)]);
        rows.push(row);
    }
    Table {
        title: "Medians; the published numbers come from another database on another machine"
            .into(),
        columns,
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Options;

    fn task(quick: bool, part: Part) -> Task {
        Task {
            options: Options { quick, seconds: 1, repeat: 1, binary: None, serve_args: Vec::new() },
            part,
        }
    }

    fn measured() -> Vec<(Case, Vec<Figures>)> {
        let figures = |tps: f64, share: f64| Figures {
            sample: Sample {
                tps,
                latency_ms: 1.0,
                p50_ms: 1.0,
                p99_ms: 2.0,
                server_cpu_us: 5.0,
                disk_kb: f64::NAN,
                page_cache_mb: f64::NAN,
            },
            waits: Waits {
                seconds: 2.0,
                policy_requests: 8.0 * tps,
                policy_contended: 0.5,
                policy_share: share,
                latch_share: share,
            },
            latch_cpu: share / 2.0,
        };
        let cases = cases(&task(false, Part::Whole)).into_iter().enumerate();
        cases
            .map(|(at, case)| (case, vec![figures(100.0 * (at + 1) as f64, at as f64); 3]))
            .collect()
    }

    #[test]
    fn whole_runs_have_the_sources_length_and_tables_that_fit() {
        let seconds = |part| lengthened(&task(false, part)).options.seconds;
        assert_eq!((seconds(Part::Whole), seconds(Part::Only("cas".into()))), (60, 1));
        let scale = |quick, room| sizes(&task(quick, Part::Whole), room).scale;
        let (small, large) = (Room::of(1 << 30, 1 << 40), Room::of(8 << 30, 8 << 30));
        assert_eq!((scale(false, large), scale(false, small), scale(true, large)), (100, 10, 1));
    }

    #[test]
    fn every_acquisition_is_a_case_without_a_bar() {
        let whole = cases(&task(false, Part::Whole));
        assert_eq!(whole.len(), 2 * (Choice::all().len() + 3 + Specimen::S_LOCKS.len()));
        assert!(
            Choice::all()
                .iter()
                .all(|c| whole.iter().any(|case| case.variant.args.contains(&c.name().to_owned())))
        );
        assert_eq!(cases(&task(false, Part::Bars)), []);
        assert_eq!(cases(&task(false, Part::Only("sleeps at once, 3".into()))).len(), 1);
        assert!(cases(&task(true, Part::Whole)).iter().all(|case| case.workers == QUICK_WORKERS));
    }

    #[test]
    fn table_shows_published_numbers_beside_ours() {
        let measured = measured();
        let table = table(&measured);
        assert_eq!(table.rows.len(), measured.len() + PUBLISHED.len());
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        assert_eq!(table.rows[0][2], Cell::measured(&[100.0; 3], 0));
        assert_eq!(table.rows[0][7], Cell::measured(&[4.0; 3], 1));
        assert_eq!(table.rows[2][8], Cell::measured(&[1.0; 3], 2));
        assert_eq!(
            table.rows[measured.len()][9..],
            [Cell::number(805.0, 0), Cell::number(82.42, 2)]
        );
        // 800 requests, of which 0.5 % waited, in each of three runs; then twice as many, and so
        // on.
        assert_eq!(table.rows[0][5], Cell::text("12 waits in 3 runs"));
        assert_eq!(table.rows[9][5], Cell::measured(&[0.5; 3], 3));
        let published: Vec<String> =
            table.rows[measured.len()..].iter().map(|row| row[9].to_string()).collect();
        assert_eq!(
            published,
            ["805", "577", "3,800", "2,985"],
            "TPS, as the source has them without and with LSE"
        );
        let found = found(&measured);
        assert_eq!(found.len(), 5);
        assert!(
            found[1].contains("s_lock")
                && found[1].contains("the engine's latch 200.")
                && found[1].contains("CPU time, 2.50 and 3.00 % were in s_lock"),
            "{}",
            found[1]
        );
        assert!(found[0].contains("; without the latch 100."), "{}", found[0]);
        let variants = variants().len();
        let samples = samples(&measured, &MEASURES[0]);
        assert_eq!((samples.series.len(), samples.series[0].points.len()), (variants, 2));
        let waited = super::samples(&measured, &MEASURES[3]);
        assert!(waited.series[0].points[0].y[0].is_nan(), "12 waits in 3 runs");
        assert!(agreement(&measured)[0].contains("factor of 4.5 to 4.8"));
    }
}

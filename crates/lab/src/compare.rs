//! Runs the same pgbench cases on several servers, interleaved, so that disturbances of the machine
//! affect all of them.

mod losses;

use crate::experiment::Task;
use crate::last_run::LastRun;
use crate::number::{self, median};
use crate::progress::Progress;
use crate::result::{Axis, Point, Samples, Series};
use crate::table::{Cell, Column, Table};
use clearway_harness::memory::{Limit, MemoryGroup};
use clearway_harness::pgbench::{self, Length, Run, Script};
use clearway_harness::server::{Kind, PrivateServer};
use clearway_harness::sums::Sums;
use clearway_harness::tools::TempDir;
use clearway_harness::{Endpoint, Res, cpu, disk};
use std::path::PathBuf;

/// Share of a timed run's transactions that pgbench logs: enough for percentiles, too few to slow
/// it down.
const LOGGED: f64 = 0.05;
/// Transactions of all clients in a `--quick` run.
const QUICK_TRANSACTIONS: u32 = 320;

/// One server of a comparison.
pub struct Contender {
    /// Name in tables and charts.
    pub name: String,
    server: PrivateServer,
    sums: Sums,
    // Dropped after the server, in this order.
    group: Option<MemoryGroup>,
    /// The server's files, unless they are those of [`Tables`].
    _directory: Option<TempDir>,
}

/// Loaded tables that servers open one after the other.
pub struct Tables {
    directory: TempDir,
    sums: Sums,
}

impl Tables {
    /// Loads tables at `scale` with a server of this kind, and stops it.
    pub fn load(kind: &Kind, scale: u32) -> Res<Self> {
        let Contender { server, sums, _directory, .. } = Contender::start("tables", kind, scale)?;
        server.stop()?;
        let directory = _directory.ok_or("a server without a directory of its own")?;
        Ok(Self { directory, sums })
    }

    /// Starts a server of this kind on the tables, which no other server may have open, and reads
    /// them: all of their pages are in its pool if they fit.
    pub fn open(&self, name: &str, kind: &Kind) -> Res<Contender> {
        let server = kind.start(&data(&self.directory))?;
        let sums = Sums::read(server.endpoint())?;
        sums.check(&self.sums, Script::SelectOnly, 0).map_err(|why| format!("{name}: {why}"))?;
        Ok(Contender { name: name.into(), server, sums, group: None, _directory: None })
    }
}

/// Returns the data directory in a server's directory.
fn data(directory: &TempDir) -> PathBuf {
    directory.path().join("data")
}

/// Measurements of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Transactions per second.
    pub tps: f64,
    /// Average latency in milliseconds.
    pub latency_ms: f64,
    /// Median latency of the logged transactions, in milliseconds.
    pub p50_ms: f64,
    /// Their 99th percentile.
    pub p99_ms: f64,
    /// Server CPU time per transaction, in microseconds; NaN if unknown.
    pub server_cpu_us: f64,
    /// Disk reads of the server per transaction, in kB; NaN if unknown.
    pub disk_kb: f64,
    /// Page cache charged to the server at the end, in MB; NaN without a memory limit.
    pub page_cache_mb: f64,
}

/// A measure of a [`Sample`]: its name, and how it is read.
struct Measure {
    label: &'static str,
    /// Label for narrow columns.
    short: &'static str,
    unit: &'static str,
    digits: u8,
    of: fn(&Sample) -> f64,
}

const RATE: Measure =
    Measure { label: "throughput", short: "", unit: "TPS", digits: 0, of: |s| s.tps };
const LATENCY: Measure = Measure {
    label: "average latency",
    short: "latency",
    unit: "ms",
    digits: 3,
    of: |s| s.latency_ms,
};
const P50: Measure =
    Measure { label: "median latency", short: "p50", unit: "ms", digits: 3, of: |s| s.p50_ms };
const P99: Measure = Measure {
    label: "99th percentile of the latency",
    short: "p99",
    unit: "ms",
    digits: 3,
    of: |s| s.p99_ms,
};
const CPU: Measure = Measure {
    label: "server CPU time per transaction",
    short: "CPU",
    unit: "us",
    digits: 1,
    of: |s| s.server_cpu_us,
};
const DISK: Measure = Measure {
    label: "disk reads per transaction",
    short: "read",
    unit: "kB",
    digits: 1,
    of: |s| s.disk_kb,
};
const PAGE_CACHE: Measure = Measure {
    label: "page cache",
    short: "page cache",
    unit: "MB",
    digits: 0,
    of: |s| s.page_cache_mb,
};

/// One case, run on every contender.
struct Case {
    run: Run,
    /// By contender, every repetition.
    samples: Vec<Vec<Sample>>,
}

/// Heading of the ratios of our last run.
const LAST_RATIO: &str = "ratio, our last run";
/// Ratios agree within this factor.
const TOLERANCE: f64 = 1.2;

/// All cases on all contenders.
pub struct Comparison {
    contenders: Vec<String>,
    cases: Vec<Case>,
}

impl Contender {
    /// Starts a private server of this kind and loads tables at `scale`.
    pub fn start(name: &str, kind: &Kind, scale: u32) -> Res<Self> {
        Self::limited(None, name, kind, scale)
    }

    /// Like [`Self::start`], with a limit on the memory of all server processes and their page
    /// cache, effective from the first page on.
    pub fn limited(limit: Option<&Limit>, name: &str, kind: &Kind, scale: u32) -> Res<Self> {
        let directory = TempDir::new("lab")?;
        let data = data(&directory);
        let group = limit.map(Limit::group).transpose()?;
        kind.prepare_in(group.as_ref(), &data)?;
        let server = kind.start_in(group.as_ref(), &data)?;
        pgbench::init(server.endpoint(), "dtgvp", scale).map_err(|why| format!("{name}: {why}"))?;
        let sums = Sums::read(server.endpoint())?;
        Ok(Self { name: name.into(), server, sums, group, _directory: Some(directory) })
    }

    /// Stops the server cleanly.
    pub fn stop(self) -> Res<()> {
        self.server.stop().map(drop).map_err(|why| format!("{}: {why}", self.name))
    }

    /// Returns the server's process ID.
    pub fn process(&self) -> u32 {
        self.server.id()
    }

    /// Returns the server's address.
    pub fn endpoint(&self) -> &Endpoint {
        self.server.endpoint()
    }

    /// Runs once; the rate counts only if the sums agree afterwards.
    fn run(&mut self, run: &Run, seed: u64) -> Res<Sample> {
        self.run_and_look(run, seed, |_| Ok(())).map(|(sample, ())| sample)
    }

    /// Like [`Self::run`]; calls `look` after the run, before the sums are read.
    pub fn run_and_look<T>(
        &mut self,
        run: &Run,
        seed: u64,
        look: impl FnOnce(&Endpoint) -> Res<T>,
    ) -> Res<(Sample, T)> {
        let id = self.server.id();
        let (cpu_before, disk_before) = (cpu::used(id), disk::read(id));
        let (result, timed) = {
            let logs = TempDir::new("lab")?;
            run.sampled(self.server.endpoint(), seed, logs.path(), logged_share(run))?
        };
        let used =
            cpu_before.zip(cpu::used(id)).map(|(before, after)| after.saturating_sub(before));
        let read =
            disk_before.zip(disk::read(id)).map(|(before, after)| after.saturating_sub(before));
        let page_cache = self.group.as_ref().and_then(MemoryGroup::page_cache);
        let seen = look(self.server.endpoint())?;
        let sums = Sums::read(self.server.endpoint())?;
        sums.check(&self.sums, run.script, result.processed)?;
        self.sums = sums;
        let transactions = result.processed.max(1) as f64;
        let sample = Sample {
            tps: result.tps,
            latency_ms: result.latency_ms,
            p50_ms: pgbench::percentile_ms(&timed, 50),
            p99_ms: pgbench::percentile_ms(&timed, 99),
            server_cpu_us: used.map_or(f64::NAN, |u| u.as_secs_f64() * 1e6 / transactions),
            disk_kb: read.map_or(f64::NAN, |bytes| bytes as f64 / 1e3 / transactions),
            page_cache_mb: page_cache.map_or(f64::NAN, |bytes| bytes as f64 / 1e6),
        };
        Ok((sample, seen))
    }
}

/// Returns the share of transactions whose latencies pgbench logs. Fixed-count runs are small and
/// log all.
pub fn logged_share(run: &Run) -> f64 {
    match run.length {
        Length::Transactions(_) => 1.0,
        Length::Seconds(_) => LOGGED,
    }
}

/// Returns the seeds of pgbench's random rows: one per repetition, the same for every contender.
pub fn seeds(task: &Task) -> Vec<u64> {
    (1..=u64::from(task.repetitions())).collect()
}

/// Returns the run with the length that the task requests.
pub fn sized(run: &Run, task: &Task) -> Run {
    let length = match task.options.quick {
        true => Length::Transactions((QUICK_TRANSACTIONS / run.clients).max(1)),
        false => Length::Seconds(task.options.seconds),
    };
    Run { length, ..*run }
}

/// Runs every case on every contender in turn, once per seed.
pub fn compare(
    what: &'static str,
    contenders: &mut [Contender],
    cases: &[Run],
    task: &Task,
) -> Res<Comparison> {
    let seeds = seeds(task);
    let mut progress = Progress::new(what, cases.len() * contenders.len() * seeds.len());
    let mut done = Vec::new();
    for case in cases {
        let run = sized(case, task);
        let mut samples = vec![Vec::new(); contenders.len()];
        for seed in &seeds {
            for (contender, samples) in contenders.iter_mut().zip(&mut samples) {
                progress.step(&format!("{}, {}, seed {seed}", run.name(), contender.name));
                samples.push(
                    contender
                        .run(&run, *seed)
                        .map_err(|why| format!("{}: {why}", contender.name))?,
                );
            }
        }
        done.push(Case { run, samples });
    }
    Ok(Comparison { contenders: contenders.iter().map(|c| c.name.clone()).collect(), cases: done })
}

impl Comparison {
    /// Returns charts of throughput, latency and CPU time for the cases that `of` maps to an x.
    pub fn samples(&self, title: &str, x: &Axis, of: impl Fn(&Run) -> Option<f64>) -> Vec<Samples> {
        let measures = [
            (RATE, true),
            (P50, true),
            (P99, true),
            (CPU, true),
            (LATENCY, false),
            (DISK, false),
            (PAGE_CACHE, false),
        ];
        let samples = measures.map(|(measure, drawn)| {
            let series = self.contenders.iter().enumerate().map(|(at, name)| {
                let point = |case: &Case| {
                    Some(Point {
                        x: of(&case.run)?,
                        y: case.samples[at].iter().map(measure.of).collect(),
                    })
                };
                let mut points: Vec<Point> = self.cases.iter().filter_map(point).collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                Series { name: name.clone(), points }
            });
            let y = Axis::linear(measure.label, measure.unit);
            Samples {
                title: format!("{title}: {}", measure.label),
                x: x.clone(),
                y,
                series: series.collect(),
                drawn,
                marked: None,
            }
        });
        let measured = |s: &Samples| {
            s.series.iter().flat_map(|s| &s.points).flat_map(|p| &p.y).any(|y| y.is_finite())
        };
        samples.into_iter().filter(measured).collect()
    }

    /// Renders medians, one row per case. With several contenders it adds the first one's rate over
    /// the last one's, beside the ratio of our last run.
    pub fn table(&self, title: &str, last_run: &LastRun) -> Table {
        let mut columns = vec![Column::ours("case", "")];
        for name in &self.contenders {
            columns.push(Column::ours(name, RATE.unit));
            columns.extend([P50, P99, CPU].map(|m| Column::ours(m.short, m.unit)));
        }
        let several = self.contenders.len() > 1;
        if several {
            columns.extend([Column::ours("ratio", ""), Column::ours(LAST_RATIO, "")]);
        }
        let row = |case: &Case| {
            let name = case.run.name();
            let last = last_run.iter().find(|p| p.0 == name).map(|p| p.1);
            let mut row = vec![Cell::text(name)];
            for samples in &case.samples {
                row.extend([RATE, P50, P99, CPU].map(|m| cell(samples, &m)));
            }
            if several {
                row.extend([self.ratio(case), last].map(|ratio| Cell::number(ratio, 2)));
            }
            row
        };
        Table { title: title.into(), columns, rows: self.cases.iter().map(row).collect() }
    }

    /// Renders where missing pages came from: medians of disk reads per transaction, and of each
    /// contender's page cache.
    pub fn memory(&self, title: &str) -> Table {
        let mut columns = vec![Column::ours("case", "")];
        for name in &self.contenders {
            columns.push(Column::ours(&format!("{name} {}", DISK.short), DISK.unit));
            columns.push(Column::ours(PAGE_CACHE.short, PAGE_CACHE.unit));
        }
        let row = |case: &Case| {
            let cells = case
                .samples
                .iter()
                .flat_map(|samples| [DISK, PAGE_CACHE].map(|m| cell(samples, &m)));
            std::iter::once(Cell::text(case.run.name())).chain(cells).collect()
        };
        Table { title: title.into(), columns, rows: self.cases.iter().map(row).collect() }
    }

    /// Reports how many ratios agree with those of our last run, the largest deviation, and how
    /// noisy the machine was. Empty if nothing can be compared.
    pub fn agreement(&self, last_run: &LastRun) -> Vec<String> {
        let ratio = |name: &str| self.ratio(self.cases.iter().find(|c| c.run.name() == name)?);
        let both: Vec<(&str, f64, f64)> = last_run
            .iter()
            .filter_map(|(name, last)| Some((name.as_str(), ratio(name)?, *last)))
            .collect();
        let off = |(_, now, last): &(&str, f64, f64)| (now / last).ln().abs();
        let agree = both.iter().filter(|pair| off(pair) <= TOLERANCE.ln()).count();
        let Some((name, now, last)) = both.iter().max_by(|a, b| off(a).total_cmp(&off(b))) else {
            return Vec::new();
        };
        let (now, last) = (number::shown(*now, 2), number::shown(*last, 2));
        let (of, percent) = (both.len(), (TOLERANCE - 1.0) * 100.0);
        let mut said = vec![format!(
            "{agree} of {of} ratios are within {percent:.0} % of our last run's. The largest deviation is {name}: {now} beside {last}."
        )];
        let noise = self.noise();
        if agree < of && noise > TOLERANCE {
            said.push(format!(
                "The repetitions of a case differ by a factor of up to {}, so no ratio is more precise than \
                 that. The machine may have been disturbed: repeat the run on an idle one.",
                number::shown(noise, 2)
            ));
        }
        said
    }

    /// Returns the largest ratio between two repetitions of a case on one contender.
    fn noise(&self) -> f64 {
        let samples = self.cases.iter().flat_map(|case| &case.samples);
        let spreads =
            samples.filter_map(|s| number::spread(&s.iter().map(RATE.of).collect::<Vec<_>>()));
        spreads.map(|(least, most)| most / least).fold(1.0, f64::max)
    }

    /// Reports in how many cases the first contender beats the last, and by how much.
    pub fn summary(&self) -> Option<String> {
        let ratios: Vec<f64> = self.cases.iter().filter_map(|case| self.ratio(case)).collect();
        let (least, most) = number::spread(&ratios)?;
        let (first, last) = (self.contenders.first()?, self.contenders.last()?);
        let ahead = ratios.iter().filter(|r| **r > 1.0).count();
        let (least, most) = (number::shown(least, 2), number::shown(most, 2));
        let of = ratios.len();
        Some(format!(
            "In {ahead} of {of} cases {first} has a higher median rate than {last}; the ratio is {least} to {most}."
        ))
    }

    /// Returns the median rates of a case, by contender.
    pub fn rates(&self, case: &str) -> Option<Vec<f64>> {
        let case = self.cases.iter().find(|c| c.run.name() == case)?;
        case.samples.iter().map(|samples| of(samples, &RATE)).collect()
    }

    /// Returns the median server CPU times per transaction of a case in microseconds, by contender;
    /// `None` if one is unknown.
    pub fn cpu_us(&self, case: &str) -> Option<Vec<f64>> {
        let case = self.cases.iter().find(|c| c.run.name() == case)?;
        case.samples.iter().map(|samples| of(samples, &CPU)).collect()
    }

    /// Returns the largest ratio between two repetitions of a case on one contender: of rates, and
    /// of CPU times.
    pub fn spreads(&self, case: &str) -> Option<(f64, f64)> {
        let case = self.cases.iter().find(|c| c.run.name() == case)?;
        let spread = |measure: &Measure| {
            let spreads = case
                .samples
                .iter()
                .map(|s| number::spread(&s.iter().map(measure.of).collect::<Vec<_>>()));
            spreads
                .map(|s| s.map(|(least, most)| most / least))
                .try_fold(1.0, |most, s| Some(f64::max(most, s?)))
        };
        Some((spread(&RATE)?, spread(&CPU)?))
    }

    fn ratio(&self, case: &Case) -> Option<f64> {
        let rates: Vec<f64> =
            case.samples.iter().filter_map(|samples| of(samples, &RATE)).collect();
        (rates.len() > 1 && rates.len() == self.contenders.len())
            .then(|| rates[0] / rates[rates.len() - 1])
    }
}

fn cell(samples: &[Sample], measure: &Measure) -> Cell {
    Cell::measured(&samples.iter().map(measure.of).collect::<Vec<_>>(), measure.digits)
}

fn of(samples: &[Sample], measure: &Measure) -> Option<f64> {
    median(&samples.iter().map(measure.of).collect::<Vec<_>>())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clearway_harness::pgbench::QueryMode;

    /// Returns a comparison of two contenders, with select-only by 16 clients and by one.
    pub fn comparison() -> Comparison {
        let sample = |tps: f64| Sample {
            tps,
            latency_ms: 1.0 / tps,
            p50_ms: 0.5 / tps,
            p99_ms: 9.0 / tps,
            server_cpu_us: f64::NAN,
            disk_kb: 2.0 * tps,
            page_cache_mb: f64::NAN,
        };
        let run = |clients| Run {
            script: Script::SelectOnly,
            mode: QueryMode::Prepared,
            clients,
            threads: Run::THREADS,
            length: Length::Seconds(1),
        };
        let case = |clients, ours: [f64; 3], theirs: [f64; 3]| Case {
            run: run(clients),
            samples: vec![ours.map(sample).to_vec(), theirs.map(sample).to_vec()],
        };
        let cases = vec![
            case(16, [5.0, 30.0, 10.0], [4.0, 5.0, 6.0]),
            case(1, [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
        ];
        Comparison { contenders: vec!["a".into(), "b".into()], cases }
    }

    #[test]
    fn cpu_times_and_spreads_are_per_case() {
        let mut comparison = comparison();
        let case = "select-only -M prepared -c 16";
        assert_eq!(
            (comparison.cpu_us(case), comparison.spreads(case)),
            (None, None),
            "no CPU time is known"
        );
        for samples in &mut comparison.cases[0].samples {
            samples
                .iter_mut()
                .zip([4.0, 5.0, 6.0])
                .for_each(|(sample, us)| sample.server_cpu_us = us);
        }
        assert_eq!(comparison.cpu_us(case), Some(vec![5.0, 5.0]));
        assert_eq!(comparison.spreads(case), Some((6.0, 1.5)));
        assert_eq!(comparison.spreads("another"), None);
    }

    fn last_run(ratios: &[(&str, f64)]) -> LastRun {
        ratios.iter().map(|(case, ratio)| ((*case).to_owned(), *ratio)).collect()
    }

    #[test]
    fn tables_have_medians_and_samples_all_runs() {
        let comparison = comparison();
        let table = comparison.table("t", &last_run(&[("select-only -M prepared -c 16", 2.5)]));
        assert_eq!(table.rows[0][1].to_string(), "10 ±5");
        assert_eq!(table.rows[0][3].to_string(), "0.900 ±0.600", "the 99th percentile");
        assert_eq!(table.rows[0][4], Cell::Empty);
        assert_eq!(table.rows[0][9..], [Cell::number(2.0, 2), Cell::number(2.5, 2)]);
        assert_eq!(table.rows[1][10], Cell::Empty);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let samples =
            comparison.samples("s", &Axis::log("clients", ""), |run| Some(f64::from(run.clients)));
        let points = &samples[0].series[0].points;
        assert_eq!((points[0].x, points[1].x), (1.0, 16.0), "in the order of x");
        assert_eq!(points[1].y, [5.0, 30.0, 10.0]);
        let titles: Vec<_> = samples.iter().map(|s| s.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "s: throughput",
                "s: median latency",
                "s: 99th percentile of the latency",
                "s: average latency",
                "s: disk reads per transaction"
            ],
            "no CPU time is known"
        );
        assert_eq!(comparison.samples("s", &Axis::linear("x", ""), |_| None), Vec::new());
        let memory = comparison.memory("m");
        let shown: Vec<String> = memory.rows[0][1..].iter().map(Cell::to_string).collect();
        assert_eq!(shown, ["20.0 ±10.0", "-", "10.0 ±2.0", "-"]);
        assert_eq!(memory.rows[0].len(), memory.columns.len());
    }

    #[test]
    fn agreement_names_the_largest_deviation() {
        let all = [
            ("select-only -M prepared -c 16", 2.3),
            ("select-only -M prepared -c 1", 0.7),
            ("other", 1.0),
        ];
        let want = "1 of 2 ratios are within 20 % of our last run's. The largest deviation is select-only -M prepared -c 1: 0.50 beside 0.70.";
        let said = comparison().agreement(&last_run(&all));
        assert_eq!(said[0], want);
        assert!(said[1].contains("factor of up to 6.00"), "{said:?}");
        assert_eq!(
            comparison().agreement(&last_run(&[("select-only -M prepared -c 16", 2.0)])).len(),
            1,
            "nothing to explain"
        );
        assert_eq!(comparison().agreement(&last_run(&[("other", 1.0)])), Vec::<String>::new());
    }

    #[test]
    fn summary_counts_the_winning_cases() {
        let want = "In 1 of 2 cases a has a higher median rate than b; the ratio is 0.50 to 2.00.";
        assert_eq!(comparison().summary().unwrap(), want);
        assert_eq!(comparison().rates("select-only -M prepared -c 16").unwrap(), [10.0, 5.0]);
        assert_eq!(comparison().rates("select-only -M prepared -c 2"), None);
    }
}
